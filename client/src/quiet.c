/* libmoed: no log. The parts of lib/ that daemons and libmoed share log to standard error, which is
 * the program's here. What they would log reaches the program as an error of a call. */
#include "base/log.h"

static __attribute__((constructor)) void log_nothing(void)
{
    log_init("libmoed", LOG_LEVEL_NONE);
}
