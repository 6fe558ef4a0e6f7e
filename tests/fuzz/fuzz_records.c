/* Fuzz target of what a hostile worker writes into its channels: memd takes records out of the
 * cache channel and checks them; the CPU executor takes a job out of the expert channel. The
 * regions are well formed but for the changes of the input: pieces of offset (2 bytes), length (1
 * byte), bytes. The first byte says which. */
#include "cpuexec/job.h"
#include "ipc/cache_channel.h"
#include "ipc/expert_channel.h"
#include "memd/slots/cache_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    LAYERS = 3,
    EXPERTS = 4,
    SEGMENTS = 3,
    TOKENS = 5,
    USED = 2,
    D_MODEL = 8,
    CACHE_RECORDS = 40
};

static struct pool_slabs slabs[LAYERS];
static struct pool_map map;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void change(uint8_t *memory, size_t bytes, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        size_t at = (size_t)data[0] | (size_t)data[1] << 8, n = data[2];
        data += 3;
        size -= 3;
        n = n < size ? n : size;
        for (size_t i = 0; i < n && at + i < bytes; i++)
            memory[at + i] = data[i];
        data += n;
        size -= n;
    }
}

/* ---- memd ---- */

static void check_record(const struct cache_record *r, enum cache_record_kind asking)
{
    if (cache_record_check(r, asking, slabs, LAYERS))
        return;
    if (r->kind == CACHE_COSTS) {
        require(r->costs.load >= 0 && r->costs.load <= CACHE_RECORD_COST_MOST &&
                asking == CACHE_LOAD);
        return;
    }
    require(r->kind == CACHE_MEASURED ||
            (r->layer < LAYERS && r->n_entries <= CACHE_RECORD_ENTRIES));
    for (uint32_t i = 0; r->kind != CACHE_MEASURED && i < r->n_entries; i++)
        require(
            r->entries[i].expert < EXPERTS &&
            (r->kind != CACHE_LOAD || (r->entries[i].value && r->entries[i].value <= SEGMENTS)));
}

static void take_records(struct ring *ring, enum cache_record_kind asking)
{
    struct cache_record r;
    int taken, n = 0;
    while ((taken = ring_pop(ring, &r)) == 1 && n++ <= CACHE_RING_RECORDS)
        check_record(&r, asking);
    require(n <= CACHE_RING_RECORDS);
    if (taken < 0)
        require(ring_pop(ring, &r) < 0); /* a broken ring stays broken */
}

static void cache_channel(const uint8_t *data, size_t size)
{
    static _Alignas(64) uint8_t memory[1 << 18];
    struct cache_channel worker, memd;
    size_t bytes = cache_channel_bytes();
    require(bytes <= sizeof memory);
    memset(memory, 0, bytes);
    cache_channel_init(memory, 1);
    require(!cache_channel_attach(&worker, memory, bytes, NULL));
    for (uint32_t i = 0; i < CACHE_RECORDS; i++) {
        struct cache_record r = {.kind = 1 + i % CACHE_MEASURED,
                                 .layer = (uint16_t)(i % LAYERS),
                                 .n_entries = (uint16_t)(i % CACHE_RECORD_ENTRIES)};
        for (uint32_t k = 0; k < CACHE_RECORD_ENTRIES && r.kind != CACHE_COSTS; k++)
            r.entries[k] = (struct cache_entry){(uint16_t)(k % EXPERTS), 1};
        ring_push(i % 2 ? &worker.requests : &worker.fetches, &r);
    }
    change(memory, bytes, data, size);
    if (cache_channel_attach(&memd, memory, bytes, NULL))
        return;
    take_records(&memd.requests, CACHE_LOAD);
    take_records(&memd.fetches, CACHE_FETCH);
}

/* ---- the CPU executor ---- */

static void check_tasks(const struct expert_channel *ch, const struct expert_job *job,
                        const struct expert_task *tasks, const uint32_t *indices)
{
    const float *end = ch->out + (size_t)ch->max_rows * ch->d_model;
    for (uint32_t i = 0; i < job->n_tasks; i++) {
        const struct expert_task *t = &tasks[i];
        uint64_t rows = (uint64_t)t->n_tokens * (t->output == EXPERT_APART ? t->n_segments : 1);
        require(t->expert < EXPERTS && t->n_segments &&
                t->first_segment + t->n_segments <= SEGMENTS);
        require(t->out >= ch->out && t->out + rows * ch->d_model <= end);
        require(t->tokens >= indices && t->tokens + t->n_tokens <= indices + ch->max_rows);
        for (uint32_t k = 0; k < t->n_tokens; k++)
            require(t->tokens[k] < job->n_tokens);
    }
}

static void check_groups(const struct expert_job *job, const struct row_group *groups)
{
    for (uint32_t i = 0, next = 0; i < job->n_groups; i++) {
        require(groups[i].n > 0 && groups[i].first >= next);
        next = groups[i].first + groups[i].n;
        require(next <= job->n_tokens);
    }
}

static void expert_channel(const uint8_t *data, size_t size)
{
    static _Alignas(64) uint8_t memory[1 << 16];
    static const struct host_tier no_tier;
    struct expert_channel worker, executor;
    size_t bytes = expert_channel_bytes(TOKENS, USED, EXPERTS, D_MODEL);
    require(bytes <= sizeof memory);
    memset(memory, 0, bytes);
    expert_channel_init(memory, TOKENS, USED, EXPERTS, D_MODEL, 1);
    require(!expert_channel_attach(&worker, memory, bytes, NULL));
    for (uint32_t i = 0; i < USED; i++)
        worker.tasks[i] = (struct expert_task_record){.expert = i,
                                                      .n_segments = SEGMENTS,
                                                      .first_row = i * TOKENS,
                                                      .n_rows = 2,
                                                      .first_out = i * 2};
    worker.groups[0] = (struct expert_group_record){.first = 0, .n = 2};
    struct expert_job job = {
        .sequence = 1, .layer = 1, .n_tokens = TOKENS, .n_tasks = USED, .n_groups = 1};
    for (int i = 0; i < 3; i++)
        ring_push(&worker.jobs, &job);
    change(memory, bytes, data, size);
    if (expert_channel_attach(&executor, memory, bytes, NULL))
        return;
    struct expert_task *tasks = calloc(executor.max_tasks, sizeof *tasks);
    uint32_t *indices = calloc(executor.max_rows, sizeof *indices);
    struct row_group *groups = calloc(executor.max_tokens, sizeof *groups);
    require(tasks && indices && groups);
    for (int i = 0; i < EXPERT_RING_RECORDS && ring_pop(&executor.jobs, &job) == 1; i++)
        if (!expert_job_take(&executor, &job, &map, &no_tier, tasks, indices, NULL)) {
            check_tasks(&executor, &job, tasks, indices);
            if (!expert_job_take_groups(&executor, &job, groups, NULL))
                check_groups(&job, groups);
        }
    free(tasks);
    free(indices);
    free(groups);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    for (uint32_t i = 0; i < LAYERS; i++)
        slabs[i] = (struct pool_slabs){.n_experts = EXPERTS, .n_segments = SEGMENTS};
    map.slabs = slabs;
    map.params.n_layers = LAYERS;
    if (data[0] & 1)
        expert_channel(data + 1, size - 1);
    else
        cache_channel(data + 1, size - 1);
    return 0;
}
