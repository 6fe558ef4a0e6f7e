/* File types; see file_type.h. */
#include "gguf/file_type.h"

#include <stddef.h>

/* By llama.cpp's numbers; those left out were never released, or are gone. */
static const char *const names[] = {
    [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
    [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
    [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
    [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
    [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
    [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
    [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",
};

uint32_t gguf_file_type(const struct gguf *g)
{
    uint32_t type = FILE_TYPE_NONE;
    struct error e;
    return gguf_get_u32(g, "general.file_type", &type, &e) ? FILE_TYPE_NONE : type;
}

const char *gguf_quantization(const struct gguf *g, uint32_t file_type)
{
    enum { TYPES = 64 };
    uint64_t bytes[TYPES] = {0}, most = 0;
    const char *name = "";
    if (file_type < sizeof names / sizeof *names && names[file_type])
        return names[file_type];
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const struct tensor_type_info *info = tensor_type_info(t->type);
        if (!info || (unsigned)t->type >= TYPES)
            continue;
        bytes[t->type] += t->bytes;
        if (bytes[t->type] > most) {
            most = bytes[t->type];
            name = info->name;
        }
    }
    return name;
}
