/* How far two words are apart, for "did you mean". */
#ifndef MOED_BASE_EDIT_DISTANCE_H
#define MOED_BASE_EDIT_DISTANCE_H

#define EDIT_DISTANCE_WORD 24 /* longer words are near no other */

/* How many letters to add, drop, change or swap with the next to turn a into b (optimal string
 * alignment). UINT32_MAX where a word is longer than EDIT_DISTANCE_WORD. */
unsigned edit_distance(const char *a, const char *b);
/* A word is worth suggesting for `word` where its distance is below this. */
unsigned edit_distance_limit(const char *word);

#endif
