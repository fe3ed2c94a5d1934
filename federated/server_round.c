/*
 * server_round.c - updates are checked and stored by the pool; when a round closes, its updates are summed by another
 * thread while connections are served.
 *
 * From the moment a round closes, updates are collected for the next one: a late update counts there, or is refused.
 * Weights are sent again when the new state is on disk.
 */
#include "federated/server_internal.h"

#include "base/clock.h"
#include "base/crc32c.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- checking an update ---- */

static int check_frame(fgf_check *check, int thread) {
    fgf_server *s = check->server;
    fgf_update *u = &check->update;
    void *frame = malloc(u->bytes);
    check->code = FGF_REFUSE_RETRY;
    int status = frame ? fgf_update_read(check->fd, u, frame, &check->why) : fgio_fail(&check->why, "no memory");
    if (status == 0) {
        check->code = FGF_REFUSE_INVALID;
        status = frugi_crc32c(0, frame, u->bytes) == u->checksum
                     ? fgf_sum_check(s->decoder[thread], frame, u->bytes, u->base, s->count, s->scratch[thread],
                                     &u->norm, &u->entries, &check->why)
                     : fgio_fail(&check->why, "its checksum is wrong");
    }
    free(frame);
    return status;
}

static void run_check(fgf_pool_job *job, int thread) {
    fgf_check *check = (fgf_check *)job;
    const char *dir = check->server->options.state.directory;
    check->status = check_frame(check, thread);
    if (check->status == 0) {
        check->code = FGF_REFUSE_RETRY;
        check->status = fgf_update_finish(dir, check->fd, &check->update, check->round, &check->why);
    }
    if (check->status != 0 && check->code == FGF_REFUSE_INVALID)
        fgf_update_abandon(dir, &check->update.client);
    close(check->fd);
    check->fd = -1;
}

static int keep_update(fgf_server *s, const fgf_update *update) {
    if (s->update_count == s->update_capacity) {
        size_t capacity = 2 * s->update_capacity + 16;
        fgf_update *grown = realloc(s->updates, capacity * sizeof *grown);
        if (!grown)
            return -1;
        s->updates = grown;
        s->update_capacity = capacity;
    }
    s->updates[s->update_count++] = *update;
    return 0;
}

/* The client may be gone by now: the update counts all the same, and is confirmed when the client offers it again. */
static void finish_check(fgf_pool_job *job, void *ctx) {
    fgf_check *check = (fgf_check *)job;
    fgf_server *s = ctx;
    fgf_check **at = &s->checks;
    while (*at != check)
        at = &(*at)->next;
    *at = check->next;
    if (check->status == 0) {
        fgf_client_record *record = fgf_book_add(&s->book, &check->update.client);
        if (!record || keep_update(s, &check->update) != 0) {
            check->status = fgio_fail(&check->why, "no memory"); /* it is on disk, and counts after a restart */
            check->code = FGF_REFUSE_RETRY;
        } else {
            record->base = check->update.base;
            record->upload = check->update.upload;
        }
    }
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (!c->closed && fgf_public_equal(&c->key, &check->update.client))
            fgf_connection_checked(c, check);
    free(check);
}

int fgf_round_check_update(fgf_connection *c) {
    fgf_check *check = calloc(1, sizeof *check);
    if (!check)
        return -1;
    *check = (fgf_check){.job = {.run = run_check, .finish = finish_check},
                         .server = c->server,
                         .update = c->update,
                         .fd = c->update_fd,
                         .round = c->server->round,
                         .next = c->server->checks};
    c->update_fd = -1;
    c->server->checks = check;
    if (!c->server->summing)
        fgf_pool_submit(c->server->pool, &check->job);
    return 0;
}

/* The pool and the sum of a round use the same buffers: checks wait while a round is summed, and the other way round.
 */
static void submit_checks(fgf_server *s) {
    for (fgf_check *check = s->checks; check; check = check->next)
        fgf_pool_submit(s->pool, &check->job);
}

bool fgf_round_is_checking(const fgf_server *s, const fgf_public_key *client) {
    const fgf_check *check = s->checks;
    while (check && !fgf_public_equal(&check->update.client, client))
        check = check->next;
    return check != NULL;
}

int fgf_round_recover(fgf_server *s, fgio_reason *why) {
    fgf_update_remove_before(s->options.state.directory, s->round);
    if (fgf_update_take_back(s->options.state.directory, s->round, why) != 0 ||
        fgf_update_list(s->options.state.directory, s->round, &s->state->run, &s->updates, &s->update_count, why) != 0)
        return -1;
    s->update_capacity = s->update_count;
    for (size_t i = 0; i < s->update_count; i++) {
        fgf_client_record *record = fgf_book_add(&s->book, &s->updates[i].client);
        if (!record)
            return fgio_fail(why, "not enough memory");
        if (record->base == FGF_NO_VERSION || s->updates[i].base >= record->base) {
            record->base = s->updates[i].base;
            record->upload = s->updates[i].upload;
        }
    }
    if (s->update_count)
        fgf_server_log(s, "%zu updates of round %llu were confirmed before", s->update_count,
                       (unsigned long long)s->round);
    if (s->round >= s->options.rule.rounds)
        s->finished_at = frugi_clock();
    return 0;
}

/* ---- closing a round ---- */

static int compare_updates(const void *x, const void *y) {
    const fgf_update *a = x, *b = y;
    int order = memcmp(a->client.bytes, b->client.bytes, FGF_PUBLIC_BYTES);
    return order ? order : (a->base > b->base) - (a->base < b->base);
}

/* What the updates of a round add to the records of their clients. */
static int enter_into_book(fgf_book *book, const fgf_sum_rule *rule, uint64_t round, const fgf_update *updates,
                           size_t count) {
    fgf_share *shares = calloc(count + 1, sizeof *shares);
    if (!shares || fgf_sum_shares(rule, round, updates, count, shares) != 0) {
        free(shares);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        fgf_client_record *client = fgf_book_find(book, &updates[i].client);
        client->counted++;
        client->late += updates[i].base < round;
        client->limited += shares[i].limit < 1;
        client->examples = updates[i].examples;
        client->loss = updates[i].loss;
    }
    free(shares);
    return 0;
}

static fgf_round_report describe_round(const fgf_server *s, double now) {
    fgf_round_report r = {.round = s->round,
                          .rounds = s->options.rule.rounds,
                          .updates = s->update_count,
                          .seconds = now - s->opened,
                          .eval_loss = (double)NAN,
                          .eval_accuracy = (double)NAN};
    double sum = 0, known = 0;
    for (size_t i = 0; i < s->update_count; i++) {
        r.bytes_up += s->updates[i].bytes;
        if (isfinite(s->updates[i].loss)) {
            sum += s->updates[i].loss;
            known++;
        }
    }
    r.loss = known > 0 ? sum / known : (double)NAN;
    return r;
}

static void run_close(fgf_pool_job *job, int thread) {
    fgf_closing *close_job = (fgf_closing *)job;
    fgf_server *s = close_job->server;
    (void)thread;
    close_job->status = fgf_state_close_round(s->state, close_job->updates, close_job->count, &close_job->book,
                                              &close_job->report.changes, &close_job->why);
}

static void run_callback(fgf_pool_job *job, int thread) {
    fgf_closing *close_job = (fgf_closing *)job;
    fgf_server *s = close_job->server;
    (void)thread;
    if (s->options.round)
        s->options.round(s->options.ctx, &close_job->report, s->state->weights, s->count);
}

static void finish_callback(fgf_pool_job *job, void *ctx) {
    fgf_closing *close_job = (fgf_closing *)job;
    fgf_server *s = ctx;
    fgf_status_round(s, &close_job->report);
    s->closing = false;
    if (s->round >= s->options.rule.rounds)
        s->finished_at = frugi_clock();
}

/* The round goes on collecting: its updates are on disk and in the list. */
static void reopen_round(fgf_server *s, const fgf_closing *close_job) {
    fgf_server_log(s, "round %llu could not be closed, it is tried again: %s", (unsigned long long)s->round - 1,
                   close_job->why.text);
    s->closing_failures++;
    s->retry_at = frugi_clock() + FGF_RETRY_SECONDS;
}

static void finish_close(fgf_pool_job *job, void *ctx) {
    fgf_closing *close_job = (fgf_closing *)job;
    fgf_server *s = ctx;
    s->summing = false;
    submit_checks(s);
    if (close_job->status != 0) {
        reopen_round(s, close_job);
        return; /* s->closing stays: fgf_round_close_if_due() submits the job again */
    }
    s->retry_at = 0;
    enter_into_book(&s->book, &s->options.state.sum, close_job->report.round, close_job->updates, close_job->count);
    s->published = true;
    s->opened = frugi_clock();
    fgf_blob_drop_old(s);
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (!c->closed && c->stage == FGF_STAGE_WAITING) {
            fgf_connection_try_weights(c);
            fgf_connection_serve(c);
        }
    close_job->job = (fgf_pool_job){.run = run_callback, .finish = finish_callback};
    fgf_pool_submit(s->closer, &close_job->job);
}

static void submit_close(fgf_server *s) {
    s->summing = true;
    s->close.job = (fgf_pool_job){.run = run_close, .finish = finish_close};
    fgf_pool_submit(s->closer, &s->close.job);
}

static void begin_close(fgf_server *s, double now) {
    fgf_closing *c = &s->close;
    fgf_book_free(&c->book);
    if (fgf_book_copy(&s->book, &c->book) != 0 ||
        enter_into_book(&c->book, &s->options.state.sum, s->round, s->updates, s->update_count) != 0)
        return; /* without memory: later */
    free(c->updates);
    qsort(s->updates, s->update_count, sizeof *s->updates, compare_updates);
    c->server = s;
    c->updates = s->updates;
    c->count = s->update_count;
    c->report = describe_round(s, now);
    s->updates = NULL;
    s->update_count = s->update_capacity = 0;
    s->closing = true;
    s->published = false;
    s->round++;
    submit_close(s);
}

void fgf_round_close_if_due(fgf_server *s, double now) {
    size_t in_time = 0;
    if (s->closing && !s->checks && s->retry_at > 0 && now >= s->retry_at) {
        s->retry_at = 0;
        submit_close(s);
    }
    if (s->closing || s->checks || s->round >= s->options.rule.rounds)
        return;
    for (size_t i = 0; i < s->update_count; i++)
        in_time += s->updates[i].base == s->round;
    if (fgf_round_closes(&s->options.rule, s->allowed.count, in_time, now - s->opened))
        begin_close(s, now);
}
