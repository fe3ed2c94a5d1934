/*
 * tensor_topk.c - exact top-k of large arrays: the k-th largest magnitude, bracketed by a sample.
 *
 * A sample of up to 2^15 elements, four from each of as many equal ranges, gives two keys between which the k-th
 * largest lies with near certainty (4.5 standard deviations of the rank in the sample to each side). One pass counts
 * the keys below the bracket and collects those inside, about one percent; the result is selected from those. If the
 * counts show that the bracket missed, which happens when many elements equal one of its ends, that value is tried
 * next; if that misses too, or if too many keys are inside, the counts give a new bracket, and histograms of 2^15 bins
 * narrow it, at most three times, until one key is left or the keys inside fit. The result is exact for any data; the
 * sample affects only the time. Cost: slightly more than one pass, plus one to emit.
 */
#include "select/tensor_topk_scratch.h"

#include "base/float_bits.h"
#include "base/cpu.h"
#include "base/alloc.h"

#include <math.h>

#define SAMPLE_MAX    32768u /* a power of two, as all sizes of samples are */
#define SAMPLE_MIN    64u
#define SAMPLE_STEP   16u /* minimum number of elements per sampled element */
#define ADJACENT_BITS 2
#define ADJACENT      (1u << ADJACENT_BITS) /* sampled elements that are adjacent */
#define DEVIATIONS    4.5
#define MARGIN        3.0   /* in ranks, for small samples, where the standard deviation is unreliable */
#define FEW           8192u /* number of keys below which more bins cost more than another round */
#define FEW_BITS      8
#define MANY          8u /* from one in so many elements on, it is faster to look at all of them again */
#define FINE_BITS     11

typedef frugi_topk_bracket bracket;

static const frugi_topk_kernel *choose_kernel(void) {
    switch (frugi_isa_chosen()) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &frugi_topk_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &frugi_topk_avx2;
    case FRUGI_ISA_AVX512: return &frugi_topk_avx512;
#endif
    default: return &frugi_topk_ref;
    }
}

frugi_topk *frugi_topk_create(int threads) {
    size_t most = threads > 1 ? (size_t)threads : 1;
    frugi_topk *whole = frugi_alloc(sizeof *whole);
    if (!whole)
        return NULL;
    whole->threads = (int)most;
    whole->kernel = choose_kernel();
    whole->share = frugi_alloc(most * sizeof *whole->share);
    whole->bins = frugi_alloc(most * FRUGI_TOPK_BINS * sizeof *whole->bins);
    whole->key = frugi_alloc(FRUGI_TOPK_ROOM * sizeof *whole->key);
    whole->totals = frugi_alloc(2 * FRUGI_TOPK_BINS * sizeof *whole->totals);
    if (!whole->share || !whole->bins || !whole->key || !whole->totals) {
        frugi_topk_destroy(whole);
        return NULL;
    }
    for (size_t t = 0; t < most; t++)
        whole->share[t].bin = whole->bins + t * FRUGI_TOPK_BINS;
    return whole;
}

void frugi_topk_destroy(frugi_topk *whole) {
    if (!whole)
        return;
    frugi_free(whole->share);
    frugi_free(whole->bins);
    frugi_free(whole->key);
    frugi_free(whole->totals);
    frugi_free(whole);
}

/* ---- selection from collected keys ----------------------------------------------------------- */

/* The shift that makes a number up to width fit into bits. */
static uint32_t shift_to_fit(uint32_t width, int bits) {
    int length = 32 - __builtin_clz(width);
    return (uint32_t)(length > bits ? length - bits : 0);
}

/* Narrow a bracket to the bin that contains rank k, counted from the largest key inside. */
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

/* The cutoff at rank k, given a bracket of one key. */
static frugi_cutoff make_cutoff(const bracket *b, uint64_t k) {
    uint64_t ties = k - b->above;
    return (frugi_cutoff){b->from, ties == b->inside ? FRUGI_ALL_TIES : ties};
}

/* The cutoff at rank k, given all keys inside the bracket, which are permuted. */
static frugi_cutoff select_cutoff(uint32_t *key, bracket b, uint64_t k) {
    while (b.width > 1) {
        uint64_t bin[(uint32_t)1 << FINE_BITS], n = b.inside, left = 0;
        uint32_t shift = shift_to_fit(b.width - 1, n < FEW ? FEW_BITS : FINE_BITS), from = b.from;
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
    return make_cutoff(&b, k);
}

/* ---- bracket --------------------------------------------------------------------------------- */

/* A pseudorandom number from 0 to limit - 1 < 2^32 that depends on i. */
static uint64_t hash_below(uint64_t i, uint64_t limit) {
    uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u;
    return ((mixed >> 32) * limit) >> 32;
}

/* The size of a sample is a power of two. */
static uint32_t sample_bits(uint64_t n) {
    uint64_t ranges = n / SAMPLE_STEP < SAMPLE_MAX ? n / SAMPLE_STEP : SAMPLE_MAX;
    return ranges ? 63 - (uint32_t)__builtin_clzll(ranges) : 0;
}

uint64_t frugi_topk_sample_size(uint64_t n) {
    return n < SAMPLE_MIN * SAMPLE_STEP ? 0 : (uint64_t)1 << sample_bits(n);
}

/* A few adjacent elements, which cost one cache miss, from each of equal ranges, at a pseudorandom offset, so that
 * periodic data are sampled fairly. */
uint64_t frugi_topk_sample_index(uint64_t n, uint64_t i) {
    uint32_t bits = sample_bits(n) - ADJACENT_BITS;
    uint64_t range = i >> ADJACENT_BITS, begin = (range * n) >> bits, end = ((range + 1) * n) >> bits;
    return begin + hash_below(range, end - begin - ADJACENT + 1) + i % ADJACENT;
}

static void take_sample(const frugi_float_array *span, uint64_t n, uint32_t *key) {
    uint64_t before = 0, size = frugi_topk_sample_size(n);
    for (uint64_t i = 0; i < size; i++) {
        uint64_t at = frugi_topk_sample_index(n, i);
        while (at - before >= span->n)
            before += span++->n;
        key[i] = frugi_magnitude(span->x[at - before]);
    }
}

static uint32_t sample_rank(uint32_t *sample, const uint32_t *original, uint64_t size, double rank) {
    memcpy(sample, original, size * sizeof *sample);
    return select_cutoff(sample, (bracket){0, FRUGI_INF_BITS, 0, size}, (uint64_t)rank).key;
}

/* A bracket estimated from a sample in whole->key; `inside` and `above` are not set. */
static bracket estimate_bracket(frugi_topk *whole, uint64_t n, uint64_t k) {
    uint64_t size = frugi_topk_sample_size(n);
    uint32_t *sample = whole->key, *copy = whole->key + SAMPLE_MAX;
    double share = (double)k / (double)n, rank = share * (double)size;
    double reach = DEVIATIONS * sqrt(rank * (1.0 - share)) + MARGIN;
    uint32_t first = 0, end = FRUGI_INF_BITS; /* the ends themselves are excluded: many elements may equal them */
    if (ceil(rank + reach) <= (double)size)
        first = sample_rank(copy, sample, size, ceil(rank + reach)) + 1;
    if (floor(rank - reach) >= 1.0)
        end = sample_rank(copy, sample, size, floor(rank - reach));
    if (end <= first) /* almost all elements are equal */
        return (bracket){.from = end, .width = 1};
    return (bracket){.from = first, .width = end - first};
}

/* ---- scans ----------------------------------------------------------------------------------- */

/* The first key that thread t collects. */
static uint32_t *first_key(const frugi_topk *whole, int t, int threads) {
    return whole->key + FRUGI_TOPK_ROOM / (uint64_t)threads * (uint64_t)t;
}

static void start_shares(frugi_topk *whole, bracket b, int threads) {
    for (int t = 0; t < threads; t++)
        whole->share[t] = (frugi_topk_share){.bin = whole->share[t].bin, .full = b.width == 1};
}

/* Count the keys of a range below and inside the bracket and collect the latter. */
static void scan_range(frugi_topk *whole, int t, int threads, bracket b, const float *x, uint64_t n) {
    frugi_topk_share *share = &whole->share[t];
    uint64_t room = share->full ? 0 : FRUGI_TOPK_ROOM / (uint64_t)threads - share->inside, more = 0;
    uint32_t *key = first_key(whole, t, threads) + (share->full ? 0 : share->inside);
    share->below += whole->kernel->gather(x, n, b.from, b.width, key, room, &more);
    share->full |= more + FRUGI_TOPK_SLACK > room;
    share->inside += more;
}

/* Add up what the threads counted. Returns whether all keys inside the bracket have been collected. */
static int close_shares(frugi_topk *whole, int threads, uint64_t *below, uint64_t *inside) {
    uint64_t out = 0;
    int full = 0;
    *below = *inside = 0;
    for (int t = 0; t < threads; t++) {
        *below += whole->share[t].below;
        *inside += whole->share[t].inside;
        full |= whole->share[t].full;
    }
    for (int t = 0; t < threads && !full; t++) { /* close the gaps */
        memmove(whole->key + out, first_key(whole, t, threads), whole->share[t].inside * sizeof *whole->key);
        out += whole->share[t].inside;
    }
    return !full;
}

static void scan_all(frugi_topk *whole, const frugi_float_array *span, uint64_t n, bracket b, int threads) {
    start_shares(whole, b, threads);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        frugi_topk_walk walk = frugi_topk_walk_share(span, n, t, threads);
        for (frugi_float_array piece = frugi_topk_walk_next(&walk); piece.n; piece = frugi_topk_walk_next(&walk))
            scan_range(whole, t, threads, b, piece.x, piece.n);
    }
}

/* Narrow a bracket by a histogram of the keys inside. */
static void narrow_bracket(frugi_topk *whole, const frugi_float_array *span, uint64_t n, uint64_t k, bracket *b,
                           int threads) {
    uint32_t shift = shift_to_fit(b->width - 1, 15), from = b->from, width = b->width;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        uint64_t *bin = whole->share[t].bin;
        memset(bin, 0, FRUGI_TOPK_BINS * sizeof *bin);
        frugi_topk_walk walk = frugi_topk_walk_share(span, n, t, threads);
        for (frugi_float_array piece = frugi_topk_walk_next(&walk); piece.n; piece = frugi_topk_walk_next(&walk))
            for (uint64_t i = 0; i < piece.n; i++) {
                uint32_t d = frugi_magnitude(piece.x[i]) - from;
                if (d < width)
                    bin[d >> shift]++;
            }
    }
    for (int t = 1; t < threads; t++)
        for (uint32_t i = 0; i < FRUGI_TOPK_BINS; i++)
            whole->bins[i] += whole->share[t].bin[i];
    narrow_to_bin(b, whole->bins, shift, k);
}

/* Evaluate a scan of the bracket. If rank k is not inside, set the bracket to the side where it must be, with `above`
 * and `inside`. *edge: the key next to the bracket on that side. Returns whether all keys inside have been collected.
 */
static int close_bracket(frugi_topk *whole, uint64_t n, uint64_t k, bracket *b, uint32_t *edge, int threads) {
    uint64_t below, inside;
    int collected = close_shares(whole, threads, &below, &inside);
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
    return collected;
}

static int try_bracket(frugi_topk *whole, const frugi_float_array *span, uint64_t n, uint64_t k, bracket *b,
                       uint32_t *edge, int threads) {
    scan_all(whole, span, n, *b, threads);
    return close_bracket(whole, n, k, b, edge, threads);
}

/* All keys, for few elements; else a bracket estimated from a sample in whole->key. */
static bracket first_bracket(frugi_topk *whole, uint64_t n, uint64_t k) {
    return n < SAMPLE_MIN * SAMPLE_STEP ? (bracket){0, FRUGI_INF_BITS, 0, n} : estimate_bracket(whole, n, k);
}

bool frugi_topk_watch_pays(const frugi_topk *whole) {
    return whole->kernel->faster_than_memory;
}

uint32_t *frugi_topk_sample(frugi_topk *whole) {
    return whole->key;
}

void frugi_topk_watch(frugi_topk *whole, uint64_t n, uint64_t k, int threads) {
    bracket b = first_bracket(whole, n, k);
    threads = threads < whole->threads ? threads : whole->threads;
    whole->watched = (frugi_topk_watched){n, k, threads, b};
    start_shares(whole, b, threads);
}

void frugi_topk_see(frugi_topk *whole, int t, const float *x, uint64_t n) {
    scan_range(whole, t, whole->watched.threads, whole->watched.bracket, x, n);
}

void frugi_topk_forget(frugi_topk *whole) {
    whole->watched.n = 0;
}

frugi_cutoff frugi_topk_cutoff(frugi_topk *whole, const frugi_float_array *span, size_t spans, uint64_t k,
                               int threads) {
    uint64_t n = frugi_topk_elements(span, spans);
    bool watched = whole->watched.n == n && whole->watched.k == k;
    threads = frugi_topk_threads(whole, threads, n);
    whole->watched.n = 0;
    if (!watched) {
        take_sample(span, n, whole->key);
        whole->watched.bracket = first_bracket(whole, n, k);
        whole->watched.threads = threads;
        scan_all(whole, span, n, whole->watched.bracket, threads);
    }
    bracket b = whole->watched.bracket;
    uint32_t edge, estimate = b.from;
    int collected = close_bracket(whole, n, k, &b, &edge, whole->watched.threads);
    if (edge != estimate) { /* missed, most likely because of ties with one of the ends */
        b = (bracket){.from = edge, .width = 1};
        collected = try_bracket(whole, span, n, k, &b, &edge, threads);
    }
    while (!collected && b.width > 1) {
        if (b.inside + FRUGI_TOPK_SLACK <= FRUGI_TOPK_ROOM / (uint64_t)threads)
            collected = try_bracket(whole, span, n, k, &b, &edge, threads);
        else
            narrow_bracket(whole, span, n, k, &b, threads);
    }
    return collected ? select_cutoff(whole->key, b, k) : make_cutoff(&b, k);
}

uint64_t frugi_topk_count(frugi_topk *whole, const frugi_float_array *span, size_t spans, uint32_t key, int threads) {
    uint64_t n = frugi_topk_elements(span, spans), reaching = 0;
    threads = frugi_topk_threads(whole, threads, n);
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : reaching) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        frugi_topk_walk walk = frugi_topk_walk_share(span, n, t, threads);
        for (frugi_float_array piece = frugi_topk_walk_next(&walk); piece.n; piece = frugi_topk_walk_next(&walk))
            reaching += whole->kernel->count(piece.x, piece.n, key);
    }
    return reaching;
}

/* ---- emit ------------------------------------------------------------------------------------ */

/* Emit a chunk with more ties than may be selected: those with the lower indices. */
static uint32_t emit_with_ties(const float *x, uint32_t n, uint32_t base, uint32_t key, uint64_t ties, uint32_t *index,
                               float *value) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = frugi_magnitude(x[i]);
        int tie = m == key && ties > 0;
        ties -= (uint64_t)tie;
        if (m > key || tie) {
            index[out] = base + i;
            value[out++] = x[i];
        }
    }
    return out;
}

void frugi_topk_leave_rest(frugi_topk_rest rest, const uint32_t *list, uint64_t n) {
    for (uint64_t e = 0; e < n; e++)
        rest.x[list[e]] = rest.bf16 ? frugi_bf16_error(rest.x[list[e]]) : 0.0f;
}

/* Where entries are emitted to. */
typedef struct emit_target {
    frugi_topk_rest rest;
    unsigned char *list, *value; /* value may be NULL */
} emit_target;

/* Emit a chunk, with at most *ties that equal the key. Returns the number of entries. */
static uint32_t emit_chunk(const frugi_topk *whole, const float *x, uint32_t n, uint32_t base, uint32_t key,
                           uint64_t *ties, uint32_t *index, float *value) {
    uint32_t got = whole->kernel->emit(x, n, base, *ties ? key : key + 1, index, value);
    if (*ties == 0 || *ties == FRUGI_ALL_TIES)
        return got;
    uint64_t same = got - whole->kernel->count(x, n, key + 1);
    if (same > *ties) {
        got = emit_with_ties(x, n, base, key, *ties, index, value);
        same = *ties;
    }
    *ties -= same;
    return got;
}

/* Emit the selected indices in begin .. end - 1, of which no more than *ties equal the key. Returns their number. */
static uint64_t emit_share(const frugi_topk *whole, const float *x, uint64_t begin, uint64_t end, uint32_t key,
                           uint64_t *ties, emit_target to) {
    uint32_t index[FRUGI_TOPK_STAGE]; /* the kernel writes past the end; the list may not have room for that */
    float value[FRUGI_TOPK_STAGE];
    uint64_t out = 0;
    for (uint64_t i = begin; i < end; i += FRUGI_TOPK_CHUNK) {
        uint32_t n = (uint32_t)(end - i < FRUGI_TOPK_CHUNK ? end - i : FRUGI_TOPK_CHUNK);
        uint32_t got = emit_chunk(whole, x + i, n, (uint32_t)i, key, ties, index, value);
        memcpy(to.list + out * sizeof *index, index, got * sizeof *index);
        if (to.value)
            memcpy(to.value + out * sizeof *value, value, got * sizeof *value);
        if (to.rest.x && !to.rest.bf16 && *ties == FRUGI_ALL_TIES && got > n / MANY)
            whole->kernel->clear(to.rest.x + i, n, key);
        else if (to.rest.x)
            frugi_topk_leave_rest(to.rest, index, got);
        out += got;
    }
    return out;
}

/* Count the selected entries and ties of one thread, which give the start of the next one. */
static void count_share(const frugi_topk *whole, const float *x, uint64_t begin, uint64_t end, uint32_t key,
                        uint64_t *above, uint64_t *equal) {
    *above = *equal = 0;
    for (uint64_t i = begin; i < end; i += FRUGI_TOPK_CHUNK) {
        uint64_t n = end - i < FRUGI_TOPK_CHUNK ? end - i : FRUGI_TOPK_CHUNK;
        uint64_t more = whole->kernel->count(x + i, n, key + 1);
        *above += more;
        *equal += whole->kernel->count(x + i, n, key) - more;
    }
}

uint64_t frugi_topk_emit_to(frugi_topk *whole, const frugi_float_array *span, frugi_cutoff *cut, frugi_topk_rest rest,
                            unsigned char *list, unsigned char *values, int threads) {
    threads = frugi_topk_threads(whole, threads, span->n);
    if (threads == 1)
        return emit_share(whole, span->x, 0, span->n, cut->key, &cut->ties, (emit_target){rest, list, values});
    uint64_t out = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        frugi_topk_walk walk = frugi_topk_walk_share(span, span->n, t, threads);
        frugi_topk_share *share = &whole->share[t];
        count_share(whole, span->x, walk.skip, walk.skip + walk.left, cut->key, &share->below, &share->inside);
    }
    for (int t = 0; t < threads; t++) {
        frugi_topk_share *share = &whole->share[t];
        uint64_t selected = share->inside < cut->ties ? share->inside : cut->ties;
        share->allowance = cut->ties == FRUGI_ALL_TIES ? FRUGI_ALL_TIES : selected;
        share->first = out;
        cut->ties -= cut->ties == FRUGI_ALL_TIES ? 0 : selected;
        out += share->below + selected;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        frugi_topk_walk walk = frugi_topk_walk_share(span, span->n, t, threads);
        uint64_t ties = whole->share[t].allowance, first = whole->share[t].first;
        emit_target to = {rest, list + first * sizeof(uint32_t), values ? values + first * sizeof(float) : NULL};
        emit_share(whole, span->x, walk.skip, walk.skip + walk.left, cut->key, &ties, to);
    }
    return out;
}

uint64_t frugi_topk_emit(frugi_topk *whole, const frugi_float_array *span, frugi_cutoff *cut, uint32_t *list,
                         float *values, int threads) {
    return frugi_topk_emit_to(whole, span, cut, (frugi_topk_rest){0}, (unsigned char *)list, (unsigned char *)values,
                              threads);
}

/* Drop the last `surplus` of n entries that have the key `least`. Returns whether there are so many. */
static bool drop_last(uint32_t *index, float *value, uint32_t n, uint32_t surplus, uint32_t least, uint32_t mask) {
    uint32_t first = n, out;
    while (surplus && first)
        surplus -= (frugi_magnitude(value[--first]) & mask) == least;
    out = first;
    for (uint32_t e = first; e < n && !surplus; e++) {
        index[out] = index[e];
        value[out] = value[e];
        out += (frugi_magnitude(value[e]) & mask) != least;
    }
    return !surplus;
}

bool frugi_topk_emit_near(const frugi_topk *whole, const float *x, uint32_t n, uint32_t k, uint32_t near, uint32_t mask,
                          uint32_t base, frugi_topk_rest rest, uint32_t *list, float *values) {
    uint32_t index[FRUGI_TOPK_STAGE], least = near & mask;
    float value[FRUGI_TOPK_STAGE];
    uint32_t got = whole->kernel->emit(x, n, 0, least, index, value);
    if (got < k || (got > k && !drop_last(index, value, got, got - k, least, mask)))
        return false;
    for (uint32_t e = 0; e < k; e++)
        list[e] = base + index[e];
    memcpy(values, value, k * sizeof *values);
    if (rest.x)
        frugi_topk_leave_rest(rest, index, k);
    return true;
}

uint32_t frugi_topk_take(const frugi_topk *whole, const float *x, const uint64_t *bits, uint32_t count, uint32_t base,
                         uint32_t *list, float *values) {
    uint32_t words = count / 64, rest = count % 64, n = whole->kernel->take(x, bits, words, base, list, values);
    if (rest) {
        float last[64] = {0};
        memcpy(last, x + words * 64, rest * sizeof *x);
        n += whole->kernel->take(last, bits + words, 1, base + words * 64, list + n, values + n);
    }
    return n;
}
