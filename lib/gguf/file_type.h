/* What a model file says of its quantisation as a whole: llama.cpp's names of mixtures of types. */
#ifndef MOED_GGUF_FILE_TYPE_H
#define MOED_GGUF_FILE_TYPE_H

#include "gguf/gguf.h"

#define FILE_TYPE_NONE UINT32_MAX

/* The key general.file_type; FILE_TYPE_NONE: the file has none. */
uint32_t gguf_file_type(const struct gguf *g);
/* The mixture's name ("Q4_K_M"). Where file_type has none: the tensor type with the most bytes; ""
 * where g has no tensors. */
const char *gguf_quantization(const struct gguf *g, uint32_t file_type);

#endif
