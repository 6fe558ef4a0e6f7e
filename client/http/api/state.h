/* The state of the frontend and of the processes behind it. */
#ifndef MOED_HTTP_STATE_H
#define MOED_HTTP_STATE_H

#include "client/http/server/exchange.h"

/* GET /livez: the event loop runs. */
void handle_livez(struct exchange *x);
/* GET /health: 200 where the frontend's own model answers, else 503. */
void handle_health(struct exchange *x);
/* GET /slots: the answers that are being generated. */
void handle_slots(struct exchange *x);
/* GET /metrics, see metrics_page.c. */
void handle_metrics(struct exchange *x);
/* Embeddings, images, audio: 501, with the reason. */
void handle_unsupported(struct exchange *x);
/* llama-server's: GET /lora-adapters, an empty list; /slots/N and /models/sse: 501, with the
 * reason. */
void handle_no_adapters(struct exchange *x);
void handle_no_slot(struct exchange *x);
void handle_no_model_events(struct exchange *x);
/* What would manage model files. */
void handle_unmanaged(struct exchange *x);
/* What other servers store: responses, conversations. */
void handle_unstored(struct exchange *x);

#endif
