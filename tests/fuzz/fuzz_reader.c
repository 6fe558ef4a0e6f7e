/* Fuzz target of what memd takes from the process that reads a model file: any bytes as its message
 * about a small model (reader/model_reader.h). A plan that comes of it reads only the file's
 * tensors and writes only the pool. */
#include "reader/model_reader.h"
#include "unit/plan_bounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char model[] = MOED_SOURCE_DIR "/tests/golden/olmoe.gguf";

/* The message's tables are of 50 KB, mostly zeros; the input is what differs from the true one:
 * pieces of offset (2 bytes, of 64 KiB), length (1 byte), bytes. */
static void change(uint8_t *message, size_t bytes, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        size_t at = (size_t)data[0] | (size_t)data[1] << 8, n = data[2];
        data += 3;
        size -= 3;
        n = n < size ? n : size;
        for (size_t i = 0; i < n && at + i < bytes; i++)
            message[at + i] = data[i];
        data += n;
        size -= n;
    }
}

static uint8_t *true_message(size_t *bytes)
{
    struct gguf *g;
    struct error e;
    FILE *f = tmpfile();
    if (!f || gguf_open_unparsed(model, &g, &e) || gguf_map_unparsed(g, &e))
        abort();
    model_reader_run(g, 1024, fileno(f));
    gguf_close(g);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    uint8_t *message = malloc(*bytes);
    rewind(f);
    if (!message || fread(message, 1, *bytes, f) != *bytes)
        abort();
    fclose(f);
    return message;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *message, *changed;
    static size_t bytes;
    struct gguf *g;
    struct read_model m;
    struct error e = {0};
    if (!message) {
        message = true_message(&bytes);
        changed = malloc(bytes);
        if (!changed)
            abort();
    }
    memcpy(changed, message, bytes);
    change(changed, bytes, data, size);
    if (gguf_open_unparsed(model, &g, &e))
        abort();
    enum error_code code = model_reader_take(g, changed, bytes, 1024, &m, &e);
    if (code && (e.code != code || !e.text[0]))
        abort();
    if (code)
        return 0;
    if (!plan_in_bounds(m.gguf, &m.plan))
        abort();
    read_model_free(&m);
    return 0;
}
