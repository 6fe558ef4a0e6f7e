/* Completion of file names: what is added, which names there are. */
#include "client/cli/chat/file_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/moed-test-names-XXXXXX";

static int setup(void **state)
{
    static const char *const files[] = {
        "two words.txt", "two w\xc3\xb6rds", "two w\xc3\xa4", "it's $HOME", ".hidden",
        "new\nline",     "latin\xf6",        "csi\xc2\x9b",   "u\xc3\xa4",  "u\xc3\xb6"};
    if (!mkdtemp(base) || chdir(base))
        return -1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        close(open(files[i], O_CREAT | O_WRONLY, 0600));
    setenv("HOME", base, 1);
    return mkdir("folder", 0700) || close(open("folder/x", O_CREAT | O_WRONLY, 0600));
}

static int teardown(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return chdir("/") || system(command);
}

static void names_are_completed(void **state)
{
    static const struct {
        const char *typed;
        size_t n;
        const char *more, *names;
    } cases[] = {
        {"it", 1, "'s $HOME", "it's $HOME\n"},
        {"fol", 1, "der/", "folder\n"},
        {"folder/", 1, "x", "x\n"},
        {"~/folder/", 1, "x", "x\n"},
        {"two wo", 1, "rds.txt", "two words.txt\n"},
        {"t", 3, "wo w", "two words.txt\ntwo w\xc3\xa4\ntwo w\xc3\xb6rds\n"},
        {"u", 2, "", "u\xc3\xa4\nu\xc3\xb6\n"}, /* no half a character */
        {".", 1, "hidden", ".hidden\n"},
        {"new", 0, "", ""},
        {"latin", 0, "", ""},
        {"csi", 0, "", ""},
        {"absent/", 0, "", ""},
        {"it's $HOME", 1, "", "it's $HOME\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf more, names;
        strbuf_init(&more);
        strbuf_init(&names);
        assert_int_equal(file_names_complete(cases[i].typed, &more, &names), cases[i].n);
        assert_string_equal(more.data ? more.data : "", cases[i].more);
        assert_string_equal(names.data ? names.data : "", cases[i].names);
        strbuf_fini(&more);
        strbuf_fini(&names);
    }
}

static void many_names(void **state)
{
    assert_int_equal(mkdir("many", 0700), 0);
    for (int i = 0; i < 1000; i++) {
        char path[32];
        snprintf(path, sizeof path, "many/n%03d", i);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    struct strbuf more, names;
    strbuf_init(&more);
    strbuf_init(&names);
    assert_int_equal(file_names_complete("many/", &more, &names), 1000);
    assert_string_equal(more.data, "n");
    assert_int_equal(names.len, 200 * strlen("n000\n"));
    strbuf_fini(&more);
    strbuf_fini(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_completed),
        cmocka_unit_test(many_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
