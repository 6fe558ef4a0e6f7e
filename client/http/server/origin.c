/* Host and Origin; see origin.h. */
#include "client/http/server/origin.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LOG_INTERVAL_NS 60000000000u

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

static bool begins(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

/* A page that this machine serves. Apps have such origins too (http://tauri.localhost). */
static bool is_loopback(const char *origin)
{
    static const char below[] = ".localhost";
    const char *host = begins(origin, "http://")    ? origin + strlen("http://")
                       : begins(origin, "https://") ? origin + strlen("https://")
                                                    : NULL;
    const char *name;
    size_t len, n = strlen(below);
    if (!host || !split_host(host, &name, &len) || strcspn(name, "/?#@") < len)
        return false;
    if (*host == '[')
        return in_list("::1", name, len);
    return in_list("localhost,127.0.0.1", name, len) ||
           (len > n && strncasecmp(name + len - n, below, n) == 0);
}

/* A desktop app or a browser's extension: a browser gives these schemes to no page of the web. */
static bool is_app(const char *origin)
{
    static const char *const schemes[] = {"app://",
                                          "file://",
                                          "tauri://",
                                          "capacitor://",
                                          "vscode-webview://",
                                          "vscode-file://",
                                          "chrome-extension://",
                                          "moz-extension://",
                                          "safari-web-extension://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (begins(origin, schemes[i]))
            return true;
    return false;
}

bool origin_allowed(const char *origin, const char *host, const char *allowed, bool *other)
{
    *other = (allowed && (strcmp(allowed, "*") == 0 || in_list(allowed, origin, strlen(origin)))) ||
             is_loopback(origin) || is_app(origin);
    if (*other)
        return true;
    const char *scheme_end = strstr(origin, "://");
    return scheme_end && host && strcasecmp(scheme_end + 3, host) == 0;
}

bool origin_log_takes(struct origin_log *log, const char *origin, uint64_t now_ns)
{
    char text[sizeof log->last] = "";
    for (size_t i = 0; origin[i] && i + 1 < sizeof text; i++)
        text[i] = origin[i];
    for (char *c = text; *c; c++)
        if (*c < '!' || *c > '~' || *c == '\'')
            *c = '?'; /* none of these is part of an origin */
    if (now_ns < log->next_ns || strcmp(text, log->last) == 0)
        return false;
    memcpy(log->last, text, sizeof text);
    log->next_ns = now_ns + LOG_INTERVAL_NS;
    return true;
}
