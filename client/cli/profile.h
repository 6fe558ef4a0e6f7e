/* What profile.c (recording) and profile_text.c (the texts and how they are cut) share. */
#ifndef MOED_CLI_PROFILE_H
#define MOED_CLI_PROFILE_H

#include "client/cli/model_text.h"

/* Where a document ends. */
enum profile_split { PROFILE_SPLIT_FILE, PROFILE_SPLIT_BLANK_LINE, PROFILE_SPLIT_LINE };
/* False: it is the name of none. */
bool profile_split_find(const char *name, enum profile_split *out);

/* The sequences of all texts: tokens of one after the other. */
struct profile_sequences {
    struct token_list tokens;
    size_t *ends; /* [n]: where in the tokens each ends */
    size_t n, room;
};
void profile_sequences_fini(struct profile_sequences *s);

struct profile_cut {
    const struct model_text *model;
    enum profile_split split;
    bool special;        /* special tokens' texts are those tokens */
    uint64_t context;    /* the most tokens of a sequence, its begin token included */
    uint64_t max_tokens; /* of all sequences; 0: no limit */
};
/* Append a text's sequences: each document is tokenised by itself and cut into pieces, a begin token before each where the
 * model has one. False: complained. */
bool profile_sequences_add(struct profile_sequences *s, const struct profile_cut *cut,
                           const char *text, size_t len);

#endif
