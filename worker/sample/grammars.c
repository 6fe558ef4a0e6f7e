/* Compiled grammars; see grammars.h.
 *
 * Invariants:
 * 1. `lock` guards the list, the counts of users, states and first steps, idle matchers and
 * `vocabulary`. Nothing is compiled under it; `building` is held while the vocabulary is built, and
 * taken before `lock`.
 * 2. A grammar in the list counts the list as a user. It is freed with its last user.
 * 3. `states` is the sum over all grammars that have entered the list and are not freed. */
#include "grammars.h"

#include "base/log.h"
#include "base/strbuf.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct shared_grammar {
    struct grammars *owner;
    struct shared_grammar *next; /* in the list, the last used first */
    uint32_t users;
    struct strbuf key; /* kind, marks and text */
    struct grammar *compiled;
    struct grammar_matcher *idle; /* NULL: none */
    bool has_begun;               /* an answer has its first token */
    uint64_t first_steps;
};

struct grammars {
    const struct tokenizer *tokenizer;
    struct counter *replaced; /* NULL: not counted */
    pthread_mutex_t lock, building;
    struct shared_grammar *list;
    struct grammar_vocabulary *vocabulary; /* NULL: not built yet */
    uint64_t n_compiled, states;
};

struct grammars *grammars_new(const struct tokenizer *t, struct counter *replaced)
{
    struct grammars *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->tokenizer = t;
    s->replaced = replaced;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->building, NULL);
    return s;
}

static void free_grammar(struct shared_grammar *g)
{
    grammar_matcher_free(g->idle);
    grammar_free(g->compiled);
    strbuf_fini(&g->key);
    free(g);
}

void grammars_free(struct grammars *s)
{
    if (!s)
        return;
    for (struct shared_grammar *g = s->list, *next; g; g = next) {
        next = g->next;
        free_grammar(g);
    }
    grammar_vocabulary_free(s->vocabulary);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->building);
    free(s);
}

/* ---- The vocabulary ---- */

static bool has_vocabulary(struct grammars *s)
{
    pthread_mutex_lock(&s->lock);
    bool has = s->vocabulary;
    pthread_mutex_unlock(&s->lock);
    return has;
}

static enum error_code need_vocabulary(struct grammars *s, struct error *e)
{
    struct grammar_vocabulary *v = NULL;
    enum error_code code = ERROR_OK;
    pthread_mutex_lock(&s->building);
    if (!has_vocabulary(s)) {
        code = grammar_vocabulary_from_tokenizer(s->tokenizer, &v, e);
        pthread_mutex_lock(&s->lock);
        s->vocabulary = code ? NULL : v;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->building);
    return code;
}

/* ---- The list; under the lock ---- */

static bool is_key(const struct strbuf *a, const struct strbuf *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Takes the grammar with this key to the front. NULL: there is none. */
static struct shared_grammar *find(struct grammars *s, const struct strbuf *key)
{
    for (struct shared_grammar **p = &s->list; *p; p = &(*p)->next)
        if (is_key(&(*p)->key, key)) {
            struct shared_grammar *g = *p;
            *p = g->next;
            g->next = s->list;
            s->list = g;
            g->users++;
            return g;
        }
    return NULL;
}

static void leave(struct shared_grammar *g)
{
    if (--g->users)
        return;
    g->owner->states -= grammar_states(g->compiled);
    free_grammar(g);
}

/* Keeps the newest grammar, and those after it as far as they are few and small. */
static void trim(struct grammars *s)
{
    uint32_t n = 1, states = 0;
    struct shared_grammar **p = &s->list->next;
    while (*p) {
        struct shared_grammar *g = *p;
        states += grammar_states(g->compiled);
        if (++n > GRAMMARS_CACHED || states > GRAMMARS_STATES) {
            *p = g->next;
            states -= grammar_states(g->compiled);
            n--;
            leave(g);
        } else {
            p = &g->next;
        }
    }
}

/* Enters g as the newest, unless too much is held already. */
static bool enter(struct grammars *s, struct shared_grammar *g)
{
    uint32_t states = grammar_states(g->compiled);
    g->next = s->list;
    s->list = g;
    s->states += states;
    s->n_compiled++;
    trim(s);
    if (s->states <= GRAMMARS_HELD)
        return true;
    s->list = g->next;
    s->states -= states;
    return false;
}

/* ---- Matchers ---- */

enum error_code shared_grammar_take_matcher(struct shared_grammar *g,
                                            const struct grammar_start *start,
                                            struct grammar_matcher **out, struct error *e)
{
    pthread_mutex_lock(&g->owner->lock);
    struct grammar_matcher *m = g->idle;
    g->idle = NULL;
    pthread_mutex_unlock(&g->owner->lock);
    if (!m)
        return grammar_matcher_new(g->compiled, g->owner->vocabulary, start, out, e);
    enum error_code code = grammar_matcher_restart(m, start, e);
    if (code)
        grammar_matcher_free(m);
    else
        *out = m;
    return code;
}

/* Under the lock: g is among those that may keep a matcher. Grammars beyond lose theirs. */
static bool may_keep(struct grammars *s, const struct shared_grammar *g)
{
    uint32_t n = 0;
    bool among = false;
    for (struct shared_grammar *x = s->list; x; x = x->next) {
        among |= x == g && n < GRAMMARS_IDLE;
        if (n++ < GRAMMARS_IDLE)
            continue;
        grammar_matcher_free(x->idle);
        x->idle = NULL;
    }
    return among;
}

void shared_grammar_give_matcher(struct shared_grammar *g, struct grammar_matcher *m)
{
    bool spent = grammar_matcher_error(m, NULL) == ERROR_LIMIT;
    pthread_mutex_lock(&g->owner->lock);
    if (!spent && !g->idle && may_keep(g->owner, g)) {
        g->idle = m;
        m = NULL;
    }
    pthread_mutex_unlock(&g->owner->lock);
    grammar_matcher_free(m);
}

/* ---- Steps ---- */

uint64_t shared_grammar_first_steps(struct shared_grammar *g, uint64_t unknown)
{
    pthread_mutex_lock(&g->owner->lock);
    uint64_t steps = g->has_begun ? g->first_steps : unknown;
    pthread_mutex_unlock(&g->owner->lock);
    return steps;
}

void shared_grammar_note_first_steps(struct shared_grammar *g, uint64_t steps)
{
    pthread_mutex_lock(&g->owner->lock);
    g->first_steps = steps > g->first_steps ? steps : g->first_steps;
    g->has_begun = true;
    pthread_mutex_unlock(&g->owner->lock);
}

/* ---- Use ---- */

static bool make_key(const struct grammar_definition *d, struct strbuf *key)
{
    strbuf_init(key);
    strbuf_printf(key, "%d", (int)d->kind);
    for (uint32_t i = 0; i < d->n_marks; i++)
        strbuf_printf(key, " %zu:%s", strlen(d->marks[i]), d->marks[i]);
    strbuf_append(key, "\n", 1);
    strbuf_append(key, d->text, d->len);
    return !key->failed;
}

static enum error_code compile(const struct grammar_definition *d, struct grammar **out,
                               struct error *e)
{
    if (d->kind == GRAMMAR_GBNF)
        return grammar_compile_marked(d->text, d->len, d->marks, d->n_marks, NULL, out, e);
    return grammar_compile(d->kind, d->text, d->len, NULL, out, e);
}

/* Says which schemas of a new grammar another rule stands for. */
static void report_replaced(struct grammars *s, const struct grammar *g)
{
    const char *why;
    uint32_t n = grammar_replaced(g, &why);
    if (n == 0)
        return;
    if (s->replaced)
        counter_add(s->replaced, n);
    log_info("schemas of tools that a new grammar cannot follow: %" PRIu32, n);
    while (*why) {
        size_t len = strcspn(why, "\n");
        log_info("cannot follow: %.*s", (int)len, why);
        why += len + (why[len] == '\n');
    }
}

/* Compiles a grammar that is not in the list, and enters it. Two threads may compile one grammar:
 * then both enter it. Takes *key. */
static enum error_code add(struct grammars *s, const struct grammar_definition *d,
                           struct strbuf *key, struct shared_grammar **out, struct error *e)
{
    struct shared_grammar *g = calloc(1, sizeof *g);
    if (!g) {
        strbuf_fini(key);
        return error_set(e, ERROR_MEMORY, "no memory for a grammar");
    }
    *g = (struct shared_grammar){.owner = s, .users = 2, .key = *key};
    enum error_code code = compile(d, &g->compiled, e);
    if (!code)
        code = need_vocabulary(s, e);
    if (code) {
        free_grammar(g);
        return code;
    }
    pthread_mutex_lock(&s->lock);
    bool entered = enter(s, g);
    pthread_mutex_unlock(&s->lock);
    if (!entered) {
        free_grammar(g);
        return error_set(e, ERROR_BUSY,
                         "the grammars of the requests that run and wait have almost %d states: "
                         "try again later",
                         (int)GRAMMARS_HELD);
    }
    report_replaced(s, g->compiled);
    *out = g;
    return ERROR_OK;
}

enum error_code grammars_get(struct grammars *s, const struct grammar_definition *d,
                             struct shared_grammar **out, struct error *e)
{
    struct strbuf key;
    if (!make_key(d, &key)) {
        strbuf_fini(&key);
        return error_set(e, ERROR_MEMORY, "no memory for a grammar");
    }
    pthread_mutex_lock(&s->lock);
    struct shared_grammar *g = find(s, &key);
    pthread_mutex_unlock(&s->lock);
    if (!g)
        return add(s, d, &key, out, e);
    strbuf_fini(&key);
    *out = g;
    return ERROR_OK;
}

void grammars_release(struct shared_grammar *g)
{
    struct grammars *s = g->owner;
    pthread_mutex_lock(&s->lock);
    leave(g);
    pthread_mutex_unlock(&s->lock);
}

const struct grammar *shared_grammar_compiled(const struct shared_grammar *g)
{
    return g->compiled;
}

const struct grammar_vocabulary *shared_grammar_vocabulary(const struct shared_grammar *g)
{
    return g->owner->vocabulary; /* it is set, and does not change any more */
}

uint64_t grammars_compiled(struct grammars *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->n_compiled;
    pthread_mutex_unlock(&s->lock);
    return n;
}
