/* The parser's states: content, reasoning, sections and calls. */
#include "toolcall/parser.h"

#include <stdlib.h>
#include <string.h>

enum {
    PENDING_SPACE_MAX = 64,
    START_SPACE_MAX = 64,
    NEWLINES_OF_A_MARK = 2,
    BUFFER_BYTES = 512,
    REREADS_MAX = 4, /* of reasoning, for each byte of the answer so far */
};

/* -- Content and reasoning -- */

bool parser_in_reasoning(const struct tool_parser *p)
{
    return p->state == PARSER_REASONING || p->from_reasoning ||
           (p->state == PARSER_HARMONY && p->channel_reasons);
}

static bool takes_calls(const struct tool_parser *p)
{
    return tool_list_count(p->o.tools) > 0;
}

static bool over_budget(const struct tool_parser *p)
{
    return p->o.reasoning_budget > 0 && parser_in_reasoning(p) &&
           p->reasoning_tokens >= p->o.reasoning_budget;
}

/* The marks of calls count in reasoning. */
static bool reasoning_calls(const struct tool_parser *p)
{
    bool counts = p->o.calls_in_reasoning && !over_budget(p);
    return takes_calls(p) && (counts || p->o.format->ends_reasoning);
}

static void call_begin(struct tool_parser *p, bool bare);

/* The mark of a section, or of a call, is behind `at`. */
static void calls_begin(struct tool_parser *p, const char *mark)
{
    p->region_done = false;
    p->in_section = mark == p->o.format->section_begin;
    if (p->in_section)
        p->state = PARSER_SECTION;
    else
        call_begin(p, false);
}

static enum step reasoning_step(struct tool_parser *p)
{
    if (p->space == SPACE_DROP) {
        read_space(p);
        p->mark = p->at;
        if (p->at == p->len)
            return STEP_WAIT;
        p->space = SPACE_KEEP;
    }
    const struct tool_format *f = p->o.format;
    const char *marks[4] = {p->o.reasoning->end};
    size_t n = 1, which;
    if (reasoning_calls(p) && f->section_begin)
        marks[n++] = f->section_begin;
    if (reasoning_calls(p) && f->call_begin)
        marks[n++] = f->call_begin;
    if (f->ends_reasoning && f->text_begin)
        marks[n++] = f->text_begin;
    enum step s = scan_text(p, TOOL_REASONING, marks, n, NEWLINES_OF_A_MARK, &which);
    if (s == STEP_AGAIN && which > 0 && p->at <= p->calls_from) {
        emit_text(p, TOOL_REASONING, p->buf + p->mark, p->at - p->mark);
        p->mark = p->at;
    } else if (s == STEP_AGAIN && which > 0 && !f->ends_reasoning) {
        p->from_reasoning = true;
        p->mark_len = p->at - p->mark;
        calls_begin(p, marks[which]);
    } else if (s == STEP_AGAIN) {
        if (which > 0) /* content_step reads the mark again */
            p->at = p->mark;
        p->mark = p->at;
        p->state = PARSER_CONTENT;
        p->space = SPACE_DROP;
    }
    return s;
}

enum { CONTENT_MARKS_MAX = 6 };

/* The mark of the text's end is no content. Where reasoning is content, its end mark is, too. */
static bool has_text_end(const struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    bool ends_reasoning = f->text_end && f->reasoning.end && !strcmp(f->text_end, f->reasoning.end);
    return f->text_end && (p->o.reasoning || !ends_reasoning);
}

/* The marks in content. The first one is a section's if the format has sections. */
static size_t content_marks(const struct tool_parser *p, const char *marks[CONTENT_MARKS_MAX])
{
    const struct tool_format *f = p->o.format;
    size_t n = 0;
    if (takes_calls(p) && f->section_begin)
        marks[n++] = f->section_begin;
    if (takes_calls(p) && f->call_begin)
        marks[n++] = f->call_begin;
    if (f->text_begin)
        marks[n++] = f->text_begin;
    if (has_text_end(p))
        marks[n++] = f->text_end;
    if (f->reasoning.next)
        marks[n++] = f->reasoning.next;
    if (p->reasoning_unended)
        marks[n++] = p->o.reasoning->end;
    return n;
}

/* Whitespace after a call or after reasoning. AGAIN: it is settled. */
static enum step content_space(struct tool_parser *p, const char *const *marks, size_t n)
{
    size_t from = p->at, end = space_end(p);
    bool dropped = p->space == SPACE_DROP || (end == p->len && p->final);
    if (!dropped && p->space == SPACE_SECTION && end - from <= PENDING_SPACE_MAX) {
        const char *section_end = p->o.format->section_end;
        p->at = end;
        enum match m = read_mark(p, section_end);
        if (m == MATCH_YES || read_cut_mark(p, section_end)) {
            p->mark = p->at;
            p->space = SPACE_PENDING;
            return content_space(p, marks, n);
        }
        p->at = from;
        if (m == MATCH_PART)
            return STEP_WAIT;
    }
    if (!dropped) {
        if (end - from > PENDING_SPACE_MAX) {
            p->space = SPACE_KEEP;
            return STEP_AGAIN;
        }
        if (end == p->len)
            return STEP_WAIT;
        p->at = end;
        for (size_t i = 0; i < n && !dropped; i++) {
            enum match m = read_mark(p, marks[i]);
            p->at = m == MATCH_PART ? from : end;
            if (m == MATCH_PART)
                return STEP_WAIT;
            dropped = m == MATCH_YES;
        }
        p->at = from;
    }
    if (dropped)
        p->mark = p->at = end;
    if (end == p->len)
        return STEP_WAIT;
    p->space = SPACE_KEEP;
    return STEP_AGAIN;
}

static void call_begin(struct tool_parser *p, bool bare)
{
    p->state = PARSER_CALL;
    p->body_state = 0;
    p->args_written = 0;
    p->tool = NULL;
    p->searched = 0;
    p->surrogates.n = 0;
    strbuf_clear(&p->args);
    p->as_objects = p->o.format->body == BODY_OBJECTS;
    if (p->as_objects)
        objects_begin(p, bare);
}

/* At the start of the answer, where reasoning or a bare call may begin. AGAIN: it is settled. */
static enum step start_step(struct tool_parser *p)
{
    size_t end = space_end(p);
    if (end - p->at > START_SPACE_MAX) {
        p->started = true;
        return STEP_AGAIN;
    }
    if (end == p->len && !p->final)
        return STEP_WAIT;
    if (end < p->len && p->o.format->bare && takes_calls(p) && p->buf[end] == '{') {
        p->at = end;
        p->in_section = p->region_done = false;
        call_begin(p, true);
        return STEP_AGAIN;
    }
    if (end < p->len && p->o.reasoning) {
        size_t from = p->at;
        p->at = end;
        enum match m = read_mark(p, p->o.reasoning->begin);
        if (m == MATCH_YES) {
            p->mark = p->at;
            p->state = PARSER_REASONING;
            p->space = SPACE_DROP;
            return STEP_AGAIN;
        }
        p->at = from;
        if (m == MATCH_PART)
            return STEP_WAIT;
    }
    p->started = true;
    return STEP_AGAIN;
}

/* A mark around the text or of another message, or the end of reasoning, is behind `at`, and `mark`
 * at the whitespace before it. */
static void drop_text_mark(struct tool_parser *p, const char *mark)
{
    if (mark == p->o.format->text_end)
        emit_text(p, TOOL_CONTENT, p->buf + p->mark, p->at - strlen(mark) - p->mark);
    p->mark = p->at;
    p->started = p->started && mark != p->o.format->reasoning.next; /* reasoning may begin */
    if (p->reasoning_unended && strcmp(mark, p->o.reasoning->end) == 0) {
        p->reasoning_unended = false;
        p->space = SPACE_DROP;
    }
}

static enum step content_step(struct tool_parser *p)
{
    const char *marks[CONTENT_MARKS_MAX];
    size_t n = content_marks(p, marks), which;
    enum step s = STEP_AGAIN;
    if (p->space != SPACE_KEEP)
        s = content_space(p, marks, n);
    if (s == STEP_AGAIN && !p->started)
        return start_step(p);
    if (s == STEP_AGAIN)
        s = scan_text(p, TOOL_CONTENT, marks, n, n > 0 ? NEWLINES_OF_A_MARK : 0, &which);
    if (s != STEP_AGAIN)
        return s;
    if (marks[which] == p->o.format->section_begin || marks[which] == p->o.format->call_begin)
        calls_begin(p, marks[which]);
    else
        drop_text_mark(p, marks[which]);
    return STEP_AGAIN;
}

/* -- Behind complete calls of reasoning -- */

/* They are calls. ended: the end mark has come. */
static void reasoning_ends(struct tool_parser *p, bool ended)
{
    held_give(p);
    p->mark = p->at;
    p->state = PARSER_CONTENT;
    p->space = ended ? SPACE_DROP : SPACE_PENDING;
    p->reasoning_unended = !ended;
}

static void reasoning_goes_on(struct tool_parser *p)
{
    held_drop(p);
    p->at = p->mark;
    p->state = PARSER_REASONING;
    p->space = SPACE_KEEP;
    p->from_reasoning = false;
}

static void behind_mark(struct tool_parser *p, const char *mark)
{
    const struct tool_format *f = p->o.format;
    if (mark == p->o.reasoning->end) {
        reasoning_ends(p, true);
    } else if (mark == f->section_begin || mark == f->call_begin) {
        p->mark_len = p->at - p->mark;
        calls_begin(p, mark);
    } else {
        call_take(p);
    }
}

/* What follows decides whether they are calls. */
static enum step behind_step(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    const char *const marks[] = {p->o.reasoning->end, f->section_begin, f->call_begin,
                                 f->section_end};
    enum match m = MATCH_NO;
    size_t which = 0;
    read_space(p);
    if (p->at - p->mark > PENDING_SPACE_MAX)
        call_take(p);
    bool over = read_cut_mark(p, marks[0]) || read_cut_mark(p, f->section_end);
    for (; which < sizeof marks / sizeof *marks && m == MATCH_NO; which++)
        m = marks[which] ? read_mark(p, marks[which]) : MATCH_NO;
    if (over)
        reasoning_ends(p, false);
    else if (m == MATCH_PART || (m == MATCH_NO && p->at == p->len))
        return STEP_WAIT;
    else if (m == MATCH_NO)
        reasoning_goes_on(p);
    else
        behind_mark(p, marks[which - 1]);
    return STEP_AGAIN;
}

/* -- Calls -- */

/* The call's mark was reasoning. What was read behind it, to `to`, is scanned again: it may have
 * the end mark. */
static void back_to_reasoning(struct tool_parser *p, size_t to)
{
    uint64_t again = to - p->mark - p->mark_len;
    held_drop(p);
    if (p->reread + again > REREADS_MAX * (p->before + to))
        p->calls_from = to;
    else
        p->reread += again;
    p->at = p->mark + p->mark_len;
    p->absent = NULL; /* it may be behind the place from which it was searched */
    p->absent_to = 0;
    emit_text(p, TOOL_REASONING, p->buf + p->mark, p->mark_len);
    p->state = PARSER_REASONING;
    p->from_reasoning = false;
}

/* What is between `mark` and `at` is no call, and what follows is not in one. to: what was read. */
static void give_back(struct tool_parser *p, size_t to)
{
    if (p->from_reasoning) {
        back_to_reasoning(p, to);
        return;
    }
    emit_text(p, TOOL_CONTENT, p->buf + p->mark, p->at - p->mark);
    p->state = PARSER_CONTENT;
}

/* Behind the last call of a section, or of a mark. */
static void leave_calls(struct tool_parser *p)
{
    if (!p->region_done)
        give_back(p, p->at);
    else
        p->state = p->from_reasoning ? PARSER_BEHIND : PARSER_CONTENT;
    call_take(p);
    p->space = !p->region_done                              ? SPACE_KEEP
               : p->o.format->section_end && !p->in_section ? SPACE_SECTION
                                                            : SPACE_PENDING;
}

static enum step section_step(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    read_space(p);
    if (p->at == p->len && !p->final)
        return STEP_WAIT;
    enum match begin = read_mark(p, f->call_begin), end = MATCH_NO;
    if (begin == MATCH_YES) {
        call_begin(p, false);
        return STEP_AGAIN;
    }
    end = read_mark(p, f->section_end);
    if (end == MATCH_YES) {
        leave_calls(p);
        return STEP_AGAIN;
    }
    if (begin == MATCH_PART || end == MATCH_PART)
        return STEP_WAIT;
    if (p->region_done) { /* the end mark is missing */
        if (!read_cut_mark(p, f->section_end))
            p->at = p->mark;
        leave_calls(p);
        return STEP_AGAIN;
    }
    return STEP_FAIL;
}

static enum step call_step(struct tool_parser *p)
{
    enum step s;
    if (p->as_objects)
        s = objects_step(p);
    else
        switch (p->o.format->body) {
        case BODY_NAMED:
            s = named_step(p);
            break;
        case BODY_TAGS:
            s = tags_step(p);
            break;
        case BODY_GENERIC:
            s = generic_step(p);
            break;
        default:
            s = literal_step(p);
            break;
        }
    if (s != STEP_CLOSED)
        return s;
    if (p->in_section)
        p->state = PARSER_SECTION;
    else
        leave_calls(p);
    return STEP_AGAIN;
}

/* The call is malformed: what was not given becomes content, or is reasoning as before. to: what
 * was read. */
static void give_up(struct tool_parser *p, size_t to)
{
    call_fail(p);
    p->searched = 0;
    p->space = SPACE_KEEP;
    if (p->state == PARSER_HARMONY) {
        emit_text(p, TOOL_CONTENT, p->buf + p->mark, p->at - p->mark);
        harmony_text(p);
    } else {
        p->started = p->started || !p->from_reasoning;
        give_back(p, to);
    }
    p->mark = p->at;
}

/* -- The parser -- */

static enum step parser_step(struct tool_parser *p)
{
    switch (p->state) {
    case PARSER_CONTENT:
        return content_step(p);
    case PARSER_REASONING:
        return reasoning_step(p);
    case PARSER_SECTION:
        return section_step(p);
    case PARSER_CALL:
        return call_step(p);
    case PARSER_BEHIND:
        return behind_step(p);
    case PARSER_HARMONY:
        return harmony_step(p);
    }
    return STEP_WAIT;
}

static bool in_call(const struct tool_parser *p)
{
    return p->state == PARSER_CALL || p->state == PARSER_SECTION || p->state == PARSER_HARMONY;
}

static void run(struct tool_parser *p)
{
    while (!p->stopped && !p->failed) {
        enum step s = parser_step(p);
        bool full = p->len - p->mark >= TOOL_HELD_BYTES_MAX;
        if (s == STEP_FAIL || (s == STEP_WAIT && in_call(p) && (full || p->final))) {
            if (p->mark == p->len && !p->call_open && !p->held.n)
                return;
            give_up(p, s == STEP_FAIL ? p->at : p->len);
        } else if (s == STEP_WAIT) {
            return;
        }
    }
}

enum error_code tool_parser_new(const struct tool_parser_options *options, struct tool_parser **out,
                                struct error *e)
{
    struct tool_parser *p = calloc(1, sizeof *p);
    char *buf = malloc(BUFFER_BYTES);
    if (!p || !buf) {
        free(p);
        free(buf);
        return error_set(e, ERROR_MEMORY, "no memory for a parser of tool calls");
    }
    p->buf = buf;
    p->capacity = BUFFER_BYTES;
    p->o = *options;
    p->id_state = options->id_seed;
    strbuf_init(&p->args);
    strbuf_init(&p->given);
    strbuf_init(&p->held.args);
    strbuf_init(&p->held.text);
    if (p->o.format->body == BODY_HARMONY) {
        p->state = PARSER_HARMONY;
        harmony_begin(p);
    } else if (p->o.reasoning && p->o.reasoning_open) {
        p->state = PARSER_REASONING;
        p->space = p->o.reasoning_begun ? SPACE_KEEP : SPACE_DROP;
    }
    *out = p;
    return ERROR_OK;
}

void tool_parser_free(struct tool_parser *p)
{
    if (!p)
        return;
    strbuf_fini(&p->args);
    strbuf_fini(&p->given);
    held_fini(&p->held);
    free(p->tokens.items);
    free(p->buf);
    free(p);
}

static bool append(struct tool_parser *p, const char *text, size_t len)
{
    if (p->mark > 0 && (p->mark == p->len || p->mark > p->capacity / 2)) {
        memmove(p->buf, p->buf + p->mark, p->len - p->mark);
        p->len -= p->mark;
        p->at -= p->mark;
        p->absent_to -= p->absent_to < p->mark ? p->absent_to : p->mark;
        p->lines.from -= p->lines.from < p->mark ? p->lines.from : p->mark;
        p->lines.absent_from -= p->lines.absent_from < p->mark ? p->lines.absent_from : p->mark;
        p->lines.absent_to -= p->lines.absent_to < p->mark ? p->lines.absent_to : p->mark;
        p->calls_from -= p->calls_from < p->mark ? p->calls_from : p->mark;
        p->before += p->mark;
        p->mark = 0;
    }
    if (p->len + len > p->capacity) {
        size_t capacity = p->capacity;
        while (capacity < p->len + len)
            capacity *= 2;
        char *grown = realloc(p->buf, capacity);
        if (!grown)
            return false;
        p->buf = grown;
        p->capacity = capacity;
    }
    memcpy(p->buf + p->len, text, len);
    p->len += len;
    return true;
}

void parser_read(struct tool_parser *p, const char *text, size_t len)
{
    while (len > 0 && !p->stopped && !p->failed) {
        /* no further than the limit, at which a call is given up wherever the answer is cut */
        size_t capacity = TOOL_HELD_BYTES_MAX - (p->len - p->mark);
        size_t n = len < capacity ? len : capacity;
        if (!append(p, text, n))
            p->failed = true;
        else
            run(p);
        text += n;
        len -= n;
    }
}

enum error_code parser_counted(struct tool_parser *p)
{
    if (p->from_reasoning && over_budget(p)) { /* the end mark, which will follow, is in no call */
        if (p->state == PARSER_BEHIND)
            reasoning_ends(p, false);
        else
            give_up(p, p->len);
        run(p);
    }
    return p->failed || p->args.failed || p->given.failed || p->held.text.failed ? ERROR_MEMORY
                                                                                 : ERROR_OK;
}

enum error_code tool_parser_finish(struct tool_parser *p)
{
    p->final = true;
    run(p);
    return p->failed || p->args.failed || p->given.failed || p->held.text.failed ? ERROR_MEMORY
                                                                                 : ERROR_OK;
}

uint32_t tool_parser_calls(const struct tool_parser *p)
{
    return p->calls - p->held.n + (p->call_open && !call_waits(p));
}

uint64_t tool_parser_reasoning_tokens(const struct tool_parser *p)
{
    return p->reasoning_tokens;
}

bool tool_parser_over_budget(const struct tool_parser *p)
{
    return over_budget(p);
}

bool tool_parser_stopped(const struct tool_parser *p)
{
    return p->stopped;
}
