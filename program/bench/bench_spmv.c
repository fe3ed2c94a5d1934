/*
 * bench_spmv.c - `frugrad bench spmv`: the matrix products of one decoded token of GPT-2 small, with packed weights and
 * with dense ones by OpenBLAS, in turn. Weights are random; they are pruned by magnitude, as far as speed is concerned
 * at random. All of them together exceed every cache, as in decoding. Cases with "inputs" have dense weights by columns
 * and vectors of which that share is zero, but for the last layer, whose inputs no threshold is applied to.
 *
 * Verified: what was packed is what was pruned, and every product against sums in double.
 */
#include "program/bench/bench_spmv.h"

#include "base/float_bits.h"
#include "frugrad/sparse.h"
#include "io/error.h"
#include "io/json.h"
#include "io/progress.h"
#include "trainer/base/blas.h"
#include "trainer/base/keyed_random.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

enum { WIDTH = 768, LAYERS = 12, VOCAB = 50257, MATRICES_MOST = 4 * LAYERS + 1, ROUNDS_MAX = 1000, BATCH_MOST = 8 };

typedef struct shape {
    uint32_t rows, cols;
} shape;

/** What is packed, and multiplied by how many vectors. */
typedef struct spmv_case {
    const char *name;
    double sparsity; /* 0.5: two of every four */
    frug_sparse_code code;
    size_t vectors;
    bool inputs; /* the sparsity is that of the vector, and weights are dense */
} spmv_case;

static const spmv_case cases[] = {
    {"f32/0.8", 0.8, FRUG_SPARSE_F32, 1, false},        {"f32/0.9", 0.9, FRUG_SPARSE_F32, 1, false},
    {"f32/2:4", 0.5, FRUG_SPARSE_F32, 1, false},        {"int8/0.8", 0.8, FRUG_SPARSE_INT8, 1, false},
    {"int8/0.9", 0.9, FRUG_SPARSE_INT8, 1, false},      {"int8/2:4", 0.5, FRUG_SPARSE_INT8, 1, false},
    {"f32/0.8/n=8", 0.8, FRUG_SPARSE_F32, 8, false},    {"int8/0.8/n=8", 0.8, FRUG_SPARSE_INT8, 8, false},
    {"f32/inputs/0", 0, FRUG_SPARSE_F32, 1, true},      {"f32/inputs/.25", 0.25, FRUG_SPARSE_F32, 1, true},
    {"f32/inputs/.4", 0.4, FRUG_SPARSE_F32, 1, true},   {"f32/inputs/.5", 0.5, FRUG_SPARSE_F32, 1, true},
    {"int8/inputs/0", 0, FRUG_SPARSE_INT8, 1, true},    {"int8/inputs/.25", 0.25, FRUG_SPARSE_INT8, 1, true},
    {"int8/inputs/.4", 0.4, FRUG_SPARSE_INT8, 1, true}, {"int8/inputs/.5", 0.5, FRUG_SPARSE_INT8, 1, true},
};

typedef struct spmv_bench {
    shape item[MATRICES_MOST];
    size_t count;
    float *dense[MATRICES_MOST];
    frug_sparse *packed[MATRICES_MOST];
    float *pruned; /* of the largest matrix */
    float *x, *y;
    float *thinned; /* the first vector, with zeros */
    void *work;
    size_t rounds;
    int json;
    double seconds[ROUNDS_MAX], base[ROUNDS_MAX];
} spmv_bench;

/* ---- the weights -------------------------------------------------------------------------------- */

static float uniform(uint64_t stream, uint64_t i) {
    return (float)((double)(fgt_random(1, stream, i) >> 11) * 0x1p-52 - 1.0);
}

static void add_matrix(spmv_bench *b, uint32_t rows, uint32_t cols) {
    b->item[b->count++] = (shape){rows, cols};
}

static int open_bench(spmv_bench *b, int quick) {
    for (int layer = 0; layer < (quick ? 1 : LAYERS); layer++) {
        add_matrix(b, 3 * WIDTH, WIDTH);
        add_matrix(b, WIDTH, WIDTH);
        add_matrix(b, 4 * WIDTH, WIDTH);
        add_matrix(b, WIDTH, 4 * WIDTH);
    }
    add_matrix(b, quick ? VOCAB / 16 : VOCAB, WIDTH);
    size_t largest = 0;
    for (size_t i = 0; i < b->count; i++) {
        size_t n = (size_t)b->item[i].rows * b->item[i].cols;
        largest = n > largest ? n : largest;
        if ((b->dense[i] = malloc(n * sizeof(float))) == NULL)
            return fgio_error("no memory for the weights of GPT-2");
        for (size_t j = 0; j < n; j++)
            b->dense[i][j] = uniform(i, j);
    }
    b->pruned = malloc(largest * sizeof(float));
    b->x = malloc(BATCH_MOST * 4 * WIDTH * sizeof(float));
    b->thinned = malloc(4 * WIDTH * sizeof(float));
    b->y = malloc((size_t)BATCH_MOST * VOCAB * sizeof(float));
    b->work = aligned_alloc(64, 16 * 4 * WIDTH * sizeof(float) + 64);
    if (!b->pruned || !b->x || !b->thinned || !b->y || !b->work)
        return fgio_error("no memory for the weights of GPT-2");
    for (size_t i = 0; i < BATCH_MOST * 4 * WIDTH; i++)
        b->x[i] = uniform(MATRICES_MOST, i);
    return FGIO_EXIT_OK;
}

static void destroy_packed(spmv_bench *b) {
    for (size_t i = 0; i < b->count; i++) {
        frug_sparse_destroy(b->packed[i]);
        b->packed[i] = NULL;
    }
}

static void close_bench(spmv_bench *b) {
    destroy_packed(b);
    for (size_t i = 0; i < b->count; i++)
        free(b->dense[i]);
    free(b->pruned);
    free(b->x);
    free(b->thinned);
    free(b->y);
    free(b->work);
}

/* Magnitude of weight i of four; ties go to the lower index. */
static uint64_t magnitude_key(const float *four, size_t i) {
    return (uint64_t)frugi_magnitude(four[i]) << 2 | (3 - i);
}

/* Whether weight i of four is one of the two largest. */
static int among_two(const float *four, size_t i) {
    int larger = 0;
    for (size_t j = 0; j < 4; j++)
        larger += magnitude_key(four, j) > magnitude_key(four, i);
    return larger < 2;
}

static void prune(const spmv_bench *b, size_t matrix, double sparsity) {
    const float *w = b->dense[matrix];
    size_t n = (size_t)b->item[matrix].rows * b->item[matrix].cols;
    for (size_t i = 0; i < n; i++) {
        int selected = sparsity > 0.5 ? fabs((double)w[i]) >= sparsity : among_two(w + i / 4 * 4, i % 4);
        b->pruned[i] = selected ? w[i] : 0.0f;
    }
}

static void thin_inputs(spmv_bench *b, const spmv_case *c) {
    for (size_t i = 0; i < 4 * WIDTH; i++)
        b->thinned[i] = c->inputs && fabs((double)b->x[i]) < c->sparsity ? 0.0f : b->x[i];
}

/* The vectors that a matrix is multiplied by. */
static const float *inputs_of(const spmv_bench *b, size_t i, size_t vectors) {
    return vectors == 1 && i + 1 < b->count ? b->thinned : b->x;
}

/* ---- verified ----------------------------------------------------------------------------------- */

/* int8: half a step of the weights. */
static int packed_as_pruned(const spmv_case *c, const float *pruned, const float *row, uint32_t cols) {
    double most = (double)frugi_bits_f32(frugi_largest_magnitude(pruned, cols));
    for (uint32_t i = 0; i < cols; i++)
        if (!(fabs((double)row[i] - (double)pruned[i]) <= (c->code == FRUG_SPARSE_INT8 ? 0.5001 * most / 127 : 0.0)))
            return 0;
    return 1;
}

/* Rounding of f32 sums, far below 2^-16 of the sum of magnitudes; with one int8 vector also that of the vector, below
 * 2^-16 of its largest element. */
static int products_agree(const spmv_bench *b, const spmv_case *c, size_t matrix, uint32_t r, const float *row) {
    const shape *s = &b->item[matrix];
    for (size_t v = 0; v < c->vectors; v++) {
        const float *x = inputs_of(b, matrix, c->vectors) + v * s->cols;
        double sum = 0, magnitude = 0;
        for (uint32_t i = 0; i < s->cols; i++) {
            double product = (double)row[i] * (double)x[i];
            sum += product;
            magnitude += fabs(product) + fabs((double)row[i]);
        }
        if (!(fabs((double)b->y[v * s->rows + r] - sum) <= 0x1p-16 * magnitude))
            return 0;
    }
    return 1;
}

static void multiply_dense(const spmv_bench *b, size_t i, size_t vectors) {
    const shape *s = &b->item[i];
    if (vectors == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)s->rows, (blasint)s->cols, 1.0f, b->dense[i],
                    (blasint)s->cols, b->x, 1, 0.0f, b->y, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)vectors, (blasint)s->rows, (blasint)s->cols, 1.0f,
                    b->x, (blasint)s->cols, b->dense[i], (blasint)s->cols, 0.0f, b->y, (blasint)s->rows);
}

/* The last layer of weights by columns stays dense where it is f32: all its inputs count. */
static void multiply_packed(const spmv_bench *b, size_t i, size_t vectors) {
    if (b->packed[i] == NULL) {
        multiply_dense(b, i, vectors);
        return;
    }
    frug_sparse_multiply(b->packed[i], 1, inputs_of(b, i, vectors), vectors, b->item[i].cols, b->y, b->item[i].rows,
                         b->work);
}

static frug_status pack_matrix(spmv_bench *b, const spmv_case *c, size_t i) {
    const shape *s = &b->item[i];
    if (c->inputs) {
        memcpy(b->pruned, b->dense[i], (size_t)s->rows * s->cols * sizeof(float));
        return frug_sparse_create_columns(b->pruned, s->rows, s->cols, 0, c->code, &b->packed[i]);
    }
    prune(b, i, c->sparsity);
    return frug_sparse_create(b->pruned, s->rows, s->cols, 0, c->code, &b->packed[i]);
}

/* Packs all matrices and verifies them; *bytes: their memory. */
static int pack_all(spmv_bench *b, const spmv_case *c, uint64_t *bytes, int *verified) {
    float row[4 * WIDTH];
    *bytes = 0;
    *verified = 1;
    thin_inputs(b, c);
    for (size_t i = 0; i < b->count; i++) {
        const shape *s = &b->item[i];
        frug_sparse_info info = {.struct_size = sizeof info};
        if (c->inputs && c->code == FRUG_SPARSE_F32 && i + 1 == b->count) {
            *bytes += (uint64_t)s->rows * s->cols * sizeof(float);
            continue;
        }
        if (pack_matrix(b, c, i) != FRUG_OK || frug_sparse_get_info(b->packed[i], &info) != FRUG_OK)
            return fgio_library_error("cannot pack");
        *bytes += info.bytes;
        multiply_packed(b, i, c->vectors);
        for (uint32_t r = 0; r < s->rows && *verified; r++) {
            frug_sparse_unpack(b->packed[i], r, 1, row);
            *verified =
                packed_as_pruned(c, b->pruned + (size_t)r * s->cols, row, s->cols) && products_agree(b, c, i, r, row);
        }
    }
    return FGIO_EXIT_OK;
}

/* ---- measured ----------------------------------------------------------------------------------- */

/* CPU time of this thread, which other processes hardly change. */
static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_pass(const spmv_bench *b, size_t vectors,
                        void (*multiply)(const spmv_bench *b, size_t i, size_t vectors)) {
    double start = thread_seconds();
    for (size_t i = 0; i < b->count; i++)
        multiply(b, i, vectors);
    return thread_seconds() - start;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers. */
static double median(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_doubles);
    return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static int print_case(spmv_bench *b, const spmv_case *c, uint64_t bytes, int verified) {
    struct utsname system;
    double ratio[ROUNDS_MAX];
    uint64_t elements = 0;
    for (size_t i = 0; i < b->count; i++)
        elements += (uint64_t)b->item[i].rows * b->item[i].cols;
    for (size_t i = 0; i < b->rounds; i++)
        ratio[i] = b->base[i] / b->seconds[i];
    double faster = median(ratio, b->rounds), ms = 1e3 * median(b->seconds, b->rounds),
           dense = 1e3 * median(b->base, b->rounds), share = (double)bytes / (4.0 * (double)elements);
    if (!b->json) {
        printf("%-15s %4zu %10.3f %10.3f %7.2fx %8.3f  %s\n", c->name, c->vectors, dense, ms, faster, share,
               verified ? "yes" : "NO");
        return fflush(stdout) == 0 ? FGIO_EXIT_OK : fgio_error("cannot write the results");
    }
    return fgio_json_print(json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:b, s:I, s:s, s:s, s:s}", "spmv", c->name,
                                     "vectors", (json_int_t)c->vectors, "elements", (json_int_t)elements, "dense_ms",
                                     fgio_json_real(dense), "ms", fgio_json_real(ms), "faster", fgio_json_real(faster),
                                     "memory", fgio_json_real(share), "verified", verified, "rounds",
                                     (json_int_t)b->rounds, "isa", frug_isa(), "machine",
                                     uname(&system) == 0 ? system.machine : "?", "version", frug_version()),
                           JSON_COMPACT, stdout);
}

static int run_case(spmv_bench *b, const spmv_case *c) {
    uint64_t bytes = 0;
    int verified = 0;
    fgio_progress *meter = fgio_progress_begin(0, "case %s", c->name);
    int status = pack_all(b, c, &bytes, &verified);
    for (size_t round = 0; round <= b->rounds && status == FGIO_EXIT_OK; round++) {
        size_t at = round > 0 ? round - 1 : 0; /* the first round is not counted */
        b->base[at] = time_pass(b, c->vectors, multiply_dense);
        b->seconds[at] = time_pass(b, c->vectors, multiply_packed);
    }
    fgio_progress_end(meter);
    destroy_packed(b);
    if (status == FGIO_EXIT_OK)
        status = print_case(b, c, bytes, verified);
    if (status == FGIO_EXIT_OK && !verified)
        status = fgio_error("case %s does not verify", c->name);
    return status;
}

/* ---- the command -------------------------------------------------------------------------------- */

static int read_options(const fgp_args *args, spmv_bench *b) {
    static const char *const other[] = {"n",    "k",         "density", "threads", "workers", "dist",
                                        "grad", "gradients", "s",       "chunk",   "config"};
    uint64_t rounds = fgp_arg_given(args, "quick") ? 3 : 15;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (fgp_arg_given(args, other[i]))
            return fgio_usage_error("bench spmv takes no --%s", other[i]);
    int status = fgp_arg_given(args, "rounds") ? fgp_arg_u64(args, "rounds", 1, ROUNDS_MAX, &rounds) : FGIO_EXIT_OK;
    b->rounds = (size_t)rounds;
    b->json = fgp_arg_given(args, "json");
    return status;
}

int fgp_bench_spmv(const fgp_args *args) {
    const char *filter = fgp_arg(args, "case");
    int found = 0;
    spmv_bench *b = calloc(1, sizeof *b);
    if (b == NULL)
        return fgio_error("no memory for the results");
    int status = read_options(args, b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        found += !filter || strstr(cases[i].name, filter);
    if (status == FGIO_EXIT_OK && !found)
        status = fgio_usage_error("no case has '%s' in its name", filter);
    if (status == FGIO_EXIT_OK)
        status = fgt_blas_init(1);
    if (status == FGIO_EXIT_OK)
        status = open_bench(b, fgp_arg_given(args, "quick"));
    if (status == FGIO_EXIT_OK && !b->json)
        printf("frugrad %s; one token of GPT-2 small, one thread, %zu rounds, medians\n\n%-15s %4s %10s %10s %8s %8s  "
               "%s\n",
               frug_version(), b->rounds, "case", "n", "dense ms", "ms", "faster", "memory", "verified");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && status == FGIO_EXIT_OK; i++)
        if (!filter || strstr(cases[i].name, filter))
            status = run_case(b, &cases[i]);
    close_bench(b);
    free(b);
    return status;
}
