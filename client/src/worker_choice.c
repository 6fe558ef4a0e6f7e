/* The choice of a worker; see worker_choice.h. */
#include "client/src/worker_choice.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* How long what memd said counts: of one worker, of several. */
#define ALONE_NS   1000000000u
#define SEVERAL_NS 50000000u
/* After memd did not answer. */
#define RETRY_NS       2000000000u
#define ASK_TIMEOUT_MS 250
/* How long a worker gets no prompts after it did not answer. */
#define SILENT_NS 5000000000u

/* A worker that has a prompt's beginning may have so many requests more than another one. */
#define SLACK 1

/* Prompts are remembered in blocks of so many bytes: after 1, 2, 4, ... and all of them. Another
 * prompt is looked up after every block, so it finds all of an earlier turn. */
#define BLOCK_BYTES 256
enum { SEEN = 1024, MARKS = 24, NO_SEEN = SEEN };
enum { HASHED = 512 /* blocks that are looked up at once */ };

struct known_worker {
    char process[WORKER_NAME_BYTES];
    uint32_t load; /* requests that run or wait, and those started here since */
};

struct silent_worker {
    char process[WORKER_NAME_BYTES];
    uint64_t until_ns; /* over: any */
};

struct seen_prefix {
    uint64_t hash;      /* 0: none */
    uint16_t next_like; /* the next one of its list; NO_SEEN: none */
    char process[WORKER_NAME_BYTES];
};

struct worker_choice {
    pthread_mutex_t lock;
    struct known_worker known[SUPERVISE_WORKERS];
    unsigned n_known;
    struct silent_worker silent[SUPERVISE_WORKERS];
    uint64_t ask_ns;          /* when to ask memd next */
    struct seen_prefix *seen; /* [SEEN], the oldest at `next` */
    uint16_t lists[SEEN];     /* the first one with hash % SEEN; NO_SEEN: none */
    unsigned next;
};

struct worker_choice *worker_choice_new(void)
{
    struct worker_choice *c = calloc(1, sizeof *c);
    struct seen_prefix *seen = calloc(SEEN, sizeof *seen);
    if (!c || !seen) {
        free(c);
        free(seen);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->seen = seen;
    for (unsigned i = 0; i < SEEN; i++)
        c->lists[i] = NO_SEEN;
    return c;
}

void worker_choice_free(struct worker_choice *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    free(c->seen);
    free(c);
}

/* ---- What memd knows ---- */

static void know(struct worker_choice *c, const char *process, uint32_t load)
{
    if (c->n_known == SUPERVISE_WORKERS || !supervise_is_worker(process) ||
        strlen(process) >= WORKER_NAME_BYTES)
        return;
    struct known_worker *k = &c->known[c->n_known++];
    snprintf(k->process, sizeof k->process, "%s", process);
    k->load = load;
}

static bool is_silent(const struct worker_choice *c, const char *process, uint64_t now_ns)
{
    for (unsigned i = 0; i < SUPERVISE_WORKERS; i++)
        if (now_ns < c->silent[i].until_ns && strcmp(c->silent[i].process, process) == 0)
            return true;
    return false;
}

/* Without memd's answer: the workers whose pid files are locked. */
static void look_for_workers(struct worker_choice *c, const char *dir)
{
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_hint_at(dir, supervise_worker_name(i)))
            know(c, supervise_worker_name(i), 0);
}

/* Asks without the lock. NULL: memd does not answer. */
static Moed__V1__Reply *ask_memd(const char *dir)
{
    Moed__V1__WorkersRequest workers = MOED__V1__WORKERS_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_WORKERS;
    request.workers = &workers;
    Moed__V1__Reply *reply;
    return control_call_at(dir, "memd", &request, MOED__V1__REPLY__BODY_WORKERS, ASK_TIMEOUT_MS,
                           &reply, NULL)
               ? NULL
               : reply;
}

static bool must_ask(struct worker_choice *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t now = clock_ns();
    bool must = now >= c->ask_ns;
    if (must) /* other threads need not ask meanwhile */
        c->ask_ns = now + SEVERAL_NS;
    pthread_mutex_unlock(&c->lock);
    return must;
}

static void look(struct worker_choice *c, const char *dir)
{
    if (!dir[0] || run_dir_check(dir, NULL))
        return;
    Moed__V1__Reply *reply = ask_memd(dir);
    pthread_mutex_lock(&c->lock);
    if (reply)
        c->n_known = 0;
    for (size_t i = 0; reply && i < reply->workers->n_workers; i++) {
        const Moed__V1__WorkerState *w = reply->workers->workers[i];
        if (!w->leaving)
            know(c, w->process, w->running + w->waiting);
    }
    if (!reply && c->n_known == 0)
        look_for_workers(c, dir);
    c->ask_ns = clock_ns() + (!reply ? RETRY_NS : c->n_known > 1 ? SEVERAL_NS : ALONE_NS);
    pthread_mutex_unlock(&c->lock);
    if (reply)
        moed__v1__reply__free_unpacked(reply, NULL);
}

void worker_choice_refresh(struct worker_choice *c, const char *dir)
{
    if (must_ask(c))
        look(c, dir);
}

/* ---- The choice; under the lock, but for mark_prompt ---- */

static struct known_worker *find_known(struct worker_choice *c, const char *process)
{
    for (unsigned i = 0; i < c->n_known; i++)
        if (strcmp(c->known[i].process, process) == 0)
            return &c->known[i];
    return NULL;
}

/* The workers that may be chosen; sessions, which wait longer for an answer, try silent ones too.
 */
struct choosable {
    struct known_worker *list[SUPERVISE_WORKERS];
    unsigned n;
};

static struct choosable choosable(struct worker_choice *c, bool for_prompt)
{
    struct choosable out = {0};
    uint64_t now = clock_ns();
    for (unsigned i = 0; i < c->n_known; i++)
        if (!for_prompt || !is_silent(c, c->known[i].process, now))
            out.list[out.n++] = &c->known[i];
    return out;
}

static struct known_worker *find_choosable(const struct choosable *of, const char *process)
{
    for (unsigned i = 0; i < of->n; i++)
        if (strcmp(of->list[i]->process, process) == 0)
            return of->list[i];
    return NULL;
}

/* The one with least to do; of equals `preferred`, else any: other programs choose at the same
 * time. NULL: there is none. */
static struct known_worker *least_busy(const struct choosable *of, const char *preferred)
{
    uint32_t least = UINT32_MAX;
    unsigned n = 0, choice = 0;
    struct known_worker *best = find_choosable(of, preferred);
    for (unsigned i = 0; i < of->n; i++)
        least = of->list[i]->load < least ? of->list[i]->load : least;
    if (best && best->load == least)
        return best;
    for (unsigned i = 0; i < of->n; i++)
        n += of->list[i]->load == least;
    if (n > 1 && getrandom(&choice, sizeof choice, GRND_NONBLOCK) != sizeof choice)
        choice = 0;
    choice = n ? choice % n : 0;
    for (unsigned i = 0; i < of->n; i++)
        if (of->list[i]->load == least && choice-- == 0)
            return of->list[i];
    return NULL;
}

static uint16_t *list_of(struct worker_choice *c, uint64_t hash)
{
    return &c->lists[hash % SEEN];
}

static struct seen_prefix *find_seen(struct worker_choice *c, uint64_t hash)
{
    uint16_t i = *list_of(c, hash);
    while (i != NO_SEEN && c->seen[i].hash != hash)
        i = c->seen[i].next_like;
    return i == NO_SEEN ? NULL : &c->seen[i];
}

/* In place of the oldest. */
static struct seen_prefix *add_seen(struct worker_choice *c, uint64_t hash)
{
    uint16_t i = (uint16_t)c->next, *at = list_of(c, c->seen[i].hash);
    while (c->seen[i].hash && *at != i)
        at = &c->seen[*at].next_like;
    if (c->seen[i].hash)
        *at = c->seen[i].next_like;
    c->next = (c->next + 1) % SEEN;
    c->seen[i].hash = hash;
    c->seen[i].next_like = *list_of(c, hash);
    *list_of(c, hash) = i;
    return &c->seen[i];
}

/* A prompt's beginnings, each a number of whole blocks. */
struct marks {
    uint64_t last;        /* the hash of the blocks so far */
    uint64_t hash[MARKS]; /* of those that are remembered */
    unsigned n;
    size_t all;                       /* blocks of the prompt */
    size_t known;                     /* blocks of the longest one that was seen */
    char known_by[WORKER_NAME_BYTES]; /* the worker that computed it */
};

static void look_up(struct worker_choice *c, uint64_t hash, size_t blocks, struct marks *m)
{
    const struct seen_prefix *seen = find_seen(c, hash);
    if (!seen)
        return;
    m->known = blocks;
    memcpy(m->known_by, seen->process, sizeof m->known_by);
}

/* Sets hashes [n] of the beginnings that end with the blocks after the first `from`. */
static void hash_blocks(const struct choice_prompt *p, size_t from, size_t n, uint64_t *hashes,
                        struct marks *m)
{
    const uint8_t *data = (const uint8_t *)p->data + from * BLOCK_BYTES;
    for (size_t i = 0; i < n; i++) {
        m->last = checksum64(m->last, data + i * BLOCK_BYTES, BLOCK_BYTES);
        hashes[i] = m->last = m->last ? m->last : 1;
    }
}

/* Takes the lock, but not while it reads the prompt, which may be long. */
static void mark_prompt(struct worker_choice *c, const struct choice_prompt *p, struct marks *m)
{
    uint64_t hashes[HASHED];
    size_t next = 1;
    *m = (struct marks){.last = checksum64(1, &p->salt, sizeof p->salt),
                        .all = p->data ? p->bytes / BLOCK_BYTES : 0};
    for (size_t from = 0, n; from < m->all; from += n) {
        n = m->all - from < HASHED ? m->all - from : HASHED;
        hash_blocks(p, from, n, hashes, m);
        pthread_mutex_lock(&c->lock);
        for (size_t i = 0; i < n; i++)
            look_up(c, hashes[i], from + i + 1, m);
        pthread_mutex_unlock(&c->lock);
        for (size_t blocks = from + 1; blocks <= from + n; blocks++) {
            if ((blocks != next && blocks != m->all) || m->n == MARKS)
                continue;
            m->hash[m->n++] = hashes[blocks - from - 1];
            next *= blocks == next ? 2 : 1;
        }
    }
}

/* The worker that computed at least half of the prompt. NULL: none did, or it may not be chosen. */
static struct known_worker *who_has(const struct choosable *of, const struct marks *m)
{
    return m->known && 2 * m->known >= m->all ? find_choosable(of, m->known_by) : NULL;
}

static void remember(struct worker_choice *c, const struct marks *m, const char *process)
{
    for (unsigned i = 0; i < m->n; i++) {
        struct seen_prefix *seen = find_seen(c, m->hash[i]);
        if (!seen)
            seen = add_seen(c, m->hash[i]);
        snprintf(seen->process, sizeof seen->process, "%s", process);
    }
}

/* m NULL: for a session, not for a request. NULL: there is no worker. */
static const char *choose(struct worker_choice *c, const char *preferred, const struct marks *m)
{
    struct choosable of = choosable(c, m != NULL);
    struct known_worker *best = least_busy(&of, preferred), *has = m ? who_has(&of, m) : NULL;
    if (has && best && has->load <= best->load + SLACK)
        best = has;
    if (!best)
        return NULL;
    if (m) {
        best->load++;
        remember(c, m, best->process);
    }
    return best->process;
}

/* ---- What the router and the sessions call ---- */

void worker_choice_for_session(struct worker_choice *c, const char *dir,
                               char process[WORKER_NAME_BYTES])
{
    look(c, dir);
    pthread_mutex_lock(&c->lock);
    const char *best = choose(c, "", NULL);
    snprintf(process, WORKER_NAME_BYTES, "%s", best ? best : "worker");
    pthread_mutex_unlock(&c->lock);
}

void worker_choice_for_prompt(struct worker_choice *c, const char *preferred,
                              const struct choice_prompt *prompt, char process[WORKER_NAME_BYTES])
{
    struct marks marks;
    mark_prompt(c, prompt, &marks);
    pthread_mutex_lock(&c->lock);
    const char *best = choose(c, preferred, &marks);
    snprintf(process, WORKER_NAME_BYTES, "%s", best ? best : "");
    pthread_mutex_unlock(&c->lock);
}

void worker_choice_avoid(struct worker_choice *c, const char *process)
{
    pthread_mutex_lock(&c->lock);
    struct silent_worker *at = &c->silent[0]; /* its own entry, or the oldest */
    for (unsigned i = 1; i < SUPERVISE_WORKERS; i++)
        if (strcmp(at->process, process) != 0 &&
            (c->silent[i].until_ns < at->until_ns || strcmp(c->silent[i].process, process) == 0))
            at = &c->silent[i];
    snprintf(at->process, sizeof at->process, "%s", process);
    at->until_ns = clock_ns() + SILENT_NS;
    pthread_mutex_unlock(&c->lock);
}

bool worker_choice_knows(struct worker_choice *c, const char *process)
{
    pthread_mutex_lock(&c->lock);
    bool knows = find_known(c, process) != NULL;
    pthread_mutex_unlock(&c->lock);
    return knows;
}

bool worker_choice_is_only(struct worker_choice *c, const char *process)
{
    pthread_mutex_lock(&c->lock);
    bool is_only = c->n_known == 1 && find_known(c, process);
    pthread_mutex_unlock(&c->lock);
    return is_only;
}
