/*
 * hybrid_budget.c - claims, and counts that add up.
 *
 * A block's claim is counted in vectors with one compare per element; ties go to the first blocks, so a share whose
 * ties are not all taken is counted again. Settling clips the claims and then deals out what is missing, or takes back
 * what is too much, one each per round. Full rounds are not played: bisection finds how many there are, because L
 * rounds deal out the sum of min(room, L). Cost: one pass over the elements; at most 16 passes over the counts.
 */
#include "select/hybrid_budget.h"

#include "base/float_bits.h"

#include <math.h>

#define SHARES 64u /* threads at most */
#define WIDE   4u
#define OFTEN  15u
#define PERIOD 256u /* steps between halvings */

typedef uint32_t four_u32 __attribute__((vector_size(16)));

/* How many of n magnitudes are at least key. */
static uint32_t count_reaching(const float *x, uint32_t n, uint32_t key) {
    four_u32 sum[4] = {{0}};
    uint32_t i = 0;
    for (; i + 4 * WIDE <= n; i += 4 * WIDE)
        for (uint32_t j = 0; j < 4; j++) {
            four_u32 v;
            memcpy(&v, x + i + j * WIDE, sizeof v);
            sum[j] -= (four_u32)((v & FRUGI_ABS_MASK) >= key);
        }
    four_u32 all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    uint32_t reaching = all[0] + all[1] + all[2] + all[3];
    for (; i < n; i++)
        reaching += frugi_magnitude(x[i]) >= key;
    return reaching;
}

/* Claims of the blocks begin .. end - 1 with at most `allowance` ties. Returns how many ties there are. */
static uint64_t claim_blocks(const frugi_span *span, uint32_t block, uint64_t begin, uint64_t end, uint32_t key,
                             uint64_t allowance, uint16_t *claim) {
    uint64_t ties = 0;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t left = span->n - b * block;
        uint32_t n = (uint32_t)(left < block ? left : block);
        const float *x = span->x + b * block;
        uint32_t above = count_reaching(x, n, key + 1), equal = count_reaching(x, n, key) - above;
        uint64_t taken = equal < allowance ? equal : allowance;
        allowance -= taken;
        ties += equal;
        claim[b] = (uint16_t)(above + taken);
    }
    return ties;
}

void frugi_hybrid_claims(const frugi_span *span, uint32_t block, frugi_cutoff *cut, uint16_t *claim, int threads) {
    uint64_t blocks = (span->n + block - 1) / block, ties[SHARES];
    uint64_t shares = threads < 1 ? 1 : (uint64_t)threads < SHARES ? (uint64_t)threads : SHARES;
    shares = shares < blocks ? shares : blocks;
    if (shares == 0)
        return;
    int last = (int)shares;
#pragma omp parallel for num_threads(last) schedule(static, 1) if (last > 1)
    for (int t = 0; t < last; t++) {
        uint64_t i = (uint64_t)t;
        ties[t] = claim_blocks(span, block, blocks * i / shares, blocks * (i + 1) / shares, cut->key, cut->ties, claim);
    }
    for (uint64_t t = 0; t < shares; t++) { /* those after the first did not know how many ties had gone before */
        uint64_t taken = ties[t] < cut->ties ? ties[t] : cut->ties;
        if (t > 0 && taken < ties[t])
            claim_blocks(span, block, blocks * t / shares, blocks * (t + 1) / shares, cut->key, taken, claim);
        cut->ties -= taken;
    }
}

void frugi_hybrid_favour(uint16_t *claim, const uint8_t *often, uint64_t blocks, uint32_t most) {
    uint64_t sum = 0;
    for (uint64_t b = 0; b < blocks; b++)
        sum += often[b] & OFTEN;
    double mean = blocks ? (double)sum / (double)blocks : 0, factor[OFTEN + 1];
    for (uint32_t c = 0; c <= OFTEN; c++) {
        double f = sqrt(((double)c + 1.0) / (mean + 1.0));
        factor[c] = f < 0.5 ? 0.5 : f > 2.0 ? 2.0 : f;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        double scaled = floor((double)claim[b] * factor[often[b] & OFTEN] + 0.5);
        claim[b] = (uint16_t)(scaled < (double)most ? scaled : (double)most);
    }
}

void frugi_hybrid_learn(const uint16_t *count, uint8_t *often, uint64_t blocks, uint64_t step) {
    uint64_t sum = 0;
    for (uint64_t b = 0; b < blocks; b++)
        sum += count[b];
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t c = often[b] & OFTEN;
        c = (uint8_t)(c + (count[b] * blocks > sum && c < OFTEN));
        often[b] = (step + 1) % PERIOD ? c : c >> 1;
    }
}

/* ---- settle ---------------------------------------------------------------------------------- */

/* All blocks of all spans, with their limits. */
typedef struct field {
    const uint64_t *blocks_of;
    const uint32_t *last;
    size_t spans;
    uint32_t block, most;
} field;

static uint32_t limit_of(const field *f, uint32_t length) {
    return length < f->most ? length : f->most;
}

/* Clip counts to their limits. Returns their sum. */
static uint64_t clip(const field *f, uint16_t *count) {
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

/* Play `rounds` rounds in which every block that can takes one (or gives one, if not up), and then one more in which
 * only the first `extra` of them do. Returns the sum of all that full rounds move; moves nothing when `dry`. */
static uint64_t deal(const field *f, uint16_t *count, int up, uint32_t rounds, uint64_t extra, int dry) {
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

void frugi_hybrid_settle(uint16_t *count, const uint64_t *blocks_of, const uint32_t *last, size_t spans, uint32_t block,
                         uint32_t most, uint64_t budget) {
    field f = {blocks_of, last, spans, block, most};
    uint64_t sum = clip(&f, count), moved = 0;
    int up = sum < budget;
    uint64_t gap = up ? budget - sum : sum - budget;
    uint32_t rounds = 0;
    for (uint32_t bit = (uint32_t)1 << 15; bit && gap; bit >>= 1) { /* the most full rounds that the gap allows */
        uint64_t all = deal(&f, count, up, rounds + bit, 0, 1);
        if (all <= gap) {
            rounds += bit;
            moved = all;
        }
    }
    if (gap)
        deal(&f, count, up, rounds, gap - moved, 0);
}
