/* With and without in turn; see copy_trial.h. */
#include "copy_trial.h"

#include "base/sort_doubles.h"

#include <string.h>

enum { COUNTED = COPY_TRIAL_BLOCK - COPY_TRIAL_SETTLE };
/* Copies bring experts that stay, so steps without them live on those before: to be without has to be better by so much. */
#define MARGIN     0.02
#define FAR_LONGER 3

/* Of means, for copies hold up some steps much and others not at all; but one that took far longer was interrupted by somebody else. */
static double usual_mean(double *values)
{
    double sum = 0;
    sort_doubles(values, COUNTED);
    double most = FAR_LONGER * (values[COUNTED / 2 - 1] + values[COUNTED / 2]) / 2;
    for (int i = 0; i < COUNTED; i++)
        sum += values[i] < most ? values[i] : most;
    return sum / COUNTED;
}

static void begin(struct copy_trial *t)
{
    t->at = t->hold = 0;
}

void copy_trial_restart(struct copy_trial *t)
{
    memset(t, 0, sizeof *t);
}

static void decide(struct copy_trial *t)
{
    double with_s = 0, without_s = 0;
    for (uint32_t block = 0; block < COPY_TRIAL_BLOCKS; block++)
        *(block % 2 ? &without_s : &with_s) += usual_mean(t->took_s[block]);
    bool without = without_s < (1 - MARGIN) * with_s;
    t->gain = 1 - with_s / without_s;
    uint32_t longer = t->held < COPY_TRIAL_MOST / 2 ? 2 * t->held : COPY_TRIAL_MOST;
    t->hold = t->held = t->held && without == t->without ? longer : COPY_TRIAL_HOLD;
    t->without = without;
    t->at = 0;
}

/* A step whose time is not known is done once more. */
static void count(struct copy_trial *t, double took_s)
{
    uint32_t block = t->at / COPY_TRIAL_BLOCK, step = t->at % COPY_TRIAL_BLOCK;
    if (!(took_s > 0))
        return;
    if (step >= COPY_TRIAL_SETTLE)
        t->took_s[block][step - COPY_TRIAL_SETTLE] = took_s;
    if (++t->at == COPY_TRIAL_BLOCKS * COPY_TRIAL_BLOCK)
        decide(t);
}

static bool next_is_with(const struct copy_trial *t)
{
    return t->hold ? !t->without : t->at / COPY_TRIAL_BLOCK % 2 == 0;
}

bool copy_trial_step(struct copy_trial *t, uint32_t n_tokens, double took_s)
{
    if (!t->n_tokens)
        t->n_tokens = n_tokens;
    if (n_tokens != t->n_tokens && ++t->others < COPY_TRIAL_BLOCK) /* a prompt between, or a request that ended */
        return next_is_with(t);
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
    return next_is_with(t);
}
