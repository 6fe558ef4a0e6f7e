/* The commands of `moed chat`; see slash.h. */
#include "client/cli/chat/slash.h"

#include "base/edit_distance.h"
#include "base/utf8.h"
#include "client/cli/ask.h"
#include "client/cli/chat/messages.h"
#include "client/cli/deployment.h"
#include "client/cli/top/view.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct slash {
    const char *name, *arguments, *purpose;
    enum slash_next (*run)(struct talk *t, const char *rest);
};

/* Prints text that another program or a file may have written. */
static void say_foreign(const char *text)
{
    struct strbuf copy;
    strbuf_init(&copy);
    strbuf_append(&copy, text, strlen(text));
    if (!copy.failed) {
        utf8_hide_controls(copy.data, copy.len, "\n\t");
        printf("%s\n", copy.data);
    }
    strbuf_fini(&copy);
}

static enum slash_next refuse(const char *why)
{
    say_foreign(why);
    return SLASH_GO_ON;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- The commands ---- */

static enum slash_next run_set(struct talk *t, const char *rest)
{
    char name[64] = "", value[64] = "", more[2] = "";
    struct strbuf out;
    struct error why;
    if (!*rest) {
        strbuf_init(&out);
        settings_print(t->settings, &out);
        printf("%s", out.failed ? "" : out.data);
        strbuf_fini(&out);
        return SLASH_GO_ON;
    }
    if (sscanf(rest, "%63s %63s %1s", name, value, more) != 2)
        return refuse("expected /set NAME VALUE, such as /set temp 0.7");
    return settings_set(t->settings, name, value, &why) ? refuse(why.text) : SLASH_GO_ON;
}

static enum slash_next run_system(struct talk *t, const char *rest)
{
    const char *now = messages_system(t->messages);
    if (!*rest)
        return refuse(now ? now : "there is no system message: /system TEXT sets one");
    if (strcmp(rest, "\"\"") == 0)
        rest = "";
    return messages_set_system(t->messages, rest) ? SLASH_GO_ON : refuse("the text is not UTF-8");
}

static enum slash_next run_save(struct talk *t, const char *rest)
{
    struct error why;
    if (!*rest)
        return refuse("expected /save FILE");
    if (messages_save(t->messages, rest, &why))
        return refuse(why.text);
    size_t n = json_array_size(t->messages);
    printf("%zu message%s saved\n", n, plural(n));
    return SLASH_GO_ON;
}

static enum slash_next run_load(struct talk *t, const char *rest)
{
    struct error why;
    json_t *messages;
    if (!*rest)
        return refuse("expected /load FILE");
    if (messages_load(rest, &messages, &why))
        return refuse(why.text);
    json_decref(t->messages);
    t->messages = messages;
    strbuf_clear(&t->attached);
    printf("%zu message%s loaded\n", json_array_size(messages), plural(json_array_size(messages)));
    return SLASH_GO_ON;
}

static enum slash_next run_clear(struct talk *t, const char *rest)
{
    messages_clear(t->messages);
    strbuf_clear(&t->attached);
    printf("a new conversation%s\n",
           messages_system(t->messages) ? ", with the same system message" : "");
    return SLASH_GO_ON;
}

static enum slash_next run_undo(struct talk *t, const char *rest)
{
    if (!messages_drop_last_turn(t->messages))
        return refuse("there is no turn yet");
    size_t n = messages_questions(t->messages);
    printf("the last turn is forgotten: %zu turn%s left\n", n, plural(n));
    return SLASH_GO_ON;
}

static enum slash_next run_drop(struct talk *t, const char *rest)
{
    unsigned n = 0;
    char more[2] = "";
    if (sscanf(rest, "%9u %1s", &n, more) != 1 || n == 0)
        return refuse("expected /drop N: forget the oldest N turns");
    size_t dropped = messages_drop_oldest_turns(t->messages, n),
           left = messages_questions(t->messages);
    printf("%zu turn%s forgotten, %zu left%s\n", dropped, plural(dropped), left,
           messages_system(t->messages) ? "; the system message stays" : "");
    return SLASH_GO_ON;
}

static enum slash_next run_regen(struct talk *t, const char *rest)
{
    return messages_questions(t->messages) ? SLASH_REGEN : refuse("there is no question yet");
}

static enum slash_next run_read(struct talk *t, const char *rest)
{
    struct error why;
    struct strbuf *all = &t->attached;
    size_t before = all->len;
    if (!*rest)
        return refuse("expected /read FILE");
    if (messages_read_text(rest, all, &why))
        return refuse(why.text);
    printf("%zu bytes read: they go with your next message\n", all->len - before);
    while (all->len > before && all->data[all->len - 1] == '\n')
        all->len--;
    strbuf_append(all, "\n\n", 2);
    return SLASH_GO_ON;
}

static enum slash_next run_experts(struct talk *t, const char *rest)
{
    static struct sample sample; /* large */
    char run[RUN_DIR_BYTES];
    struct view view = {.width = 80, .utf8 = t->utf8};
    struct view_page page;
    if (!deployment_path(t->deployment, run))
        return SLASH_GO_ON;
    if (!sample_take(&sample, t->deployment ? t->deployment : "default", run))
        return refuse("the deployment does not run");
    view_draw_experts(&view, &sample, &page);
    for (unsigned i = 0; i < page.n; i++)
        printf("%s\n", page.text[i].len ? page.text[i].data : "");
    view_fini(&page);
    return SLASH_GO_ON;
}

static enum slash_next run_bye(struct talk *t, const char *rest)
{
    return SLASH_END;
}

static enum slash_next run_help(struct talk *t, const char *rest);

static const struct slash commands[] = {
    {"set", "[NAME VALUE]", "show or change settings: /? set", run_set},
    {"system", "[TEXT]", "show or set the system message; \"\" removes it", run_system},
    {"save", "FILE", "write the conversation to a JSON file", run_save},
    {"load", "FILE", "go on with a conversation from a file", run_load},
    {"clear", "", "begin a new conversation", run_clear},
    {"undo", "", "forget the last turn", run_undo},
    {"drop", "N", "forget the oldest N turns", run_drop},
    {"regen", "", "answer the last question again", run_regen},
    {"read", "FILE", "send a text file with the next message", run_read},
    {"experts", "", "show where the experts are, and how the cache does", run_experts},
    {"bye", "", "end (or Ctrl-D)", run_bye},
    {"?", "[set]", "print this", run_help},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static enum slash_next run_help(struct talk *t, const char *rest)
{
    if (strcmp(rest, "set") == 0) {
        printf("/set thinking fold|show|off   one line; all of it; tell the model not to think\n"
               "/set figures on|off           speeds below each answer\n"
               "/set n N                      stop an answer after N tokens; 0: no limit\n"
               "/set temp 0.7                 and every other sampling option of moed chat --help\n"
               "/set temp default             the model's own value again\n");
        return SLASH_GO_ON;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        char left[32];
        snprintf(left, sizeof left, "/%s %s", commands[i].name, commands[i].arguments);
        printf("%-20s %s\n", left, commands[i].purpose);
    }
    printf("\"\"\"                  begin and end a message of several lines\n"
           "Ctrl-C               stop an answer; twice in a row at the prompt: end\n"
           "A line that begins with a space is never a command.\n");
    return SLASH_GO_ON;
}

/* ---- Finding them ---- */

static enum slash_next unknown(const char *name, size_t len)
{
    char word[64];
    const char *best = NULL;
    snprintf(word, sizeof word, "%.*s", (int)(len < 40 ? len : 40), name);
    unsigned best_distance = edit_distance_limit(word);
    for (int i = 0; i < N_COMMANDS; i++) {
        unsigned d = edit_distance(word, commands[i].name);
        if (d < best_distance) {
            best_distance = d;
            best = commands[i].name;
        }
    }
    utf8_hide_controls(word, strlen(word), "");
    if (best)
        printf("there is no command /%s; did you mean /%s?\n", word, best);
    else
        printf("there is no command /%s (/? lists them)\n", word);
    return SLASH_GO_ON;
}

/* The command whose name the line begins with, or N_COMMANDS. len: of the word there. */
static int find_command(const char *line, size_t *len)
{
    int i = 0;
    *len = strcspn(line + 1, " \t\n");
    while (i < N_COMMANDS &&
           (strlen(commands[i].name) != *len || strncmp(commands[i].name, line + 1, *len) != 0))
        i++;
    return i;
}

bool slash_is_known(const char *line)
{
    size_t len;
    return find_command(line, &len) < N_COMMANDS;
}

enum slash_next slash_run(struct talk *t, const char *line)
{
    const char *name = line + 1;
    size_t len;
    int i = find_command(line, &len);
    struct strbuf rest;
    strbuf_init(&rest);
    strbuf_printf(&rest, "%s", name + len + strspn(name + len, " \t\n"));
    while (rest.len && isspace((unsigned char)rest.data[rest.len - 1]))
        rest.data[--rest.len] = '\0';
    enum slash_next next = SLASH_GO_ON;
    if (i == N_COMMANDS)
        next = unknown(name, len);
    else if (!rest.failed)
        next = commands[i].run(t, rest.data ? rest.data : "");
    strbuf_fini(&rest);
    fflush(stdout);
    return next;
}
