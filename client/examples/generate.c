/* Ask a running deployment and print the answer as it comes.
 *
 *     moed up MODEL.gguf
 *     cc generate.c $(pkg-config --cflags --libs moed) -o generate
 *     ./generate "Once upon a time"
 */
#include <moed.h>

#include <stdio.h>

static int print_tokens(void *arg, const struct moed_event *event)
{
    FILE *out = arg;
    fwrite(event->text, 1, event->text_bytes, out);
    fflush(out);
    return ferror(out); /* anything but 0 cancels the answer */
}

static int fail(const struct moed_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    if (error->retry)
        fprintf(stderr, "The same may succeed in a moment: try again.\n");
    return 1;
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 1 ? argv[1] : "Once upon a time";
    struct moed_session *session;
    struct moed_error error;
    if (moed_attach(NULL, &session, &error))
        return fail(&error);

    struct moed_sampling sampling = {
        .size = sizeof sampling, .temperature = 0.8f, .top_p = 0.95f, .seed = 1};
    struct moed_generate_options options = {
        .size = sizeof options, .prompt = prompt, .max_tokens = 64, .sampling = &sampling};
    struct moed_result result = {.size = sizeof result};
    int exit_code = 0;
    if (moed_generate(session, &options, print_tokens, stdout, &result, &error))
        exit_code = fail(&error);
    else
        fprintf(stderr, "\n%u tokens, ended by: %s\n", result.generated_tokens,
                moed_reason_name(result.reason));
    moed_detach(session);
    return exit_code;
}
