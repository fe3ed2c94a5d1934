/*
 * param_server_log.c - how a parameter server changes its weights: every change is an entry of a log that workers
 * replay.
 *
 * A server applies its own entries by the code that workers use, so that all have the same bits. The log is a ring:
 * an entry is kept until everyone has seen it, and nobody can be behind by more than the ring is long.
 */
#include "reduce/param_server.h"

#include "base/float_bits.h"
#include "base/status.h"
#include "compress/exact_frame.h"

typedef frugi_server server;
typedef frugi_server_worker worker;
typedef frugi_server_entry entry;

/* The frame behind the prefix of the next entry changes the weights, and the entry is there. */
static frug_status commit(server *s, size_t len, float keep, float gain) {
    entry *e = &s->log[s->entries % s->log_most];
    const void *frame = e->room.data + FRUGI_UPDATE_HEADER;
    frugi_target t = {.dst = s->weights, .begin = s->begin, .count = s->count, .keep = keep, .gain = gain};
    frugi_put64(e->room.data, len);
    memcpy(e->room.data + 8, &gain, 4);
    memcpy(e->room.data + 12, &keep, 4);
    e->bytes = FRUGI_UPDATE_HEADER + len;
    FRUG_TRY(frugi_frames_open(s->c, &frame, &len, 1, &t));
    FRUG_TRY(frugi_frames_sum(s->c, 1, &t));
    s->entries++;
    return FRUG_OK;
}

/* Room in the next entry. Whoever has not seen what stands there has pushed a step far ahead, and cannot follow. */
static frug_status next_entry(server *s, size_t frame_bytes, entry **e) {
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].live && s->worker[i].greeted && s->entries - s->worker[i].seen >= s->log_most)
            frugi_server_drop(&s->worker[i], "behind by more updates than are kept");
    *e = &s->log[s->entries % s->log_most];
    return frugi_buffer_reserve(&(*e)->room, FRUGI_UPDATE_HEADER + frame_bytes);
}

/* One by one, so that a frame which cuts its range in a way of its own does not matter; in rank order. */
static frug_status add_up(server *s, uint64_t step, size_t *frames, const worker **first) {
    memset(s->sum, 0, s->count * sizeof *s->sum);
    for (int i = 0; i < s->workers; i++) {
        worker *w = &s->worker[i];
        if (!w->pushed || w->step != step)
            continue;
        const void *frame = w->frame.data;
        FRUG_TRY(frug_decompress_add(s->c, &frame, &w->len, 1, 1.0f, s->begin, s->count, s->sum));
        w->pushed = false;
        *first = *frames ? *first : w;
        if ((*first)->rate != w->rate || (*first)->decay != w->decay)
            frugi_log(FRUG_LOG_WARN,
                      "server: at step %llu rank %d has another rate or decay than rank %d, whose counts",
                      (unsigned long long)step, w->rank, (*first)->rank);
        ++*frames;
    }
    return FRUG_OK;
}

static frug_status apply_step(server *s, uint64_t step) {
    const worker *first = NULL;
    size_t frames = 0, len = 0;
    uint64_t nonzeros = 0;
    entry *e = NULL;
    FRUG_TRY(add_up(s, step, &frames, &first));
    for (uint64_t i = 0; i < s->count; i++)
        nonzeros += s->sum[i] != 0.0f;
    FRUG_TRY(next_entry(s, frugi_nonzeros_bound(s->c, s->begin, s->count, nonzeros), &e));
    FRUG_TRY(frugi_nonzeros_say(s->c, step, s->begin, s->count, s->sum, s->list, e->room.data + FRUGI_UPDATE_HEADER,
                                e->room.bytes - FRUGI_UPDATE_HEADER, &len));
    s->step = step + 1;
    return commit(s, len, 1.0f - first->decay, -(first->rate / (float)frames));
}

frug_status frugi_server_apply_steps(server *s) {
    for (;;) {
        uint64_t step = UINT64_MAX, slowest = UINT64_MAX;
        for (int i = 0; i < s->workers; i++) {
            const worker *w = &s->worker[i];
            step = w->pushed && w->step < step ? w->step : step;
            slowest = w->live && w->next < slowest ? w->next : slowest;
        }
        if (step == UINT64_MAX || slowest <= step)
            return FRUG_OK;
        FRUG_TRY(apply_step(s, step));
    }
}

frug_status frugi_server_apply_frame(server *s, const worker *w) {
    int live = 0;
    entry *e = NULL;
    for (int i = 0; i < s->workers; i++)
        live += s->worker[i].live;
    FRUG_TRY(next_entry(s, w->len, &e));
    memcpy(e->room.data + FRUGI_UPDATE_HEADER, w->frame.data, w->len);
    return commit(s, w->len, 1.0f - w->decay, -(w->rate / (float)live));
}
