/* Memory needs; see memory_need.h. */
#include "model/memory_need.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t read_number(const char *path, const char *format)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    uint64_t value = 0;
    char line[128];
    bool found = false;
    while (!found && fgets(line, sizeof line, f))
        found = sscanf(line, format, &value) == 1;
    fclose(f);
    return found ? value : 0;
}

uint64_t memory_available_bytes(void)
{
    uint64_t available = read_number("/proc/meminfo", "MemAvailable: %" SCNu64) * 1024;
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "%" SCNu64); /* "max": none */
    uint64_t used = read_number("/sys/fs/cgroup/memory.current", "%" SCNu64);
    if (limit && limit > used && limit - used < available)
        return limit - used;
    return available;
}

enum error_code memory_need_check(const struct pool_plan *plan, struct error *e)
{
    uint64_t need = plan->header.bytes + MEMORY_MARGIN_BYTES;
    uint64_t available = memory_available_bytes();
    if (available && need > available)
        return error_set(e, ERROR_MEMORY,
                         "%s needs %.1f GB of memory, %.1f GB are available: free some, or take a "
                         "smaller quantisation",
                         plan->header.path, (double)need * 1e-9, (double)available * 1e-9);
    return ERROR_OK;
}

uint64_t memory_kv_bytes_a_token(const struct model_params *p)
{
    return (uint64_t)p->n_layers * p->n_kv_heads * (p->k_dim + p->v_dim) * sizeof(float);
}
