/* POST /infill; see infill.h. */
#include "client/http/api/infill.h"

#include "client/http/api/ask_body.h"
#include "client/http/api/llama_completion.h"

#define CHUNKS_MAX 1024 /* editors send some 16 */

static bool take_prefix(struct ask *ask, json_t *value, struct problem *p)
{
    return read_text(value, &ask->fill.prefix, p);
}

static bool take_suffix(struct ask *ask, json_t *value, struct problem *p)
{
    return read_text(value, &ask->fill.suffix, p);
}

static bool is_chunk(const json_t *value)
{
    const json_t *name = json_object_get(value, "filename");
    return json_is_string(json_object_get(value, "text")) &&
           (!name || json_is_null(name) || json_is_string(name));
}

/* Other parts of the project: [{"filename", "text"}, ...] */
static bool take_extra(struct ask *ask, json_t *value, struct problem *p)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > CHUNKS_MAX)
        return problem_set(p, 400,
                           "an array of at most %d objects with filename and text is expected",
                           CHUNKS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!is_chunk(json_array_get(value, i)))
            return problem_set(p, 400, "item %zu has no text, or a filename that is no string", i);
    ask->fill.extra = value;
    return true;
}

/* The prompt is the text between the prefix and the cursor, which editors send apart: the line's.
 * It stands before the shared row. */
static const struct parameter parameters[] = {
    {.name = "input_prefix", .take = take_prefix},
    {.name = "input_suffix", .take = take_suffix},
    {.name = "input_extra", .take = take_extra},
    {.name = "prompt", .take = take_text_prompt},
    {.name = "what /completion has too", .more = llama_completion_parameters},
    {0},
};

bool parse_infill(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, parameters, ask->root, p))
        return false;
    ask->fill.wanted = ask->fill.infill = true;
    if (!ask->fill.prefix.data)
        return problem_refuse(p, 400, "input_prefix", "input_prefix is missing");
    if (!ask->fill.suffix.data)
        return problem_refuse(p, 400, "input_suffix", "input_suffix is missing");
    llama_completion_conclude(ask);
    return ask->prompt_count || ask_add_prompt(ask, &(struct ask_prompt){.text = ""}, p);
}

static void take_infill(struct exchange *x, struct ask *ask)
{
    answer_start(x, ask, &llama_dialect, "cmpl-");
}

void handle_infill(struct exchange *x)
{
    ask_body(x, parse_infill, take_infill);
}
