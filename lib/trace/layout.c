/* What reader and writer of trace files share; see layout.h. */
#include "trace/layout.h"

#include "base/checked.h"
#include "model/router.h"

#include <inttypes.h>
#include <math.h>

static bool append(uint64_t *end, uint64_t *begin, uint64_t count, uint64_t bytes)
{
    uint64_t size;
    *begin = *end;
    return checked_mul(count, bytes, &size) && checked_add(*end, size, end);
}

bool trace_sequence_layout(const struct trace_shape *s, const struct trace_file_sequence *head,
                           struct trace_sequence_parts *out)
{
    /* Each at most 2^40, because the shape was checked. */
    uint64_t layers = trace_layers_with_experts(s);
    uint64_t hidden = layers * s->d_model * 2;
    uint64_t selected = layers * s->n_used * trace_choice_bytes(s);
    uint64_t gate = s->has & TRACE_GATE ? layers * s->n_experts : 0;
    out->bytes = sizeof *head;
    return append(&out->bytes, &out->tokens, head->n_tokens, 4) &&
           append(&out->bytes, &out->hidden_at, head->n_hidden, 4) &&
           append(&out->bytes, &out->hidden, head->n_hidden, hidden) &&
           append(&out->bytes, &out->selected, head->n_tokens, selected) &&
           append(&out->bytes, &out->gate, head->n_tokens, gate);
}

static enum error_code check_router(const struct trace_shape *s, struct error *e)
{
    const struct router_params *r = &s->router;
    if (r->kind > ROUTER_SPARSE_MIXER)
        return error_set(e, ERROR_FORMAT, "router kind %u is unknown", (unsigned)r->kind);
    if (r->n_experts != s->n_experts || r->n_used != s->n_used)
        return error_set(e, ERROR_FORMAT, "the router is of another shape");
    if (r->n_groups > ROUTER_MAX_GROUPS || r->n_groups_used > r->n_groups ||
        (r->n_groups > 0 &&
         (r->n_experts % r->n_groups ||
          (uint64_t)r->n_groups_used * (r->n_experts / r->n_groups) < r->n_used)))
        return error_set(e, ERROR_FORMAT,
                         "%" PRIu32 " experts cannot be chosen from %" PRIu32 " of %" PRIu32
                         " groups of %" PRIu32,
                         r->n_used, r->n_groups_used, r->n_groups, r->n_experts);
    if (!isfinite(r->scale))
        return error_set(e, ERROR_FORMAT, "the router's scale is no number");
    return ERROR_OK;
}

enum error_code trace_check_shape(const struct trace_shape *s, struct error *e)
{
    if (s->n_layers > TRACE_MAX_LAYERS || s->first_layer >= s->n_layers)
        return error_set(e, ERROR_FORMAT,
                         "%" PRIu32 " layers, the first with experts %" PRIu32
                         ": expected 1 to %d layers, of which one has experts",
                         s->n_layers, s->first_layer, TRACE_MAX_LAYERS);
    if (s->n_experts > ROUTER_MAX_EXPERTS || s->n_used < 1 || s->n_used > s->n_experts)
        return error_set(e, ERROR_FORMAT,
                         "%" PRIu32 " of %" PRIu32 " experts: expected 1 to all of at most %d",
                         s->n_used, s->n_experts, ROUTER_MAX_EXPERTS);
    if (s->d_model < 1 || s->d_model > TRACE_MAX_WIDTH)
        return error_set(e, ERROR_FORMAT, "d_model is %" PRIu32 ": expected 1 to %d", s->d_model,
                         TRACE_MAX_WIDTH);
    if (s->has & ~(uint32_t)TRACE_ALL)
        return error_set(e, ERROR_FORMAT, "parts 0x%" PRIx32 " are unknown",
                         s->has & ~(uint32_t)TRACE_ALL);
    if (s->dense_bytes > INT64_MAX)
        return error_set(e, ERROR_FORMAT, "%" PRIu64 " bytes of dense weights are impossible",
                         s->dense_bytes);
    return check_router(s, e);
}

enum error_code trace_check_layer(const struct trace_shape *s, const struct trace_layer *l,
                                  struct error *e)
{
    /* All layers' experts together stay below 2^63 bytes. */
    uint64_t experts = (uint64_t)s->n_layers * s->n_experts; /* at most 2^22 */
    if (l->n_segments < 1 || l->n_segments > TRACE_MAX_SEGMENTS || l->segment_bytes < 1 ||
        l->segment_bytes > INT64_MAX / experts / l->n_segments)
        return error_set(e, ERROR_FORMAT,
                         "experts of %" PRIu32 " segments of %" PRIu64 " bytes are impossible",
                         l->n_segments, l->segment_bytes);
    return ERROR_OK;
}

uint8_t trace_gate_pack(float probability)
{
    if (!(probability > 0)) /* also NaN */
        return TRACE_GATE_ZERO;
    double steps = round(-16.0 * log2((double)probability));
    return steps <= 0 ? 0 : steps >= TRACE_GATE_ZERO ? TRACE_GATE_ZERO : (uint8_t)steps;
}
