/*
 * plan_supports.c - supports: which worker sends which indices.
 *
 * Drawn: in every block a share of the entries is the same for all workers, the rest is drawn per worker. Recorded:
 * what the library would send of gradients of one model at different steps, each step used as a worker.
 */
#include "program/bench/bench.h"
#include "program/plan/plan.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256u
#define WORDS (BLOCK / 64u)

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Move `count` random elements of index[first .. BLOCK - 1] to the front. */
static void shuffle(uint8_t *index, uint32_t first, uint32_t count, uint64_t *state) {
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t k = i + (uint32_t)((next_random(state) >> 32) * (BLOCK - i) >> 32);
        uint8_t t = index[i];
        index[i] = index[k];
        index[k] = t;
    }
}

static int allocate_supports(fgp_supports *s, uint64_t elements, uint32_t workers) {
    *s = (fgp_supports){.params = elements, .elements = elements, .workers = workers};
    s->bits = calloc((size_t)workers, (size_t)(elements / 64) * sizeof *s->bits);
    return s->bits ? FGIO_EXIT_OK : fgio_error("no memory for the supports of %u workers", workers);
}

static void draw_block(fgp_supports *s, uint64_t block, uint32_t count, uint32_t common, uint64_t *state) {
    uint8_t index[BLOCK];
    uint64_t words = s->elements / 64;
    for (uint32_t i = 0; i < BLOCK; i++)
        index[i] = (uint8_t)i;
    shuffle(index, 0, common, state);
    for (uint32_t w = 0; w < s->workers; w++) {
        uint64_t *bits = s->bits + w * words + block * WORDS;
        shuffle(index, common, count - common, state);
        for (uint32_t i = 0; i < count; i++)
            bits[index[i] / 64] |= (uint64_t)1 << index[i] % 64;
    }
}

int fgp_supports_draw(fgp_supports *s, uint64_t elements, uint32_t workers, double density, double shared) {
    uint64_t state = 42, taken = 0, alike = 0;
    int status = allocate_supports(s, elements, workers);
    for (uint64_t b = 0; b < elements / BLOCK && status == FGIO_EXIT_OK; b++) {
        /* Cumulative rounding: the number of entries up to here matches the density; likewise the shared ones. */
        uint64_t upto = (uint64_t)(density * BLOCK * (double)(b + 1) + 0.5);
        uint32_t count = (uint32_t)(upto - taken);
        uint64_t alike_upto = (uint64_t)(shared * (double)upto + 0.5);
        uint32_t common = (uint32_t)(alike_upto - alike);
        common = common < count ? common : count;
        draw_block(s, b, count, common, &state);
        taken = upto;
        alike += common;
    }
    return status;
}

/* ---- recorded --------------------------------------------------------------------------- */

static int record_support(const float *grad, const char *config, fgp_supports *s, uint32_t worker, float *decoded) {
    fgp_bench_worker sender = {0};
    uint64_t n = s->elements, *bits = s->bits + worker * (n / 64);
    int status = fgp_worker_open(&sender, config, n, 0);
    if (status == FGIO_EXIT_OK)
        status = fgp_worker_step(&sender, 0, grad);
    const void *frame = sender.frame;
    memset(decoded, 0, (size_t)n * sizeof *decoded);
    if (status == FGIO_EXIT_OK && frug_decode_add(frug_compressor_decoder(sender.compressor), (frug_range){0, n},
                                                  &frame, &sender.len, 1, 1.0f, decoded) != FRUG_OK)
        status = fgio_library_error("cannot decode");
    for (uint64_t i = 0; i < n && status == FGIO_EXIT_OK; i++)
        if (decoded[i] < 0 || decoded[i] > 0) /* sums omit zeros */
            bits[i / 64] |= (uint64_t)1 << i % 64;
    fgp_worker_close(&sender);
    return status;
}

int fgp_supports_record(fgp_supports *s, const char *path, double density) {
    fgp_gradient_source source = {0};
    char config[128];
    float *decoded = NULL;
    snprintf(config, sizeof config, "feedback=none,select=exact,value=f32,density=%.10g%s", density,
             density < FGP_PLAN_LONG_BLOCKS_BELOW ? ",block=4096" : "");
    int status = fgp_source_load(&source, path, 1);
    uint64_t n = source.length / BLOCK * BLOCK; /* a partial last block is ignored */
    if (status == FGIO_EXIT_OK && n < 4096)
        status = fgio_error("%s: %llu elements are too few to count", path, (unsigned long long)source.length);
    if (status == FGIO_EXIT_OK)
        status = allocate_supports(s, n, (uint32_t)source.steps);
    if (status == FGIO_EXIT_OK && !(decoded = malloc((size_t)n * sizeof *decoded)))
        status = fgio_error("no memory for %llu elements", (unsigned long long)n);
    for (uint32_t w = 0; w < source.steps && status == FGIO_EXIT_OK; w++)
        status = record_support(source.recorded + w * source.length, config, s, w, decoded);
    free(decoded);
    fgp_source_close(&source);
    return status;
}
