/* Another program that uses a GPU: takes all of device 0's free memory but LEAVE bytes ("2Mi"),
 * prints how many it has, and keeps them until its standard input ends.
 *   take-device-memory LEAVE */
#include "base/quantity.h"
#include "device/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const struct error *e)
{
    fprintf(stderr, "take-device-memory: %s\n", e->text);
    exit(1);
}

int main(int argc, char **argv)
{
    const struct device_module *module;
    struct device *device;
    struct device_facts facts;
    struct error e;
    void *memory = NULL;
    char c;
    uint64_t leave;
    if (argc != 2 || !quantity_parse_size(argv[1], strlen(argv[1]), &leave))
        return 2;
    if (device_module_load("cuda", &module, &e) || module->open(0, DEVICE_COPIES, &device, &e))
        fail(&e);
    module->facts(device, &facts);
    uint64_t take = facts.free_bytes > leave ? (facts.free_bytes - leave) >> 12 << 12 : 0;
    if (take && module->allocate(device, take, &memory, &e))
        fail(&e);
    printf("%llu\n", (unsigned long long)take);
    fflush(stdout);
    while (read(0, &c, 1) > 0)
        continue;
    module->release(device, memory);
    module->close(device);
    return 0;
}
