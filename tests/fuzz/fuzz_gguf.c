/* Fuzz target of the GGUF parser: any bytes as a file and as metadata in memory. If they open, the
 * target reads them to the last string. Runs with libFuzzer, or with replay.c as a regression test
 * over the corpus. */
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keeps the compiler from dropping the reads. */
static volatile uint64_t sink;

static void walk_key(const struct gguf *g, const struct gguf_kv *kv)
{
    char key[256];
    uint64_t cursor = 0, sum = 0;
    struct gguf_string s;
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    struct error e;
    for (uint64_t i = 0; i < kv->bytes; i++)
        sum += kv->data[i];
    while (gguf_next_string(kv, &cursor, &s))
        sum += s.len ? (uint8_t)s.data[0] + (uint8_t)s.data[s.len - 1] : 0;
    if (kv->key.len < sizeof key) {
        memcpy(key, kv->key.data, kv->key.len);
        key[kv->key.len] = 0;
        if (gguf_find(g, key) != kv)
            abort();
        sum += (uint64_t)gguf_get_u32(g, key, &u, &e) + u;
        sum += (uint64_t)gguf_get_f32(g, key, &f, &e) + (f > 1);
        sum += (uint64_t)gguf_get_bool(g, key, &b, &e) + b;
        if (gguf_get_string(g, key, &s, &e) == ERROR_OK && s.len)
            sum += (uint8_t)s.data[s.len - 1];
    }
    sink += sum;
}

static void walk(const struct gguf *g)
{
    for (uint64_t i = 0; i < gguf_kv_count(g); i++)
        walk_key(g, gguf_kv_at(g, i));
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const uint8_t *data = gguf_tensor_data(g, t);
        if (gguf_tensor_find(g, t->name) != t)
            abort();
        if (data) /* both ends of the extent, which lies in the file */
            sink += (uint64_t)data[0] + data[t->bytes - 1];
    }
}

/* Checks an error's text, or reads and closes what opened. */
static void judge(enum error_code code, struct gguf *g, const struct error *e)
{
    if (code == ERROR_OK) {
        walk(g);
        gguf_close(g);
    } else if (e->code != code || e->text[0] == 0 || strchr(e->text, '\n')) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct error e = {0};
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum error_code code = gguf_open(path, &g, &e);
    judge(code, g, &e);
    close(fd);
    g = NULL;
    e = (struct error){0};
    code = gguf_open_metadata(data, size, "memory", &g, &e);
    judge(code, g, &e);
    return 0;
}
