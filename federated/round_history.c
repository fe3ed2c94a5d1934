/*
 * round_history.c - the last rounds of a run.
 *
 * They are not part of DIR/state, because a round is evaluated after its state has been written: after a restart they
 * are read from DIR/rounds.jsonl. Only the last FGF_HISTORY rounds are in memory, however long the file is.
 */
#include "federated/round_history.h"

#include "io/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUND_LINE_MAX 1024 /* more than any line that fgf_round_to_json() makes */

static void set(json_t *object, const char *key, json_t *value) {
    json_object_set_new(object, key, value);
}

static void set_count(json_t *object, const char *key, uint64_t value) {
    set(object, key, json_integer((json_int_t)value));
}

json_t *fgf_round_to_json(const fgf_round_report *r) {
    json_t *round = json_object();
    set_count(round, "step", r->round + 1);
    set_count(round, "round", r->round);
    set_count(round, "updates", r->updates);
    set_count(round, "bytes_up", r->bytes_up);
    set_count(round, "changes", r->changes);
    set(round, "loss", fgio_json_real(r->loss));
    set(round, "seconds", fgio_json_real(r->seconds));
    set(round, "eval_loss", fgio_json_real(r->eval_loss));
    set(round, "eval_accuracy", fgio_json_real(r->eval_accuracy));
    return round;
}

static bool get_count(const json_t *object, const char *key, uint64_t *count) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *count = (uint64_t)json_integer_value(value);
    return true;
}

static bool get_real(const json_t *object, const char *key, double *real) {
    const json_t *value = json_object_get(object, key);
    *real = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return json_is_number(value) || json_is_null(value);
}

bool fgf_round_from_line(const char *line, size_t len, fgf_round_report *report) {
    fgf_round_report r = {0};
    uint64_t updates = 0;
    json_t *object = json_loadb(line, len, 0, NULL);
    bool valid = get_count(object, "round", &r.round) && get_count(object, "updates", &updates) &&
                 get_count(object, "bytes_up", &r.bytes_up) && get_count(object, "changes", &r.changes) &&
                 get_real(object, "loss", &r.loss) && get_real(object, "seconds", &r.seconds) &&
                 get_real(object, "eval_loss", &r.eval_loss) && get_real(object, "eval_accuracy", &r.eval_accuracy);
    json_decref(object);
    r.updates = updates;
    if (valid)
        *report = r;
    return valid;
}

void fgf_history_add(fgf_history *history, const fgf_round_report *report) {
    history->last[history->count++ % FGF_HISTORY] = *report;
}

json_t *fgf_history_to_json(const fgf_history *history) {
    json_t *rounds = json_array();
    uint64_t first = history->count > FGF_HISTORY ? history->count - FGF_HISTORY : 0;
    for (uint64_t i = first; i < history->count; i++)
        json_array_append_new(rounds, fgf_round_to_json(&history->last[i % FGF_HISTORY]));
    return rounds;
}

/* One line, without its end. False at the end of the file; a line that is too long, or has no end, has length 0. */
static bool read_line(FILE *file, char line[ROUND_LINE_MAX], size_t *len) {
    size_t used = 0;
    int c = getc(file);
    if (c == EOF)
        return false;
    for (; c != EOF && c != '\n'; c = getc(file))
        if (used < ROUND_LINE_MAX)
            line[used++] = (char)c;
    *len = c == '\n' && used < ROUND_LINE_MAX ? used : 0;
    return true;
}

int fgf_history_read(const char *path, uint64_t round, uint64_t rounds, fgf_history *history, uint64_t *left_out,
                     fgio_reason *why) {
    char line[ROUND_LINE_MAX];
    size_t len;
    uint64_t next = 0;
    *left_out = 0;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return errno == ENOENT ? 0 : fgio_fail(why, "%s cannot be read: %s", path, strerror(errno));
    while (read_line(file, line, &len)) {
        fgf_round_report report;
        if (!fgf_round_from_line(line, len, &report) || report.round < next || report.round >= round) {
            ++*left_out;
            continue;
        }
        next = report.round + 1;
        report.rounds = rounds;
        fgf_history_add(history, &report);
    }
    int status = ferror(file) ? fgio_fail(why, "%s cannot be read: %s", path, strerror(errno)) : 0;
    fclose(file);
    return status;
}
