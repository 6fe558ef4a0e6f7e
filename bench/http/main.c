/* bench-http: what HTTP adds to libmoed, and what waiting streams cost; bench/http.sh runs it.
 *
 * Rounds alternate: libmoed, HTTP, libmoed, HTTP. The two halves of libmoed's own rounds are
 * compared too: what they differ by is the noise of the machine. */
#include "idle.h"
#include "streams.h"
#include "ways.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

struct bench {
    unsigned port;
    uint32_t rounds;
    struct round_plan plan;
    struct idle_plan idle;
};

static void usage(void)
{
    fprintf(stderr,
            "usage: bench-http --port PORT [--rounds N] [--streams N] [--generate N]\n"
            "                  [--spacing MS] [--idle N --http PID --worker PID [--wait S]]\n");
    exit(2);
}

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*end || end == text || v < least || v > most) {
        fprintf(stderr, "bench-http: %s is not a number of %u to %u\n", text, least, most);
        exit(2);
    }
    return (uint32_t)v;
}

static void parse(struct bench *b, int argc, char **argv)
{
    static const struct option longs[] = {
        {"port", 1, 0, 'p'},    {"rounds", 1, 0, 'r'},
        {"streams", 1, 0, 's'}, {"generate", 1, 0, 'g'},
        {"spacing", 1, 0, 'm'}, {"idle", 1, 0, 'i'},
        {"http", 1, 0, 'h'},    {"worker", 1, 0, 'w'},
        {"wait", 1, 0, 't'},    {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'p':
            b->port = number(optarg, 1, 65535);
            break;
        case 'r':
            b->rounds = number(optarg, 0, 10000);
            break;
        case 's':
            b->plan.streams = number(optarg, 1, STREAMS_MAX);
            break;
        case 'g':
            b->plan.generate = number(optarg, 2, 100000);
            break;
        case 'm':
            b->plan.spacing_ms = number(optarg, 0, 1000);
            break;
        case 'i':
            b->idle.streams = number(optarg, 1, 20000);
            break;
        case 'h':
            b->idle.http = (pid_t)number(optarg, 2, 1u << 30);
            break;
        case 'w':
            b->idle.worker = (pid_t)number(optarg, 2, 1u << 30);
            break;
        case 't':
            b->idle.wait_s = number(optarg, 1, 600);
            break;
        default:
            usage();
        }
    b->idle.port = b->port;
    if (!b->port || optind != argc || (b->idle.streams && (!b->idle.http || !b->idle.worker)))
        usage();
}

static void print(const char *name, struct timings *t)
{
    printf("%-22s %8.2f %8.2f %8.2f %8.2f %9zu\n", name, samples_quantile(&t->first, 0.5),
           samples_quantile(&t->first, 0.99), samples_quantile(&t->between, 0.5),
           samples_quantile(&t->between, 0.99), t->first.count + t->between.count);
}

/* The ways' arrivals, over all rounds; libmoed's also by odd and even round. */
static bool measure(struct bench *b, struct moed_session *session)
{
    struct way library = way_libmoed(session), http = way_http(&b->port);
    struct timings halves[2] = {0}, whole[2] = {0};
    bool good = true;
    for (uint32_t r = 0; r < b->rounds && good; r++) {
        b->plan.seed = 2 * r + 1; /* no prompt is in the cache */
        size_t first = halves[r % 2].first.count, between = halves[r % 2].between.count;
        good = round_run(&b->plan, &library, &halves[r % 2]);
        timings_add(&whole[0], &halves[r % 2], first, between);
        b->plan.seed++;
        good = good && round_run(&b->plan, &http, &whole[1]);
    }
    if (good && b->rounds) {
        printf("%-22s %8s %8s %8s %8s %9s\n", "ms", "first50", "first99", "between50", "between99",
               "arrivals");
        print("libmoed", &whole[0]);
        print("http", &whole[1]);
        print("libmoed, even rounds", &halves[0]);
        print("libmoed, odd rounds", &halves[1]);
    }
    for (int i = 0; i < 2; i++) {
        timings_free(&halves[i]);
        timings_free(&whole[i]);
    }
    return good;
}

static bool measure_idle(const struct idle_plan *plan)
{
    struct idle_cost cost;
    if (!idle_measure(plan, &cost))
        return false;
    printf("%u waiting streams: %.1f kB of resident memory each, %.2f %% of a core\n",
           plan->streams, cost.bytes / 1000, cost.cpu_percent);
    return true;
}

int main(int argc, char **argv)
{
    struct bench b = {
        .rounds = 10,
        .plan = {.streams = 64, .prompt_tokens = 16, .generate = 32, .spacing_ms = 5},
        .idle = {.wait_s = 10},
    };
    struct moed_session *session;
    struct moed_model *model;
    struct moed_error error;
    parse(&b, argc, argv);
    if (moed_attach(NULL, &session, &error) || moed_model_get(session, &model, &error)) {
        fprintf(stderr, "bench-http: %s\n", error.message);
        return 1;
    }
    b.plan.vocab = model->vocab;
    moed_model_free(model);
    bool good = measure(&b, session);
    moed_detach(session);
    if (good && b.idle.streams)
        good = measure_idle(&b.idle);
    return good ? 0 : 1;
}
