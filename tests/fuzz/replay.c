/* Runs every file of the directories (or the files) on the command line through a fuzz target,
 * without libFuzzer: a regression test for any compiler. Also runs each file cut to every length
 * and with every byte inverted, so that a small corpus covers much. With MOED_TEST_SHORT set, every
 * fifth length and byte of files over 2 KiB. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int files_run;

static void run_variants(uint8_t *data, size_t size)
{
    size_t step = size > 2048 && getenv("MOED_TEST_SHORT") ? 5 : 1;
    LLVMFuzzerTestOneInput(data, size);
    for (size_t i = 0; i < size; i += step) {
        uint8_t *cut = malloc(i ? i : 1); /* a copy, so that a sanitizer sees a read past the end */
        if (!cut)
            abort();
        memcpy(cut, data, i);
        LLVMFuzzerTestOneInput(cut, i);
        free(cut);
        data[i] ^= 0xff;
        LLVMFuzzerTestOneInput(data, size);
        data[i] ^= 0xff;
    }
}

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)ftell(f);
    uint8_t *data = malloc(size ? size : 1);
    rewind(f);
    if (!data || fread(data, 1, size, f) != size) {
        perror(path);
        return 1;
    }
    fclose(f);
    run_variants(data, size);
    free(data);
    files_run++;
    return 0;
}

static int run_path(const char *path)
{
    struct stat st;
    char file[4096];
    int failed = 0;
    if (stat(path, &st) != 0) {
        perror(path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path);
    DIR *d = opendir(path);
    if (!d) {
        perror(path);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(d));)
        if (entry->d_name[0] != '.') {
            snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
            failed |= run_path(file);
        }
    closedir(d);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= run_path(argv[i]);
    printf("%d inputs, each with all its cuts and inversions\n", files_run);
    return failed || files_run == 0;
}
