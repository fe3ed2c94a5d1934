/*
 * tensor_topk.c - the k-th largest magnitude of very many, by a bracket from a sample.
 *
 * A sample of up to 2^15 elements, one from each of as many equal stretches, says between which two keys the k-th
 * largest lies with near certainty (4.5 standard deviations of the sample's rank to each side). One pass counts what is
 * below the bracket and collects what is inside, about one percent; the answer is picked from those. When the counts
 * say that the bracket missed, as it does when many share the value of one of its ends, that value is tried next;
 * failing that, or when too many were inside, the counts say where to look instead: histograms of 2^15 bins
 * narrow that down, at most three times, until one key is left or what is inside fits. So the answer is exact
 * whatever the data, and luck only decides on the time. Cost: one pass and a little, plus one to emit.
 */
#include "select/tensor_topk_scratch.h"

#include "base/float_bits.h"
#include "base/cpu.h"
#include "base/alloc.h"

#include <math.h>

#define SAMPLE_MOST  32768u /* a power of two, as all sizes of samples are */
#define SAMPLE_LEAST 64u
#define SAMPLE_STEP  16u /* elements per sampled one, at least */
#define DEVIATIONS   4.5
#define MARGIN       3.0   /* in ranks, for samples so small that deviations say little */
#define FEW          8192u /* keys for which many bins would cost more than another round */
#define FEW_BITS     8
#define FINE_BITS    11

/* Keys from .. from + width - 1, which hold the one looked for; `above` keys are larger than all of them. */
typedef struct bracket {
    uint32_t from, width;
    uint64_t above, inside;
} bracket;

static const frugi_whole_kernel *choose_kernel(void) {
    switch (frugi_isa_chosen()) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &frugi_whole_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &frugi_whole_avx2;
#endif
    default: return &frugi_whole_ref;
    }
}

frugi_whole *frugi_whole_create(int threads) {
    size_t most = threads > 1 ? (size_t)threads : 1;
    frugi_whole *whole = frugi_alloc(sizeof *whole);
    if (!whole)
        return NULL;
    whole->threads = (int)most;
    whole->kernel = choose_kernel();
    whole->share = frugi_alloc(most * sizeof *whole->share);
    whole->bins = frugi_alloc(most * FRUGI_WHOLE_BINS * sizeof *whole->bins);
    whole->key = frugi_alloc(FRUGI_WHOLE_ROOM * sizeof *whole->key);
    whole->totals = frugi_alloc(2 * FRUGI_WHOLE_BINS * sizeof *whole->totals);
    if (!whole->share || !whole->bins || !whole->key || !whole->totals) {
        frugi_whole_destroy(whole);
        return NULL;
    }
    for (size_t t = 0; t < most; t++)
        whole->share[t].bin = whole->bins + t * FRUGI_WHOLE_BINS;
    return whole;
}

void frugi_whole_destroy(frugi_whole *whole) {
    if (!whole)
        return;
    frugi_free(whole->share);
    frugi_free(whole->bins);
    frugi_free(whole->key);
    frugi_free(whole->totals);
    frugi_free(whole);
}

/* ---- among few ------------------------------------------------------------------------------- */

/* By how much to shift a difference below width so that it fits into bits. */
static uint32_t shift_to(uint32_t width, int bits) {
    int length = 32 - __builtin_clz(width);
    return (uint32_t)(length > bits ? length - bits : 0);
}

/* Narrow a bracket to the bin that holds rank k, counted from the largest key inside. */
static void narrow_to_bin(bracket *b, const uint64_t *bin, uint32_t shift, uint64_t k) {
    uint64_t above = b->above;
    uint32_t i = ((b->width - 1) >> shift) + 1;
    do
        above += bin[--i];
    while (above < k);
    b->above = above - bin[i];
    b->inside = bin[i];
    uint32_t end = b->width - (i << shift);
    b->from += i << shift;
    b->width = end < (uint32_t)1 << shift ? end : (uint32_t)1 << shift;
}

/* The cut at rank k, given all keys inside the bracket; these are moved about. */
static frugi_cutoff pick(uint32_t *key, bracket b, uint64_t k) {
    while (b.width > 1) {
        uint64_t bin[(uint32_t)1 << FINE_BITS], n = b.inside, left = 0;
        uint32_t shift = shift_to(b.width - 1, n < FEW ? FEW_BITS : FINE_BITS), from = b.from;
        memset(bin, 0, (((b.width - 1) >> shift) + 1) * sizeof *bin);
        for (uint64_t i = 0; i < n; i++)
            bin[(key[i] - from) >> shift]++;
        narrow_to_bin(&b, bin, shift, k);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t one = key[i];
            key[left] = one;
            left += one - b.from < b.width;
        }
    }
    return (frugi_cutoff){b.from, k - b.above};
}

/* ---- the bracket ----------------------------------------------------------------------------- */

/* A number from 0 to limit - 1 < 2^32 that depends on i. */
static uint64_t scatter(uint64_t i, uint64_t limit) {
    uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u;
    return ((mixed >> 32) * limit) >> 32;
}

/* One element from each of 2^bits equal stretches, at a place of its own, so that no period can hide from it. */
static void take_sample(const frugi_span *span, uint64_t n, uint32_t bits, uint32_t *key) {
    uint64_t before = 0, begin = 0;
    for (uint64_t i = 0; i >> bits == 0; i++) {
        uint64_t end = ((i + 1) * n) >> bits, at = begin + scatter(i, end - begin);
        while (at - before >= span->n)
            before += span++->n;
        key[i] = frugi_magnitude(span->x[at - before]);
        begin = end;
    }
}

static uint32_t sample_rank(uint32_t *sample, const uint32_t *original, uint64_t size, double rank) {
    memcpy(sample, original, size * sizeof *sample);
    return pick(sample, (bracket){0, FRUGI_INF_BITS, 0, size}, (uint64_t)rank).key;
}

/* A guess, `inside` and `above` left open. */
static bracket guess(frugi_whole *whole, const frugi_span *span, uint64_t n, uint64_t k) {
    uint32_t bits = 0;
    while ((uint64_t)SAMPLE_STEP << (bits + 1) <= n && (1u << bits) < SAMPLE_MOST)
        bits++;
    uint64_t size = (uint64_t)1 << bits;
    uint32_t *sample = whole->key, *copy = whole->key + SAMPLE_MOST;
    take_sample(span, n, bits, sample);
    double share = (double)k / (double)n, rank = share * (double)size;
    double reach = DEVIATIONS * sqrt(rank * (1.0 - share)) + MARGIN;
    uint32_t first = 0, end = FRUGI_INF_BITS; /* the ends themselves, which may have many equals, are left out */
    if (ceil(rank + reach) <= (double)size)
        first = sample_rank(copy, sample, size, ceil(rank + reach)) + 1;
    if (floor(rank - reach) >= 1.0)
        end = sample_rank(copy, sample, size, floor(rank - reach));
    if (end <= first) /* hardly anything but equals */
        return (bracket){.from = end, .width = 1};
    return (bracket){.from = first, .width = end - first};
}

/* ---- scans ----------------------------------------------------------------------------------- */

/* Count what is below and inside the bracket and collect the latter. Returns whether all fitted. */
static int gather(frugi_whole *whole, const frugi_span *span, uint64_t n, bracket b, uint64_t *below, uint64_t *inside,
                  int threads) {
    uint64_t room = FRUGI_WHOLE_ROOM / (uint64_t)threads, out = 0;
    int full = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        frugi_whole_share share = {.bin = whole->share[t].bin, .full = b.width == 1};
        frugi_whole_walk walk = frugi_whole_walk_share(span, n, t, threads);
        uint32_t *key = whole->key + (uint64_t)t * room;
        for (frugi_span piece = frugi_whole_walk_next(&walk); piece.n; piece = frugi_whole_walk_next(&walk)) {
            uint64_t more = 0, free_room = share.full ? 0 : room - share.inside;
            share.below += whole->kernel->gather(piece.x, piece.n, b.from, b.width, key, free_room, &more);
            share.full |= more + FRUGI_WHOLE_SLACK > free_room;
            share.inside += more;
            key += share.full ? 0 : more;
        }
        whole->share[t] = share;
    }
    *below = *inside = 0;
    for (int t = 0; t < threads; t++) {
        *below += whole->share[t].below;
        *inside += whole->share[t].inside;
        full |= whole->share[t].full;
    }
    for (int t = 0; t < threads && !full; t++) { /* close the gaps */
        memmove(whole->key + out, whole->key + (uint64_t)t * room, whole->share[t].inside * sizeof *whole->key);
        out += whole->share[t].inside;
    }
    return !full;
}

/* Narrow a bracket by a histogram of what is inside. */
static void narrow(frugi_whole *whole, const frugi_span *span, uint64_t n, uint64_t k, bracket *b, int threads) {
    uint32_t shift = shift_to(b->width - 1, 15), from = b->from, width = b->width;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        uint64_t *bin = whole->share[t].bin;
        memset(bin, 0, FRUGI_WHOLE_BINS * sizeof *bin);
        frugi_whole_walk walk = frugi_whole_walk_share(span, n, t, threads);
        for (frugi_span piece = frugi_whole_walk_next(&walk); piece.n; piece = frugi_whole_walk_next(&walk))
            for (uint64_t i = 0; i < piece.n; i++) {
                uint32_t d = frugi_magnitude(piece.x[i]) - from;
                if (d < width)
                    bin[d >> shift]++;
            }
    }
    for (int t = 1; t < threads; t++)
        for (uint32_t i = 0; i < FRUGI_WHOLE_BINS; i++)
            whole->bins[i] += whole->share[t].bin[i];
    narrow_to_bin(b, whole->bins, shift, k);
}

/* Count the bracket and, if rank k is not inside, move on to where it must be, `above` and `inside` filled in. *edge:
 * the key next to the bracket on that side. Returns whether all that is inside has been collected. */
static int try_bracket(frugi_whole *whole, const frugi_span *span, uint64_t n, uint64_t k, bracket *b, uint32_t *edge,
                       int threads) {
    uint64_t below, inside;
    int kept = gather(whole, span, n, *b, &below, &inside, threads);
    uint64_t above = n - below - inside;
    uint32_t end = b->from + b->width;
    if (above >= k) {
        *edge = end;
        *b = (bracket){end, FRUGI_INF_BITS - end, 0, above};
        return 0;
    }
    if (above + inside < k) {
        *edge = b->from - 1;
        *b = (bracket){0, b->from, above + inside, below};
        return 0;
    }
    *edge = b->from;
    b->above = above;
    b->inside = inside;
    return kept;
}

frugi_cutoff frugi_whole_cutoff(frugi_whole *whole, const frugi_span *span, size_t spans, uint64_t k, int threads) {
    uint64_t n = frugi_whole_elements(span, spans);
    threads = frugi_whole_threads(whole, threads, n);
    bracket b = {0, FRUGI_INF_BITS, 0, n};
    if (n >= SAMPLE_LEAST * SAMPLE_STEP)
        b = guess(whole, span, n, k);
    uint32_t edge, guessed = b.from;
    int kept = try_bracket(whole, span, n, k, &b, &edge, threads);
    if (edge != guessed) { /* missed, most likely by a tie with one of the ends */
        b = (bracket){.from = edge, .width = 1};
        kept = try_bracket(whole, span, n, k, &b, &edge, threads);
    }
    while (!kept && b.width > 1) {
        if (b.inside + FRUGI_WHOLE_SLACK <= FRUGI_WHOLE_ROOM / (uint64_t)threads)
            kept = try_bracket(whole, span, n, k, &b, &edge, threads);
        else
            narrow(whole, span, n, k, &b, threads);
    }
    return kept ? pick(whole->key, b, k) : (frugi_cutoff){b.from, k - b.above};
}

uint64_t frugi_whole_count(frugi_whole *whole, const frugi_span *span, size_t spans, uint32_t key, int threads) {
    uint64_t n = frugi_whole_elements(span, spans), reaching = 0;
    threads = frugi_whole_threads(whole, threads, n);
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : reaching) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        frugi_whole_walk walk = frugi_whole_walk_share(span, n, t, threads);
        for (frugi_span piece = frugi_whole_walk_next(&walk); piece.n; piece = frugi_whole_walk_next(&walk))
            reaching += whole->kernel->count(piece.x, piece.n, key);
    }
    return reaching;
}

/* ---- emit ------------------------------------------------------------------------------------ */

/* One chunk with more ties than may be taken: those of the lower places. */
static uint32_t emit_some(const float *x, uint32_t n, uint32_t base, uint32_t key, uint64_t ties, uint32_t *stage) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = frugi_magnitude(x[i]);
        int tie = m == key && ties > 0;
        ties -= (uint64_t)tie;
        if (m > key || tie)
            stage[out++] = base + i;
    }
    return out;
}

/* The winners of the places begin .. end - 1, of which no more than *ties equal the key. Returns how many. */
static uint64_t emit_share(const frugi_whole *whole, const float *x, uint64_t begin, uint64_t end, uint32_t key,
                           uint64_t *ties, uint32_t *list, float *values) {
    uint32_t stage[FRUGI_WHOLE_STAGE]; /* the kernel writes a little too far; the list may not have that room */
    uint64_t out = 0;
    for (uint64_t i = begin; i < end; i += FRUGI_WHOLE_CHUNK) {
        uint32_t n = (uint32_t)(end - i < FRUGI_WHOLE_CHUNK ? end - i : FRUGI_WHOLE_CHUNK), got;
        int equal = 0;
        got = whole->kernel->emit(x + i, n, (uint32_t)i, *ties ? key : key + 1, stage, &equal);
        if (equal && *ties) {
            uint64_t same = got - whole->kernel->count(x + i, n, key + 1);
            if (same > *ties) {
                got = emit_some(x + i, n, (uint32_t)i, key, *ties, stage);
                same = *ties;
            }
            *ties -= same;
        }
        memcpy(list + out, stage, got * sizeof *list);
        for (uint32_t e = 0; values && e < got; e++)
            values[out + e] = x[stage[e]];
        out += got;
    }
    return out;
}

/* Count a share's winners and ties, for those after it to know where to start. */
static void count_share(const frugi_whole *whole, const float *x, uint64_t begin, uint64_t end, uint32_t key,
                        uint64_t *above, uint64_t *equal) {
    *above = *equal = 0;
    for (uint64_t i = begin; i < end; i += FRUGI_WHOLE_CHUNK) {
        uint64_t n = end - i < FRUGI_WHOLE_CHUNK ? end - i : FRUGI_WHOLE_CHUNK;
        uint64_t more = whole->kernel->count(x + i, n, key + 1);
        *above += more;
        *equal += whole->kernel->count(x + i, n, key) - more;
    }
}

uint64_t frugi_whole_emit(frugi_whole *whole, const frugi_span *span, frugi_cutoff *cut, uint32_t *list, float *values,
                          int threads) {
    threads = frugi_whole_threads(whole, threads, span->n);
    if (threads == 1)
        return emit_share(whole, span->x, 0, span->n, cut->key, &cut->ties, list, values);
    uint64_t out = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        frugi_whole_walk walk = frugi_whole_walk_share(span, span->n, t, threads);
        frugi_whole_share *share = &whole->share[t];
        count_share(whole, span->x, walk.skip, walk.skip + walk.left, cut->key, &share->below, &share->inside);
    }
    for (int t = 0; t < threads; t++) {
        frugi_whole_share *share = &whole->share[t];
        share->allowance = share->inside < cut->ties ? share->inside : cut->ties;
        share->first = out;
        cut->ties -= share->allowance;
        out += share->below + share->allowance;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        frugi_whole_walk walk = frugi_whole_walk_share(span, span->n, t, threads);
        uint64_t ties = whole->share[t].allowance, first = whole->share[t].first;
        emit_share(whole, span->x, walk.skip, walk.skip + walk.left, cut->key, &ties, list + first,
                   values ? values + first : NULL);
    }
    return out;
}
