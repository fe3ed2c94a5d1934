/*
 * Function:     server - owners of ranges of the weights, to whom workers push gradients and from whom they pull.
 * Description:  A server has one open ear per worker. What changes the weights becomes an entry of a log: a frame, and
 *               the numbers keep and gain of weights = keep * weights + gain * frame. In step (staleness=0) an entry is
 *               the exact sum of all workers' frames of a step, in rank order; else it is one worker's frame as it
 * came. A pull is answered with the entries that this worker has not seen, so that all apply the same bits in the same
 * order. Cost:         per worker and step one frame up, and the union of all frames down; per server both times the
 * workers. Limitations:  servers do not know of each other: a worker that falls silent in the middle of a step may be
 * counted by one and not by another. A server that ends takes its range with it.
 *
 * Example, 1 server, 2 workers, one element, rate 1: the weight is 10; the workers push 2 and 4. The server sums 6,
 *     divides by 2 and has 7; both pull the frame (0: 6) with gain -1/2 and have 7 as well.
 *
 * A worker writes only after its last letter was answered, so one place per worker is enough for everything. Whoever is
 * refused is dropped: the others must not wait for what will not come.
 */
#include "reduce/param_server.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/alloc.h"
#include "base/status.h"

#include <float.h>
#include <string.h>
#include <time.h>

#define IDLE 10e-3 /* seconds that a server without news sleeps at most */

typedef frugi_server server;
typedef frugi_server_worker worker;
typedef frugi_server_entry entry;

/* ---- letters -------------------------------------------------------------------- */

static frug_status listen(server *s, worker *w) {
    w->phase = FRUGI_SERVER_RECEIVE_REQUEST;
    w->heard = frugi_clock();
    w->hear =
        (frug_message){.peer = w->rank, .tag = FRUGI_TAG_PARAM_REQUEST, .data = w->in, .bytes = FRUGI_PARAM_MSG_BYTES};
    return frugi_comm_post(s->comm, &w->hear);
}

/* An answer, and `bytes` of its parcel. */
static frug_status answer(server *s, worker *w, frugi_param_kind kind, frug_status status, uint32_t entries,
                          size_t bytes) {
    frugi_param_msg l = {.kind = (uint32_t)kind,
                         .status = status,
                         .epoch = w->letter.epoch,
                         .step = w->next,
                         .rank = (uint32_t)s->comm->rank,
                         .entries = entries,
                         .begin = s->begin,
                         .count = s->count,
                         .bytes = bytes,
                         .hash = bytes ? frugi_crc32c(0, w->parcel.data, bytes) : 0};
    frugi_param_msg_encode(&l, w->out);
    w->phase = FRUGI_SERVER_SEND_REPLY;
    w->heard = frugi_clock();
    w->answer[0] = (frug_message){.peer = w->rank,
                                  .tag = frugi_param_tag(FRUGI_TAG_PARAM_REPLY, l.epoch),
                                  .sending = 1,
                                  .data = w->out,
                                  .bytes = FRUGI_PARAM_MSG_BYTES};
    w->answer[1] = (frug_message){.peer = w->rank,
                                  .tag = frugi_param_tag(FRUGI_TAG_PARAM_PAYLOAD, l.epoch),
                                  .sending = 1,
                                  .data = w->parcel.data,
                                  .bytes = bytes,
                                  .done = bytes == 0};
    FRUG_TRY(frugi_comm_post(s->comm, &w->answer[0]));
    return bytes ? frugi_comm_post(s->comm, &w->answer[1]) : FRUG_OK;
}

void frugi_server_drop(worker *w, const char *why) {
    if (w->live)
        frugi_log(FRUG_LOG_WARN, "server: rank %d is dropped: %s", w->rank, why);
    w->live = w->pushed = w->owed = false;
}

static frug_status refuse(server *s, worker *w, frug_status status) {
    frugi_server_drop(w, frug_last_error());
    return answer(s, w, FRUGI_PARAM_REFUSED, status, 0, 0);
}

/* Whoever comes back goes on where the slowest is. */
static uint64_t step_to_join(const server *s, const worker *joining) {
    uint64_t slowest = UINT64_MAX;
    if (!s->staleness)
        return s->step;
    for (int i = 0; i < s->workers; i++)
        if (&s->worker[i] != joining && s->worker[i].live && s->worker[i].next < slowest)
            slowest = s->worker[i].next;
    return slowest < UINT64_MAX ? slowest : joining->next;
}

static frug_status check_hello(const server *s, const worker *w) {
    FRUG_FAIL_IF(w->letter.hash != s->hash, FRUG_ERR_MISMATCH,
                 "server: rank %d has another config, layout, number of steps or version", w->rank);
    FRUG_FAIL_IF(w->greeted && w->letter.epoch <= w->epoch, FRUG_ERR_REMOTE,
                 "server: rank %d comes with epoch %llu, and was here with %llu", w->rank,
                 (unsigned long long)w->letter.epoch, (unsigned long long)w->epoch);
    return FRUG_OK;
}

static frug_status greet(server *s, worker *w) {
    size_t bytes = s->count * sizeof *s->weights;
    frug_status status = check_hello(s, w);
    if (status != FRUG_OK)
        return refuse(s, w, status);
    FRUG_TRY(frugi_buffer_reserve(&w->parcel, bytes));
    if (bytes)
        memcpy(w->parcel.data, s->weights, bytes);
    w->next = step_to_join(s, w);
    w->live = w->greeted = true;
    w->owed = w->pushed = false;
    w->epoch = w->letter.epoch;
    w->seen = s->entries;
    return answer(s, w, FRUGI_PARAM_DONE, FRUG_OK, 0, bytes);
}

static bool repeated(const server *s, const worker *w) {
    return w->letter.step < w->next || w->letter.step < s->step;
}

static frug_status check_push(const server *s, const worker *w) {
    const frugi_param_msg *l = &w->letter;
    FRUG_FAIL_IF(l->begin != s->begin || l->count != s->count || l->bytes > s->bound || l->step == UINT64_MAX,
                 FRUG_ERR_FORMAT, "server: rank %d pushes %llu bytes for %llu elements from %llu on at step %llu",
                 w->rank, (unsigned long long)l->bytes, (unsigned long long)l->count, (unsigned long long)l->begin,
                 (unsigned long long)l->step);
    FRUG_FAIL_IF(!(l->rate >= -FLT_MAX && l->rate <= FLT_MAX && l->decay >= -FLT_MAX && l->decay <= FLT_MAX),
                 FRUG_ERR_ARG, "server: rank %d has no finite rate or decay", w->rank);
    FRUG_FAIL_IF(w->owed && !repeated(s, w), FRUG_ERR_ARG, "server: rank %d pushes twice without a pull", w->rank);
    return FRUG_OK;
}

/* The frame of a repeated push is taken, or the worker would not get rid of it, and left aside. */
static frug_status take(server *s, worker *w) {
    frugi_buffer *room = repeated(s, w) ? &w->parcel : &w->frame;
    FRUG_TRY(frugi_buffer_reserve(room, w->letter.bytes));
    w->phase = FRUGI_SERVER_RECEIVE_FRAME;
    w->take = (frug_message){.peer = w->rank,
                             .tag = frugi_param_tag(FRUGI_TAG_PARAM_FRAME, w->epoch),
                             .data = room->data,
                             .bytes = (size_t)w->letter.bytes};
    return frugi_comm_post(s->comm, &w->take);
}

static frug_status open_letter(server *s, worker *w) {
    frug_status status = frugi_param_msg_decode(w->in, &w->letter);
    const frugi_param_msg *l = &w->letter;
    if (status != FRUG_OK)
        return refuse(s, w, status);
    if (l->kind == FRUGI_PARAM_HELLO)
        return greet(s, w);
    if (!w->live || !w->greeted || l->epoch != w->epoch)
        return refuse(s, w, frugi_fail(FRUG_ERR_REMOTE, "server: rank %d has not said hello", w->rank));
    if (l->kind == FRUGI_PARAM_PUSH) {
        status = check_push(s, w);
        return status == FRUG_OK ? take(s, w) : refuse(s, w, status);
    }
    if (l->kind == FRUGI_PARAM_LEAVE) {
        w->live = w->pushed = w->owed = false;
        s->goodbyes++;
        return answer(s, w, FRUGI_PARAM_DONE, FRUG_OK, 0, 0);
    }
    if (l->kind != FRUGI_PARAM_PULL || l->step >= w->next)
        return refuse(s, w, frugi_fail(FRUG_ERR_ARG, "server: rank %d pulls before it has pushed", w->rank));
    w->phase = FRUGI_SERVER_PULL_PENDING;
    return FRUG_OK;
}

static frug_status frame_has_come(server *s, worker *w) {
    const void *frame = w->frame.data;
    frugi_target t = {.dst = s->sum, .begin = s->begin, .count = s->count, .keep = 1.0f, .gain = 1.0f};
    if (!repeated(s, w)) {
        w->len = (size_t)w->letter.bytes;
        frug_status status = frugi_frames_open(s->c, &frame, &w->len, 1, &t);
        if (status != FRUG_OK)
            return refuse(s, w, status);
        w->step = w->letter.step;
        w->next = w->step + 1;
        w->rate = w->letter.rate;
        w->decay = w->letter.decay;
        w->owed = true;
        w->pushed = !s->staleness;
        if (s->staleness)
            FRUG_TRY(frugi_server_apply_frame(s, w));
    }
    return answer(s, w, FRUGI_PARAM_DONE, FRUG_OK, 0, 0);
}

/* ---- one worker after the other ------------------------------------------------- */

static bool may_pull(const server *s, const worker *w) {
    uint64_t slowest = UINT64_MAX;
    if (!s->staleness)
        return s->step > w->letter.step;
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].live && s->worker[i].next < slowest)
            slowest = s->worker[i].next;
    return w->letter.step < slowest || w->letter.step - slowest < s->staleness;
}

/* All entries that a worker has not seen. */
static frug_status send_updates(server *s, worker *w) {
    size_t bytes = 0;
    uint32_t entries = (uint32_t)(s->entries - w->seen);
    for (uint64_t i = w->seen; i < s->entries; i++)
        bytes += s->log[i % s->log_most].bytes;
    FRUG_TRY(frugi_buffer_reserve(&w->parcel, bytes));
    unsigned char *at = w->parcel.data;
    for (; w->seen < s->entries; w->seen++) {
        const entry *e = &s->log[w->seen % s->log_most];
        memcpy(at, e->room.data, e->bytes);
        at += e->bytes;
    }
    w->owed = false;
    return answer(s, w, FRUGI_PARAM_DONE, FRUG_OK, entries, bytes);
}

/* What a worker's messages have come to; *news when there is something to look at again. A transport that fails for one
 * worker ends this one's part only. */
static frug_status attend(server *s, worker *w, bool *news) {
    frug_message *m = w->phase == FRUGI_SERVER_RECEIVE_REQUEST ? &w->hear
                      : w->phase == FRUGI_SERVER_RECEIVE_FRAME ? &w->take
                                                               : w->answer;
    size_t n = w->phase == FRUGI_SERVER_SEND_REPLY ? 2 : 1, done = 0;
    if (w->phase == FRUGI_SERVER_PULL_PENDING) {
        if (!w->live)
            return refuse(s, w, frugi_fail(FRUG_ERR_REMOTE, "server: rank %d cannot follow", w->rank));
        *news |= may_pull(s, w);
        if (may_pull(s, w))
            return send_updates(s, w);
        return frugi_clock() - w->heard > s->comm->deadline / 4 ? answer(s, w, FRUGI_PARAM_RETRY, FRUG_OK, 0, 0)
                                                                : FRUG_OK;
    }
    frug_status status = frugi_comm_test(s->comm, m, n, &done);
    bool late = frugi_clock() - w->heard > s->comm->deadline && (w->live || w->phase != FRUGI_SERVER_RECEIVE_REQUEST);
    if (status == FRUG_OK && done < n && !late)
        return FRUG_OK;
    *news = true;
    if (status != FRUG_OK || done < n) {
        frugi_server_drop(w, status == FRUG_OK ? "silent for too long" : frug_last_error());
        if (w->phase == FRUGI_SERVER_RECEIVE_REQUEST && status == FRUG_OK)
            return FRUG_OK; /* the ear stays open */
        frugi_comm_abandon(s->comm, m, n);
        return listen(s, w);
    }
    if (w->phase == FRUGI_SERVER_SEND_REPLY)
        return listen(s, w);
    w->heard = frugi_clock();
    return w->phase == FRUGI_SERVER_RECEIVE_REQUEST ? open_letter(s, w) : frame_has_come(s, w);
}

/* ---- serving ----------------------------------------------------------------------- */

static bool busy(const server *s) {
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].live || s->worker[i].phase == FRUGI_SERVER_SEND_REPLY)
            return true;
    return false;
}

static void idle(const server *s) {
    struct timespec t = {.tv_nsec = (long)(IDLE / 100 * 1e9)};
    if (s->comm->transport.wait)
        s->comm->transport.wait(s->comm->ctx, IDLE);
    else
        nanosleep(&t, NULL);
}

static frug_status serve(server *s) {
    for (int i = 0; i < s->workers; i++)
        FRUG_TRY(listen(s, &s->worker[i]));
    while (busy(s)) {
        bool news = false;
        for (int i = 0; i < s->workers; i++)
            FRUG_TRY(attend(s, &s->worker[i], &news));
        if (!s->staleness)
            FRUG_TRY(frugi_server_apply_steps(s));
        if (!news)
            idle(s);
    }
    FRUG_FAIL_IF(!s->goodbyes, FRUG_ERR_COMM, "server: all workers have fallen silent");
    return FRUG_OK;
}

static frug_status make(server *s, const frug_config *config, const frug_layout *layout, const frug_options *options) {
    frug_config own = *config; /* its text stays, to compare */
    own.feedback = FRUGI_FEEDBACK_NONE;
    FRUG_TRY(frugi_check_servers(config, s->comm));
    FRUG_FAIL_IF((uint64_t)s->comm->rank >= config->servers, FRUG_ERR_ARG, "server: rank %d is a worker",
                 s->comm->rank);
    FRUG_TRY(frug_compressor_create(&own, layout, options, &s->c));
    s->begin = frugi_server_begin(s->c, (uint64_t)s->comm->rank);
    s->count = frugi_server_begin(s->c, (uint64_t)s->comm->rank + 1) - s->begin;
    s->hash = frugi_server_hash(s->c);
    s->staleness = config->staleness;
    s->weights += s->begin;
    FRUG_TRY(frug_compressor_bound(s->c, s->begin, s->count, &s->bound));
    s->log_most = frugi_server_log_capacity(config, s->comm);
    s->log = frugi_calloc(s->log_most, sizeof *s->log);
    s->workers = s->comm->size - (int)config->servers;
    s->worker = frugi_calloc((size_t)s->workers, sizeof *s->worker);
    s->sum = frugi_alloc(s->count * sizeof *s->sum);
    s->list = frugi_alloc((s->count + 1) * sizeof *s->list);
    FRUG_FAIL_IF(!s->log || !s->worker || !s->sum || !s->list, FRUG_ERR_MEMORY, "server: no memory for %llu weights",
                 (unsigned long long)s->count);
    for (int i = 0; i < s->workers; i++) {
        worker *w = &s->worker[i];
        *w = (worker){.rank = (int)config->servers + i, .live = true};
        w->hear.done = w->take.done = w->answer[0].done = w->answer[1].done = 1;
    }
    return FRUG_OK;
}

static void end(server *s) {
    for (int i = 0; s->worker && i < s->workers; i++) {
        worker *w = &s->worker[i];
        frugi_comm_abandon(s->comm, &w->hear, 1);
        frugi_comm_abandon(s->comm, &w->take, 1);
        frugi_comm_abandon(s->comm, w->answer, 2);
        frugi_free(w->frame.data);
        frugi_free(w->parcel.data);
    }
    for (size_t i = 0; s->log && i < s->log_most; i++)
        frugi_free(s->log[i].room.data);
    frugi_free(s->log);
    frugi_free(s->worker);
    frugi_free(s->sum);
    frugi_free(s->list);
    frug_compressor_destroy(s->c);
}

frug_status frug_server_run(const frug_config *config, const frug_layout *layout, const frug_options *options,
                            frug_comm *comm, float *weights) {
    FRUG_FAIL_IF(!config || !layout || !comm || !weights, FRUG_ERR_ARG, "server: no config, layout, comm or weights");
    server s = {.comm = comm, .weights = weights};
    frug_status status = make(&s, config, layout, options);
    if (status == FRUG_OK)
        status = serve(&s);
    end(&s);
    return status;
}
