/* NVIDIA GPUs by the kernel's files; see nvidia_gpu.h. */
#include "device/nvidia_gpu.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VENDOR_NVIDIA 0x10deul
#define CLASS_DISPLAY 0x03ul /* the first byte of three: VGA, 3D and other display controllers */

static bool exists(const char *root, const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, file);
    return access(path, F_OK) == 0;
}

/* A number of a PCI device's folder in sysfs, as "0x10de"; 0: there is none. */
static unsigned long attribute(const char *root, const char *device, const char *name)
{
    char path[PATH_MAX], text[32] = "";
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, device, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (!fgets(text, sizeof text, f))
        text[0] = '\0';
    fclose(f);
    return strtoul(text, NULL, 16);
}

/* A GPU is on the bus. Sound and USB of a graphics card are devices of the vendor too. */
static bool is_on_bus(const char *root)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *devices = opendir(path);
    struct dirent *entry;
    bool found = false;
    while (devices && !found && (entry = readdir(devices)))
        found = attribute(root, entry->d_name, "vendor") == VENDOR_NVIDIA &&
                attribute(root, entry->d_name, "class") >> 16 == CLASS_DISPLAY;
    if (devices)
        closedir(devices);
    return found;
}

bool nvidia_gpu_has_driver(const char *root)
{
    return exists(root, "proc/driver/nvidia/version") || exists(root, "dev/nvidiactl");
}

bool nvidia_gpu_exists(const char *root)
{
    return nvidia_gpu_has_driver(root) || is_on_bus(root);
}
