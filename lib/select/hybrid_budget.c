/*
 * hybrid_budget.c - divide one budget among blocks.
 *
 * The claim of a block is counted with one compare per element, two where some ties are not selected; ties go to the
 * first blocks, so the range of a thread whose ties are not all selected is counted again. Fitting the budget clips the
 * claims and then adds or subtracts 1 per block and round until the sum is right. Full rounds are not executed:
 * bisection finds their number, because L rounds move the sum of min(room, L). Cost: one pass over the elements; at
 * most 16 passes over the counts.
 */
#include "select/hybrid_budget.h"

#include "select/tensor_topk_scratch.h"

#include <math.h>

#define SHARES    64u /* maximum number of threads */
#define OFTEN_MAX 15u
#define PERIOD    256u /* steps between halvings */

/* Count the claims of blocks begin .. end - 1 with at most `allowance` ties. Returns the number of ties. */
static uint64_t claim_blocks(const frugi_topk *whole, const frugi_float_array *span, uint32_t block, uint64_t begin,
                             uint64_t end, uint32_t key, uint64_t allowance, uint16_t *claim) {
    uint64_t ties = 0;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t left = span->n - b * block;
        uint32_t n = (uint32_t)(left < block ? left : block);
        const float *x = span->x + b * block;
        uint64_t reaching = whole->kernel->count(x, n, key);
        if (allowance == FRUGI_ALL_TIES) {
            claim[b] = (uint16_t)reaching;
            continue;
        }
        uint64_t above = whole->kernel->count(x, n, key + 1), equal = reaching - above;
        uint64_t selected = equal < allowance ? equal : allowance;
        allowance -= selected;
        ties += equal;
        claim[b] = (uint16_t)(above + selected);
    }
    return ties;
}

void frugi_hybrid_count_claims(const frugi_topk *whole, const frugi_float_array *span, uint32_t block,
                               frugi_cutoff *cut, uint16_t *claim, int threads) {
    uint64_t blocks = (span->n + block - 1) / block, ties[SHARES];
    uint64_t shares = threads < 1 ? 1 : (uint64_t)threads < SHARES ? (uint64_t)threads : SHARES;
    shares = shares < blocks ? shares : blocks;
    if (shares == 0)
        return;
    int last = (int)shares;
#pragma omp parallel for num_threads(last) schedule(static, 1) if (last > 1)
    for (int t = 0; t < last; t++) {
        uint64_t i = (uint64_t)t;
        ties[t] = claim_blocks(whole, span, block, blocks * i / shares, blocks * (i + 1) / shares, cut->key, cut->ties,
                               claim);
    }
    for (uint64_t t = 0; t < shares && cut->ties != FRUGI_ALL_TIES;
         t++) { /* threads after the first did not know the number of ties before them */
        uint64_t selected = ties[t] < cut->ties ? ties[t] : cut->ties;
        if (t > 0 && selected < ties[t])
            claim_blocks(whole, span, block, blocks * t / shares, blocks * (t + 1) / shares, cut->key, selected, claim);
        cut->ties -= selected;
    }
}

void frugi_hybrid_scale_by_frequency(uint16_t *claim, const uint8_t *often, uint64_t blocks, uint32_t most) {
    uint64_t sum = 0;
    for (uint64_t b = 0; b < blocks; b++)
        sum += often[b] & OFTEN_MAX;
    double mean = blocks ? (double)sum / (double)blocks : 0, factor[OFTEN_MAX + 1];
    for (uint32_t c = 0; c <= OFTEN_MAX; c++) {
        double f = sqrt(((double)c + 1.0) / (mean + 1.0));
        factor[c] = f < 0.5 ? 0.5 : f > 2.0 ? 2.0 : f;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        double scaled = floor((double)claim[b] * factor[often[b] & OFTEN_MAX] + 0.5);
        claim[b] = (uint16_t)(scaled < (double)most ? scaled : (double)most);
    }
}

void frugi_hybrid_update_frequency(const uint16_t *count, uint8_t *often, uint64_t blocks, uint64_t step) {
    uint64_t sum = 0;
    for (uint64_t b = 0; b < blocks; b++)
        sum += count[b];
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t c = often[b] & OFTEN_MAX;
        c = (uint8_t)(c + (count[b] * blocks > sum && c < OFTEN_MAX));
        often[b] = (step + 1) % PERIOD ? c : c >> 1;
    }
}

/* ---- fit the budget -------------------------------------------------------------------------- */

/* All blocks of all arrays, with their limits. */
typedef struct block_limits {
    const uint64_t *blocks_of;
    const uint32_t *last;
    size_t spans;
    uint32_t block, most;
} block_limits;

static uint32_t limit_of(const block_limits *f, uint32_t length) {
    return length < f->most ? length : f->most;
}

/* Clip counts to their limits. Returns their sum. */
static uint64_t clip_counts(const block_limits *f, uint16_t *count) {
    uint64_t sum = 0;
    for (size_t s = 0; s < f->spans; s++)
        for (uint64_t b = 0; b < f->blocks_of[s]; b++, count++) {
            uint32_t limit = limit_of(f, b + 1 < f->blocks_of[s] ? f->block : f->last[s]);
            uint32_t c = *count < limit ? *count : limit;
            *count = (uint16_t)(c > 1 ? c : 1);
            sum += *count;
        }
    return sum;
}

/* Run `rounds` rounds in which every block within its limits is raised by one (lowered, if not up), and then one more
 * round for the first `extra` of them. Returns the total change of the full rounds; changes nothing if `dry`. */
static uint64_t adjust_counts(const block_limits *f, uint16_t *count, int up, uint32_t rounds, uint64_t extra,
                              int dry) {
    uint64_t sum = 0;
    for (size_t s = 0; s < f->spans; s++)
        for (uint64_t b = 0; b < f->blocks_of[s]; b++, count++) {
            uint32_t limit = limit_of(f, b + 1 < f->blocks_of[s] ? f->block : f->last[s]);
            uint32_t room = up ? limit - *count : *count - 1u, move = room < rounds ? room : rounds;
            sum += move;
            if (dry)
                continue;
            uint32_t one = room > rounds && extra > 0;
            extra -= one;
            *count = (uint16_t)(up ? *count + move + one : *count - move - one);
        }
    return sum;
}

void frugi_hybrid_fit_budget(uint16_t *count, const uint64_t *blocks_of, const uint32_t *last, size_t spans,
                             uint32_t block, uint32_t most, uint64_t budget) {
    block_limits f = {blocks_of, last, spans, block, most};
    uint64_t sum = clip_counts(&f, count), moved = 0;
    int up = sum < budget;
    uint64_t gap = up ? budget - sum : sum - budget;
    uint32_t rounds = 0;
    for (uint32_t bit = (uint32_t)1 << 15; bit && gap;
         bit >>= 1) { /* the largest number of full rounds that the gap allows */
        uint64_t all = adjust_counts(&f, count, up, rounds + bit, 0, 1);
        if (all <= gap) {
            rounds += bit;
            moved = all;
        }
    }
    if (gap)
        adjust_counts(&f, count, up, rounds, gap - moved, 0);
}
