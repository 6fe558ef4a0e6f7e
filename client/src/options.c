/* libmoed: structs with a size; see options.h. */
#include "client/src/options.h"

#include "client/src/error.h"

#include <string.h>

/* More than any version will have: a size above it was never set. */
#define OPTIONS_BYTES_MAX 65536

static enum moed_code check_size(size_t size, size_t first, const char *name,
                                 struct moed_error *error)
{
    if (size >= first && size <= OPTIONS_BYTES_MAX)
        return MOED_OK;
    return error_report(error, MOED_ERROR_USAGE, false,
                        "the field `size` of a %s is %zu: set it to sizeof(%s)", name, size, name);
}

enum moed_code options_copy(const void *from, void *out, size_t known, size_t first,
                            const char *name, struct moed_error *error)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    enum moed_code code = check_size(size, first, name, error);
    if (code)
        return code;
    const unsigned char *bytes = from;
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return error_report(error, MOED_ERROR_VERSION, false,
                                "a %s has fields that libmoed of moed %s does not know: install a "
                                "newer one",
                                name, MOED_VERSION);
    memset(out, 0, known);
    memcpy(out, from, size < known ? size : known);
    return MOED_OK;
}

enum moed_code result_check(const struct moed_result *out, struct moed_error *error)
{
    size_t first = offsetof(struct moed_result, reasoning_tokens) + sizeof out->reasoning_tokens;
    return check_size(out->size, first, "struct moed_result", error);
}

void result_copy_out(const struct moed_result *from, struct moed_result *out)
{
    size_t size = out->size;
    memset(out, 0, size);
    memcpy(out, from, size < sizeof *from ? size : sizeof *from);
    out->size = size;
}
