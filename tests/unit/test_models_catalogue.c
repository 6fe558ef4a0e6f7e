/* deploy/models/catalogue.c: the memory that a model needs with the options of its deployment;
 * split models of which not all files are there yet. */
#include "deploy/models/catalogue.h"

#include "base/clock.h"
#include "mkmodel/mkmodel.h"
#include "reader/model_reader.h"
#include "temporary_directory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
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

static void write_model(const char *path, uint32_t files)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct error e;
    mkmodel_defaults(&o);
    o.split = files;
    o.ctx = 2048;
    o.layers = 2;
    o.hidden = 64;
    o.heads = 2;
    o.kv_heads = 1;
    o.experts = 64;
    o.top_k = 2;
    o.expert_width = 256;
    o.vocab = 400;
    assert_int_equal(mkmodel_write(&o, path, NULL, NULL, &result, &e), 0);
}

static void need_with_options(void **state)
{
    static struct catalogue c; /* large */
    write_model(in_directory("small.gguf"), 1);
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
    const struct catalogue_entry *x = &c.entries[0];
    uint64_t least = x->kv_least_bytes, most = x->kv_most_bytes;
    write_options("ctx = 100\n", 25);
    assert_int_equal(scanned_need(&c), whole);
    assert_true(x->kv_least_bytes < least && x->kv_least_bytes > 0);
    assert_true(x->kv_most_bytes >= x->kv_least_bytes && x->kv_most_bytes < most);
    assert_false(x->kv_given);
    write_options("kv-cache = 1G\n", 20);
    assert_int_equal(scanned_need(&c), whole);
    assert_int_equal(x->kv_least_bytes, 1000000000);
    assert_int_equal(x->kv_most_bytes, 1000000000);
    assert_true(x->kv_given);
    write_options("kv-cache = 99999999999T\n", 18); /* more than 64 bits */
    assert_int_equal(scanned_need(&c), whole);
    assert_int_equal(x->kv_most_bytes, 0);
    write_options("workers = 3\n", 17);
    assert_true(scanned_need(&c) > whole);
    write_options("cpuexec = true\n", 19);
    uint64_t with_cpuexec = scanned_need(&c);
    assert_true(with_cpuexec > whole);
    write_options("device = emu:vram=50%,link=1G\n", 21); /* its batch is larger */
    assert_true(scanned_need(&c) > with_cpuexec);
    write_options("workers = 17\n", 16); /* `moed up` refuses it */
    assert_int_equal(scanned_need(&c), 0);
    write_options("kv-type = f17\n", 15);
    assert_int_equal(scanned_need(&c), 0);
    unlink(in_directory(OPTIONS));
    assert_int_equal(scanned_need(&c), whole);
    assert_int_equal(x->kv_least_bytes, least);

    rmdir(in_directory("moed"));
    unlink(in_directory("small.gguf"));
    catalogue_fini(&c);
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(in_directory(name), 0700), 0);
}

/* The context that the options of the one model ask for, by the memory for it. */
static uint64_t scanned_kv(struct catalogue *c)
{
    struct error e;
    assert_int_equal(catalogue_scan(c, directory, &e), ERROR_OK);
    assert_int_equal(c->count, 1);
    return c->entries[0].kv_least_bytes;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A name that no deployment can have: its file of options has the name itself, or the
 * deployment's. Beneath both are the folder's. */
static void options_by_id(void **state)
{
    static struct catalogue c; /* large */
    static const char id[] = "Some Model-30B-A3B (Instruct) 2507-UD-Q4_K_XL";
    char model[sizeof id + 8], own[sizeof id + 16], of_deployment[64], found[PATH_MAX], below[256];
    snprintf(model, sizeof model, "%s.gguf", id);
    snprintf(own, sizeof own, "moed/%s.conf", id);
    snprintf(below, sizeof below, "%s", in_directory("below"));
    write_model(in_directory(model), 1);
    set_age(in_directory(model), 60);
    make_folder("moed");
    setenv("XDG_CONFIG_HOME", directory, 1);

    uint64_t whole = scanned_kv(&c);
    const struct catalogue_entry *x = &c.entries[0];
    assert_false(catalogue_options_file(x->id, x->deployment, found));
    assert_string_equal(found, in_directory(own));
    snprintf(of_deployment, sizeof of_deployment, "moed/%s.conf", x->deployment);
    write_file(in_directory(of_deployment), "ctx = 512\n");
    uint64_t of_512 = scanned_kv(&c);
    assert_true(of_512 < whole);
    write_file(in_directory(own), "ctx = 256\n");
    assert_true(catalogue_options_changed(x));
    uint64_t of_256 = scanned_kv(&c);
    assert_true(of_256 < of_512);
    assert_false(catalogue_options_changed(x));
    assert_true(catalogue_options_file(x->id, x->deployment, found));
    assert_string_equal(found, in_directory(own));
    unlink(in_directory(own));
    unlink(in_directory(of_deployment));
    assert_int_equal(scanned_kv(&c), whole);
    catalogue_fini(&c);

    write_file(below, "ctx = 256\n");
    c.defaults = below;
    assert_int_equal(scanned_kv(&c), of_256);
    write_file(in_directory(own), "ctx = 512\n");
    assert_int_equal(scanned_kv(&c), of_512);
    unlink(in_directory(own));
    unlink(below);
    unlink(in_directory(model));
    rmdir(in_directory("moed"));
    catalogue_fini(&c);
}

/* The names of deployments are arguments of `moed up` and `moed down`. */
static void name_with_a_dash(void **state)
{
    static struct catalogue c; /* large */
    struct error e;
    write_model(in_directory("-alias.gguf"), 1);
    set_age(in_directory("-alias.gguf"), 60);
    assert_int_equal(catalogue_scan(&c, directory, &e), ERROR_OK);
    assert_int_equal(c.count, 1);
    assert_string_equal(c.entries[0].id, "-alias");
    assert_int_equal(strncmp(c.entries[0].deployment, "_alias-", 7), 0);
    unlink(in_directory("-alias.gguf"));
    catalogue_fini(&c);
}

static size_t scanned_count(struct catalogue *c)
{
    struct error e;
    assert_int_equal(catalogue_scan(c, directory, &e), ERROR_OK);
    return c->count;
}

static const char *part_name(int i)
{
    static char name[64];
    snprintf(name, sizeof name, "part-%05d-of-00003.gguf", i);
    return name;
}

static const char *blob_name(int i)
{
    static char name[64];
    snprintf(name, sizeof name, "blob-%d", i);
    return name;
}

static enum error_code describe(const char *path, struct read_model *m, struct error *e)
{
    return model_reader_describe(path, clock_end_ns(60000), m, e);
}

/* The files are links, as in the cache of Hugging Face. The first is there before the others. */
static void files_that_come_later(void **state)
{
    static struct catalogue c; /* large */
    struct error e;
    write_model(in_directory("part"), 3);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(rename(in_directory(part_name(i)), in_directory(blob_name(i))), 0);
        set_age(in_directory(blob_name(i)), 100 - i);
    }
    for (int i = 1; i <= 3; i++) {
        struct read_model m;
        assert_int_equal(symlink(blob_name(i), in_directory(part_name(i))), 0);
        enum error_code code = describe(in_directory(part_name(1)), &m, &e);
        assert_int_equal(code, i < 3 ? ERROR_NOT_FOUND : ERROR_OK);
        if (code)
            assert_non_null(strstr(e.text, "is missing"));
        else
            read_model_free(&m);
        assert_int_equal(scanned_count(&c), i == 3);
    }
    assert_string_equal(c.entries[0].id, "part");
    assert_string_equal(strrchr(c.entries[0].path, '/'), "/part-00001-of-00003.gguf");
    const char *path = c.entries[0].path;
    assert_int_equal(scanned_count(&c), 1);
    assert_ptr_equal(c.entries[0].path, path); /* nothing has changed: it was not read again */
    set_age(in_directory(blob_name(2)), 10);
    scanned_count(&c);
    assert_ptr_not_equal(c.entries[0].path, path);
    unlink(in_directory(part_name(2)));
    assert_int_equal(scanned_count(&c), 0);
    catalogue_fini(&c);
}

/* A file can be opened, but no pipe to the process that reads it. */
static size_t scanned_without_descriptors(struct catalogue *c)
{
    struct rlimit before, now;
    int least = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(least);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)least + 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    size_t n = scanned_count(c);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    return n;
}

static void one_failure_hides_no_model(void **state)
{
    static struct catalogue c; /* large */
    const char *name = "small.gguf";
    write_model(in_directory(name), 1);
    set_age(in_directory(name), 60);
    assert_int_equal(scanned_without_descriptors(&c), 0);
    assert_int_equal(scanned_count(&c), 1);
    set_age(in_directory(name), 50); /* to be read again */
    assert_int_equal(scanned_without_descriptors(&c), 1);
    struct timespec old = c.entries[0].version.newest;
    assert_int_equal(scanned_count(&c), 1);
    assert_true(c.entries[0].version.newest.tv_sec > old.tv_sec);

    FILE *f = fopen(in_directory(name), "we"); /* no model now */
    assert_non_null(f);
    fclose(f);
    set_age(in_directory(name), 40);
    assert_int_equal(scanned_count(&c), 0);
    unlink(in_directory(name));
    catalogue_fini(&c);
}

static void make_link(const char *to, const char *name)
{
    assert_int_equal(symlink(to, in_directory(name)), 0);
}

/* Hugging Face's cache, two revisions of one file; LM Studio's folders; links that lead back. */
static void folders(void **state)
{
    static struct catalogue c; /* large */
    static const char *const made[] = {"hub",
                                       "hub/models--a--b",
                                       "hub/models--a--b/blobs",
                                       "hub/models--a--b/snapshots",
                                       "hub/models--a--b/snapshots/1",
                                       "hub/models--a--b/snapshots/1/Q4",
                                       "hub/models--a--b/snapshots/2",
                                       "hub/models--a--b/snapshots/2/Q4",
                                       "hub/models--a--b/snapshots/2/Q4/deep",
                                       "publisher",
                                       "publisher/repository"};
    static const char *const files[] = {
        "hub/models--a--b/snapshots/1/Q4/hugging.gguf",
        "hub/models--a--b/snapshots/2/Q4/hugging.gguf",
        "hub/models--a--b/snapshots/2/Q4/back",
        "publisher/repository/studio.gguf",
        "linked",
        "hub/models--a--b/blobs/4711",
    };
    assert_int_equal(scanned_count(&c), 0);
    assert_int_equal(c.files, 0);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        make_folder(made[i]);
    write_model(in_directory(files[5]), 1);
    set_age(in_directory(files[5]), 60);
    make_link("../../../blobs/4711", files[0]);
    make_link("../../../blobs/4711", files[1]);
    make_link("..", files[2]);
    make_link("publisher", files[4]);
    assert_int_equal(link(in_directory(files[5]), in_directory(files[3])), 0);

    assert_int_equal(scanned_count(&c), 2);
    assert_string_equal(c.entries[0].id, "hugging");
    assert_non_null(strstr(c.entries[0].path, "/snapshots/1/Q4/hugging.gguf"));
    assert_string_equal(c.entries[1].id, "studio");
    assert_int_equal(c.refused_count, 0); /* nothing twice */
    assert_false(c.too_large);
    assert_int_equal(scanned_count(&c), 2);

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_int_equal(unlink(in_directory(files[i])), 0);
    for (size_t i = sizeof made / sizeof *made; i > 0; i--)
        assert_int_equal(rmdir(in_directory(made[i - 1])), 0);
    assert_int_equal(scanned_count(&c), 0);
    catalogue_fini(&c);
}

static const char *why_left_out(const struct catalogue *c, const char *name)
{
    struct catalogue_left_out file;
    for (size_t at = 0; catalogue_next_left_out(c, &at, &file);)
        if (catalogue_is_left_out(&file, name))
            return file.why;
    return NULL;
}

/* Two revisions of a file: the newest that can be served is listed, and the others have reasons. */
static void newest_of_a_name(void **state)
{
    static struct catalogue c; /* large */
    static const char *const files[] = {"a/same.gguf", "b/same.gguf", "c/same.gguf"};
    for (size_t i = 0; i < 3; i++)
        make_folder((const char *[]){"a", "b", "c"}[i]);
    write_model(in_directory(files[0]), 1);
    write_model(in_directory(files[1]), 1);
    write_file(in_directory(files[2]), "no model");
    set_age(in_directory(files[0]), 60);
    set_age(in_directory(files[1]), 50);
    set_age(in_directory(files[2]), 40);
    for (int scan = 0; scan < 2; scan++) {
        assert_int_equal(scanned_count(&c), 1);
        assert_non_null(strstr(c.entries[0].path, files[1]));
        assert_int_equal(c.refused_count, 2);
    }
    const char *path = c.entries[0].path;
    assert_int_equal(scanned_count(&c), 1);
    assert_ptr_equal(c.entries[0].path, path); /* none is read again */
    assert_non_null(why_left_out(&c, "same:latest"));
    assert_null(why_left_out(&c, "other"));
    set_age(in_directory(files[0]), 30);
    assert_int_equal(scanned_count(&c), 1);
    assert_non_null(strstr(c.entries[0].path, files[0]));
    unlink(in_directory(files[0]));
    unlink(in_directory(files[2]));
    assert_int_equal(scanned_count(&c), 1);
    assert_non_null(strstr(c.entries[0].path, files[1]));
    assert_null(why_left_out(&c, "same")); /* those files have gone */
    unlink(in_directory(files[1]));
    for (size_t i = 0; i < 3; i++)
        rmdir(in_directory((const char *[]){"a", "b", "c"}[i]));
    catalogue_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders),
                                       cmocka_unit_test(need_with_options),
                                       cmocka_unit_test(options_by_id),
                                       cmocka_unit_test(name_with_a_dash),
                                       cmocka_unit_test(newest_of_a_name),
                                       cmocka_unit_test(one_failure_hides_no_model),
                                       cmocka_unit_test(files_that_come_later)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
