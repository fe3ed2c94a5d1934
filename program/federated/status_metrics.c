/* status_metrics.c - the state of a federated run in Prometheus' text format. */
#include "lab/report/text_buffer.h"
#include "program/federated/status_page.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/** A metric and the member of the JSON that it is. */
typedef struct metric {
    const char *key, *name, *type, *help;
} metric;

static const metric of_server[] = {
    {"round", "frugrad_round", "gauge", "round that is open; the number of rounds that have closed"},
    {"rounds", "frugrad_rounds", "gauge", "rounds of the run"},
    {"updates", "frugrad_round_updates", "gauge", "updates of the open round"},
    {"connections", "frugrad_connections", "gauge", "open connections"},
    {"accepted_connections", "frugrad_accepted_connections_total", "counter", "connections of clients"},
    {"refused_connections", "frugrad_refused_connections_total", "counter", "connections without an allowed key"},
    {"dropped_connections", "frugrad_dropped_connections_total", "counter", "connections that broke or were too slow"},
    {"closing_failures", "frugrad_closing_failures_total", "counter", "attempts to close a round that failed"},
    {"bytes_up", "frugrad_received_bytes_total", "counter", "bytes of messages from clients"},
    {"bytes_down", "frugrad_sent_bytes_total", "counter", "bytes of messages to clients"},
};

static const metric of_round[] = {
    {"loss", "frugrad_loss", "gauge", "mean loss of the clients in the last round that has it"},
    {"eval_loss", "frugrad_eval_loss", "gauge", "loss on the server's data"},
    {"eval_accuracy", "frugrad_eval_accuracy", "gauge", "accuracy on the server's data, 0 to 1"},
    {"seconds", "frugrad_round_seconds", "gauge", "seconds that the last round was open"},
};

static const metric of_client[] = {
    {"counted", "frugrad_client_updates_total", "counter", "updates that were counted"},
    {"late", "frugrad_client_late_updates_total", "counter", "of these, late ones"},
    {"limited", "frugrad_client_limited_updates_total", "counter", "of these, scaled down"},
    {"bytes_up", "frugrad_client_received_bytes_total", "counter", "bytes of messages from the client"},
    {"bytes_down", "frugrad_client_sent_bytes_total", "counter", "bytes of messages to the client"},
    {"loss", "frugrad_client_loss", "gauge", "loss of the client's last update"},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void put_head(fgl_text *to, const metric *m) {
    fgl_put(to, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
}

static void put_label(fgl_text *to, const char *text) {
    for (; text && *text; text++)
        if (*text == '"' || *text == '\\')
            fgl_put(to, "\\%c", *text);
        else
            fgl_put(to, "%c", *text == '\n' ? ' ' : *text);
}

static void put_client_labels(fgl_text *to, const json_t *client) {
    fgl_put_raw(to, "{client=\"");
    put_label(to, json_string_value(json_object_get(client, "name")));
    fgl_put_raw(to, "\",key=\"");
    put_label(to, json_string_value(json_object_get(client, "key")));
}

static void put_server(fgl_text *to, const json_t *status) {
    for (size_t i = 0; i < COUNT(of_server); i++) {
        put_head(to, &of_server[i]);
        fgl_put(to, "%s %lld\n", of_server[i].name,
                (long long)json_integer_value(json_object_get(status, of_server[i].key)));
    }
}

static void put_last_round(fgl_text *to, const json_t *history) {
    for (size_t i = 0; i < COUNT(of_round); i++) {
        const json_t *value = NULL;
        for (size_t at = json_array_size(history); at-- > 0 && !json_is_number(value);)
            value = json_object_get(json_array_get(history, at), of_round[i].key);
        if (json_is_number(value)) {
            put_head(to, &of_round[i]);
            fgl_put(to, "%s %.9g\n", of_round[i].name, json_number_value(value));
        }
    }
}

static void put_clients(fgl_text *to, const json_t *clients) {
    for (size_t i = 0; i < COUNT(of_client); i++) {
        put_head(to, &of_client[i]);
        for (size_t c = 0; c < json_array_size(clients); c++) {
            const json_t *client = json_array_get(clients, c), *value = json_object_get(client, of_client[i].key);
            if (!json_is_number(value))
                continue;
            fgl_put_raw(to, of_client[i].name);
            put_client_labels(to, client);
            fgl_put(to, "\"} %.17g\n", json_number_value(value));
        }
    }
}

static void put_refusals(fgl_text *to, const json_t *clients) {
    static const metric refused = {"refused", "frugrad_client_refused_total", "counter", "refused requests by reason"};
    const char *reason;
    json_t *value;
    put_head(to, &refused);
    for (size_t c = 0; c < json_array_size(clients); c++) {
        const json_t *client = json_array_get(clients, c);
        json_object_foreach(json_object_get(client, refused.key), reason, value) {
            fgl_put_raw(to, refused.name);
            put_client_labels(to, client);
            fgl_put(to, "\",reason=\"%s\"} %lld\n", reason, (long long)json_integer_value(value));
        }
    }
}

char *fgp_status_metrics(const char *json) {
    json_t *status = json_loads(json, 0, NULL), *clients = json_object_get(status, "clients");
    fgl_text text = {0};
    if (!json_is_array(clients)) {
        json_decref(status);
        return NULL;
    }
    put_server(&text, status);
    put_last_round(&text, json_object_get(status, "history"));
    put_clients(&text, clients);
    put_refusals(&text, clients);
    json_decref(status);
    if (text.failed) {
        fgl_text_free(&text);
        return NULL;
    }
    return text.data;
}
