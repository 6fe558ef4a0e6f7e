/* Parses statements; see parser.h. */
#include "jinja/parser.h"

#include <stdio.h>
#include <string.h>

static void expect_type(struct parser *p, enum token_type type, const char *text)
{
    if (p->at->type != type)
        parse_unexpected(p, text);
    p->at++;
}

static void expect_block_end(struct parser *p)
{
    expect_type(p, TOKEN_BLOCK_END, "'%}'");
}

static void expect_word(struct parser *p, const char *word)
{
    char expected[24];
    snprintf(expected, sizeof expected, "'%s'", word);
    if (!parse_skip_word(p, word))
        parse_unexpected(p, expected);
}

/* ---- Bodies ---- */

/* line: of the tag that the ends belong to */
static const struct statement *statements(struct parser *p, const char *const ends[], int line);

static bool at_end_word(const struct parser *p, const char *const ends[])
{
    for (size_t i = 0; ends && ends[i]; i++)
        if (p->at->type == TOKEN_BLOCK_BEGIN && p->at[1].type == TOKEN_NAME &&
            text_is(p->at[1].text, ends[i]))
            return true;
    return false;
}

/* The statements up to {% one of ends; p is then at that word. A colon in front of them may stand,
 * as in Python. */
static const struct statement *body_until(struct parser *p, const char *const ends[])
{
    int line = p->at->line;
    parse_skip(p, ':');
    expect_block_end(p);
    run_enter(p->run);
    const struct statement *body = statements(p, ends, line);
    run_leave(p->run);
    p->at++;
    return body;
}

/* The statements up to {% end %}, which is passed. */
static const struct statement *body_to(struct parser *p, const char *end)
{
    const struct statement *body = body_until(p, (const char *const[]){end, NULL});
    p->at++;
    expect_block_end(p);
    return body;
}

static struct statement *new_statement(struct parser *p, enum statement_kind kind)
{
    struct statement *s = run_alloc_array(p->run, 1, sizeof *s);
    s->kind = kind;
    s->line = p->at->line;
    return s;
}

/* ---- Statements, each from behind its word ---- */

static struct statement *parse_if(struct parser *p)
{
    struct statement *first = new_statement(p, STATEMENT_IF), *s = first;
    for (;;) {
        s->value = parse_tuple(p);
        s->body = body_until(p, (const char *const[]){"elif", "else", "endif", NULL});
        if (!parse_skip_word(p, "elif"))
            break;
        struct statement *next = new_statement(p, STATEMENT_IF);
        s->otherwise = next;
        s = next;
    }
    if (parse_skip_word(p, "else")) {
        s->otherwise = body_to(p, "endif");
    } else {
        p->at++;
        expect_block_end(p);
    }
    return first;
}

static struct statement *parse_for(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_FOR);
    s->target = parse_target(p, false);
    expect_word(p, "in");
    /* "in x if y" is a test of each element, no conditional expression. */
    const struct expression *source = parse_or(p);
    if (parse_at(p, ',')) {
        struct expression *e = parse_new(p, EXPRESSION_TUPLE);
        const struct expression **items = run_alloc_array(p->run, 64, sizeof *items);
        items[e->count++] = source;
        while (parse_skip(p, ',') && p->at->type != TOKEN_BLOCK_END) {
            if (e->count == 64)
                parse_unexpected(p, "at most 64 elements");
            items[e->count++] = parse_or(p);
        }
        e->items = items;
        source = e;
    }
    s->value = source;
    if (parse_skip_word(p, "if"))
        s->test = parse_expression(p);
    if (parse_at_word(p, "recursive"))
        run_fail(p->run, ERROR_UNSUPPORTED, "recursive loops are not supported");
    p->loops++;
    s->body = body_until(p, (const char *const[]){"else", "endfor", NULL});
    p->loops--;
    if (parse_skip_word(p, "else")) {
        s->otherwise = body_to(p, "endfor");
    } else {
        p->at++;
        expect_block_end(p);
    }
    return s;
}

static struct statement *parse_set(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_SET);
    s->target = parse_target(p, true);
    if (parse_skip(p, '=')) {
        s->value = parse_tuple(p);
        expect_block_end(p);
        return s;
    }
    s->kind = STATEMENT_SET_BLOCK;
    if (s->target->kind == EXPRESSION_TUPLE)
        parse_unexpected(p, "'='");
    if (parse_skip(p, '|'))
        s->value = parse_filters(p);
    s->body = body_to(p, "endset");
    return s;
}

/* "(" NAME [= DEFAULT], ... ")" */
static void parse_parameters(struct parser *p, struct macro_syntax *m)
{
    size_t capacity = 0;
    parse_expect(p, '(', "(");
    while (!parse_at(p, ')')) {
        if (m->count)
            parse_expect(p, ',', ",");
        if (m->count == capacity) {
            capacity = capacity ? 2 * capacity : 4;
            const struct text **names = run_alloc_array(p->run, capacity, sizeof *names);
            const struct expression **defaults =
                run_alloc_array(p->run, capacity, sizeof *defaults);
            if (m->count) {
                memcpy(names, m->parameters, m->count * sizeof *names);
                memcpy(defaults, m->defaults, m->count * sizeof *defaults);
            }
            m->parameters = names;
            m->defaults = defaults;
        }
        m->parameters[m->count] = parse_name(p);
        if (parse_skip(p, '='))
            m->defaults[m->count] = parse_expression(p);
        else if (m->count && m->defaults[m->count - 1])
            parse_unexpected(p, "a default: the parameter before has one");
        m->count++;
    }
    p->at++;
}

static const struct statement *macro_body(struct parser *p, struct macro_syntax *m, const char *end)
{
    struct macro_syntax *outer = p->macro;
    unsigned loops = p->loops;
    p->macro = m;
    p->loops = 0;
    const struct statement *body = body_to(p, end);
    p->macro = outer;
    p->loops = loops;
    return body;
}

static struct statement *parse_macro(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_MACRO);
    struct macro_syntax *m = run_alloc_array(p->run, 1, sizeof *m);
    s->macro = m;
    m->name = parse_name(p);
    parse_parameters(p, m);
    m->body = macro_body(p, m, "endmacro");
    return s;
}

static struct statement *parse_call(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_CALL);
    struct macro_syntax *m = run_alloc_array(p->run, 1, sizeof *m);
    s->macro = m;
    m->name = text_from(p->run, "caller");
    if (parse_at(p, '('))
        parse_parameters(p, m);
    s->value = parse_expression(p);
    if (s->value->kind != EXPRESSION_CALL)
        parse_unexpected(p, "a call");
    m->body = macro_body(p, m, "endcall");
    return s;
}

static struct statement *parse_with(struct parser *p)
{
    enum { MOST = 64 };
    struct statement *s = new_statement(p, STATEMENT_WITH);
    s->targets = run_alloc_array(p->run, MOST, sizeof *s->targets);
    s->values = run_alloc_array(p->run, MOST, sizeof *s->values);
    while (p->at->type != TOKEN_BLOCK_END) {
        if (s->count)
            parse_expect(p, ',', ",");
        if (s->count == MOST)
            parse_unexpected(p, "at most 64 names");
        s->targets[s->count] = parse_target(p, false);
        parse_expect(p, '=', "=");
        s->values[s->count++] = parse_expression(p);
    }
    s->body = body_to(p, "endwith");
    return s;
}

static struct statement *parse_filter_block(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_FILTER);
    s->value = parse_filters(p);
    s->body = body_to(p, "endfilter");
    return s;
}

static struct statement *parse_generation(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_SCOPE);
    unsigned loops = p->loops;
    p->loops = 0; /* transformers makes a macro of it */
    s->body = body_to(p, "endgeneration");
    p->loops = loops;
    return s;
}

static struct statement *parse_jump(struct parser *p, enum statement_kind kind)
{
    struct statement *s = new_statement(p, kind);
    if (!p->loops)
        run_fail(p->run, ERROR_FORMAT, "'%s' outside a loop",
                 kind == STATEMENT_BREAK ? "break" : "continue");
    expect_block_end(p);
    return s;
}

static struct statement *parse_break(struct parser *p)
{
    return parse_jump(p, STATEMENT_BREAK);
}

static struct statement *parse_continue(struct parser *p)
{
    return parse_jump(p, STATEMENT_CONTINUE);
}

static struct statement *parse_print(struct parser *p)
{
    struct statement *s = new_statement(p, STATEMENT_OUTPUT);
    s->value = parse_expression(p);
    expect_block_end(p);
    return s;
}

static struct statement *parse_tag(struct parser *p)
{
    static const struct {
        const char *word;
        struct statement *(*parse)(struct parser *p);
    } tags[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call},
        {"with", parse_with},
        {"break", parse_break},
        {"continue", parse_continue},
        {"print", parse_print},
        {"filter", parse_filter_block},
        {"generation", parse_generation},
    };
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (parse_skip_word(p, tags[i].word))
            return tags[i].parse(p);
    static const char *const others[] = {"block",  "extends", "include",
                                         "import", "from",    "autoescape"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (parse_at_word(p, others[i]))
            run_fail(p->run, ERROR_UNSUPPORTED, "the tag '%s' is not supported", others[i]);
    parse_unexpected(p, "a tag");
}

static struct statement *one_statement(struct parser *p)
{
    struct statement *s;
    p->run->line = p->at->line;
    switch (p->at->type) {
    case TOKEN_DATA:
        s = new_statement(p, STATEMENT_DATA);
        s->text = (p->at++)->text;
        return s;
    case TOKEN_VARIABLE_BEGIN:
        p->at++;
        s = new_statement(p, STATEMENT_OUTPUT);
        s->value = parse_tuple(p);
        expect_type(p, TOKEN_VARIABLE_END, "'}}'");
        return s;
    case TOKEN_BLOCK_BEGIN:
        p->at++;
        return parse_tag(p);
    default:
        parse_unexpected(p, "a statement");
    }
}

static const struct statement *statements(struct parser *p, const char *const ends[], int line)
{
    const struct statement *first = NULL;
    struct statement *last = NULL;
    while (!at_end_word(p, ends)) {
        if (p->at->type == TOKEN_END && ends) {
            p->run->line = line;
            run_fail(p->run, ERROR_FORMAT, "the tag has no end: {%% %s %%} is missing",
                     ends[1] ? ends[ends[2] ? 2 : 1] : ends[0]);
        }
        if (p->at->type == TOKEN_END)
            break;
        struct statement *s = one_statement(p);
        if (last)
            last->next = s;
        else
            first = s;
        last = s;
    }
    return first;
}

const struct statement *parser_run(struct run *r, const struct token *tokens)
{
    struct parser p = {.run = r, .at = tokens};
    return statements(&p, NULL, 1);
}
