/* When somebody is asked again; see pause.h. */
#include "pause.h"

void pause_begin(struct pause *p, uint64_t now_ns)
{
    uint64_t length_ns = p->length_ns ? 2 * p->length_ns : PAUSE_NS;
    p->length_ns = length_ns < PAUSE_MOST_NS ? length_ns : PAUSE_MOST_NS;
    p->on = true;
    p->until_ns = now_ns + p->length_ns;
}

bool pause_end(struct pause *p, bool alive, uint64_t now_ns)
{
    if (!p->on || !alive || now_ns < p->until_ns)
        return false;
    p->on = false;
    return true;
}
