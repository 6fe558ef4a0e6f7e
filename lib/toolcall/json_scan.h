/* A scanner of one JSON value (RFC 8259) that takes one byte at a time. */
#ifndef MOED_TOOLCALL_JSON_SCAN_H
#define MOED_TOOLCALL_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH_MAX = 256 };

enum json_scan_result {
    JSON_SCAN_MORE,
    JSON_SCAN_END,     /* the byte ends the value */
    JSON_SCAN_BEFORE,  /* the value (a number) ended before this byte, which is no part of it */
    JSON_SCAN_CONTROL, /* a control character in a string, where JSON wants an escape */
    JSON_SCAN_BAD,
};

struct json_scan {
    uint8_t state;
    uint8_t hex;      /* digits that an escape still needs */
    bool key;         /* the string is a key */
    const char *word; /* the rest of true, false or null */
    uint16_t depth;
    uint32_t objects[JSON_SCAN_DEPTH_MAX / 32]; /* one bit a level: an object, not an array */
};

void json_scan_init(struct json_scan *s);
/* After END, BEFORE and BAD the scanner must not be used. CONTROL: the scanner goes on as if the
 * character had been escaped. */
enum json_scan_result json_scan_byte(struct json_scan *s, unsigned char c);

/* text[0..len) is one JSON value, without whitespace around it. */
bool json_scan_whole(const char *text, size_t len);

#endif
