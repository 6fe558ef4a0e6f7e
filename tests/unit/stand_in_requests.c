#include "tests/unit/stand_in_requests.h"

#include "ipc/rpc.h"
#include "tests/unit/stand_in_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Jobs; the lock is held ---- */

static void job_step(struct peer *p, struct stand_in_job *j)
{
    if (!j->cancelled && j->next < j->total) {
        if (j->routing) {
            j->next += stand_in_send_routing(p, j);
        } else if (j->logprobs) {
            j->next += stand_in_send_logprobs(p, j);
        } else {
            uint32_t n = 1;
            if (j->logits)
                stand_in_send_row(p, j);
            else if (j->text)
                n = stand_in_send_text(p, j);
            else
                stand_in_send_tokens(p, j->id, j->next, j->next == j->begin, j->begin ? 6 : 2);
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
    stand_in_send_done(p, j->id, reason, j->next);
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
            stand_in_send_tokens(p, id, i, i == 0, 2);
    else if (strcmp(how, "wrong-id") == 0)
        stand_in_send_done(p, id + 1000, MOED__V1__DONE__REASON__END, 0);
    else if (strcmp(how, "wrong-body") == 0)
        stand_in_send(p, id, &body);
    else if (strcmp(how, "wrong-abi") == 0)
        body.abi = CONTROL_ABI + 1, stand_in_send(p, id, &body);
    else if (strcmp(how, "no-body") == 0)
        body.body_case = MOED__V1__FROM_WORKER__BODY__NOT_SET, stand_in_send(p, id, &body);
}

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
            stand_in_send_error_text(p, id, ERROR_USAGE, false,
                                     "token 4294967295 is not in the vocabulary");
        else
            job_new(p, id)->total = 1;
    } else if (g->n_tokens && p->worker->error_code) {
        stand_in_send_error(p, id, p->worker->error_code, false);
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
        stand_in_send_probable(p, id, g, wrong);
    } else if (strcmp(prompt, "hold") == 0 || strcmp(prompt, "quiet") == 0 ||
               strcmp(prompt, "compute") == 0) {
        struct stand_in_job *j = job_new(p, id);
        j->endless = true;
        j->total = prompt[0] == 'h';
        if (prompt[0] == 'c' && g->progress)
            stand_in_send_progress(p, id);
    } else if (strcmp(prompt, "late") == 0) {
        stand_in_send_done(p, id, MOED__V1__DONE__REASON__END, 0);
        stand_in_send_tokens(p, id, 1, true, 2);
        stand_in_send_done(p, id, MOED__V1__DONE__REASON__STOP, 0);
    } else if (strcmp(prompt, "error") == 0) {
        stand_in_send_error(p, id, ERROR_LIMIT, false);
    } else if (strcmp(prompt, "error-retry") == 0) {
        stand_in_send_error(p, id, ERROR_UNAVAILABLE, true);
    } else if (strncmp(prompt, "error-code ", 11) == 0) {
        stand_in_send_error(p, id, (uint32_t)strtoul(prompt + 11, NULL, 10), false);
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
    stand_in_send(p, id, &body);
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
    stand_in_send(p, id, &body);
}

static void on_model(struct peer *p, uint64_t id)
{
    Moed__V1__ModelReply reply = MOED__V1__MODEL_REPLY__INIT;
    if (p->worker->chat_template)
        reply.chat_template = (char *)p->worker->chat_template;
    reply.name = (char *)"Stand-in 1T";
    reply.architecture = (char *)"qwen3moe";
    reply.quantization = (char *)"Q4_K_M";
    reply.kv_type = (char *)"q8_0";
    reply.reproducible = true;
    reply.identity = 77;
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
    stand_in_send(p, id, &body);
}

static void on_cancel(struct peer *p, uint64_t id, const Moed__V1__Cancel *cancel)
{
    p->cancels++;
    p->completes += cancel->complete;
    for (int i = 0; i < STAND_IN_JOBS; i++)
        if (p->jobs[i].id == id)
            p->jobs[i].cancelled = true;
}

void stand_in_receive(void *arg, const uint8_t *data, size_t len)
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
