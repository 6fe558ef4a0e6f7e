/* deploy/models/catalogue.c: the memory that a model needs with the options of its deployment. */
#include "deploy/models/catalogue.h"

#include "mkmodel/mkmodel.h"
#include "temporary_directory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <cmocka.h>

#define OPTIONS "moed/small.conf" /* in XDG_CONFIG_HOME, which is the directory */

/* Files are read again where their time has changed. */
static void set_age(const char *path, int seconds)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void write_options(const char *text, int age)
{
    FILE *f = fopen(in_directory(OPTIONS), "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    set_age(in_directory(OPTIONS), age);
}

static uint64_t scanned_need(struct catalogue *c)
{
    struct error e;
    assert_int_equal(catalogue_scan(c, directory, &e), ERROR_OK);
    assert_int_equal(c->count, 1);
    assert_string_equal(c->entries[0].deployment, "small");
    return c->entries[0].need_bytes;
}

static void need_with_ram(void **state)
{
    static struct catalogue c; /* large */
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct error e;
    mkmodel_defaults(&o);
    o.layers = 2;
    o.hidden = 64;
    o.heads = 2;
    o.kv_heads = 1;
    o.experts = 64;
    o.top_k = 2;
    o.expert_width = 256;
    o.vocab = 400;
    assert_int_equal(mkmodel_write(&o, in_directory("small.gguf"), NULL, NULL, &result, &e), 0);
    set_age(in_directory("small.gguf"), 60);
    mkdir(in_directory("moed"), 0700);
    setenv("XDG_CONFIG_HOME", directory, 1);

    uint64_t whole = scanned_need(&c), weights = c.entries[0].weights_bytes;
    assert_true(whole > weights);
    write_options("ctx = 100\nram = 60% # of the weights\n", 50);
    uint64_t part = scanned_need(&c);
    assert_true(part < whole);
    assert_int_equal(c.entries[0].weights_bytes, weights);
    write_options("ram = 100%\n", 40);
    assert_int_equal(scanned_need(&c), whole);
    write_options("ram = much\n", 30); /* `moed up` says so */
    assert_int_equal(scanned_need(&c), 0);
    unlink(in_directory(OPTIONS));
    assert_int_equal(scanned_need(&c), whole);

    rmdir(in_directory("moed"));
    catalogue_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(need_with_ram)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
