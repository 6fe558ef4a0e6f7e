/* Windows; see windows.h. */
#include "client/cli/windows.h"

/* The end of the window before k. */
static size_t end_before(const struct window_plan *plan, size_t k)
{
    return k ? (k - 1) * plan->stride + plan->size : 0;
}

struct window windows_at(const struct window_plan *plan, size_t k)
{
    size_t begin = k * plan->stride, end = begin + plan->size;
    if (plan->halves)
        return (struct window){begin, end, begin + plan->size / 2 + 1};
    if (end > plan->n_tokens)
        end = plan->n_tokens;
    size_t can_be_scored = begin + (plan->begin_token ? 0 : 1), before = end_before(plan, k);
    return (struct window){begin, end, before > can_be_scored ? before : can_be_scored};
}

size_t windows_count(const struct window_plan *plan)
{
    if (plan->n_tokens == 0)
        return 0;
    if (plan->halves)
        return plan->n_tokens / plan->size;
    /* The last one is the first that reaches the end of the text. */
    size_t beyond_first = plan->n_tokens > plan->size ? plan->n_tokens - plan->size : 0;
    size_t count = (beyond_first + plan->stride - 1) / plan->stride + 1;
    struct window last = windows_at(plan, count - 1);
    return last.scored_begin < last.end ? count : count - 1; /* one token, nothing before it */
}
