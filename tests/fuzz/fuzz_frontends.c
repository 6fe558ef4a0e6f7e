/* Fuzz target of what a frontend sends: any bytes as a ToWorker message. The answers go nowhere;
 * the engine is a stand-in that checks what a request promises it, and then refuses or fails it. */
#include "worker/serve/engine.h"
#include "worker/frontends/frontends_internal.h"

#include "base/log.h"
#include "gguf/gguf.h"
#include "ipc/rpc.h"
#include "model/pool_plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct read_model_parts {
    struct gguf *g;
    struct pool_plan plan;
    struct pool_map map;
    struct tokenizer *tokenizer;
    struct token_list no_ends;
} model;
static struct frontends *frontends;

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* ---- In the places of the engine and the channel ---- */

static unsigned n_submitted;

static void check_request(const struct request *r)
{
    uint32_t context = frontends->model.context, vocab = model.map.params.vocab;
    require(r->tokens.count >= 1 && r->n_prompt >= 1 && r->n_prompt <= r->tokens.count &&
            r->tokens.count <= context && r->n_prefill <= r->tokens.count);
    for (size_t i = 0; i < r->tokens.count; i++)
        require(r->tokens.ids[i] < vocab);
    for (size_t i = 0; i < r->stop_tokens.count; i++)
        require(r->stop_tokens.ids[i] < vocab);
    for (uint32_t i = 0; i < r->n_biases; i++)
        require(r->biases[i].token < vocab);
    require(r->n_stops <= REQUEST_MAX_STOPS && r->n_top <= REQUEST_MAX_TOP);
    require(r->kind != REQUEST_LOGPROBS || r->next_row + 1 < r->tokens.count);
    require(r->sampling.temperature >= 0 && r->sampling.temperature <= 100);
    require(request_bytes(r) >= sizeof *r && request_positions(r, context) <= context);
}

enum error_code engine_submit(struct engine *g, struct request *r, struct error *e)
{
    (void)g;
    check_request(r);
    if (++n_submitted % 2)
        return error_set(e, ERROR_BUSY, "too many");
    r->sink->failed(r->sink_arg, ERROR_UNAVAILABLE, "gone");
    request_free(r);
    return ERROR_OK;
}

void engine_cancel(struct engine *g, struct request *r)
{
    (void)g, (void)r;
}

void engine_complete(struct engine *g, struct request *r)
{
    (void)g, (void)r;
}

void engine_resume(struct engine *g)
{
    (void)g;
}

enum error_code channel_open(int fd, struct channel_group *group, channel_callback *callback,
                             void *arg, struct channel **out, struct error *e)
{
    return error_set(e, ERROR_UNAVAILABLE, "none");
}

enum error_code channel_send(struct channel *c, const uint8_t *data, size_t len, struct error *e)
{
    require(len > 0 && len <= RPC_MESSAGE_BYTES);
    Moed__V1__FromWorker *m = moed__v1__from_worker__unpack(NULL, len, data);
    require(m && m->abi == CONTROL_ABI && m->body_case != MOED__V1__FROM_WORKER__BODY__NOT_SET);
    moed__v1__from_worker__free_unpacked(m, NULL);
    return ERROR_OK;
}

void channel_close(struct channel *c, int flush_ms)
{
    (void)c, (void)flush_ms;
}

/* ---- The target ---- */

static void begin(void)
{
    static const char path[] = MOED_SOURCE_DIR "/tests/golden/olmoe.gguf";
    struct error e;
    log_init("fuzz", LOG_LEVEL_ERROR);
    require(!gguf_open(path, &model.g, &e) && !pool_plan_new(model.g, &model.plan, &e) &&
            !tokenizer_new(model.g, NULL, &model.tokenizer, &e));
    model.map = pool_plan_map(&model.plan);
    struct frontends_model parts = {.map = &model.map,
                                    .tokenizer = model.tokenizer,
                                    .chat_template = "{{ x }}",
                                    .chat_template_tools = "",
                                    .quantization = "",
                                    .sampling = sampling_usual(),
                                    .end_tokens = &model.no_ends,
                                    .device = "host",
                                    .context = 256,
                                    .process = {4, 1 << 20},
                                    .client = {3, 1 << 19},
                                    .most_bytes_all = 1 << 21};
    require(!frontends_new(&parts, NULL, &frontends, &e));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct frontend f;
    static int channel; /* that there is one */
    if (!frontends)
        begin();
    f.frontends = frontends;
    f.channel = (struct channel *)&channel;
    pthread_mutex_init(&f.lock, NULL);
    atomic_store(&f.window, FRONTEND_WINDOW);
    frontend_handle(&f, data, size);
    require(!f.requests && f.n_requests == 0 && f.request_bytes == 0);
    require(atomic_load(&f.window) <= FRONTEND_WINDOW);
    pthread_mutex_destroy(&f.lock);
    return 0;
}
