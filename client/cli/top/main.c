/* moed top: what a deployment does, on the whole terminal, again and again; --once prints it. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/top/screen.h"

#include "base/clock.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIN_INTERVAL_S 0.25
#define MAX_INTERVAL_S 60
#define LIST_S         5   /* how often the deployments are listed, which looks at every process */
#define ONCE_WINDOW_MS 300 /* between the two samples that --once takes its rates from */

/* ---- The deployments ---- */

enum { MAX_DEPLOYMENTS = 64 };

struct place {
    char name[64], run[RUN_DIR_BYTES];
};

struct top {
    struct place places[MAX_DEPLOYMENTS];
    unsigned n_places;
    char run[RUN_DIR_BYTES]; /* of the chosen one */
    char name[64];
    struct view view;
    struct sample now, before;
    bool has_before;
    double listed_s; /* when list_places was called */
};

static void visit(void *arg, const char *name, const char *run)
{
    struct top *t = arg;
    if (t->n_places == MAX_DEPLOYMENTS || !deployment_has_processes(run))
        return;
    struct place *p = &t->places[t->n_places++];
    snprintf(p->name, sizeof p->name, "%.63s", name);
    snprintf(p->run, sizeof p->run, "%s", run);
}

static void list_places(struct top *t)
{
    t->n_places = 0;
    t->listed_s = clock_s();
    run_dir_list(visit, t, NULL);
    if (!getenv("MOED_RUN"))
        deployment_list_elsewhere(visit, t);
    t->view.deployments = t->n_places;
    t->view.chosen = 0;
    for (unsigned i = 0; i < t->n_places; i++)
        if (strcmp(t->places[i].run, t->run) == 0)
            t->view.chosen = i + 1;
}

static void choose(struct top *t, unsigned i)
{
    if (i >= t->n_places || strcmp(t->places[i].run, t->run) == 0)
        return;
    memcpy(t->run, t->places[i].run, sizeof t->run);
    memcpy(t->name, t->places[i].name, sizeof t->name);
    t->has_before = false;
    t->now.n_processes = 0;
    t->view.chosen = i + 1;
}

static void choose_next(struct top *t, int step)
{
    list_places(t);
    if (t->n_places)
        choose(t, (t->view.chosen + t->n_places - 1 + (unsigned)(step + (int)t->n_places)) %
                      t->n_places);
}

/* The deployment to begin with: the named one, "default", else the first. */
static int choose_first(struct top *t, const char *name, bool only)
{
    int exit_code = CLI_OK;
    if (name || getenv("MOED_RUN") || only) {
        if (!deployment_find_running(name, t->run, &exit_code))
            return exit_code;
        list_places(t);
        snprintf(t->name, sizeof t->name, "%.63s",
                 t->view.chosen ? t->places[t->view.chosen - 1].name
                 : name         ? name
                                : "default");
        return CLI_OK;
    }
    list_places(t);
    if (!t->n_places)
        return deployment_not_running(NULL);
    unsigned first = 0;
    for (unsigned i = 0; i < t->n_places; i++)
        if (strcmp(t->places[i].name, "default") == 0)
            first = i;
    choose(t, first);
    return CLI_OK;
}

/* ---- Samples ---- */

static void look(struct top *t)
{
    if (t->now.n_processes && strcmp(t->now.run, t->run) == 0) {
        t->before = t->now;
        t->has_before = true;
    }
    sample_take(&t->now, t->name, t->run);
}

static const struct sample *before(const struct top *t)
{
    return t->has_before ? &t->before : NULL;
}

/* ---- Once ---- */

static void print_page(const struct top *t)
{
    struct view_page page;
    view_draw(&t->view, &t->now, before(t), &page);
    for (unsigned i = 0; i < page.n; i++)
        printf("%s\n", page.text[i].len ? page.text[i].data : "");
    view_fini(&page);
}

static int print_once(struct top *t, bool json)
{
    struct strbuf text;
    look(t);
    nanosleep(&(struct timespec){.tv_nsec = ONCE_WINDOW_MS * 1000000l}, NULL);
    look(t);
    if (!json) {
        print_page(t);
        return CLI_OK;
    }
    strbuf_init(&text);
    view_json(&t->now, before(t), &text);
    bool printed = !text.failed && ask_print(text.data, text.len);
    strbuf_fini(&text);
    return printed ? CLI_OK : CLI_FAILURE;
}

/* ---- On the terminal ---- */

static void show(struct top *t)
{
    struct view_page page;
    screen_size(&t->view.width, &t->view.height);
    view_draw(&t->view, &t->now, before(t), &page);
    screen_show(&page);
    view_fini(&page);
}

static void change_interval(struct view *v, double factor)
{
    double next = v->interval_s * factor;
    v->interval_s = next < MIN_INTERVAL_S   ? MIN_INTERVAL_S
                    : next > MAX_INTERVAL_S ? MAX_INTERVAL_S
                                            : next;
}

/* False: quit. */
static bool obey(struct top *t, int key, bool *look_now)
{
    struct view *v = &t->view;
    char chosen[RUN_DIR_BYTES];
    memcpy(chosen, t->run, sizeof chosen);
    if (key == 'q' || key == SCREEN_ENDED)
        return false;
    if (key == 's')
        v->sort = (v->sort + 1) % SORT_KEYS;
    else if (key == 'p' || key == ' ')
        v->paused = !v->paused;
    else if (key == '?' || key == 'h')
        v->help = !v->help;
    else if (key == 'd' || key == '\t' || key == 'D')
        choose_next(t, key == 'D' ? -1 : 1);
    else if (key >= '1' && key <= '9')
        choose(t, (unsigned)(key - '1'));
    else if (key == '+' || key == '=')
        change_interval(v, 0.5);
    else if (key == '-')
        change_interval(v, 2);
    *look_now = strcmp(chosen, t->run) != 0;
    return true;
}

static void watch(struct top *t)
{
    double due_s = 0;
    for (bool look_now = false;;) {
        double now_s = clock_s();
        if (look_now || (!t->view.paused && now_s >= due_s)) {
            if (now_s - t->listed_s >= LIST_S)
                list_places(t);
            look(t);
            due_s = now_s + t->view.interval_s;
            look_now = false;
        }
        show(t);
        double left_s = t->view.paused ? MAX_INTERVAL_S : due_s - clock_s();
        int key = screen_key(left_s > 0 ? (int)(left_s * 1000) + 1 : 0);
        if (!obey(t, key, &look_now))
            return;
    }
}

static int on_terminal(struct top *t)
{
    if (!screen_is_built()) {
        cli_complain("top: this moed was built without ncurses (package libncurses-dev): moed top "
                     "--once prints the figures once");
        return CLI_FAILURE;
    }
    if (!screen_open())
        return CLI_FAILURE;
    t->view.keys = true;
    watch(t);
    screen_close();
    return CLI_OK;
}

int top_main(int argc, char **argv)
{
    static struct top top; /* large */
    const char *name = NULL;
    bool once = false, json = false;
    double interval_s = 1;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"once", OPTION_BOOL, &once, 0, 0, NULL, "print the figures once"},
        {"json", OPTION_BOOL, &json, 0, 0, NULL, "with --once: print a JSON object"},
        {"interval", OPTION_FLOAT, &interval_s, MIN_INTERVAL_S, MAX_INTERVAL_S, "S",
         "look every S seconds"},
        {0},
    };
    int exit_code;
    if (!ask_arguments(
            table, "top", "[--once [--json]] [--name NAME]",
            "Shows what a deployment does: processes, requests, tokens/s, caches, link.\n"
            "Keys: q quit, s sort, p pause, d next deployment, ? help.",
            argc, argv, 0, 0, NULL, &exit_code))
        return exit_code;
    if (json && !once) {
        cli_complain("top: --json goes with --once");
        return CLI_USAGE;
    }
    setlocale(LC_CTYPE, "");
    exit_code = choose_first(&top, name, once);
    if (exit_code)
        return exit_code;
    top.view = (struct view){.width = 80,
                             .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                             .interval_s = interval_s,
                             .deployments = top.n_places,
                             .chosen = top.view.chosen};
    return once ? print_once(&top, json) : on_terminal(&top);
}
