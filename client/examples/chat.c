/* A conversation with a running deployment, by the model's chat template, in which the model can
 * call a function of this program.
 *
 *     moed up MODEL.gguf
 *     cc chat.c $(pkg-config --cflags --libs moed) -o chat
 *     ./chat "What is the temperature in Rome?" "And in Oslo?"
 */
#include <moed.h>

#include <stdio.h>
#include <string.h>

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {"
    "\"name\": \"temperature\", \"description\": \"The temperature in a city, in degrees Celsius\","
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}},"
    "\"required\": [\"city\"]}}}]";

enum { MOST_CALLS = 8 };

/* What an answer has called. */
struct calls {
    size_t count;
    char ids[MOST_CALLS][320];
};

/* Prints content as it comes, and notes the calls. */
static int take(void *arg, const struct moed_event *event)
{
    struct calls *calls = arg;
    for (size_t i = 0; i < event->part_count; i++) {
        const struct moed_part *part = event->parts[i];
        if (part->kind == MOED_PART_CONTENT)
            fwrite(part->text, 1, part->text_bytes, stdout);
        if (part->kind == MOED_PART_CALL && calls->count < MOST_CALLS)
            snprintf(calls->ids[calls->count++], sizeof calls->ids[0], "%s", part->id);
    }
    fflush(stdout);
    return ferror(stdout); /* anything but 0 cancels the answer */
}

/* Answers until the model has no more calls. A program with real functions would read their
 * arguments from MOED_PART_ARGUMENTS. */
static enum moed_code answer(struct moed_chat *chat, const struct moed_generate_options *options,
                             struct moed_error *error)
{
    enum moed_code code = MOED_OK;
    struct calls calls;
    for (int turn = 0; turn < 4 && !code; turn++) {
        calls.count = 0;
        code = moed_chat_answer(chat, options, take, &calls, NULL, error);
        for (size_t i = 0; i < calls.count && !code; i++)
            code = moed_chat_add_result(chat, calls.ids[i], "{\"celsius\": 21}", 0, error);
        if (calls.count == 0)
            break;
    }
    putchar('\n');
    return code;
}

int main(int argc, char **argv)
{
    struct moed_session *session;
    struct moed_chat *chat = NULL;
    struct moed_error error;
    struct moed_chat_options about = {.size = sizeof about, .tools = tools};
    struct moed_generate_options options = {.size = sizeof options, .max_tokens = 200};
    if (moed_attach(NULL, &session, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    enum moed_code code = moed_chat_new(session, &about, &chat, &error);
    if (!code)
        code = moed_chat_add(chat, "system", "Answer in one sentence.", 0, &error);
    for (int i = 1; i < argc && !code; i++) {
        printf("> %s\n", argv[i]);
        code = moed_chat_add(chat, "user", argv[i], 0, &error);
        if (!code)
            code = answer(chat, &options, &error);
    }
    if (code)
        fprintf(stderr, "%s\n", error.message);
    moed_chat_free(chat);
    moed_detach(session);
    return code != MOED_OK;
}
