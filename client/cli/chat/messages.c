/* Messages of a conversation; see messages.h. */
#include "client/cli/chat/messages.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TEXT_BYTES = 4 << 20 };

static const char *role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

static bool is_role(const json_t *messages, size_t i, const char *role)
{
    return strcmp(role_of(json_array_get(messages, i)), role) == 0;
}

/* ---- Files ---- */

static enum error_code expand(const char *path, char out[PATH_MAX], struct error *e)
{
    const char *home = getenv("HOME");
    bool in_home = strncmp(path, "~/", 2) == 0 && home;
    int n = snprintf(out, PATH_MAX, "%s%s", in_home ? home : "", in_home ? path + 1 : path);
    return n < PATH_MAX ? ERROR_OK : error_set(e, ERROR_USAGE, "%.60s...: too long a path", path);
}

static enum error_code check_list(const json_t *list, const char *path, struct error *e)
{
    size_t i;
    json_t *message;
    if (!json_is_array(list))
        return error_set(e, ERROR_FORMAT, "%s has no list of messages", path);
    json_array_foreach(list, i, message) if (!*role_of(message)) return error_set(
        e, ERROR_FORMAT, "%s: message %zu has no role", path, i + 1);
    return ERROR_OK;
}

enum error_code messages_load(const char *path, json_t **out, struct error *e)
{
    char file[PATH_MAX];
    struct strbuf text;
    json_error_t why;
    strbuf_init(&text);
    enum error_code code = expand(path, file, e);
    if (!code)
        code = messages_read_text(path, &text, e);
    json_t *root = code ? NULL : json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!code && !root)
        code = error_set(e, ERROR_FORMAT, "%s, line %d: %s", file, why.line, why.text);
    if (!code) {
        json_t *list = json_is_array(root) ? root : json_object_get(root, "messages");
        code = check_list(list, file, e);
        if (!code)
            *out = json_incref(list);
    }
    json_decref(root);
    strbuf_fini(&text);
    return code;
}

/* A file that exists is replaced only if it is a conversation. */
static enum error_code check_replaceable(const char *file, struct error *e)
{
    json_t *old;
    if (access(file, F_OK) != 0)
        return ERROR_OK;
    if (messages_load(file, &old, NULL))
        return error_set(e, ERROR_EXISTS, "%s exists and holds no messages: choose another name",
                         file);
    json_decref(old);
    return ERROR_OK;
}

static bool write_all(const json_t *messages, const char *file)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* as the history */
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = json_dumpf(messages, f, JSON_INDENT(2)) == 0 && fputc('\n', f) != EOF;
    return fclose(f) == 0 && ok;
}

enum error_code messages_save(const json_t *messages, const char *path, struct error *e)
{
    char file[PATH_MAX], fresh[PATH_MAX + 32];
    enum error_code code = expand(path, file, e);
    if (!code)
        code = check_replaceable(file, e);
    if (code)
        return code;
    snprintf(fresh, sizeof fresh, "%s.%d.new", file, (int)getpid());
    if (write_all(messages, fresh) && rename(fresh, file) == 0)
        return ERROR_OK;
    int why = errno;
    if (why != EEXIST)
        unlink(fresh);
    return error_set(e, ERROR_IO, "cannot write %s: %s", file, strerror(why));
}

static bool is_utf8(const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = text[i] ? utf8_valid_length(text + i, len - i) : 0;
        if (!n)
            return false;
    }
    return true;
}

enum error_code messages_read_text(const char *path, struct strbuf *out, struct error *e)
{
    char file[PATH_MAX], block[1 << 14];
    size_t start = out->len;
    struct stat st;
    enum error_code code = expand(path, file, e);
    if (code)
        return code;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0)
        return error_set(e, ERROR_NOT_FOUND, "cannot read %s: %m", file);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return error_set(e, ERROR_USAGE, "cannot read %s: it is no file", file);
    }
    ssize_t n = 1;
    while (out->len - start <= MAX_TEXT_BYTES && (n = read(fd, block, sizeof block)) > 0)
        strbuf_append(out, block, (size_t)n);
    close(fd);
    if (n < 0)
        code = error_set(e, ERROR_IO, "cannot read %s: %m", file);
    else if (out->failed)
        code = error_set(e, ERROR_MEMORY, "no memory for %s", file);
    else if (out->len - start > MAX_TEXT_BYTES)
        code = error_set(e, ERROR_LIMIT, "%s is larger than 4 MiB", file);
    else if (!is_utf8(out->data + start, out->len - start))
        code = error_set(e, ERROR_FORMAT, "%s is no text in UTF-8", file);
    if (code && out->data) {
        out->len = start;
        out->data[start] = '\0';
    }
    return code;
}

/* ---- The list ---- */

const char *messages_system(const json_t *messages)
{
    return is_role(messages, 0, "system")
               ? json_string_value(json_object_get(json_array_get(messages, 0), "content"))
               : NULL;
}

bool messages_set_system(json_t *messages, const char *text)
{
    json_t *first = json_pack("{s:s, s:s}", "role", "system", "content", text);
    if (!first)
        return false;
    if (is_role(messages, 0, "system"))
        json_array_remove(messages, 0);
    if (*text)
        return json_array_insert_new(messages, 0, first) == 0;
    json_decref(first);
    return true;
}

bool messages_add(json_t *messages, const char *role, const char *text, size_t len)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", len ? text : "", len);
    return message && json_array_append_new(messages, message) == 0;
}

void messages_drop_last(json_t *messages)
{
    if (json_array_size(messages))
        json_array_remove(messages, json_array_size(messages) - 1);
}

void messages_clear(json_t *messages)
{
    size_t kept = is_role(messages, 0, "system") ? 1 : 0;
    while (json_array_size(messages) > kept)
        messages_drop_last(messages);
}

bool messages_drop_answer(json_t *messages)
{
    if (!messages_questions(messages))
        return false;
    while (!is_role(messages, json_array_size(messages) - 1, "user"))
        messages_drop_last(messages);
    return true;
}

size_t messages_drop_last_turn(json_t *messages)
{
    if (!messages_drop_answer(messages))
        return 0;
    messages_drop_last(messages);
    return 1;
}

size_t messages_drop_oldest_turns(json_t *messages, size_t n)
{
    size_t first = is_role(messages, 0, "system") ? 1 : 0, dropped = 0;
    for (; dropped < n && messages_questions(messages); dropped++) {
        while (!is_role(messages, first, "user"))
            json_array_remove(messages, first);
        do
            json_array_remove(messages, first);
        while (first < json_array_size(messages) && !is_role(messages, first, "user"));
    }
    return dropped;
}

size_t messages_questions(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        n += is_role(messages, i, "user");
    return n;
}
