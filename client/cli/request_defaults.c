/* Defaults of requests; see request_defaults.h. */
#include "client/cli/request_defaults.h"

#include "chat/chat_template.h"
#include "client/cli/complain.h"
#include "model/template_file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool check_template(struct deployment_options *o, const char *verb)
{
    static char path[PATH_MAX];
    struct chat_template *t = NULL;
    struct error e;
    if (!o->chat_template)
        return true;
    if (!realpath(o->chat_template, path)) {
        cli_complain("%s: --chat-template %s: %s", verb, o->chat_template, strerror(errno));
        return false;
    }
    o->chat_template = path;
    char *text;
    if (template_file_read(path, &text, &e)) {
        cli_complain("%s: %s", verb, e.text);
        return false;
    }
    struct chat_source source = {.text = text};
    enum error_code code = chat_template_new(&source, &t, &e);
    chat_template_free(t);
    free(text);
    if (code)
        cli_complain("%s: --chat-template %s: %s", verb, path, e.text);
    return !code;
}

static bool check_kwargs(const char *text, const char *verb)
{
    json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool good = !text || (json_is_object(object) && json_object_size(object) <= CHAT_KWARGS_MAX);
    json_decref(object);
    if (!good)
        cli_complain("%s: --chat-template-kwargs: %s is no JSON object of at most %d keys", verb,
                     text, CHAT_KWARGS_MAX);
    return good;
}

bool request_defaults_check(struct deployment_options *o, const char *verb)
{
    if (!isnan(o->top_k) && o->top_k != floor(o->top_k)) {
        cli_complain("%s: --top-k %g is not a whole number", verb, o->top_k);
        return false;
    }
    return check_kwargs(o->chat_template_kwargs, verb) && check_template(o, verb);
}
