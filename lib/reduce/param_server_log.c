/*
 * param_server_log.c - updates of the weights of a parameter server: each is an entry of a log, which workers replay.
 *
 * The server applies its entries with the same code as the workers, so that all have the same bits. The log is a ring
 * buffer: a worker that is behind by more entries than it has is dropped.
 */
#include "reduce/param_server.h"

#include "base/float_bits.h"
#include "base/status.h"
#include "compress/exact_frame.h"

typedef frugi_server server;
typedef frugi_server_worker worker;
typedef frugi_server_entry entry;

/* Write the header of the next entry, apply its frame to the weights, and append the entry to the log. */
static frug_status apply_entry(server *s, size_t len, float keep, float gain) {
    entry *e = &s->log[s->entries % s->log_capacity];
    const void *frame = e->buffer.data + FRUGI_UPDATE_HEADER;
    frugi_target t = {.dst = s->weights, .begin = s->begin, .count = s->count, .keep = keep, .gain = gain};
    frugi_put64(e->buffer.data, len);
    memcpy(e->buffer.data + 8, &gain, 4);
    memcpy(e->buffer.data + 12, &keep, 4);
    e->bytes = FRUGI_UPDATE_HEADER + len;
    FRUG_TRY(frugi_frames_open(frug_compressor_decoder(s->c), &frame, &len, 1, &t));
    FRUG_TRY(frugi_frames_sum(frug_compressor_decoder(s->c), 1, &t));
    s->entries++;
    return FRUG_OK;
}

/* Reserve memory in the next entry. A worker that still needs the overwritten entry is dropped: it has pushed a step
 * far ahead. */
static frug_status reserve_entry(server *s, size_t frame_bytes, entry **e) {
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].active && s->worker[i].joined && s->entries - s->worker[i].entries_pulled >= s->log_capacity)
            frugi_server_drop(&s->worker[i], "behind by more updates than the log has");
    *e = &s->log[s->entries % s->log_capacity];
    return frugi_buffer_reserve(&(*e)->buffer, FRUGI_UPDATE_HEADER + frame_bytes);
}

/* Sum the frames of a step in rank order; one by one, because their sections may differ. */
static frug_status sum_frames(server *s, uint64_t step, size_t *frames, const worker **first) {
    memset(s->sum, 0, s->count * sizeof *s->sum);
    for (int i = 0; i < s->workers; i++) {
        worker *w = &s->worker[i];
        if (!w->frame_pending || w->step != step)
            continue;
        const void *frame = w->frame.data;
        FRUG_TRY(frug_decode_add(frug_compressor_decoder(s->c), (frug_range){s->begin, s->count}, &frame, &w->len, 1,
                                 1.0f, s->sum));
        w->frame_pending = false;
        *first = *frames ? *first : w;
        if ((*first)->rate != w->rate || (*first)->decay != w->decay)
            frugi_log(FRUG_LOG_WARN,
                      "server: at step %llu rank %d has a different rate or decay than rank %d, whose values are used",
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
    FRUG_TRY(sum_frames(s, step, &frames, &first));
    for (uint64_t i = 0; i < s->count; i++)
        nonzeros += s->sum[i] != 0.0f;
    FRUG_TRY(reserve_entry(s, frugi_exact_frame_bound(s->c, s->begin, s->count, nonzeros), &e));
    FRUG_TRY(frugi_exact_frame_encode(s->c, step, s->begin, s->count, s->sum, s->list,
                                      e->buffer.data + FRUGI_UPDATE_HEADER, e->buffer.bytes - FRUGI_UPDATE_HEADER,
                                      &len));
    s->step = step + 1;
    return apply_entry(s, len, 1.0f - first->decay, -(first->rate / (float)frames));
}

frug_status frugi_server_apply_steps(server *s) {
    for (;;) {
        uint64_t step = UINT64_MAX, slowest = UINT64_MAX;
        for (int i = 0; i < s->workers; i++) {
            const worker *w = &s->worker[i];
            step = w->frame_pending && w->step < step ? w->step : step;
            slowest = w->active && w->next_step < slowest ? w->next_step : slowest;
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
        live += s->worker[i].active;
    FRUG_TRY(reserve_entry(s, w->len, &e));
    memcpy(e->buffer.data + FRUGI_UPDATE_HEADER, w->frame.data, w->len);
    return apply_entry(s, w->len, 1.0f - w->decay, -(w->rate / (float)live));
}
