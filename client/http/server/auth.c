/* API keys; see auth.h. */
#include "client/http/server/auth.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES (AUTH_KEY_BYTES + AUTH_NAME_BYTES + 8)

static enum error_code add_key(struct auth *a, const char *name, const char *key, struct error *e)
{
    struct auth_key *k = &a->keys[a->count];
    if (a->count == AUTH_KEYS_MAX)
        return error_set(e, ERROR_FORMAT, "more than %d API keys", AUTH_KEYS_MAX);
    if (strlen(key) >= sizeof k->key || strlen(key) < 8)
        return error_set(e, ERROR_FORMAT, "an API key must have 8 to %zu characters",
                         sizeof k->key - 1);
    if (strlen(name) >= sizeof k->name)
        return error_set(e, ERROR_FORMAT, "the name of an API key has more than %zu characters",
                         sizeof k->name - 1);
    memcpy(k->key, key, strlen(key));
    memcpy(k->name, name, strlen(name));
    a->count++;
    return ERROR_OK;
}

static enum error_code take_line(struct auth *a, char *line, unsigned number, struct error *e)
{
    char *rest, *first = strtok_r(line, " \t\r\n", &rest);
    if (!first || *first == '#')
        return ERROR_OK;
    char *second = strtok_r(NULL, " \t\r\n", &rest), name[AUTH_NAME_BYTES];
    bool named = second && *second != '#';
    snprintf(name, sizeof name, "%s-%zu", a->kind, a->count + 1);
    if (add_key(a, named ? first : name, named ? second : first, e))
        return error_prefix(e, "line %u", number);
    return ERROR_OK;
}

static enum error_code check_mode(int fd, struct error *e)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return error_set(e, ERROR_IO, "%m");
    if (!S_ISREG(s.st_mode) || (s.st_mode & 077))
        return error_set(e, ERROR_USAGE,
                         "it must be a regular file that only its owner can read: chmod 600");
    return ERROR_OK;
}

static enum error_code read_lines(FILE *f, struct auth *a, struct error *e)
{
    char line[LINE_BYTES];
    enum error_code code = ERROR_OK;
    for (unsigned n = 1; !code && fgets(line, sizeof line, f); n++) {
        if (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n')
            code = error_set(e, ERROR_FORMAT, "line %u is too long", n);
        else
            code = take_line(a, line, n, e);
    }
    explicit_bzero(line, sizeof line);
    if (!code && ferror(f))
        code = error_set(e, ERROR_IO, "%m");
    if (!code && a->count == 0)
        code = error_set(e, ERROR_FORMAT, "it has no key");
    return code;
}

enum error_code auth_read(const char *path, const char *kind, struct auth *out, struct error *e)
{
    struct auth a = {calloc(AUTH_KEYS_MAX, sizeof *a.keys), 0, kind};
    if (!a.keys)
        return error_set(e, ERROR_MEMORY, "no memory for the API keys");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    enum error_code code = f ? check_mode(fd, e) : error_set(e, ERROR_IO, "%m");
    char buffer[4096]; /* not stdio's own: it stays in freed memory */
    if (!code)
        setvbuf(f, buffer, _IOFBF, sizeof buffer);
    if (!code)
        code = read_lines(f, &a, e);
    if (f)
        fclose(f);
    explicit_bzero(buffer, sizeof buffer);
    if (code) {
        auth_free(&a);
        return error_prefix(e, "cannot use the API keys in %.200s", path);
    }
    *out = a;
    return ERROR_OK;
}

void auth_free(struct auth *a)
{
    if (a->keys)
        explicit_bzero(a->keys, AUTH_KEYS_MAX * sizeof *a->keys);
    free(a->keys);
    *a = (struct auth){0};
}

bool auth_same(const struct auth *a, const struct auth *b)
{
    return a->count == b->count &&
           (!a->count || memcmp(a->keys, b->keys, a->count * sizeof *a->keys) == 0);
}

/* 0 where all bytes are the same. */
static unsigned difference(const char *a, const char *b, size_t n)
{
    unsigned d = 0;
    for (size_t i = 0; i < n; i++)
        d |= (unsigned char)(a[i] ^ b[i]);
    return d;
}

const char *auth_check(const struct auth *a, const char *authorization, const char *x_api_key)
{
    const char *given = x_api_key;
    if (authorization && strncasecmp(authorization, "bearer ", 7) == 0)
        given = authorization + 7 + strspn(authorization + 7, " ");
    char padded[AUTH_KEY_BYTES] = {0};
    if (!given || strlen(given) >= sizeof padded || !*given)
        return NULL;
    memcpy(padded, given, strlen(given));
    size_t found = a->count;
    for (size_t i = 0; i < a->count; i++) {
        size_t same = difference(padded, a->keys[i].key, sizeof padded) == 0;
        found = same * i + (1 - same) * found;
    }
    return found < a->count ? a->keys[found].name : NULL;
}
