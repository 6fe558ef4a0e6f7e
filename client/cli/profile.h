/* moed profile: what profile.c (records) and profile_text.c (cuts the texts) share. */
#ifndef MOED_CLI_PROFILE_H
#define MOED_CLI_PROFILE_H

#include "client/cli/model_text.h"

/* Where a document ends. */
enum profile_split { PROFILE_SPLIT_FILE, PROFILE_SPLIT_BLANK_LINE, PROFILE_SPLIT_LINE };
/* False: no split has this name. */
bool profile_split_find(const char *name, enum profile_split *out);

/* The sequences of all texts, one after the other. */
struct profile_sequences {
    struct token_list tokens;
    size_t *ends; /* [n]: where in the tokens each ends */
    size_t n, capacity;
};
void profile_sequences_fini(struct profile_sequences *s);

struct profile_cut {
    const struct model_text *model;
    enum profile_split split;
    bool special;        /* parse special tokens' texts */
    uint64_t context;    /* the most tokens of a sequence, its begin token included */
    uint64_t max_tokens; /* of all sequences; 0: no limit */
};
/* Appends a text's sequences. Each document is tokenised on its own and cut into sequences, each
 * after a begin token where the model has one. Complains. */
bool profile_sequences_add(struct profile_sequences *s, const struct profile_cut *cut,
                           const char *text, size_t len);

#endif
