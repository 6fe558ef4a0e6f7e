/* Sizes of the arena's extents; see arena_layout.h. */
#include "ipc/arena_layout.h"

#include "base/checked.h"

/* Units of the smallest extent. Of a smaller one the last unit's waste would be a large share. */
#define EXTENT_UNITS 4

static uint64_t divided_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct arena_layout arena_layout_for(uint64_t slot_bytes, uint32_t total, uint64_t unit_bytes)
{
    uint64_t first = smaller(round_up(slot_bytes, unit_bytes) / slot_bytes, total);
    uint64_t each = divided_up(total - first, ARENA_EXTENTS - 1);
    uint64_t least = divided_up(EXTENT_UNITS * unit_bytes, slot_bytes);
    each = smaller(each > least ? each : least, total);
    each = round_up(each * slot_bytes, unit_bytes) / slot_bytes;
    return (struct arena_layout){(uint32_t)first, (uint32_t)smaller(each, UINT32_MAX)};
}

uint64_t arena_bytes(struct arena_layout l, uint64_t slot_bytes, uint64_t unit_bytes, uint32_t n)
{
    uint32_t last = arena_extents(l, n) - 1;
    uint64_t sum = round_up(l.first * slot_bytes, unit_bytes);
    if (last > 1)
        sum += (last - 1) * round_up(l.each * slot_bytes, unit_bytes);
    if (last > 0)
        sum += round_up(arena_extent_slots(l, last, n) * slot_bytes, unit_bytes);
    return sum;
}

uint32_t arena_slots_in(struct arena_layout l, uint64_t slot_bytes, uint64_t unit_bytes,
                        uint64_t bytes, uint32_t most)
{
    uint64_t first = round_up(l.first * slot_bytes, unit_bytes);
    uint64_t each = round_up(l.each * slot_bytes, unit_bytes);
    if (bytes < first)
        return 0;
    uint64_t rest = bytes - first, whole = smaller(rest / each, UINT32_MAX);
    uint64_t part = (rest - whole * each) / unit_bytes * unit_bytes / slot_bytes;
    return (uint32_t)smaller(l.first + whole * l.each + smaller(part, l.each), most);
}
