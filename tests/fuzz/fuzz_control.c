/* Fuzz target of requests on control sockets: any bytes as a Request, decoded within the daemons'
 * limit; the names and sizes in it go to what parses them. */
#include "daemon/daemon.h"
#include "daemon/decode_limit.h"
#include "device/device.h"
#include "memd/policy_choice.h"

#include "control.pb-c.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_error(enum error_code code, const struct error *e)
{
    require(!code || (e->code == code && e->text[0] && !strchr(e->text, '\n')));
}

static void policy(const Moed__V1__PolicyRequest *q)
{
    struct policy_choice choice = {0};
    struct policy_names usual = {"moed", "", "", "", "", ""};
    struct policy_names names = {q->policy, q->assigner,  q->cache,
                                 q->budget, q->predictor, q->prefetcher};
    struct error e = {0};
    require(policy_choose(&choice, &usual, &e) == ERROR_OK);
    check_error(policy_choose(&choice, &names, &e), &e);
    require(choice.policy != NULL);
}

static void resize(const Moed__V1__ResizeRequest *q)
{
    struct device_spec asked = {.kind = DEVICE_EMU};
    struct error e = {0};
    check_error(device_parse_vram(q->vram, &asked, &e), &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct decode_limit limit;
    struct error e = {0};
    decode_limit_init(&limit, DECODE_REQUEST_BYTES);
    Moed__V1__Request *q = moed__v1__request__unpack(&limit.allocator, size, data);
    require(limit.left <= DECODE_REQUEST_BYTES);
    if (!q)
        return 0;
    if (q->body_case == MOED__V1__REQUEST__BODY_POLICY)
        policy(q->policy);
    else if (q->body_case == MOED__V1__REQUEST__BODY_RESIZE)
        resize(q->resize);
    else
        check_error(daemon_unknown(q, &e), &e);
    size_t len = moed__v1__request__get_packed_size(q);
    uint8_t *packed = malloc(len + 1);
    require(packed && moed__v1__request__pack(q, packed) == len);
    free(packed);
    moed__v1__request__free_unpacked(q, &limit.allocator);
    return 0;
}
