/* Lines of 80 columns; see fold.h. */
#include "client/cli/fold.h"

#include "base/strbuf.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WIDTH        80
#define INDENT_MAX   24 /* a name that is longer has its text right behind it */
#define INDENT_USUAL 10

/* UTF-8: the bytes that begin a character. */
static size_t columns(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += !utf8_continues(text[i]);
    return n;
}

/* Where the line's text begins: after its name and at least two spaces, or at its first word. */
static size_t find_indent(const char *line, size_t len)
{
    size_t first = strspn(line, " ");
    for (size_t i = first; i + 2 < len && i < INDENT_MAX; i++)
        if (line[i] == ' ' && line[i + 1] == ' ')
            return i + strspn(line + i, " ");
    return first ? first : INDENT_USUAL;
}

static void print_folded(const char *line, size_t len)
{
    size_t indent = columns(line, find_indent(line, len)), column = 0;
    for (size_t at = 0; at < len;) {
        size_t spaces = strspn(line + at, " ");
        size_t word = strcspn(line + at + spaces, " \n"), width = columns(line + at + spaces, word);
        if (column > indent && column + spaces + width > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else {
            fwrite(line + at, 1, spaces, stdout);
            column += spaces;
        }
        fwrite(line + at + spaces, 1, word, stdout);
        column += width;
        at += spaces + word;
    }
    putchar('\n');
}

/* The text after the last newline. */
static struct strbuf pending;

void fold_print(const char *text)
{
    size_t at = 0;
    strbuf_append(&pending, text, strlen(text));
    if (pending.failed || !pending.len)
        return;
    for (char *end; (end = memchr(pending.data + at, '\n', pending.len - at));
         at = (size_t)(end - pending.data) + 1) {
        size_t len = (size_t)(end - (pending.data + at));
        if (columns(pending.data + at, len) > WIDTH)
            print_folded(pending.data + at, len);
        else
            fwrite(pending.data + at, 1, len + 1, stdout);
    }
    memmove(pending.data, pending.data + at, pending.len - at + 1);
    pending.len -= at;
}

void fold_printf(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fold_print(text);
}
