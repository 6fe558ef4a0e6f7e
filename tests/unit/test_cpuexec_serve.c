/* The CPU executor's serving of workers, over real sockets and shared memory, by a real pool of
 * threads. Truth: the same experts computed by lib/exec in this thread, to the bit. */
#include "bench_wait.h"
#include "loaded_model.h"
#include "process_counts.h"

#include "cpuexec/serve.h"
#include "daemon/run_dir.h"
#include "exec/exec.h"
#include "ipc/expert_channel.h"
#include "ipc/lease.h"
#include "ipc/lease_offer.h"

#include <pthread.h>

enum {
    LAYERS = 2,
    EXPERTS = 5,
    USED = 4,
    HIDDEN = 256,
    WIDTH = 6144,
    MOST_TOKENS = 12,
    MOST_ROWS = MOST_TOKENS * USED,
    MOST_WORKERS = 32
};

static char run[] = "/tmp/moed-test-cpuexec-XXXXXX";
static char path[RUN_PATH_BYTES];

static struct loaded_model model;

struct server {
    struct memory_client memory;
    struct pool *pool;
    struct counter counts[6];
    struct histogram seconds;
    struct serve_counters counters;
    struct serve *serve;
};

struct side {
    int fd;
    struct shm region;
    struct expert_channel channel;
    uint64_t sequence;
    uint32_t seed;
    struct pool *pool; /* the truth's */
    struct exec *exec;
};

/* A job in the form of a record; a test may damage it first. */
struct work {
    struct expert_job job;
    uint32_t n_rows; /* of indices and, at most, of out */
};

static void server_serve(struct server *s)
{
    struct error e;
    must(serve_open(run, &s->memory, s->pool, false, 0, &s->counters, &s->serve, &e), &e);
}

static void open_model(struct loaded_model *m)
{
    struct mkmodel_options o;
    mkmodel_defaults(&o);
    o.arch = "qwen3moe";
    o.type = "Q8_0";
    o.layers = LAYERS;
    o.hidden = HIDDEN;
    o.experts = EXPERTS;
    o.top_k = USED;
    o.expert_width = WIDTH;
    o.threads = 2;
    load_model(m, &o);
}

static void server_open(struct server *s)
{
    struct error e;
    memset(s, 0, sizeof *s);
    s->memory = (struct memory_client){
        .lease_fd = -1, .generation = model.map.header->generation, .map = model.map};
    struct counter *c = s->counts;
    s->seconds.bounds = histogram_seconds_bounds;
    s->seconds.n_bounds = histogram_seconds_count;
    s->counters = (struct serve_counters){.jobs = c,
                                          .experts = c + 1,
                                          .rows = c + 2,
                                          .compute_ns = c + 3,
                                          .weight_bytes = c + 4,
                                          .refused = c + 5,
                                          .job_seconds = &s->seconds};
    must(pool_new("test", 2, false, 0, &s->pool, &e), &e);
    server_serve(s);
}

static void server_close(struct server *s)
{
    serve_close(s->serve);
    pool_free(s->pool);
}

static enum error_code side_try(struct side *w, const struct server *s, uint32_t d_model,
                                uint64_t generation, struct error *e)
{
    *w = (struct side){.seed = 1};
    must(lease_connect(path, 5000, &w->fd, e), e);
    must(shm_create("moed-test-experts", expert_channel_bytes(MOST_TOKENS, USED, EXPERTS, d_model),
                    &w->region, e),
         e);
    expert_channel_init(w->region.base, MOST_TOKENS, USED, EXPERTS, d_model, generation);
    must(expert_channel_attach(&w->channel, w->region.base, w->region.bytes, e), e);
    must(lease_offer_send(w->fd, EXPERT_OFFER, &w->region, generation, e), e);
    return lease_offer_answered(w->fd, EXPERT_OFFER, 10000, e);
}

static void side_open(struct side *w, const struct server *s)
{
    struct error e;
    struct exec_limits limits = {MOST_TOKENS, WIDTH, MOST_ROWS, WIDTH};
    must(side_try(w, s, HIDDEN, s->memory.generation, &e), &e);
    must(pool_new("truth", 1, false, 0, &w->pool, &e), &e);
    must(exec_new(w->pool, &limits, false, &w->exec, &e), &e);
}

static void side_leave(struct side *w)
{
    close(w->fd);
    shm_close(&w->region);
    exec_free(w->exec);
    pool_free(w->pool);
}

static bool is_ended(int fd)
{
    struct lease_message m;
    return lease_receive(fd, &m, NULL, 0, NULL, 10000, NULL) == ERROR_UNAVAILABLE;
}

/* Random tokens for three experts: all segments summed; the first ones; the last ones apart. */
static struct work draw(struct side *w, uint32_t layer)
{
    struct expert_channel *c = &w->channel;
    uint32_t n_segments = model.map.slabs[layer].n_segments;
    struct work work = {.job = {.sequence = ++w->sequence, .layer = layer, .n_tasks = 3}};
    work.job.n_tokens = 1 + bench_draw(&w->seed, MOST_TOKENS);
    for (uint32_t i = 0; i < work.job.n_tokens * HIDDEN; i++)
        c->x[i] = (float)bench_draw(&w->seed, 2000) / 1000 - 1;
    memset(c->out, 0xff, (size_t)MOST_ROWS * HIDDEN * sizeof *c->out);
    uint32_t first_out = 0;
    for (uint32_t i = 0; i < 3; i++) {
        struct expert_task_record *t = &c->tasks[i];
        uint32_t most = i == 2 ? MOST_TOKENS / n_segments : MOST_TOKENS;
        *t = (struct expert_task_record){.expert = bench_draw(&w->seed, EXPERTS),
                                         .first_segment = i == 2 ? 1 : 0,
                                         .n_segments = i == 0 ? n_segments : n_segments - 1,
                                         .first_row = work.n_rows,
                                         .n_rows = 1 + bench_draw(&w->seed, work.job.n_tokens),
                                         .first_out = first_out,
                                         .apart = i == 2};
        t->n_rows = t->n_rows < most ? t->n_rows : most;
        for (uint32_t r = 0; r < t->n_rows; r++)
            c->indices[work.n_rows + r] = bench_draw(&w->seed, work.job.n_tokens);
        work.n_rows += t->n_rows;
        first_out += t->n_rows * (t->apart ? t->n_segments : 1);
    }
    assert_true(first_out <= MOST_ROWS);
    return work;
}

/* False: no answer in time, or an answer to another job. */
static bool submit(struct side *w, const struct expert_job *job, struct expert_completion *done)
{
    if (ring_push(&w->channel.jobs, job) != 1)
        return false;
    ring_notify(&w->channel.jobs);
    return ring_wait(&w->channel.completions, NULL, NULL, 20000) &&
           ring_pop(&w->channel.completions, done) == 1 && done->sequence == job->sequence;
}

/* The result of lib/exec for the job's tables, [MOST_ROWS][HIDDEN]; rows without a task stay
 * 0xff. */
static float *truth(struct side *w, const struct expert_job *job)
{
    const struct expert_channel *c = &w->channel;
    const struct pool_map *map = &model.map;
    size_t bytes = (size_t)MOST_ROWS * HIDDEN * sizeof(float);
    float *out = malloc(bytes);
    if (!out)
        abort();
    memset(out, 0xff, bytes);
    const struct activations *a = exec_prepare(w->exec, 0, c->x, HIDDEN, job->n_tokens, HIDDEN,
                                               exec_experts_quantize(&map->slabs[job->layer]));
    for (uint32_t i = 0; i < job->n_tasks; i++) {
        const struct expert_task_record *r = &c->tasks[i];
        struct expert_task task = {.expert = r->expert,
                                   .first_segment = r->first_segment,
                                   .n_segments = r->n_segments,
                                   .n_tokens = r->n_rows,
                                   .tokens = c->indices + r->first_row,
                                   .out = out + (size_t)r->first_out * HIDDEN,
                                   .output = r->apart ? EXPERT_APART : EXPERT_SUM};
        exec_experts(w->exec, map, job->layer, a, &task, 1);
    }
    return out;
}

static bool computes(struct side *w, const struct expert_job *job)
{
    struct expert_completion done;
    if (!submit(w, job, &done) || done.status != ERROR_OK)
        return false;
    float *want = truth(w, job);
    bool same = memcmp(want, w->channel.out, (size_t)MOST_ROWS * HIDDEN * sizeof *want) == 0;
    free(want);
    return same;
}

static bool computes_one(struct side *w, uint32_t layer)
{
    struct work work = draw(w, layer);
    return computes(w, &work.job);
}

/* ---- tests ---- */

static void test_jobs(void **state)
{
    struct server s;
    struct side w;
    server_open(&s);
    side_open(&w, &s);
    uint64_t rows = 0, bytes = 0;
    for (uint32_t i = 0; i < 20; i++) {
        const struct pool_slabs *slabs = &model.map.slabs[i % LAYERS];
        struct work work = draw(&w, i % LAYERS);
        assert_true(computes(&w, &work.job));
        rows += work.n_rows;
        bytes += (3 * slabs->n_segments - 2) * slabs->segment_bytes;
    }
    assert_int_equal(atomic_load(&w.channel.header->computing), 20);
    assert_true(atomic_load(&w.channel.header->progress) > 0);
    struct work none = draw(&w, 0); /* all of a layer's work may be elsewhere */
    none.job.n_tasks = 0;
    assert_true(computes(&w, &none.job));
    BENCH_UNTIL(counter_read(s.counters.jobs) == 21);
    assert_int_equal(counter_read(s.counters.experts), 60);
    assert_int_equal(counter_read(s.counters.rows), rows);
    assert_int_equal(counter_read(s.counters.weight_bytes), bytes);
    assert_int_equal(counter_read(s.counters.refused), 0);
    assert_int_equal(histogram_count(&s.seconds), 21);
    side_leave(&w);
    server_close(&s);
}

/* Experts in the host tier: from the slot that the task names. */
static void test_tier_slots(void **state)
{
    struct server s;
    struct side w;
    struct expert_completion done;
    server_open(&s);
    serve_close(s.serve);
    const struct pool_slabs *slabs = &model.map.slabs[0];
    uint8_t *slots = calloc(2, slabs->slab_bytes);
    memcpy(slots + slabs->slab_bytes, pool_map_segment_place(&model.map, 0, 3, 0),
           slabs->slab_bytes);
    s.memory.tier =
        (struct host_tier){.slots = slots, .n_slots = 2, .slot_bytes = slabs->slab_bytes};
    server_serve(&s);
    side_open(&w, &s);
    struct work work = draw(&w, 0);
    work.job.n_tasks = 1;
    w.channel.tasks[0].expert = 3;
    w.channel.tasks[0].slot = 1;
    assert_true(computes(&w, &work.job));
    work.job.sequence = ++w.sequence;
    w.channel.tasks[0].slot = 2;
    assert_true(submit(&w, &work.job, &done));
    assert_int_equal(done.status, ERROR_PROTOCOL);
    side_leave(&w);
    server_close(&s);
    free(slots);
}

enum spoilt {
    LAYER,
    NO_TOKENS,
    MANY_TOKENS,
    MANY_TASKS,
    EXPERT,
    NO_SEGMENTS,
    FIRST_SEGMENT,
    MANY_SEGMENTS,
    HUGE_SEGMENTS,
    MANY_ROWS,
    FIRST_ROW,
    HUGE_FIRST_ROW,
    APART,
    FIRST_OUT,
    HUGE_FIRST_OUT,
    APART_OUT,
    ALL_ROWS,
    ALL_OUT,
    INDEX,
    HUGE_INDEX,
    MANY_GROUPS,
    GROUP_FIRST,
    GROUP_EMPTY,
    HUGE_GROUP,
    GROUPS_OVERLAP,
    N_SPOILT
};

static void spoil(struct side *w, struct work *work, enum spoilt how)
{
    struct expert_job *job = &work->job;
    struct expert_task_record *t = &w->channel.tasks[1];
    uint32_t n_segments = model.map.slabs[job->layer].n_segments;
    switch (how) {
    case LAYER:
        job->layer = LAYERS;
        break;
    case NO_TOKENS:
        job->n_tokens = 0;
        break;
    case MANY_TOKENS:
        job->n_tokens = MOST_TOKENS + 1;
        break;
    case MANY_TASKS:
        job->n_tasks = EXPERTS + 1;
        break;
    case EXPERT:
        t->expert = EXPERTS;
        break;
    case NO_SEGMENTS:
        t->n_segments = 0;
        break;
    case FIRST_SEGMENT:
        t->first_segment = n_segments;
        break;
    case MANY_SEGMENTS:
        t->first_segment = 1, t->n_segments = n_segments;
        break;
    case HUGE_SEGMENTS:
        t->first_segment = 1, t->n_segments = UINT32_MAX;
        break;
    case MANY_ROWS:
        t->n_rows = job->n_tokens + 1;
        break;
    case FIRST_ROW:
        t->first_row = MOST_ROWS - t->n_rows + 1;
        break;
    case HUGE_FIRST_ROW:
        t->first_row = UINT32_MAX;
        break;
    case APART:
        t->apart = 2;
        break;
    case FIRST_OUT:
        t->first_out = MOST_ROWS - t->n_rows + 1;
        break;
    case HUGE_FIRST_OUT:
        t->first_out = UINT32_MAX;
        break;
    case APART_OUT:
        t->apart = 1, t->first_out = MOST_ROWS - t->n_rows * t->n_segments + 1;
        break;
    case ALL_ROWS: /* each in range, together more than MOST_ROWS */
        job->n_tokens = MOST_TOKENS;
        job->n_tasks = USED + 1;
        for (uint32_t i = 0; i <= USED; i++)
            w->channel.tasks[i] =
                (struct expert_task_record){.n_segments = 1, .n_rows = MOST_TOKENS};
        break;
    case ALL_OUT: /* the same of rows apart */
        job->n_tokens = MOST_TOKENS;
        job->n_tasks = 2;
        for (uint32_t i = 0; i < 2; i++)
            w->channel.tasks[i] = (struct expert_task_record){
                .n_segments = n_segments, .n_rows = MOST_TOKENS, .apart = 1};
        break;
    case MANY_GROUPS:
        job->n_groups = job->n_tokens + 1;
        break;
    case GROUP_FIRST:
        job->n_groups = 1;
        w->channel.groups[0] = (struct expert_group_record){job->n_tokens + 1, 1};
        break;
    case GROUP_EMPTY:
        job->n_groups = 1;
        w->channel.groups[0] = (struct expert_group_record){0, 0};
        break;
    case HUGE_GROUP:
        job->n_groups = 1;
        w->channel.groups[0] = (struct expert_group_record){1, UINT32_MAX};
        break;
    case GROUPS_OVERLAP:
        job->n_tokens = MOST_TOKENS;
        job->n_groups = 2;
        w->channel.groups[0] = (struct expert_group_record){0, 2};
        w->channel.groups[1] = (struct expert_group_record){1, 1};
        break;
    case INDEX:
        w->channel.indices[t->first_row] = job->n_tokens;
        break;
    case HUGE_INDEX:
        w->channel.indices[t->first_row] = UINT32_MAX;
        break;
    case N_SPOILT:
        break;
    }
}

/* The executor refuses a malformed job and computes nothing of it; its worker, and another,
 * continue. */
static void test_malformed_jobs(void **state)
{
    struct server s;
    struct side w, other;
    server_open(&s);
    side_open(&w, &s);
    side_open(&other, &s);
    for (int how = 0; how < N_SPOILT; how++) {
        struct work work = draw(&w, (uint32_t)how % LAYERS);
        struct expert_completion done;
        spoil(&w, &work, (enum spoilt)how);
        assert_true(submit(&w, &work.job, &done));
        if (done.status != ERROR_PROTOCOL)
            fail_msg("case %d: status %u", how, done.status);
        const uint8_t *out = (const uint8_t *)w.channel.out;
        for (size_t i = 0; i < (size_t)MOST_ROWS * HIDDEN * sizeof(float); i++)
            assert_int_equal(out[i], 0xff);
        assert_int_equal(counter_read(s.counters.refused), how + 1);
        assert_true(computes_one(&w, 0));
        assert_true(computes_one(&other, 1));
    }
    side_leave(&w);
    side_leave(&other);
    server_close(&s);
}

/* A ring with impossible indices costs its worker the connection. */
static void test_broken_ring(void **state)
{
    struct server s;
    struct side w, other;
    server_open(&s);
    side_open(&w, &s);
    side_open(&other, &s);
    atomic_store(&w.channel.jobs.header->tail, 1000000);
    ring_notify(&w.channel.jobs);
    assert_true(is_ended(w.fd));
    assert_true(computes_one(&other, 0));
    side_leave(&w);
    side_leave(&other);
    server_close(&s);
}

static void test_wrong_offers(void **state)
{
    struct server s;
    struct side w;
    struct error e;
    server_open(&s);
    assert_int_equal(side_try(&w, &s, HIDDEN, s.memory.generation + 1, &e), ERROR_PROTOCOL);
    assert_non_null(strstr(e.text, error_meaning(ERROR_VERSION)));
    assert_true(is_ended(w.fd));
    side_leave(&w);
    assert_int_equal(side_try(&w, &s, HIDDEN / 2, s.memory.generation, &e), ERROR_PROTOCOL);
    assert_true(is_ended(w.fd));
    side_leave(&w);
    side_open(&w, &s);
    assert_true(computes_one(&w, 0));
    side_leave(&w);
    server_close(&s);
}

/* A worker's thread ends with the worker, and another worker can use its place. All places are used
 * at once; the executor cuts one more worker off. */
static void test_workers_come_and_go(void **state)
{
    static struct side sides[MOST_WORKERS];
    struct server s;
    struct error e;
    server_open(&s);
    int before = running_threads();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST_WORKERS; i++)
            must(side_try(&sides[i], &s, HIDDEN, s.memory.generation, &e), &e);
        assert_int_equal(running_threads(), before + MOST_WORKERS);
        int fd;
        must(lease_connect(path, 5000, &fd, &e), &e);
        assert_true(is_ended(fd));
        close(fd);
        for (int i = 0; i < MOST_WORKERS; i++)
            side_leave(&sides[i]);
        BENCH_UNTIL(running_threads() == before);
    }
    struct side w;
    side_open(&w, &s);
    assert_true(computes_one(&w, 0));
    serve_close(s.serve); /* with a worker attached */
    s.serve = NULL;
    assert_true(is_ended(w.fd));
    side_leave(&w);
    server_close(&s);
}

static void *worker_main(void *arg)
{
    struct side *w = arg;
    for (uint32_t i = 0; i < 40; i++)
        if (!computes_one(w, i % LAYERS))
            return w;
    return NULL;
}

static void test_two_workers(void **state)
{
    struct server s;
    struct side sides[2];
    pthread_t runs[2];
    server_open(&s);
    for (int i = 0; i < 2; i++) {
        side_open(&sides[i], &s);
        sides[i].seed = 100 + (uint32_t)i;
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&runs[i], NULL, worker_main, &sides[i]), 0);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(runs[i], &failed);
        assert_null(failed);
        side_leave(&sides[i]);
    }
    BENCH_UNTIL(counter_read(s.counters.jobs) == 80);
    server_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs),           cmocka_unit_test(test_tier_slots),
        cmocka_unit_test(test_malformed_jobs), cmocka_unit_test(test_broken_ring),
        cmocka_unit_test(test_wrong_offers),   cmocka_unit_test(test_workers_come_and_go),
        cmocka_unit_test(test_two_workers),
    };
    if (mkdtemp(run) == NULL)
        return 1;
    run_dir_file(run, "cpuexec.lease", path);
    open_model(&model);
    if (model.map.slabs[0].n_segments < 3)
        return 1; /* too few for the tests of rows apart */
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unload_model(&model);
    unlink(path);
    rmdir(run);
    return rc;
}
