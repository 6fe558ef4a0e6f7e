/* Texts of files; see text_file.h. */
#include "client/http/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST (64u << 20)
#define PIPE_MOST (1u << 20) /* its size is not known before */

/* Bytes read, which fill the buffer where there are more; -1: errno. */
static ssize_t read_up_to(int fd, char *buffer, size_t bytes)
{
    size_t filled = 0;
    while (filled < bytes) {
        ssize_t n = read(fd, buffer + filled, bytes - filled);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        filled += (size_t)n;
    }
    return (ssize_t)filled;
}

static enum error_code read_text(int fd, size_t most, char *text, struct error *e)
{
    ssize_t n = read_up_to(fd, text, most + 1);
    if (n < 0)
        return error_set(e, ERROR_IO, "%m");
    if (n == 0)
        return error_set(e, ERROR_FORMAT, "it is empty");
    if ((size_t)n > most)
        return error_set(e, ERROR_LIMIT, "it has more than %zu bytes", most);
    text[n] = '\0';
    return ERROR_OK;
}

static char *read_open(int fd, struct error *e)
{
    struct stat s;
    if (fd < 0 || fstat(fd, &s) != 0) {
        error_set(e, ERROR_IO, "%m");
        return NULL;
    }
    if (S_ISREG(s.st_mode) && s.st_size > FILE_MOST) {
        error_set(e, ERROR_LIMIT, "it has more than %u bytes", FILE_MOST);
        return NULL;
    }
    size_t most = S_ISREG(s.st_mode) && s.st_size ? (size_t)s.st_size : PIPE_MOST;
    char *text = malloc(most + 1);
    if (!text) {
        error_set(e, ERROR_MEMORY, "no memory for it");
    } else if (read_text(fd, most, text, e)) {
        explicit_bzero(text, most + 1);
        free(text);
        text = NULL;
    }
    return text;
}

char *text_file_read(const char *path, struct error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = read_open(fd, e);
    if (fd >= 0)
        close(fd);
    if (!text)
        error_prefix(e, "cannot read %.200s", path);
    return text;
}
