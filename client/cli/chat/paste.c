/* Bracketed paste; see paste.h. */
#include "client/cli/chat/paste.h"

#include "base/utf8.h"

#include <string.h>

bool paste_ends(struct strbuf *text, size_t from, struct strbuf *behind)
{
    const size_t mark = strlen(PASTE_END);
    size_t start =
        from < mark ? 0 : from - (mark - 1); /* a part of the mark may have come before */
    char *end = text->len ? memmem(text->data + start, text->len - start, PASTE_END, mark) : NULL;
    if (!end)
        return false;
    strbuf_append(behind, end + mark, text->len - (size_t)(end + mark - text->data));
    text->len = (size_t)(end - text->data);
    text->data[text->len] = '\0';
    return true;
}

void paste_clean(struct strbuf *text)
{
    struct strbuf out;
    strbuf_init(&out);
    for (size_t i = 0, n; i < text->len; i += n ? n : 1) {
        const char *p = text->data + i;
        n = utf8_valid_length(p, text->len - i);
        if (n == 1 && *p == '\r') {
            if (i + 1 == text->len || p[1] != '\n')
                strbuf_append(&out, "\n", 1);
        } else if (!n) {
            strbuf_append(&out, "\xef\xbf\xbd", 3);
        } else if (*p == '\n' || *p == '\t' || !utf8_is_control(p, n)) {
            strbuf_append(&out, p, n);
        }
    }
    text->failed |= out.failed;
    strbuf_clear(text);
    strbuf_append(text, out.data ? out.data : "", out.len);
    strbuf_fini(&out);
}
