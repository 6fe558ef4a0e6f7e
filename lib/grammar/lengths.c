/* Lengths of texts; see lengths.h. */
#include "grammar/lengths.h"

#include "base/arrays.h"
#include "grammar/subschema.h"

#include <stdlib.h>

enum { BYTES = 256, MIN_MAX = 255 };

enum error_code lengths_to_end(struct schema *s, const struct dfa *d, uint32_t most,
                               uint32_t *distance)
{
    enum error_code error = ERROR_OK;
    bool again = true;
    for (uint32_t i = 0; i < d->n_states; i++)
        distance[i] = d->accepts[i] ? 0 : most + 1;
    /* a round finds at least one more byte of each way */
    for (uint32_t round = 0; round < CHARACTER_BYTES * (most + 1) && again && !error; round++) {
        error = schema_work(s, d->n_states * (uint64_t)BYTES);
        again = false;
        for (uint32_t i = d->n_states; i-- > 0 && !error;)
            for (unsigned byte = 0; byte < BYTES && distance[i]; byte++) {
                uint32_t next = d->next[i][byte];
                uint32_t by = next == DFA_NONE ? most + 1 : distance[next] + begins_character(byte);
                if (by < distance[i]) {
                    distance[i] = by;
                    again = true;
                }
            }
    }
    return error;
}

/* Visits each state behind all that lead to it; those of a cycle are never visited. edges
 * [n_states]: that lead to a state, from states that were not visited. */
static uint32_t longest_of(const struct dfa *d, uint32_t *edges, uint32_t *length, uint32_t *queue)
{
    uint32_t n_queue = 0, longest = 0;
    for (uint32_t s = 0; s < d->n_states; s++)
        for (unsigned byte = 0; byte < BYTES; byte++)
            if (d->next[s][byte] != DFA_NONE)
                edges[d->next[s][byte]]++;
    if (d->n_states && edges[0] == 0)
        queue[n_queue++] = 0;
    for (uint32_t i = 0; i < n_queue; i++) {
        uint32_t s = queue[i];
        if (d->accepts[s] && length[s] > longest)
            longest = length[s];
        for (unsigned byte = 0; byte < BYTES; byte++) {
            uint32_t next = d->next[s][byte], by = length[s] + begins_character(byte);
            if (next == DFA_NONE)
                continue;
            if (by > length[next])
                length[next] = by;
            if (--edges[next] == 0)
                queue[n_queue++] = next;
        }
    }
    return n_queue == d->n_states ? longest : BOUNDS_OPEN;
}

enum error_code lengths_longest(struct schema *s, const struct dfa *d, uint32_t *out)
{
    uint32_t *edges, *length, *queue;
    enum error_code error = schema_work(s, 2 * d->n_states * (uint64_t)BYTES);
    if (error)
        return error;
    void *memory = ARRAYS_NEW(ARRAY(edges, d->n_states), ARRAY(length, d->n_states),
                              ARRAY(queue, d->n_states));
    if (!memory)
        return schema_out_of_memory(s);
    *out = longest_of(d, edges, length, queue);
    free(memory);
    return ERROR_OK;
}

/* Has every text `min` characters? */
static enum error_code all_have(struct schema *s, const struct dfa *d, uint32_t min, bool *out)
{
    uint32_t *distance = malloc((d->n_states + (size_t)1) * sizeof *distance);
    if (!distance)
        return schema_out_of_memory(s);
    enum error_code error = lengths_to_end(s, d, min, distance);
    *out = !error && (d->n_states == 0 || distance[0] >= min);
    free(distance);
    return error;
}

enum error_code lengths_leave_out(struct schema *s, const struct dfa *d,
                                  struct count_bounds *length)
{
    uint32_t longest = BOUNDS_OPEN;
    bool all = false;
    enum error_code error = length->max == BOUNDS_OPEN ? ERROR_OK : lengths_longest(s, d, &longest);
    if (!error && longest <= length->max)
        length->max = BOUNDS_OPEN;
    if (!error && length->min > 0 && length->min <= MIN_MAX)
        error = all_have(s, d, length->min, &all);
    if (!error && all)
        length->min = 0;
    return error;
}
