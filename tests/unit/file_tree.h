/* A made-up tree of the kernel's files, for code that takes the folder that has proc and sys. */
#ifndef MOED_TESTS_FILE_TREE_H
#define MOED_TESTS_FILE_TREE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/moed-test-root.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Writes a line, or several, to a file of the tree, and makes its folders. */
static void put(const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, file);
    for (char *c = path + strlen(root) + 1; (c = strchr(c, '/')); c++) {
        *c = '\0';
        mkdir(path, 0700);
        *c = '/';
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    fclose(f);
}

#endif
