/* moed chat: a conversation at a terminal. On a pipe, standard input is one question.
 *
 *   prompt --line--> command (slash.c) or question --talk_answer--> answer --> prompt
 *
 * Ctrl-C sets `interrupts` (client/cli/interrupt.h), which stops an answer. Two in a row, with
 * nothing typed between them, end the conversation; three that nobody takes end the program. */
#include "client/cli/ask.h"
#include "client/cli/chat/line_reader.h"
#include "client/cli/chat/messages.h"
#include "client/cli/chat/slash.h"
#include "client/cli/chat/talk.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"

#include "base/utf8.h"

#include <ctype.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A question ---- */

/* Adds the question with what /read attached. False: it has complained. */
static bool add_question(struct talk *t, const char *text, size_t len)
{
    struct strbuf whole;
    strbuf_init(&whole);
    strbuf_append(&whole, t->attached.data ? t->attached.data : "", t->attached.len);
    strbuf_append(&whole, text, len);
    bool added = !whole.failed && messages_add(t->messages, "user", whole.data, whole.len);
    strbuf_fini(&whole);
    if (!added)
        cli_complain("chat: the text is not UTF-8, which a chat template takes");
    return added;
}

static enum talk_end ask(struct talk *t, const char *text, size_t len)
{
    if (!add_question(t, text, len))
        return TALK_FAILED;
    enum talk_end end = talk_answer(t);
    if (end == TALK_ANSWERED)
        strbuf_clear(&t->attached);
    else
        messages_drop_last(t->messages);
    return end;
}

/* Where no other answer comes, the old one stays. */
static enum talk_end ask_again_last(struct talk *t)
{
    json_t *before = json_deep_copy(t->messages);
    if (!before || !messages_drop_answer(t->messages)) {
        json_decref(before);
        return TALK_FAILED;
    }
    enum talk_end end = talk_answer(t);
    if (end == TALK_ANSWERED) {
        json_decref(before);
        return end;
    }
    json_decref(t->messages);
    t->messages = before;
    return end;
}

/* ---- At a terminal ---- */

struct desk {
    struct talk *talk;
    struct line_reader *lines;
    struct strbuf line, block;
    bool interrupted; /* the last thing was a Ctrl-C */
};

enum input { INPUT_QUESTION, INPUT_COMMAND, INPUT_NOTHING, INPUT_OVER };

static const char fence[] = "\"\"\"";

/* Ctrl-C at the prompt. */
static enum input take_interrupt(struct desk *d)
{
    interrupts_forget();
    printf("\n");
    if (d->interrupted)
        return INPUT_OVER;
    d->interrupted = true;
    printf("(Ctrl-C again, Ctrl-D or /bye ends)\n");
    return INPUT_NOTHING;
}

static bool has_newline(const char *text, size_t len)
{
    return len && memchr(text, '\n', len);
}

/* The fence that ends a block. In text that was pasted only one at its end does. */
static const char *find_fence(const char *text, size_t len)
{
    if (!has_newline(text, len))
        return len ? memmem(text, len, fence, 3) : NULL;
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    return len >= 3 && memcmp(text + len - 3, fence, 3) == 0 ? text + len - 3 : NULL;
}

/* Whether the line begins a block. Text that was pasted may begin with a fence of its own. */
static bool begins_block(const char *text, size_t len)
{
    if (len < 3 || memcmp(text, fence, 3) != 0)
        return false;
    text += 3;
    len -= 3;
    return !has_newline(text, len) || find_fence(text, len) || !memmem(text, len, fence, 3);
}

/* Appends a line to the block; true where the line ends it. */
static bool add_to_block(struct desk *d, const char *text, size_t len)
{
    const char *end = find_fence(text, len);
    strbuf_append(&d->block, text, end ? (size_t)(end - text) : len);
    if (!end)
        strbuf_append(&d->block, "\n", 1);
    return end != NULL;
}

/* The rest of a block that the line in d->line begins. */
static enum input read_block(struct desk *d)
{
    strbuf_clear(&d->block);
    bool whole = d->line.len > 3 && add_to_block(d, d->line.data + 3, d->line.len - 3);
    while (!whole) {
        enum line_end end = line_reader_next(d->lines, "... ", false, &d->line);
        if (end == LINE_INTERRUPTED)
            return take_interrupt(d);
        if (end == LINE_OVER)
            return INPUT_OVER;
        whole = add_to_block(d, d->line.data, d->line.len);
    }
    while (d->block.len && d->block.data[d->block.len - 1] == '\n')
        d->block.data[--d->block.len] = '\0';
    return d->block.len ? INPUT_QUESTION : INPUT_NOTHING;
}

static enum input read_input(struct desk *d)
{
    enum line_end end = line_reader_next(d->lines, ">>> ", true, &d->line);
    if (end == LINE_INTERRUPTED)
        return take_interrupt(d);
    if (end == LINE_OVER) {
        printf("\n");
        return INPUT_OVER;
    }
    d->interrupted = false;
    const char *text = d->line.data;
    size_t len = d->line.len, spaces = len ? strspn(text, " \t\r\n") : 0;
    if (spaces == len)
        return INPUT_NOTHING;
    if (begins_block(text, len))
        return read_block(d);
    if (*text == '/' && (!has_newline(text, len) || slash_is_known(text)))
        return INPUT_COMMAND;
    strbuf_clear(&d->block);
    strbuf_append(&d->block, text + spaces, len - spaces);
    return INPUT_QUESTION;
}

static enum talk_end answer_command(struct desk *d, bool *over)
{
    enum slash_next next = slash_run(d->talk, d->line.data);
    *over = next == SLASH_END;
    return next == SLASH_REGEN ? ask_again_last(d->talk) : TALK_ANSWERED;
}

static int converse(struct desk *d)
{
    for (bool over = false; !over;) {
        enum talk_end end = TALK_ANSWERED;
        enum input input = read_input(d);
        if (input == INPUT_OVER)
            break;
        if (input == INPUT_NOTHING) /* a Ctrl-C since then is the next input */
            continue;
        if (input == INPUT_QUESTION)
            end = ask(d->talk, d->block.data, d->block.len);
        else
            end = answer_command(d, &over);
        if (end == TALK_CLOSED)
            return CLI_FAILURE;
        d->interrupted |= interrupts != 0;
        interrupts_forget();
    }
    return CLI_OK;
}

/* Where typed lines are kept: $XDG_STATE_HOME/moed/chat_history. False: nowhere. */
static bool history_path(char out[PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool given = state && *state == '/';
    if (!given && !(home && *home == '/'))
        return false;
    int n = snprintf(out, PATH_MAX, "%s%s/moed/chat_history", given ? state : home,
                     given ? "" : "/.local/state");
    if (n >= PATH_MAX)
        return false;
    for (char *slash = strchr(out + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(out, 0700); /* it may be there */
        *slash = '/';
    }
    return true;
}

static void greet(const struct talk *t)
{
    struct moed_model *facts;
    if (moed_model_get(t->session, &facts, NULL))
        return;
    struct strbuf name;
    strbuf_init(&name);
    strbuf_printf(&name, "%.100s", facts->name);
    if (!name.failed)
        utf8_hide_controls(name.data, name.len, "");
    fprintf(t->terminal ? stdout : stderr,
            "%s, a context of %u tokens. /? lists the commands, Ctrl-D ends.\n",
            name.failed ? "" : name.data, (unsigned)facts->context);
    strbuf_fini(&name);
    moed_model_free(facts);
}

static int at_terminal(struct talk *t)
{
    char path[PATH_MAX];
    bool keeps = t->settings->history && history_path(path);
    struct desk d = {.talk = t, .lines = line_reader_new(keeps ? path : NULL)};
    if (!d.lines) {
        cli_complain("chat: no memory");
        return CLI_FAILURE;
    }
    strbuf_init(&d.line);
    strbuf_init(&d.block);
    interrupts_survive();
    greet(t);
    size_t n = json_array_size(t->messages);
    if (t->settings->messages_file)
        printf("%zu message%s loaded\n", n, n == 1 ? "" : "s");
    int exit_code = converse(&d);
    strbuf_fini(&d.line);
    strbuf_fini(&d.block);
    line_reader_free(d.lines);
    return exit_code;
}

/* ---- On a pipe ---- */

static int one_question(struct talk *t)
{
    struct strbuf question;
    strbuf_init(&question);
    bool read = ask_text("-", &question);
    while (question.len && question.data[question.len - 1] == '\n')
        question.data[--question.len] = '\0';
    enum talk_end end = TALK_FAILED;
    t->exit_code = CLI_FAILURE;
    if (read && !question.len)
        cli_complain("chat: standard input is empty: there is no question");
    else if (read) {
        interrupts_hold(true);
        end = ask(t, question.data, question.len);
        interrupts_hold(false);
    }
    strbuf_fini(&question);
    if (interrupts)
        return EXIT_INTERRUPTED;
    return end == TALK_ANSWERED ? CLI_OK : t->exit_code;
}

/* Chooses what is a character of the keyboard: UTF-8. True: the locale says so too. Where none is
 * set, as in containers, or the one that is set is not installed, terminals nevertheless send
 * UTF-8. other: the characters of another locale; "": none. */
static bool choose_characters(char other[64])
{
    const char *name = setlocale(LC_CTYPE, ""), *codeset = nl_langinfo(CODESET);
    *other = '\0';
    if (strcmp(codeset, "UTF-8") == 0)
        return true;
    if (name && strcmp(name, "C") != 0 && strcmp(name, "POSIX") != 0)
        snprintf(other, 64, "%s", codeset);
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        snprintf(other, 64, "%s", codeset);
    return false;
}

int chat_main(int argc, char **argv)
{
    struct settings settings;
    struct talk talk = {0};
    int exit_code;
    char other[64];
    bool utf8 = choose_characters(other);
    if (settings_take(&settings, argc, argv, &exit_code)) {
        exit_code = CLI_FAILURE;
        if (interrupts_watch() && talk_init(&talk, &settings, &exit_code)) {
            talk.utf8 = utf8;
            if (*other && isatty(STDIN_FILENO))
                cli_complain("chat: the locale's characters are %s; moed reads and writes UTF-8",
                             other);
            exit_code = isatty(STDIN_FILENO) ? at_terminal(&talk) : one_question(&talk);
        }
        talk_fini(&talk);
    }
    settings_fini(&settings);
    return exit_code;
}
