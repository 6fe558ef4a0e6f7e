/* Values from JSON, and their JSON as Python's json.dumps prints it. */
#ifndef MOED_JINJA_JSON_H
#define MOED_JINJA_JSON_H

#include "jinja/value.h"

/* request: its strings and keys come from the request. */
struct value value_from_json(struct run *r, const json_t *json, bool request);

#endif
