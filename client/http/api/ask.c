/* Requests; see ask.h. */
#include "client/http/api/ask.h"

#include "chat/effort.h"
#include "client/chat/sampling_zeros.h"
#include "json/json_read.h"

#include "model/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define DEPTH_MAX      64   /* of a body; also what a schema of a tool needs */
#define MEMBERS_MAX    1000 /* of an object whose members are parameters */
#define REPEATED_BYTES 1024 /* of a text that has no effect; OpenAI takes 64 */
/* A body's memory once it is parsed. A prompt of a million token ids takes a third. */
#define PARSED_BYTES_MAX (96u << 20)

void ask_init(struct ask *ask)
{
    *ask = (struct ask){.n = 1};
    moed_sampling_init(&ask->sampling, sizeof ask->sampling);
}

void ask_fini(struct ask *ask)
{
    for (size_t i = 0; i < ask->prompt_count; i++) {
        free(ask->prompts[i].tokens);
        free(ask->prompts[i].shown);
        free(ask->prompts[i].offsets);
    }
    free(ask->prompts);
    free(ask->bias);
    free(ask->stop_tokens);
    free(ask->form_text);
    tool_list_free(ask->tool_list);
    free(ask->prediction.tokens);
    json_decref(ask->prediction_text);
    json_decref(ask->breaker_list);
    json_decref(ask->messages);
    json_decref(ask->call_names);
    json_decref(ask->tools);
    json_decref(ask->custom_tools);
    json_decref(ask->root);
    *ask = (struct ask){0};
}

void ask_release_prompt(struct ask *ask)
{
    static const char *const spent[] = {"messages", "input", "chat_template_kwargs", "prediction"};
    for (size_t i = 0; i < sizeof spent / sizeof *spent; i++)
        json_object_del(ask->root, spent[i]);
    json_decref(ask->messages);
    json_decref(ask->call_names);
    json_decref(ask->tools);
    json_decref(ask->prediction_text);
    ask->messages = ask->call_names = ask->tools = ask->kwargs = ask->prediction_text = NULL;
}

struct body_shape {
    unsigned depth;      /* of arrays and objects in each other */
    size_t parsed_bytes; /* about what jansson takes for the values, their texts left out */
};

/* Outside of strings. */
static void add_to_shape(struct body_shape *shape, char c, unsigned *depth)
{
    switch (c) {
    case ',':
    case ':':
        shape->parsed_bytes += 32; /* a number */
        break;
    case '"':
        shape->parsed_bytes += 64;
        break;
    case '[':
    case '{':
        shape->parsed_bytes += 240; /* an object; an array takes less */
        if (++*depth > shape->depth)
            shape->depth = *depth;
        break;
    case ']':
    case '}':
        *depth -= *depth ? 1 : 0;
        break;
    }
}

/* What a body is, before jansson recurses into it and takes memory for it. */
static struct body_shape shape_of(const char *body, size_t len)
{
    struct body_shape shape = {0};
    unsigned depth = 0;
    bool string = false;
    for (size_t i = 0; i < len; i++) {
        if (string && body[i] == '\\') {
            i++;
            continue;
        }
        if (!string)
            add_to_shape(&shape, body[i], &depth);
        if (body[i] == '"')
            string = !string;
    }
    return shape;
}

bool ask_parse(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    json_error_t error;
    if (len == 0)
        return problem_set(p, 400, "the body is empty: a JSON object is expected");
    struct body_shape shape = shape_of(body, len);
    if (shape.depth > DEPTH_MAX)
        return problem_set(p, 400, "the body nests arrays and objects deeper than %d", DEPTH_MAX);
    if (shape.parsed_bytes > PARSED_BYTES_MAX)
        return problem_set(p, 400,
                           "the body has too many values: parsed it takes some %zu MiB; %u are "
                           "allowed",
                           shape.parsed_bytes >> 20, PARSED_BYTES_MAX >> 20);
    ask->root = json_read(body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!ask->root)
        return problem_set(p, 400, "the body is not JSON: %s (line %d, column %d)", error.text,
                           error.line, error.column);
    if (!json_is_object(ask->root))
        return problem_set(p, 400, "the body is not a JSON object");
    return true;
}

/* ---- The tables ---- */

static bool changes_nothing(const json_t *value, const char *neutral)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) == 0 ||
               (neutral && json_number_value(value) == atof(neutral));
    case JSON_STRING:
        return json_string_length(value) == 0 ||
               (neutral && strcmp(json_string_value(value), neutral) == 0);
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    default:
        return false;
    }
}

static const struct parameter *find(const struct parameter *table, const char *name)
{
    for (; table->name; table++) {
        const struct parameter *row = table->more ? find(table->more, name) : NULL;
        if (row || (!table->more && strcmp(table->name, name) == 0))
            return row ? row : table;
    }
    return NULL;
}

void ask_ignore(struct ask *ask, const char *name)
{
    static const char more[] = ",...";
    size_t n = strlen(ask->ignored), bytes = sizeof ask->ignored - n;
    char part[ASK_IGNORED_NAME + 2];
    if (n >= sizeof more - 1 && strcmp(ask->ignored + n - (sizeof more - 1), more) == 0)
        return;
    int len = snprintf(part, sizeof part, "%s%.*s", n ? "," : "", ASK_IGNORED_NAME, name);
    snprintf(ask->ignored + n, bytes, "%s", (size_t)len + sizeof more <= bytes ? part : more);
}

/* A value that nothing will read, but for a short text that a response may repeat: an answer may
 * last long. */
static bool is_spent(const struct parameter *row, const json_t *value)
{
    return !row || (!row->take && (json_is_array(value) || json_is_object(value) ||
                                   json_string_length(value) > REPEATED_BYTES));
}

/* The parameter that a problem is of; one in an object follows its parent's name and a dot. */
static void name_parameter(struct problem *p, const char *name)
{
    char inner[sizeof p->parameter];
    int most = sizeof inner / 2;
    memcpy(inner, p->parameter, sizeof inner);
    snprintf(p->parameter, sizeof p->parameter, "%s%s%.*s", name, inner[0] ? "." : "", most, inner);
}

bool ask_take(struct ask *ask, const struct parameter *table, json_t *object, struct problem *p)
{
    const char *name;
    json_t *value;
    void *next;
    if (json_object_size(object) > MEMBERS_MAX)
        return problem_set(p, 400,
                           "an object of parameters has %zu members; at most %d are allowed",
                           json_object_size(object), MEMBERS_MAX);
    json_object_foreach_safe(object, next, name, value)
    {
        const struct parameter *row = find(table, name);
        bool good = true;
        if (!row)
            ask_ignore(ask, name);
        else if (row->take)
            good = json_is_null(value) || row->take(ask, value, p);
        else if (row->refused && !changes_nothing(value, row->neutral))
            good = problem_set(p, 400, "%s", row->refused);
        if (good && is_spent(row, value))
            json_object_del(object, name);
        if (good)
            continue;
        name_parameter(p, row->name);
        return false;
    }
    return true;
}

struct moed_sampling ask_sampling(const struct ask *ask)
{
    struct moed_sampling s = ask->sampling;
    s.order = ask->ordered ? ask->order : NULL;
    s.dry_breakers = ask->breakers;
    s.dry_breaker_count = ask->breaker_count;
    s.bias = ask->bias;
    s.bias_count = ask->bias_count;
    if (ask->dry_off)
        s.dry_multiplier = 0;
    if (ask->repeat_off) {
        s.repetition_penalty = 1;
        s.presence_penalty = s.frequency_penalty = 0;
    }
    sampling_keep_zeros(&s);
    return s;
}

static struct moed_sampling moed_sampling_of(const struct sampling *from)
{
    struct moed_sampling to = {0};
#define COPY(name, ...) to.name = from->name;
    SAMPLING_FLOATS(COPY)
    SAMPLING_COUNTS(COPY)
#undef COPY
    return to;
}

struct moed_sampling ask_shown(const struct ask *ask, const struct moed_model *model)
{
    struct sampling usual = sampling_usual(), off = sampling_neutral();
    struct moed_sampling of_model =
        model && model->sampling ? *model->sampling : moed_sampling_of(&usual);
    struct moed_sampling s = ask->sampling;
    if (s.temperature == MOED_DEFAULT_FLOAT)
        s.temperature = of_model.temperature;
    if (s.temperature == 0) /* then the model's other defaults do not apply */
        of_model = moed_sampling_of(&off);
#define FILL_FLOAT(name, ...)                                                                      \
    if (s.name == MOED_DEFAULT_FLOAT)                                                              \
        s.name = of_model.name;
#define FILL_COUNT(name, ...)                                                                      \
    if (s.name == MOED_DEFAULT_COUNT)                                                              \
        s.name = of_model.name;
    SAMPLING_FLOATS(FILL_FLOAT)
    SAMPLING_COUNTS(FILL_COUNT)
    s.order = ask->ordered ? ask->order : of_model.order;
    s.dry_multiplier = ask->dry_off ? 0 : s.dry_multiplier;
    if (ask->repeat_off) {
        s.repetition_penalty = 1;
        s.presence_penalty = s.frequency_penalty = 0;
    }
    return s;
}

enum chat_switch ask_thinking(const struct ask *ask)
{
    return chat_thinking(ask->thinking, ask->thinks ? CHAT_ON : CHAT_UNSET, ask->kwargs);
}

void ask_seed(struct ask *ask)
{
    uint64_t bits[2] = {0};
    ssize_t n = getrandom(bits, sizeof bits, 0);
    (void)n; /* 16 bytes are never cut short */
    ask->id_seed = bits[0];
    if (!ask->seeded)
        ask->sampling.seed = bits[1] >> 11; /* 53 bits: an answer may name it, exactly in JSON */
}

bool ask_add_prompt(struct ask *ask, const struct ask_prompt *prompt, struct problem *p)
{
    if (ask->prompt_count == ASK_CHOICES_MAX)
        return problem_set(p, 400, "more than %d prompts", ASK_CHOICES_MAX);
    struct ask_prompt *grown =
        realloc(ask->prompts, (ask->prompt_count + 1) * sizeof *ask->prompts);
    if (!grown)
        return problem_set(p, 503, "no memory for the prompts");
    ask->prompts = grown;
    ask->prompts[ask->prompt_count++] = *prompt;
    return true;
}

bool ask_check_limit(const struct ask *ask, const char *own, struct problem *p)
{
    const char *name = ask->limit_name == LIMIT_MAX_TOKENS  ? "max_tokens"
                       : ask->limit_name == LIMIT_N_PREDICT ? "n_predict"
                                                            : own;
    return !ask->max_tokens_given || ask->max_tokens ||
           problem_refuse(p, 400, name, "at least 1 is expected");
}

void ask_prompt_only(struct ask *ask)
{
    ask->prompt_only = ask->max_tokens_given && ask->max_tokens == 0;
    if (!ask->prompt_only)
        return;
    ask->max_tokens = 1; /* which is dropped */
    ask->min_tokens = 0;
}

enum moed_code ask_show_prompt(const struct ask *ask, struct ask_prompt *prompt,
                               struct moed_session *session, struct moed_error *error)
{
    if (!ask->echo || prompt->text)
        return MOED_OK;
    return moed_detokenize(session, prompt->tokens, prompt->token_count, true, &prompt->shown,
                           &prompt->shown_bytes, error);
}

struct moed_bytes ask_shown_prompt(const struct ask_prompt *prompt)
{
    if (prompt->text)
        return (struct moed_bytes){prompt->text, prompt->text_bytes};
    return (struct moed_bytes){prompt->shown, prompt->shown_bytes};
}

/* ---- Shared parameters ---- */

bool read_number(const json_t *value, double least, double most, double *out, struct problem *p)
{
    if (!json_is_number(value))
        return problem_set(p, 400, "a number is expected");
    double v = json_number_value(value);
    if (!(v >= least && v <= most))
        return problem_set(p, 400, "%g is out of range: %g to %g", v, least, most);
    *out = v;
    return true;
}

bool integer_of(const json_t *value, long long *out)
{
    double real = json_real_value(value);
    if (json_is_real(value) && real >= -0x1p63 && real < 0x1p63 && real == trunc(real))
        *out = (long long)real;
    else if (json_is_integer(value))
        *out = json_integer_value(value);
    else
        return false;
    return true;
}

bool read_integer(const json_t *value, long long least, long long most, long long *out,
                  struct problem *p)
{
    long long v;
    if (!integer_of(value, &v))
        return problem_set(p, 400, "an integer is expected");
    if (v < least || v > most)
        return problem_set(p, 400, "%lld is out of range: %lld to %lld", v, least, most);
    *out = v;
    return true;
}

bool read_bool(const json_t *value, bool *out, struct problem *p)
{
    if (!json_is_boolean(value))
        return problem_set(p, 400, "true or false is expected");
    *out = json_is_true(value);
    return true;
}

bool read_text(const json_t *value, struct moed_bytes *out, struct problem *p)
{
    if (!json_is_string(value))
        return problem_set(p, 400, "a string is expected");
    *out = (struct moed_bytes){json_string_value(value), json_string_length(value)};
    return true;
}

bool take_model(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_string(value))
        return problem_set(p, 400, "a string is expected");
    ask->model = json_string_value(value);
    return true;
}

bool take_stream(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->stream, p);
}

bool take_stream_options(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_object(value))
        return problem_set(p, 400, "an object is expected");
    json_t *usage = json_object_get(value, "include_usage");
    json_t *chunks = json_object_get(value, "continuous_usage_stats"); /* vLLM's */
    return (!usage || json_is_null(usage) || read_bool(usage, &ask->include_usage, p)) &&
           (!chunks || json_is_null(chunks) || read_bool(chunks, &ask->usage_in_chunks, p));
}

/* -1 is llama-server's and LM Studio's: no limit. */
static bool take_limit(struct ask *ask, enum limit_name name, const json_t *value,
                       struct problem *p)
{
    long long v;
    if (!read_integer(value, -1, UINT32_MAX, &v, p))
        return false;
    if (name < ask->limit_name)
        return true;
    ask->limit_name = name;
    ask->max_tokens_given = v >= 0;
    ask->max_tokens = v >= 0 ? (uint32_t)v : 0;
    return true;
}

bool take_max_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    return take_limit(ask, LIMIT_MAX_TOKENS, value, p);
}

bool take_n_predict(struct ask *ask, json_t *value, struct problem *p)
{
    return take_limit(ask, LIMIT_N_PREDICT, value, p);
}

bool take_max_completion_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    return take_limit(ask, LIMIT_COMPLETION_TOKENS, value, p);
}

bool take_n(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, 1, ASK_CHOICES_MAX, &v, p))
        return false;
    ask->n = (uint32_t)v;
    return true;
}

bool take_temperature(struct ask *ask, json_t *value, struct problem *p)
{
    double v;
    if (!read_number(value, 0, 100, &v, p))
        return false;
    ask->sampling.temperature = (float)v;
    return true;
}

bool take_top_p(struct ask *ask, json_t *value, struct problem *p)
{
    double v;
    if (!read_number(value, 0, 1, &v, p))
        return false;
    ask->sampling.top_p = (float)v;
    return true;
}

/* -1 and 0 switch it off, as other servers have it. */
bool take_top_k(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, -1, INT32_MAX, &v, p))
        return false;
    ask->sampling.top_k = v > 0 ? (uint32_t)v : 0;
    return true;
}

bool take_min_p(struct ask *ask, json_t *value, struct problem *p)
{
    double v;
    if (!read_number(value, 0, 1, &v, p))
        return false;
    ask->sampling.min_p = (float)v;
    return true;
}

bool take_repetition_penalty(struct ask *ask, json_t *value, struct problem *p)
{
    double v;
    if (!read_number(value, 0, 100, &v, p))
        return false;
    ask->sampling.repetition_penalty = v > 0 ? (float)v : 1; /* both off */
    return true;
}

bool take_repetition_window(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, -1, UINT32_MAX, &v, p))
        return false;
    ask->repeat_off = v == 0;
    ask->sampling.repetition_window = v < 0 ? UINT32_MAX - 1 : (uint32_t)v;
    return true;
}

/* Any 64 bits; a negative number is one too, but -1 is a random seed, as other servers have it. Of
 * several names for it -1 leaves the seed of another one. JSON's integers from 2^63 on came as
 * reals (json_read), so they are seeds without their last bits. */
bool take_seed(struct ask *ask, json_t *value, struct problem *p)
{
    long long v = 0;
    double real = json_real_value(value);
    bool large = real >= 0x1p63 && real <= 0x1p64;
    if (!large && !integer_of(value, &v))
        return problem_set(p, 400, "an integer of 64 bits is expected");
    if (!large && v == -1)
        return true;
    ask->seeded = true;
    ask->sampling.seed = !large ? (uint64_t)v : real < 0x1p64 ? (uint64_t)real : UINT64_MAX;
    return true;
}

static bool add_stop(struct ask *ask, const json_t *value, struct problem *p)
{
    if (!json_is_string(value))
        return problem_set(p, 400, "a string or an array of strings is expected");
    if (json_string_length(value) == 0)
        return true; /* it is in any text: clients that send one mean none */
    if (ask->stop_count == ASK_STOPS_MAX)
        return problem_set(p, 400, "more than %d stop strings", ASK_STOPS_MAX);
    ask->stops[ask->stop_count++] =
        (struct moed_bytes){json_string_value(value), json_string_length(value)};
    return true;
}

bool take_service_tier(struct ask *ask, json_t *value, struct problem *p)
{
    const char *tier = json_string_value(value);
    if (!tier)
        return problem_set(p, 400, "a string is expected");
    if (strcmp(tier, "flex") == 0 || strcmp(tier, "batch") == 0)
        ask->priority = MOED_PRIORITY_BATCH;
    return true;
}

bool take_stop(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_array(value))
        return add_stop(ask, value, p);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_stop(ask, json_array_get(value, i), p))
            return false;
    return true;
}

bool take_echo(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->echo, p);
}

bool take_text_prompt(struct ask *ask, json_t *value, struct problem *p)
{
    struct moed_bytes text;
    if (!read_text(value, &text, p))
        return false;
    return ask_add_prompt(ask, &(struct ask_prompt){.text = text.data, .text_bytes = text.len}, p);
}

bool take_fill_suffix(struct ask *ask, json_t *value, struct problem *p)
{
    if (!read_text(value, &ask->fill.suffix, p))
        return false;
    ask->fill.wanted = ask->fill.suffix.len > 0;
    return true;
}

bool take_ignore_end(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->ignore_end, p);
}

bool take_parse_special(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->parse_special, p);
}

bool take_add_special_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    bool add = true;
    bool good = read_bool(value, &add, p);
    ask->plain_prompt = !add;
    return good;
}

bool take_min_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, 0, UINT32_MAX, &v, p))
        return false;
    ask->min_tokens = (uint32_t)v;
    return true;
}

bool take_top_logprobs(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, 0, ASK_TOP_MAX, &v, p))
        return false;
    ask->top_logprobs = (uint32_t)v;
    return true;
}

bool take_logprobs(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->logprobs, p);
}

bool take_kwargs(struct ask *ask, json_t *value, struct problem *p)
{
    ask->kwargs = value;
    return json_is_object(value) || problem_set(p, 400, "an object is expected");
}

bool take_effort(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return problem_set(p, 400, "none, low, medium, high or another of the model's is expected");
    const char *effort = json_string_value(value);
    enum chat_switch thinking = chat_effort_switch(effort);
    if (thinking == CHAT_OFF) {
        ask->thinking = CHAT_OFF;
        return true;
    }
    ask->reasoning_effort = effort;
    ask->thinks = ask->thinks || thinking == CHAT_ON; /* another parameter may want it, too */
    return true;
}

bool take_enable_thinking(struct ask *ask, json_t *value, struct problem *p)
{
    bool on;
    if (!read_bool(value, &on, p))
        return false;
    ask->thinking = on ? CHAT_ON : CHAT_OFF;
    return true;
}

bool read_token_ids(const json_t *array, uint32_t **tokens, size_t *count, struct problem *p)
{
    size_t n = json_array_size(array);
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids)
        return problem_set(p, 503, "no memory for the token ids");
    for (size_t i = 0; i < n; i++) {
        long long id;
        if (!read_integer(json_array_get(array, i), 0, UINT32_MAX, &id, p)) {
            free(ids);
            return problem_set(p, 400, "item %zu is not a token id", i);
        }
        ids[i] = (uint32_t)id;
    }
    *tokens = ids;
    *count = n;
    return true;
}
