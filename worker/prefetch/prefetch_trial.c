/* The trial of prefetching; see prefetch_trial.h. */
#include "prefetch_trial.h"

#include "base/sort_doubles.h"

#include <string.h>

enum { COUNTED = PREFETCH_TRIAL_BLOCK - PREFETCH_TRIAL_SETTLE };
/* Prefetched experts stay, so steps without prefetch profit from the steps before them. To win,
 * they must be faster by this share. */
#define MARGIN     0.02
#define FAR_LONGER 3

/* A mean, because copies delay some steps much and others not at all. A step that took FAR_LONGER
 * than the median was interrupted, and counts as that. */
static double block_mean(double *values)
{
    double sum = 0;
    sort_doubles(values, COUNTED);
    double most = FAR_LONGER * (values[COUNTED / 2 - 1] + values[COUNTED / 2]) / 2;
    for (int i = 0; i < COUNTED; i++)
        sum += values[i] < most ? values[i] : most;
    return sum / COUNTED;
}

static void begin(struct prefetch_trial *t)
{
    t->at = t->hold = 0;
}

void prefetch_trial_restart(struct prefetch_trial *t)
{
    memset(t, 0, sizeof *t);
}

static void decide(struct prefetch_trial *t)
{
    double with_s = 0, without_s = 0;
    for (uint32_t block = 0; block < PREFETCH_TRIAL_BLOCKS; block++)
        *(block % 2 ? &without_s : &with_s) += block_mean(t->took_s[block]);
    bool without = without_s < (1 - MARGIN) * with_s;
    t->gain = 1 - with_s / without_s;
    uint32_t longer = t->held < PREFETCH_TRIAL_MOST / 2 ? 2 * t->held : PREFETCH_TRIAL_MOST;
    t->hold = t->held = t->held && without == t->without ? longer : PREFETCH_TRIAL_HOLD;
    t->without = without;
    t->at = 0;
}

/* A step whose time is not known is repeated. */
static void count(struct prefetch_trial *t, double took_s)
{
    uint32_t block = t->at / PREFETCH_TRIAL_BLOCK, step = t->at % PREFETCH_TRIAL_BLOCK;
    if (!(took_s > 0))
        return;
    if (step >= PREFETCH_TRIAL_SETTLE)
        t->took_s[block][step - PREFETCH_TRIAL_SETTLE] = took_s;
    if (++t->at == PREFETCH_TRIAL_BLOCKS * PREFETCH_TRIAL_BLOCK)
        decide(t);
}

bool prefetch_trial_is_with(const struct prefetch_trial *t)
{
    return t->hold ? !t->without : t->at / PREFETCH_TRIAL_BLOCK % 2 == 0;
}

bool prefetch_trial_step(struct prefetch_trial *t, uint32_t n_tokens, double took_s)
{
    if (!t->n_tokens)
        t->n_tokens = n_tokens;
    if (n_tokens != t->n_tokens &&
        ++t->others < PREFETCH_TRIAL_BLOCK) /* a prompt, or the end of a request */
        return prefetch_trial_is_with(t);
    if (n_tokens != t->n_tokens) {
        t->n_tokens = n_tokens;
        t->held = 0;
        begin(t);
    }
    t->others = 0;
    if (!t->hold)
        count(t, took_s);
    else if (++t->at == t->hold)
        begin(t);
    return prefetch_trial_is_with(t);
}
