/* The sampling parameters that several APIs share, by each name that clients know them; see ask.h.
 * docs/sampling.md says what they do. Where an API says "off" otherwise than by libmoed's value,
 * the function here translates. */
#include "client/http/api/ask.h"

#include "model/sampling.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

#define TAKE_FLOAT(field, least, most)                                                             \
    static bool take_##field(struct ask *ask, json_t *value, struct problem *p)                    \
    {                                                                                              \
        double v;                                                                                  \
        if (!read_number(value, least, most, &v, p))                                               \
            return false;                                                                          \
        ask->sampling.field = (float)v;                                                            \
        return true;                                                                               \
    }

TAKE_FLOAT(presence_penalty, -100, 100)
TAKE_FLOAT(frequency_penalty, -100, 100)
TAKE_FLOAT(typical_p, 0, 1)
TAKE_FLOAT(dynamic_temperature, 0, 100)
TAKE_FLOAT(dynamic_exponent, 0, 100)
TAKE_FLOAT(xtc_probability, 0, 1)
TAKE_FLOAT(xtc_threshold, 0, 1)
TAKE_FLOAT(dry_multiplier, 0, 100)
TAKE_FLOAT(dry_base, 1, 100)
TAKE_FLOAT(mirostat_tau, 0, 100)
TAKE_FLOAT(mirostat_eta, 0, 1)

/* -1 is off too. */
static bool take_top_n_sigma(struct ask *ask, json_t *value, struct problem *p)
{
    double v;
    if (!read_number(value, -1, 100, &v, p))
        return false;
    ask->sampling.top_n_sigma = v > 0 ? (float)v : 0;
    return true;
}

static bool take_dry_allowed_length(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, 1, UINT32_MAX - 1, &v, p))
        return false;
    ask->sampling.dry_allowed_length = (uint32_t)v;
    return true;
}

/* As llama-server has it: -1 is the whole conversation, 0 none. */
static bool take_dry_window(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, -1, UINT32_MAX - 1, &v, p))
        return false;
    ask->dry_off = v == 0;
    ask->sampling.dry_window = v > 0 ? (uint32_t)v : 0;
    return true;
}

static bool take_mirostat(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, 0, 2, &v, p))
        return false;
    if (v == 1)
        return problem_set(p, 400, "0 or 2 is expected: there is no mirostat 1");
    ask->sampling.mirostat = (uint32_t)v;
    return true;
}

/* ---- DRY's breakers ---- */

#define BREAKERS_TEXT_MAX 4096 /* so that parsing it takes little memory */

/* The list as an array, or as the text of one, which SillyTavern sends. NULL: it is none. */
static json_t *breaker_array(struct ask *ask, json_t *value)
{
    if (!json_is_string(value) || json_string_length(value) > BREAKERS_TEXT_MAX)
        return value;
    json_decref(ask->breaker_list);
    ask->breaker_list = json_loadb(json_string_value(value), json_string_length(value), 0, NULL);
    return ask->breaker_list;
}

/* Empty texts are left out, as by llama-server. */
static bool take_breakers(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct moed_bytes none = {"", 0};
    if (json_is_string(value) && json_string_length(value) == 0)
        return true;
    const json_t *list = breaker_array(ask, value);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > ASK_BREAKERS_MAX)
        return problem_set(p, 400, "an array of at most %d strings is expected", ASK_BREAKERS_MAX);
    ask->breaker_count = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *each = json_array_get(list, i);
        struct moed_bytes text = {json_string_value(each), json_string_length(each)};
        if (!json_is_string(each))
            return problem_set(p, 400, "item %zu is not a text", i);
        if (text.len > ASK_BREAKER_BYTES)
            return problem_set(p, 400, "item %zu has more than %d bytes", i, ASK_BREAKER_BYTES);
        if (text.len)
            ask->breakers[ask->breaker_count++] = text;
    }
    if (ask->breaker_count == 0) /* an empty list: nothing breaks */
        ask->breakers[ask->breaker_count++] = none;
    return true;
}

/* ---- The order of the samplers ---- */

_Static_assert(sizeof SAMPLING_ORDER <= sizeof((struct ask *)0)->order, "each once");

/* Notes for the access log that a sampler of the list is none of moed's. */
static void ignore_sampler(struct ask *ask, const char *name, int bytes)
{
    char text[32];
    snprintf(text, sizeof text, "samplers:%.*s", bytes, name);
    ask_ignore(ask, text);
}

/* at: its place in the request's list. */
static bool add_sampler(struct ask *ask, size_t *n, char letter, size_t at, struct problem *p)
{
    if (memchr(ask->order, letter, *n))
        return problem_set(p, 400, "item %zu is a sampler that stands in the list before", at);
    ask->order[(*n)++] = letter;
    ask->order[*n] = '\0';
    return true;
}

/* A string of letters, or an array of names; empty: none of them. Samplers that moed does not have
 * are left out, as llama-server does: clients list all that they know, also those that are off. If
 * no other is left, the usual ones hold. */
static bool take_samplers(struct ask *ask, json_t *value, struct problem *p)
{
    const char *letters = json_string_value(value);
    size_t count = letters ? strlen(letters) : json_array_size(value), n = 0;
    if (!letters && !json_is_array(value))
        return problem_set(p, 400, "an array of names or a string of letters is expected");
    for (size_t i = 0; i < count; i++) {
        const char *name = letters ? letters + i : json_string_value(json_array_get(value, i));
        if (!name)
            return problem_set(p, 400, "item %zu is no name", i);
        char letter = letters ? letters[i] : sampling_letter(name, strlen(name));
        if (!letter || !strchr(SAMPLING_ORDER, letter))
            ignore_sampler(ask, name, letters ? 1 : 20);
        else if (!add_sampler(ask, &n, letter, i, p))
            return false;
    }
    ask->ordered = n || !count;
    return true;
}

/* A negative target is off; so is 0, as of other parameters that moed does not have. */
static bool take_adaptive_target(struct ask *ask, json_t *value, struct problem *p)
{
    return (json_is_number(value) && json_number_value(value) <= 0) ||
           problem_set(p, 400, "there is no adaptive-p: -1 switches it off");
}

/* ---- Biases ---- */

/* A bias of false forbids the token; as OpenAI has it, -100 does almost. */
static bool read_bias(const json_t *value, float *out, struct problem *p)
{
    double v;
    if (json_is_false(value)) {
        *out = -INFINITY;
        return true;
    }
    if (!read_number(value, -1e6, 1e6, &v, p))
        return false;
    *out = (float)v;
    return true;
}

static bool append_bias(struct ask *ask, const struct moed_bias *b)
{
    struct moed_bias *grown = realloc(ask->bias, (ask->bias_count + 1) * sizeof *grown);
    if (!grown)
        return false;
    ask->bias = grown;
    ask->bias[ask->bias_count++] = *b;
    return true;
}

static bool add_bias(struct ask *ask, const struct moed_bias *b, struct problem *p)
{
    if (ask->bias_count == ASK_BIASES_MAX)
        return problem_set(p, 400, "more than %d biases", ASK_BIASES_MAX);
    return append_bias(ask, b) || problem_set(p, 503, "no memory for the biases");
}

bool ask_ban_token(struct ask *ask, uint32_t token)
{
    return append_bias(ask, &(struct moed_bias){.token = token, .bias = -INFINITY});
}

/* A key is a token's id; one that is no number is a text, as llama-server has it. */
static bool add_keyed_bias(struct ask *ask, const char *key, const json_t *value, struct problem *p)
{
    struct moed_bias b = {0};
    char *end;
    unsigned long id = strtoul(key, &end, 10);
    if (isdigit((unsigned char)key[0]) && !*end && id <= UINT32_MAX)
        b.token = (uint32_t)id;
    else if (*key)
        b.text = (struct moed_bytes){key, strlen(key)};
    else
        return problem_set(p, 400, "a key is empty");
    return read_bias(value, &b.bias, p) && add_bias(ask, &b, p);
}

/* [id or text, bias] */
static bool add_listed_bias(struct ask *ask, const json_t *pair, struct problem *p)
{
    const json_t *what = json_array_get(pair, 0);
    struct moed_bias b = {0};
    long long id;
    if (json_is_string(what) && json_string_length(what))
        b.text = (struct moed_bytes){json_string_value(what), json_string_length(what)};
    else if (integer_of(what, &id) && id >= 0 && id <= UINT32_MAX)
        b.token = (uint32_t)id;
    else
        return problem_set(p, 400, "pairs of a token's id or a text and its bias are expected");
    return read_bias(json_array_get(pair, 1), &b.bias, p) && add_bias(ask, &b, p);
}

static bool take_logit_bias(struct ask *ask, json_t *value, struct problem *p)
{
    const char *key;
    json_t *each;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            if (!add_listed_bias(ask, json_array_get(value, i), p))
                return false;
        return true;
    }
    if (!json_is_object(value))
        return problem_set(p, 400, "an object of token ids and biases is expected");
    json_object_foreach(value, key, each)
    {
        if (!add_keyed_bias(ask, key, each, p))
            return false;
    }
    return true;
}

/* SillyTavern's and text-generation-webui's: ids as a text, separated by commas, or as an array. */
static bool take_token_bans(struct ask *ask, json_t *value, struct problem *p)
{
    const char *at = json_string_value(value);
    size_t n = json_array_size(value);
    if (!at && !json_is_array(value))
        return problem_set(p, 400, "token ids are expected, separated by commas");
    for (size_t i = 0; i < n; i++) {
        struct moed_bias b = {.bias = -INFINITY};
        long long id;
        if (!integer_of(json_array_get(value, i), &id) || id < 0 || id > UINT32_MAX)
            return problem_set(p, 400, "item %zu is no token id", i);
        b.token = (uint32_t)id;
        if (!add_bias(ask, &b, p))
            return false;
    }
    while (at && *(at += strspn(at, ", "))) {
        char *end;
        unsigned long id = strtoul(at, &end, 10);
        struct moed_bias b = {.token = (uint32_t)id, .bias = -INFINITY};
        if (!isdigit((unsigned char)*at) || id > UINT32_MAX || (*end && !strchr(", ", *end)))
            return problem_set(p, 400, "token ids are expected, separated by commas");
        if (!add_bias(ask, &b, p))
            return false;
        at = end;
    }
    return true;
}

/* ---- The end ---- */

/* The end cannot be chosen. SillyTavern sends ignore_eos too, so false changes nothing. */
static bool take_ban_end(struct ask *ask, json_t *value, struct problem *p)
{
    bool ban;
    if (!read_bool(value, &ban, p))
        return false;
    ask->ignore_end = ask->ignore_end || ban;
    ask->ban_end = ask->ban_end || ban;
    return true;
}

static bool take_stop_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_array(value))
        return problem_set(p, 400, "an array of token ids is expected");
    free(ask->stop_tokens);
    ask->stop_tokens = NULL;
    ask->stop_token_count = 0;
    return read_token_ids(value, &ask->stop_tokens, &ask->stop_token_count, p);
}

static bool take_skip_special(struct ask *ask, json_t *value, struct problem *p)
{
    bool skip;
    if (!read_bool(value, &skip, p))
        return false;
    ask->special_text = !skip;
    return true;
}

/* llama-server's; 0 and below: no limit. */
static bool take_predict_ms(struct ask *ask, json_t *value, struct problem *p)
{
    long long ms;
    if (!read_integer(value, -1, UINT32_MAX, &ms, p))
        return false;
    ask->predict_ms = ms > 0 ? (uint32_t)ms : 0;
    return true;
}

#define NO_BEAMS "moed samples one answer a choice"

/* vLLM's: the lower comes first. */
static bool take_priority(struct ask *ask, json_t *value, struct problem *p)
{
    long long priority;
    if (!read_integer(value, INT32_MIN, INT32_MAX, &priority, p))
        return false;
    ask->priority = priority > 0 ? MOED_PRIORITY_BATCH : MOED_PRIORITY_INTERACTIVE;
    return true;
}

/* llama-server's: the drafts of a step. */
static bool take_max_drafts(struct ask *ask, json_t *value, struct problem *p)
{
    long long n;
    if (!read_integer(value, 0, INT32_MAX, &n, p))
        return false;
    ask->max_drafts = (uint32_t)n;
    ask->no_drafts = n == 0;
    return true;
}

/* vLLM's 0 asks for the prompt's own tokens: it is no value that changes nothing. */
static bool refuse_prompt_logprobs(struct ask *ask, json_t *value, struct problem *p)
{
    return json_is_false(value) ||
           problem_set(p, 400, "use /v1/completions with echo and logprobs");
}

static bool take_names_are_ids(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->names_are_ids, p);
}

const struct parameter sampling_parameters[] = {
    {.name = "temperature", .take = take_temperature},
    {.name = "top_p", .take = take_top_p},
    {.name = "top_k", .take = take_top_k},
    {.name = "min_p", .take = take_min_p},
    {.name = "typical_p", .take = take_typical_p},
    {.name = "typical", .take = take_typical_p},
    {.name = "top_n_sigma", .take = take_top_n_sigma},
    {.name = "nsigma", .take = take_top_n_sigma},
    {.name = "dynatemp_range", .take = take_dynamic_temperature},
    {.name = "dynatemp_exponent", .take = take_dynamic_exponent},
    {.name = "xtc_probability", .take = take_xtc_probability},
    {.name = "xtc_threshold", .take = take_xtc_threshold},
    {.name = "repetition_penalty", .take = take_repetition_penalty},
    {.name = "repeat_penalty", .take = take_repetition_penalty},
    {.name = "rep_pen", .take = take_repetition_penalty},
    {.name = "repeat_last_n", .take = take_repetition_window},
    {.name = "rep_pen_range", .take = take_repetition_window},
    {.name = "presence_penalty", .take = take_presence_penalty},
    {.name = "frequency_penalty", .take = take_frequency_penalty},
    {.name = "dry_multiplier", .take = take_dry_multiplier},
    {.name = "dry_base", .take = take_dry_base},
    {.name = "dry_allowed_length", .take = take_dry_allowed_length},
    {.name = "dry_penalty_last_n", .take = take_dry_window},
    {.name = "dry_sequence_breakers", .take = take_breakers},
    {.name = "mirostat", .take = take_mirostat},
    {.name = "mirostat_tau", .take = take_mirostat_tau},
    {.name = "mirostat_eta", .take = take_mirostat_eta},
    {.name = "samplers", .take = take_samplers},
    {.name = "logit_bias", .take = take_logit_bias},
    {.name = "custom_token_bans", .take = take_token_bans},
    {.name = "seed", .take = take_seed},
    {.name = "sampler_seed", .take = take_seed},
    {.name = "stop", .take = take_stop},
    {.name = "stop_token_ids", .take = take_stop_tokens},
    {.name = "min_tokens", .take = take_min_tokens},
    {.name = "ignore_eos", .take = take_ignore_end},
    {.name = "ban_eos_token", .take = take_ban_end},
    {.name = "skip_special_tokens", .take = take_skip_special},
    {.name = "include_stop_str_in_output", .refused = "a stop string is never part of the answer"},
    {.name = "bad_words", .refused = "use logit_bias with false"},
    {.name = "allowed_token_ids", .refused = "use logit_bias"},
    {.name = "sampler_order", .refused = "use samplers"},
    {.name = "tfs_z", .refused = "there is no tail-free sampling", .neutral = "1"},
    /* samplers of text-generation-webui and KoboldCpp: each with the value that switches it off */
    {.name = "tfs", .refused = "there is no tail-free sampling", .neutral = "1"},
    {.name = "top_a", .refused = "there is no top-a: use min_p"},
    {.name = "smoothing_factor", .refused = "there is no smooth sampling"},
    {.name = "smoothing_curve"}, /* of smoothing_factor */
    {.name = "epsilon_cutoff", .refused = "there is no such cutoff: use min_p"},
    {.name = "eta_cutoff", .refused = "there is no such cutoff: use min_p"},
    {.name = "penalty_alpha", .refused = "there is no contrastive search"},
    {.name = "no_repeat_ngram_size", .refused = "use dry_multiplier"},
    {.name = "encoder_repetition_penalty", .refused = "use repetition_penalty", .neutral = "1"},
    {.name = "guidance_scale", .refused = "there is no guidance", .neutral = "1"},
    {.name = "negative_prompt"}, /* of guidance_scale */
    {.name = "banned_strings",
     .refused = "texts of several tokens cannot be banned; logit_bias "
                "with false bans tokens"},
    {.name = "image_data", .refused = "this model takes text only"},
    {.name = "adaptive_target", .take = take_adaptive_target},
    {.name = "adaptive_decay"},
    {.name = "use_beam_search", .refused = NO_BEAMS},
    {.name = "length_penalty", .refused = NO_BEAMS, .neutral = "1"},
    {.name = "prompt_logprobs", .take = refuse_prompt_logprobs},
    {.name = "return_tokens_as_token_ids", .take = take_names_are_ids}, /* vLLM's */
    {.name = "n_probs", .refused = "use logprobs"},
    {.name = "post_sampling_probs", .refused = "log-probabilities are the model's own"},
    {.name = "truncate_prompt_tokens", .refused = "a prompt is never cut"},
    {.name = "t_max_predict_ms", .take = take_predict_ms},
    {.name = "priority", .take = take_priority},
    {.name = "speculative.n_max", .take = take_max_drafts},
    {.name = "return_progress", .refused = "use /v1/chat/completions or /completion"},
    {.name = "lora", .refused = "there are no adapters"},
    /* the prefix cache is on for all, and a deployment has no slots to choose */
    {.name = "cache_prompt"},
    /* a context is never shifted */
    {.name = "n_keep"},
    {.name = "n_discard"},
    {.name = "num_keep"},
    {.name = "id_slot"},
    {.name = "spaces_between_special_tokens"},
    /* the worker knows how probable a draft is, and whether it pays */
    {.name = "speculative.n_min"},
    {.name = "speculative.p_min"},
    {0},
};
