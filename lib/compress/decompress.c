/*
 * decompress.c - sum the frames of several workers and apply the sum.
 *
 * Frames are checked whole before anything changes. Then a batch of blocks at a time is
 * summed in the first cache, in the order of the frames, and added to its destination
 * in one go, so that memory is passed over once however many workers there are, and
 * every worker gets the same bits.
 */
#include "compress/compressor.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/block_count.h"
#include "base/status.h"

#include <stdbool.h>

static frug_status make_room(frug_compressor *c, size_t count) {
    if (count <= c->cursors)
        return FRUG_OK;
    size_t voices = FRUGI_LAYERS * count;
    frugi_cursor *cursor = frugi_malloc(count * sizeof *cursor);
    frugi_reader *reader = frugi_malloc((size_t)c->threads * count * sizeof *reader);
    frugi_voice *voice = frugi_malloc(voices * sizeof *voice);
    frugi_listener *listener = frugi_malloc((size_t)c->threads * voices * sizeof *listener);
    if (!cursor || !reader || !voice || !listener) {
        frugi_free(cursor);
        frugi_free(reader);
        frugi_free(voice);
        frugi_free(listener);
        return frugi_fail(FRUG_ERR_MEMORY, "decompress: no memory for %zu frames", count);
    }
    frugi_free(c->cursor);
    frugi_free(c->reader);
    frugi_free(c->voice);
    frugi_free(c->listener);
    c->cursor = cursor;
    c->reader = reader;
    c->voice = voice;
    c->listener = listener;
    c->cursors = count;
    return FRUG_OK;
}

static frug_status open_frame(frug_compressor *c, const void *src, size_t len, size_t number) {
    frugi_cursor *cursor = &c->cursor[number];
    FRUG_FAIL_IF(!src, FRUG_ERR_ARG, "decompress: frame %zu is missing", number);
    cursor->src = src;
    cursor->at = 0;
    FRUG_TRY(frugi_frame_open(src, len, &cursor->frame));
    FRUG_FAIL_IF(cursor->frame.layout_hash != c->layout_hash, FRUG_ERR_MISMATCH,
                 "decompress: frame %zu was made for another layout", number);
    return FRUG_OK;
}

/* Stand at the next section, or past the last one. */
static void advance(frugi_cursor *cursor) {
    cursor->live = frugi_frame_next(cursor->src, &cursor->frame, &cursor->at, &cursor->section, &cursor->payload) != 0;
}

static int same_cut(const frugi_section *a, const frugi_section *b) {
    return a->begin == b->begin && a->count == b->count && a->block == b->block &&
           (a->block || (a->grid.rows == b->grid.rows && a->grid.h == b->grid.h && a->grid.w == b->grid.w));
}

/* Checksum and contents of all frames, a frame per thread. */
static frug_status verify_frames(frug_compressor *c, size_t count_frames) {
    if (!count_frames)
        return FRUG_OK;
    int threads = count_frames < (size_t)c->threads ? (int)count_frames : c->threads;
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (size_t i = 0; i < count_frames; i++)
        c->cursor[i].verdict = frugi_frame_verify(c->cursor[i].src, &c->cursor[i].frame);
    for (size_t i = 0; i < count_frames; i++) {
        frug_status verdict = c->cursor[i].verdict;
        FRUG_FAIL_IF(verdict == FRUG_ERR_CHECKSUM, verdict, "decompress: frame %zu was damaged on the way", i);
        FRUG_FAIL_IF(verdict != FRUG_OK, verdict, "decompress: frame %zu holds an invalid index or value", i);
    }
    return FRUG_OK;
}

static frug_status check_section(const frug_compressor *c, const frugi_section *s, size_t frame,
                                 const frugi_target *t) {
    FRUG_FAIL_IF(s->begin < t->begin || s->begin - t->begin > t->count || s->count > t->count - (s->begin - t->begin) ||
                     s->tensor >= c->layout->count,
                 FRUG_ERR_MISMATCH, "decompress: frame %zu reaches outside the range", frame);
    return FRUG_OK;
}

/* The first of all sections that the cursors stand at; NULL past the last one. */
static const frugi_section *first_section(const frug_compressor *c, size_t count_frames) {
    const frugi_section *first = NULL;
    for (size_t i = 0; i < count_frames; i++)
        if (c->cursor[i].live && (!first || c->cursor[i].section.begin < first->begin))
            first = &c->cursor[i].section;
    return first;
}

/*
 * The sections by units that cover the same elements as `like`, of all frames in order: some frames may have none, or
 * more than one. The cursors move past them.
 */
static frug_status gather_voices(frug_compressor *c, size_t count_frames, frugi_section like, size_t *voices) {
    size_t n = 0;
    for (size_t i = 0; i < count_frames; i++) {
        frugi_cursor *cursor = &c->cursor[i];
        for (size_t layers = 0; cursor->live && cursor->section.begin < like.begin + like.count; layers++) {
            FRUG_FAIL_IF(!same_cut(&cursor->section, &like) || layers == FRUGI_LAYERS, FRUG_ERR_MISMATCH,
                         "decompress: frame %zu cuts the range in another way than others", i);
            c->voice[n++] = (frugi_voice){cursor->section, cursor->payload};
            advance(cursor);
        }
    }
    *voices = n;
    return FRUG_OK;
}

/* Section by section through all frames: do they agree, and do they stay inside the range? */
static frug_status check_frames(frug_compressor *c, size_t count_frames, const frugi_target *t) {
    const frugi_section *first;
    while ((first = first_section(c, count_frames))) {
        frugi_section like = *first;
        FRUG_TRY(check_section(c, &like, 0, t));
        if (like.block) {
            for (size_t i = 0; i < count_frames; i++) {
                FRUG_FAIL_IF(!c->cursor[i].live || !same_cut(&c->cursor[i].section, &like), FRUG_ERR_MISMATCH,
                             "decompress: frame %zu cuts the range in another way than others", i);
                FRUG_TRY(check_section(c, &c->cursor[i].section, i, t));
                advance(&c->cursor[i]);
            }
        } else {
            size_t voices = 0;
            FRUG_TRY(gather_voices(c, count_frames, like, &voices));
            for (size_t i = 0; i < voices; i++)
                FRUG_TRY(check_section(c, &c->voice[i].section, i, t));
        }
    }
    return FRUG_OK;
}

static void rewind_frames(frug_compressor *c, size_t count_frames) {
    for (size_t i = 0; i < count_frames; i++) {
        c->cursor[i].at = 0;
        advance(&c->cursor[i]);
    }
}

/* sum[index[e]] += v[e]. Indices of a block differ, so eight additions need not wait for each other. */
static inline void scatter_bytes(const unsigned char *index, const float *v, uint32_t k, float *sum) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8) {
        uint64_t eight = frugi_get64(index + e);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            sum[(eight >> (8 * i)) & 255u] += v[e + i];
    }
    for (; e < k; e++)
        sum[index[e]] += v[e];
}

typedef uint16_t eight_u16 __attribute__((vector_size(16)));
typedef uint32_t eight_u32 __attribute__((vector_size(32)));

/* The same for bf16 values and k a multiple of eight, the usual case, without a copy in between. */
static inline void scatter_bf16(const unsigned char *index, const unsigned char *value, uint32_t k, float *sum) {
    for (uint32_t e = 0; e < k; e += 8) {
        uint64_t eight = frugi_get64(index + e);
        eight_u16 h;
        memcpy(&h, value + 2 * e, sizeof h);
        eight_u32 wide = __builtin_convertvector(h, eight_u32) << 16;
        float v[8];
        memcpy(v, &wide, sizeof v);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            sum[(eight >> (8 * i)) & 255u] += v[i];
    }
}

/* The same for the other index codes. */
static void scatter_any(const frugi_section *s, const unsigned char *index, frugi_worker *w, uint32_t k, float *sum) {
    if (s->index == FRUGI_INDEX_CODE_NONE) {
        for (uint32_t e = 0; e < k; e++)
            sum[e] += w->values[e];
    } else {
        frugi_index_decode(s->index, s->block, index, k, w->idx);
        for (uint32_t e = 0; e < k; e++)
            sum[w->idx[e]] += w->values[e];
    }
}

static frugi_reader read_from(const frugi_cursor *cursor, uint64_t b) {
    const frugi_section *s = &cursor->section;
    frugi_place at = frugi_section_place(s, b);
    frugi_reader r = {.section = s,
                      .scale = cursor->payload + at.scale,
                      .index = cursor->payload + at.index,
                      .value = cursor->payload + at.value,
                      .walk = (s->first + b) * s->kappa,
                      .scale_bytes = frugi_value_scale_bytes(s->value),
                      .value_bytes = frugi_value_bytes(s->value),
                      .bytes = s->index == FRUGI_INDEX_CODE_LOCAL && s->block <= 256};
    return r;
}

/* Add the next block of one frame, number b of the section, to the sum. */
static inline void add_block(frugi_reader *r, frugi_worker *w, uint64_t b, float *sum) {
    const frugi_section *s = r->section;
    uint32_t k = frugi_count_next(s->kappa, &r->walk);
    if (b + 1 == s->blocks)
        k = frugi_section_k(s, b);
    if (s->value == FRUGI_VALUE_BF16 && r->bytes && k % 8 == 0) {
        scatter_bf16(r->index, r->value, k, sum);
        r->index += k;
        r->value += 2 * k;
        return;
    }
    frugi_value_decode(s->value, r->scale, r->value, k, w->values);
    if (r->bytes) {
        scatter_bytes(r->index, w->values, k, sum);
        r->index += k;
    } else {
        scatter_any(s, r->index, w, k, sum);
        r->index += frugi_index_bytes(s->index, s->block, 1, k);
    }
    r->scale += r->scale_bytes;
    r->value += (size_t)k * r->value_bytes;
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* For keep 1, or 0: a line of cache a round, for a loop costs as much as four floats. Returns how many are done. */
static inline uint64_t finish_lines(float *dst, float *sum, uint64_t n, bool fresh, float gain) {
    const float nothing = frugi_nothing(gain);
    const four blank = {nothing, nothing, nothing, nothing}, zero = {0};
    uint64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        four *d = (four *)(dst + i), *s = (four *)(sum + i);
        four a = (fresh ? zero : d[0]) + s[0] * gain, b = (fresh ? zero : d[1]) + s[1] * gain;
        four c = (fresh ? zero : d[2]) + s[2] * gain, e = (fresh ? zero : d[3]) + s[3] * gain;
        d[0] = a;
        d[1] = b;
        d[2] = c;
        d[3] = e;
        s[0] = s[1] = s[2] = s[3] = blank;
    }
    return i;
}

void frugi_finish(float *dst, float *sum, uint64_t n, float keep, float gain) {
    const float nothing = frugi_nothing(gain);
    uint64_t i = 0;
    if (keep == 1.0f)
        i = finish_lines(dst, sum, n, false, gain);
    else if (keep == 0.0f)
        i = finish_lines(dst, sum, n, true, gain);
    for (; i < n; i++) {
        float base = keep == 0.0f ? 0.0f : keep * dst[i];
        dst[i] = base + gain * sum[i];
        sum[i] = nothing;
    }
}

/* A block that is summed and waits to be added to its destination. */
typedef struct waiting {
    float *dst, *sum;
    uint32_t length, quarter;
} waiting;

static inline void finish_quarter(const waiting *p, uint32_t i, const frugi_target *t) {
    uint32_t from = i * p->quarter, to = from + p->quarter < p->length ? from + p->quarter : p->length;
    if (from < to)
        frugi_finish(p->dst + from, p->sum + from, to - from, t->keep, t->gain);
}

/*
 * One thread's share: blocks lo .. hi - 1 of the section that all cursors stand at. Summing a block keeps the CPU
 * busy, finishing one keeps the memory busy: so each block is finished, in quarters, between the frames of the next.
 */
static void sum_share(const frug_compressor *c, int thread, size_t count_frames, const frugi_target *t, uint64_t lo,
                      uint64_t hi) {
    frugi_worker *w = &c->worker[thread];
    frugi_reader *reader = c->reader + (size_t)thread * c->cursors;
    const frugi_section *s = &c->cursor[0].section;
    float *sum = w->acc, *other = w->saved, *dst = t->dst + (s->begin - t->begin) + lo * s->block;
    waiting before = {0};
    for (uint32_t e = 0; e < s->block; e++)
        sum[e] = other[e] = frugi_nothing(t->gain);
    for (size_t i = 0; i < count_frames; i++)
        reader[i] = read_from(&c->cursor[i], lo);
    for (uint64_t b = lo; b < hi; b++, dst += s->block) {
        for (size_t i = 0; i < count_frames; i++) {
            if (i < 4)
                finish_quarter(&before, (uint32_t)i, t);
            add_block(&reader[i], w, b, sum);
        }
        for (size_t i = count_frames; i < 4; i++)
            finish_quarter(&before, (uint32_t)i, t);
        before = (waiting){dst, sum, frugi_section_length(s, b), s->block / 4};
        sum = other;
        other = before.sum;
    }
    for (uint32_t i = 0; i < 4; i++)
        finish_quarter(&before, i, t);
}

static void sum_section(const frug_compressor *c, size_t count_frames, const frugi_target *t) {
    uint64_t blocks = c->cursor[0].section.blocks;
    int threads = frugi_threads_for(c, c->cursor[0].section.count);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; i++)
        sum_share(c, i, count_frames, t, blocks * (uint64_t)i / (uint64_t)threads,
                  blocks * ((uint64_t)i + 1) / (uint64_t)threads);
}

/* Tensors that no frame mentions decay as well. */
static void decay_between(const frug_compressor *c, const frugi_target *t, uint64_t from, uint64_t to) {
    if (t->keep == 1.0f)
        return;
    for (size_t i = frugi_piece_at(c, from); i < c->pieces && c->piece[i].begin < to; i++) {
        const frugi_piece *p = &c->piece[i];
        uint64_t end = p->begin + p->count < to ? p->begin + p->count : to;
        for (uint64_t e = p->begin > from ? p->begin : from; e < end; e++)
            t->dst[e - t->begin] = t->keep == 0.0f ? 0.0f : t->dst[e - t->begin] * t->keep;
    }
}

frug_status frugi_frames_open(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                              const frugi_target *t) {
    FRUG_FAIL_IF(!c || (count_frames && (!frames || !lens)) || (!t->dst && t->count), FRUG_ERR_ARG,
                 "decompress: no compressor, frames, lengths or destination");
    uint64_t total = frug_layout_elements(c->layout);
    FRUG_FAIL_IF(t->begin > total || t->count > total - t->begin, FRUG_ERR_ARG,
                 "decompress: the range leaves the layout");
    FRUG_TRY(make_room(c, count_frames));
    for (size_t i = 0; i < count_frames; i++)
        FRUG_TRY(open_frame(c, frames[i], lens[i], i));
    FRUG_TRY(verify_frames(c, count_frames));
    rewind_frames(c, count_frames);
    return check_frames(c, count_frames, t);
}

frug_status frugi_frames_sum(frug_compressor *c, size_t count_frames, const frugi_target *t) {
    const frugi_section *first;
    uint64_t upto = t->begin;
    rewind_frames(c, count_frames);
    while ((first = first_section(c, count_frames))) {
        size_t voices = 0;
        decay_between(c, t, upto, first->begin);
        upto = first->begin + first->count;
        if (first->block) {
            sum_section(c, count_frames, t);
            for (size_t i = 0; i < count_frames; i++)
                advance(&c->cursor[i]);
        } else {
            FRUG_TRY(gather_voices(c, count_frames, *first, &voices));
            frugi_sum_units(c, voices, t);
        }
    }
    decay_between(c, t, upto, t->begin + t->count);
    return FRUG_OK;
}

/* The sums go over the first cursors: let frame i be the first for a while. */
static void swap_first(frug_compressor *c, size_t i) {
    frugi_cursor first = c->cursor[0];
    c->cursor[0] = c->cursor[i];
    c->cursor[i] = first;
}

frug_status frugi_parts_open(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                             const frugi_target *targets) {
    FRUG_TRY(make_room(c, count_frames));
    for (size_t i = 0; i < count_frames; i++)
        FRUG_TRY(open_frame(c, frames[i], lens[i], i));
    FRUG_TRY(verify_frames(c, count_frames));
    for (size_t i = 0; i < count_frames; i++) {
        swap_first(c, i);
        rewind_frames(c, 1);
        frug_status status = check_frames(c, 1, &targets[i]);
        swap_first(c, i);
        FRUG_TRY(status);
    }
    return FRUG_OK;
}

frug_status frugi_parts_sum(frug_compressor *c, size_t count_frames, const frugi_target *targets) {
    for (size_t i = 0; i < count_frames; i++) {
        swap_first(c, i);
        frug_status status = frugi_frames_sum(c, 1, &targets[i]);
        swap_first(c, i);
        FRUG_TRY(status);
    }
    return FRUG_OK;
}

static frug_status combine(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                           const frugi_target *t) {
    double start = frugi_clock();
    FRUG_TRY(frugi_frames_open(c, frames, lens, count_frames, t));
    FRUG_TRY(frugi_frames_sum(c, count_frames, t));
    c->stats.seconds_decode += frugi_clock() - start;
    return FRUG_OK;
}

frug_status frug_decompress_add(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                                float scale, uint64_t begin, uint64_t count, float *dst) {
    frugi_target t = {.dst = dst, .begin = begin, .count = count, .keep = 1.0f, .gain = scale};
    return combine(c, frames, lens, count_frames, &t);
}

frug_status frug_apply(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                       float rate, float decay, uint64_t begin, uint64_t count, float *weights) {
    frugi_target t = {.dst = weights, .begin = begin, .count = count, .keep = 1.0f - decay, .gain = -rate};
    return combine(c, frames, lens, count_frames, &t);
}
