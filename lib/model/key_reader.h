/* Reads a model's keys, which begin with its architecture's name, and checks their ranges. After
 * the first error later reads do nothing, so a caller checks `failed` once. */
#ifndef MOED_MODEL_KEY_READER_H
#define MOED_MODEL_KEY_READER_H

#include "base/error.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stdint.h>

enum { KEY_BYTES = 96 };

struct key_reader {
    const struct gguf *g;
    const char *arch;
    struct error *e;
    enum error_code failed;
};

/* "ARCH.suffix". */
void key_name(const struct key_reader *r, const char *suffix, char out[KEY_BYTES]);
bool key_exists(const struct key_reader *r, const char *suffix);
/* Returns value. Sets ERROR_FORMAT with the key in r if value is 0 or above max. */
uint32_t key_check(struct key_reader *r, const char *suffix, uint32_t value, uint32_t max);
/* A required number from 1 to max. */
uint32_t key_u32(struct key_reader *r, const char *suffix, uint32_t max);
/* The same, with `absent` where the file lacks the key. Checks `absent` too. */
uint32_t key_u32_or(struct key_reader *r, const char *suffix, uint32_t absent, uint32_t max);
float key_f32_or(struct key_reader *r, const char *suffix, float absent, float min, float max);
bool key_bool_or(struct key_reader *r, const char *suffix, bool absent);

#endif
