/* moed-http: the HTTP frontend. It holds no model: a crash ends its clients' connections and
 * nothing else. */
#include "base/clock.h"
#include "base/log.h"
#include "client/http/api/app.h"
#include "client/http/api/routes.h"
#include "chat/chat_template.h"
#include "client/http/confine.h"
#include "client/http/listen.h"
#include "client/http/port_file.h"
#include "client/http/server/renewal.h"
#include "client/http/text_file.h"
#include "daemon/daemon.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct frontend {
    /* options */
    const char *trusted_proxies;
    const char *listen, *unix_path, *name, *api_key_file, *admin_key_file, *metrics_key_file,
        *tls_cert, *tls_key, *log_format, *template_file, *reasoning_field;
    char *chat_template; /* owned; NULL: the model's */
    struct option_list aliases;
    struct model_names names;
    bool insecure, models;
    double drain_s; /* how long answers may go on once the process is to stop */
    struct server_settings settings;
    struct certificate certificate; /* read, and no listener has it yet */
    struct renewal new_certificate, new_keys, new_admin_keys, new_metrics_keys;

    struct daemon daemon;
    struct loop loop;
    struct watch stop;
    struct server server;
    struct app app;
    struct unix_socket unix_socket;
    char url[300]; /* where it listens */
};

static void parse(struct frontend *f, int argc, char **argv)
{
    struct server_settings *s = &f->settings;
    const struct option_spec table[] = {
        {"listen", OPTION_STRING, &f->listen, 0, 0, "[HOST:]PORT",
         "listen at this address (without HOST: 127.0.0.1)"},
        {"unix", OPTION_STRING, &f->unix_path, 0, 0, "PATH", "listen at a unix socket too"},
        {"name", OPTION_STRING, &f->name, 0, 0, "NAME",
         "serve this deployment where a request names no model"},
        {"api-key-file", OPTION_STRING, &f->api_key_file, 0, 0, "FILE",
         "require one of the API keys in FILE"},
        {"alias", OPTION_LIST, &f->aliases, 0, 0, "NAME[=MODEL],...",
         "let requests call the default model, or MODEL, NAME too"},
        {"any-model", OPTION_BOOL, &f->names.any, 0, 0, NULL,
         "let the default model answer requests for unknown models"},
        {"admin-key-file", OPTION_STRING, &f->admin_key_file, 0, 0, "FILE",
         "let who has a key in FILE change policy and memory, too"},
        {"metrics-key-file", OPTION_STRING, &f->metrics_key_file, 0, 0, "FILE",
         "let who has a key in FILE read /metrics, and nothing else"},
        {"chat-template", OPTION_STRING, &f->template_file, 0, 0, "FILE",
         "use this chat template for that deployment, not the model's"},
        {"models", OPTION_BOOL, &f->models, 0, 0, NULL,
         "have moed-models, which runs beside, load models that requests name"},
        {"insecure", OPTION_BOOL, &f->insecure, 0, 0, NULL,
         "listen to other machines without an API key"},
        {"tls-cert", OPTION_STRING, &f->tls_cert, 0, 0, "FILE", "use TLS with this certificate"},
        {"tls-key", OPTION_STRING, &f->tls_key, 0, 0, "FILE", "the certificate's private key"},
        {"cors-origins", OPTION_STRING, &s->cors_origins, 0, 0, "LIST",
         "let pages of these origins use the server, separated by commas "
         "(default with API keys: *, else none)"},
        {"host-names", OPTION_STRING, &s->host_names, 0, 0, "LIST",
         "the server's names, beside localhost and addresses"},
        {"connections", OPTION_UINT, &s->connections, 1, 100000, "N",
         "accept N connections at once"},
        {"connections-per-ip", OPTION_UINT, &s->connections_per_ip, 0, 100000, "N",
         "accept N connections from one address; 0: no limit"},
        {"trusted-proxies", OPTION_STRING, &f->trusted_proxies, 0, 0, "LIST",
         "believe X-Forwarded-For of these addresses and ranges (10.0.0.0/8)"},
        {"answers", OPTION_UINT, &f->app.answers_max, 1, 100000, "N",
         "answer N requests at once; refuse more with 429"},
        {"body-bytes", OPTION_UINT, &s->body_bytes, 1024, 1u << 30, "N",
         "accept bodies of at most N bytes"},
        {"bodies-bytes", OPTION_UINT, &s->bodies_bytes, 1024, 1ull << 40, "N",
         "read bodies of at most N bytes together; drop the largest beyond"},
        {"reasoning-field", OPTION_STRING, &f->reasoning_field, 0, 0, "content|reasoning|both",
         "name a chat's reasoning reasoning_content, reasoning, or both"},
        {"share-cache", OPTION_BOOL, &f->app.share_cache, 0, 0, NULL,
         "let API keys find each other's prompts in the KV cache"},
        {"log-format", OPTION_STRING, &f->log_format, 0, 0, "text|json", "form of the access log"},
        {"log-bodies", OPTION_BOOL, &s->log_bodies, 0, 0, NULL,
         "log requests' bodies, with their prompts"},
        {"header-timeout", OPTION_UINT, &s->header_timeout_s, 1, 3600, "S",
         "close a new connection without a request after S seconds"},
        {"idle-timeout", OPTION_UINT, &s->idle_timeout_s, 1, 3600, "S",
         "close a connection without a further request after S seconds"},
        {"drain", OPTION_FLOAT, &f->drain_s, 0, 86400, "S",
         "let running answers go on for S seconds once it is to stop"},
        {"stream-bytes", OPTION_UINT, &s->stream_bytes, 1024, 1u << 30, "N",
         "give up a stream whose client leaves N bytes unread"},
        {0},
    };
    daemon_init(&f->daemon, "http", "Serves the running deployments over HTTP.", table, argc, argv);
}

static enum error_code read_reasoning_field(struct frontend *f, struct error *e)
{
    static const char *const names[] = {[REASONING_FIELD_CONTENT] = "content",
                                        [REASONING_FIELD_SHORT] = "reasoning",
                                        [REASONING_FIELD_BOTH] = "both"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(f->reasoning_field, names[i]) == 0) {
            f->app.reasoning_field = (enum reasoning_field)i;
            return ERROR_OK;
        }
    return error_set(e, ERROR_USAGE, "--reasoning-field %.40s: content, reasoning or both",
                     f->reasoning_field);
}

/* A template that does not compile is refused here, not at each request. */
static enum error_code read_template(struct frontend *f, struct error *e)
{
    struct chat_template *t = NULL;
    struct error why;
    f->chat_template = text_file_read(f->template_file, e);
    if (!f->chat_template && access(f->template_file, F_OK) != 0 &&
        !strpbrk(f->template_file, "./"))
        return error_set(e, ERROR_USAGE,
                         "--chat-template %.40s: there is no such file, and moed has no templates "
                         "of its own: without the option the model file's is used",
                         f->template_file);
    if (!f->chat_template)
        return e->code;
    struct chat_source source = {.text = f->chat_template};
    enum error_code code = chat_template_new(&source, &t, &why);
    chat_template_free(t);
    return code ? error_set(e, code, "%s: %s", f->template_file, why.text) : ERROR_OK;
}

static enum error_code read_certificate(const struct frontend *f, struct certificate *c,
                                        struct error *e)
{
    *c = (struct certificate){.chain = text_file_read(f->tls_cert, e)};
    if (c->chain && (c->key = text_file_read(f->tls_key, e)))
        return ERROR_OK;
    certificate_free(c);
    return e->code;
}

static void begin_renewals(struct frontend *f)
{
    renewal_begin(&f->new_certificate, f->tls_cert, f->tls_key);
    renewal_begin(&f->new_keys, f->api_key_file, NULL);
    renewal_begin(&f->new_admin_keys, f->admin_key_file, NULL);
    renewal_begin(&f->new_metrics_keys, f->metrics_key_file, NULL);
}

static bool has_renewals(const struct frontend *f)
{
    return f->new_certificate.paths[0] || f->new_keys.paths[0] || f->new_admin_keys.paths[0] ||
           f->new_metrics_keys.paths[0];
}

/* Streams without an end would keep the right of keys that are withdrawn, and listeners of former
 * certificates; pages connect again. */
static void end_watches(struct frontend *f)
{
    watches_interrupt(&f->app.watches, "keys or the certificate have changed: connect again");
}

static void renew_certificate(struct frontend *f)
{
    struct certificate c = {0};
    struct error e = {0};
    if (!renewal_is_due(&f->new_certificate))
        return;
    enum error_code code = read_certificate(f, &c, &e);
    if (!code && server_has_certificate(&f->server, &c)) {
        certificate_free(&c);
        renewal_succeeded(&f->new_certificate);
        return;
    }
    if (!code)
        code = server_renew_certificate(&f->server, &c, &e);
    if (!code) {
        renewal_succeeded(&f->new_certificate);
        end_watches(f);
        log_info("the certificate in %s was read again", f->tls_cert);
    } else if (renewal_failed(&f->new_certificate, &e)) {
        log_warn("the certificate in %s has changed and cannot be used: %s; the one before stays",
                 f->tls_cert, e.text);
    }
}

static void renew_keys(struct frontend *f, struct renewal *r, struct auth *keys)
{
    struct auth read;
    struct error e = {0};
    if (!renewal_is_due(r))
        return;
    if (auth_read(r->paths[0], keys->kind, &read, &e)) {
        if (renewal_failed(r, &e))
            log_warn("%s; those of before stay", e.text);
        return;
    }
    renewal_succeeded(r);
    if (auth_same(keys, &read)) {
        auth_free(&read);
        return;
    }
    auth_free(keys);
    *keys = read;
    end_watches(f);
    log_info("%zu API keys were read again from %s", keys->count, r->paths[0]);
}

static enum error_code check_options(struct frontend *f, struct error *e)
{
    struct server_settings *s = &f->settings;
    s->log_json = strcmp(f->log_format, "json") == 0;
    if (!s->log_json && strcmp(f->log_format, "text") != 0)
        return error_set(e, ERROR_USAGE, "--log-format %.40s: text or json", f->log_format);
    if (s->log_json)
        log_use_json();
    if (!f->tls_cert != !f->tls_key)
        return error_set(e, ERROR_USAGE, "--tls-cert and --tls-key belong together");
    begin_renewals(f);
    enum error_code code = f->tls_cert ? read_certificate(f, &f->certificate, e) : ERROR_OK;
    if (!code)
        code = read_reasoning_field(f, e);
    if (!code && f->api_key_file)
        code = auth_read(f->api_key_file, "key", &f->server.auth, e);
    if (!code && f->admin_key_file)
        code = auth_read(f->admin_key_file, "admin", &f->server.admin, e);
    if (!code && f->metrics_key_file)
        code = auth_read(f->metrics_key_file, "metrics", &f->server.metrics_keys, e);
    if (!code && f->trusted_proxies)
        code = trusted_proxies_parse(f->trusted_proxies, &s->proxies, e);
    if (!code && f->template_file)
        code = read_template(f, e);
    for (size_t i = 0; !code && i < f->aliases.count; i++)
        code = model_names_add(&f->names, f->aliases.items[i], e);
    return code;
}

/* Port 0: the one that the deployment's frontend had before, or any free one. */
static enum error_code listen_first(const struct frontend *f, struct listen_address *a, int *fd,
                                    bool *loopback, unsigned *port, struct error *e)
{
    bool any = atoi(a->port) == 0;
    uint16_t before = any ? port_file_read(f->daemon.run) : 0;
    enum error_code code = ERROR_NOT_FOUND;
    if (before) {
        struct listen_address same = *a;
        snprintf(same.port, sizeof same.port, "%" PRIu16, before);
        code = listen_tcp(&same, fd, loopback, port, e);
        if (code)
            log_warn("port %" PRIu16 " of before is not free: another one is chosen", before);
    }
    if (code)
        code = listen_tcp(a, fd, loopback, port, e);
    if (!code && any && *port != before)
        port_file_write(f->daemon.run, *port);
    return code;
}

static enum error_code listen_all(struct frontend *f, struct error *e)
{
    struct listen_address a;
    bool loopback;
    unsigned port;
    int fd;
    enum error_code code = listen_parse(f->listen, &a, e);
    if (!code)
        code = listen_first(f, &a, &fd, &loopback, &port, e);
    if (code)
        return code;
    if (!loopback && f->server.auth.count == 0 && !f->insecure) {
        close(fd);
        return error_set(e, ERROR_USAGE,
                         "%s is reachable from other machines: give --api-key-file FILE, or "
                         "--insecure to serve anybody",
                         f->listen);
    }
    bool keys = f->server.auth.count > 0;
    f->settings.check_host = !keys;
    if (keys && !f->settings.cors_origins)
        f->settings.cors_origins = "*";
    code = server_listen(&f->server, fd, &f->certificate, e);
    if (!code && f->unix_path && !(code = listen_unix(f->unix_path, &f->unix_socket, &fd, e)))
        code = server_listen(&f->server, fd, NULL, e);
    if (code)
        return code;
    bool v6 = strchr(a.host, ':') != NULL;
    snprintf(f->url, sizeof f->url, "%s://%s%.250s%s:%u", f->tls_cert ? "https" : "http",
             v6 ? "[" : "", a.host, v6 ? "]" : "", port);
    log_info("listening at %s", f->url);
    return ERROR_OK;
}

static void on_stop(struct watch *w, uint32_t events)
{
    struct frontend *f = (struct frontend *)((char *)w - offsetof(struct frontend, stop));
    loop_remove(&f->loop, w);
    watches_end(&f->app.watches);
    listen_unix_remove(&f->unix_socket);
    server_drain(&f->server);
}

static enum error_code set_up(struct frontend *f, struct error *e)
{
    enum error_code code = loop_init(&f->loop, e);
    if (code)
        return code;
    f->server.loop = &f->loop;
    f->server.settings = &f->settings;
    f->server.routes = routes;
    f->server.app = &f->app;
    f->app.server = &f->server;
    f->app.daemon = &f->daemon;
    f->app.started = time(NULL);
    server_metrics_register(&f->server.metrics, f->daemon.metrics);
    answer_metrics_register(&f->app.metrics, f->daemon.metrics);
    deployments_init(&f->app.deployments, &f->loop, f->name, f->daemon.run);
    f->app.deployments.own_template = f->chat_template;
    f->app.deployments.names = f->names;
    watches_init(&f->app.watches, &f->loop, f->daemon.metrics);
    f->stop = (struct watch){.fd = daemon_stop_fd(&f->daemon), .ready = on_stop};
    code = loop_add(&f->loop, &f->stop, EPOLLIN, e);
    return code ? code : listen_all(f, e);
}

/* Once the files are restricted: threads that run then are not. */
static enum error_code start_threads(struct frontend *f, struct error *e)
{
    enum error_code code = jobs_start(&f->app.processes, &f->loop, "processes", e);
    if (!code)
        code = turns_start(&f->app.bodies, &f->loop, "bodies", e);
    if (!code)
        code = turns_start(&f->app.loosening, &f->loop, "schemas", e);
    if (!code)
        code = jobs_start(&f->app.scrapes, &f->loop, "metrics", e);
    if (!code && f->models)
        code = demand_start(&f->app.deployments.demand, &f->loop, f->daemon.run, e);
    return code;
}

/* A waiting stream has two descriptors: its connection's and its request's. */
static void raise_descriptor_limit(const struct frontend *f)
{
    struct rlimit limit;
    rlim_t wanted = 2 * f->settings.connections + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
        log_warn("%llu descriptors are allowed, %llu connections need %llu",
                 (unsigned long long)limit.rlim_cur, (unsigned long long)f->settings.connections,
                 (unsigned long long)wanted);
}

static void serve(struct frontend *f)
{
    while (!f->server.draining) {
        server_run(&f->server, has_renewals(f) ? RENEWAL_INTERVAL_MS : -1);
        renew_certificate(f);
        renew_keys(f, &f->new_keys, &f->server.auth);
        renew_keys(f, &f->new_admin_keys, &f->server.admin);
        renew_keys(f, &f->new_metrics_keys, &f->server.metrics_keys);
    }
    uint64_t end_ns = clock_ns() + (uint64_t)(f->drain_s * 1e9);
    while (f->server.exchanges && clock_ns() < end_ns && !atomic_load(&f->daemon.hurried))
        server_run(&f->server, clock_ms_until(end_ns));
}

static void health(void *arg, Moed__V1__HealthReply *reply)
{
    struct frontend *f = arg;
    reply->clients = (uint32_t)f->server.metrics.connections->value;
    reply->requests_running = (uint32_t)f->app.metrics.running->value;
}

static int exit_status(enum error_code code)
{
    return code == ERROR_USAGE ? EXIT_PERMANENT : code == ERROR_EXISTS ? EXIT_TAKEN : EXIT_RETRY;
}

int main(int argc, char **argv)
{
    static struct frontend f = {
        .listen = "127.0.0.1:8080",
        .name = "default",
        .log_format = "text",
        .reasoning_field = "content",
        .drain_s = 5,
        .settings = {.connections = 2048,
                     .body_bytes = 32 << 20,
                     .bodies_bytes = 1 << 30,
                     .header_timeout_s = 10,
                     .idle_timeout_s = 60,
                     .stream_bytes = 4 << 20},
        .app = {.answers_max = 1024},
    };
    static const struct daemon_handlers handlers = {.health = health};
    struct error e = {0};
    parse(&f, argc, argv);
    raise_descriptor_limit(&f);
    enum error_code code = check_options(&f, &e);
    if (!code)
        code = set_up(&f, &e);
    if (!code && f.daemon.confine)
        frontend_confine_files(f.daemon.run, f.unix_path,
                               (struct renewal *const[]){&f.new_certificate, &f.new_keys,
                                                         &f.new_admin_keys, &f.new_metrics_keys},
                               4);
    if (!code)
        code = start_threads(&f, &e);
    if (!code)
        daemon_start(&f.daemon);
    if (!code && f.daemon.confine)
        frontend_confine_calls();
    if (!code)
        code = daemon_serve(&f.daemon, &handlers, &f, &e);
    if (code)
        listen_unix_remove(&f.unix_socket);
    if (code)
        daemon_fail(&f.daemon, exit_status(code), &e);
    daemon_watch(&f.daemon, &f.loop.heartbeat);
    daemon_status(&f.daemon, "listening at %s", f.url);
    daemon_ready(&f.daemon);
    serve(&f);
    daemon_stop(&f.daemon);
    server_close(&f.server);
    watches_fini(&f.app.watches);
    turns_stop(&f.app.loosening);
    turns_stop(&f.app.bodies);
    loose_schemas_fini(&f.app.schemas);
    jobs_stop(&f.app.processes);
    jobs_stop(&f.app.scrapes);
    deployments_fini(&f.app.deployments);
    loop_fini(&f.loop);
    return EXIT_CLEAN;
}
