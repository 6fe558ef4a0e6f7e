/* Metrics of answers; see answer_metrics.h. */
#include "client/http/api/answer_metrics.h"

static const double first_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                      0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                      20,    40,    80,   160,  640,  2560};
static const double between_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                        0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double whole_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,  15,
                                      20,  30,  40,  50, 60,  120, 240, 480, 960, 1920};
#define COUNT(bounds) (sizeof(bounds) / sizeof *(bounds))

void answer_metrics_register(struct answer_metrics *m, struct metrics *r)
{
    static const char *const reasons[6] = {"reason=\"none\"",    "reason=\"end\"",
                                           "reason=\"stop\"",    "reason=\"length\"",
                                           "reason=\"context\"", "reason=\"cancelled\""};
    m->tokens_in = metrics_counter(r, "moed_http_prompt_tokens_total", NULL, 1,
                                   "tokens of the prompts of ended answers, each prompt once");
    m->tokens_out =
        metrics_counter(r, "moed_http_generation_tokens_total", NULL, 1, "tokens of ended answers");
    for (int i = 0; i < 6; i++)
        m->ended[i] =
            metrics_counter(r, "moed_http_answers_total", reasons[i], 1,
                            "ended answers by why they ended; each choice of a request is one");
    m->failed = metrics_counter(
        r, "moed_http_failed_answers_total", NULL, 1,
        "answers with a status from 500 on that were not refused, and streams that broke");
    m->refused = metrics_counter(
        r, "moed_http_refused_answers_total", NULL, 1,
        "requests refused because too many run or wait, with 429 or, by the worker, 503");
    m->running = metrics_gauge(r, "moed_http_answers_running", NULL,
                               "answers that wait or are being generated");
    m->first_token =
        metrics_histogram(r, "moed_http_time_to_first_token_seconds", NULL, first_bounds,
                          COUNT(first_bounds), "time from a request's headers to its first token");
    m->between_tokens =
        metrics_histogram(r, "moed_http_inter_token_latency_seconds", NULL, between_bounds,
                          COUNT(between_bounds), "time between an answer's tokens");
    m->whole = metrics_histogram(r, "moed_http_answer_duration_seconds", NULL, whole_bounds,
                                 COUNT(whole_bounds), "time from headers to the end of the answer");
}
