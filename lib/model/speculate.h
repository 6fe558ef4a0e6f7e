/* The values of --speculate, for the worker and for the command line that starts it. */
#ifndef MOED_MODEL_SPECULATE_H
#define MOED_MODEL_SPECULATE_H

#include "base/error.h"

#include <stdint.h>

#define SPECULATE_VALUES  "auto, off or 1 to 15"
#define SPECULATE_DEFAULT "auto"

enum { SPECULATE_OFF = 0, SPECULATE_MOST = 15 }; /* drafts of a request in a step */
#define SPECULATE_AUTO UINT32_MAX

/* *out: SPECULATE_OFF, SPECULATE_AUTO, or how many drafts. ERROR_USAGE names the values. */
enum error_code speculate_parse(const char *text, uint32_t *out, struct error *e);

#endif
