/*
 * plan_simulate.c - counts the bytes that each algorithm sends, and compares them with the formulas.
 *
 * Only supports matter for bytes, so a worker is one bit per element and a sum is an OR. Frames of sums are measured as
 * the library writes them: f32 values, and the shorter of a bitmap and Rice-coded gaps. The supports are those of a
 * part of the model, large enough for averages.
 */
#include "io/json.h"
#include "io/progress.h"
#include "program/plan/plan.h"
#include "program/args/quantity.h"
#include "io/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD      144u /* bytes: header of a frame and of a section in it */
#define ELEMENTS  ((uint64_t)1 << 18)
#define WORKERS   1024u
#define SIZES_MAX 16u

/* ---- frames of sums ---------------------------------------------------------------------- */

static uint64_t popcount(const uint64_t *bits, uint64_t words) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < words; i++)
        n += (uint64_t)__builtin_popcountll(bits[i]);
    return n;
}

/* Size in bits with the best of three Rice parameters around the optimum for `kept` entries. */
static uint64_t rice_bits(const uint64_t *bits, uint64_t words, uint64_t kept) {
    uint32_t k = 0;
    uint64_t high[3] = {0}, next = 0, best = UINT64_MAX;
    while (k < 31 && kept << k < 64 * words)
        k++;
    k = k < 2 ? 0 : k - 2;
    for (uint64_t i = 0; i < words; i++)
        for (uint64_t left = bits[i]; left; left &= left - 1) {
            uint64_t at = 64 * i + (uint64_t)__builtin_ctzll(left), gap = at - next;
            for (uint32_t c = 0; c < 3; c++)
                high[c] += gap >> (k + c);
            next = at + 1;
        }
    for (uint32_t c = 0; c < 3; c++) {
        uint64_t all = kept * (1 + k + c) + high[c];
        best = all < best ? all : best;
    }
    return best;
}

/* Without headers, which count for the whole model and not for this part. */
static double sum_bytes(const uint64_t *bits, uint64_t words) {
    uint64_t kept = popcount(bits, words), bitmap = 8 * words, rice;
    if (!kept)
        return 0;
    rice = (rice_bits(bits, words, kept) + 7) / 8;
    uint64_t sparse = 4 * kept + (rice < bitmap ? rice : bitmap), raw = 4 * 64 * words;
    return (double)(sparse < raw ? sparse : raw);
}

static void or_into(uint64_t *into, const uint64_t *from, uint64_t words) {
    for (uint64_t i = 0; i < words; i++)
        into[i] |= from[i];
}

/* ---- the algorithms ------------------------------------------------------------------------ */

/* Bytes of sums that a worker receives, on average, in the exchanges of sums of 2, 4, 8, ... workers. Overwrites sums.
 */
static double count_tree(uint64_t *sums, uint64_t words, uint32_t workers) {
    double bytes = 0;
    for (uint32_t m = 1; m < workers; m *= 2) {
        double round = 0;
        for (uint32_t g = 0; g < workers && m > 1; g += m) /* the first messages are not sums */
            round += sum_bytes(sums + g * words, words);
        bytes += round * m / workers;
        for (uint32_t g = 0; g < workers; g += 2 * m)
            or_into(sums + g * words, sums + (g + m) * words, words);
    }
    return bytes;
}

/* Bytes of the union that all shards return, and so what a worker receives: all but its own shard. */
static double count_union(const uint64_t *all, uint64_t words, uint32_t workers) {
    double bytes = 0;
    uint64_t blocks = words / 4;
    for (uint32_t o = 0; o < workers; o++) {
        uint64_t first = 4 * (blocks * o / workers), last = 4 * (blocks * (o + 1) / workers);
        bytes += sum_bytes(all + first, last - first);
    }
    return bytes * (workers - 1) / workers;
}

static int predict(fgp_byte_count *t, const char *name, const char *algorithm, const frug_cost_inputs *scene,
                   double counted) {
    frug_cost_estimate f = {.struct_size = sizeof f};
    if (frug_cost_predict(algorithm, scene, &f) != FRUG_OK)
        return fgio_library_error("plan");
    *t = (fgp_byte_count){name, scene->workers, counted, f.bytes_received / (double)scene->params};
    return FGIO_EXIT_OK;
}

int fgp_count_bytes(const fgp_supports *s, uint32_t workers, double payload, double down, fgp_byte_count *tally) {
    uint64_t words = s->elements / 64;
    double n = (double)s->elements, p = workers, head = HEAD / (double)s->params, others = p - 1;
    uint64_t *sums = malloc(workers * words * sizeof *sums);
    int status;
    if (!sums)
        return fgio_error("no memory for the sums of %u workers", workers);
    memcpy(sums, s->bits, workers * words * sizeof *sums);
    frug_cost_inputs scene = FRUG_COST_INPUTS_INIT;
    scene.params = s->params;
    scene.workers = workers;
    scene.density = (double)popcount(sums, workers * words) / (p * n);
    scene.payload = payload * (double)s->params;
    uint32_t rounds = 0;
    while (2u << rounds <= workers)
        rounds++;
    double tree = payload + count_tree(sums, words, workers) / n + (rounds - 1) * head;
    double all = count_union(sums, words, workers) / n + others * head;
    free(sums);
    /* Every block of a worker's frame has the same size, so these need no counting. */
    double up = others * (payload / p + head), twice = others * (down / p + head);
    if ((status = predict(&tally[0], "gather", "gather", &scene, others * payload)) ||
        (status = predict(&tally[1], "tree", "tree", &scene, tree)) ||
        (status = predict(&tally[2], "split:union", "split", &scene, up + all)))
        return status;
    scene.down = 1;
    if ((status = predict(&tally[3], "split:1", "split", &scene, 2 * up)))
        return status;
    scene.down = 2;
    scene.payload_down = down * (double)s->params;
    return predict(&tally[4], "split:2", "split", &scene, up + twice);
}

/* ---- the command --------------------------------------------------------------------------- */

typedef struct counts {
    fgp_byte_count tally[SIZES_MAX * FGP_COUNTED_ALGORITHMS];
    size_t sizes; /* numbers of workers */
} counts;

static void print_tables(const counts *c) {
    printf("  %-8s", "workers");
    for (size_t k = 0; k < FGP_COUNTED_ALGORITHMS; k++)
        printf("  %-24s", c->tally[k].algorithm);
    printf("\n  %-8s", "");
    for (size_t k = 0; k < FGP_COUNTED_ALGORITHMS; k++)
        printf("  %8s %8s %6s", "counted", "formula", "ratio");
    printf("\n");
    for (size_t i = 0; i < c->sizes; i++) {
        const fgp_byte_count *t = &c->tally[i * FGP_COUNTED_ALGORITHMS];
        printf("  %-8u", t->workers);
        for (size_t k = 0; k < FGP_COUNTED_ALGORITHMS; k++)
            printf("  %8.4f %8.4f %6.3f", t[k].counted, t[k].predicted, t[k].counted / t[k].predicted);
        printf("\n");
    }
}

static int print_json(const counts *c, const char *source, const fgp_speed *speed) {
    json_t *rows = json_array();
    for (size_t i = 0; i < c->sizes * FGP_COUNTED_ALGORITHMS; i++) {
        const fgp_byte_count *t = &c->tally[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:I, s:f, s:f}", "algorithm", t->algorithm, "workers",
                                        (json_int_t)t->workers, "counted", t->counted, "predicted", t->predicted));
    }
    return fgio_json_print(json_pack("{s:o, s:s, s:f, s:f, s:o}", "supports", fgio_json_text(source), "config",
                                     speed->config, "density", speed->density, "payload_per_param", speed->payload,
                                     "bytes_received_per_param", rows),
                           JSON_INDENT(2), stdout);
}

static int create_supports(const fgp_args *args, const fgp_speed *speed, uint32_t workers, fgp_supports *s,
                           char *source, size_t cap) {
    double shared = 0;
    const char *path = fgp_arg(args, "grad");
    int status = fgp_arg_quantity(args, "shared", FGP_MEASURE_SHARE, 0, 1, &shared);
    if (status != FGIO_EXIT_OK)
        return status;
    if (path && fgp_arg_given(args, "shared"))
        return fgio_usage_error("plan: --grad and --shared exclude each other; give one of them");
    if (path)
        snprintf(source, cap, "recorded steps of %s, each as a worker", path);
    else
        snprintf(source, cap, "drawn at random, %.4g %% shared by all workers", 100 * shared);
    return path ? fgp_supports_record(s, path, speed->density)
                : fgp_supports_draw(s, ELEMENTS, workers, speed->density, shared);
}

static int print_results(const fgp_args *args, const counts *c, const char *source, const fgp_speed *speed) {
    const char *svg = fgp_arg(args, "svg");
    int status = FGIO_EXIT_OK;
    if (fgp_arg_given(args, "json")) {
        status = print_json(c, source, speed);
    } else {
        char safe[400];
        printf("\nBytes that a worker receives, per parameter; density %.4g %%, frames of %.4g bytes a parameter\n"
               "Supports: %s\n\n",
               100 * speed->density, speed->payload, fgio_printable(source, safe, sizeof safe));
        print_tables(c);
    }
    if (status == FGIO_EXIT_OK && svg)
        status = fgp_plan_svg(svg, c->tally, c->sizes * FGP_COUNTED_ALGORITHMS);
    return status;
}

int fgp_plan_simulate(const fgp_args *args, uint64_t params, const fgp_speed *speed) {
    static counts c;
    uint64_t most = WORKERS;
    fgp_supports supports = {0};
    char source[400];
    int status = FGIO_EXIT_OK;
    if (fgp_arg_given(args, "workers"))
        status = fgp_arg_u64(args, "workers", 2, 16384, &most);
    if (status == FGIO_EXIT_OK)
        status = create_supports(args, speed, (uint32_t)most, &supports, source, sizeof source);
    if (status == FGIO_EXIT_OK && fgp_arg(args, "grad") && !fgp_arg_given(args, "workers"))
        most = supports.workers;
    if (status == FGIO_EXIT_OK && most > supports.workers)
        status = fgio_error("plan: %u recorded steps are too few for %llu workers", supports.workers,
                            (unsigned long long)most);
    supports.params = fgp_arg(args, "grad") ? supports.elements : params;
    c.sizes = 0;
    fgio_progress *meter = fgio_progress_begin(0, "counting bytes for up to %" PRIu64 " workers", most);
    for (uint32_t p = most < 8 || fgp_arg(args, "grad") ? 2 : 8; p <= most && status == FGIO_EXIT_OK; p *= 2)
        status = fgp_count_bytes(&supports, p, speed->payload, speed->down_two,
                                 &c.tally[c.sizes++ * FGP_COUNTED_ALGORITHMS]);
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK)
        status = print_results(args, &c, source, speed);
    free(supports.bits);
    return status;
}
