/* A chat template's file; see template_file.h. */
#include "model/template_file.h"

#include "model/serving_limits.h"

#include <stdio.h>
#include <stdlib.h>

enum error_code template_file_read(const char *path, char **out, struct error *e)
{
    const size_t most = CHAT_TEMPLATE_BYTES;
    FILE *f = fopen(path, "re");
    char *text = f ? malloc(most + 2) : NULL;
    size_t n = text ? fread(text, 1, most + 1, f) : 0;
    enum error_code code = ERROR_OK;
    if (!f || ferror(f))
        code = error_set(e, ERROR_IO, "cannot read the chat template %s: %m", path);
    else if (!text)
        code = error_set(e, ERROR_MEMORY, "no memory for the chat template");
    else if (n > most)
        code =
            error_set(e, ERROR_LIMIT, "the chat template %s has more than %zu bytes", path, most);
    if (f)
        fclose(f);
    if (code) {
        free(text);
        return code;
    }
    text[n] = '\0';
    *out = text;
    return ERROR_OK;
}
