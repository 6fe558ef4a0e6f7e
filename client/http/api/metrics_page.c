/* GET /metrics: the frontend's own; with ?process=all those of every process of all deployments, or
 * of ?deployment=NAME, too, each with the labels deployment and process. A thread of its own asks
 * them, for one page after the other. */
#include "client/http/api/app.h"
#include "client/http/api/state.h"
#include "client/http/watch/scrape.h"
#include "daemon/daemon.h"
#include "daemon/run_dir.h"
#include "metrics/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct page {
    struct job job;     /* first */
    struct exchange *x; /* NULL: the client has left */
    atomic_bool left;   /* it has */
    struct scrape_settings settings;
    struct metrics_merge merge;
    char only[RUN_LABEL_BYTES]; /* of the settings */
    bool unknown;               /* there is no such deployment */
};

static void free_page(struct page *page)
{
    metrics_merge_fini(&page->merge);
    free(page);
}

static void own(const struct exchange *x, struct strbuf *out)
{
    metrics_render(app_of(x)->daemon->metrics, out);
}

static void add_own(struct page *page)
{
    struct strbuf mine;
    char labels[128];
    strbuf_init(&mine);
    own(page->x, &mine);
    snprintf(labels, sizeof labels, "deployment=\"%s\",process=\"http\"", page->settings.own);
    if (mine.data && !mine.failed)
        metrics_merge_add(&page->merge, mine.data, labels);
    strbuf_fini(&mine);
}

static void page_work(struct job *job)
{
    struct page *page = (struct page *)job;
    page->unknown = !scrape(&page->settings, &page->merge);
}

static void refuse(struct exchange *x, const char *parameter, const char *value, const char *why)
{
    struct problem p;
    char message[128];
    snprintf(message, sizeof message, "%s=%.60s: %s", parameter, value, why);
    problem_refuse(&p, 400, parameter, message);
    exchange_fail(x, &p);
}

static void page_done(struct job *job)
{
    struct page *page = (struct page *)job;
    if (page->x && page->unknown) {
        refuse(page->x, "deployment", page->only, "there is none of this name");
    } else if (page->x) {
        metrics_merge_write(&page->merge, &page->x->out);
        exchange_reply(page->x, 200, METRICS_TYPE);
    }
    free_page(page);
}

static void on_left(struct exchange *x)
{
    struct page *page = x->work;
    page->x = NULL;
    atomic_store(&page->left, true);
    if (jobs_withdraw(&app_of(x)->scrapes, &page->job))
        free_page(page);
}

/* only: a deployment's name; NULL: all deployments. */
static void start_page(struct exchange *x, const char *only)
{
    struct deployments *all = &app_of(x)->deployments;
    struct page *page = calloc(1, sizeof *page);
    if (!page) {
        struct problem p;
        problem_fill(&p, 503, "no memory for the metrics");
        exchange_fail(x, &p);
        return;
    }
    deployments_look(all); /* for deployments_only_on_demand */
    page->job = (struct job){.work = page_work, .done = page_done};
    page->x = x;
    page->settings = (struct scrape_settings){.own = all->own,
                                              .own_run = all->own_run,
                                              .expects_own = !deployments_only_on_demand(all),
                                              .only = only ? page->only : NULL,
                                              .cancelled = &page->left};
    snprintf(page->only, sizeof page->only, "%s", only ? only : "");
    metrics_merge_init(&page->merge);
    x->work = page;
    x->left = on_left;
    if (!only || strcmp(only, all->own) == 0)
        add_own(page);
    jobs_post(&app_of(x)->scrapes, &page->job);
}

void handle_metrics(struct exchange *x)
{
    const char *which = exchange_query(x, "process"), *only = exchange_query(x, "deployment");
    if (which && strcmp(which, "all") == 0) {
        start_page(x, only);
        return;
    }
    if (which && strcmp(which, "http") != 0) {
        refuse(x, "process", which, "all or http");
        return;
    }
    if (only && strcmp(only, app_of(x)->deployments.own) != 0) {
        refuse(x, "deployment", only, "another deployment needs process=all");
        return;
    }
    own(x, &x->out);
    exchange_reply(x, 200, METRICS_TYPE);
}
