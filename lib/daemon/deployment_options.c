/* The table of a deployment's options; see deployment_options.h. */
#include "daemon/deployment_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct deployment_option deployment_options_table[DEPLOYMENT_OPTIONS_COUNT] = {
#define X(member, type, flag, min, max, value, takers, taker_flag)                                 \
    {flag,                                                                                         \
     OPTION_##type,                                                                                \
     offsetof(struct deployment_options, member),                                                  \
     min,                                                                                          \
     max,                                                                                          \
     value,                                                                                        \
     takers,                                                                                       \
     taker_flag ? taker_flag : flag},
    DEPLOYMENT_OPTIONS(X)
#undef X
};

const struct deployment_option *deployment_options_find(const char *name)
{
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT; i++)
        if (strcmp(deployment_options_table[i].flag + 2, name) == 0)
            return &deployment_options_table[i];
    return NULL;
}

void deployment_options_init(struct deployment_options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT; i++)
        if (deployment_options_table[i].type == OPTION_FLOAT)
            *(double *)((char *)o + deployment_options_table[i].offset) = NAN;
}

const char *deployment_options_text(const struct deployment_option *option,
                                    const struct deployment_options *o, char number[24])
{
    const void *value = (const char *)o + option->offset;
    switch (option->type) {
    case OPTION_STRING:
        return *(const char *const *)value;
    case OPTION_UINT:
        snprintf(number, 24, "%" PRIu64, *(const uint64_t *)value);
        return *(const uint64_t *)value ? number : NULL;
    case OPTION_FLOAT:
        snprintf(number, 24, "%.15g", *(const double *)value);
        return isnan(*(const double *)value) ? NULL : number;
    case OPTION_BOOL:
        return *(const bool *)value ? "" : NULL;
    case OPTION_LIST:
    case OPTION_HEADING:
        break;
    }
    return NULL;
}

struct option_spec deployment_options_spec(const char *name, struct deployment_options *o,
                                           const char *help)
{
    const struct deployment_option *row = deployment_options_find(name);
    if (!row)
        abort();
    return (struct option_spec){row->flag + 2, row->type, (char *)o + row->offset,
                                row->min,      row->max,  row->value_name,
                                help};
}
