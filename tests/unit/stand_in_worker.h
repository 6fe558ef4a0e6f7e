/* A stand-in for a worker, in the test's own process, for the tests of clients. It computes
 * nothing. It speaks the session protocol over the real sockets, and breaks it if the prompt
 * requests that.
 *
 * Prompts of Generate:
 *   count N     N Tokens, number i with token i and text "i ", then Done; keeps to the window. Of a
 *               prompt of 7 tokens 2 were cached, or 6 where another's answer is continued; Done
 * says 6
 *   hold        one Tokens, then nothing until Cancel
 *   quiet       nothing until Cancel
 *   compute     Progress 1 of 2 if it was asked for, then nothing until Cancel
 *   late        Done, and after it Tokens and another Done
 *   error       Error, code LIMIT, no retry        error-retry  Error, UNAVAILABLE, retry
 *   error-code  Error with an unknown code
 *   flood       more Tokens than the window allows
 *   routing N   Routing of N tokens, 1, 2, 3, 1, 2, ... an event: token t chose t and t + 1, with probabilities t / 1024 and
 *               1/2, and its gate input is t; then Done. routing N D: the D-th field of the first
 * event is wrong
 *   probable W  Progress 1 of 2; Tokens 5 and 6 with log-probabilities -0.5 and -1.5, and as the
 *               top_logprobs at each the tokens 0, 1, ... with -0, -1, ...; then Done with the end
 *               token 9, of log-probability -2.5, and the same top_logprobs. W 1 to 4: that one of
 *               logprobs, top_tokens, top_logprobs is short, or logprobs and progress come though
 *               nobody asked. W 5 to 7: as 1, 2 and 4, of the end token
 *   garbage     bytes that are no message          wrong-abi, wrong-id, wrong-body, no-body
 * Logits: row r has `vocab` values r * 1000 + column. Token 666 spoils the order of rows, 667 the
 * length of a row. Logprobs: that of token i is -i / 4, in events of 1, 2, 3, 1, 2, ... values; a
 * first token 666 or 667 as above, 668 one too many. Tokenize gives a token a byte, then 1000 for
 * the begin token and 2000 for special ones parsed, and Detokenize the bytes back; text "quiet" no
 * answer. <|im_start|> and <|im_end|> are one token each where special ones are parsed (and no 2000
 * then), or with marks_everywhere in any text. */
#ifndef MOED_TESTS_STAND_IN_WORKER_H
#define MOED_TESTS_STAND_IN_WORKER_H

#include "daemon/run_dir.h"
#include "ipc/channel.h"
#include "ipc/rpc.h"

#include "control.pb-c.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STAND_IN_SESSIONS = 64, STAND_IN_JOBS = 64, STAND_IN_VOCAB = 320 };

struct stand_in_job {
    uint64_t id; /* 0: free */
    bool logits, logprobs, endless, cancelled;
    bool bad_order, bad_length, too_many;
    bool routing, gate;
    uint32_t hidden_every, hidden_phase, wrong; /* wrong: 0: nothing */
    uint32_t begin, next, total;                /* begin: of a continued answer */
    const char *text;                           /* the answer's; NULL: numbers */
    bool cut;                                   /* by max_tokens */
};

struct peer {
    struct stand_in *worker;
    struct channel *channel;
    int fd; /* the channel's */
    struct stand_in_job jobs[STAND_IN_JOBS];
    uint32_t sent, acknowledged, acks; /* events sent, acknowledged; Ack messages */
    uint32_t most_outstanding;
    uint32_t cancels, completes; /* completes: of the cancels */
    uint32_t generates, resumed; /* of those, that a worker that has gone was sent */
    uint64_t last_id;            /* of a Generate */
    bool disordered;             /* an older one came after it */
    bool closed;                 /* the library has gone */
    bool hung_up;                /* by stand_in_hang_up */
    Moed__V1__Generate *last;    /* as received */
};

struct stand_in {
    char run[RUN_DIR_BYTES];
    struct rpc_server *server;
    pthread_mutex_t lock; /* everything below, and what is in peers */
    uint32_t window;
    _Atomic uint64_t model; /* SessionAttachReply.model */
    unsigned n_peers;
    struct peer peers[STAND_IN_SESSIONS];
    char client[64];
    uint32_t pid;
    unsigned refused;    /* attempts to attach */
    const char *refusal; /* answer attaching with this Error */
    bool closes;         /* the next session's channel closes at once */
    bool babbles;        /* and brings a length that no message has */
    const char *chat_template;
    bool marks_everywhere;
    _Atomic bool stalls;      /* it reads nothing */
    _Atomic unsigned stalled; /* messages that wait for that to end */
    bool knows_no_rendered;   /* Generate.rendered: as a worker of an earlier release */
    uint32_t error_code;      /* to prompts of ids: this Error, no retry; 0: none */
    const char *answer;       /* to prompts of ids: this text, in tokens of answer_bytes bytes */
    uint32_t answer_bytes;
    uint32_t answer_tokens; /* in an event; 0: one */
};

static inline void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- Sending; the lock is held ---- */

static void peer_send(struct peer *p, uint64_t id, Moed__V1__FromWorker *body)
{
    uint8_t data[8192];
    body->abi = body->abi ? body->abi : CONTROL_ABI;
    body->id = id;
    if (moed__v1__from_worker__get_packed_size(body) > sizeof data)
        abort();
    size_t len = moed__v1__from_worker__pack(body, data);
    if (p->channel)
        channel_send(p->channel, data, len, NULL);
}

/* first: of this worker; cached: of its prompt's 7 tokens */
static void send_tokens(struct peer *p, uint64_t id, uint32_t number, bool first, uint32_t cached)
{
    char text[16];
    Moed__V1__Begun begun = MOED__V1__BEGUN__INIT;
    begun.prompt_tokens = 7;
    begun.cached_tokens = cached;
    Moed__V1__Tokens tokens = MOED__V1__TOKENS__INIT;
    tokens.n_tokens = 1;
    tokens.tokens = &number;
    tokens.text.len = (size_t)snprintf(text, sizeof text, "%u ", number);
    tokens.text.data = (uint8_t *)text;
    if (first)
        tokens.begun = &begun;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    body.tokens = &tokens;
    p->sent++;
    peer_send(p, id, &body);
}

static void send_row(struct peer *p, const struct stand_in_job *j)
{
    float values[STAND_IN_VOCAB];
    for (uint32_t i = 0; i < STAND_IN_VOCAB; i++)
        values[i] = (float)(j->next * 1000 + i);
    Moed__V1__LogitsRow row = MOED__V1__LOGITS_ROW__INIT;
    row.row = j->next + (j->bad_order && j->next == 1);
    row.logits.data = (uint8_t *)values;
    row.logits.len = sizeof values - (j->bad_length && j->next == 1);
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_LOGITS;
    body.logits = &row;
    p->sent++;
    peer_send(p, j->id, &body);
}

/* Returns the number of tokens in the message. */
static uint32_t send_logprobs(struct peer *p, const struct stand_in_job *j)
{
    float values[4];
    uint32_t n = 1 + p->sent % 3;
    if (n > j->total - j->next)
        n = j->total - j->next;
    for (uint32_t i = 0; i < n + j->too_many; i++)
        values[i] = -(float)(j->next + i) / 4;
    Moed__V1__Logprobs some = MOED__V1__LOGPROBS__INIT;
    some.first = j->next + j->bad_order;
    some.logprobs.data = (uint8_t *)values;
    some.logprobs.len = (n + j->too_many) * sizeof *values - j->bad_length;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_LOGPROBS;
    body.logprobs = &some;
    p->sent++;
    peer_send(p, j->id, &body);
    return n;
}

enum { STAND_IN_WRONG = 10 };

static void spoil_routing(Moed__V1__Routing *some, uint32_t how)
{
    switch (how) {
    case 1:
        some->first++;
        break;
    case 2:
        some->tokens = 0;
        break;
    case 3:
        some->selected.len = 0;
        break;
    case 4:
        some->selected.len--;
        break;
    case 5:
        some->gate.len = 6;
        break;
    case 6:
        some->n_hidden_at = 0; /* with gate inputs */
        break;
    case 7:
        some->hidden.len = 0; /* without them */
        break;
    case 8:
        some->hidden.len = 1;
        break;
    case 9:
        some->hidden_at[0] = some->tokens;
        break;
    case STAND_IN_WRONG:
        some->hidden_at[0] = UINT32_MAX;
        break;
    }
}

/* Returns the number of tokens in the message. */
static uint32_t send_routing(struct peer *p, struct stand_in_job *j)
{
    uint16_t selected[8], hidden[4];
    float gate[8];
    uint32_t hidden_at[4], n_hidden = 0, n = 1 + p->sent % 3;
    if (n > j->total - j->next)
        n = j->total - j->next;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = j->next + i;
        selected[2 * i] = (uint16_t)t;
        selected[2 * i + 1] = (uint16_t)(t + 1);
        gate[2 * i] = (float)t / 1024;
        gate[2 * i + 1] = 0.5f;
        if (j->hidden_every && t % j->hidden_every == j->hidden_phase) {
            hidden[n_hidden] = (uint16_t)t;
            hidden_at[n_hidden++] = t;
        }
    }
    Moed__V1__Routing some = MOED__V1__ROUTING__INIT;
    some.first = j->next;
    some.tokens = n;
    some.selected = (ProtobufCBinaryData){2 * n * sizeof *selected, (uint8_t *)selected};
    some.gate = (ProtobufCBinaryData){j->gate ? 2 * n * sizeof *gate : 0, (uint8_t *)gate};
    some.n_hidden_at = n_hidden;
    some.hidden_at = hidden_at;
    some.hidden = (ProtobufCBinaryData){n_hidden * sizeof *hidden, (uint8_t *)hidden};
    spoil_routing(&some, j->wrong);
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_ROUTING;
    body.routing = &some;
    p->sent++;
    peer_send(p, j->id, &body);
    return n;
}

static void send_done(struct peer *p, uint64_t id, Moed__V1__Done__Reason reason,
                      uint32_t generated)
{
    Moed__V1__Done done = MOED__V1__DONE__INIT;
    done.reason = reason;
    done.prompt_tokens = 7;
    done.cached_tokens = 6;
    done.generated_tokens = generated;
    done.queue_ns = 11;
    done.prefill_ns = 12;
    done.decode_ns = 13;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    body.done = &done;
    peer_send(p, id, &body);
}

static void send_progress(struct peer *p, uint64_t id)
{
    Moed__V1__Progress progress = MOED__V1__PROGRESS__INIT;
    progress.computed = 1;
    progress.prompt_tokens = 2;
    progress.ns = 3;
    progress.cached_tokens = 4;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_PROGRESS;
    body.progress = &progress;
    p->sent++;
    peer_send(p, id, &body);
}

static void send_probable(struct peer *p, uint64_t id, const Moed__V1__Generate *g, unsigned wrong)
{
    uint32_t ids[] = {5, 6}, top = g->top_logprobs, top_tokens[16];
    float values[] = {-0.5f, -1.5f}, top_values[16];
    for (uint32_t i = 0; i < 2 * top && i < 16; i++) {
        top_tokens[i] = i % top;
        top_values[i] = -(float)(i % top);
    }
    if (g->progress || wrong == 4)
        send_progress(p, id);
    Moed__V1__Tokens tokens = MOED__V1__TOKENS__INIT;
    tokens.n_tokens = 2;
    tokens.tokens = ids;
    tokens.logprobs.data = (uint8_t *)values;
    tokens.logprobs.len = (g->logprobs || wrong == 4 ? sizeof values : 0) - (wrong == 1);
    tokens.n_top_tokens = 2 * top - (wrong == 2);
    tokens.top_tokens = top_tokens;
    tokens.top_logprobs.data = (uint8_t *)top_values;
    tokens.top_logprobs.len = 2 * top * sizeof *top_values - 4 * (wrong == 3);
    tokens.mirostat_mu = 2.5f;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    body.tokens = &tokens;
    p->sent++;
    peer_send(p, id, &body);
    Moed__V1__Done done = MOED__V1__DONE__INIT;
    done.reason = MOED__V1__DONE__REASON__END;
    done.end_token = 9;
    done.stop_index = -1;
    float end_value = -2.5f;
    Moed__V1__Logprobs end = MOED__V1__LOGPROBS__INIT;
    end.logprobs = (ProtobufCBinaryData){sizeof end_value - (wrong == 5), (uint8_t *)&end_value};
    end.n_top_tokens = top - (wrong == 6);
    end.top_tokens = top_tokens;
    end.top_logprobs = (ProtobufCBinaryData){top * sizeof *top_values, (uint8_t *)top_values};
    if (g->logprobs || wrong == 7)
        done.end_logprobs = &end;
    body = (Moed__V1__FromWorker)MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    body.done = &done;
    peer_send(p, id, &body);
}

static void send_error_text(struct peer *p, uint64_t id, uint32_t code, bool retry,
                            const char *text)
{
    Moed__V1__Error error = MOED__V1__ERROR__INIT;
    error.code = code;
    error.retry = retry;
    error.message = (char *)text;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_ERROR;
    body.error = &error;
    peer_send(p, id, &body);
}

static void send_error(struct peer *p, uint64_t id, uint32_t code, bool retry)
{
    send_error_text(p, id, code, retry, "the stand-in\nrefuses");
}

/* The next tokens of the answer. Returns how many. */
static uint32_t send_text(struct peer *p, const struct stand_in_job *j)
{
    size_t each = p->worker->answer_bytes, at = j->next * each, left = strlen(j->text) - at;
    uint32_t ids[64], bytes[64], n = p->worker->answer_tokens, len = 0;
    n = !n ? 1 : n < j->total - j->next ? n : j->total - j->next;
    n = n < 64 ? n : 64;
    for (uint32_t i = 0; i < n; i++, len += bytes[i - 1]) {
        ids[i] = j->next + i;
        bytes[i] = (uint32_t)(left - len < each ? left - len : each);
    }
    Moed__V1__Tokens tokens = MOED__V1__TOKENS__INIT;
    tokens.n_tokens = tokens.n_token_bytes = n;
    tokens.tokens = ids;
    tokens.token_bytes = bytes;
    tokens.text = (ProtobufCBinaryData){len, (uint8_t *)j->text + at};
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    body.tokens = &tokens;
    p->sent++;
    peer_send(p, j->id, &body);
    return n;
}

static void job_step(struct peer *p, struct stand_in_job *j)
{
    if (!j->cancelled && j->next < j->total) {
        if (j->routing) {
            j->next += send_routing(p, j);
        } else if (j->logprobs) {
            j->next += send_logprobs(p, j);
        } else {
            uint32_t n = 1;
            if (j->logits)
                send_row(p, j);
            else if (j->text)
                n = send_text(p, j);
            else
                send_tokens(p, j->id, j->next, j->next == j->begin, j->begin ? 6 : 2);
            j->next += n;
        }
    }
    bool over = j->cancelled || (!j->endless && j->next == j->total);
    if (!over)
        return;
    Moed__V1__Done__Reason reason = j->cancelled         ? MOED__V1__DONE__REASON__CANCELLED
                                    : j->logits          ? MOED__V1__DONE__REASON__NONE
                                    : j->text && !j->cut ? MOED__V1__DONE__REASON__END
                                                         : MOED__V1__DONE__REASON__LENGTH;
    send_done(p, j->id, reason, j->next);
    *j = (struct stand_in_job){0};
}

/* One event of each job in turn, as far as the window goes. */
static void pump(struct peer *p)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < STAND_IN_JOBS; i++) {
            struct stand_in_job *j = &p->jobs[i];
            bool can = j->id && (j->cancelled || j->next < j->total || (!j->endless && !j->total));
            bool free_to_send = j->cancelled || p->sent - p->acknowledged < p->worker->window;
            if (!can || !free_to_send)
                continue;
            job_step(p, j);
            moved = true;
            if (p->sent - p->acknowledged > p->most_outstanding)
                p->most_outstanding = p->sent - p->acknowledged;
        }
    }
}

static struct stand_in_job *job_new(struct peer *p, uint64_t id)
{
    for (int i = 0; i < STAND_IN_JOBS; i++)
        if (!p->jobs[i].id) {
            p->jobs[i] = (struct stand_in_job){.id = id};
            return &p->jobs[i];
        }
    abort();
}

/* ---- Messages that come; the lock is held ---- */

static void misbehave(struct peer *p, uint64_t id, const char *how)
{
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    Moed__V1__TokenizeReply reply = MOED__V1__TOKENIZE_REPLY__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENIZE;
    body.tokenize = &reply;
    if (strcmp(how, "garbage") == 0 && p->channel)
        channel_send(p->channel, (const uint8_t *)"\xff\xff\xff\xff", 4, NULL);
    else if (strcmp(how, "flood") == 0)
        for (uint32_t i = 0; i <= p->worker->window + 256;
             i++) /* a step of many requests is forgiven */
            send_tokens(p, id, i, i == 0, 2);
    else if (strcmp(how, "wrong-id") == 0)
        send_done(p, id + 1000, MOED__V1__DONE__REASON__END, 0);
    else if (strcmp(how, "wrong-body") == 0)
        peer_send(p, id, &body);
    else if (strcmp(how, "wrong-abi") == 0)
        body.abi = CONTROL_ABI + 1, peer_send(p, id, &body);
    else if (strcmp(how, "no-body") == 0)
        body.body_case = MOED__V1__FROM_WORKER__BODY__NOT_SET, peer_send(p, id, &body);
}

enum { STAND_IN_MARK = 300 }; /* <|im_start|>; the next is <|im_end|> */

/* The mark that stands at `text`, whose bytes are skipped; 0: none. */
static uint32_t stand_in_mark(const char *text, size_t len, size_t *skipped)
{
    static const char *const marks[] = {"<|im_start|>", "<|im_end|>"};
    for (uint32_t i = 0; i < 2; i++) {
        *skipped = strlen(marks[i]);
        if (len >= *skipped && memcmp(text, marks[i], *skipped) == 0)
            return STAND_IN_MARK + i;
    }
    return 0;
}

/* Byte i is in a plain range. */
static bool in_plain(const Moed__V1__TokenizeRequest *t, size_t i)
{
    bool inside = false;
    for (size_t j = 0; j + 1 < t->n_plain; j += 2)
        inside |= i >= t->plain[j] && i < t->plain[j + 1];
    return inside;
}

/* At most 1002 ids. */
static size_t stand_in_tokenize(const struct stand_in *w, const Moed__V1__TokenizeRequest *t,
                                uint32_t *ids)
{
    const char *text = (const char *)t->text.data;
    size_t count = 0;
    bool has_mark = false;
    for (size_t i = 0, n = 1; i < t->text.len && count < 1000; i += n) {
        bool parse = (t->parse_special || w->marks_everywhere) && !in_plain(t, i);
        uint32_t mark = parse ? stand_in_mark(text + i, t->text.len - i, &n) : 0;
        has_mark = has_mark || mark;
        if (!mark)
            n = 1;
        ids[count++] = mark ? mark : t->text.data[i];
    }
    if (t->add_special)
        ids[count++] = 1000;
    if (t->parse_special && !has_mark)
        ids[count++] = 2000;
    return count;
}

/* A prompt of a chat template becomes ids. */
static void take_rendered(const struct stand_in *w, Moed__V1__Generate *g)
{
    if (!g->rendered || w->knows_no_rendered)
        return;
    free(g->tokens);
    g->tokens = malloc(1024 * sizeof *g->tokens);
    if (!g->tokens)
        abort();
    g->n_tokens = stand_in_tokenize(w, g->rendered, g->tokens);
}

static void on_generate(struct peer *p, uint64_t id, const Moed__V1__Generate *g)
{
    char prompt[64];
    unsigned n = 0, wrong = 0;
    size_t len = g->prompt.len < sizeof prompt - 1 ? g->prompt.len : sizeof prompt - 1;
    memcpy(prompt, g->prompt.data ? (const char *)g->prompt.data : "", len);
    prompt[len] = '\0';
    p->generates++;
    p->resumed += g->resumed;
    p->disordered |= id < p->last_id;
    p->last_id = id;
    if (!g->prompt.len &&
        p->worker->knows_no_rendered) { /* no ids: the begin token is the prompt */
        bool refused = false;
        for (size_t i = 0; i < g->n_tokens; i++)
            refused |= g->tokens[i] >= STAND_IN_VOCAB;
        if (refused)
            send_error_text(p, id, ERROR_USAGE, false, "token 4294967295 is not in the vocabulary");
        else
            job_new(p, id)->total = 1;
    } else if (g->n_tokens && p->worker->error_code) {
        send_error(p, id, p->worker->error_code, false);
    } else if (g->n_tokens && p->worker->answer) {
        struct stand_in_job *j = job_new(p, id);
        j->text = p->worker->answer;
        j->total =
            (uint32_t)((strlen(j->text) + p->worker->answer_bytes - 1) / p->worker->answer_bytes);
        j->cut = g->max_tokens && g->max_tokens <= j->total;
        j->total = j->cut ? g->max_tokens : j->total;
    } else if (sscanf(prompt, "count %u", &n) == 1) {
        struct stand_in_job *j = job_new(p, id);
        j->total = n;
        j->next = j->begin = (uint32_t)g->n_answer; /* continues another's */
    } else if (sscanf(prompt, "routing %u %u", &n, &wrong) >= 1) {
        struct stand_in_job *j = job_new(p, id);
        j->routing = true;
        j->total = n;
        j->wrong = wrong;
        j->gate = g->record && g->record->gate;
        j->hidden_every = g->record ? g->record->hidden_every : 0;
        j->hidden_phase = g->record ? g->record->hidden_phase : 0;
    } else if (sscanf(prompt, "probable %u", &wrong) == 1) {
        send_probable(p, id, g, wrong);
    } else if (strcmp(prompt, "hold") == 0 || strcmp(prompt, "quiet") == 0 ||
               strcmp(prompt, "compute") == 0) {
        struct stand_in_job *j = job_new(p, id);
        j->endless = true;
        j->total = prompt[0] == 'h';
        if (prompt[0] == 'c' && g->progress)
            send_progress(p, id);
    } else if (strcmp(prompt, "late") == 0) {
        send_done(p, id, MOED__V1__DONE__REASON__END, 0);
        send_tokens(p, id, 1, true, 2);
        send_done(p, id, MOED__V1__DONE__REASON__STOP, 0);
    } else if (strcmp(prompt, "error") == 0) {
        send_error(p, id, ERROR_LIMIT, false);
    } else if (strcmp(prompt, "error-retry") == 0) {
        send_error(p, id, ERROR_UNAVAILABLE, true);
    } else if (strncmp(prompt, "error-code ", 11) == 0) {
        send_error(p, id, (uint32_t)strtoul(prompt + 11, NULL, 10), false);
    } else {
        misbehave(p, id, prompt);
    }
}

static void on_logits(struct peer *p, uint64_t id, const Moed__V1__LogitsRequest *l)
{
    struct stand_in_job *j = job_new(p, id);
    j->logits = true;
    j->total = (uint32_t)l->n_tokens;
    j->bad_order = l->n_tokens && l->tokens[0] == 666;
    j->bad_length = l->n_tokens && l->tokens[0] == 667;
}

static void on_logprobs(struct peer *p, uint64_t id, const Moed__V1__LogprobsRequest *l)
{
    struct stand_in_job *j = job_new(p, id);
    j->logprobs = true;
    j->next = l->first;
    j->total = (uint32_t)l->n_tokens;
    j->bad_order = l->tokens[0] == 666;
    j->bad_length = l->tokens[0] == 667;
    j->too_many = l->tokens[0] == 668;
}

static void on_tokenize(struct peer *p, uint64_t id, const Moed__V1__TokenizeRequest *t)
{
    uint32_t ids[1024];
    if (t->text.len == 5 && memcmp(t->text.data, "quiet", 5) == 0)
        return;
    Moed__V1__TokenizeReply reply = MOED__V1__TOKENIZE_REPLY__INIT;
    reply.n_tokens = stand_in_tokenize(p->worker, t, ids);
    reply.tokens = ids;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENIZE;
    body.tokenize = &reply;
    peer_send(p, id, &body);
}

static void on_detokenize(struct peer *p, uint64_t id, const Moed__V1__DetokenizeRequest *d)
{
    uint8_t text[1024];
    Moed__V1__DetokenizeReply reply = MOED__V1__DETOKENIZE_REPLY__INIT;
    uint32_t ends[sizeof text];
    for (size_t i = 0; i < d->n_tokens && i < sizeof text; i++) {
        text[reply.text.len++] = (uint8_t)d->tokens[i];
        ends[i] = (uint32_t)reply.text.len;
    }
    reply.text.data = text;
    reply.ends = ends;
    reply.n_ends = d->each ? reply.text.len : 0;
    if (d->n_tokens == 3 && d->tokens[2] == 'z') /* a worker that is mad */
        ends[1] = 9;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_DETOKENIZE;
    body.detokenize = &reply;
    peer_send(p, id, &body);
}

static void on_model(struct peer *p, uint64_t id)
{
    Moed__V1__ModelReply reply = MOED__V1__MODEL_REPLY__INIT;
    if (p->worker->chat_template)
        reply.chat_template = (char *)p->worker->chat_template;
    reply.name = (char *)"Stand-in 1T";
    reply.architecture = (char *)"qwen3moe";
    reply.quantization = (char *)"Q4_K_M";
    reply.parameters = 1000000000000u;
    reply.vocab = STAND_IN_VOCAB;
    reply.context = 4096;
    reply.experts = 128;
    reply.experts_used = 8;
    reply.bos = -1;
    reply.eos = 2;
    int64_t fim[] = {3, 4, 5, -1, 7, 8};
    reply.n_fim = sizeof fim / sizeof *fim;
    reply.fim = fim;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_MODEL;
    body.model = &reply;
    peer_send(p, id, &body);
}

static void on_cancel(struct peer *p, uint64_t id, const Moed__V1__Cancel *cancel)
{
    p->cancels++;
    p->completes += cancel->complete;
    for (int i = 0; i < STAND_IN_JOBS; i++)
        if (p->jobs[i].id == id)
            p->jobs[i].cancelled = true;
}

static void peer_receive(void *arg, const uint8_t *data, size_t len)
{
    struct peer *p = arg;
    p->worker->stalled++;
    while (p->worker->stalls)
        pause_ms(1);
    p->worker->stalled--;
    pthread_mutex_lock(&p->worker->lock);
    Moed__V1__ToWorker *m = data ? moed__v1__to_worker__unpack(NULL, len, data) : NULL;
    if (!data)
        p->closed = true;
    else if (!m || m->abi != CONTROL_ABI)
        abort(); /* the library sends what can be read */
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_GENERATE)
        take_rendered(p->worker, m->generate), on_generate(p, m->id, m->generate);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_CANCEL)
        on_cancel(p, m->id, m->cancel);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_LOGITS)
        on_logits(p, m->id, m->logits);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_LOGPROBS)
        on_logprobs(p, m->id, m->logprobs);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_TOKENIZE)
        on_tokenize(p, m->id, m->tokenize);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_DETOKENIZE)
        on_detokenize(p, m->id, m->detokenize);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_MODEL)
        on_model(p, m->id);
    else if (m->body_case == MOED__V1__TO_WORKER__BODY_ACK)
        p->acknowledged += m->ack->events, p->acks++;
    if (m && m->body_case == MOED__V1__TO_WORKER__BODY_GENERATE) {
        if (p->last)
            moed__v1__generate__free_unpacked(p->last, NULL);
        p->last = m->generate;
        m->generate = NULL;
        m->body_case = MOED__V1__TO_WORKER__BODY__NOT_SET;
    }
    pump(p);
    pthread_mutex_unlock(&p->worker->lock);
    if (m)
        moed__v1__to_worker__free_unpacked(m, NULL);
}

/* ---- The control socket ---- */

static void open_peer(void *arg, int fd)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->worker->lock);
    p->fd = fd;
    if (fd >= 0 && channel_open(fd, NULL, peer_receive, p, &p->channel, NULL))
        abort();
    pthread_mutex_unlock(&p->worker->lock);
}

/* As a worker without descriptors for a channel does. */
static void close_peer(void *arg, int fd)
{
    const struct stand_in *w = arg;
    if (fd < 0)
        return;
    if (w && write(fd, "\xff\xff\xff\xff", 4) != 4)
        abort();
    close(fd);
}

static void answer_attach(struct stand_in *w, const Moed__V1__SessionAttachRequest *request,
                          Moed__V1__Reply *reply, struct rpc_reply *out)
{
    static Moed__V1__SessionAttachReply attach;
    static Moed__V1__Error error;
    if (w->refusal) {
        w->refused++;
        moed__v1__error__init(&error);
        error.code = ERROR_UNAVAILABLE;
        error.retry = true;
        error.message = (char *)w->refusal;
        reply->body_case = MOED__V1__REPLY__BODY_ERROR;
        reply->error = &error;
        return;
    }
    if (w->closes) {
        w->closes = false;
        out->adopt = close_peer;
        out->adopt_arg = w->babbles ? w : NULL;
    } else {
        struct peer *p = &w->peers[w->n_peers++];
        *p = (struct peer){.worker = w};
        out->adopt = open_peer;
        out->adopt_arg = p;
    }
    snprintf(w->client, sizeof w->client, "%s", request->client);
    w->pid = request->pid;
    moed__v1__session_attach_reply__init(&attach);
    attach.window = w->window;
    attach.model = w->model;
    reply->body_case = MOED__V1__REPLY__BODY_SESSION_ATTACH;
    reply->session_attach = &attach;
}

static void control(void *arg, const uint8_t *data, size_t len, struct rpc_reply *out)
{
    struct stand_in *w = arg;
    Moed__V1__MetricsReply metrics = MOED__V1__METRICS_REPLY__INIT;
    metrics.prometheus_text = (char *)"moed_stand_in 1\n";
    Moed__V1__Request *request = moed__v1__request__unpack(NULL, len, data);
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    reply.abi = CONTROL_ABI;
    if (!request)
        abort();
    pthread_mutex_lock(&w->lock);
    if (request->body_case == MOED__V1__REQUEST__BODY_SESSION_ATTACH) {
        answer_attach(w, request->session_attach, &reply, out);
    } else {
        reply.body_case = MOED__V1__REPLY__BODY_METRICS;
        reply.metrics = &metrics;
    }
    pthread_mutex_unlock(&w->lock);
    moed__v1__request__free_unpacked(request, NULL);
    out->len = moed__v1__reply__get_packed_size(&reply);
    out->data = malloc(out->len);
    moed__v1__reply__pack(&reply, out->data);
}

/* ---- For the tests ---- */

static void stand_in_start(struct stand_in *w, const char *run, uint32_t window)
{
    char url[RUN_URL_BYTES];
    *w = (struct stand_in){.window = window};
    snprintf(w->run, sizeof w->run, "%s", run);
    pthread_mutex_init(&w->lock, NULL);
    run_dir_url(run, "worker.ctl", url);
    struct error e;
    if (rpc_serve(url, control, w, &w->server, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

static inline unsigned stand_in_peers(struct stand_in *w)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->n_peers;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static struct channel *take_channel(struct peer *p)
{
    struct channel *channel = p->channel;
    p->channel = NULL;
    p->hung_up |= channel != NULL;
    return channel;
}

/* Close a session's channel, as a worker that is killed does. Waits for the channel: the frontend
 * may know of its attaching before we do. */
static inline void stand_in_hang_up(struct stand_in *w, unsigned session)
{
    struct peer *p = &w->peers[session];
    for (bool over = false; !over;) {
        pthread_mutex_lock(&w->lock);
        /* one that gave up before it was answered has attached again, if it is there */
        over = p->channel || p->hung_up || w->n_peers > session + 1;
        struct channel *channel = take_channel(p);
        pthread_mutex_unlock(&w->lock);
        channel_close(channel, 0);
        if (!over)
            pause_ms(1);
    }
}

/* Closes the channel that a session has now, whose first attempt to attach was `first`. Under load
 * an attempt that it gave up may be answered after the one that it uses. */
static inline void stand_in_hang_up_from(struct stand_in *w, unsigned first)
{
    for (bool over = false; !over;) {
        for (unsigned i = first; i < stand_in_peers(w); i++) {
            pthread_mutex_lock(&w->lock);
            struct channel *channel = take_channel(&w->peers[i]);
            pthread_mutex_unlock(&w->lock);
            channel_close(channel, 0);
            over |= channel != NULL;
        }
        if (!over)
            pause_ms(1);
    }
}

/* The same while the stand-in stalls: it gets no more messages of the session. */
static inline void stand_in_cut(struct stand_in *w, unsigned session)
{
    pthread_mutex_lock(&w->lock);
    shutdown(w->peers[session].fd, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}

/* Lets no more frontends attach. */
static inline void stand_in_refuse(struct stand_in *w, bool refuses)
{
    pthread_mutex_lock(&w->lock);
    w->refusal = refuses ? "starting" : NULL;
    pthread_mutex_unlock(&w->lock);
}

static inline unsigned stand_in_refused(struct stand_in *w)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->refused;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static inline void stand_in_stop(struct stand_in *w)
{
    rpc_server_stop(w->server);
    for (unsigned i = 0; i < w->n_peers; i++) {
        pthread_mutex_lock(&w->lock);
        struct channel *channel = take_channel(&w->peers[i]);
        pthread_mutex_unlock(&w->lock);
        channel_close(channel, 0);
        if (w->peers[i].last)
            moed__v1__generate__free_unpacked(w->peers[i].last, NULL);
    }
    pthread_mutex_destroy(&w->lock);
}

/* The session has a request of this id that runs. */
static inline bool stand_in_has(struct stand_in *w, unsigned session, uint64_t id)
{
    bool has = false;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < STAND_IN_JOBS; i++)
        has |= w->peers[session].jobs[i].id == id;
    pthread_mutex_unlock(&w->lock);
    return has;
}

/* A copy of a session's counters. */
static inline struct peer stand_in_look(struct stand_in *w, unsigned session)
{
    pthread_mutex_lock(&w->lock);
    struct peer copy = w->peers[session];
    pthread_mutex_unlock(&w->lock);
    return copy;
}

#endif
