/* moed resize: asks memd to change how much of the device's memory experts have, and waits until
 * memd has done it. */
#include "base/quantity.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "daemon/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RESIZE_TIMEOUT_MS 5000
#define LOOK_NS           20000000
#define SILENT_LOOKS      25 /* before it prints the reason for waiting */

/* vram "": asks for the state only. */
static enum error_code call(const char *run, const char *vram, Moed__V1__Reply **reply,
                            struct error *e)
{
    Moed__V1__ResizeRequest resize = MOED__V1__RESIZE_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    resize.vram = (char *)vram;
    request.body_case = MOED__V1__REQUEST__BODY_RESIZE;
    request.resize = &resize;
    return control_call(run, "memd", &request, MOED__V1__REPLY__BODY_RESIZE, RESIZE_TIMEOUT_MS,
                        reply, e);
}

/* Prints a reason to wait, unless it was the last one printed. */
static void report_wait(const char *waits, char reported[80])
{
    if (!waits[0] || strcmp(waits, reported) == 0)
        return;
    snprintf(reported, 80, "%s", waits);
    fprintf(stderr, "moed: resize: waiting %s\n", waits);
}

/* Waits until the resize of that number is over. The caller owns *last. */
static enum error_code await_end(const char *run, uint64_t number, Moed__V1__Reply **last,
                                 struct error *e)
{
    char reported[80] = "";
    for (int looks = 0;; looks++) {
        enum error_code code = call(run, "", last, e);
        if (code)
            return code;
        const Moed__V1__ResizeReply *now = (*last)->resize;
        if (now->number == number && !now->busy && !now->failed[0])
            return ERROR_OK;
        if (now->number < number)
            error_set(e, ERROR_UNAVAILABLE, "memd was restarted");
        else if (now->number > number)
            error_set(e, ERROR_CANCELLED, "another resize has taken its place");
        else if (!now->busy)
            error_set(e, ERROR_MEMORY, "%s", now->failed);
        else if (looks >= SILENT_LOOKS)
            report_wait(now->waits, reported);
        bool over = now->number != number || !now->busy;
        moed__v1__reply__free_unpacked(*last, NULL);
        *last = NULL;
        if (over)
            return e->code;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

static void print_side(const Moed__V1__ResizeReply *r)
{
    char experts[24], kv[24];
    quantity_format_bytes(r->expert_bytes, experts);
    quantity_format_bytes(r->kv_bytes, kv);
    printf("experts %s, %.0f %% of them", experts,
           r->total_slots ? 100.0 * (double)r->slots / (double)r->total_slots : 0);
    if (r->has_kv)
        printf(", KV cache %s", kv);
}

/* after NULL: the resize is still under way. */
static void print_line(const Moed__V1__ResizeReply *before, const Moed__V1__ResizeReply *after)
{
    print_side(before);
    printf(" -> ");
    if (after)
        print_side(after);
    else
        printf("under way");
    printf("\n");
}

static enum error_code resize(const char *run, const char *vram, bool no_wait, struct error *e)
{
    Moed__V1__Reply *before = NULL, *after = NULL;
    enum error_code code = call(run, vram, &before, e);
    if (!code && !no_wait)
        code = await_end(run, before->resize->number, &after, e);
    if (!code)
        print_line(before->resize, after ? after->resize : NULL);
    if (before)
        moed__v1__reply__free_unpacked(before, NULL);
    if (after)
        moed__v1__reply__free_unpacked(after, NULL);
    return code;
}

int resize_main(int argc, char **argv)
{
    const char *name = NULL, *vram = NULL;
    bool no_wait = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"vram", OPTION_STRING, &vram, 0, 0, "SIZE",
         "give experts SIZE: " QUANTITY_SIZE " or a share of the routed experts (25%)"},
        {"no-wait", OPTION_BOOL, &no_wait, 0, 0, NULL, "return at once, while memd goes on"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "resize", "--vram SIZE [OPTION]...",
            "Gives experts more or less of the device's memory, while serving, and prints the\n"
            "sizes before and after. The KV cache gets the rest, up to what --parallel\n"
            "requests of --ctx tokens take. More memory for experts waits until requests end,\n"
            "where their KV cache is in the way. A new resize replaces one under way.",
            argc, argv, 0, 0, &n, &exit_code))
        return exit_code;
    if (!vram || !vram[0]) {
        cli_complain("resize: give --vram SIZE");
        return CLI_USAGE;
    }
    char run[RUN_DIR_BYTES];
    if (!deployment_find_running(name, run, &exit_code))
        return exit_code;
    struct error e = {0};
    enum error_code code = resize(run, vram, no_wait, &e);
    if (!code)
        return CLI_OK;
    cli_complain("resize: %s", e.text);
    return code == ERROR_USAGE ? CLI_USAGE : CLI_FAILURE;
}
