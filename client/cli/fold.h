/* Text for people, in lines of at most 80 columns. A longer line goes on below the start of its
 * text: "router          softmax over ..." below "softmax". Words are not cut. */
#ifndef MOED_CLI_FOLD_H
#define MOED_CLI_FOLD_H

/* To standard output; a line is written when its newline comes. From one thread. */
void fold_print(const char *text);
/* At most 4095 bytes. */
void fold_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
