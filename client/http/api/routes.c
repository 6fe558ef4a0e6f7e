/* The route table; docs/http.md describes each. */
#include "client/http/api/routes.h"

#include "client/http/api/anthropic.h"
#include "client/http/api/control.h"
#include "client/http/api/infill.h"
#include "client/http/api/llama_completion.h"
#include "client/http/api/loading.h"
#include "client/http/api/models.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"
#include "client/http/api/page.h"
#include "client/http/api/question.h"
#include "client/http/api/state.h"
#include "client/http/api/watch.h"

const struct route routes[] = {
    {.method = "POST", .path = "/v1/chat/completions", .handle = handle_chat_completions},
    {.method = "POST",
     .path = "/v1/chat/completions/input_tokens",
     .handle = handle_chat_input_tokens},
    {.method = "POST", .path = "/v1/completions", .handle = handle_completions},
    {.method = "GET", .path = "/v1/models", .handle = handle_models},
    {.method = "GET", .path = "/v1/models/", .handle = handle_model},
    {.method = "POST", .path = "/models/load", .handle = handle_models_load},
    {.method = "POST", .path = "/models/unload", .handle = handle_models_unload},
    {.method = "GET", .path = "/models", .handle = handle_models},
    {.method = "POST", .path = "/v1/responses", .handle = handle_responses},
    {.method = "POST", .path = "/v1/responses/input_tokens", .handle = handle_input_tokens},
    {.method = "POST",
     .path = "/v1/messages",
     .handle = handle_messages,
     .api = HTTP_API_ANTHROPIC},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .handle = handle_count_tokens,
     .api = HTTP_API_ANTHROPIC},
    {.method = "GET", .path = "/", .handle = handle_root, .open = true},
    {.method = "GET", .path = "/page/", .handle = handle_page_file, .open = true},
    {.method = "GET",
     .path = "/api/version",
     .handle = handle_ollama_version,
     .api = HTTP_API_OLLAMA},
    {.method = "GET", .path = "/api/tags", .handle = handle_ollama_tags, .api = HTTP_API_OLLAMA},
    {.method = "GET", .path = "/api/ps", .handle = handle_ollama_ps, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/show", .handle = handle_ollama_show, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/chat", .handle = handle_ollama_chat, .api = HTTP_API_OLLAMA},
    {.method = "POST",
     .path = "/api/generate",
     .handle = handle_ollama_generate,
     .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/completion", .handle = handle_llama_completion},
    {.method = "POST", .path = "/infill", .handle = handle_infill},
    {.method = "POST", .path = "/tokenize", .handle = handle_tokenize},
    {.method = "POST", .path = "/detokenize", .handle = handle_detokenize},
    {.method = "POST", .path = "/apply-template", .handle = handle_apply_template},
    {.method = "GET", .path = "/props", .handle = handle_props},
    {.method = "GET", .path = "/tokenizer_info", .handle = handle_tokenizer_info},
    {.method = "GET", .path = "/slots", .handle = handle_slots},
    {.method = "GET", .path = "/metrics", .handle = handle_metrics, .metrics = true},
    {.method = "GET", .path = "/moed/map", .handle = handle_map},
    {.method = "GET", .path = "/moed/events", .handle = handle_events},
    {.method = "POST", .path = "/moed/policy", .handle = handle_policy, .admin = true},
    {.method = "POST", .path = "/moed/resize", .handle = handle_resize, .admin = true},
    {.method = "GET", .path = "/health", .handle = handle_health, .open = true},
    {.method = "GET", .path = "/v1/health", .handle = handle_health, .open = true},
    {.method = "GET", .path = "/readyz", .handle = handle_health, .open = true},
    {.method = "GET", .path = "/livez", .handle = handle_livez, .open = true},
    {.path = "/v1/embeddings", .handle = handle_unsupported},
    {.path = "/v1/rerank", .handle = handle_unsupported},
    {.path = "/v1/images/", .handle = handle_unsupported},
    {.path = "/v1/audio/", .handle = handle_unsupported},
    {.path = "/v1/moderations", .handle = handle_unsupported},
    {.path = "/v1/files", .handle = handle_unsupported},
    {.path = "/v1/files/", .handle = handle_unsupported},
    {.path = "/v1/batches", .handle = handle_unsupported},
    {.path = "/v1/batches/", .handle = handle_unsupported},
    {.path = "/v1/messages/batches", .handle = handle_unsupported, .api = HTTP_API_ANTHROPIC},
    {.path = "/v1/messages/batches/", .handle = handle_unsupported, .api = HTTP_API_ANTHROPIC},
    {.method = "GET", .path = "/v1/responses/", .handle = handle_unstored},
    {.method = "POST", .path = "/v1/responses/", .handle = handle_unstored},
    {.method = "DELETE", .path = "/v1/responses/", .handle = handle_unstored},
    {.method = "GET", .path = "/v1/chat/completions/", .handle = handle_unstored},
    {.method = "POST", .path = "/v1/conversations", .handle = handle_unstored},
    {.method = "GET", .path = "/v1/conversations/", .handle = handle_unstored},
    {.path = "/api/embed", .handle = handle_unsupported, .api = HTTP_API_OLLAMA},
    {.path = "/api/embeddings", .handle = handle_unsupported, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/pull", .handle = handle_unmanaged, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/push", .handle = handle_unmanaged, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/create", .handle = handle_unmanaged, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/copy", .handle = handle_unmanaged, .api = HTTP_API_OLLAMA},
    {.method = "DELETE", .path = "/api/delete", .handle = handle_unmanaged, .api = HTTP_API_OLLAMA},
    {.method = "POST", .path = "/api/blobs/", .handle = handle_unmanaged, .api = HTTP_API_OLLAMA},
    {.path = "/api/", .api = HTTP_API_OLLAMA}, /* the shape of errors */
    {.path = "/v1/messages/", .api = HTTP_API_ANTHROPIC},
    {0},
};
