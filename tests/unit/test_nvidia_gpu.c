/* lib/device/nvidia_gpu.h with made-up trees of files, as the kernel has them. */
#include "device/nvidia_gpu.h"

#include "file_tree.h"

#define PCI "sys/bus/pci/devices/"

static void other_devices(void **state)
{
    assert_false(nvidia_gpu_exists(root));
    put(PCI "0000:00:02.0/vendor", "0x8086"); /* another vendor's GPU */
    put(PCI "0000:00:02.0/class", "0x030000");
    put(PCI "0000:01:00.1/vendor", "0x10de"); /* a graphics card's sound */
    put(PCI "0000:01:00.1/class", "0x040300");
    put(PCI "0000:02:00.0/vendor", "0x10de"); /* a file is missing */
    assert_false(nvidia_gpu_exists(root));
    assert_false(nvidia_gpu_has_driver(root));
}

static void without_driver(void **state)
{
    put(PCI "0000:01:00.1/vendor", "0x10de");
    put(PCI "0000:01:00.1/class", "0x040300");
    put(PCI "0000:65:00.0/vendor", "0x10de");
    put(PCI "0000:65:00.0/class", "0x030200"); /* without an output for a screen */
    assert_true(nvidia_gpu_exists(root));
    assert_false(nvidia_gpu_has_driver(root));
}

/* The bus is hidden in some containers and virtual machines. */
static void with_driver(void **state)
{
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54");
    assert_true(nvidia_gpu_exists(root));
    assert_true(nvidia_gpu_has_driver(root));
}

static void with_device_file(void **state)
{
    put("dev/nvidiactl", "");
    assert_true(nvidia_gpu_exists(root));
    assert_true(nvidia_gpu_has_driver(root));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(other_devices, make_root, remove_root),
        cmocka_unit_test_setup_teardown(without_driver, make_root, remove_root),
        cmocka_unit_test_setup_teardown(with_driver, make_root, remove_root),
        cmocka_unit_test_setup_teardown(with_device_file, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
