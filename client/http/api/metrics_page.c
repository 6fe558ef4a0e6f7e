/* GET /metrics: the frontend's own; with ?process=all those of every process behind it, each with
 * the labels deployment and process. */
#include "client/http/api/app.h"
#include "client/http/api/state.h"
#include "daemon/daemon.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"
#include "metrics/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

#define N_PROCESSES (SUPERVISE_PROCESSES - 1) /* all but http, which comes last */

struct page;

/* The processes of one deployment, asked on its thread; or moed-models, asked on the thread for it.
 */
struct part {
    struct job job; /* first */
    struct job_queue *queue;
    struct page *page;
    const char *name;         /* of the deployment */
    char *texts[N_PROCESSES]; /* NULL: it did not answer, or there is none */
    struct part *next;
};

struct page {
    struct exchange *x; /* NULL: the client has left */
    struct part *parts;
    unsigned waiting;
};

static bool runs(const char *deployment, const char *process)
{
    char run[RUN_DIR_BYTES];
    return run_dir_path(deployment, run, NULL) == ERROR_OK && run_dir_hint(run, process);
}

static void part_work(struct job *job)
{
    struct part *p = (struct part *)job;
    struct moed_error error;
    for (size_t i = 0; i < N_PROCESSES; i++)
        if (!runs(p->name, supervise_process_names[i]) ||
            moed_metrics(p->name, supervise_process_names[i], &p->texts[i], &error))
            p->texts[i] = NULL;
}

static void free_page(struct page *page)
{
    for (struct part *p = page->parts, *next; p; p = next) {
        next = p->next;
        for (size_t i = 0; i < N_PROCESSES; i++)
            moed_free(p->texts[i]);
        free(p);
    }
    free(page);
}

static void own(const struct exchange *x, struct strbuf *out)
{
    metrics_render(app_of(x)->daemon->metrics, out);
}

static void write_page(struct page *page)
{
    struct metrics_merge m;
    struct strbuf mine;
    char labels[128];
    metrics_merge_init(&m);
    strbuf_init(&mine);
    own(page->x, &mine);
    if (mine.data && !mine.failed)
        metrics_merge_add(&m, mine.data, "process=\"http\"");
    for (const struct part *p = page->parts; p; p = p->next)
        for (size_t i = 0; i < N_PROCESSES; i++) {
            snprintf(labels, sizeof labels, "deployment=\"%s\",process=\"%s\"", p->name,
                     supervise_process_names[i]);
            if (p->texts[i])
                metrics_merge_add(&m, p->texts[i], labels);
        }
    metrics_merge_write(&m, &page->x->out);
    strbuf_fini(&mine);
    metrics_merge_fini(&m);
    exchange_reply(page->x, 200, METRICS_TYPE);
}

static void end_if_complete(struct page *page)
{
    if (page->waiting)
        return;
    if (page->x)
        write_page(page);
    free_page(page);
}

static void part_done(struct job *job)
{
    struct page *page = ((struct part *)job)->page;
    page->waiting--;
    end_if_complete(page);
}

static void on_left(struct exchange *x)
{
    struct page *page = x->work;
    page->x = NULL;
    for (struct part *p = page->parts; p; p = p->next)
        page->waiting -= jobs_withdraw(p->queue, &p->job);
    end_if_complete(page);
}

static void start_part(struct page *page, const char *name, struct job_queue *queue)
{
    struct part *p = calloc(1, sizeof *p);
    if (!p)
        return; /* the page lacks it */
    *p = (struct part){.job = {.work = part_work, .done = part_done},
                       .queue = queue,
                       .page = page,
                       .name = name,
                       .next = page->parts};
    page->parts = p;
    page->waiting++;
    jobs_post(queue, &p->job);
}

static bool is_listed(const struct deployments *all, const char *name)
{
    for (unsigned i = 0; i < all->count; i++)
        if (all->items[i]->running && strcmp(all->items[i]->name, name) == 0)
            return true;
    return false;
}

static void start_page(struct exchange *x)
{
    struct deployments *all = &app_of(x)->deployments;
    struct page *page = calloc(1, sizeof *page);
    if (!page) {
        struct problem p;
        problem_fill(&p, 503, "no memory for the metrics");
        exchange_fail(x, &p);
        return;
    }
    page->x = x;
    x->work = page;
    x->left = on_left;
    deployments_look(all);
    for (unsigned i = 0; i < all->count; i++)
        if (all->items[i]->running)
            start_part(page, all->items[i]->name, &all->items[i]->queue);
    if (all->demand.enabled && !is_listed(all, all->own))
        start_part(page, all->own, &all->demand.queue);
    end_if_complete(page);
}

void handle_metrics(struct exchange *x)
{
    const char *which = exchange_query(x, "process");
    if (which && strcmp(which, "all") == 0) {
        start_page(x);
        return;
    }
    own(x, &x->out);
    exchange_reply(x, 200, METRICS_TYPE);
}
