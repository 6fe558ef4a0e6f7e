/* Opening and closing a device by the CUDA module (device/module.h): which devices are refused and
 * why, who may use the device, what is loaded, and the end of the context. Also runs on a GPU, if
 * MOED_CUDA_MODULE names its module; most needs cusim, whose device the environment describes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "other_process.h"

/* Prints the error of opening a device. */
static int report_open(void)
{
    struct device *d;
    struct error e;
    enum error_code code = device_module_load("cuda", &module, &e);
    if (!code)
        code = module->open(1, DEVICE_COMPUTES, &d, &e);
    printf("%s: %s\n", error_meaning(code), code ? e.text : "");
    if (!code)
        module->close(d);
    return 0;
}

static void test_open(void **state)
{
    static const struct {
        const char *name, *value, *expected_text;
    } cases[] = {
        {"MOED_CUSIM_CAPABILITY", "61",
         "not supported: device cuda: cusim has compute capability 6.1, moed needs 7.0 (built with "
         "CUDA 12) or 7.5 (CUDA 13): use --device host"},
        {"MOED_CUSIM_DEVICES", "1", "not found: device cuda:1: the driver finds 1, counted from 0"},
        {"MOED_CUSIM_DEVICES", "2", "success: "},
        {"MOED_CUSIM_DEVICES", "0", "not found: device cuda: the driver finds no device"},
        {"MOED_CUSIM_DRIVER", "11080",
         "not supported: device cuda: the NVIDIA driver supports CUDA up to 11.8"},
        {"MOED_CUSIM_DRIVER", "0", "not found: device cuda: no NVIDIA driver is installed"},
        {"MOED_CUSIM_FAIL", "cudaGetDeviceCount:1:cudaErrorUnknown",
         "cudaGetDeviceCount: unknown error"},
        {"MOED_CUSIM_COMPUTE_MODE", "2",
         "not supported: device cuda:1: cusim is in compute mode Prohibited"},
        {"MOED_CUSIM_FAIL", "cudaMemGetInfo:1:cudaErrorDevicesUnavailable",
         "compute mode Exclusive_Process): give --mps, or run nvidia-smi -c DEFAULT"},
        {"MOED_CUDA_MODULE", "/nowhere/libmoed-cuda.so",
         "not supported: device cuda: MOED_CUDA_MODULE names"},
        {"MOED_CUDA_MODULE", "/proc/self/exe", "not supported: "},
    };
    if (!is_simulated())
        skip();
    setenv("MOED_CUSIM_DEVICES", "2", 1); /* unless the case says another */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        struct other o = start("say-open", cases[i].name, cases[i].value);
        read_all(&o, text, sizeof text);
        assert_int_equal(end(&o), 0);
        if (!strstr(text, cases[i].expected_text) || strchr(text, '\n') != text + strlen(text) - 1)
            fail_msg("%s=%s: '%s'", cases[i].name, cases[i].value, text);
    }
    unsetenv("MOED_CUSIM_DEVICES");
}

/* Prints which processes may use the device. */
static int report_mode(void)
{
    struct device_facts facts;
    open_device();
    module->facts(device, &facts);
    printf("%s%s%s\n", facts.mode, facts.exclusive ? ", alone" : "",
           facts.display ? ", display" : "");
    close_device();
    return 0;
}

static void test_modes(void **state)
{
    static const struct {
        const char *name, *value, *expected;
    } cases[] = {{"MOED_CUSIM_COMPUTE_MODE", "0", "compute mode Default\n"},
                 {"MOED_CUSIM_COMPUTE_MODE", "3", "compute mode Exclusive_Process, alone\n"},
                 {"MOED_CUSIM_DISPLAY", "1", "compute mode Default, display\n"}};
    if (!is_simulated())
        skip();
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        struct other o = start("say-mode", cases[i].name, cases[i].value);
        read_all(&o, text, sizeof text);
        assert_int_equal(end(&o), 0);
        assert_string_equal(text, cases[i].expected);
    }
    /* MPS shares the device: by the driver's word, or by its daemon's file */
    char folder[] = "/tmp/moed-mps-XXXXXX", path[64], text[2][100];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/control", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    setenv("MOED_CUSIM_COMPUTE_MODE", "3", 1);
    for (int i = 0; i < 2; i++) {
        struct other o = i ? start("say-mode", "CUDA_MPS_PIPE_DIRECTORY", folder)
                           : start("say-mode", "MOED_CUSIM_MPS", "1");
        read_all(&o, text[i], sizeof text[i]);
        assert_int_equal(end(&o), 0);
        assert_string_equal(text[i], "compute mode Exclusive_Process with MPS\n");
    }
    unsetenv("MOED_CUSIM_COMPUTE_MODE");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unlink(path);
    rmdir(folder);
}

/* Opens the device for copies, then to compute: the exit code is the number of calls that fail. */
static int open_twice(void)
{
    struct device *d;
    struct error e;
    int failed = device_module_load("cuda", &module, &e) != ERROR_OK;
    for (int use = DEVICE_COPIES; use <= DEVICE_COMPUTES; use++) {
        if (module->open(0, (enum device_opening)use, &d, &e))
            failed += use == DEVICE_COPIES ? 10 : 1;
        else
            module->close(d);
    }
    return failed;
}

/* A process that only copies loads one kernel: the second that is loaded here fails. */
static void test_kernels_of_copies(void **state)
{
    if (!is_simulated())
        skip();
    struct other o = start("open-twice", "MOED_CUSIM_FAIL", "cudaFuncGetAttributes:3");
    assert_int_equal(WEXITSTATUS(end(&o)), 1);
    o = start("open-twice", "MOED_CUSIM_FAIL",
              "cudaFuncGetAttributes:1:cudaErrorNoKernelImageForDevice");
    assert_int_equal(WEXITSTATUS(end(&o)), 10);
}

/* Opens the device; the log goes to the standard output. */
static int open_and_log(void)
{
    dup2(1, 2);
    open_device();
    close_device();
    return 0;
}

/* MOED_TEST_LEAK: leaves memory allocated. */
static int reset_with_memory(void)
{
    open_device();
    void *memory = on_device(3 << 20);
    if (!getenv("MOED_TEST_LEAK"))
        module->release(device, memory);
    close_device();
    dup2(1, 2);
    module->reset(0);
    return 0;
}

/* close frees neither the context nor what the caller forgot: reset ends the context, and there the
 * checker (cusim; on a GPU compute-sanitizer) sees a leak. */
static void test_reset(void **state)
{
    for (int leaks = 0; leaks < 2; leaks++) {
        char text[1024];
        struct other o = start("reset", leaks ? "MOED_TEST_LEAK" : NULL, "1");
        read_all(&o, text, sizeof text);
        int status = end(&o);
        bool seen = leaks && is_simulated();
        assert_int_equal(WIFSIGNALED(status), seen);
        if (seen)
            assert_non_null(strstr(text, "device memory was not freed: 1 allocations or imports, "
                                         "3145728 bytes"));
        else
            assert_string_equal(text, "");
    }
}

/* If the module has no code for the device, the driver compiles it, and a line says so before. */
static void test_compiling(void **state)
{
    if (!is_simulated())
        skip();
    for (int compiles = 0; compiles < 2; compiles++) {
        char text[1024];
        struct other o = start("open-and-log", "MOED_CUSIM_ARCHITECTURE", compiles ? "75" : "80");
        read_all(&o, text, sizeof text);
        assert_int_equal(end(&o), 0);
        if (compiles)
            assert_non_null(strstr(text, "device cuda: the driver compiles the kernels for cusim, "
                                         "because moed's module has code for 7.5"));
        else
            assert_string_equal(text, "");
    }
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"say-open", report_open},
                                        {"open-and-log", open_and_log},
                                        {"reset", reset_with_memory},
                                        {"say-mode", report_mode},
                                        {"open-twice", open_twice}};
    const struct role *role = role_of(argc, argv, roles, sizeof roles / sizeof *roles);
    if (role)
        return role->run();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_compiling),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_kernels_of_copies),
    };
    return run_group("cuda_opening", tests, open_all);
}
