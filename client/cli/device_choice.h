/* The device of `moed up`: a GPU by default, --vram and --reserve; what fits on a device. */
#ifndef MOED_CLI_DEVICE_CHOICE_H
#define MOED_CLI_DEVICE_CHOICE_H

#include "client/cli/launch.h"
#include "device/device_plan.h"

/* Parts of the device that have options of their own, as text; NULL: not given. */
struct device_parts {
    const char *vram, *reserve;
};

/* Completes l->device. NULL or "": becomes the CUDA device that has memory for most of the model's
 * experts, and says so in a line on standard error; without one, or where none has space for the
 * model, it becomes NULL, which is the host. If the machine has an NVIDIA GPU, a line says why: no
 * module, no driver, no space. `parts` that are given become parts of the device. The caller has
 * set all other members of l. It forks: call it before this process has threads. Returns an exit
 * code; where it is not CLI_OK, it has complained. */
int device_choice_make(struct launch *l, const struct device_parts *parts);

/* CUDA devices with these parts. False: it has complained of one. */
bool device_choice_read(const struct device_parts *parts, struct device_spec *out);

#define DEVICES_MOST 64 /* that are looked at */

/* What of a model fits on an open device now, with the options of `moed up` in l except the
 * device. spec: as --device would have it; dense_on_host where the dense part must stay on the
 * host. Errors as device_plan_look. */
enum error_code device_choice_fit(const struct device_module *module,
                                  const struct device_facts *facts, const struct pool_map *map,
                                  const struct launch *l, struct device_spec *spec,
                                  struct device_plan *out, struct error *e);

#endif
