/* Fuzz target of the files that configure: any bytes as a file of options (--config), and as a
 * calibration. Strings of an options file live as long as the process, so the input is short. */
#include "calibration/calibration.h"
#include "daemon/options.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void read_options(char *path)
{
    const char *text = NULL, *config = NULL;
    uint64_t count = 5;
    double share = 0.5;
    bool yes = false;
    struct option_list list = {0};
    const struct option_spec table[] = {
        {"text", OPTION_STRING, &text, 0, 0, "T", "a text"},
        {"count", OPTION_UINT, &count, 1, 1000, "N", "a number"},
        {"share", OPTION_FLOAT, &share, 0, 1, "F", "a share"},
        {"Heading", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"yes", OPTION_BOOL, &yes, 0, 0, NULL, "a switch"},
        {"list", OPTION_LIST, &list, 0, 0, "L", "a list"},
        {"config", OPTION_STRING, &config, 0, 0, "FILE", "this file"},
        {0},
    };
    char name[] = "fuzz", flag[] = "--config";
    char *argv[] = {name, flag, path, NULL};
    struct error e = {0};
    enum error_code code = options_parse(table, 3, argv, NULL, &e);
    require(!code || (e.code == code && e.text[0] && !strchr(e.text, '\n')));
    require(code || (count >= 1 && count <= 1000 && share >= 0 && share <= 1));
    for (size_t i = 0; i < list.count; i++)
        require(list.items[i] != NULL);
    free(list.items);
}

static void read_calibration(const char *path)
{
    struct calibration c;
    struct error e = {0};
    enum error_code code = calibration_load_file(path, &c, &e);
    require(!code || (e.code == code && e.text[0] && !strchr(e.text, '\n')));
    if (code)
        return;
    require(c.device_side.n_points <= CALIBRATION_MAX_POINTS &&
            c.cpu_side.n_points <= CALIBRATION_MAX_POINTS);
    struct strbuf text;
    struct calibration again;
    strbuf_init(&text);
    calibration_write(&c, &text);
    require(!text.failed && calibration_parse(text.data, &again, &e) == ERROR_OK);
    require(calibration_same(&c, &again));
    strbuf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) { /* calibration_load_file follows no link, as those in /proc are */
        snprintf(path, sizeof path, "/dev/shm/moed-fuzz-config-%d", (int)getpid());
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        require(fd >= 0);
    }
    require(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    if (size < 512)
        read_options(path);
    read_calibration(path);
    return 0;
}

__attribute__((destructor)) static void remove_file(void)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/moed-fuzz-config-%d", (int)getpid());
    unlink(path);
}
