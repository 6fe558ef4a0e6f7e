/* The page for browsers; see page.h. */
#include "client/http/api/page.h"

#include "client/http/api/ollama.h"

#include <stdio.h>
#include <string.h>

/* Nothing but the server's own files, no text of a script in the document, and no sink that makes
 * markup of a string: a model's answer is untrusted. */
#define CONTENT_POLICY                                                                             \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "        \
    "'self'; "                                                                                     \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "                                \
    "require-trusted-types-for 'script'; trusted-types 'none'"

static const struct page_file *find_file(const char *name)
{
    for (const struct page_file *f = page_files; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

static const char *type_of(const char *name)
{
    static const struct {
        const char *ending, *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].ending, ending) == 0)
            return types[i].type;
    return "application/octet-stream";
}

bool page_tag_matches(const char *field, const char *digest)
{
    size_t n = strlen(digest);
    while (field && *field) {
        field += strspn(field, ", \t");
        if (*field == '*')
            return true;
        if (strncmp(field, "W/", 2) == 0) /* the comparison is the weak one */
            field += 2;
        if (*field != '"')
            return false;
        size_t length = strcspn(++field, "\"");
        if (length == n && memcmp(field, digest, n) == 0)
            return true;
        field += length + (field[length] == '"');
    }
    return false;
}

static void reply_file(struct exchange *x, const struct page_file *f)
{
    char tag[80];
    snprintf(tag, sizeof tag, "\"%s\"", f->digest);
    exchange_add_header(x, "ETag", tag);
    exchange_add_header(x, "Cache-Control", "no-cache");
    exchange_add_header(x, "Content-Security-Policy", CONTENT_POLICY);
    exchange_add_header(x, "X-Content-Type-Options", "nosniff");
    exchange_add_header(x, "Referrer-Policy", "no-referrer");
    strbuf_append(&x->out, (const char *)f->bytes, f->length);
    /* libmicrohttpd leaves the body of a 304 out, and says the length that it would have */
    bool known = page_tag_matches(exchange_header(x, "If-None-Match"), f->digest);
    exchange_reply(x, known ? 304 : 200, known ? NULL : type_of(f->name));
}

void handle_root(struct exchange *x)
{
    const char *accept = exchange_header(x, "Accept");
    exchange_add_header(x, "Vary", "Accept");
    if (accept && strstr(accept, "text/html"))
        reply_file(x, find_file("index.html"));
    else
        handle_ollama_root(x);
}

void handle_page_file(struct exchange *x)
{
    const struct page_file *f = find_file(x->rest);
    if (f) {
        reply_file(x, f);
        return;
    }
    struct problem p;
    problem_fill(&p, 404, "the page has no file '%.100s'", x->rest);
    p.code = "unknown_url";
    exchange_fail(x, &p);
}
