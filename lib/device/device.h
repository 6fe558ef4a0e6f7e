/* The accelerator of a deployment, chosen by --device:
 *
 *   host    none: device memory is the host pool itself, nothing is copied, routed experts are computed by
 *           the CPU executor and the dense part by the worker's own threads.
 *
 * A name that this build does not have is refused with the list of those it has.
 */
#ifndef MOED_DEVICE_DEVICE_H
#define MOED_DEVICE_DEVICE_H

#include "base/error.h"

enum device_kind { DEVICE_HOST };

struct device_spec {
    enum device_kind kind;
};

/* "host". ERROR_UNSUPPORTED for one that this build does not have, naming those it has. */
enum error_code device_parse(const char *text, struct device_spec *out, struct error *e);

#endif
