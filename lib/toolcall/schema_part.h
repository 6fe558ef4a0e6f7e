/* Parts of a schema without annotations (schema_strip.h) as documents of their own. */
#ifndef MOED_TOOLCALL_SCHEMA_PART_H
#define MOED_TOOLCALL_SCHEMA_PART_H

#include <jansson.h>
#include <stdbool.h>

struct schema_parts {
    const json_t *root;
    char *definitions; /* the members of root that have them, as JSON; NULL: not written yet */
    unsigned definitions_refer; /* to what */
};

void schema_parts_init(struct schema_parts *p, const json_t *root);
void schema_parts_fini(struct schema_parts *p);

/* Would the part, or a definition, refer to another place as a document of its own? Only #/$defs/,
 * #/definitions/ and those of root's keywords #/x-... are the same places in both. */
bool schema_part_refers_elsewhere(struct schema_parts *p, const json_t *part);
/* The part's text, with root's definitions if it refers to any. Owned. NULL: no memory. */
char *schema_part_text(struct schema_parts *p, const json_t *part);

#endif
