/*
 * federated_library.c - the public interface of libfrugrad_federated over client.h and server.h.
 *
 * Messages that io/ would print are dropped: the caller gets the reason by frug_last_error().
 */
#include "frugrad/federated.h"

#include "base/struct_size.h"
#include "federated/client.h"
#include "federated/message.h"
#include "federated/server.h"
#include "federated/update_layout.h"
#include "io/files.h"
#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_MAX (FGF_CHUNK - 1024u) /* bytes: it is part of one message */

static frug_status end_call(int status, frug_status code, const fgio_reason *why) {
    fgio_errors_mute(0);
    return status >= 0 ? FRUG_OK : frug_set_last_error(code, why->text);
}

frug_status frug_federated_keygen(const char *path, const char *name) {
    fgio_reason why;
    fgf_key *key = fgf_key_generate();
    fgio_errors_mute(1);
    int status = key ? fgf_key_write(key, path, name, &why) : fgio_fail(&why, "a key cannot be generated");
    fgf_key_destroy(key);
    return end_call(status, FRUG_ERR_ARG, &why);
}

const char *frug_federated_default_config(void) {
    return FGF_CONFIG_TENSORS; /* any vector may be a running statistic */
}

/* ---- client ---- */

struct frug_federated_client {
    frug_federated_client_options options;
    fgf_key *key;
    fgf_client *client;
};

static void log_of_client(void *ctx, const char *line) {
    const frug_federated_client *c = ctx;
    if (c->options.log)
        c->options.log(c->options.ctx, line);
}

static bool client_is_stopped(void *ctx) {
    const frug_federated_client *c = ctx;
    return c->options.is_stopped && c->options.is_stopped(c->options.ctx);
}

/* Whether a text was given. */
static int require(const void *given, const char *name, fgio_reason *why) {
    return given ? 0 : fgio_fail(why, "the option %s is missing", name);
}

static int check_client(const frug_federated_client_options *o, fgio_reason *why) {
    if (require(o->server, "server", why) != 0 || require(o->key, "key", why) != 0 ||
        require(o->server_key, "server_key", why) != 0)
        return -1;
    return require(o->directory, "directory", why);
}

frug_status frug_federated_client_open(const frug_federated_client_options *options, frug_federated_client **out) {
    if (!frugi_struct_valid(options))
        return frug_set_last_error(FRUG_ERR_ARG, "options: NULL, or struct_size is not set");
    frug_federated_client *c = calloc(1, sizeof *c);
    fgf_client_options open = {.ctx = c, .log = log_of_client, .is_stopped = client_is_stopped};
    fgio_reason why;
    if (!c)
        return frug_set_last_error(FRUG_ERR_MEMORY, NULL);
    c->options = (frug_federated_client_options)FRUG_FEDERATED_CLIENT_OPTIONS_INIT;
    frugi_struct_read(&c->options, options);
    frug_status code = FRUG_ERR_ARG;
    int status = check_client(&c->options, &why);
    if (status == 0)
        status = fgf_key_read(c->options.key, &c->key, &why);
    if (status == 0)
        status = fgf_public_find(c->options.server_key, &open.server_key, &why);
    fgio_errors_mute(1);
    if (status == 0) {
        code = FRUG_ERR_COMM;
        open.server = c->options.server;
        open.key = c->key;
        open.directory = c->options.directory;
        open.patience = c->options.patience;
        status = fgf_client_open(&open, &c->client, &why);
    }
    if (status == 0)
        *out = c;
    else
        frug_federated_client_close(c);
    return end_call(status, code, &why);
}

void frug_federated_client_close(frug_federated_client *c) {
    if (!c)
        return;
    fgf_client_close(c->client);
    fgf_key_destroy(c->key);
    free(c);
}

const char *frug_federated_client_job(const frug_federated_client *c) {
    return fgf_client_job(c->client);
}

uint64_t frug_federated_client_rounds(const frug_federated_client *c) {
    return fgf_client_rounds(c->client);
}

frug_status frug_federated_client_join(frug_federated_client *c, const frug_layout *layout, uint64_t examples) {
    fgio_reason why;
    fgio_errors_mute(1);
    return end_call(fgf_client_join(c->client, layout, examples, &why), FRUG_ERR_COMM, &why);
}

frug_status frug_federated_client_pull(frug_federated_client *c, float *weights, uint64_t *round, int *more) {
    fgio_reason why;
    fgio_errors_mute(1);
    int result = fgf_client_pull(c->client, weights, round, &why);
    *more = result == 1;
    return end_call(result, FRUG_ERR_COMM, &why);
}

frug_status frug_federated_client_push(frug_federated_client *c, const float *weights, double loss, int *counted) {
    fgio_reason why;
    fgio_errors_mute(1);
    int result = fgf_client_push(c->client, weights, loss, &why);
    *counted = result == 1;
    return end_call(result, FRUG_ERR_COMM, &why);
}

void frug_federated_client_traffic(const frug_federated_client *c, uint64_t *sent, uint64_t *received) {
    fgf_client_traffic(c->client, sent, received);
}

/* ---- server ---- */

struct frug_federated_server {
    frug_federated_server_options options;
    fgf_key *key;
    char key_text[FGF_PUBLIC_TEXT];
    json_t *job; /* parsed: it has the config */
    fgf_server *server;
};

static void log_of_server(void *ctx, const char *line) {
    const frug_federated_server *s = ctx;
    if (s->options.log)
        s->options.log(s->options.ctx, line);
}

static void close_round(void *ctx, fgf_round_report *report, const float *weights, uint64_t count) {
    const frug_federated_server *s = ctx;
    frug_federated_round round = {.struct_size = sizeof round,
                                  .round = report->round,
                                  .rounds = report->rounds,
                                  .updates = report->updates,
                                  .bytes_up = report->bytes_up,
                                  .changes = report->changes,
                                  .loss = report->loss,
                                  .seconds = report->seconds,
                                  .eval_loss = report->eval_loss,
                                  .eval_accuracy = report->eval_accuracy};
    if (!s->options.round)
        return;
    s->options.round(s->options.ctx, &round, weights, count);
    report->eval_loss = round.eval_loss;
    report->eval_accuracy = round.eval_accuracy;
}

static int open_server_key(frug_federated_server *s, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    if (s->options.key)
        return fgf_key_read(s->options.key, &s->key, why);
    snprintf(path, sizeof path, "%s/server.key", s->options.directory);
    if (fgio_directory_make(s->options.directory) != FGIO_EXIT_OK)
        return fgio_fail(why, "%s cannot be made", s->options.directory);
    return fgf_key_open_or_make(path, "server", &s->key, why);
}

static int find_robust(const char *name, fgf_robust *robust, fgio_reason *why) {
    for (int i = 0; fgf_robust_names[i]; i++)
        if (strcmp(fgf_robust_names[i], name) == 0) {
            *robust = (fgf_robust)i;
            return 0;
        }
    return fgio_fail(why, "robust '%s': expected mean, clip or trim", name);
}

static int check_options(const frug_federated_server_options *o, fgio_reason *why) {
    if (require(o->listen, "listen", why) != 0 || require(o->clients, "clients", why) != 0 ||
        require(o->directory, "directory", why) != 0 || require(o->layout, "layout", why) != 0 ||
        require(o->weights, "weights", why) != 0 || require(o->job, "job", why) != 0 ||
        require(o->optimizer, "optimizer", why) != 0 || require(o->robust, "robust", why) != 0)
        return -1;
    if (o->rounds < 1 || o->rounds >= UINT32_MAX)
        return fgio_fail(why, "rounds: expected 1 to %u", UINT32_MAX - 1);
    if (!(o->deadline > 0) || !(o->stale_power >= 0) || !(o->linger >= 0) || !(o->rate >= 0))
        return fgio_fail(why, "deadline: expected a number above 0; stale_power, linger and rate: not below 0");
    if (strlen(o->job) > JOB_MAX)
        return fgio_fail(why, "the job has %zu bytes; at most %u fit into a message", strlen(o->job), JOB_MAX);
    if (!(o->trim >= 0 && o->trim < 0.5))
        return fgio_fail(why, "trim: expected a share from 0 to below 0.5");
    return 0;
}

static int create_server(frug_federated_server *s, fgio_reason *why) {
    const frug_federated_server_options *o = &s->options;
    fgf_server_options create = {.listen = o->listen,
                                 .key = s->key,
                                 .clients_file = o->clients,
                                 .state = {.directory = o->directory,
                                           .layout = o->layout,
                                           .weights = o->weights,
                                           .optimizer = o->optimizer,
                                           .rate = o->rate,
                                           .config = json_string_value(json_object_get(s->job, "config")),
                                           .down = o->down,
                                           .job = o->job,
                                           .rounds = o->rounds,
                                           .sum = {.trim = o->trim, .stale_power = o->stale_power}},
                                 .rule = {o->rounds, o->quorum, o->deadline, o->stale},
                                 .threads = o->threads,
                                 .connections_max = fgf_connections_max(),
                                 .linger = o->linger,
                                 .ctx = s,
                                 .log = log_of_server,
                                 .round = close_round};
    frug_config *config = NULL;
    if (!create.state.config)
        return fgio_fail(why, "the job is no JSON object with a \"config\"");
    if (find_robust(o->robust, &create.state.sum.robust, why) != 0 ||
        fgf_config_create(create.state.config, &config, why) != 0)
        return -1;
    frug_config_destroy(config);
    return fgf_server_create(&create, &s->server, why);
}

frug_status frug_federated_server_create(const frug_federated_server_options *options, frug_federated_server **out) {
    if (!frugi_struct_valid(options))
        return frug_set_last_error(FRUG_ERR_ARG, "options: NULL, or struct_size is not set");
    frug_federated_server *s = calloc(1, sizeof *s);
    fgio_reason why;
    if (!s)
        return frug_set_last_error(FRUG_ERR_MEMORY, NULL);
    s->options = (frug_federated_server_options)FRUG_FEDERATED_SERVER_OPTIONS_INIT;
    frugi_struct_read(&s->options, options);
    s->job = json_loads(s->options.job ? s->options.job : "", 0, NULL);
    fgio_errors_mute(1);
    int status = check_options(&s->options, &why);
    if (status == 0)
        status = open_server_key(s, &why);
    if (status == 0)
        status = create_server(s, &why);
    if (status == 0) {
        fgf_public_key public = fgf_key_public(s->key);
        fgf_public_text(&public, s->key_text);
        *out = s;
    } else {
        frug_federated_server_destroy(s);
    }
    return end_call(status, FRUG_ERR_ARG, &why);
}

void frug_federated_server_destroy(frug_federated_server *s) {
    if (!s)
        return;
    fgf_server_destroy(s->server);
    fgf_key_destroy(s->key);
    json_decref(s->job);
    free(s);
}

int frug_federated_server_port(const frug_federated_server *s) {
    return fgf_server_port(s->server);
}

const char *frug_federated_server_key(const frug_federated_server *s) {
    return s->key_text;
}

frug_status frug_federated_server_run(frug_federated_server *s) {
    fgio_reason why;
    fgio_errors_mute(1);
    return end_call(fgf_server_run(s->server, &why), FRUG_ERR_COMM, &why);
}

void frug_federated_server_stop(frug_federated_server *s) {
    fgf_server_stop(s->server);
}

int frug_federated_server_is_done(const frug_federated_server *s) {
    return fgf_server_is_done(s->server);
}

void frug_federated_server_weights(const frug_federated_server *s, float *weights, uint64_t *round) {
    const float *from = fgf_server_weights(s->server, round);
    memcpy(weights, from, frug_layout_elements(s->options.layout) * sizeof *weights);
}
