/* federated_print.c - lines of progress of a federated run. */
#include "program/federated/federated_print.h"

#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

void fgp_print_log(void *ctx, const char *line) {
    char clock[16] = "", safe[1024];
    struct tm now;
    time_t seconds = time(NULL);
    (void)ctx;
    if (localtime_r(&seconds, &now))
        strftime(clock, sizeof clock, "%H:%M:%S", &now);
    fprintf(stderr, "%s %s\n", clock, fgio_printable(line, safe, sizeof safe));
}

void fgp_print_client_round(void *ctx, uint64_t round, uint64_t rounds, double loss, bool counted) {
    char line[128];
    snprintf(line, sizeof line, "round %llu/%llu  loss %.4f%s", (unsigned long long)round + 1,
             (unsigned long long)rounds, loss, counted ? "" : "  not counted");
    fgp_print_log(ctx, line);
}

void fgp_print_server_round(const fgf_round_report *r) {
    char line[256], bytes[32], quality[64] = "";
    if (isfinite(r->eval_accuracy))
        snprintf(quality, sizeof quality, "  accuracy %.2f %%", 100 * r->eval_accuracy);
    else if (isfinite(r->eval_loss))
        snprintf(quality, sizeof quality, "  test loss %.4f", r->eval_loss);
    snprintf(line, sizeof line, "round %llu/%llu  loss %.4f%s  %zu updates  %s  %.1f s",
             (unsigned long long)r->round + 1, (unsigned long long)r->rounds, r->loss, quality, r->updates,
             fgio_bytes_text(r->bytes_up, bytes, sizeof bytes), r->seconds);
    fgp_print_log(NULL, line);
}

unsigned long long fgp_status_count(const json_t *object, const char *key) {
    json_int_t count = json_integer_value(json_object_get(object, key));
    return count > 0 ? (unsigned long long)count : 0;
}

unsigned long long fgp_status_refused(const json_t *client) {
    unsigned long long sum = 0;
    const char *reason;
    json_t *count, *refused = json_object_get(client, "refused");
    json_object_foreach(refused, reason, count) sum += fgp_status_count(refused, reason);
    return sum;
}

static void print_client(const json_t *c) {
    char up[32], down[32], name[64];
    const char *label = json_string_value(json_object_get(c, "name")),
               *key = json_string_value(json_object_get(c, "key"));
    const char *state = json_string_value(json_object_get(c, "state"));
    printf("%-20s %-12s %8llu %6llu %8llu %11s %11s\n",
           fgio_printable(label && *label ? label
                          : key           ? key
                                          : "?",
                          name, sizeof name),
           state ? state : "?", fgp_status_count(c, "counted"), fgp_status_count(c, "late"), fgp_status_refused(c),
           fgio_bytes_text(fgp_status_count(c, "bytes_up"), up, sizeof up),
           fgio_bytes_text(fgp_status_count(c, "bytes_down"), down, sizeof down));
}

int fgp_print_status(const char *path, const char *text, bool as_json) {
    json_t *status = json_loads(text, 0, NULL), *clients = json_object_get(status, "clients");
    json_t *history = json_object_get(status, "history");
    if (!json_is_object(status) || !json_is_array(clients)) {
        json_decref(status);
        return fgio_error("serve: %s is damaged; the run is not: its server writes the file again when it is started",
                          path);
    }
    if (as_json) {
        puts(text);
        json_decref(status);
        return FGIO_EXIT_OK;
    }
    printf("round %llu of %llu%s, %llu updates of this round, %llu connections\n", fgp_status_count(status, "round"),
           fgp_status_count(status, "rounds"), json_is_true(json_object_get(status, "done")) ? ", done" : "",
           fgp_status_count(status, "updates"), fgp_status_count(status, "connections"));
    json_t *last = json_array_size(history) ? json_array_get(history, json_array_size(history) - 1) : NULL;
    if (last && json_is_number(json_object_get(last, "loss")))
        printf("loss %.4f in round %llu\n", json_number_value(json_object_get(last, "loss")),
               fgp_status_count(last, "step"));
    printf("%-20s %-12s %8s %6s %8s %11s %11s\n", "client", "state", "counted", "late", "refused", "sent", "received");
    for (size_t i = 0; i < json_array_size(clients); i++)
        print_client(json_array_get(clients, i));
    json_decref(status);
    return FGIO_EXIT_OK;
}
