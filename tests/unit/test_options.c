/* Options: every type from flags and files, their precedence, and every invalid use. */
#include "daemon/deployment_options.h"
#include "daemon/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *text, *config, *defaults;
    uint64_t count, n;
    double share;
    bool loud;
} v;

static const struct option_spec table[] = {
    {"text", OPTION_STRING, &v.text, 0, 0, "TEXT", "a text"},
    {"count", OPTION_UINT, &v.count, 1, 1e12, "N", "a number"},
    {"n", OPTION_UINT, &v.n, 0, 0, "N", "any number"},
    {"share", OPTION_FLOAT, &v.share, 0, 1, "X", "a share"},
    {"loud", OPTION_BOOL, &v.loud, 0, 0, NULL, "a switch"},
    {"config", OPTION_STRING, &v.config, 0, 0, "FILE", "a file"},
    {"defaults", OPTION_STRING, &v.defaults, 0, 0, "FILE", "a file"},
    {0},
};

static struct error why;
static int positional;
static char *arguments[16];

/* Parse the words (NULL-terminated list) after resetting the values to their defaults. */
static enum error_code parse(const char *const *words, bool take_positional)
{
    int n = 1;
    arguments[0] = (char *)"program";
    while (*words)
        arguments[n++] = (char *)*words++;
    arguments[n] = NULL;
    memset(&v, 0, sizeof v);
    v.count = 7;
    memset(&why, 0, sizeof why);
    positional = 0;
    return options_parse(table, n, arguments, take_positional ? &positional : NULL, &why);
}
#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL}, true)

static void write_file(char path[64], const char *text)
{
    snprintf(path, 64, "/tmp/moed-test-options.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void flags_of_every_type(void **state)
{
    assert_int_equal(PARSE("--text", "a b", "--count=12", "-n5", "--share", "0.25", "--loud"), 0);
    assert_string_equal(v.text, "a b");
    assert_int_equal(v.count, 12);
    assert_int_equal(v.n, 5);
    assert_true(v.share == 0.25);
    assert_true(v.loud);
    assert_int_equal(PARSE("-n", "6", "--loud", "--no-loud", "--text="), 0);
    assert_int_equal(v.n, 6);
    assert_false(v.loud);
    assert_string_equal(v.text, "");
    assert_int_equal(v.count, 7); /* the default */
}

static void suffixes_of_integers(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } cases[] = {{"3k", 3000},
                 {"2M", 2000000},
                 {"1G", 1000000000},
                 {"3Ki", 3072},
                 {"2Mi", 2097152},
                 {"5Gi", 5368709120u},
                 {"3K", 3000},
                 {"2m", 2000000},
                 {"3ki", 3072},
                 {"2MI", 2097152},
                 {"18446744073709551615", UINT64_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(PARSE("-n", cases[i].text), 0);
        assert_true(v.n == cases[i].value);
    }
}

static void wrong_values(void **state)
{
    static const struct {
        const char *flag, *value, *expected_text;
    } cases[] = {
        {"--count", "0", "out of range"},
        {"--count", "2000000000000", "out of range"},
        {"--count", "-1", "not a whole number"},
        {"--count", "+1", "not a whole number"},
        {"--count", " 1", "not a whole number"},
        {"--count", "1.5", "not a whole number"},
        {"--count", "1P", "not a whole number"},
        {"--count", "", "empty"},
        {"-n", "18446744073709551616", "too large"},
        {"-n", "18446744073709551615k", "too large"},
        {"--share", "1.5", "out of range"},
        {"--share", "nan", "not a number"},
        {"--share", "inf", "not a number"},
        {"--share", "0.5x", "not a number"},
        {"--share", "", "empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(PARSE(cases[i].flag, cases[i].value), ERROR_USAGE);
        if (!strstr(why.text, cases[i].expected_text) || !strstr(why.text, cases[i].flag))
            fail_msg("%s %s: %s", cases[i].flag, cases[i].value, why.text);
    }
}

static void wrong_flags(void **state)
{
    assert_int_equal(PARSE("--texts", "x"), ERROR_USAGE);
    assert_non_null(strstr(why.text, "--texts"));
    assert_int_equal(PARSE("--tex", "x"), ERROR_USAGE); /* no abbreviations */
    assert_int_equal(PARSE("-x"), ERROR_USAGE);
    assert_int_equal(PARSE("--n", "5"), ERROR_USAGE);
    assert_int_equal(PARSE("--no-text"), ERROR_USAGE);
    assert_int_equal(PARSE("--loud=true"), ERROR_USAGE);
    assert_non_null(strstr(why.text, "takes no value"));
    assert_int_equal(PARSE("--text"), ERROR_USAGE);
    assert_non_null(strstr(why.text, "TEXT"));
}

static void positional_arguments(void **state)
{
    assert_int_equal(PARSE("one", "--loud", "-", "--", "--count", "-x"), 0);
    assert_int_equal(positional, 4);
    assert_string_equal(arguments[1], "one");
    assert_string_equal(arguments[2], "-");
    assert_string_equal(arguments[3], "--count");
    assert_string_equal(arguments[4], "-x");
    assert_true(v.loud);
    static const char *const words[] = {"--loud", "stray", NULL};
    assert_int_equal(parse(words, false), ERROR_USAGE);
    assert_non_null(strstr(why.text, "stray"));
}

static void a_file_and_flags_that_win(void **state)
{
    char path[64];
    write_file(path,
               "# a comment\n\n text = from file # and why\n count=2k\nloud = yes\nshare = 0.5\n");
    assert_int_equal(PARSE("--count", "5", "--config", path, "--no-loud"), 0);
    assert_string_equal(v.text, "from file");
    assert_int_equal(v.count, 5);
    assert_false(v.loud);
    assert_true(v.share == 0.5);
    unlink(path);
}

static void defaults_below_a_file(void **state)
{
    char path[64], below[64];
    write_file(path, "count = 5\n");
    write_file(below, "count = 4\nn = 7\nshare = 0.5\nloud = true\n");
    assert_int_equal(PARSE("--config", path, "-n", "8", "--defaults", below), 0);
    assert_int_equal(v.count, 5);
    assert_int_equal(v.n, 8);
    assert_true(v.share == 0.5 && v.loud);
    unlink(path);
    unlink(below);
}

static void a_path_with_a_hash(void **state)
{
    char path[64];
    write_file(path, "text = /models/a#b.gguf");
    assert_int_equal(PARSE("--config", path), 0);
    assert_string_equal(v.text, "/models/a#b.gguf");
    unlink(path);
}

static void wrong_files(void **state)
{
    static const struct {
        const char *text, *expected_text;
    } cases[] = {
        {"count = 1\nnonsense\n", ":2: expected"},
        {"\ncolour = red\n", ":2: there is no option colour"},
        {"count = many\n", ":1: count: many is not a whole number"},
        {"loud = perhaps\n", "neither true nor false"},
        {"config = other\n", "there is no option config"},
        {"defaults = other\n", "there is no option defaults"},
        {"= 3\n", "there is no option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64];
        write_file(path, cases[i].text);
        assert_int_equal(PARSE("--config", path), ERROR_USAGE);
        if (!strstr(why.text, cases[i].expected_text) || !strstr(why.text, path))
            fail_msg("%s: %s", cases[i].text, why.text);
        unlink(path);
    }
    assert_int_equal(PARSE("--config", "/proc/nonexistent/file"), ERROR_USAGE);
    assert_non_null(strstr(why.text, "/proc/nonexistent/file"));
}

/* A program reads what it needs of another program's file. */
static void some_of_a_file(void **state)
{
    static const char *ram;
    static const struct option_spec some[] = {{"ram", OPTION_STRING, &ram, 0, 0, "SIZE", "memory"},
                                              {0}};
    char path[64];
    write_file(path, "ctx = many\nram = \"50%\" # of the weights\n\nconfig = other\n");
    assert_int_equal(options_read_some(some, path, &why), 0);
    assert_string_equal(ram, "50%");
    unlink(path);
    assert_int_equal(options_read_some(some, path, &why), ERROR_USAGE);
}

/* What options_print_help writes, in a buffer. */
static size_t help_text(const struct option_spec *options, char *text, size_t bytes)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    options_print_help(options, "p", "FILE", "Does it.");
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    size_t n = fread(text, 1, bytes - 1, file);
    text[n] = '\0';
    fclose(file);
    return n;
}

static void long_help_is_wrapped(void **state)
{
    const char *target = NULL;
    const struct option_spec long_help[] = {
        {"x", OPTION_STRING, &target, 0, 0, "X",
         "one of: alpha, beta, gamma, delta, epsilon, zeta, eta, theta, iota, kappa"},
        {0},
    };
    char text[1024];
    help_text(long_help, text, sizeof text);
    assert_non_null(strstr(
        text, "  -x X                     one of: alpha, beta, gamma, delta, epsilon, zeta,\n"
              "                           eta, theta, iota, kappa\n"));
}

/* Names of a table like that of moed up. */
static void other_names(void **state)
{
    const char *device = NULL;
    uint64_t ctx = 0, n = 0;
    double temp = 0, tau = 0, eta = 0;
    const char *order = NULL;
    const struct option_spec rows[] = {
        {"device", OPTION_STRING, &device, 0, 0, "D", "a device"},
        {"ctx", OPTION_UINT, &ctx, 0, 0, "N", "a number"},
        {"More", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"temp", OPTION_FLOAT, &temp, 0, 0, "T", "a number"},
        {"n", OPTION_UINT, &n, 0, 0, "N", "a number"},
        {"mirostat-tau", OPTION_FLOAT, &tau, 0, 0, "X", "a number"},
        {"mirostat-eta", OPTION_FLOAT, &eta, 0, 0, "X", "a number"},
        {"order", OPTION_STRING, &order, 0, 0, "LETTERS", "a text"},
        {0},
    };
    char *familiar[] = {"p", "-c", "512", "--temperature=0.5", "--n-predict", "7", NULL};
    assert_int_equal(options_parse(rows, 6, familiar, NULL, &why), 0);
    assert_int_equal(ctx, 512);
    assert_true(temp == 0.5);
    assert_int_equal(n, 7);
    char *mirostat[] = {"p", "--mirostat-ent", "3", "--mirostat-lr=0.5", "--sampling-seq", "kt",
                        NULL};
    assert_int_equal(options_parse(rows, 6, mirostat, NULL, &why), 0);
    assert_true(tau == 3 && eta == 0.5);
    assert_string_equal(order, "kt");
    static const struct {
        const char *flag, *expected_text;
    } wrong[] = {
        {"--logit-bias", "--bias ID=B"},
        {"--samplers", "--order edskypmxt has a letter for each"},
        {"--dry-penalty-last-n", "0 all (there -1)"},
        {"--dry-sequence-breaker", "--dry-breaker TEXT"},
        {"--devcie", "did you mean --device?"},
        {"--tmep=1", "did you mean --temp?"},
        {"--temprature", "did you mean --temperature?"}, /* another program's name */
        {"-ngl", "moed places experts, not layers"},     /* and not -n with "gl" */
        {"--n-cpu-moe", "--device cuda,vram=SIZE"},
        {"-hf", "moed downloads no models"},
        {"--mmproj", "text only"},
        {"--main-gpu", "--device cuda:N"},
        {"--tensor-split", "a worker on each GPU"},
        {"-sm", "a worker on each GPU"},
        {"--numa", "NUMA nodes"}, /* and not --name */
        {"--prompt", "without an option"},
        {"--utterly-else", "see --help"},
        {"--More", "see --help"},
        {"-x", "see --help"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *arguments_wrong[] = {"p", (char *)wrong[i].flag, "9", NULL};
        assert_int_equal(options_parse(rows, 3, arguments_wrong, NULL, &why), ERROR_USAGE);
        if (!strstr(why.text, wrong[i].expected_text) || !strstr(why.text, wrong[i].flag))
            fail_msg("%s: %s", wrong[i].flag, why.text);
    }
    const char *http = NULL;
    const struct option_spec up[] = {{"http", OPTION_STRING, &http, 0, 0, "PORT", "a port"}, {0}};
    char *sampling[] = {"p", "--typical=0.6", NULL};
    assert_int_equal(options_parse(up, 2, sampling, NULL, &why), ERROR_USAGE);
    assert_non_null(strstr(why.text, "requests set this"));
    char text[2048];
    help_text(rows, text, sizeof text);
    assert_non_null(strstr(text, "\n\nMore:\n  --temp T"));
    char *version[] = {"p", "--version", NULL};
    assert_false(options_print_version("p", 1, version));
}

static void help_is_wanted(void **state)
{
    char *yes[] = {(char *)"p", (char *)"x", (char *)"--help", NULL};
    char *no[] = {(char *)"p", (char *)"--", (char *)"--help", NULL};
    assert_true(options_wants_help(3, yes));
    assert_false(options_wants_help(3, no));
}

/* The output of --config-dump is a file that gives the same values. */
static void a_dump_reads_back(void **state)
{
    char path[64];
    write_file(path, "");
    assert_int_equal(PARSE("--text", "x y", "--count", "3Gi", "--share", "0.1", "--loud"), 0);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    FILE *to = freopen(path, "w", stdout);
    options_print_values(table);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_non_null(to);
    assert_int_equal(PARSE("--config", path), 0);
    assert_string_equal(v.text, "x y");
    assert_true(v.count == 3221225472u);
    assert_true(v.share == 0.1);
    assert_true(v.loud);
    unlink(path);
}

/* Values of a file as a shell would hand them over, and back through a dump. */
static void quotes_and_home_in_a_file(void **state)
{
    static const struct {
        const char *line, *expected_text;
    } cases[] = {
        {"text = \"/a b/c.gguf\"\n", "/a b/c.gguf"},
        {"text = \"\"\n", ""},
        {"text = \"\n", "\""},
        {"text = say \"hi\"\n", "say \"hi\""},
        {"text = \"\"twice\"\"\n", "\"twice\""},
        {"text = ~/models/a.gguf\n", "/home/of/test/models/a.gguf"},
        {"text = \"~/a\"\n", "~/a"},
        {"text = ~other/a\n", "~other/a"},
    };
    setenv("HOME", "/home/of/test", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64];
        write_file(path, cases[i].line);
        assert_int_equal(PARSE("--config", path), 0);
        assert_string_equal(v.text, cases[i].expected_text);
        fflush(stdout);
        int saved = dup(STDOUT_FILENO);
        FILE *to = freopen(path, "w", stdout);
        options_print_values(table);
        fflush(stdout);
        dup2(saved, STDOUT_FILENO);
        close(saved);
        assert_non_null(to);
        assert_int_equal(PARSE("--config", path), 0);
        assert_string_equal(v.text, cases[i].expected_text);
        unlink(path);
    }
}

/* A deployment's options: each one that is given has its value as text again, and no other. */
static void options_of_a_deployment(void **state)
{
    enum { N = DEPLOYMENT_OPTIONS_COUNT };
    struct deployment_options o;
    struct option_spec specs[N + 1] = {{0}};
    char number[24];
    deployment_options_init(&o);
    for (size_t i = 0; i < N; i++) {
        assert_null(deployment_options_text(&deployment_options_table[i], &o, number));
        specs[i] = deployment_options_spec(deployment_options_table[i].flag + 2, &o, "");
    }
    for (size_t i = 0; i < N; i++) {
        bool is_switch = specs[i].type == OPTION_BOOL;
        char value[24] = "text", *argv[] = {"p", (char *)deployment_options_table[i].flag, value};
        if (specs[i].type == OPTION_UINT)
            snprintf(value, sizeof value, "%d", (int)specs[i].max);
        if (specs[i].type == OPTION_FLOAT) /* 0 is a value, as that is not "not given" */
            snprintf(value, sizeof value, "0");
        assert_int_equal(options_parse(specs, is_switch ? 2 : 3, argv, NULL, NULL), ERROR_OK);
        for (size_t k = 0; k < N; k++) {
            const char *text = deployment_options_text(&deployment_options_table[k], &o, number);
            if (k > i)
                assert_null(text);
            else if (k == i)
                assert_string_equal(text, is_switch ? "" : value);
            else
                assert_non_null(text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_of_every_type),
        cmocka_unit_test(suffixes_of_integers),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(wrong_flags),
        cmocka_unit_test(positional_arguments),
        cmocka_unit_test(a_file_and_flags_that_win),
        cmocka_unit_test(defaults_below_a_file),
        cmocka_unit_test(a_path_with_a_hash),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(some_of_a_file),
        cmocka_unit_test(other_names),
        cmocka_unit_test(help_is_wanted),
        cmocka_unit_test(long_help_is_wrapped),
        cmocka_unit_test(a_dump_reads_back),
        cmocka_unit_test(quotes_and_home_in_a_file),
        cmocka_unit_test(options_of_a_deployment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
