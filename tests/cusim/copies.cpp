/* cp.async: a copy is done as late as the manual allows, when its thread waits for it. Until then
 * the shared memory holds 0xff. */
#include "copies.h"

#include "block.h"
#include "races.h"

#include <vector>

namespace
{
struct copy {
    void *to;
    const void *from;
    unsigned bytes, group;
};

struct copier {
    std::vector<copy> pending; /* in the order of their start */
    unsigned n_groups;         /* committed */
};

std::vector<copier> &copiers = *new std::vector<copier>(1024);

copier &mine()
{
    return copiers[block_thread()];
}

/* Does the copies of groups before `end`. */
void finish(copier &c, unsigned end)
{
    size_t n = 0;
    for (; n < c.pending.size() && c.pending[n].group < end; n++) {
        const copy &done = c.pending[n];
        races_write(block_thread(), done.to, done.bytes);
        memcpy(done.to, done.from, done.bytes);
    }
    c.pending.erase(c.pending.begin(), c.pending.begin() + (long)n);
}
} // namespace

void copies_begin_block(unsigned n_threads)
{
    for (unsigned t = 0; t < n_threads; t++) {
        copiers[t].pending.clear();
        copiers[t].n_groups = 0;
    }
}

bool copies_pending(unsigned thread)
{
    return !copiers[thread].pending.empty();
}

void cusim_copy_async(void *to, const void *from, unsigned bytes)
{
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
        block_die("cp.async of %u bytes that are not aligned to as many", bytes);
    if (!block_is_shared(to, bytes))
        block_die("cp.async to an address outside of the dynamic shared memory");
    races_write(block_thread(), to, bytes);
    memset(to, 0xff, bytes);
    mine().pending.push_back({to, from, bytes, mine().n_groups});
}

void cusim_copy_commit()
{
    mine().n_groups++;
}

void cusim_copy_wait(unsigned pending)
{
    copier &c = mine();
    finish(c, c.n_groups > pending ? c.n_groups - pending : 0);
}

void cusim_copy_wait_all()
{
    finish(mine(), mine().n_groups + 1);
}
