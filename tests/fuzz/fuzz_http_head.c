/* Fuzz target of what moed-http reads of a request before its body: header fields, one a line as
 * "NAME: VALUE", and the checks of framing, Host and Origin on them. */
#include "client/http/server/framing.h"
#include "client/http/server/origin.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* An origin of http or https that is not in the list is one of this machine. */
static void check_origin(const char *origin)
{
    const char *host = strstr(origin, "://") + 3;
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (strcasecmp(origin, "https://three.example") == 0 || strncasecmp(origin, "http", 4) != 0)
        return;
    require(strpbrk(host, "/?#@") == NULL);
    require((n == 5 && memcmp(host, "[::1]", n) == 0) ||
            (n == 9 && memcmp(host, "127.0.0.1", n) == 0) ||
            (n >= 9 && strncasecmp(host + n - 9, "localhost", 9) == 0 &&
             (n == 9 || host[n - 10] == '.')));
}

/* The Host is one that the server may have: no domain but those in its list. */
static void check_names(const char *host, const char *origin)
{
    bool other = false;
    if (host && origin_host_allowed(host, "one.example,two.example"))
        require(strspn(host, "0123456789abcdefABCDEF.:[]%") > 0 || strstr(host, "local") ||
                strstr(host, "LOCAL") || strcasestr(host, "localhost") ||
                strcasestr(host, "one.example") || strcasestr(host, "two.example"));
    if (origin && host && origin_allowed(origin, host, "https://three.example", &other) && other)
        check_origin(origin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *rest = text, *host = NULL, *origin = NULL;
    struct framing f = {0};
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *version = strsep(&rest, "\n");
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        value += strspn(value, " \t");
        framing_field(&f, line, value);
        if (strcasecmp(line, "host") == 0)
            host = value;
        if (strcasecmp(line, "origin") == 0)
            origin = value;
    }
    const char *fault = framing_end(&f, version, NULL);
    if (!fault) /* one length at most, and one host */
        require(!(f.has_length && f.chunked) && f.hosts <= 1);
    check_names(host, origin);
    free(text);
    return 0;
}
