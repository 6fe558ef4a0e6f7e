/* libmoed's binary interface: a program that was built against version 1.0 of moed.h runs with this
 * library. The layouts below are those of 1.0 on machines with 64 bits, written down once: a line
 * may be added behind a struct's last one, none may change. */
#include "client_session.h"

#include <dlfcn.h>
#include <sys/wait.h>

#define AT(type, field, offset)                                                                    \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field " has moved")

#if __SIZEOF_POINTER__ == 8
AT(moed_error, code, 0);
AT(moed_error, retry, 4);
AT(moed_error, message, 5);
_Static_assert(sizeof(struct moed_error) == 520, "struct moed_error never changes");
AT(moed_attach_options, size, 0);
AT(moed_attach_options, deployment, 8);
AT(moed_attach_options, client, 16);
AT(moed_attach_options, timeout_ms, 24);
AT(moed_attach_options, resume_ms, 28);
_Static_assert(sizeof(struct moed_bytes) == 16 && sizeof(struct moed_bias) == 24 &&
                   sizeof(struct moed_range) == 16,
               "elements of arrays never change");
AT(moed_sampling, size, 0);
AT(moed_sampling, temperature, 8);
AT(moed_sampling, top_k, 12);
AT(moed_sampling, top_p, 16);
AT(moed_sampling, min_p, 20);
AT(moed_sampling, repetition_penalty, 24);
AT(moed_sampling, repetition_window, 28);
AT(moed_sampling, seed, 32);
AT(moed_sampling, presence_penalty, 40);
AT(moed_sampling, frequency_penalty, 44);
AT(moed_sampling, typical_p, 48);
AT(moed_sampling, top_n_sigma, 52);
AT(moed_sampling, dynamic_temperature, 56);
AT(moed_sampling, dynamic_exponent, 60);
AT(moed_sampling, xtc_probability, 64);
AT(moed_sampling, xtc_threshold, 68);
AT(moed_sampling, dry_multiplier, 72);
AT(moed_sampling, dry_base, 76);
AT(moed_sampling, dry_allowed_length, 80);
AT(moed_sampling, dry_window, 84);
AT(moed_sampling, dry_breakers, 88);
AT(moed_sampling, dry_breaker_count, 96);
AT(moed_sampling, mirostat, 104);
AT(moed_sampling, mirostat_tau, 108);
AT(moed_sampling, mirostat_eta, 112);
AT(moed_sampling, mirostat_mu, 116);
AT(moed_sampling, order, 120);
AT(moed_sampling, bias, 128);
AT(moed_sampling, bias_count, 136);
AT(moed_model, name, 0);
AT(moed_model, architecture, 8);
AT(moed_model, path, 16);
AT(moed_model, parameters, 24);
AT(moed_model, file_bytes, 32);
AT(moed_model, layers, 40);
AT(moed_model, d_model, 44);
AT(moed_model, experts, 48);
AT(moed_model, experts_used, 52);
AT(moed_model, vocab, 56);
AT(moed_model, context, 60);
AT(moed_model, context_trained, 64);
AT(moed_model, device, 72);
AT(moed_model, bos, 80);
AT(moed_model, eos, 88);
AT(moed_model, chat_template, 96);
AT(moed_model, dense_layers, 104);
AT(moed_model, sampling, 112);
AT(moed_model, end_tokens, 120);
AT(moed_model, end_token_count, 128);
AT(moed_model, chat_template_tools, 136);
AT(moed_model, fim, 144);
AT(moed_model, quantization, 192);
AT(moed_model, chat_template_kwargs, 200);
AT(moed_model, reasoning_budget, 208);
AT(moed_model, reproducible, 212);
AT(moed_model, kv_type, 216);
AT(moed_model, identity, 224);
AT(moed_record_options, size, 0);
AT(moed_record_options, gate, 8);
AT(moed_record_options, hidden_every, 12);
AT(moed_record_options, hidden_phase, 16);
AT(moed_record_options, stepwise, 20);
AT(moed_record_options, prompt_only, 21);
AT(moed_grammar, size, 0);
AT(moed_grammar, kind, 8);
AT(moed_grammar, text, 16);
AT(moed_grammar, text_bytes, 24);
AT(moed_grammar, trigger, 32);
AT(moed_grammar, trigger_bytes, 40);
AT(moed_grammar, trigger_required, 48);
AT(moed_grammar, marks, 56);
AT(moed_grammar, mark_count, 64);
AT(moed_grammar, reasoning_begin, 72);
AT(moed_grammar, reasoning_end, 80);
AT(moed_reasoning_limit, size, 0);
AT(moed_reasoning_limit, tokens, 8);
AT(moed_reasoning_limit, begin, 16);
AT(moed_reasoning_limit, ends, 24);
AT(moed_reasoning_limit, end_count, 32);
AT(moed_reasoning_limit, forced, 40);
AT(moed_reasoning_limit, forced_count, 48);
AT(moed_reasoning_limit, forbidden, 56);
AT(moed_reasoning_limit, forbidden_count, 64);
AT(moed_generate_options, size, 0);
AT(moed_generate_options, prompt, 8);
AT(moed_generate_options, prompt_bytes, 16);
AT(moed_generate_options, tokens, 24);
AT(moed_generate_options, token_count, 32);
AT(moed_generate_options, parse_special, 40);
AT(moed_generate_options, ignore_end, 41);
AT(moed_generate_options, max_tokens, 44);
AT(moed_generate_options, sampling, 48);
AT(moed_generate_options, stop, 56);
AT(moed_generate_options, stop_count, 64);
AT(moed_generate_options, record, 72);
AT(moed_generate_options, min_tokens, 80);
AT(moed_generate_options, stop_tokens, 88);
AT(moed_generate_options, stop_token_count, 96);
AT(moed_generate_options, special_text, 104);
AT(moed_generate_options, logprobs, 105);
AT(moed_generate_options, top_logprobs, 108);
AT(moed_generate_options, progress, 112);
AT(moed_generate_options, grammar, 120);
AT(moed_generate_options, priority, 128);
AT(moed_generate_options, deadline_ms, 132);
AT(moed_generate_options, cache_salt, 136);
AT(moed_generate_options, reasoning, 144);
AT(moed_generate_options, plain, 152);
AT(moed_generate_options, plain_count, 160);
AT(moed_generate_options, client, 168);
AT(moed_generate_options, max_drafts, 176);
AT(moed_generate_options, no_drafts, 180);
AT(moed_generate_options, prediction, 184);
AT(moed_generate_options, prediction_count, 192);
AT(moed_logprobs_options, size, 0);
AT(moed_logprobs_options, tokens, 8);
AT(moed_logprobs_options, token_count, 16);
AT(moed_logprobs_options, first, 24);
AT(moed_logprobs_options, top, 32);
AT(moed_logprobs_options, priority, 36);
AT(moed_logprobs_options, cache_salt, 40);
AT(moed_logprobs_options, client, 48);
AT(moed_result, size, 0);
AT(moed_result, reason, 8);
AT(moed_result, prompt_tokens, 12);
AT(moed_result, cached_tokens, 16);
AT(moed_result, generated_tokens, 20);
AT(moed_result, queue_ns, 24);
AT(moed_result, prefill_ns, 32);
AT(moed_result, decode_ns, 40);
AT(moed_result, resumed, 48);
AT(moed_result, end_token, 56);
AT(moed_result, stop_index, 64);
AT(moed_result, seed, 72);
AT(moed_result, drafted_tokens, 80);
AT(moed_result, accepted_tokens, 84);
AT(moed_result, reasoning_tokens, 88);
AT(moed_result, prediction_tokens, 92);
AT(moed_result, predicted_tokens, 96);
AT(moed_event, kind, 0);
AT(moed_event, tokens, 8);
AT(moed_event, token_count, 16);
AT(moed_event, text, 24);
AT(moed_event, text_bytes, 32);
AT(moed_event, row, 40);
AT(moed_event, logits, 48);
AT(moed_event, logit_count, 56);
AT(moed_event, result, 64);
AT(moed_event, first, 72);
AT(moed_event, logprobs, 80);
AT(moed_event, logprob_count, 88);
AT(moed_event, top_tokens, 96);
AT(moed_event, top_logprobs, 104);
AT(moed_event, top_count, 112);
AT(moed_event, mirostat_mu, 120);
AT(moed_event, routing, 128);
AT(moed_event, progress, 136);
AT(moed_event, parts, 144);
AT(moed_event, part_count, 152);
AT(moed_event, forced, 160);
AT(moed_event, token_bytes, 168);
AT(moed_part, kind, 0);
AT(moed_part, call, 4);
AT(moed_part, id, 8);
AT(moed_part, name, 16);
AT(moed_part, text, 24);
AT(moed_part, text_bytes, 32);
AT(moed_part, complete, 40);
AT(moed_chat_options, size, 0);
AT(moed_chat_options, chat_template, 8);
AT(moed_chat_options, tools, 16);
AT(moed_chat_options, tool_choice, 24);
AT(moed_chat_options, tool_name, 32);
AT(moed_chat_options, one_call, 40);
AT(moed_chat_options, whole_calls, 41);
AT(moed_chat_options, thinking, 44);
AT(moed_chat_options, reasoning_effort, 48);
AT(moed_chat_options, variables, 56);
AT(moed_routing, hidden_count, 72);
AT(moed_progress, ns, 8);
AT(moed_progress, cached_tokens, 16);
#endif

/* ---- Sizes ---- */

/* What a later version of moed.h would declare. */
struct later_options {
    struct moed_generate_options known;
    uint64_t new_field;
};

static enum moed_code generate(const void *options, struct moed_error *error)
{
    return moed_generate(session, options, NULL, NULL, NULL, error);
}

static void test_size_of_options(void **state)
{
    struct moed_error error;
    struct moed_generate_options unset = {.prompt = "count 1"};
    assert_int_equal(generate(&unset, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "sizeof(struct moed_generate_options)"));

    enum { FIRST = offsetof(struct moed_generate_options, plain) }; /* its size in 1.0 */
    struct moed_generate_options cut = {.size = FIRST - 1, .prompt = "count 1"};
    assert_int_equal(generate(&cut, &error), MOED_ERROR_USAGE);
    cut.size = FIRST;
    cut.plain = (const void *)&cut; /* it is not the program's */
    assert_int_equal(generate(&cut, &error), MOED_OK);

    struct later_options later = {.known = {.size = sizeof later, .prompt = "count 1"}};
    assert_int_equal(generate(&later, &error), MOED_OK);
    later.new_field = 1;
    assert_int_equal(generate(&later, &error), MOED_ERROR_VERSION);
}

static void test_size_of_inner_structs(void **state)
{
    struct moed_error error;
    struct moed_sampling sampling = {.temperature = 1};
    struct moed_grammar grammar = {.kind = MOED_GRAMMAR_REGEX, .text = "a"};
    struct moed_reasoning_limit reasoning = {.tokens = 1};
    struct moed_record_options record = {.gate = true};
    struct moed_generate_options options = {.size = sizeof options, .prompt = "count 1"};
    options.sampling = &sampling;
    assert_int_equal(generate(&options, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "struct moed_sampling"));
    options.sampling = NULL;
    options.grammar = &grammar;
    assert_int_equal(generate(&options, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "struct moed_grammar"));
    options.grammar = NULL;
    options.reasoning = &reasoning;
    assert_int_equal(generate(&options, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "struct moed_reasoning_limit"));
    options.reasoning = NULL;
    options.record = &record;
    assert_int_equal(generate(&options, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "struct moed_record_options"));

    struct moed_session *s;
    struct moed_attach_options attach = {.timeout_ms = 100};
    assert_int_equal(moed_attach(&attach, &s, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "struct moed_attach_options"));
}

/* What is not of the struct's size is left alone. */
static void test_size_of_results(void **state)
{
    struct {
        struct moed_result result;
        uint64_t beyond;
    } r = {.beyond = 42};
    struct moed_generate_options options = {.size = sizeof options, .prompt = "count 3"};
    r.result.size = 0;
    assert_int_equal(moed_generate(session, &options, NULL, NULL, &r.result, NULL),
                     MOED_ERROR_USAGE);
    r.result.size = sizeof r.result;
    assert_int_equal(moed_generate(session, &options, NULL, NULL, &r.result, NULL), MOED_OK);
    assert_true(r.result.generated_tokens == 3 && r.beyond == 42);
    r.result.size = sizeof r; /* of a later header: the field that this library lacks is 0 */
    assert_int_equal(moed_generate(session, &options, NULL, NULL, &r.result, NULL), MOED_OK);
    assert_true(r.result.generated_tokens == 3 && r.beyond == 0);
}

static void test_size_of_sampling_init(void **state)
{
    struct {
        struct moed_sampling s;
        uint64_t beyond;
    } s = {.beyond = 42};
    moed_sampling_init(&s.s, sizeof s.s);
    assert_true(s.s.size == sizeof s.s && s.s.seed == MOED_RANDOM_SEED && s.beyond == 42);
    moed_sampling_init(&s.s, sizeof s);
    assert_true(s.s.size == sizeof s && s.beyond == 0);
}

/* ---- Prompts ---- */

static void test_prompt_is_a_string(void **state)
{
    const uint32_t tokens[] = {1};
    struct collected c = {.in_order = true};
    struct moed_generate_options options = {.size = sizeof options, .prompt = "count 7"};
    assert_int_equal(moed_generate(session, &options, collect, &c, NULL, NULL), MOED_OK);
    assert_int_equal(c.events, 7);
    options.prompt = "count 70"; /* a length cuts it */
    options.prompt_bytes = strlen("count 7");
    c = (struct collected){.in_order = true};
    assert_int_equal(moed_generate(session, &options, collect, &c, NULL, NULL), MOED_OK);
    assert_int_equal(c.events, 7);

    struct moed_error error;
    options = (struct moed_generate_options){.size = sizeof options, .prompt = ""};
    assert_int_equal(generate(&options, &error), MOED_ERROR_USAGE);
    options.prompt = "count 7";
    options.tokens = tokens;
    options.token_count = 1;
    assert_int_equal(generate(&options, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "tokens"));
}

/* ---- Symbols ---- */

/* Each function that moed.h declares has the version of the header that first had it. */
static void test_symbols_have_versions(void **state)
{
    char line[256], name[64];
    FILE *header = fopen(MOED_SOURCE_DIR "/client/include/moed.h", "r");
    unsigned found = 0;
    assert_non_null(header);
    while (fgets(line, sizeof line, header)) {
        const char *bracket = strchr(line, '('), *begin = bracket;
        while (bracket && begin > line &&
               (begin[-1] == '_' || (begin[-1] >= 'a' && begin[-1] <= 'z')))
            begin--;
        if (!bracket || line[0] == ' ' || line[0] == '/' || strncmp(begin, "moed_", 5) != 0 ||
            strncmp(line, "typedef", 7) == 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(bracket - begin), begin);
        if (!dlvsym(RTLD_DEFAULT, name, "MOED_1.0"))
            fail_msg("%s@MOED_1.0 is missing", name);
        found++;
    }
    fclose(header);
    assert_int_equal(found, 41);
    assert_null(dlvsym(RTLD_DEFAULT, "moed_attach", "MOED_2.0"));
    assert_null(dlsym(RTLD_DEFAULT, "session_new")); /* what is inside stays there */
}

/* ---- Fork ---- */

enum { RIGHT = 7, DEADLINE_S = 20 };

/* In the child, while the parent's threads hold any lock: every call returns at once. */
static int calls_in_child(struct moed_request *r)
{
    struct moed_error error;
    const struct moed_event *event;
    struct moed_request *other;
    struct moed_model *model;
    uint32_t *ids;
    size_t n;
    struct moed_generate_options options = prompt_of("count 1");
    bool right = moed_generate_start(session, &options, &other, &error) == MOED_ERROR_USAGE &&
                 strstr(error.message, "forked") && !moed_session_alive(session) &&
                 moed_tokenize(session, "x", 1, 0, &ids, &n, &error) == MOED_ERROR_USAGE &&
                 moed_model_get(session, &model, &error) == MOED_ERROR_USAGE &&
                 moed_request_next(r, -1, &event, &error) == MOED_ERROR_USAGE &&
                 moed_request_fd(r) == -1;
    moed_request_cancel(r);
    moed_request_free(r);
    moed_detach(session);
    return right ? RIGHT : 1;
}

static void test_fork(void **state)
{
    struct moed_request *r = start("hold");
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(DEADLINE_S); /* a child that waits dies */
            _exit(calls_in_child(r));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), RIGHT);
    }
    /* the parent's session did not notice */
    struct moed_generate_options options = prompt_of("count 5");
    struct collected c = {.in_order = true};
    assert_true(moed_session_alive(session));
    assert_int_equal(moed_generate(session, &options, collect, &c, NULL, NULL), MOED_OK);
    assert_int_equal(c.events, 5);
    moed_request_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORKER(test_size_of_options),
        WITH_WORKER(test_size_of_inner_structs),
        WITH_WORKER(test_size_of_results),
        WITH_WORKER(test_size_of_sampling_init),
        WITH_WORKER(test_prompt_is_a_string),
        WITH_WORKER(test_symbols_have_versions),
        WITH_WORKER(test_fork),
    };
    return cmocka_run_group_tests(tests, make_run_dir, remove_run_dir);
}
