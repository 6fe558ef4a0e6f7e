/* memd/host/conversations.c: how much of the free memory the KV pool takes, and whose file is used.
 */
#include "memd/host/conversations.h"

#include "base/machine_memory.h"

#include <glob.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

/* Pages of 64 MiB, so that no size here is cut to the most pages of a pool. */
static struct model_params *large_pages(void)
{
    struct model_params *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->arch = architecture_find("qwen3moe", 8);
    p->n_layers = 64;
    for (uint32_t i = 0; i < p->n_layers; i++)
        p->layers[i] = (struct layer_params){.n_kv_heads = 16, .k_dim = 256, .v_dim = 256};
    return p;
}

/* Bytes of the region; 0: the error, whose text is why. */
static uint64_t made(const struct conversations_options *o, struct error *why)
{
    struct conversations c = {.region.fd = -1};
    if (conversations_make(&c, o, why))
        return 0;
    uint64_t bytes = c.region.bytes;
    assert_in_range(conversations_promised_bytes(&c), bytes / 2, bytes); /* nothing is in it yet */
    conversations_close(&c);
    return bytes;
}

static void test_share(void **state)
{
    struct model_params *p = large_pages();
    struct conversations_options o = {.params = p, .type = TENSOR_F16, .parallel = 1, .batch = 256};
    struct error why;
    uint64_t available = memory_available_bytes(), whole = made(&o, &why);
    (void)state;
    if (available > (uint64_t)1 << 50 || available < (uint64_t)4 << 30)
        skip();
    /* other programs take and free memory meanwhile: wide ranges */
    assert_in_range(whole, available / 10 * 4, available / 10 * 6);
    o.promised = available / 2;
    assert_in_range(made(&o, &why), available / 10, available / 10 * 4);
    o.size = "50%";
    assert_in_range(made(&o, &why), available / 10, available / 10 * 4);
    o.margin = available / 4;
    assert_in_range(made(&o, &why), available / 100, available / 10 * 2);
    o.promised = 2 * available;
    assert_int_equal(made(&o, &why), 0);
    assert_int_equal(why.code, ERROR_MEMORY);
    assert_non_null(strstr(why.text, "other deployments have promised"));
    free(p);
}

/* Bytes that somebody names: only the memory for the other processes is not given away. */
static void test_bytes(void **state)
{
    struct model_params *p = large_pages();
    struct conversations_options o = {.params = p, .type = TENSOR_F16, .parallel = 1, .batch = 256};
    struct error why;
    char size[32];
    uint64_t available = memory_available_bytes();
    (void)state;
    if (available > (uint64_t)1 << 50 || available < (uint64_t)4 << 30)
        skip();
    snprintf(size, sizeof size, "%llu", (unsigned long long)available / 2);
    o.size = size;
    o.promised = available;
    assert_in_range(made(&o, &why), available / 10 * 4, available / 10 * 6);
    o.margin = available / 4 * 3;
    assert_int_equal(conversations_make(&(struct conversations){0}, &o, &why), ERROR_MEMORY);
    assert_non_null(strstr(why.text, "for the other processes"));
    free(p);
}

/* On two memory nodes, which here both stand for the machine's first: the kernel reports that the
 * region's pages alternate. */
static void test_memory_nodes(void **state)
{
    static struct topology t;
    struct model_params *p = large_pages();
    struct conversations_options o = {.params = p,
                                      .type = TENSOR_F16,
                                      .size = "256M",
                                      .parallel = 1,
                                      .batch = 256,
                                      .topology = &t};
    struct error why;
    (void)state;
    topology_read(&t);
    t.memory_ids[1] = t.memory_ids[0];
    for (t.n_nodes = 1; t.n_nodes <= 2; t.n_nodes++) {
        struct conversations c = {.region.fd = -1};
        int mode = -1;
        assert_int_equal(conversations_make(&c, &o, &why), 0);
        uint8_t *last = (uint8_t *)c.region.base + c.region.bytes - 1;
        if (syscall(SYS_get_mempolicy, &mode, NULL, 0, last, MPOL_F_ADDR) == 0)
            assert_int_equal(mode, t.n_nodes == 2 ? MPOL_INTERLEAVE : MPOL_DEFAULT);
        conversations_close(&c);
    }
    free(p);
}

/* The header of the file in the folder, which has a random number of each file that is begun. */
static void read_header(const char *dir, char header[40])
{
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.kv", dir);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    FILE *f = fopen(found.gl_pathv[0], "rb");
    assert_non_null(f);
    assert_int_equal(fread(header, 1, 40, f), 40);
    fclose(f);
    globfree(&found);
}

static void remove_file(const char *dir)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* A build that reads another parameter from the same model has other keys and values. */
static void test_file_of_other_parameters(void **state)
{
    struct model_params *p = large_pages();
    struct conversations_options o = {
        .params = p, .type = TENSOR_F16, .parallel = 1, .batch = 256, .size = "8G"};
    char dir[] = "/tmp/moed-conversations-XXXXXX", first[40], again[40], other[40];
    struct gguf *gguf;
    struct error why;
    (void)state;
    if (memory_available_bytes() < (uint64_t)12 << 30)
        skip();
    assert_non_null(mkdtemp(dir));
    assert_int_equal(gguf_open(MOED_SOURCE_DIR "/models/demo.gguf", &gguf, &why), ERROR_OK);
    o.dir = dir;
    o.gguf = gguf;
    assert_int_not_equal(made(&o, &why), 0);
    read_header(dir, first);
    assert_int_not_equal(made(&o, &why), 0);
    read_header(dir, again);
    assert_memory_equal(first, again, sizeof first);
    p->router.scale = 2.5f;
    assert_int_not_equal(made(&o, &why), 0);
    read_header(dir, other);
    assert_memory_not_equal(first, other, sizeof first);
    gguf_close(gguf);
    remove_file(dir);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_share), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_memory_nodes),
                                       cmocka_unit_test(test_file_of_other_parameters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
