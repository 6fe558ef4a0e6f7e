/* Fuzz target of the plan of a pool: any bytes as a model file. The parts of a plan lie in the pool
 * without overlap, and every byte that the loader would read lies in the file. */
#include "model/pool_plan.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The least offset of the next part of the pool. */
static uint64_t after(uint64_t end, uint64_t offset, uint64_t bytes, uint64_t total)
{
    require(offset >= end && offset % TILE_ALIGN == 0);
    require(bytes <= total && offset <= total - bytes);
    return offset + bytes;
}

/* Rows of a tensor of the file, as memd/load/load.c reads them. */
static void check_rows(const struct pool_source *from, uint64_t planes, uint64_t rows,
                       uint64_t cols, bool vector)
{
    const struct gguf_tensor *t = from->tensor;
    uint64_t row_bytes = quant_row_bytes(t->type, cols);
    uint64_t first = from->first_row * (vector ? quant_row_bytes(t->type, 1) : row_bytes);
    require(first + ((planes - 1) * from->plane_rows + rows) * row_bytes <= t->bytes);
}

static void check_dense(const struct pool_plan *plan, uint32_t i)
{
    const struct pool_tensor *t = &plan->tensors[i];
    const struct pool_source *from = &plan->sources[i];
    require(i == 0 || strcmp(plan->tensors[i - 1].name, t->name) < 0);
    require(t->planes > 0 && t->bytes % t->planes == 0);
    if (t->form == POOL_VECTOR)
        check_rows(from, 1, 1, (uint64_t)t->rows * t->cols, true);
    else if (from->transposed)
        check_rows(from, t->planes, t->cols, t->rows, false);
    else
        check_rows(from, t->planes, t->rows, t->cols, false);
}

static void check_experts(const struct pool_plan *plan, uint32_t layer)
{
    const struct pool_slabs *s = &plan->slabs[layer];
    const struct pool_expert_sources *from = &plan->experts[layer];
    if (s->n_experts == 0)
        return;
    uint64_t width = (uint64_t)s->segment_width * s->n_segments;
    require(s->slab_bytes == s->segment_bytes * s->n_segments && width > 0);
    require((from->gate.tensor != NULL) == (s->up_offset > 0));
    if (from->gate.tensor)
        check_rows(&from->gate, s->n_experts, width, s->d_model, false);
    check_rows(&from->up, s->n_experts, width, s->d_model, false);
    check_rows(&from->down, s->n_experts, s->d_model, width, false);
    require(s->segment_width % tensor_type_info(s->down_type)->block_values == 0);
    require(s->n_segments == 1 || s->segment_width % TILE_ROWS == 0);
    if (s->bias_offset) {
        check_rows(&from->gate_bias, s->n_experts, 1, width, true);
        check_rows(&from->up_bias, s->n_experts, 1, width, true);
    }
}

static void check_plan(const struct pool_plan *plan)
{
    const struct pool_header *h = &plan->header;
    uint64_t end = sizeof *h;
    end = after(end, h->tensors_offset, h->n_tensors * sizeof *plan->tensors, h->bytes);
    end = after(end, h->slabs_offset, h->n_layers * sizeof *plan->slabs, h->bytes);
    end = after(end, h->metadata_offset, h->metadata_bytes, h->bytes);
    for (uint32_t i = 0; i < h->n_tensors; i++) {
        check_dense(plan, i);
        end = after(end, plan->tensors[i].offset, plan->tensors[i].bytes, h->bytes);
    }
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct pool_slabs *s = &plan->slabs[i];
        check_experts(plan, i);
        end = after(end, s->offset, s->slab_bytes * s->n_experts, h->bytes);
    }
}

/* Attaching to the planned pool succeeds. */
static void check_attach(const struct pool_plan *plan, const struct gguf *g)
{
    struct pool_map map;
    struct error e;
    if (plan->header.bytes > 1 << 20)
        return;
    uint8_t *pool = aligned_alloc(4096, plan->header.bytes);
    require(pool != NULL);
    if (pool_plan_write(plan, g, 1, pool, NULL))
        abort();
    require(pool_map_attach(pool, plan->header.bytes, &map, &e) == ERROR_OK);
    free(pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct pool_plan plan;
    struct error e = {0};
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum error_code code = gguf_open(path, &g, &e);
    close(fd);
    if (code)
        return 0;
    code = pool_plan_new_cut(g, 1024, &plan, &e);
    if (code) {
        require(e.code == code && e.text[0] && !strchr(e.text, '\n'));
    } else {
        check_plan(&plan);
        check_attach(&plan, g);
        pool_plan_free(&plan);
    }
    gguf_close(g);
    return 0;
}
