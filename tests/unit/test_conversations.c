/* memd/host/conversations.c: how much of the free memory the KV pool takes. */
#include "memd/host/conversations.h"

#include "base/machine_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_share), cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
