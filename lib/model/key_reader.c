/* Reading a model's keys; see key_reader.h. */
#include "model/key_reader.h"

#include <inttypes.h>
#include <stdio.h>

void key_name(const struct key_reader *r, const char *suffix, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s.%s", r->arch, suffix);
}

bool key_exists(const struct key_reader *r, const char *suffix)
{
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    return gguf_find(r->g, key) != NULL;
}

uint32_t key_check(struct key_reader *r, const char *suffix, uint32_t value, uint32_t max)
{
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    if (!r->failed && (value == 0 || value > max))
        r->failed =
            error_set(r->e, ERROR_FORMAT, "%s: key '%s' is %" PRIu32 ": expected 1 to %" PRIu32,
                      gguf_path(r->g, 0), key, value, max);
    return value;
}

uint32_t key_u32(struct key_reader *r, const char *suffix, uint32_t max)
{
    char key[KEY_BYTES];
    uint32_t value = 0;
    key_name(r, suffix, key);
    if (!r->failed)
        r->failed = gguf_get_u32(r->g, key, &value, r->e);
    return key_check(r, suffix, value, max);
}

uint32_t key_u32_or(struct key_reader *r, const char *suffix, uint32_t absent, uint32_t max)
{
    return key_exists(r, suffix) ? key_u32(r, suffix, max) : key_check(r, suffix, absent, max);
}

float key_f32_or(struct key_reader *r, const char *suffix, float absent, float min, float max)
{
    char key[KEY_BYTES];
    float value = absent;
    key_name(r, suffix, key);
    if (!r->failed)
        r->failed = gguf_get_f32_or(r->g, key, absent, &value, r->e);
    if (!r->failed && !(value >= min && value <= max))
        r->failed = error_set(r->e, ERROR_FORMAT, "%s: key '%s' is %g: expected %g to %g",
                              gguf_path(r->g, 0), key, (double)value, (double)min, (double)max);
    return value;
}

bool key_bool_or(struct key_reader *r, const char *suffix, bool absent)
{
    char key[KEY_BYTES];
    bool value = absent;
    key_name(r, suffix, key);
    if (!r->failed)
        r->failed = gguf_get_bool_or(r->g, key, absent, &value, r->e);
    return value;
}
