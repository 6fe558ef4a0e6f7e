/* Promised memory; see kv_promises.h. */
#include "daemon/kv_promises.h"

#include "daemon/control.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ASK_TIMEOUT_MS 500

struct search {
    struct kv_promises *list;
    const char *own;
};

static bool same_directory(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_ino == of_b.st_ino &&
           of_a.st_dev == of_b.st_dev;
}

static bool is_own(const char *run, const char *own)
{
    char place[RUN_DIR_BYTES];
    for (unsigned i = 0; own && i < RUN_PLACES; i++)
        if (run_dir_place(run, i, place) && same_directory(place, own))
            return true;
    return false;
}

static void visit(void *arg, const char *name, const char *run)
{
    struct search *s = arg;
    (void)name;
    if (s->list->n < KV_PROMISES_MOST && !is_own(run, s->own))
        snprintf(s->list->runs[s->list->n++], RUN_DIR_BYTES, "%s", run);
}

void kv_promises_list(struct kv_promises *p, const char *own)
{
    struct search s = {p, own};
    p->n = 0;
    run_dir_list(visit, &s, NULL); /* what cannot be listed is not counted */
}

uint64_t kv_promises_bytes(const struct kv_promises *p)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < p->n; i++) {
        Moed__V1__Reply *reply;
        if (control_health(p->runs[i], "memd", ASK_TIMEOUT_MS, &reply, NULL))
            continue;
        bytes += reply->health->kv_promised_bytes;
        moed__v1__reply__free_unpacked(reply, NULL);
    }
    return bytes;
}
