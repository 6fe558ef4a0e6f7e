/* Places in texts; see text_place.h. */
#include "client/http/api/text_place.h"

#include "base/utf8.h"

#include <string.h>

/* After a token that stands for other bytes (of an unknown character) the next one is looked for
 * this far. */
#define LOST_BYTES 64

static void drop_pending(struct text_place *p, size_t n)
{
    p->characters++;
    p->n_pending -= (uint32_t)n;
    memmove(p->pending, p->pending + n, p->n_pending);
}

static void take_byte(struct text_place *p, char byte)
{
    p->pending[p->n_pending++] = byte;
    while (p->n_pending) {
        size_t valid = utf8_valid_length(p->pending, p->n_pending);
        if (!valid && utf8_incomplete_tail(p->pending, p->n_pending) == p->n_pending)
            return;
        drop_pending(p, valid ? valid : 1);
    }
}

uint32_t text_place_take(struct text_place *p, const char *bytes, size_t len)
{
    if (!len)
        return p->characters;
    take_byte(p, bytes[0]);
    uint32_t begin = p->n_pending ? p->characters : p->characters - 1;
    for (size_t i = 1; i < len; i++)
        take_byte(p, bytes[i]);
    return begin;
}

/* How many bytes of the text at `at` the token shows. False: the text goes on with something else.
 */
static bool shows(struct moed_bytes text, size_t at, struct moed_bytes token, size_t *len)
{
    bool spaced = token.len > 0 && token.data[0] == ' ';
    for (size_t skipped = 0; skipped <= spaced; skipped++) {
        *len = token.len - skipped;
        if (*len <= text.len - at && memcmp(text.data + at, token.data + skipped, *len) == 0)
            return true;
    }
    *len = 0;
    return false;
}

/* Where the token stands behind `at`; `at` where it does not. */
static size_t find_behind(struct moed_bytes text, size_t at, struct moed_bytes token)
{
    size_t left = text.len - at, most = token.len + LOST_BYTES;
    const char *found =
        token.len ? memmem(text.data + at, left < most ? left : most, token.data, token.len) : NULL;
    return found ? (size_t)(found - text.data) : at;
}

void text_place_tokens(const struct vocabulary *v, const uint32_t *tokens, size_t n,
                       struct moed_bytes text, uint32_t *offsets, struct text_place *end)
{
    struct text_place place = {0};
    size_t at = 0;
    bool lost = false;
    for (size_t i = 0; i < n; i++) {
        struct moed_bytes token = vocabulary_text(v, tokens[i]);
        size_t len;
        bool found = shows(text, at, token, &len);
        if (!found && lost) {
            size_t behind = find_behind(text, at, token);
            text_place_take(&place, text.data + at, behind - at);
            at = behind;
            found = shows(text, at, token, &len);
        }
        offsets[i] = text_place_take(&place, text.data + at, len);
        at += len;
        lost = !found;
    }
    text_place_take(&place, text.data + at, text.len - at);
    *end = place;
}
