/* See privileges.h. */
#include "confine/privileges.h"

#include "base/log.h"

#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (1ull << (capability))

static void keep(uint64_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    for (int i = 0; prctl(PR_CAPBSET_READ, i) >= 0; i++)
        if (!(kept & BIT(i)))
            prctl(PR_CAPBSET_DROP, i); /* not allowed without CAP_SETPCAP: then there are none */
    if (syscall(SYS_capget, &header, sets) != 0)
        sets[0] = sets[1] = (struct __user_cap_data_struct){0};
    for (int i = 0; i < 2; i++) {
        uint32_t half = (uint32_t)(kept >> (32 * i));
        sets[i].permitted &= half;
        sets[i].effective &= half;
        sets[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &header, sets) != 0)
        log_warn("cannot drop the capabilities: %m");
}

void confine_privileges_all(void)
{
    keep(0);
}

void confine_privileges_daemon(void)
{
    keep(BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_IPC_LOCK) | BIT(CAP_SYS_NICE));
}
