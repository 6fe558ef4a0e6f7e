/* moed tokenize and moed detokenize: text to ids and back, by a deployment's worker or with the
 * vocabulary of a GGUF file. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/model_file.h"

#include "base/utf8.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct place {
    const char *name, *vocab, *pre; /* --name, or --vocab and --pre */
    struct moed_session *session;
    struct tokenizer *tokenizer;
};

static bool open_vocabulary(struct place *p, int *exit_code)
{
    struct gguf *g;
    struct error why;
    char path[PATH_MAX];
    *exit_code = CLI_FAILURE;
    if (!model_file_find(p->vocab, path))
        return false;
    if (gguf_open(path, &g, &why)) {
        cli_complain("%s", why.text);
        return false;
    }
    bool ok = tokenizer_new(g, p->pre, &p->tokenizer, &why) == ERROR_OK;
    if (!ok)
        cli_complain("%s", why.text);
    gguf_close(g);
    return ok;
}

static bool place_open(struct place *p, int *exit_code)
{
    if (p->vocab)
        return open_vocabulary(p, exit_code);
    if (!p->pre)
        return ask_attach(p->name, &p->session, exit_code);
    cli_complain("--pre goes with --vocab MODEL: a deployment has its model's pre-tokenizer");
    *exit_code = CLI_USAGE;
    return false;
}

static void place_close(struct place *p)
{
    moed_detach(p->session);
    tokenizer_free(p->tokenizer);
}

/* ---- The two directions ---- */

static bool encode(const struct place *p, const struct strbuf *text, bool special,
                   struct token_list *ids)
{
    const char *data = text->data ? text->data : "";
    struct error why;
    if (p->tokenizer) {
        unsigned flags = special ? TOKENIZE_PARSE_SPECIAL : 0;
        if (!tokenizer_encode(p->tokenizer, data, text->len, flags, ids, &why))
            return true;
        cli_complain("%s", why.text);
        return false;
    }
    struct moed_error error;
    unsigned flags = special ? MOED_PARSE_SPECIAL : 0;
    if (!moed_tokenize(p->session, data, text->len, flags, &ids->ids, &ids->count, &error))
        return true;
    ask_failed(&error);
    return false;
}

static bool decode(const struct place *p, const uint32_t *ids, size_t count, bool special,
                   struct strbuf *text)
{
    struct error why;
    if (p->tokenizer) {
        if (!tokenizer_decode(p->tokenizer, ids, count, special, text, &why))
            return true;
        cli_complain("%s", why.text);
        return false;
    }
    struct moed_error error;
    char *bytes;
    size_t len;
    if (moed_detokenize(p->session, ids, count, special, &bytes, &len, &error)) {
        ask_failed(&error);
        return false;
    }
    strbuf_append(text, bytes, len);
    moed_free(bytes);
    return true;
}

/* ---- Printing ---- */

/* Appends text in double quotes, with bytes that are not printable UTF-8 as \xNN: a token may be
 * half a character. */
static void quote(struct strbuf *out, const char *data, size_t len)
{
    strbuf_append(out, "\"", 1);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)data[i];
        size_t character = utf8_valid_length(data + i, len - i);
        if (c == '"' || c == '\\')
            strbuf_printf(out, "\\%c", c);
        else if (c == '\n')
            strbuf_printf(out, "\\n");
        else if (c == '\t')
            strbuf_printf(out, "\\t");
        else if (c < 0x20 || c == 0x7f || !character)
            strbuf_printf(out, "\\x%02x", c);
        else
            strbuf_append(out, data + i, character);
        i += character ? character : 1;
    }
    strbuf_append(out, "\"", 1);
}

/* Appends one token's text. A worker decodes it as a whole text, so tokens of a `llama` vocabulary
 * lose their leading space. */
static bool chunk(const struct place *p, uint32_t id, struct strbuf *out)
{
    return p->tokenizer ? tokenizer_piece(p->tokenizer, id, true, out)
                        : decode(p, &id, 1, true, out);
}

static bool list_lines(const struct place *p, const struct token_list *ids, struct strbuf *out)
{
    struct strbuf text;
    strbuf_init(&text);
    bool ok = true;
    for (size_t i = 0; ok && i < ids->count; i++) {
        strbuf_clear(&text);
        ok = chunk(p, ids->ids[i], &text);
        strbuf_printf(out, "%" PRIu32 "\t", ids->ids[i]);
        quote(out, text.data, text.len);
        strbuf_append(out, "\n", 1);
    }
    strbuf_fini(&text);
    return ok;
}

static void list_json(const struct token_list *ids, struct strbuf *out)
{
    strbuf_append(out, "[", 1);
    for (size_t i = 0; i < ids->count; i++)
        strbuf_printf(out, "%s%" PRIu32, i ? ", " : "", ids->ids[i]);
    strbuf_append(out, "]\n", 2);
}

static bool print_buffer(const struct strbuf *out)
{
    if (out->failed)
        cli_complain("no memory for the output");
    return !out->failed && ask_print(out->data, out->len);
}

static int tokenize(const struct place *p, const char *argument, bool special, bool json)
{
    struct strbuf text, out;
    struct token_list ids = {0};
    strbuf_init(&text);
    strbuf_init(&out);
    bool ok = ask_text(argument, &text) && encode(p, &text, special, &ids);
    if (ok && json)
        list_json(&ids, &out);
    else if (ok)
        ok = list_lines(p, &ids, &out);
    ok = ok && print_buffer(&out);
    token_list_fini(&ids);
    strbuf_fini(&text);
    strbuf_fini(&out);
    return ok ? CLI_OK : CLI_FAILURE;
}

int tokenize_main(int argc, char **argv)
{
    struct place place = {0};
    bool special = false, json = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &place.name, 0, 0, "NAME",
         "select a deployment (default: default)"},
        {"vocab", OPTION_STRING, &place.vocab, 0, 0, "MODEL",
         "use the vocabulary of a file, without a deployment"},
        {"pre", OPTION_STRING, &place.pre, 0, 0, "NAME",
         "use another pre-tokenizer than the file's"},
        {"special", OPTION_BOOL, &special, 0, 0, NULL, "parse the texts of special tokens"},
        {"json", OPTION_BOOL, &json, 0, 0, NULL, "print the ids as a JSON list"},
        {0},
    };
    int exit_code;
    if (!ask_arguments(
            table, "tokenize", "[OPTIONS] TEXT",
            "Prints the tokens of TEXT (- reads standard input to the byte), one a line:\n"
            "the id and the quoted text. No begin or end token is added.",
            argc, argv, 1, 1, NULL, &exit_code))
        return exit_code;
    if (place_open(&place, &exit_code))
        exit_code = tokenize(&place, argv[1], special, json);
    place_close(&place);
    return exit_code;
}

static int detokenize(const struct place *p, const uint32_t *ids, size_t count, bool special)
{
    struct strbuf text;
    strbuf_init(&text);
    bool ok = decode(p, ids, count, special, &text) && print_buffer(&text);
    strbuf_fini(&text);
    return ok ? CLI_OK : CLI_FAILURE;
}

int detokenize_main(int argc, char **argv)
{
    struct place place = {0};
    bool special = true;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &place.name, 0, 0, "NAME",
         "select a deployment (default: default)"},
        {"vocab", OPTION_STRING, &place.vocab, 0, 0, "MODEL",
         "use the vocabulary of a file, without a deployment"},
        {"pre", OPTION_STRING, &place.pre, 0, 0, "NAME",
         "use another pre-tokenizer than the file's"},
        {"special", OPTION_BOOL, &special, 0, 0, NULL,
         "print special tokens too (or --no-special)"},
        {0},
    };
    int exit_code;
    if (!ask_arguments(
            table, "detokenize", "[OPTIONS] IDS",
            "Prints the exact bytes of IDS, separated by commas or spaces (- reads them\n"
            "from standard input).",
            argc, argv, 1, 1, NULL, &exit_code))
        return exit_code;
    struct strbuf list;
    uint32_t *ids = NULL;
    size_t count;
    strbuf_init(&list);
    exit_code = CLI_USAGE;
    if (ask_text(argv[1], &list) && ask_ids(list.data, list.len, &ids, &count) &&
        place_open(&place, &exit_code))
        exit_code = detokenize(&place, ids, count, special);
    place_close(&place);
    free(ids);
    strbuf_fini(&list);
    return exit_code;
}
