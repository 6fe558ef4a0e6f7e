/* The routers in 8 bits; see prediction_routers.h. */
#include "prediction_routers.h"

#include "base/arrays.h"
#include "base/checked.h"
#include "quant/quant.h"

#include <stdlib.h>

#define PREDICT_TYPE TENSOR_Q8_0

static bool is_made_smaller(const struct matrix *m)
{
    return m->tiles && !weights_quantize(m) &&
           m->cols % tensor_type_info(PREDICT_TYPE)->block_values == 0;
}

static size_t all_bytes(const struct model_weights *w, const struct model_params *p)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct matrix *m = &w->layers[i].router;
        if (is_made_smaller(m))
            bytes += tile_matrix_bytes(PREDICT_TYPE, m->rows, m->cols);
    }
    return bytes;
}

/* rows: [TILE_ROWS][m->cols]; blocks: as many in PREDICT_TYPE. */
static void make(const struct matrix *m, float *rows, uint8_t *blocks, uint8_t *tiles)
{
    size_t stride = quant_row_bytes(PREDICT_TYPE, m->cols);
    for (uint32_t first = 0; first < m->rows; first += TILE_ROWS) {
        uint32_t n = m->rows - first < TILE_ROWS ? m->rows - first : TILE_ROWS;
        tile_unpack_rows(m, first, n, rows);
        quant_quantize(PREDICT_TYPE, rows, blocks, (size_t)n * m->cols);
        tile_pack(PREDICT_TYPE, m->cols, n, blocks, stride, tiles);
        tiles += tile_row_bytes(PREDICT_TYPE, m->cols);
    }
}

static void make_all(struct model_weights *w, const struct model_params *p, float *rows,
                     uint8_t *blocks)
{
    uint8_t *tiles = w->prediction_tiles;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct matrix *m = &w->layers[i].router;
        if (!is_made_smaller(m))
            continue;
        make(m, rows, blocks, tiles);
        w->layers[i].prediction_router = (struct matrix){PREDICT_TYPE, m->rows, m->cols, tiles};
        tiles += tile_matrix_bytes(PREDICT_TYPE, m->rows, m->cols);
    }
}

enum error_code prediction_routers_make(struct model_weights *w, const struct model_params *p,
                                        struct error *e)
{
    size_t bytes = all_bytes(w, p), values = (size_t)TILE_ROWS * p->d_model;
    if (!bytes)
        return ERROR_OK;
    float *rows;
    uint8_t *blocks;
    void *scratch =
        ARRAYS_NEW(ARRAY(rows, values), ARRAY(blocks, quant_row_bytes(PREDICT_TYPE, values)));
    w->prediction_tiles = aligned_alloc(TILE_ALIGN, round_up(bytes, TILE_ALIGN));
    bool there = scratch && w->prediction_tiles;
    if (there)
        make_all(w, p, rows, blocks);
    free(scratch);
    return there ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for the routers in 8 bits");
}
