/* Ask a running deployment for an answer that follows a JSON schema.
 *
 *     moed up MODEL.gguf
 *     cc structured.c $(pkg-config --cflags --libs moed) -o structured
 *     ./structured "Describe a city."
 */
#include <moed.h>

#include <stdio.h>

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {"
    "\"name\": {\"type\": \"string\", \"maxLength\": 40},"
    "\"population\": {\"type\": \"integer\", \"minimum\": 0},"
    "\"continent\": {\"enum\": [\"Africa\", \"America\", \"Asia\", \"Europe\", \"Oceania\"]}},"
    "\"required\": [\"name\", \"population\", \"continent\"], \"additionalProperties\": false}";

static int print_tokens(void *arg, const struct moed_event *event)
{
    FILE *out = arg;
    fwrite(event->text, 1, event->text_bytes, out);
    return ferror(out); /* anything but 0 cancels the answer */
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 1 ? argv[1] : "Describe a city.";
    struct moed_session *session;
    struct moed_error error;
    if (moed_attach(NULL, &session, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    struct moed_sampling sampling;
    moed_sampling_init(&sampling, sizeof sampling);
    struct moed_grammar grammar = {
        .size = sizeof grammar, .kind = MOED_GRAMMAR_JSON_SCHEMA, .text = schema};
    struct moed_generate_options options = {
        .size = sizeof options,
        .prompt = prompt,
        .max_tokens = 256, /* an answer that is cut here is not whole */
        .sampling = &sampling,
        .grammar = &grammar,
    };
    struct moed_result result = {.size = sizeof result};
    enum moed_code code = moed_generate(session, &options, print_tokens, stdout, &result, &error);
    if (code)
        fprintf(stderr, "%s\n", error.message);
    else if (result.reason != MOED_REASON_END)
        fprintf(stderr, "\nincomplete: %s\n", moed_reason_name(result.reason));
    else
        putchar('\n');
    moed_detach(session);
    return code != MOED_OK;
}
