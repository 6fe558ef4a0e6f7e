/* Prompts that are computed at once (worker/serve/step.c, shared_prompts.c): a short one does not
 * wait for a long one, and the long one ends; a common beginning is computed once. Answers have the
 * same bits as alone. */
#include "engine_turns.h"

#include "memd/host/kv_saver.h"

enum { LONG = 1500, SHORT = 80, MOST = 12 };

static const char *const models[] = {GOLDEN("olmoe.gguf"), GOLDEN("qwen35moe.gguf"),
                                     GOLDEN("gpt-oss.gguf")};
enum { N_MODELS = sizeof models / sizeof *models };

static struct recorder cold[N], c[MOST];
static struct request *long_request; /* of the engine's thread, while it runs */
static uint32_t past_of_long, n_ended, long_ended;

static void note_first_token(void *arg, const struct response_tokens *event)
{
    if (past_of_long == 0)
        past_of_long = long_request->n_past;
    record_tokens(arg, event);
}

static void note_end(void *arg, const struct response_summary *summary)
{
    long_ended = arg == &c[0] ? n_ended : long_ended;
    n_ended++;
    record_done(arg, summary);
}

static void test_short_with_long(void **state)
{
    struct response_sink sink = recording_sink;
    const char *model = GOLDEN("olmoe.gguf");
    (void)state;
    turns_context = 2048;
    answer_cold(model, &cold[0], LONG, LONG, NULL);
    answer_cold(model, &cold[1], SHORT, 1, NULL);
    open_bench_stopped(model, 0);
    long_request = request_of(&c[0], LONG, LONG);
    sink.tokens = note_first_token;
    request_of(&c[1], SHORT, 1)->sink = &sink;
    bench_submit(&c[0]);
    bench_submit(&c[1]);
    bench_start(&b);
    for (int i = 0; i < 2; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_same(&c[i], &cold[i]);
    }
    assert_in_range(past_of_long, 1, BATCH_IN_MEMORY);
    bench_close(&b);
}

/* Short prompts that keep coming do not hold up the long one. */
static void test_long_with_many(void **state)
{
    enum { MIDDLE = 600 };
    struct response_sink sink = recording_sink;
    (void)state;
    sink.done = note_end;
    open_bench_stopped(GOLDEN("olmoe.gguf"), 0);
    for (uint32_t i = 0; i < MOST; i++) {
        struct request *r = request_of(&c[i], i ? MIDDLE : LONG, i ? i : LONG);
        r->sink = &sink;
        r->max_tokens = 1;
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < MOST; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_int_equal(n_ended, MOST);
    assert_true(long_ended < MOST / 2);
    bench_close(&b);
}

static uint32_t n_computed(void)
{
    return (uint32_t)engine_status(b.engine).prompt_tokens;
}

/* Prompts of which the pool holds two at once: none starts that takes the pages which those that
 * run still need, so each is computed once. */
static void test_scarce_pages(void **state)
{
    enum { PROMPTS = 4, PAGES = 2 * ((LONG + LENGTH) / KV_POOL_TOKENS + 1) + 8 };
    (void)state;
    turns_context = 2048;
    open_bench_stopped(GOLDEN("olmoe.gguf"), PAGES);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        request_of(&c[i], LONG, i + 1);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < PROMPTS; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_true(n_computed() <= PROMPTS * LONG);
    assert_int_equal(counter_read(b.engine->counters.suspended), 0);
    bench_close(&b);
}

/* ---- Forks: prompts that begin alike ---- */

enum { FORKS = N, FORK = 1000, COMMON = FORK - 40 };

static void answer_forks_cold(const char *model)
{
    turns_context = 1200;
    for (uint32_t i = 0; i < FORKS; i++)
        answer_cold(model, &cold[i], FORK, COMMON + i, NULL);
}

/* They have the same bits, and computed their beginning once, but for a page. */
static void check_forks(void)
{
    for (uint32_t i = 0; i < FORKS; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_same(&c[i], &cold[i]);
        assert_true(i == 0 || c[i].summary.cached_tokens >= COMMON - KV_POOL_TOKENS);
    }
    assert_in_range(n_computed(), FORK, FORK + (FORKS - 1) * (FORK - COMMON + KV_POOL_TOKENS));
}

static void check_forks_at_once(const char *model)
{
    answer_forks_cold(model);
    open_bench_stopped(model, 0);
    for (uint32_t i = 0; i < FORKS; i++) {
        request_of(&c[i], FORK, COMMON + i);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    check_forks();
    bench_close(&b);
}

static void test_forks_at_once(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        check_forks_at_once(models[m]);
        turns_groups = true;
        check_forks_at_once(models[m]);
        turns_groups = false;
    }
}

/* Two prompts part from a third one at different places, the earlier one first or last: each begins
 * there. A state is there only where a snapshot is taken. */
static void check_two_places(const char *model, bool earlier_first)
{
    static const uint32_t places[] = {700, 1400};
    turns_context = 2048;
    open_bench_stopped(model, 0);
    for (uint32_t i = 0; i < 3; i++) {
        request_of(&c[i], LONG, i ? places[(i == 2) == earlier_first] : LONG);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < 3; i++)
        check_done(&c[i], FINISH_LENGTH);
    for (uint32_t i = 1; i < 3; i++) {
        uint32_t place = places[(i == 2) == earlier_first];
        assert_true(c[i].summary.cached_tokens >= place - place % KV_POOL_TOKENS);
    }
    bench_close(&b);
}

static void test_forks_at_two_places(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        check_two_places(models[m], false);
        check_two_places(models[m], true);
    }
}

/* Requests with other salts share nothing, so none waits for another. */
static void test_forks_apart(void **state)
{
    (void)state;
    open_bench_stopped(models[0], 0);
    for (uint32_t i = 0; i < 2; i++) {
        request_of(&c[i], FORK, COMMON + i)->cache_salt = 1 + i;
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < 2; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_int_equal(c[i].summary.cached_tokens, 0);
    }
    assert_int_equal(n_computed(), 2 * FORK);
    bench_close(&b);
}

/* The others come while the first one's prompt is computed, each after the next chunk. */
static void submit_fork(void *arg, uint32_t n_past, uint32_t n_prompt, uint32_t n_cached,
                        uint64_t ns)
{
    static uint32_t next;
    next = n_past <= BATCH_IN_MEMORY ? 1 : next;
    if (next < FORKS)
        bench_submit(&c[next++]);
    record_progress(arg, n_past, n_prompt, n_cached, ns);
}

static void test_forks_later(void **state)
{
    struct response_sink sink = recording_sink;
    (void)state;
    sink.progress = submit_fork;
    for (int m = 0; m < N_MODELS; m++) {
        answer_forks_cold(models[m]);
        open_bench_stopped(models[m], 0);
        for (uint32_t i = 0; i < FORKS; i++)
            request_of(&c[i], FORK, COMMON + i);
        c[0].request->sink = &sink;
        c[0].request->progress = true;
        bench_submit(&c[0]);
        bench_start(&b);
        check_forks();
        bench_close(&b);
    }
}

/* ---- The log-probabilities of a prompt ---- */

enum { SCORED = 600 };

static struct request *scores_of(struct recorder *of, uint32_t n_prompt)
{
    return request_of_kind(of, REQUEST_LOGPROBS, n_prompt, n_prompt);
}

static void score(struct recorder *of)
{
    bench_submit(of);
    check_done(of, FINISH_LENGTH);
}

static void score_cold(const char *model, struct recorder *of, uint32_t n_prompt)
{
    open_bench(model, 0);
    scores_of(of, n_prompt);
    score(of);
    assert_int_equal(of->n_logprobs, n_prompt - 1);
    bench_close(&b);
}

static void assert_same_scores(const struct recorder *a, const struct recorder *reference)
{
    assert_int_equal(a->n_logprobs, reference->n_logprobs);
    assert_memory_equal(a->logprobs, reference->logprobs, sizeof a->logprobs);
}

/* An answer to a prompt whose log-probabilities are asked for at once: the prompt is computed once.
 * Each has the bits that it has alone. */
static void check_scores_first(const char *model, uint32_t n_prompt)
{
    enum { GROUP = KV_SMALL_TOKENS };
    answer_cold(model, &cold[0], n_prompt, n_prompt, NULL);
    score_cold(model, &cold[1], n_prompt);
    open_bench_stopped(model, 0);
    scores_of(&c[0], n_prompt);
    request_of(&c[1], n_prompt, n_prompt);
    bench_submit(&c[0]);
    bench_submit(&c[1]);
    bench_start(&b);
    for (int i = 0; i < 2; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_same_scores(&c[0], &cold[1]);
    assert_same(&c[1], &cold[0]);
    assert_int_equal(c[0].summary.cached_tokens, 0);
    assert_in_range(c[1].summary.cached_tokens, n_prompt - GROUP, n_prompt - 1);
    assert_in_range(counter_read(b.engine->counters.prompt_tokens), n_prompt, n_prompt + GROUP);
    /* again, and of the end alone, which reuses what comes before it */
    scores_of(&c[2], n_prompt);
    score(&c[2]);
    assert_same_scores(&c[2], &cold[1]);
    assert_int_equal(c[2].summary.cached_tokens, 0);
    uint32_t end = n_prompt - 10;
    struct request *r = scores_of(&c[3], n_prompt);
    r->next_row = c[3].n_logprobs = end - 1;
    score(&c[3]);
    for (uint32_t i = end; i < n_prompt; i++)
        assert_true(fabsf(c[3].logprobs[i] - cold[1].logprobs[i]) < 1e-3f);
    assert_in_range(c[3].summary.cached_tokens, n_prompt / 2, end - 1);
    bench_close(&b);
}

static void test_scores_first(void **state)
{
    (void)state;
    turns_context = 1024;
    for (int m = 0; m < N_MODELS; m++)
        for (int groups = 0; groups < 2; groups++) {
            turns_groups = groups;
            check_scores_first(models[m], SCORED);
            check_scores_first(models[m], 9 * KV_SMALL_TOKENS);
        }
    turns_groups = false;
}

/* Prompts to score that begin alike, all with a slot when the first is computed: those behind it
 * have no scores of that beginning, and do not compute it again. */
static void test_scores_of_forks(void **state)
{
    enum { BEGINNING = SCORED - 40 };
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        score_cold(models[m], &cold[0], SCORED);
        open_bench_stopped(models[m], 0);
        for (uint32_t i = 0; i < 3; i++) {
            struct request *r = request_of_kind(&c[i], REQUEST_LOGPROBS, SCORED, BEGINNING + i);
            r->next_row = c[i].n_logprobs = i ? BEGINNING - 1 : 0;
            bench_submit(&c[i]);
        }
        bench_start(&b);
        for (int i = 0; i < 3; i++)
            check_done(&c[i], FINISH_LENGTH);
        for (int i = 1; i < 3; i++) {
            float alone = cold[0].logprobs[BEGINNING];
            assert_true(fabsf(c[i].logprobs[BEGINNING] - alone) < 1e-3f);
            /* whole groups; states have a snapshot somewhere before, or none */
            assert_in_range(c[i].summary.cached_tokens, b.snapshots ? 0 : SCORED / 3,
                            BEGINNING - 1);
        }
        bench_close(&b);
    }
}

/* Pages of other API keys' requests are not found. */
static void test_scores_salted(void **state)
{
    (void)state;
    open_bench(models[0], 0);
    scores_of(&c[0], SCORED)->cache_salt = 1;
    score(&c[0]);
    for (uint32_t salt = 0; salt < 2; salt++) {
        request_of(&c[1], SCORED, SCORED)->cache_salt = salt;
        answer(&c[1]);
        assert_int_equal(c[1].summary.cached_tokens > 0, salt == 1);
    }
    bench_close(&b);
}

/* Full pages that are not the first to go. */
static uint32_t valuable_pages(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b.kv_pool.n_pages; i++) {
        struct kv_page_record *r = &b.kv_pool.records[i];
        n += atomic_load(&r->n) == KV_POOL_TOKENS && atomic_load(&r->value) > 0;
    }
    return n;
}

/* Pages that the log-probabilities of a prompt left go first; once an answer has used them, they
 * are worth what they cost. */
static void test_scores_used(void **state)
{
    enum { FULL = 3, ASKED = FULL * KV_POOL_TOKENS + 10 };
    (void)state;
    open_bench(models[0], 0);
    scores_of(&c[0], ASKED);
    score(&c[0]);
    assert_int_equal(valuable_pages(), 0);
    request_of(&c[1], ASKED, ASKED);
    answer(&c[1]);
    assert_true(c[1].summary.cached_tokens >= FULL * KV_POOL_TOKENS);
    assert_int_equal(valuable_pages(), FULL);
    scores_of(&c[0], ASKED);
    score(&c[0]);
    assert_int_equal(valuable_pages(), FULL);
    bench_close(&b);
}

/* All is computed, and most of it is sent, when answers take its pages. */
static void test_scores_suspended(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        score_cold(models[m], &cold[0], SCORED);
        open_bench(models[m], SCORED / KV_POOL_TOKENS + 3);
        for (int i = 0; i < 2; i++) {
            request_of(&c[i], SHORT / 2, 1 + i);
            c[i].window = 1;
            bench_submit(&c[i]);
            bench_await(&c[i], 1);
        }
        scores_of(&c[2], SCORED);
        uint32_t events = SCORED / BATCH_IN_MEMORY * BATCH_IN_MEMORY / LOGPROBS_ROWS + 1;
        c[2].window = events;
        bench_submit(&c[2]);
        while (recorder_read(&c[2], &c[2].events) < events)
            usleep(1000);
        for (int i = 0; i < 2; i++)
            bench_acknowledge(&c[i], LENGTH);
        for (int i = 0; i < 2; i++)
            check_done(&c[i], FINISH_LENGTH);
        assert_true(counter_read(b.engine->counters.suspended) > 0);
        bench_acknowledge(&c[2], SCORED);
        check_done(&c[2], FINISH_LENGTH);
        assert_same_scores(&c[2], &cold[0]);
        bench_close(&b);
    }
}

/* ---- A conversation in a file that is read slowly ---- */

enum { READ_MS = 20, READS_AT_ONCE = 250 / READ_MS + 1 /* in a step, of pages without windows */ };

bool __real_kv_store_read(const struct kv_store *s, uint32_t slot, const struct kv_store_page *page,
                          void *memory);
bool __wrap_kv_store_read(const struct kv_store *s, uint32_t slot, const struct kv_store_page *page,
                          void *memory);

bool __real_engine_read_pages(struct engine *g, struct request *r);
bool __wrap_engine_read_pages(struct engine *g, struct request *r);

static struct recorder *stream;            /* an answer that runs meanwhile */
static _Atomic uint32_t n_read;            /* pages */
static uint32_t n_in_step, n_most;         /* pages */
static uint64_t steps_before, steps_after; /* of the answers, before the last two readings */

bool __wrap_kv_store_read(const struct kv_store *s, uint32_t slot, const struct kv_store_page *page,
                          void *memory)
{
    steps_after = counter_read(b.engine->counters.decode_steps);
    usleep(READ_MS * 1000);
    n_read++;
    n_in_step++;
    n_most = n_in_step > n_most ? n_in_step : n_most;
    return __real_kv_store_read(s, slot, page, memory);
}

bool __wrap_engine_read_pages(struct engine *g, struct request *r)
{
    n_in_step = 0;
    steps_before = steps_after;
    return __real_engine_read_pages(g, r);
}

/* The stream goes on until the conversation is there. */
static void note_token(void *arg, const struct response_tokens *event)
{
    usleep(1000); /* so that the context is long enough for it */
    record_tokens(arg, event);
    if (recorder_read(&c[1], &c[1].n_tokens) > 0)
        bench_cancel(stream);
    else
        record_return_credit(arg);
}

/* The file gets what the pool has, as if it had taken long to compute. */
static void save_pool(struct kv_file *file, const char *dir)
{
    struct error e;
    struct kv_saver *saver;
    const struct kv_file_options options = {
        .dir = dir, .page_bytes = b.kv_pool.page_bytes, .most_bytes = 1 << 30};
    for (uint32_t i = 0; i < b.kv_pool.n_pages; i++)
        atomic_store(&b.kv_pool.records[i].cost_ns, 1000000000);
    must(kv_file_open(file, &options, &e), &e);
    must(kv_saver_new_idle(&b.kv_pool, file, &saver, &e), &e);
    kv_saver_free(saver);
}

/* The benches that are opened until close_file have a file with the conversations of cold[0], which
 * is long, and cold[1]. */
enum { SHORTER = 300 };
static struct kv_file conversation_file;
static char file_dir[32];

static void make_file(const char *model)
{
    snprintf(file_dir, sizeof file_dir, "/tmp/moed-test-engine-XXXXXX");
    assert_non_null(mkdtemp(file_dir));
    turns_context = 2048;
    open_bench(model, 0);
    request_of(&cold[0], LONG, LONG);
    answer(&cold[0]);
    request_of(&cold[1], SHORTER, 1);
    answer(&cold[1]);
    engine_stop(b.engine); /* the pool has all of the requests then */
    save_pool(&conversation_file, file_dir);
    bench_close(&b);
    turns_store = conversation_file.index;
    n_read = 0;
    n_most = 0;
}

static void close_file(void)
{
    char path[80];
    turns_store = (struct kv_store){0};
    snprintf(path, sizeof path, "%s/%016x.kv", file_dir, 0);
    kv_file_close(&conversation_file);
    unlink(path);
    rmdir(file_dir);
}

static void check_slow_file(const char *model, struct response_sink *sink)
{
    make_file(model);
    open_bench(model, 0);
    struct request *r = request_of(&c[0], SHORT, 1);
    r->sink = sink;
    r->max_tokens = 0;
    request_of(&c[1], LONG, LONG);
    stream = &c[0];
    bench_submit(&c[0]);
    bench_await(&c[0], 1);
    bench_submit(&c[1]);
    check_done(&c[1], FINISH_LENGTH);
    assert_same(&c[1], &cold[0]);
    assert_true(c[1].summary.cached_tokens >= LONG - 1 - KV_POOL_TOKENS);
    assert_in_range(n_read, LONG / KV_POOL_TOKENS, 2 * LONG / KV_POOL_TOKENS);
    assert_true(c[1].summary.queue_ns > n_read * READ_MS * 1000000ull); /* it computed nothing */
    /* The last one read may have been the windowed pages of a page, all at once. */
    assert_in_range(n_most, 1, READS_AT_ONCE - 1 + b.engine->config.dense->kv.n_groups);
    assert_true(steps_after > steps_before);
    bench_close(&b);
    close_file();
}

/* Beside it an answer goes on, and the conversation has its bits. */
static void test_slow_file(void **state)
{
    struct response_sink sink = recording_sink;
    (void)state;
    sink.tokens = note_token;
    check_slow_file(GOLDEN("olmoe.gguf"), &sink);
    check_slow_file(GOLDEN("gpt-oss.gguf"), &sink);
}

/* A deadline is for the reading, too. */
static void test_slow_file_deadline(void **state)
{
    (void)state;
    make_file(GOLDEN("olmoe.gguf"));
    open_bench(GOLDEN("olmoe.gguf"), 0);
    request_of(&c[0], LONG, LONG)->deadline_ns = clock_ns() + 5 * READ_MS * 1000000ull;
    bench_submit(&c[0]);
    check_failed(&c[0], ERROR_TIMEOUT);
    assert_in_range(n_read, 1, READS_AT_ONCE);
    bench_close(&b);
    close_file();
}

/* A short conversation does not wait until a long one is read. */
static void test_slow_file_short_one(void **state)
{
    struct response_sink sink = recording_sink;
    (void)state;
    sink.done = note_end;
    make_file(GOLDEN("olmoe.gguf"));
    open_bench(GOLDEN("olmoe.gguf"), 0);
    n_ended = 0;
    struct request *r = request_of(&c[0], LONG, LONG);
    r->sink = &sink;
    r->max_tokens = 1;
    request_of(&c[1], SHORTER, 1)->sink = &sink;
    bench_submit(&c[0]);
    while (n_read == 0)
        usleep(1000);
    bench_submit(&c[1]);
    for (int i = 0; i < 2; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_same(&c[1], &cold[1]);
    assert_int_equal(c[0].tokens[0], cold[0].tokens[0]);
    assert_int_equal(long_ended, 1);
    bench_close(&b);
    close_file();
}

/* A device with few pages. */
enum { DEVICE_PAGES = 28 };
static struct dense_ops host_ops;
static uint32_t n_put[N]; /* pages of each slot */

static struct dense_kv_use use_of_device(const struct dense *d)
{
    uint32_t left = DEVICE_PAGES;
    (void)d;
    for (int i = 0; i < N; i++)
        left -= n_put[i];
    return (struct dense_kv_use){
        .bytes = 1, .pages_reserved = DEVICE_PAGES, .pages_free = left, .pages_most = DEVICE_PAGES};
}

static bool put_on_device(struct dense *d, uint32_t slot, struct kv_place place, uint8_t *page,
                          uint32_t filled)
{
    if (place.index >= n_put[slot] && use_of_device(d).pages_free == 0)
        return false;
    if (place.index >= n_put[slot])
        n_put[slot] = place.index + 1;
    return host_ops.put_page(d, slot, place, page, filled);
}

static void release_on_device(struct dense *d, uint32_t slot)
{
    n_put[slot] = 0;
    host_ops.release_slot(d, slot);
}

/* As if the dense part was on that device. */
static void use_small_device(void)
{
    struct engine_counters *k = &b.engine->counters;
    k->pages_reserved = k->pages_free = metrics_gauge(b.metrics, "test_pages", NULL, "Pages.");
    b.engine->paged = true;
    host_ops = b.ops;
    b.ops.kv_use = use_of_device;
    b.ops.put_page = put_on_device;
    b.ops.release_slot = release_on_device;
}

/* A request that comes while a conversation is read does not take the device's pages that this one
 * needs. */
static void test_slow_file_scarce_pages(void **state)
{
    enum { LATER = 900, LATER_ANSWER = 110 };
    (void)state;
    make_file(GOLDEN("olmoe.gguf"));
    open_bench_stopped(GOLDEN("olmoe.gguf"), 0);
    use_small_device();
    bench_start(&b);
    request_of(&c[0], LONG, LONG);
    request_of(&c[1], LATER, 1)->max_tokens = LATER_ANSWER;
    bench_submit(&c[0]);
    while (n_read == 0)
        usleep(1000);
    bench_submit(&c[1]);
    for (int i = 0; i < 2; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_same(&c[0], &cold[0]);
    assert_int_equal(counter_read(b.engine->counters.suspended), 0);
    bench_close(&b);
    close_file();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_with_long),     cmocka_unit_test(test_long_with_many),
        cmocka_unit_test(test_forks_at_once),       cmocka_unit_test(test_forks_later),
        cmocka_unit_test(test_forks_apart),         cmocka_unit_test(test_scarce_pages),
        cmocka_unit_test(test_forks_at_two_places), cmocka_unit_test(test_scores_first),
        cmocka_unit_test(test_scores_of_forks),     cmocka_unit_test(test_scores_salted),
        cmocka_unit_test(test_scores_suspended),    cmocka_unit_test(test_scores_used),
        cmocka_unit_test(test_slow_file),           cmocka_unit_test(test_slow_file_scarce_pages),
        cmocka_unit_test(test_slow_file_deadline),  cmocka_unit_test(test_slow_file_short_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
