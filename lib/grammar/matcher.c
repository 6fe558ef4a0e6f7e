/* The place of an answer in a grammar; see matcher.h.
 *
 *   at the start --reasoning begin--> in reasoning --its end--> waiting
 *                --other text--> waiting --the trigger's last byte--> active
 *
 * path[] holds the configurations of one walk over bytes, and history[] those after the last
 * tokens; both are the roots when the configurations are full and most of them are forgotten. */
#include "grammar/matcher.h"

#include "base/arrays.h"
#include "base/json_space.h"
#include "grammar/compiled.h"
#include "grammar/configurations.h"

#include <stdlib.h>
#include <string.h>

enum {
    HISTORY = 2 * GRAMMAR_ROLLBACK + 1, /* with the tokens of a look ahead */
    MASKS_WAYS = 4, /* cached masks that a configuration may have the place of */
    MASKS_MOST = 1024,
    MASKS_WORDS = 1 << 18,
    /* Steps of closures (configurations.c) in one call: some 20 ms on a slow core. */
    WORK_MAX = 1 << 18,
    /* Of all calls for an answer: at first, and more for each of its tokens. So an answer of any
     * length keeps its thread for a second or so at worst. */
    ANSWER_WORK = 16 * WORK_MAX,
    TOKEN_WORK = 512,
    TRIAL_WORK = 1 << 11, /* of a look ahead: some 0.2 ms */
    TRIAL_EDGES = 16,     /* that it looks at in the time of a step */
    RUNS = 64,
    RUN_MAX = 64,  /* a bounded run is not followed further */
    RUN_NODES = 8, /* subtrees below this size are walked */
    RUN_STEPS = 4, /* steps in whose time all bytes of a configuration are looked at */
    MARKED_MAX = 2 * GRAMMAR_MARKS_MAX,
};

/* All texts of up to `length` bytes of these kinds are accepted next. */
struct free_run {
    uint32_t configuration; /* CONFIGURATION_UNKNOWN: none */
    uint16_t length;
    uint8_t kinds;
};

enum answer_part { PART_WAITING, PART_START, PART_REASONING, PART_ACTIVE };

struct position {
    uint32_t configuration;
    uint16_t matched; /* bytes of the text that the part waits for */
    uint8_t part;
};

/* A text that is searched (Knuth, Morris and Pratt). */
struct searched_text {
    char text[GRAMMAR_TRIGGER_BYTES];
    uint16_t length, retreat[GRAMMAR_TRIGGER_BYTES + 1];
};

/* A control token that the grammar's literals may be spelt with, and its byte there. */
struct marked_token {
    uint32_t token;
    uint8_t byte;
};

struct cached_mask {
    uint32_t configuration; /* CONFIGURATION_UNKNOWN: none */
    bool any;
    uint64_t used; /* when, by n_masks */
    uint32_t *words;
};

struct grammar_matcher {
    const struct grammar_vocabulary *v;
    struct configurations c;
    struct position history[HISTORY]; /* a ring; the newest is `taken` modulo HISTORY */
    uint64_t taken, oldest;           /* tokens; rollback reaches back to oldest */
    uint64_t spent;                   /* steps of closures, in this answer's earlier calls */
    uint64_t looked;                  /* steps of this answer's searches for free runs */
    struct searched_text trigger, reasoning_begin, reasoning_end;
    bool required;
    struct marked_token marked[MARKED_MAX];
    uint32_t n_marked;
    enum error_code error;
    bool stuck;       /* the last mask was empty */
    uint32_t start;   /* the configuration before any byte */
    uint32_t *path;   /* [longest + 1] */
    uint32_t **roots; /* [longest + 1 + HISTORY + 1] */
    uint32_t n_path;
    struct cached_mask *cached; /* [n_cached], in sets of MASKS_WAYS */
    uint32_t n_cached;
    uint64_t n_masks;           /* that were asked for */
    struct free_run runs[RUNS]; /* by configuration modulo RUNS */
    void *memory;
};

static uint16_t search_step(const struct searched_text *t, uint16_t matched, char byte)
{
    while (matched > 0 && t->text[matched] != byte)
        matched = t->retreat[matched];
    return (uint16_t)(matched + (t->text[matched] == byte));
}

static void set_searched(struct searched_text *t, const char *text)
{
    t->length = (uint16_t)(text ? strlen(text) : 0);
    if (t->length)
        memcpy(t->text, text, t->length);
    for (uint16_t i = 1; i < t->length; i++)
        t->retreat[i + 1] = search_step(t, t->retreat[i], t->text[i]);
}

static void await_trigger(const struct grammar_matcher *m, struct position *p, char byte)
{
    p->matched = search_step(&m->trigger, p->matched, byte);
    if (p->matched == m->trigger.length)
        p->part = PART_ACTIVE;
}

/* The bytes of the begin of reasoning that were other text may begin the trigger. */
static void leave_start(const struct grammar_matcher *m, struct position *p, char byte)
{
    uint16_t n = p->matched;
    p->part = PART_WAITING;
    p->matched = 0;
    for (uint16_t i = 0; i < n; i++)
        await_trigger(m, p, m->reasoning_begin.text[i]); /* does not contain the trigger */
    await_trigger(m, p, byte);
}

/* A byte of an answer that is not active. */
static void await(const struct grammar_matcher *m, struct position *p, char byte)
{
    if (p->part == PART_WAITING) {
        await_trigger(m, p, byte);
    } else if (p->part == PART_REASONING) {
        p->matched = search_step(&m->reasoning_end, p->matched, byte);
        if (p->matched == m->reasoning_end.length)
            *p = (struct position){.configuration = p->configuration, .part = PART_WAITING};
    } else if (p->matched == 0 && json_space(byte)) {
        return;
    } else if (byte != m->reasoning_begin.text[p->matched]) {
        leave_start(m, p, byte);
    } else if (++p->matched == m->reasoning_begin.length) {
        p->part = PART_REASONING;
        p->matched = 0;
    }
}

/* A vocabulary seldom has two control tokens of one text; of many the first ones count. */
static void find_marked(struct grammar_matcher *m, const struct grammar *g)
{
    for (uint32_t t = 0; t < m->v->n_tokens && g->n_marks; t++) {
        const struct grammar_token *token = &m->v->tokens[t];
        const uint8_t *text = m->v->bytes + token->offset;
        if (token->kind != GRAMMAR_TOKEN_CONTROL || token->length == 0)
            continue;
        for (uint32_t i = 0; i < g->n_marks && m->n_marked < MARKED_MAX; i++)
            if (strlen(g->marks[i]) == token->length &&
                memcmp(text, g->marks[i], token->length) == 0)
                m->marked[m->n_marked++] =
                    (struct marked_token){t, (uint8_t)(GRAMMAR_MARK_FIRST + i)};
    }
}

/* The byte of a control token; 0: it has none. */
static uint8_t mark_byte(const struct grammar_matcher *m, uint32_t token)
{
    for (uint32_t i = 0; i < m->n_marked; i++)
        if (m->marked[i].token == token)
            return m->marked[i].byte;
    return 0;
}

/* The longest token of any kind: control tokens are walked too, for the trigger. */
static uint32_t longest_token(const struct grammar_vocabulary *v)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].length > longest)
            longest = v->tokens[i].length;
    return longest;
}

/* As many masks as are small together, within bounds. */
static uint32_t masks_to_cache(uint32_t words)
{
    uint32_t n = MASKS_WORDS / (words ? words : 1) / MASKS_WAYS * MASKS_WAYS;
    return n < MASKS_WAYS ? MASKS_WAYS : n > MASKS_MOST ? MASKS_MOST : n;
}

enum error_code grammar_start_check(const struct grammar_start *start, struct error *e)
{
    const char *const texts[] = {start->trigger, start->reasoning_begin, start->reasoning_end};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t length = texts[i] ? strlen(texts[i]) : 0;
        if (length >= GRAMMAR_TRIGGER_BYTES)
            return error_set(e, ERROR_USAGE,
                             "the grammar's trigger, or a mark of reasoning, has %zu bytes, at "
                             "most %d",
                             length, GRAMMAR_TRIGGER_BYTES - 1);
    }
    if (texts[0] && *texts[0] && texts[1] && strstr(texts[1], texts[0]))
        return error_set(e, ERROR_USAGE, "the mark that begins reasoning contains the trigger");
    return ERROR_OK;
}

enum error_code grammar_matcher_restart(struct grammar_matcher *m,
                                        const struct grammar_start *start, struct error *e)
{
    static const struct grammar_start none = {0};
    const struct grammar_start *s = start ? start : &none;
    enum error_code code = grammar_start_check(s, e);
    if (code)
        return code;
    set_searched(&m->trigger, s->trigger);
    set_searched(&m->reasoning_begin, s->reasoning_begin);
    set_searched(&m->reasoning_end, s->reasoning_end);
    m->required = s->required;
    m->taken = m->oldest = m->spent = m->looked = 0;
    m->c.work_done = 0;
    m->stuck = false;
    enum answer_part part = m->trigger.length == 0           ? PART_ACTIVE
                            : m->reasoning_end.length == 0   ? PART_WAITING
                            : m->reasoning_begin.length == 0 ? PART_REASONING
                                                             : PART_START;
    m->history[0] = (struct position){.configuration = m->start, .part = (uint8_t)part};
    return ERROR_OK;
}

enum error_code grammar_matcher_new(const struct grammar *g, const struct grammar_vocabulary *v,
                                    const struct grammar_start *start, struct grammar_matcher **out,
                                    struct error *e)
{
    uint32_t words = grammar_mask_words(v->n_tokens), n_cached = masks_to_cache(words);
    uint32_t longest = longest_token(v), *masks;
    struct grammar_matcher *m, made = {.v = v, .n_cached = n_cached};
    made.memory = ARRAYS_NEW(ARRAY(m, 1), ARRAY(made.path, longest + 2u),
                             ARRAY(made.roots, longest + 3u + HISTORY),
                             ARRAY(made.cached, n_cached), ARRAY(masks, (size_t)words * n_cached));
    if (!made.memory)
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar's matcher");
    *m = made;
    if (!configurations_init(&m->c, g)) {
        free(m->memory);
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar's matcher");
    }
    for (uint32_t i = 0; i < n_cached; i++)
        m->cached[i].words = masks + (size_t)i * words;
    find_marked(m, g);
    m->c.work_max = WORK_MAX;
    m->start = configurations_start(&m->c);
    if (m->c.fault)
        m->error = ERROR_LIMIT;
    enum error_code code = grammar_matcher_restart(m, start, e);
    if (code)
        grammar_matcher_free(m);
    else
        *out = m;
    return code;
}

void grammar_matcher_free(struct grammar_matcher *m)
{
    if (!m)
        return;
    configurations_fini(&m->c);
    free(m->memory);
}

static struct position *newest(const struct grammar_matcher *m)
{
    return (struct position *)&m->history[m->taken % HISTORY];
}

bool grammar_matcher_is_active(const struct grammar_matcher *m)
{
    return newest(m)->part == PART_ACTIVE;
}

/* Begins the work of a call. */
static void begin_work(struct grammar_matcher *m)
{
    m->spent += m->c.work_done;
    uint64_t all = ANSWER_WORK + m->taken * TOKEN_WORK;
    uint64_t left = all > m->spent ? all - m->spent : 0;
    m->c.work_max = left < WORK_MAX ? left : WORK_MAX;
    m->c.work_done = 0;
    m->c.fault = CONFIGURATIONS_OK;
}

static void forget(struct grammar_matcher *m)
{
    uint32_t n = 0;
    m->roots[n++] = &m->start;
    for (uint32_t i = 0; i < m->n_path; i++)
        m->roots[n++] = &m->path[i];
    for (uint64_t i = m->oldest; i <= m->taken; i++)
        m->roots[n++] = &m->history[i % HISTORY].configuration;
    configurations_forget(&m->c, m->roots, n);
    for (uint32_t i = 0; i < m->n_cached; i++)
        m->cached[i].configuration = CONFIGURATION_UNKNOWN;
    memset(m->runs, 0, sizeof m->runs);
}

/* path[depth + 1] becomes the configuration after path[depth] and the byte. False: dead, or an
 * error. */
static bool step(struct grammar_matcher *m, uint32_t depth, uint8_t byte)
{
    m->n_path = depth + 1;
    uint32_t next = configurations_step(&m->c, m->path[depth], byte);
    if (next == CONFIGURATION_DEAD && m->c.fault == CONFIGURATIONS_FULL) {
        forget(m);
        next = configurations_compute(&m->c, m->path[depth], byte);
    }
    if (m->c.fault) {
        m->error = ERROR_LIMIT;
        return false;
    }
    m->path[depth + 1] = next;
    return next != CONFIGURATION_DEAD;
}

/* A byte that stands for a control token, and that no text has. */
static bool is_mark(uint8_t byte)
{
    return byte >= GRAMMAR_MARK_FIRST;
}

/* From the newest position over a control token. False: the grammar refuses it. */
static bool walk_mark(struct grammar_matcher *m, uint32_t token, struct position *out)
{
    uint8_t byte = mark_byte(m, token);
    m->path[0] = newest(m)->configuration;
    if (!byte || !step(m, 0, byte))
        return false;
    *out = *newest(m);
    out->configuration = m->path[1];
    return true;
}

/* From the newest position over the bytes of a token. False: the grammar refuses them. */
static bool walk(struct grammar_matcher *m, const uint8_t *bytes, uint32_t len,
                 struct position *out)
{
    struct position p = *newest(m);
    uint32_t depth = 0;
    m->path[0] = p.part == PART_ACTIVE ? p.configuration : m->start;
    for (uint32_t i = 0; i < len; i++) {
        if (p.part == PART_ACTIVE) {
            if (is_mark(bytes[i]) || !step(m, depth, bytes[i]))
                return false;
            depth++;
            continue;
        }
        await(m, &p, (char)bytes[i]);
    }
    p.configuration = m->path[depth];
    *out = p;
    return true;
}

/* From the newest position over a token. False: the grammar refuses it. */
static bool take(struct grammar_matcher *m, uint32_t token, struct position *out)
{
    if (m->error || token >= m->v->n_tokens)
        return false;
    const struct grammar_token *t = &m->v->tokens[token];
    bool active = grammar_matcher_is_active(m);
    if (t->kind == GRAMMAR_TOKEN_END && (active || m->required)) {
        *out = *newest(m);
        return grammar_matcher_is_complete(m);
    }
    if (active && t->kind == GRAMMAR_TOKEN_CONTROL)
        return walk_mark(m, token, out);
    if (active && t->length == 0)
        return false;
    return walk(m, m->v->bytes + t->offset, t->length, out);
}

bool grammar_matcher_accepts(struct grammar_matcher *m, uint32_t token)
{
    struct position p;
    begin_work(m);
    return take(m, token, &p);
}

static void push(struct grammar_matcher *m, struct position p)
{
    m->taken++;
    *newest(m) = p;
}

bool grammar_matcher_advance(struct grammar_matcher *m, uint32_t token)
{
    struct position p;
    begin_work(m);
    if (!take(m, token, &p))
        return false;
    push(m, p);
    if (m->taken - m->oldest > GRAMMAR_ROLLBACK)
        m->oldest = m->taken - GRAMMAR_ROLLBACK;
    return true;
}

bool grammar_matcher_rollback(struct grammar_matcher *m, uint32_t n)
{
    if (n > m->taken - m->oldest)
        return false;
    m->taken -= n;
    return true;
}

/* -- Looks ahead --
 *
 * They change nothing but what is known of the automaton, so an answer is the same with them: a
 * fault of theirs is none of the answer's, and their steps count only in grammar_matcher_steps. */

/* Returns what end_trial needs. */
static uint64_t begin_trial(struct grammar_matcher *m)
{
    uint64_t work_done = m->c.work_done;
    m->c.work_max = TRIAL_WORK;
    m->c.work_done = 0;
    m->c.fault = CONFIGURATIONS_OK;
    return work_done;
}

static void end_trial(struct grammar_matcher *m, uint64_t work_done)
{
    m->looked += m->c.work_done;
    m->c.work_done = work_done;
    m->c.fault = CONFIGURATIONS_OK;
    m->error = ERROR_OK;
}

uint32_t grammar_matcher_try(struct grammar_matcher *m, const uint32_t *tokens, uint32_t n)
{
    struct position p;
    uint32_t taken = 0;
    bool ended = m->error;
    if (ended)
        return 0;
    uint64_t work_done = begin_trial(m);
    while (taken < n && taken < GRAMMAR_ROLLBACK && !ended && take(m, tokens[taken], &p)) {
        ended = m->v->tokens[tokens[taken]].kind == GRAMMAR_TOKEN_END;
        push(m, p);
        taken++;
    }
    m->taken -= taken;
    end_trial(m, work_done);
    return taken;
}

/* The byte of all edges that lead on, and of those the control token's; -1: there is a choice, or
 * the look ahead has taken long. Known steps are no work, but this look is. */
static int only_byte(struct configurations *c, uint32_t from)
{
    const struct grammar *g = c->g;
    const struct place_set *set = &c->known.sets[from];
    uint32_t edges = 0;
    int text = -1, mark = -1;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t state = c->known.places[set->from + i].state;
        edges += g->bytes_from[state + 1] - g->bytes_from[state];
        for (uint32_t e = g->bytes_from[state]; e < g->bytes_from[state + 1]; e++) {
            int low = g->byte_edges[e].low, *byte = is_mark(g->byte_edges[e].low) ? &mark : &text;
            if (low != g->byte_edges[e].high || (*byte >= 0 && *byte != low))
                return -1;
            *byte = low;
        }
    }
    c->work_done += 1 + edges / TRIAL_EDGES;
    return c->work_done > c->work_max ? -1 : mark >= 0 ? mark : text;
}

static uint32_t marked_token(const struct grammar_matcher *m, int byte)
{
    for (uint32_t i = 0; i < m->n_marked; i++)
        if (m->marked[i].byte == byte)
            return m->marked[i].token;
    return GRAMMAR_NO_TOKEN;
}

uint32_t grammar_matcher_forced(struct grammar_matcher *m, uint8_t *bytes, uint32_t most,
                                uint32_t *token)
{
    uint32_t at = newest(m)->configuration, n = 0;
    *token = GRAMMAR_NO_TOKEN;
    if (m->error || !grammar_matcher_is_active(m))
        return 0;
    uint64_t work_done = begin_trial(m);
    while (n < most && at != CONFIGURATION_DEAD && !configurations_complete(&m->c, at)) {
        int byte = only_byte(&m->c, at);
        if (byte < 0)
            break;
        if (is_mark((uint8_t)byte)) {
            *token = marked_token(m, byte);
            break;
        }
        bytes[n++] = (uint8_t)byte;
        at = configurations_step(&m->c, at, (uint8_t)byte);
    }
    end_trial(m, work_done);
    return n;
}

static void set_bit(uint32_t *mask, uint32_t token)
{
    mask[token / 32] |= 1u << token % 32;
}

/* -- Free runs --
 *
 * Inside a string most tokens are allowed. A configuration has a free run if all bytes of some
 * kinds lead from it to one and the same configuration, that one has such a run too, and so on.
 * Tokens of only such bytes, no longer than the run, are allowed without a look at each. The search
 * takes time in each new place of a bounded string: it has no part in the limits, which would end
 * long ones, but in grammar_matcher_steps. */

/* The kinds whose bytes all lead to one configuration, which is set; 0: none. The bytes of the
 * first kind that is possible say which one. */
static uint8_t uniform_kinds(struct grammar_matcher *m, uint32_t from, uint32_t *next)
{
    uint8_t mixed = 0, seen = 0;
    uint32_t to = CONFIGURATION_UNKNOWN;
    m->looked += RUN_STEPS;
    for (unsigned byte = 0; byte < 256 && !m->error; byte++) {
        enum grammar_byte_kind kind = grammar_byte_kind((uint8_t)byte);
        if (kind == GRAMMAR_BYTE_OTHER || mixed & kind)
            continue;
        uint32_t reached = configurations_step(&m->c, from, (uint8_t)byte);
        if (m->c.fault) { /* full, or too much work: the walk meets it again and handles it */
            m->c.fault = CONFIGURATIONS_OK;
            return 0;
        }
        if (to == CONFIGURATION_UNKNOWN && reached != CONFIGURATION_DEAD)
            to = reached;
        if (reached != to || reached == CONFIGURATION_DEAD)
            mixed |= (uint8_t)kind;
        seen |= (uint8_t)kind;
    }
    *next = to;
    return seen & (uint8_t)~mixed;
}

static struct free_run find_run(struct grammar_matcher *m, uint32_t from)
{
    struct free_run run = {.configuration = from};
    uint32_t next = from;
    uint8_t kinds = uniform_kinds(m, from, &next);
    run.kinds = kinds;
    for (; kinds && run.length < RUN_MAX; run.length++) {
        if (next == from) { /* a loop: without end */
            run.length = UINT16_MAX;
            break;
        }
        from = next;
        if ((uniform_kinds(m, from, &next) & run.kinds) != run.kinds) {
            run.length++;
            break;
        }
    }
    return run;
}

static const struct free_run *run_of(struct grammar_matcher *m, uint32_t configuration)
{
    struct free_run *run = &m->runs[configuration % RUNS];
    if (run->configuration != configuration)
        *run = find_run(m, configuration);
    return run;
}

/* Are all tokens at a node and below allowed, from the configuration before it? Only asked where
 * much is below. */
static bool all_allowed(struct grammar_matcher *m, const struct grammar_trie_node *node)
{
    if (node->skip - (uint32_t)(node - m->v->nodes) < RUN_NODES ||
        node->bytes_below & GRAMMAR_BYTE_OTHER)
        return false;
    const struct free_run *run = run_of(m, m->path[node->depth - 1]);
    return !(node->bytes_below & ~run->kinds) && node->reach <= run->length;
}

/* One walk over the trie, with a configuration for each byte of the path. */
static bool walk_trie(struct grammar_matcher *m, uint32_t *mask)
{
    const struct grammar_vocabulary *v = m->v;
    bool any = false;
    for (uint32_t i = 0; i < v->n_nodes;) {
        const struct grammar_trie_node *node = &v->nodes[i];
        if (all_allowed(m, node)) {
            for (uint32_t k = node->first; k < v->nodes[node->skip].first; k++)
                set_bit(mask, v->order[k]);
            any = true;
            i = node->skip;
            continue;
        }
        if (is_mark(node->byte) || !step(m, node->depth - 1u, node->byte)) {
            if (m->error)
                return false;
            i = node->skip;
            continue;
        }
        for (uint32_t t = node->token; t != GRAMMAR_NO_TOKEN; t = v->tokens[t].same) {
            set_bit(mask, t);
            any = true;
        }
        i++;
    }
    return any;
}

/* Before the trigger: what cannot complete it is allowed without a look. */
static bool mask_by_token(struct grammar_matcher *m, uint32_t *mask)
{
    bool any = false;
    const struct position *at = newest(m);
    uint32_t matched = at->part == PART_REASONING ? 0 : at->matched; /* of the trigger, at most */
    uint32_t missing = matched < m->trigger.length ? m->trigger.length - matched : 1;
    struct position p;
    begin_work(m);
    for (uint32_t i = 0; i < m->v->n_tokens && !m->error; i++)
        if ((m->v->tokens[i].length < missing && m->v->tokens[i].kind != GRAMMAR_TOKEN_END) ||
            take(m, i, &p)) {
            set_bit(mask, i);
            any = true;
        }
    return any && !m->error;
}

static bool mask_active(struct grammar_matcher *m, uint32_t *mask)
{
    begin_work(m);
    m->path[0] = newest(m)->configuration;
    bool any = walk_trie(m, mask);
    m->path[0] = newest(m)->configuration;
    for (uint32_t i = 0; i < m->n_marked && !m->error; i++)
        if (step(m, 0, m->marked[i].byte)) {
            set_bit(mask, m->marked[i].token);
            any = true;
        }
    for (uint32_t i = 0; i < m->v->n_tokens && grammar_matcher_is_complete(m); i++)
        if (m->v->tokens[i].kind == GRAMMAR_TOKEN_END) {
            set_bit(mask, i);
            any = true;
        }
    return any && !m->error;
}

/* The mask of the configuration, or the one whose place it takes. */
static struct cached_mask *cached_place(struct grammar_matcher *m, uint32_t configuration)
{
    struct cached_mask *set = &m->cached[configuration % (m->n_cached / MASKS_WAYS) * MASKS_WAYS],
                       *oldest = set;
    for (uint32_t i = 0; i < MASKS_WAYS; i++) {
        if (set[i].configuration == configuration)
            return &set[i];
        if (set[i].used < oldest->used)
            oldest = &set[i];
    }
    return oldest;
}

bool grammar_matcher_mask(struct grammar_matcher *m, uint32_t *mask)
{
    size_t bytes = grammar_mask_words(m->v->n_tokens) * sizeof *mask;
    if (m->error)
        return false;
    if (!grammar_matcher_is_active(m)) {
        memset(mask, 0, bytes);
        return mask_by_token(m, mask);
    }
    struct cached_mask *cached = cached_place(m, newest(m)->configuration);
    cached->used = ++m->n_masks;
    if (cached->configuration != newest(m)->configuration) {
        cached->configuration = CONFIGURATION_UNKNOWN;
        memset(cached->words, 0, bytes);
        cached->any = mask_active(m, cached->words);
        if (m->error)
            return false;
        cached->configuration = newest(m)->configuration;
    }
    memcpy(mask, cached->words, bytes);
    m->stuck = !cached->any;
    return cached->any;
}

bool grammar_matcher_is_complete(const struct grammar_matcher *m)
{
    return grammar_matcher_is_active(m) ? configurations_complete(&m->c, newest(m)->configuration)
                                        : !m->required;
}

bool grammar_matcher_is_final(const struct grammar_matcher *m)
{
    return grammar_matcher_is_active(m) && grammar_matcher_is_complete(m) &&
           configurations_final(&m->c, newest(m)->configuration);
}

uint64_t grammar_matcher_steps(const struct grammar_matcher *m)
{
    return m->spent + m->looked + m->c.work_done;
}

enum error_code grammar_matcher_error(const struct grammar_matcher *m, struct error *e)
{
    if (m->error)
        return error_set(e, ERROR_LIMIT,
                         "the grammar needs more than %d steps for a token, or for an answer more "
                         "than %d and %d for each token: give it fewer ways to read the same text, "
                         "or %%all fewer parts that are short",
                         WORK_MAX, ANSWER_WORK, TOKEN_WORK);
    if (m->stuck)
        return error_set(e, ERROR_UNAVAILABLE, "no token continues the answer as the grammar asks");
    return ERROR_OK;
}
