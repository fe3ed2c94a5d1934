/*
 * decoder.c - create a decoder; frug_decode_add() and frug_decode_apply(): add up frames and apply the sum.
 *
 * All frames are checked completely before the destination changes. Then one block at a time is summed in the L1 cache,
 * in the order of the frames, and added to its destination. So there is one pass over memory for any number of frames,
 * and every worker gets the same bits.
 */
#include "compress/decoder.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/block_count.h"
#include "base/status.h"
#include "compress/threads.h"

#include <stdbool.h>

#define AHEAD 128 /* bytes of indices; the streams of many frames are too many for prefetching by the CPU */

/* Make room for the cursors of a number of frames. */
static frug_status reserve_frames(frug_decoder *d, size_t count) {
    if (count <= d->capacity)
        return FRUG_OK;
    size_t sources = FRUGI_SECTIONS_PER_TENSOR * count;
    frugi_cursor *cursor = frugi_malloc(count * sizeof *cursor);
    frugi_block_reader *block_reader = frugi_malloc((size_t)d->threads * count * sizeof *block_reader);
    frugi_unit_source *unit_source = frugi_malloc(sources * sizeof *unit_source);
    frugi_unit_cursor *unit_cursor = frugi_malloc((size_t)d->threads * sources * sizeof *unit_cursor);
    if (!cursor || !block_reader || !unit_source || !unit_cursor) {
        frugi_free(cursor);
        frugi_free(block_reader);
        frugi_free(unit_source);
        frugi_free(unit_cursor);
        return frugi_fail(FRUG_ERR_MEMORY, "decompress: out of memory for %zu frames", count);
    }
    frugi_free(d->cursor);
    frugi_free(d->block_reader);
    frugi_free(d->unit_source);
    frugi_free(d->unit_cursor);
    d->cursor = cursor;
    d->block_reader = block_reader;
    d->unit_source = unit_source;
    d->unit_cursor = unit_cursor;
    d->capacity = count;
    return FRUG_OK;
}

static frug_status open_frame(frug_decoder *d, const void *src, size_t len, size_t number) {
    frugi_cursor *cursor = &d->cursor[number];
    FRUG_FAIL_IF(!src, FRUG_ERR_ARG, "decompress: frame %zu is NULL", number);
    cursor->src = src;
    cursor->at = 0;
    FRUG_TRY(frugi_frame_open(src, len, &cursor->frame));
    FRUG_FAIL_IF(cursor->frame.layout_hash != d->layout_hash, FRUG_ERR_MISMATCH,
                 "decompress: frame %zu was made for another layout", number);
    return FRUG_OK;
}

/* Go to the next section, or past the last one. */
static void next_section(frugi_cursor *cursor) {
    cursor->live = frugi_frame_next(cursor->src, &cursor->frame, &cursor->at, &cursor->section, &cursor->payload) != 0;
}

/* Whether two sections cover the same elements with the same blocks or units. */
static int same_geometry(const frugi_section *a, const frugi_section *b) {
    return a->begin == b->begin && a->count == b->count && a->block == b->block &&
           (a->block || (a->grid.rows == b->grid.rows && a->grid.h == b->grid.h && a->grid.w == b->grid.w));
}

/* Verify checksum and contents of all frames, one frame per thread at a time. */
static frug_status verify_frames(frug_decoder *d, size_t count_frames) {
    if (!count_frames)
        return FRUG_OK;
    int threads = count_frames < (size_t)d->threads ? (int)count_frames : d->threads;
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (size_t i = 0; i < count_frames; i++)
        d->cursor[i].status = frugi_frame_verify(d->cursor[i].src, &d->cursor[i].frame);
    for (size_t i = 0; i < count_frames; i++) {
        frug_status status = d->cursor[i].status;
        FRUG_FAIL_IF(status == FRUG_ERR_CHECKSUM, status, "decompress: frame %zu has a wrong checksum: it was damaged",
                     i);
        FRUG_FAIL_IF(status != FRUG_OK, status, "decompress: frame %zu has an invalid index or value", i);
    }
    return FRUG_OK;
}

static frug_status check_section(const frug_decoder *d, const frugi_section *s, size_t frame, const frugi_target *t) {
    FRUG_FAIL_IF(s->begin < t->begin || s->begin - t->begin > t->count || s->count > t->count - (s->begin - t->begin) ||
                     s->tensor >= d->partition->tensors,
                 FRUG_ERR_MISMATCH, "decompress: frame %zu has elements outside the range", frame);
    return FRUG_OK;
}

/* The cursors' section that begins first; NULL when all cursors are past their last one. */
static const frugi_section *first_section(const frug_decoder *d, size_t count_frames) {
    const frugi_section *first = NULL;
    for (size_t i = 0; i < count_frames; i++)
        if (d->cursor[i].live && (!first || d->cursor[i].section.begin < first->begin))
            first = &d->cursor[i].section;
    return first;
}

/*
 * Collect the unit sections of all frames, in order, that cover the same elements as `like`, and move the cursors past
 * them. A frame may have none, or more than one.
 */
static frug_status collect_unit_sources(frug_decoder *d, size_t count_frames, frugi_section like, size_t *sources) {
    size_t n = 0;
    for (size_t i = 0; i < count_frames; i++) {
        frugi_cursor *cursor = &d->cursor[i];
        for (size_t found = 0; cursor->live && cursor->section.begin < like.begin + like.count; found++) {
            FRUG_FAIL_IF(!same_geometry(&cursor->section, &like) || found == FRUGI_SECTIONS_PER_TENSOR,
                         FRUG_ERR_MISMATCH, "decompress: the sections of frame %zu differ from those of other frames",
                         i);
            d->unit_source[n++] = (frugi_unit_source){cursor->section, cursor->payload};
            next_section(cursor);
        }
    }
    *sources = n;
    return FRUG_OK;
}

/* Check, section by section, that all frames have the same sections and that these lie inside the range. */
static frug_status check_frames(frug_decoder *d, size_t count_frames, const frugi_target *t) {
    const frugi_section *first;
    while ((first = first_section(d, count_frames))) {
        frugi_section like = *first;
        FRUG_TRY(check_section(d, &like, 0, t));
        if (like.block) {
            for (size_t i = 0; i < count_frames; i++) {
                FRUG_FAIL_IF(!d->cursor[i].live || !same_geometry(&d->cursor[i].section, &like), FRUG_ERR_MISMATCH,
                             "decompress: the sections of frame %zu differ from those of other frames", i);
                FRUG_TRY(check_section(d, &d->cursor[i].section, i, t));
                next_section(&d->cursor[i]);
            }
        } else {
            size_t sources = 0;
            FRUG_TRY(collect_unit_sources(d, count_frames, like, &sources));
            for (size_t i = 0; i < sources; i++)
                FRUG_TRY(check_section(d, &d->unit_source[i].section, i, t));
        }
    }
    return FRUG_OK;
}

static void rewind_frames(frug_decoder *d, size_t count_frames) {
    for (size_t i = 0; i < count_frames; i++) {
        d->cursor[i].at = 0;
        next_section(&d->cursor[i]);
    }
}

/* sum[index[e]] += v[e]. The indices of a block are distinct, so 8 additions can overlap. */
static inline void add_byte_indices(const unsigned char *index, const float *v, uint32_t k, float *sum) {
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

/* The same for bf16 values and k a multiple of 8, the usual case, without a buffer of decoded values. */
static inline void add_bf16(const unsigned char *index, const unsigned char *value, uint32_t k, float *sum) {
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

/* Add scratch->values for the other index codes. */
static void add_decoded(const frugi_section *s, const unsigned char *index, const frugi_decode_scratch *scratch,
                        uint32_t k, float *sum) {
    if (s->index == FRUGI_INDEX_CODE_NONE) {
        for (uint32_t e = 0; e < k; e++)
            sum[e] += scratch->values[e];
    } else {
        frugi_index_decode(s->index, s->block, index, k, scratch->idx);
        for (uint32_t e = 0; e < k; e++)
            sum[scratch->idx[e]] += scratch->values[e];
    }
}

/* A reader that starts at block b of the cursor's section. */
static frugi_block_reader open_reader(const frugi_cursor *cursor, uint64_t b) {
    const frugi_section *s = &cursor->section;
    frugi_block_offsets at = frugi_section_block_offsets(s, b);
    frugi_block_reader r = {.section = s,
                            .scale = cursor->payload + at.scale,
                            .index = cursor->payload + at.index,
                            .value = cursor->payload + at.value,
                            .walk = (s->first + b) * s->kappa,
                            .scale_bytes = frugi_value_scale_bytes(s->value),
                            .value_bytes = frugi_value_bytes(s->value),
                            .bytes = s->index == FRUGI_INDEX_CODE_LOCAL && s->block <= 256};
    return r;
}

/* Add the next block of one frame, which is block b of the section, to the sum. */
static inline void add_block(frugi_block_reader *r, const frugi_decode_scratch *scratch, uint64_t b, float *sum) {
    const frugi_section *s = r->section;
    uint32_t k = frugi_count_next(s->kappa, &r->walk);
    if (b + 1 == s->blocks)
        k = frugi_section_k(s, b);
    __builtin_prefetch(r->index + AHEAD);
    __builtin_prefetch(r->value + 2 * AHEAD);
    if (s->value == FRUGI_VALUE_BF16 && r->bytes && k % 8 == 0) {
        add_bf16(r->index, r->value, k, sum);
        r->index += k;
        r->value += 2 * k;
        return;
    }
    frugi_value_decode(s->value, r->scale, r->value, k, scratch->values);
    if (r->bytes) {
        add_byte_indices(r->index, scratch->values, k, sum);
        r->index += k;
    } else {
        add_decoded(s, r->index, scratch, k, sum);
        r->index += frugi_index_bytes(s->index, s->block, 1, k);
    }
    r->scale += r->scale_bytes;
    r->value += (size_t)k * r->value_bytes;
}

/* Count the entries of the next block of one frame, which is block b of the section. */
static void count_block(const frugi_block_reader *r, const frugi_decode_scratch *scratch, uint64_t b,
                        uint32_t *senders) {
    const frugi_section *s = r->section;
    uint32_t k = frugi_section_k(s, b);
    if (s->index != FRUGI_INDEX_CODE_NONE)
        frugi_index_decode(s->index, s->block, r->index, k, scratch->idx);
    for (uint32_t e = 0; e < k; e++)
        senders[s->index == FRUGI_INDEX_CODE_NONE ? e : scratch->idx[e]]++;
}

void frugi_scale_by_senders(float *sum, uint32_t *senders, uint64_t n, size_t frames) {
    for (uint64_t e = 0; e < n; e++) {
        if (senders[e] > 0)
            sum[e] *= (float)frames / (float)senders[e];
        senders[e] = 0;
    }
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/*
 * frugi_add_scaled_sum() for keep 1, or 0 (overwrite). One cache line per round, because the loop overhead costs as
 * much as four floats. Returns the number of elements done.
 */
static inline uint64_t apply_lines(float *dst, float *sum, uint64_t n, bool overwrite, float gain) {
    const float start = frugi_sum_start(gain);
    const four reset = {start, start, start, start}, zero = {0};
    uint64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        four *d = (four *)(dst + i), *s = (four *)(sum + i);
        four a = (overwrite ? zero : d[0]) + s[0] * gain, b = (overwrite ? zero : d[1]) + s[1] * gain;
        four c = (overwrite ? zero : d[2]) + s[2] * gain, e = (overwrite ? zero : d[3]) + s[3] * gain;
        d[0] = a;
        d[1] = b;
        d[2] = c;
        d[3] = e;
        s[0] = s[1] = s[2] = s[3] = reset;
    }
    return i;
}

void frugi_add_scaled_sum(float *dst, float *sum, uint64_t n, float keep, float gain) {
    const float start = frugi_sum_start(gain);
    uint64_t i = 0;
    if (keep == 1.0f)
        i = apply_lines(dst, sum, n, false, gain);
    else if (keep == 0.0f)
        i = apply_lines(dst, sum, n, true, gain);
    for (; i < n; i++) {
        float base = keep == 0.0f ? 0.0f : keep * dst[i];
        dst[i] = base + gain * sum[i];
        sum[i] = start;
    }
}

/** A block that is summed but not yet added to its destination. */
typedef struct pending_block {
    float *dst, *sum;
    uint32_t length, quarter;
} pending_block;

static inline void apply_quarter(const pending_block *p, uint32_t i, const frugi_target *t) {
    uint32_t from = i * p->quarter, to = from + p->quarter < p->length ? from + p->quarter : p->length;
    if (from < to)
        frugi_add_scaled_sum(p->dst + from, p->sum + from, to - from, t->keep, t->gain);
}

/*
 * Sum blocks lo .. hi - 1 of the current section of all cursors, on one thread. Summing a block is bound by the CPU,
 * adding it to the destination by memory: so the latter is done in quarters, between the frames of the next block.
 */
static void sum_blocks(const frug_decoder *d, int thread, size_t count_frames, const frugi_target *t, uint64_t lo,
                       uint64_t hi) {
    const frugi_decode_scratch *scratch = &d->scratch[thread];
    frugi_block_reader *block_reader = d->block_reader + (size_t)thread * d->capacity;
    const frugi_section *s = &d->cursor[0].section;
    float *sum = scratch->sum, *other = scratch->other_sum, *dst = t->dst + (s->begin - t->begin) + lo * s->block;
    uint32_t *senders = d->by_senders ? scratch->units : NULL;
    pending_block pending = {0};
    if (senders)
        memset(senders, 0, s->block * sizeof *senders);
    for (uint32_t e = 0; e < s->block; e++)
        sum[e] = other[e] = frugi_sum_start(t->gain);
    for (size_t i = 0; i < count_frames; i++)
        block_reader[i] = open_reader(&d->cursor[i], lo);
    for (uint64_t b = lo; b < hi; b++, dst += s->block) {
        for (size_t i = 0; i < count_frames; i++) {
            if (i < 4)
                apply_quarter(&pending, (uint32_t)i, t);
            if (senders)
                count_block(&block_reader[i], scratch, b, senders);
            add_block(&block_reader[i], scratch, b, sum);
        }
        for (size_t i = count_frames; i < 4; i++)
            apply_quarter(&pending, (uint32_t)i, t);
        if (senders)
            frugi_scale_by_senders(sum, senders, s->block, count_frames);
        pending = (pending_block){dst, sum, frugi_section_length(s, b), s->block / 4};
        sum = other;
        other = pending.sum;
    }
    for (uint32_t i = 0; i < 4; i++)
        apply_quarter(&pending, i, t);
}

/* Sum the current block section of all cursors. */
static void sum_section(const frug_decoder *d, size_t count_frames, const frugi_target *t) {
    uint64_t blocks = d->cursor[0].section.blocks;
    int threads = frugi_threads_for(d->threads, d->cursor[0].section.count);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; i++)
        sum_blocks(d, i, count_frames, t, blocks * (uint64_t)i / (uint64_t)threads,
                   blocks * ((uint64_t)i + 1) / (uint64_t)threads);
}

/* Apply keep to tensors between two sections, which no frame contains. */
static void decay_between(const frug_decoder *d, const frugi_target *t, uint64_t from, uint64_t to) {
    if (t->keep == 1.0f)
        return;
    frugi_range_iter it = frugi_range_start(d->partition, from, to);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from; e < it.to; e++)
            t->dst[e - t->begin] = t->keep == 0.0f ? 0.0f : t->dst[e - t->begin] * t->keep;
}

frug_status frugi_frames_open(frug_decoder *d, const void *const *frames, const size_t *lens, size_t count_frames,
                              const frugi_target *t) {
    FRUG_FAIL_IF(!d || (count_frames && (!frames || !lens)) || (!t->dst && t->count), FRUG_ERR_ARG,
                 "decompress: decoder, frames, lengths or destination is NULL");
    FRUG_TRY(frugi_check_range(d->partition, t->begin, t->count));
    FRUG_TRY(reserve_frames(d, count_frames));
    for (size_t i = 0; i < count_frames; i++)
        FRUG_TRY(open_frame(d, frames[i], lens[i], i));
    FRUG_TRY(verify_frames(d, count_frames));
    rewind_frames(d, count_frames);
    return check_frames(d, count_frames, t);
}

frug_status frugi_frames_sum(frug_decoder *d, size_t count_frames, const frugi_target *t) {
    const frugi_section *first;
    uint64_t done = t->begin;
    rewind_frames(d, count_frames);
    while ((first = first_section(d, count_frames))) {
        size_t sources = 0;
        decay_between(d, t, done, first->begin);
        done = first->begin + first->count;
        if (first->block) {
            sum_section(d, count_frames, t);
            for (size_t i = 0; i < count_frames; i++)
                next_section(&d->cursor[i]);
        } else {
            FRUG_TRY(collect_unit_sources(d, count_frames, *first, &sources));
            frugi_sum_unit_sections(d, sources, count_frames, t);
        }
    }
    decay_between(d, t, done, t->begin + t->count);
    return FRUG_OK;
}

/* Sums use the first cursors: exchange cursor i with the first one. */
static void swap_first(frug_decoder *d, size_t i) {
    frugi_cursor first = d->cursor[0];
    d->cursor[0] = d->cursor[i];
    d->cursor[i] = first;
}

frug_status frugi_frames_open_each(frug_decoder *d, const void *const *frames, const size_t *lens, size_t count_frames,
                                   const frugi_target *targets) {
    FRUG_TRY(reserve_frames(d, count_frames));
    for (size_t i = 0; i < count_frames; i++)
        FRUG_TRY(open_frame(d, frames[i], lens[i], i));
    FRUG_TRY(verify_frames(d, count_frames));
    for (size_t i = 0; i < count_frames; i++) {
        swap_first(d, i);
        rewind_frames(d, 1);
        frug_status status = check_frames(d, 1, &targets[i]);
        swap_first(d, i);
        FRUG_TRY(status);
    }
    return FRUG_OK;
}

frug_status frugi_frames_sum_each(frug_decoder *d, size_t count_frames, const frugi_target *targets) {
    for (size_t i = 0; i < count_frames; i++) {
        swap_first(d, i);
        frug_status status = frugi_frames_sum(d, 1, &targets[i]);
        swap_first(d, i);
        FRUG_TRY(status);
    }
    return FRUG_OK;
}

static frug_status sum_frames(frug_decoder *d, const void *const *frames, const size_t *lens, size_t count_frames,
                              const frugi_target *t) {
    double start = frugi_clock();
    FRUG_TRY(frugi_frames_open(d, frames, lens, count_frames, t));
    FRUG_TRY(frugi_frames_sum(d, count_frames, t));
    d->seconds += frugi_clock() - start;
    return FRUG_OK;
}

frug_status frug_decode_add(frug_decoder *decoder, frug_range range, const void *const *frames, const size_t *lens,
                            size_t count_frames, double scale, float *dst) {
    frugi_target t = {.dst = dst, .begin = range.begin, .count = range.count, .keep = 1.0f, .gain = (float)scale};
    return sum_frames(decoder, frames, lens, count_frames, &t);
}

frug_status frug_decode_apply(frug_decoder *decoder, frug_range range, const void *const *frames, const size_t *lens,
                              size_t count_frames, double rate, double decay, float *weights) {
    frugi_target t = {.dst = weights, .begin = range.begin, .count = range.count};
    t.keep = 1.0f - (float)decay;
    t.gain = -(float)rate;
    return sum_frames(decoder, frames, lens, count_frames, &t);
}

/* ---- create and destroy ------------------------------------------------------------ */

frug_status frugi_decoder_init(frug_decoder *d, const frugi_partition *partition, uint64_t layout_hash, int threads) {
    d->partition = partition;
    d->layout_hash = layout_hash;
    d->threads = threads;
    d->scratch = frugi_calloc((size_t)threads, sizeof *d->scratch);
    FRUG_FAIL_IF(!d->scratch, FRUG_ERR_MEMORY, "decoder: out of memory");
    return FRUG_OK;
}

void frugi_decoder_free(frug_decoder *d) {
    frugi_free(d->cursor);
    frugi_free(d->block_reader);
    frugi_free(d->unit_source);
    frugi_free(d->unit_cursor);
    frugi_free(d->scratch);
    frugi_free(d->own_scratch);
    frugi_partition_destroy(&d->own_partition);
}

/* One allocation for all threads; every array starts on a cache line. */
static frug_status make_scratch(frug_decoder *d) {
    const size_t n = FRUGI_DECODE_WINDOW, bytes = n * (3 * sizeof(float) + sizeof(uint32_t) + sizeof(uint16_t));
    unsigned char *at = d->own_scratch = frugi_alloc((size_t)d->threads * bytes);
    FRUG_FAIL_IF(!at, FRUG_ERR_MEMORY, "decoder: out of memory for %d threads", d->threads);
    for (int i = 0; i < d->threads; i++, at += bytes) {
        float *floats = (float *)(void *)at;
        uint32_t *units = (uint32_t *)(void *)(floats + 3 * n);
        d->scratch[i] = (frugi_decode_scratch){.sum = floats,
                                               .other_sum = floats + n,
                                               .values = floats + 2 * n,
                                               .units = units,
                                               .idx = (uint16_t *)(void *)(units + n)};
    }
    return FRUG_OK;
}

static frug_status init(frug_decoder *d, const frug_layout *layout, int threads) {
    FRUG_TRY(frugi_partition_create(layout, &d->own_partition));
    FRUG_TRY(frugi_decoder_init(d, &d->own_partition, frug_layout_hash(layout), frugi_thread_count(threads)));
    return make_scratch(d);
}

frug_status frug_decoder_create(const frug_layout *layout, int threads, frug_decoder **decoder) {
    FRUG_FAIL_IF(!layout || !decoder, FRUG_ERR_ARG, "decoder: layout or result is NULL");
    FRUG_FAIL_IF(threads < 0, FRUG_ERR_ARG, "decoder: negative number of threads: %d", threads);
    frug_decoder *d = frugi_calloc(1, sizeof *d);
    FRUG_FAIL_IF(!d, FRUG_ERR_MEMORY, "decoder: out of memory");
    frug_status status = init(d, layout, threads);
    if (status == FRUG_OK)
        *decoder = d;
    else
        frug_decoder_destroy(d);
    return status;
}

void frug_decoder_destroy(frug_decoder *decoder) {
    if (!decoder)
        return;
    frugi_decoder_free(decoder);
    frugi_free(decoder);
}
