/* moed resize: how much of the device's memory is for experts, changed while serving. memd does it by itself; this
 * asks, and waits for the end. */
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
#define SILENT_LOOKS      25 /* before it is said what is waited for */

/* vram "": only ask. */
static enum error_code call(const char *run, const char *vram, Moed__V1__Reply **reply,
                            struct error *e)
{
    Moed__V1__ResizeRequest resize = MOED__V1__RESIZE_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    resize.vram = (char *)vram;
    request.body_case = MOED__V1__REQUEST__BODY_RESIZE;
    request.resize = &resize;
    return control_call(run, "memd", &request, MOED__V1__REPLY__BODY_RESIZE, RESIZE_TIMEOUT_MS, reply,
                        e);
}

/* Each reason once, as long as it lasts. */
static void say_wait(const char *waits, char said[80])
{
    if (!waits[0] || strcmp(waits, said) == 0)
        return;
    snprintf(said, 80, "%s", waits);
    fprintf(stderr, "moed: resize: waiting %s\n", waits);
}

/* Until the resize of that number is over. *last: owned by the caller. */
static enum error_code await_end(const char *run, uint64_t number, Moed__V1__Reply **last,
                                 struct error *e)
{
    char said[80] = "";
    for (int looks = 0;; looks++) {
        enum error_code code = call(run, "", last, e);
        if (code)
            return code;
        const Moed__V1__ResizeReply *now = (*last)->resize;
        if (now->number == number && !now->busy && !now->failed[0])
            return ERROR_OK;
        if (now->number < number)
            error_set(e, ERROR_UNAVAILABLE, "memd was started again meanwhile");
        else if (now->number > number)
            error_set(e, ERROR_CANCELLED, "another resize has taken its place");
        else if (!now->busy)
            error_set(e, ERROR_MEMORY, "%s", now->failed);
        else if (looks >= SILENT_LOOKS)
            say_wait(now->waits, said);
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

/* after NULL: it goes on. */
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
        {"name", OPTION_STRING, &name, 0, 0, "N", "the deployment"},
        {"vram", OPTION_STRING, &vram, 0, 0, "SIZE",
         "for experts: bytes (K, M, G, Ki, Mi, Gi) or a share of the routed experts, as 25%"},
        {"no-wait", OPTION_BOOL, &no_wait, 0, 0, NULL, "return at once: it goes on by itself"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(
            table, "resize", "--vram SIZE [OPTION]...",
            "Gives experts more or less of the device's memory, while serving; the KV cache has what "
            "is left, at most\nwhat --parallel requests of --ctx tokens take, at least what one takes. "
            "More for experts waits for\nrequests to end, where their KV cache is in the way. Another "
            "resize takes the place of one under way.\nPrints what was before, and what is.",
            argc, argv, 0, 0, &n, &exit_code))
        return exit_code;
    if (!vram || !vram[0]) {
        ask_complain("resize: give --vram SIZE");
        return CLI_USAGE;
    }
    char run[RUN_DIR_BYTES];
    if (!deployment_path(name, run))
        return CLI_USAGE;
    if (!deployment_has_processes(run))
        return deployment_not_running(name);
    struct error e = {0};
    enum error_code code = resize(run, vram, no_wait, &e);
    if (code)
        ask_complain("resize: %s", e.text);
    if (fflush(stdout) || code)
        return code == ERROR_USAGE ? CLI_USAGE : CLI_FAILURE;
    return CLI_OK;
}
