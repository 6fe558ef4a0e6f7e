/* Rounds the routers of a model file to half precision, in place: a file like another quantisation
 * of the same model.
 *   round-routers MODEL */
#include "gguf/gguf.h"
#include "quant/quant.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int round_tensor(int fd, const struct gguf_tensor *t)
{
    float *values = malloc(t->bytes);
    if (!values || pread(fd, values, t->bytes, (off_t)t->offset) != (ssize_t)t->bytes)
        return 1;
    for (uint64_t i = 0; i < t->bytes / sizeof *values; i++)
        values[i] = half_to_float(float_to_half(values[i]));
    int failed = pwrite(fd, values, t->bytes, (off_t)t->offset) != (ssize_t)t->bytes;
    free(values);
    return failed;
}

int main(int argc, char **argv)
{
    struct gguf *g;
    struct error e;
    if (argc != 2 || gguf_open(argv[1], &g, &e))
        return 1;
    int fd = open(argv[1], O_RDWR | O_CLOEXEC), failed = fd < 0;
    unsigned n = 0;
    for (uint64_t i = 0; !failed && i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!strstr(t->name, "ffn_gate_inp.weight") || t->type != TENSOR_F32)
            continue;
        failed = round_tensor(fd, t);
        n++;
    }
    printf("%u routers\n", n);
    gguf_close(g);
    return failed || n == 0;
}
