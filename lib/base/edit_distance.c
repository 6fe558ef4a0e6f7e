/* Distances between words; see edit_distance.h. */
#include "base/edit_distance.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[EDIT_DISTANCE_WORD + 1][EDIT_DISTANCE_WORD + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > EDIT_DISTANCE_WORD || m > EDIT_DISTANCE_WORD)
        return UINT32_MAX;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = (unsigned)(i + j);
                continue;
            }
            unsigned changed = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            rows[i][j] = least(changed, 1 + least(rows[i - 1][j], rows[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[n][m];
}

unsigned edit_distance_limit(const char *word)
{
    return least((unsigned)strlen(word) / 2 + 1, 4);
}
