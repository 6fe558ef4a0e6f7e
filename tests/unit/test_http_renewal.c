/* Files that are read again: when, after which failures, and the directories that they need; texts
 * of files, and the copies in memory that they leave. */
#include "client/http/server/auth.h"
#include "client/http/server/renewal.h"
#include "client/http/text_file.h"
#include "temporary_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

/* The next look, without the time between looks. */
static bool looks(struct renewal *r)
{
    r->next_ns = 0;
    return renewal_is_due(r);
}

static bool fails(struct renewal *r, enum error_code code, const char *text)
{
    struct error e;
    error_fill(&e, code, "%s", text);
    return renewal_failed(r, &e);
}

static void test_changes(void **state)
{
    struct renewal r;
    char path[300];
    strcpy(path, in_directory("file"));
    write_file(path, "a");
    renewal_begin(&r, path, NULL);
    assert_false(looks(&r));
    write_file(path, "two");
    assert_false(looks(&r)); /* it may still be written */
    assert_true(looks(&r));
    renewal_succeeded(&r);
    assert_false(looks(&r));
    renewal_end(&r);
    write_file(path, "three");
    assert_false(looks(&r));
    assert_false(looks(&r));
}

static void test_failures(void **state)
{
    struct renewal r;
    char path[300];
    strcpy(path, in_directory("file"));
    write_file(path, "a");
    renewal_begin(&r, path, NULL);
    write_file(path, "two");
    assert_false(looks(&r));
    assert_true(looks(&r));
    assert_true(fails(&r, ERROR_IO, "cannot read"));
    assert_false(looks(&r)); /* in a minute */
    assert_true(r.retry_ns > 0);
    r.retry_ns = 1;
    assert_true(looks(&r));
    assert_false(fails(&r, ERROR_IO, "cannot read")); /* the log has it */
    r.retry_ns = 1;
    assert_true(looks(&r));
    assert_true(fails(&r, ERROR_LIMIT, "another cause"));
    r.retry_ns = 1;
    assert_true(looks(&r));
    renewal_succeeded(&r);
    assert_int_equal(r.retry_ns, 0);
    write_file(path, "three");
    assert_false(looks(&r));
    assert_true(looks(&r));
    assert_true(fails(&r, ERROR_FORMAT, "no certificate"));
    assert_int_equal(r.retry_ns, 0); /* only once it changes */
    write_file(path, "four");
    assert_false(looks(&r));
    assert_true(looks(&r));
    assert_true(fails(&r, ERROR_FORMAT, "no certificate")); /* of another file */
}

static char base[PATH_MAX]; /* real */

static const char *in_base(const char *name)
{
    static char path[4][2 * PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", base, name);
    return path[turn];
}

static bool has(const struct renewal_directories *d, const char *path)
{
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->paths[i], path) == 0)
            return true;
    return false;
}

static void test_directories(void **state)
{
    static struct renewal_directories d; /* large */
    char root[] = "/tmp/moed-test-XXXXXX", command[2 * PATH_MAX];
    assert_non_null(mkdtemp(root));
    assert_non_null(realpath(root, base));
    snprintf(command, sizeof command,
             "cd %s && mkdir -p plain secret/..1 tls/release-1 live/x archive/x apart/r1 links && "
             "touch plain/f secret/..1/f tls/release-1/f archive/x/f1 apart/r1/f && "
             "ln -s ..1 secret/..data && ln -s ..data/f secret/f && ln -s release-1 tls/current && "
             "ln -s ../../archive/x/f1 live/x/f && ln -s ../apart/r1 links/current && "
             "ln -s loop links/loop",
             base);
    assert_int_equal(system(command), 0);

    assert_true(renewal_directories_find(in_base("plain/f"), &d));
    assert_true(d.count == 1 && has(&d, in_base("plain")) && !d.fixed[0]);
    assert_true(renewal_directories_find(in_base("plain/../plain/./f"), &d));
    assert_true(d.count == 1 && has(&d, in_base("plain")));
    assert_true(renewal_directories_find(in_base("secret/f"), &d)); /* Kubernetes */
    assert_true(has(&d, in_base("secret")) && has(&d, in_base("secret/..1")) && !d.fixed[0]);
    assert_true(renewal_directories_find(in_base("live/x/f"), &d)); /* certbot */
    assert_true(has(&d, in_base("live/x")) && has(&d, in_base("archive/x")) && !d.fixed[0]);
    assert_true(renewal_directories_find(in_base("tls/current/f"), &d)); /* a release */
    assert_true(has(&d, in_base("tls")) && has(&d, in_base("tls/release-1")) && !d.fixed[0]);
    assert_true(renewal_directories_find(in_base("links/current/f"), &d));
    assert_true(has(&d, in_base("apart/r1")));
    assert_string_equal(d.fixed, in_base("links/current"));
    assert_false(renewal_directories_find(in_base("links/loop"), &d));
    assert_false(renewal_directories_find(in_base("nothing"), &d));
    assert_false(renewal_directories_find("/etc/passwd", &d));
    assert_int_equal(chdir(base), 0);
    assert_true(renewal_directories_find("plain/f", &d));
    assert_true(d.count == 1 && has(&d, in_base("plain")));
    assert_int_equal(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -r %s", base);
    assert_int_equal(system(command), 0);
}

static void test_texts(void **state)
{
    struct error e;
    char path[300];
    strcpy(path, in_directory("text"));
    write_file(path, "line\nlast");
    char *text = text_file_read(path, &e);
    assert_string_equal(text, "line\nlast");
    free(text);
    write_file(path, "");
    assert_null(text_file_read(path, &e));
    assert_int_equal(e.code, ERROR_FORMAT);
    assert_non_null(strstr(e.text, "it is empty"));
    assert_null(text_file_read(in_directory("nothing"), &e));
    assert_int_equal(e.code, ERROR_IO);
    assert_null(text_file_read(directory, &e));
    assert_int_equal(e.code, ERROR_IO);
    int ends[2]; /* bash's <(command) */
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "of a pipe", 9), 9);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    text = text_file_read(path, &e);
    assert_string_equal(text, "of a pipe");
    free(text);
    close(ends[0]);
}

/* The secret is kept inverted, so that memory has it only where the code under test leaves it. */
static bool is_secret(const unsigned char *at, const unsigned char *inverted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] + inverted[i] != 0xff)
            return false;
    return true;
}

/* In the heap of the main thread, freed blocks too. */
static size_t count_in_heap(const unsigned char *inverted, size_t n)
{
    char line[512], end_of_name[16];
    size_t found = 0, from, to;
    FILE *f = fopen("/proc/self/maps", "r");
    static char buffer[4096];
    setvbuf(f, buffer, _IOFBF, sizeof buffer);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%zx-%zx %*s %*s %*s %*s %15s", &from, &to, end_of_name) != 3 ||
            strcmp(end_of_name, "[heap]") != 0)
            continue;
        for (const unsigned char *at = (unsigned char *)from; at + n <= (unsigned char *)to; at++)
            found += is_secret(at, inverted, n);
    }
    fclose(f);
    return found;
}

static void test_secrets_in_memory(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* their heap is elsewhere */
#endif
    unsigned char inverted[32];
    char path[300], text[2 * sizeof inverted] = "name ";
    struct error e;
    struct auth keys;
    strcpy(path, in_directory("secret"));
    for (size_t i = 0; i < sizeof inverted; i++) {
        inverted[i] = (unsigned char)~('A' + i * 7 % 26);
        text[5 + i] = (char)~inverted[i];
    }
    text[5 + sizeof inverted] = '\n';
    FILE *f = fopen(path, "w");
    setvbuf(f, NULL, _IONBF, 0);
    for (int i = 0; i < 100; i++) /* more than one block */
        fputs("# nothing, at some length, so that a buffer has to grow\n", f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(count_in_heap(inverted, sizeof inverted), 0);

    char *read = text_file_read(path, &e);
    assert_non_null(read);
    assert_int_equal(count_in_heap(inverted, sizeof inverted), 1);
    explicit_bzero(read, strlen(read));
    free(read);
    assert_int_equal(count_in_heap(inverted, sizeof inverted), 0);

    assert_int_equal(auth_read(path, "key", &keys, &e), ERROR_OK);
    assert_non_null(auth_check(&keys, NULL, keys.keys[0].key));
    auth_free(&keys);
    assert_int_equal(count_in_heap(inverted, sizeof inverted), 0);
    explicit_bzero(text, sizeof text);
}

static void test_same_keys(void **state)
{
    struct auth a, b;
    struct error e;
    char path[300];
    strcpy(path, in_directory("keys"));
    write_file(path, "alice key-of-alice\n");
    assert_int_equal(auth_read(path, "key", &a, &e), ERROR_OK);
    write_file(path, "# a comment\nalice   key-of-alice\n");
    assert_int_equal(auth_read(path, "key", &b, &e), ERROR_OK);
    assert_true(auth_same(&a, &b));
    auth_free(&b);
    write_file(path, "bob key-of-alice\n");
    assert_int_equal(auth_read(path, "key", &b, &e), ERROR_OK);
    assert_false(auth_same(&a, &b));
    auth_free(&b);
    auth_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),           cmocka_unit_test(test_failures),
        cmocka_unit_test(test_directories),       cmocka_unit_test(test_texts),
        cmocka_unit_test(test_secrets_in_memory), cmocka_unit_test(test_same_keys),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
