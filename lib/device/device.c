/* Choosing the device; see device.h. */
#include "device/device.h"

#include <string.h>

enum error_code device_parse(const char *text, struct device_spec *out, struct error *e)
{
    if (strcmp(text, "host") != 0)
        return error_set(e, ERROR_UNSUPPORTED, "device '%.40s' is not in this build; there is: host",
                         text);
    out->kind = DEVICE_HOST;
    return ERROR_OK;
}
