/* What a token activated before (ours): of experts that as many of its last visits to the layer
 * activated, the share that the next visit activated. The first layers depend on little else than
 * the token, which is known before they begin.
 *
 * An expert's class is the token's visits that the table has counted (token_table.h), how many of
 * them activated the expert, and whether the last one did. A class's share is over the layer's
 * tokens so far, half as much after HALF_LIFE tokens with as many visits. It begins as if one token
 * had activated all experts equally and `visits` others as its count says.
 *
 * A batch: tokens count as independent, and one without a row activates all experts equally. If no
 * token has a row, nothing is predicted.
 *
 * The rows take at most TABLE_BYTES, which are touched only as tokens come: 224 bytes a token for
 * 8 layers of which a token uses 4 experts, 4,716 for 94 layers and 8 experts. So 7,115 tokens have
 * rows there; a smaller vocabulary has them all.
 *
 * A part of the mixture; it cannot be chosen as a predictor. */
#include "base/arrays.h"
#include "sched/predict/predict_history.h"
#include "sched/predict/predict_internal.h"
#include "sched/predict/token_table.h"

#define HALF_LIFE   2048.0
#define TABLE_BYTES ((size_t)32 << 20)
/* Layers between a shown layer and the predicted one; the embedding predicts as many at once. */
enum { DISTANCE = 4 };
/* More tokens than a vocabulary has. */
enum { MOST_ROWS = 1 << 19 };

struct count_class {
    double experts, activated; /* decayed */
};
/* The classes of a number of visits, by count, and by whether the last visit activated it. */
typedef struct count_class visit_classes[TOKEN_TABLE_VISITS][2];

struct token_shares {
    struct token_table *table;
    visit_classes *classes; /* [layers with experts][TOKEN_TABLE_VISITS visits] */
    bool *activated;        /* [n_experts]; all false between calls */
    double *of_token;       /* [n_experts]; all 0 between calls */
};

static uint32_t expert_layers(const struct predict_shape *s)
{
    return s->n_layers - s->first_layer;
}

static bool shares_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct token_shares *k, new = {0};
    struct token_table_shape shape = {.n_layers = expert_layers(s), .n_used = s->n_used};
    size_t most = TABLE_BYTES / token_table_bytes_per_token(&shape);
    shape.n_tokens = most < MOST_ROWS ? (uint32_t)most : MOST_ROWS;
    p->state =
        ARRAYS_NEW(ARRAY(k, 1), ARRAY(new.classes, (size_t)expert_layers(s) * TOKEN_TABLE_VISITS),
                   ARRAY(new.activated, s->n_experts), ARRAY(new.of_token, s->n_experts));
    if (!p->state)
        return false;
    new.table = token_table_new(&shape);
    *k = new;
    return k->table != NULL;
}

static void shares_fini(struct predictor *p)
{
    struct token_shares *k = p->state;
    token_table_free(k->table);
}

static double share_of(const struct predict_shape *s, const struct count_class *c, uint32_t count,
                       uint32_t visits)
{
    double first = (count + (double)s->n_used / s->n_experts) / (visits + 1);
    return (c->activated + first) / (c->experts + 1);
}

/* Corrects the shares by what the token's row said of this visit. */
static void check(struct predictor *p, uint32_t layer, const struct token_visits *v,
                  const uint32_t *selected)
{
    struct token_shares *k = p->state;
    const struct predict_shape *s = &p->shape;
    visit_classes *classes = &k->classes[(size_t)layer * TOKEN_TABLE_VISITS + v->visits];
    double decay = exp2(-1 / HALF_LIFE);
    for (uint32_t c = 0; c < TOKEN_TABLE_VISITS; c++)
        for (uint32_t last = 0; last < 2; last++) {
            struct count_class *of = &(*classes)[c][last];
            *of = (struct count_class){predict_history_decayed(of->experts, decay),
                                       predict_history_decayed(of->activated, decay)};
        }
    uint32_t others = s->n_used; /* activated without being listed */
    predict_mark(k->activated, selected, s->n_used);
    for (uint32_t i = 0; i < v->n; i++) {
        struct count_class *c = &(*classes)[v->counts[i]][i < s->n_used];
        c->experts += 1;
        c->activated += k->activated[v->experts[i]];
        others -= k->activated[v->experts[i]];
    }
    predict_unmark(k->activated, selected, s->n_used);
    (*classes)[0][0].experts += s->n_experts - v->n;
    (*classes)[0][0].activated += others;
}

static void shares_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct token_shares *k = p->state;
    if (seen->layer == PREDICT_EMBEDDING || seen->n_tokens > p->shape.max_tokens)
        return;
    uint32_t layer = seen->layer - p->shape.first_layer;
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        const uint32_t *selected = seen->selected + (size_t)t * p->shape.n_used;
        uint32_t id = seen->tokens[t].id;
        struct token_visits v;
        if (id == PREDICT_NO_ID)
            continue;
        if (token_table_find(k->table, id, layer, &v))
            check(p, layer, &v, selected);
        token_table_visit(k->table, id, layer, selected);
    }
}

/* The shares of a token's experts, to of_token. */
static void fill_token(struct predictor *p, uint32_t layer, const struct token_visits *v)
{
    struct token_shares *k = p->state;
    const struct predict_shape *s = &p->shape;
    visit_classes *classes = &k->classes[(size_t)layer * TOKEN_TABLE_VISITS + v->visits];
    double other = share_of(s, &(*classes)[0][0], 0, v->visits);
    for (uint32_t i = 0; i < s->n_experts; i++)
        k->of_token[i] = other;
    for (uint32_t i = 0; i < v->n; i++)
        k->of_token[v->experts[i]] =
            share_of(s, &(*classes)[v->counts[i]][i < s->n_used], v->counts[i], v->visits);
}

static void shares_predict(struct predictor *p, const struct predict_seen *seen,
                           const struct predict_target *target, const uint32_t *predicted_routing,
                           double *probability)
{
    struct token_shares *k = p->state;
    const struct predict_shape *s = &p->shape;
    uint32_t n = s->n_experts, n_known = 0, layer = target->layer - s->first_layer;
    predict_nothing(s, probability);
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        struct token_visits v;
        bool known = seen->tokens[t].id != PREDICT_NO_ID &&
                     token_table_find(k->table, seen->tokens[t].id, layer, &v);
        if (known)
            fill_token(p, layer, &v);
        n_known += known;
        for (uint32_t i = 0; i < n; i++) {
            double of_one = known ? fmin(k->of_token[i], 1) : (double)s->n_used / n;
            probability[i] += (1 - probability[i]) * of_one;
        }
    }
    if (!n_known)
        predict_nothing(s, probability);
}

static void adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    uint32_t n_layers = expert_layers(shape);
    traits->distance_first = traits->distance_last = DISTANCE < n_layers ? DISTANCE : n_layers;
}

static const struct predictor_rule background = {
    .init = shares_init,
    .fini = shares_fini,
    .observe = shares_observe,
    .predict = shares_predict,
};

const struct predictor_kind predictor_token_table = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_EMBEDDING | PREDICT_READS_SELECTED,
               .distance_first = DISTANCE,
               .distance_last = DISTANCE,
               .embedding_all = true},
    .background = &background,
    .adapt = adapt,
};
