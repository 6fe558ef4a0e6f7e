/* The start of a request of `moed run`, and what is collected of its answer. */
#include "client/cli/ask.h"
#include "client/cli/chat.h"
#include "client/cli/run_command.h"

#include "base/clock.h"

void run_buffers_init(struct run *run)
{
    strbuf_init(&run->text);
    strbuf_init(&run->tokens);
    strbuf_init(&run->logprobs);
    strbuf_init(&run->progress);
}

void run_buffers_fini(struct run *run)
{
    strbuf_fini(&run->text);
    strbuf_fini(&run->tokens);
    strbuf_fini(&run->logprobs);
    strbuf_fini(&run->progress);
}

void run_buffers_clear(struct run *run)
{
    strbuf_clear(&run->text);
    strbuf_clear(&run->tokens);
    strbuf_clear(&run->logprobs);
    strbuf_clear(&run->progress);
    run->first_token_s = 0;
    run->started_s = clock_s();
}

enum moed_code run_start(struct run *run, struct moed_session *session,
                         struct moed_request **requests, struct moed_error *error)
{
    struct moed_generate_options options = run->options;
    if (!run->chat)
        return moed_generate_answers_start(session, &options, run->n_answers, requests, error);
    struct chat_prompt prompt;
    struct chat_model *model = NULL;
    enum moed_code code = chat_prompt(session, &run->chat_options, options.prompt,
                                      options.prompt_bytes, &model, &prompt, error);
    chat_model_free(model);
    if (code)
        return code;
    if (prompt.plain && !run->plain_reported)
        cli_complain("the model has no chat template: turns are written as \"User: ...\"; give "
                     "one with --chat-template");
    run->plain_reported = true;
    chat_prompt_apply(&prompt, &options);
    struct moed_grammar grammar = chat_prompt_bind(&prompt, options.grammar);
    options.grammar = &grammar;
    code = moed_generate_answers_start(session, &options, run->n_answers, requests, error);
    chat_prompt_fini(&prompt);
    return code;
}
