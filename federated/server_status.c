/* server_status.c - the state of the run as JSON, for --status and for pages; and the file of rounds. */
#include "federated/server_internal.h"

#include "io/json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFRESH_SECONDS 1.0

static const char *const refusal_names[FGF_REFUSALS] = {
    [FGF_REFUSE_PROTOCOL] = "protocol", [FGF_REFUSE_MODEL] = "model",   [FGF_REFUSE_RUN] = "run",
    [FGF_REFUSE_STALE] = "stale",       [FGF_REFUSE_DOUBLE] = "double", [FGF_REFUSE_INVALID] = "invalid",
    [FGF_REFUSE_SIZE] = "size",         [FGF_REFUSE_RETRY] = "retry",   [FGF_REFUSE_RATE] = "rate",
};

static void set(json_t *object, const char *key, json_t *value) {
    json_object_set_new(object, key, value);
}

static void set_count(json_t *object, const char *key, uint64_t value) {
    set(object, key, json_integer((json_int_t)value));
}

static json_t *describe_refusals(const fgf_client_record *record) {
    json_t *refused = json_object();
    for (int i = 0; i < FGF_REFUSALS; i++)
        if (refusal_names[i] && record->refused[i])
            set_count(refused, refusal_names[i], record->refused[i]);
    return refused;
}

static const char *stage_of(const fgf_server *s, const fgf_public_key *key) {
    static const char *const names[] = {
        [FGF_STAGE_HANDSHAKE] = "joining", [FGF_STAGE_HELLO] = "joining",      [FGF_STAGE_JOIN] = "joining",
        [FGF_STAGE_READY] = "training",    [FGF_STAGE_WAITING] = "waiting",    [FGF_STAGE_SENDING] = "downloading",
        [FGF_STAGE_UPLOAD] = "uploading",  [FGF_STAGE_CHECKING] = "uploading", [FGF_STAGE_LEAVING] = "leaving",
    };
    for (const fgf_connection *c = s->connections; c; c = c->next)
        if (!c->closed && c->stage != FGF_STAGE_HANDSHAKE && fgf_public_equal(&c->key, key))
            return names[c->stage];
    return "away";
}

static json_t *describe_client(const fgf_server *s, const fgf_allowed *allowed) {
    char text[FGF_PUBLIC_TEXT];
    static const fgf_client_record none = {.base = FGF_NO_VERSION};
    const fgf_client_record *found = fgf_book_find(&s->book, &allowed->key), *r = found ? found : &none;
    json_t *client = json_object();
    set(client, "name", fgio_json_text(allowed->name));
    set(client, "key", fgio_json_text(fgf_public_text(&allowed->key, text)));
    set(client, "state", fgio_json_text(stage_of(s, &allowed->key)));
    set(client, "round", r->base == FGF_NO_VERSION ? json_null() : json_integer((json_int_t)r->base));
    set_count(client, "counted", r->counted);
    set_count(client, "late", r->late);
    set_count(client, "limited", r->limited);
    set_count(client, "examples", r->examples);
    set_count(client, "connections", r->connections);
    set_count(client, "bytes_up", r->bytes_up);
    set_count(client, "bytes_down", r->bytes_down);
    set(client, "loss", fgio_json_real(r->loss));
    set(client, "refused", describe_refusals(r));
    return client;
}

static json_t *describe_server(const fgf_server *s, double now) {
    char run[2 * FGF_RUN_ID + 1];
    json_t *status = json_object(), *clients = json_array();
    for (int i = 0; i < FGF_RUN_ID; i++)
        sprintf(run + 2 * i, "%02x", s->run.bytes[i]);
    set(status, "run", json_string(run));
    set_count(status, "port", s->port);
    set_count(status, "round", s->round);
    set_count(status, "rounds", s->options.rule.rounds);
    set_count(status, "parameters", s->count);
    set(status, "done", json_boolean(s->finished_at > 0));
    set(status, "seconds", fgio_json_real(now - s->started));
    set(status, "round_seconds", fgio_json_real(now - s->opened));
    set_count(status, "updates", s->update_count);
    set_count(status, "connections", s->connection_count);
    set_count(status, "accepted_connections", s->accepted_connections);
    set_count(status, "refused_connections", s->refused_connections);
    set_count(status, "dropped_connections", s->dropped);
    set_count(status, "closing_failures", s->closing_failures);
    set_count(status, "bytes_up", s->bytes_up);
    set_count(status, "bytes_down", s->bytes_down);
    for (size_t i = 0; i < s->allowed.count; i++)
        json_array_append_new(clients, describe_client(s, &s->allowed.client[i]));
    set(status, "clients", clients);
    set(status, "history", fgf_history_to_json(&s->history));
    json_t *job = json_loads(s->options.state.job, 0, NULL);
    set(status, "job", job ? job : json_null());
    return status;
}

/* Without fsync: the file only informs. */
static void write_status_file(const fgf_server *s, const char *text) {
    char path[FGF_PATH_MAX], part[FGF_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/status.json", s->options.state.directory);
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (!file)
        return;
    bool written = fputs(text, file) >= 0;
    if (fclose(file) == 0 && written)
        rename(part, path);
}

void fgf_status_refresh(fgf_server *s, double now, bool at_once) {
    if (!at_once && now - s->status_at < REFRESH_SECONDS)
        return;
    json_t *status = describe_server(s, now);
    /* as many digits as in rounds.jsonl, so that a restart does not change the history */
    char *text = fgio_json_dump(status, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(status);
    if (!text)
        return;
    write_status_file(s, text);
    pthread_mutex_lock(&s->status_lock);
    free(s->status);
    s->status = text;
    pthread_mutex_unlock(&s->status_lock);
    s->status_at = now;
}

void fgf_status_round(fgf_server *s, const fgf_round_report *report) {
    fgf_history_add(&s->history, report);
    if (fgio_metrics_put(s->rounds_file, fgf_round_to_json(report)) != FGIO_EXIT_OK)
        fgf_server_log(s, "rounds.jsonl cannot be written");
}

char *fgf_server_status(fgf_server *s) {
    pthread_mutex_lock(&s->status_lock);
    char *copy = strdup(s->status ? s->status : "{}");
    pthread_mutex_unlock(&s->status_lock);
    return copy;
}
