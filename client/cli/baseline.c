/* Baselines; see baseline.h. */
#include "client/cli/baseline.h"

#include "base/arrays.h"
#include "base/checksum.h"
#include "base/file_writer.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = "moedbase";

bool baseline_scores_init(struct baseline_scores *s, size_t n, uint32_t top)
{
    if (top && n > SIZE_MAX / sizeof *s->top / top)
        return false;
    s->memory =
        ARRAYS_NEW(ARRAY(s->logprobs, n), ARRAY(s->top, n * top), ARRAY(s->top_logprobs, n * top));
    return s->memory != NULL;
}

/* ---- Parts ---- */

static enum error_code read_part(struct baseline *b, void *data, size_t bytes, struct error *e)
{
    char *at = data;
    for (size_t left = bytes; left;) {
        ssize_t n = read(b->fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, ERROR_IO, "cannot read %s: %s", b->path, strerror(errno));
        if (n == 0)
            return error_set(e, ERROR_FORMAT, "%s is cut short", b->path);
        at += n;
        left -= (size_t)n;
    }
    return ERROR_OK;
}

/* Writes data, or reads it. */
static enum error_code take_part(struct baseline *b, void *data, size_t bytes, struct error *e)
{
    enum error_code code =
        b->writer ? file_writer_write(b->writer, data, bytes, e) : read_part(b, data, bytes, e);
    if (!code)
        b->checksum = checksum64(b->checksum, data, bytes);
    return code;
}

/* ---- The head ---- */

enum error_code baseline_create(struct baseline *b, const char *path,
                                const struct baseline_head *head, struct error *e)
{
    *b = (struct baseline){.head = *head, .path = path, .fd = -1};
    memcpy(b->head.magic, magic, sizeof magic);
    b->head.version = BASELINE_VERSION;
    enum error_code code = file_writer_open(path, FILE_WRITER_MODE, &b->writer, e);
    return code ? code : take_part(b, &b->head, sizeof b->head, e);
}

/* Ends within its bytes, and has nothing that a terminal would obey. */
static bool is_text(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!text[i] || iscntrl((unsigned char)text[i]))
            return !text[i];
    return false;
}

static enum error_code check_head(const struct baseline *b, struct error *e)
{
    const struct baseline_head *h = &b->head;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return error_set(e, ERROR_FORMAT, "%s is not a file of moed perplexity --save", b->path);
    if (h->version != BASELINE_VERSION)
        return error_set(e, ERROR_VERSION, "%s has version %u; this moed reads %d: save it again",
                         b->path, h->version, BASELINE_VERSION);
    if (!h->top || h->top > BASELINE_TOP || h->top > h->vocab || !is_text(h->kv_type, 16) ||
        !is_text(h->device, sizeof h->device) || !is_text(h->model, sizeof h->model))
        return error_set(e, ERROR_FORMAT, "%s is damaged: its head", b->path);
    return ERROR_OK;
}

enum error_code baseline_open(struct baseline *b, const char *path, struct error *e)
{
    *b = (struct baseline){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (b->fd < 0)
        return error_set(e, ERROR_IO, "cannot open %s: %s", path, strerror(errno));
    enum error_code code = take_part(b, &b->head, sizeof b->head, e);
    if (!code)
        code = check_head(b, e);
    if (code)
        baseline_abandon(b);
    return code;
}

/* ---- Windows ---- */

static bool are_scores(const struct baseline *b, const struct baseline_scores *s, size_t m)
{
    size_t n = m * b->head.top;
    for (size_t i = 0; i < m; i++)
        if (!(s->logprobs[i] <= 0) || !isfinite(s->logprobs[i]))
            return false;
    for (size_t i = 0; i < n; i++)
        if (s->top[i] >= b->head.vocab || !(s->top_logprobs[i] <= 0))
            return false;
    return true;
}

/* The window's tokens: written, or compared. */
static enum error_code take_tokens(struct baseline *b, const uint32_t *ids, size_t n, size_t first,
                                   struct error *e)
{
    uint32_t numbers[2] = {(uint32_t)n, (uint32_t)first}, block[256];
    enum error_code code = take_part(b, numbers, sizeof numbers, e);
    bool same = numbers[0] == n && numbers[1] == first;
    for (size_t at = 0; at < n && same && !code;) {
        size_t some = n - at < 256 ? n - at : 256;
        memcpy(block, ids + at, some * sizeof *ids);
        code = take_part(b, block, some * sizeof *ids, e);
        same = memcmp(block, ids + at, some * sizeof *ids) == 0;
        at += some;
    }
    if (!code && !same)
        return error_set(e, ERROR_USAGE,
                         "%s is of other tokens: the same text, tokenizer and options are needed",
                         b->path);
    return code;
}

enum error_code baseline_window(struct baseline *b, const uint32_t *ids, size_t n, size_t first,
                                struct baseline_scores *s, struct error *e)
{
    size_t m = n - first, tops = m * b->head.top;
    enum error_code code = take_tokens(b, ids, n, first, e);
    if (!code)
        code = take_part(b, s->logprobs, m * sizeof *s->logprobs, e);
    if (!code)
        code = take_part(b, s->top, tops * sizeof *s->top, e);
    if (!code)
        code = take_part(b, s->top_logprobs, tops * sizeof *s->top_logprobs, e);
    if (!code && !b->writer && !are_scores(b, s, m))
        return error_set(e, ERROR_FORMAT, "%s is damaged: its log-probabilities", b->path);
    return code;
}

/* ---- The end ---- */

static enum error_code check_end(struct baseline *b, struct error *e)
{
    uint64_t expected = b->checksum, found;
    char more;
    enum error_code code = read_part(b, &found, sizeof found, e);
    if (!code && (found != expected || read(b->fd, &more, 1) != 0))
        code = error_set(e, ERROR_FORMAT, "%s is damaged: its checksum", b->path);
    return code;
}

enum error_code baseline_finish(struct baseline *b, struct error *e)
{
    enum error_code code;
    if (b->writer) {
        uint64_t checksum = b->checksum;
        code = file_writer_write(b->writer, &checksum, sizeof checksum, e);
        if (!code) {
            code = file_writer_finish(b->writer, e);
            b->writer = NULL;
        }
    } else {
        code = check_end(b, e);
    }
    baseline_abandon(b);
    return code;
}

void baseline_abandon(struct baseline *b)
{
    if (b->path && b->fd >= 0)
        close(b->fd);
    file_writer_abandon(b->writer);
    *b = (struct baseline){.head = b->head, .fd = -1};
}
