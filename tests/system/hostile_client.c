/* A client that breaks every rule of the protocol, with a running deployment.
 *   hostile-client RUN
 * It sends garbage, unknown bodies, other versions and oversized messages to control sockets, sends
 * malformed messages on private channels and abandons them, and sends wrong messages to lease
 * sockets. Exit code 0 if the daemons sent the error reply of the protocol, or dropped the peer,
 * each time. */
#include "base/error.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "ipc/channel.h"
#include "ipc/expert_channel.h"
#include "ipc/lease.h"
#include "ipc/rpc.h"
#include "ipc/shm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *run;

static void require(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "hostile-client: %s\n", what);
    exit(1);
}

static uint32_t random_state = 12345;

static uint32_t random_number(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Returns the code of the Error for a raw control message; 0: another reply; -1: none. */
static int error_code_of(const char *process, const uint8_t *data, size_t len)
{
    char file[32], url[RUN_URL_BYTES];
    snprintf(file, sizeof file, "%s.ctl", process);
    run_dir_url(run, file, url);
    uint8_t *bytes;
    size_t n;
    if (rpc_call(url, data, len, 5000, &bytes, &n, NULL))
        return -1;
    Moed__V1__Reply *reply = moed__v1__reply__unpack(NULL, n, bytes);
    require(reply != NULL, "a reply cannot be decoded");
    int code = reply->body_case == MOED__V1__REPLY__BODY_ERROR ? (int)reply->error->code : 0;
    moed__v1__reply__free_unpacked(reply, NULL);
    free(bytes);
    return code;
}

static void attack_control(const char *process)
{
    uint8_t garbage[512];
    for (int round = 0; round < 20; round++) {
        size_t len = random_number() % sizeof garbage;
        for (size_t i = 0; i < len; i++)
            garbage[i] = (uint8_t)random_number();
        require(error_code_of(process, garbage, len) != 0, "garbage got no error");
    }
    uint8_t other_version[] = {0x08, 0x63, 0x52, 0x00};             /* abi 99, health */
    uint8_t no_body[] = {0x08, CONTROL_ABI};                        /* no request */
    uint8_t unknown_body[] = {0x08, CONTROL_ABI, 0xca, 0x3e, 0x00}; /* field 1001 */
    require(error_code_of(process, other_version, sizeof other_version) == ERROR_VERSION,
            "another version got no version error");
    require(error_code_of(process, no_body, sizeof no_body) == ERROR_PROTOCOL,
            "a request without body got no protocol error");
    require(error_code_of(process, unknown_body, sizeof unknown_body) == ERROR_PROTOCOL,
            "an unknown body got no protocol error");
    size_t huge = RPC_MESSAGE_BYTES * 2;
    uint8_t *data = calloc(huge, 1);
    require(data != NULL, "no memory");
    require(error_code_of(process, data, huge) != 0, "an oversized message got an answer");
    free(data);
    uint8_t health[] = {0x08, CONTROL_ABI, 0x52, 0x00};
    int answered = error_code_of(process, health, sizeof health);
    require(answered == 0, "after all that, health is not answered");
}

struct heard {
    pthread_mutex_t lock;
    int errors, messages, closed;
};

static void on_message(void *arg, const uint8_t *data, size_t len)
{
    struct heard *h = arg;
    pthread_mutex_lock(&h->lock);
    if (!data) {
        h->closed++;
    } else {
        Moed__V1__FromWorker *m = moed__v1__from_worker__unpack(NULL, len, data);
        h->messages++;
        if (m && m->body_case == MOED__V1__FROM_WORKER__BODY_ERROR)
            h->errors++;
        if (m)
            moed__v1__from_worker__free_unpacked(m, NULL);
    }
    pthread_mutex_unlock(&h->lock);
}

static struct channel *attach(struct heard *h)
{
    Moed__V1__SessionAttachRequest attach = MOED__V1__SESSION_ATTACH_REQUEST__INIT;
    attach.client = (char *)"hostile";
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_SESSION_ATTACH;
    request.session_attach = &attach;
    Moed__V1__Reply *reply;
    struct error e;
    struct channel *c;
    int fd;
    require(control_call_open(run, "worker", &request, MOED__V1__REPLY__BODY_SESSION_ATTACH, 5000,
                              &reply, &fd, &e) == ERROR_OK,
            "cannot attach");
    require(channel_open(fd, NULL, on_message, h, &c, &e) == ERROR_OK, "cannot open the channel");
    moed__v1__reply__free_unpacked(reply, NULL);
    return c;
}

static void wait_errors(struct heard *h, int n)
{
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&h->lock);
        int done = h->errors >= n || h->closed;
        pthread_mutex_unlock(&h->lock);
        if (done)
            return;
        usleep(50000);
    }
    require(0, "a malformed message on a channel got no error");
}

static void attack_channels(void)
{
    for (int round = 0; round < 5; round++) {
        struct heard h = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct channel *c = attach(&h);
        uint8_t garbage[] = {0xff, 0xff, 0xff, 0x07, 0x42};
        uint8_t version[] = {0x08, 0x63, 0x10, 0x01, 0x7a, 0x00};
        uint8_t nothing[] = {0x08, CONTROL_ABI, 0x10, 0x02};
        uint8_t no_prompt[] = {0x08, CONTROL_ABI, 0x10, 0x03, 0x52, 0x00};
        uint8_t no_logprob[] = {
            0x08, CONTROL_ABI, 0x10, 0x04, 0x8a, 0x01, 0x0a, 0x0a, 0x02,
            0x01, 0x02,        0x10, 0xff, 0xff, 0xff, 0xff, 0x0f}; /* from token 2^32 - 1 on, of 2
                                                                     */
        uint8_t ack[] = {0x08, CONTROL_ABI, 0x82, 0x01, 0x06, 0x08, 0xff, 0xff, 0xff, 0xff, 0x0f};
        channel_send(c, ack, sizeof ack, NULL); /* acknowledges events that were never sent */
        channel_send(c, garbage, sizeof garbage, NULL);
        channel_send(c, version, sizeof version, NULL);
        channel_send(c, nothing, sizeof nothing, NULL);
        channel_send(c, no_prompt, sizeof no_prompt, NULL);
        channel_send(c, no_logprob, sizeof no_logprob, NULL);
        wait_errors(&h, 5);
        channel_close(c, 0);
        pthread_mutex_destroy(&h.lock);
    }
}

static int heard_messages(struct heard *h)
{
    pthread_mutex_lock(&h->lock);
    int messages = h->messages;
    pthread_mutex_unlock(&h->lock);
    return messages;
}

/* Requests and never acknowledges: the window must limit the worker. */
static void never_acknowledge(Moed__V1__ToWorker *m)
{
    static uint8_t data[16384];
    struct heard h = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct channel *c = attach(&h);
    m->abi = CONTROL_ABI;
    m->id = 1;
    require(moed__v1__to_worker__get_packed_size(m) <= sizeof data, "too long a message");
    channel_send(c, data, moed__v1__to_worker__pack(m, data), NULL);
    int messages = 0;
    for (int i = 0; i < 60 && !messages; i++) { /* a slow build may need long for the first event */
        sleep(1);
        messages = heard_messages(&h);
    }
    sleep(3);
    messages = heard_messages(&h);
    require(messages > 0 && messages <= 64,
            "the worker sends no event, or more than the window allows");
    channel_close(c, 0); /* with a request running and events unread */
    pthread_mutex_destroy(&h.lock);
}

static void never_acknowledge_tokens(void)
{
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    generate.prompt = (ProtobufCBinaryData){5, (uint8_t *)"Hello"};
    generate.ignore_end = true;
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.body_case = MOED__V1__TO_WORKER__BODY_GENERATE;
    m.generate = &generate;
    never_acknowledge(&m);
}

static void never_acknowledge_logprobs(void)
{
    static uint32_t tokens[2048];
    Moed__V1__LogprobsRequest logprobs = MOED__V1__LOGPROBS_REQUEST__INIT;
    logprobs.tokens = tokens;
    logprobs.n_tokens = sizeof tokens / sizeof *tokens;
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.body_case = MOED__V1__TO_WORKER__BODY_LOGPROBS;
    m.logprobs = &logprobs;
    never_acknowledge(&m);
}

static void never_acknowledge_routing(void)
{
    static uint32_t tokens[1500];
    Moed__V1__Record record = MOED__V1__RECORD__INIT;
    record.gate = record.stepwise = record.prompt_only = true;
    record.hidden_every = 1;
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    generate.tokens = tokens;
    generate.n_tokens = sizeof tokens / sizeof *tokens;
    generate.record = &record;
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.body_case = MOED__V1__TO_WORKER__BODY_GENERATE;
    m.generate = &generate;
    never_acknowledge(&m);
}

static int connect_to(const char *file)
{
    char path[RUN_PATH_BYTES];
    int fd;
    struct error e;
    run_dir_file(run, file, path);
    require(lease_connect(path, 5000, &fd, &e) == ERROR_OK, "cannot connect to a lease socket");
    return fd;
}

static void attack_leases(void)
{
    struct lease_message m = {.magic = LEASE_MAGIC, .kind = 0x7777}, answer;
    int fds[LEASE_MAX_FDS];
    unsigned n;
    struct error e;
    close(connect_to("memd.lease")); /* closes before memd grants the lease */
    int talker = connect_to("memd.lease");
    if (lease_receive(talker, &answer, fds, LEASE_MAX_FDS, &n, 5000, &e) == ERROR_OK)
        for (unsigned i = 0; i < n; i++) {
            require(ftruncate(fds[i], 0) != 0, "the pool can be cut by a client");
            close(fds[i]);
        }
    lease_send(talker, &m, NULL, 0, NULL); /* a holder may not send messages */
    close(talker);

    int nonsense = connect_to("cpuexec.lease");
    lease_send(nonsense, &m, NULL, 0, NULL);
    require(lease_receive(nonsense, &answer, fds, LEASE_MAX_FDS, &n, 5000, &e) != ERROR_OK ||
                answer.kind == EXPERT_REFUSE,
            "cpuexec accepted nonsense");
    close(nonsense);

    /* a region of zeros in place of a channel */
    struct shm region;
    require(shm_create("hostile", 1 << 20, &region, &e) == ERROR_OK, "no shared memory");
    int offerer = connect_to("cpuexec.lease");
    m.kind = EXPERT_OFFER;
    m.value[0] = region.bytes;
    lease_send(offerer, &m, &region.fd, 1, NULL);
    require(lease_receive(offerer, &answer, fds, LEASE_MAX_FDS, &n, 5000, &e) != ERROR_OK ||
                answer.kind == EXPERT_REFUSE,
            "cpuexec accepted an empty region");
    close(offerer);
    shm_close(&region);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    run = argv[1];
    attack_control("memd");
    attack_control("worker");
    attack_control("cpuexec");
    attack_leases();
    attack_channels();
    never_acknowledge_tokens();
    never_acknowledge_logprobs();
    never_acknowledge_routing();
    return 0;
}
