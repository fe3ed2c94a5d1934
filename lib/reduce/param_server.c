/*
 * Function:     server - parameter servers: each owns a range of the weights; workers push gradients and pull updates.
 * Description:  One receive is always posted per worker. Every update of the weights is an entry of a log: a frame, and
 *               the numbers keep and gain of weights = keep * weights + gain * frame. Synchronous (staleness=0), an
 *               entry is the exact sum of all workers' frames of a step, in rank order; else it is the frame of one
 *               worker. A pull is answered with the entries that this worker has not pulled yet, so that all workers
 *               apply the same bits in the same order.
 * Cost:         per worker and step one frame sent, and the union of all frames received; per server both times the
 *               number of workers.
 * Limitations:  servers do not communicate with each other: the frame of a worker that fails in the middle of a step
 *               may be counted by one server and not by another. If a server ends, its range is lost.
 *
 * Example, 1 server, 2 workers, one element, rate 1: the weight is 10; the workers push 2 and 4. The server sums 6,
 *     divides by 2 and has 7; both pull the frame (0: 6) with gain -1/2 and have 7 as well.
 *
 * A worker sends a request only after the reply to its last one, so one set of buffers per worker is enough. A worker
 * whose request is refused is dropped, so that the others do not wait for it.
 */
#include "frugrad/experimental.h"
#include "reduce/param_server.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/alloc.h"
#include "base/status.h"

#include <float.h>
#include <string.h>
#include <time.h>

#define IDLE_SECONDS 10e-3 /* longest sleep of a server without progress */

typedef frugi_server server;
typedef frugi_server_worker worker;
typedef frugi_server_entry entry;

/* ---- receive requests, send replies ---------------------------------------------- */

static frug_status post_request_receive(server *s, worker *w) {
    w->state = FRUGI_SERVER_RECEIVE_REQUEST;
    w->last_active = frugi_clock();
    w->request_recv =
        (frug_message){.peer = w->rank, .tag = FRUGI_TAG_PARAM_REQUEST, .data = w->in, .bytes = FRUGI_PARAM_MSG_BYTES};
    return frugi_comm_post(s->comm, &w->request_recv);
}

/* Send a reply, and `bytes` of w->payload. */
static frug_status send_reply(server *s, worker *w, frugi_param_kind kind, frug_status status, uint32_t entries,
                              size_t bytes) {
    frugi_param_msg msg = {.kind = (uint32_t)kind,
                           .status = status,
                           .epoch = w->request.epoch,
                           .step = w->next_step,
                           .rank = (uint32_t)s->comm->rank,
                           .entries = entries,
                           .begin = s->begin,
                           .count = s->count,
                           .bytes = bytes,
                           .hash = bytes ? frugi_crc32c(0, w->payload.data, bytes) : 0};
    frugi_param_msg_encode(&msg, w->out);
    w->state = FRUGI_SERVER_SEND_REPLY;
    w->last_active = frugi_clock();
    w->reply_send[0] = (frug_message){.peer = w->rank,
                                      .tag = frugi_param_tag(FRUGI_TAG_PARAM_REPLY, msg.epoch),
                                      .sending = 1,
                                      .data = w->out,
                                      .bytes = FRUGI_PARAM_MSG_BYTES};
    w->reply_send[1] = (frug_message){.peer = w->rank,
                                      .tag = frugi_param_tag(FRUGI_TAG_PARAM_PAYLOAD, msg.epoch),
                                      .sending = 1,
                                      .data = w->payload.data,
                                      .bytes = bytes,
                                      .done = bytes == 0};
    FRUG_TRY(frugi_comm_post(s->comm, &w->reply_send[0]));
    return bytes ? frugi_comm_post(s->comm, &w->reply_send[1]) : FRUG_OK;
}

void frugi_server_drop(worker *w, const char *why) {
    if (w->active)
        frugi_log(FRUG_LOG_WARN, "server: rank %d dropped: %s", w->rank, why);
    w->active = w->frame_pending = w->pull_due = false;
}

static frug_status refuse(server *s, worker *w, frug_status status) {
    frugi_server_drop(w, frug_last_error());
    return send_reply(s, w, FRUGI_PARAM_REFUSED, status, 0, 0);
}

/* The first step of a worker that joins: that of the slowest worker. */
static uint64_t step_to_join(const server *s, const worker *joining) {
    uint64_t slowest = UINT64_MAX;
    if (!s->staleness)
        return s->step;
    for (int i = 0; i < s->workers; i++)
        if (&s->worker[i] != joining && s->worker[i].active && s->worker[i].next_step < slowest)
            slowest = s->worker[i].next_step;
    return slowest < UINT64_MAX ? slowest : joining->next_step;
}

static frug_status check_hello(const server *s, const worker *w) {
    FRUG_FAIL_IF(w->request.hash != s->hash, FRUG_ERR_MISMATCH,
                 "server: rank %d has a different config, layout, number of steps or library version", w->rank);
    FRUG_FAIL_IF(w->joined && w->request.epoch <= w->epoch, FRUG_ERR_REMOTE,
                 "server: rank %d joins with epoch %llu, which must be greater than its last one, %llu", w->rank,
                 (unsigned long long)w->request.epoch, (unsigned long long)w->epoch);
    return FRUG_OK;
}

static frug_status handle_hello(server *s, worker *w) {
    size_t bytes = s->count * sizeof *s->weights;
    frug_status status = check_hello(s, w);
    if (status != FRUG_OK)
        return refuse(s, w, status);
    FRUG_TRY(frugi_buffer_reserve(&w->payload, bytes));
    if (bytes)
        memcpy(w->payload.data, s->weights, bytes);
    w->next_step = step_to_join(s, w);
    w->active = w->joined = true;
    w->pull_due = w->frame_pending = false;
    w->epoch = w->request.epoch;
    w->entries_pulled = s->entries;
    return send_reply(s, w, FRUGI_PARAM_DONE, FRUG_OK, 0, bytes);
}

static bool is_repeated_push(const server *s, const worker *w) {
    return w->request.step < w->next_step || w->request.step < s->step;
}

static frug_status check_push(const server *s, const worker *w) {
    const frugi_param_msg *msg = &w->request;
    FRUG_FAIL_IF(msg->begin != s->begin || msg->count != s->count || msg->bytes > s->bound || msg->step == UINT64_MAX,
                 FRUG_ERR_FORMAT,
                 "server: invalid push of rank %d: %llu bytes for %llu elements from %llu at step %llu", w->rank,
                 (unsigned long long)msg->bytes, (unsigned long long)msg->count, (unsigned long long)msg->begin,
                 (unsigned long long)msg->step);
    FRUG_FAIL_IF(!(msg->rate >= -FLT_MAX && msg->rate <= FLT_MAX && msg->decay >= -FLT_MAX && msg->decay <= FLT_MAX),
                 FRUG_ERR_ARG, "server: rate or decay of rank %d is not finite", w->rank);
    FRUG_FAIL_IF(w->pull_due && !is_repeated_push(s, w), FRUG_ERR_ARG, "server: rank %d pushed twice without a pull",
                 w->rank);
    return FRUG_OK;
}

/* The frame of a repeated push is received too, so that its send completes, and then ignored. */
static frug_status post_frame_receive(server *s, worker *w) {
    frugi_buffer *buffer = is_repeated_push(s, w) ? &w->payload : &w->frame;
    FRUG_TRY(frugi_buffer_reserve(buffer, w->request.bytes));
    w->state = FRUGI_SERVER_RECEIVE_FRAME;
    w->frame_recv = (frug_message){.peer = w->rank,
                                   .tag = frugi_param_tag(FRUGI_TAG_PARAM_FRAME, w->epoch),
                                   .data = buffer->data,
                                   .bytes = (size_t)w->request.bytes};
    return frugi_comm_post(s->comm, &w->frame_recv);
}

static frug_status handle_request(server *s, worker *w) {
    frug_status status = frugi_param_msg_decode(w->in, &w->request);
    const frugi_param_msg *msg = &w->request;
    if (status != FRUG_OK)
        return refuse(s, w, status);
    if (msg->kind == FRUGI_PARAM_HELLO)
        return handle_hello(s, w);
    if (!w->active || !w->joined || msg->epoch != w->epoch)
        return refuse(s, w, frugi_fail(FRUG_ERR_REMOTE, "server: rank %d has not joined in this epoch", w->rank));
    if (msg->kind == FRUGI_PARAM_PUSH) {
        status = check_push(s, w);
        return status == FRUG_OK ? post_frame_receive(s, w) : refuse(s, w, status);
    }
    if (msg->kind == FRUGI_PARAM_LEAVE) {
        w->active = w->frame_pending = w->pull_due = false;
        s->left++;
        return send_reply(s, w, FRUGI_PARAM_DONE, FRUG_OK, 0, 0);
    }
    if (msg->kind != FRUGI_PARAM_PULL || msg->step >= w->next_step)
        return refuse(s, w, frugi_fail(FRUG_ERR_ARG, "server: rank %d pulled a step that it has not pushed", w->rank));
    w->state = FRUGI_SERVER_PULL_PENDING;
    return FRUG_OK;
}

static frug_status handle_frame(server *s, worker *w) {
    const void *frame = w->frame.data;
    frugi_target t = {.dst = s->sum, .begin = s->begin, .count = s->count, .keep = 1.0f, .gain = 1.0f};
    if (!is_repeated_push(s, w)) {
        w->len = (size_t)w->request.bytes;
        frug_status status = frugi_frames_open(frug_compressor_decoder(s->c), &frame, &w->len, 1, &t);
        if (status != FRUG_OK)
            return refuse(s, w, status);
        w->step = w->request.step;
        w->next_step = w->step + 1;
        w->rate = w->request.rate;
        w->decay = w->request.decay;
        w->pull_due = true;
        w->frame_pending = !s->staleness;
        if (s->staleness)
            FRUG_TRY(frugi_server_apply_frame(s, w));
    }
    return send_reply(s, w, FRUGI_PARAM_DONE, FRUG_OK, 0, 0);
}

/* ---- progress of one worker ------------------------------------------------------ */

static bool may_pull(const server *s, const worker *w) {
    uint64_t slowest = UINT64_MAX;
    if (!s->staleness)
        return s->step > w->request.step;
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].active && s->worker[i].next_step < slowest)
            slowest = s->worker[i].next_step;
    return w->request.step < slowest || w->request.step - slowest < s->staleness;
}

/* Reply to a pull with all entries that the worker does not have. */
static frug_status send_updates(server *s, worker *w) {
    size_t bytes = 0;
    uint32_t entries = (uint32_t)(s->entries - w->entries_pulled);
    for (uint64_t i = w->entries_pulled; i < s->entries; i++)
        bytes += s->log[i % s->log_capacity].bytes;
    FRUG_TRY(frugi_buffer_reserve(&w->payload, bytes));
    unsigned char *at = w->payload.data;
    for (; w->entries_pulled < s->entries; w->entries_pulled++) {
        const entry *e = &s->log[w->entries_pulled % s->log_capacity];
        memcpy(at, e->buffer.data, e->bytes);
        at += e->bytes;
    }
    w->pull_due = false;
    return send_reply(s, w, FRUGI_PARAM_DONE, FRUG_OK, entries, bytes);
}

/* Handle a worker's completed messages; sets *progress if there were any. A transport error of one worker drops only
 * this worker. */
static frug_status progress_worker(server *s, worker *w, bool *progress) {
    frug_message *m = w->state == FRUGI_SERVER_RECEIVE_REQUEST ? &w->request_recv
                      : w->state == FRUGI_SERVER_RECEIVE_FRAME ? &w->frame_recv
                                                               : w->reply_send;
    size_t n = w->state == FRUGI_SERVER_SEND_REPLY ? 2 : 1, done = 0;
    if (w->state == FRUGI_SERVER_PULL_PENDING) {
        if (!w->active)
            return refuse(s, w, frugi_fail(FRUG_ERR_REMOTE, "server: rank %d was dropped while it waited", w->rank));
        *progress |= may_pull(s, w);
        if (may_pull(s, w))
            return send_updates(s, w);
        return frugi_clock() - w->last_active > s->comm->deadline / 4
                   ? send_reply(s, w, FRUGI_PARAM_RETRY, FRUG_OK, 0, 0)
                   : FRUG_OK;
    }
    frug_status status = frugi_comm_test(s->comm, m, n, &done);
    bool late =
        frugi_clock() - w->last_active > s->comm->deadline && (w->active || w->state != FRUGI_SERVER_RECEIVE_REQUEST);
    if (status == FRUG_OK && done < n && !late)
        return FRUG_OK;
    *progress = true;
    if (status != FRUG_OK || done < n) {
        frugi_server_drop(w, status == FRUG_OK ? "timeout" : frug_last_error());
        if (w->state == FRUGI_SERVER_RECEIVE_REQUEST && status == FRUG_OK)
            return FRUG_OK; /* the receive stays posted: the worker may join again */
        frugi_comm_abandon(s->comm, m, n);
        return post_request_receive(s, w);
    }
    if (w->state == FRUGI_SERVER_SEND_REPLY)
        return post_request_receive(s, w);
    w->last_active = frugi_clock();
    return w->state == FRUGI_SERVER_RECEIVE_REQUEST ? handle_request(s, w) : handle_frame(s, w);
}

/* ---- serving ----------------------------------------------------------------------- */

static bool has_work(const server *s) {
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].active || s->worker[i].state == FRUGI_SERVER_SEND_REPLY)
            return true;
    return false;
}

static void idle(const server *s) {
    struct timespec t = {.tv_nsec = (long)(IDLE_SECONDS / 100 * 1e9)};
    if (s->comm->transport.wait)
        s->comm->transport.wait(s->comm->ctx, IDLE_SECONDS);
    else
        nanosleep(&t, NULL);
}

static frug_status serve(server *s) {
    for (int i = 0; i < s->workers; i++)
        FRUG_TRY(post_request_receive(s, &s->worker[i]));
    while (has_work(s)) {
        bool progress = false;
        for (int i = 0; i < s->workers; i++)
            FRUG_TRY(progress_worker(s, &s->worker[i], &progress));
        if (!s->staleness)
            FRUG_TRY(frugi_server_apply_steps(s));
        if (!progress)
            idle(s);
    }
    FRUG_FAIL_IF(!s->left, FRUG_ERR_COMM, "server: timeout: all workers were dropped, none has left");
    return FRUG_OK;
}

static frug_status init_server(server *s, const frug_config *config, const frug_layout *layout,
                               const frug_compressor_options *options) {
    frug_config server_config = *config; /* with its text, for frugi_server_hash() */
    server_config.feedback = FRUGI_FEEDBACK_NONE;
    FRUG_TRY(frugi_check_servers(config, s->comm));
    FRUG_FAIL_IF((uint64_t)s->comm->rank >= config->servers, FRUG_ERR_ARG,
                 "server: rank %d is a worker, servers are the first ranks", s->comm->rank);
    FRUG_TRY(frug_compressor_create(&server_config, layout, options, &s->c));
    s->begin = frugi_server_begin(s->c, (uint64_t)s->comm->rank);
    s->count = frugi_server_begin(s->c, (uint64_t)s->comm->rank + 1) - s->begin;
    s->hash = frugi_server_hash(s->c);
    s->staleness = config->staleness;
    s->weights += s->begin;
    FRUG_TRY(frug_compressor_bound(s->c, (frug_range){s->begin, s->count}, &s->bound));
    s->log_capacity = frugi_server_log_capacity(config, s->comm);
    s->log = frugi_calloc(s->log_capacity, sizeof *s->log);
    s->workers = s->comm->size - (int)config->servers;
    s->worker = frugi_calloc((size_t)s->workers, sizeof *s->worker);
    s->sum = frugi_alloc(s->count * sizeof *s->sum);
    s->list = frugi_alloc((s->count + 1) * sizeof *s->list);
    FRUG_FAIL_IF(!s->log || !s->worker || !s->sum || !s->list, FRUG_ERR_MEMORY,
                 "server: out of memory for %llu weights", (unsigned long long)s->count);
    for (int i = 0; i < s->workers; i++) {
        worker *w = &s->worker[i];
        *w = (worker){.rank = (int)config->servers + i, .active = true};
        w->request_recv.done = w->frame_recv.done = w->reply_send[0].done = w->reply_send[1].done = 1;
    }
    return FRUG_OK;
}

static void free_server(server *s) {
    for (int i = 0; s->worker && i < s->workers; i++) {
        worker *w = &s->worker[i];
        frugi_comm_abandon(s->comm, &w->request_recv, 1);
        frugi_comm_abandon(s->comm, &w->frame_recv, 1);
        frugi_comm_abandon(s->comm, w->reply_send, 2);
        frugi_free(w->frame.data);
        frugi_free(w->payload.data);
    }
    for (size_t i = 0; s->log && i < s->log_capacity; i++)
        frugi_free(s->log[i].buffer.data);
    frugi_free(s->log);
    frugi_free(s->worker);
    frugi_free(s->sum);
    frugi_free(s->list);
    frug_compressor_destroy(s->c);
}

frug_status frug_server_run(const frug_config *config, const frug_layout *layout,
                            const frug_compressor_options *options, frug_comm *comm, float *weights) {
    FRUG_FAIL_IF(!config || !layout || !comm || !weights, FRUG_ERR_ARG,
                 "server: config, layout, comm or weights is NULL");
    server s = {.comm = comm, .weights = weights};
    frug_status status = init_server(&s, config, layout, options);
    if (status == FRUG_OK)
        status = serve(&s);
    free_server(&s);
    return status;
}
