/* See memory.h. */
#include "confine/memory.h"

#include "base/log.h"

#include <sys/prctl.h>
#include <sys/resource.h>

void confine_memory(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return; /* the leak checker traces the process */
#endif
    const struct rlimit no_core = {0, 0};
    if (setrlimit(RLIMIT_CORE, &no_core) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0)
        log_warn("the process's memory stays readable to this user's processes: %m");
}
