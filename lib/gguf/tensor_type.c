/* The table of tensor types; see tensor_type.h. */
#include "gguf/tensor_type.h"

#include <stddef.h>
#include <strings.h>

const struct tensor_type_info *tensor_type_info(uint32_t id)
{
    /* Indexed by id; an id that ggml retired or never gave out has no name. */
    static const struct tensor_type_info table[] = {
#define X(type, number, values, bytes, does) [number] = {#type, values, bytes, does},
        TENSOR_TYPE_LIST(X)
#undef X
    };
    if (id >= sizeof table / sizeof table[0] || !table[id].name)
        return NULL;
    return &table[id];
}

int tensor_type_from_name(const char *name)
{
    static const struct {
        const char *name;
        int id;
    } names[] = {
#define X(type, number, values, bytes, does) {#type, number},
        TENSOR_TYPE_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcasecmp(names[i].name, name) == 0)
            return names[i].id;
    return -1;
}
