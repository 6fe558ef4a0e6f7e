/* The steps of a replay; see steps.h. */
#include "bench/replay/steps.h"

#include <stdlib.h>

bool steps_init(struct steps *s, const struct trace *trace, const struct steps_options *options)
{
    s->trace = trace;
    s->options = *options;
    if (!s->options.chunk)
        s->options.chunk = STEPS_CHUNK;
    s->tokens_left = options->max_tokens ? options->max_tokens : UINT64_MAX;
    s->capacity = options->batch > s->options.chunk ? options->batch : s->options.chunk;
    s->running = calloc(options->batch, sizeof *s->running);
    s->tokens = calloc(s->capacity, sizeof *s->tokens);
    return s->running && s->tokens;
}

void steps_fini(struct steps *s)
{
    free(s->running);
    free(s->tokens);
}

static uint32_t prompt_of(const struct steps *s, uint32_t sequence)
{
    const struct trace_sequence *q = trace_sequence(s->trace, sequence);
    uint32_t n = s->options.prompt ? s->options.prompt : q->n_prompt;
    return n < q->n_tokens ? n : q->n_tokens;
}

/* The next prefill chunk of running[i]; 0: its prompt is done. */
static uint32_t prompt_chunk(struct steps *s, struct predicting_token *r)
{
    uint32_t n = 0, prompt = prompt_of(s, r->sequence);
    for (; r->token < prompt && n < s->options.chunk; r->token++)
        s->tokens[n++] = *r;
    return n;
}

static bool has_ended(const struct steps *s, const struct predicting_token *r)
{
    return r->token >= trace_sequence(s->trace, r->sequence)->n_tokens;
}

uint32_t steps_next(struct steps *s, bool *decoding)
{
    *decoding = false;
    if (!s->tokens_left)
        return 0;
    for (uint32_t i = 0; i < s->options.batch; i++) {
        struct predicting_token *r = &s->running[i];
        while (i >= s->n_running || has_ended(s, r)) {
            if (s->next_sequence == trace_sequences(s->trace))
                return 0;
            *r = (struct predicting_token){s->next_sequence, 0, 1 + (uint64_t)s->next_sequence};
            s->next_sequence++;
            if (i >= s->n_running)
                s->n_running = i + 1;
        }
        uint32_t n = prompt_chunk(s, r);
        if (n) {
            s->tokens_left -= n < s->tokens_left ? n : s->tokens_left;
            return n;
        }
        if (has_ended(s, r)) /* the prompt was the whole sequence */
            i--;
    }
    *decoding = true;
    for (uint32_t i = 0; i < s->options.batch; i++) {
        s->tokens[i] = s->running[i];
        s->running[i].token++;
    }
    s->tokens_left -= s->options.batch < s->tokens_left ? s->options.batch : s->tokens_left;
    return s->options.batch;
}
