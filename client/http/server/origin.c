/* Host and Origin; see origin.h. */
#include "client/http/server/origin.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Finds text[0..len) in a list separated by commas. */
static bool in_list(const char *list, const char *text, size_t len)
{
    while (list && *list) {
        list += strspn(list, ", ");
        size_t n = strcspn(list, ", ");
        if (n == len && n && strncasecmp(list, text, n) == 0)
            return true;
        list += n;
    }
    return false;
}

/* The host without its port. */
static bool split_host(const char *host, const char **name, size_t *len)
{
    bool bracket = *host == '[';
    *name = host + bracket;
    *len = strcspn(*name, bracket ? "]" : ":");
    const char *rest = *name + *len;
    if (bracket && *rest++ != ']')
        return false;
    return *len && (!*rest || (*rest == ':' && rest[1 + strspn(rest + 1, "0123456789")] == '\0'));
}

static bool is_address(const char *name, size_t len)
{
    char text[64];
    unsigned char address[sizeof(struct in6_addr)];
    if (len >= sizeof text)
        return false;
    memcpy(text, name, len);
    text[len] = '\0';
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

bool origin_host_allowed(const char *host, const char *names)
{
    const char *name;
    size_t len;
    if (!split_host(host, &name, &len))
        return false;
    return in_list("localhost", name, len) || is_address(name, len) || in_list(names, name, len);
}

bool origin_allowed(const char *origin, const char *host, const char *allowed, bool *listed)
{
    *listed = allowed && (strcmp(allowed, "*") == 0 || in_list(allowed, origin, strlen(origin)));
    if (*listed)
        return true;
    const char *scheme_end = strstr(origin, "://");
    return scheme_end && host && strcasecmp(scheme_end + 3, host) == 0;
}
