/*
 * bench_recover.c - `frugrad bench recover`: speed of sparse recovery from measurements.
 *
 * The cases of a size run in turn in every round and solve the same problems: vectors with s entries at random indices,
 * normally distributed, or with the s largest of many, as in a running mean. Results are checked: naive and Batch-OMP
 * find the same indices, residuals are orthogonal to the columns in use, rounds are identical bit for bit, and the
 * implicit matrix recovers as much as the stored one, within noise.
 *
 * Recovery has no public interface of its own, so this is the one file of the program that includes lib/recover.
 */
#include "program/bench/bench_recover.h"
#include "base/clock.h"

#include "program/bench/bench_gradients.h"
#include "program/bench/bench_noise.h"
#include "io/progress.h"
#include "io/error.h"

#include "recover/recover.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CASES 8u

typedef struct recover_case {
    const char *name;
    const char *same_indices_as; /* the case that must find the same indices, or NULL */
    const char *same_rate_as;    /* the case that must find as many, or NULL */
    const char *against;
    frugi_matrix_kind kind;
    frugi_recover_method method;
    uint32_t atoms, wide; /* columns per pass; columns in total, in multiples of s */
} recover_case;

/* A chunk of a compressed 4096 x 32 gradient, the same with the tail of a running mean, one too large for A^T A. */
typedef struct size {
    uint32_t d, s, k;
    uint32_t tail; /* entries besides the s largest, all of a power law; 0: only s, normally distributed */
    uint32_t chunks, quick_chunks;
    recover_case item[MAX_CASES];
    size_t count;
} size;

static const size sizes[] = {
    {2048,
     31,
     217,
     0,
     64,
     8,
     {{"naive", NULL, NULL, "naive", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_NAIVE, 1, 1},
      {"batch", "naive", NULL, "naive", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_GRAM, 1, 1},
      {"gomp4", NULL, NULL, "naive", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_GRAM, 4, 1},
      {"gomp4-wide", NULL, "naive", "naive", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_GRAM, 4, 2},
      {"implicit/batch", NULL, "naive", "naive", FRUGI_MATRIX_HADAMARD, FRUGI_RECOVER_GRAM, 1, 1},
      {"implicit/residual", NULL, "naive", "naive", FRUGI_MATRIX_HADAMARD, FRUGI_RECOVER_RESIDUAL, 1, 1},
      {"implicit/gomp4-wide", NULL, "naive", "naive", FRUGI_MATRIX_HADAMARD, FRUGI_RECOVER_RESIDUAL, 4, 2}},
     7},
    {2048,
     31,
     217,
     400,
     64,
     8,
     {{"tail/batch", NULL, NULL, "tail/batch", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_GRAM, 1, 1},
      {"tail/gomp4", NULL, NULL, "tail/batch", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_GRAM, 4, 1},
      {"tail/gomp4-wide", NULL, NULL, "tail/batch", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_GRAM, 4, 2},
      {"tail/implicit", NULL, "tail/batch", "tail/batch", FRUGI_MATRIX_HADAMARD, FRUGI_RECOVER_RESIDUAL, 1, 1},
      {"tail/implicit/gomp4", NULL, "tail/gomp4", "tail/batch", FRUGI_MATRIX_HADAMARD, FRUGI_RECOVER_RESIDUAL, 4, 1}},
     5},
    {65536,
     31,
     310,
     0,
     8,
     2,
     {{"large/explicit", NULL, NULL, "large/explicit", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_RESIDUAL, 1, 1},
      {"large/implicit", NULL, "large/explicit", "large/explicit", FRUGI_MATRIX_HADAMARD, FRUGI_RECOVER_RESIDUAL, 1, 1},
      {"large/explicit/gomp4", NULL, NULL, "large/explicit/gomp4", FRUGI_MATRIX_GAUSSIAN, FRUGI_RECOVER_RESIDUAL, 4, 2},
      {"large/implicit/gomp4", NULL, "large/explicit/gomp4", "large/explicit/gomp4", FRUGI_MATRIX_HADAMARD,
       FRUGI_RECOVER_RESIDUAL, 4, 2}},
     4},
};

/* A running case. */
typedef struct case_state {
    const recover_case *is;
    const frugi_matrix *a;
    const float *p; /* chunks x k */
    frugi_recover *recover;
    uint32_t *index, *count;
    float *value;
    uint32_t *first_index; /* of the first round */
    float *first_value;
    fgp_recover_row row;
} case_state;

typedef struct bench_state {
    const fgp_recover_bench *run;
    const size *size;
    uint32_t chunks;
    frugi_matrix *matrix[2]; /* by kind */
    float *p[2];
    uint32_t entries; /* of a vector: s and the tail */
    uint32_t *truth;  /* chunks x entries, the s largest first */
    float *value_of_entry;
    case_state *case_state;
} bench_state;

/* ---- set up ----------------------------------------------------------------------------------- */

static void *array(uint64_t count, uint64_t bytes) {
    return aligned_alloc(64, (size_t)((count * bytes + 127) / 64 * 64));
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Random distinct indices for the entries of every chunk. */
static void draw_indices(const bench_state *f) {
    uint64_t random = 0x2545f4914f6cdd1du;
    for (uint32_t c = 0; c < f->chunks; c++) {
        uint32_t *chunk = f->truth + (size_t)c * f->entries;
        for (uint32_t n = 0; n < f->entries;) {
            uint32_t at = (uint32_t)(next_random(&random) >> 24) % f->size->d, i = 0;
            while (i < n && chunk[i] != at)
                i++;
            if (i == n)
                chunk[n++] = at;
        }
    }
}

/* Normal numbers, or with a tail random signs on a decreasing power law. */
static void draw_values(const bench_state *f) {
    fgp_generate_gradient(FGP_DIST_GAUSSIAN, 1, (uint64_t)f->chunks * f->entries, f->value_of_entry);
    for (uint32_t c = 0; c < f->chunks && f->size->tail; c++)
        for (uint32_t i = 0; i < f->entries; i++) {
            float *value_of_entry = &f->value_of_entry[(size_t)c * f->entries + i];
            *value_of_entry = copysignf((float)pow(1.0 + i / 4.0, -1.2), *value_of_entry);
        }
}

static int open_matrix(bench_state *f, frugi_matrix_kind kind) {
    const size *z = f->size;
    frugi_matrix_options plan = {.kind = kind, .k = z->k, .d = z->d, .seed = 1, .threads = f->run->threads};
    f->p[kind] = array((uint64_t)f->chunks * z->k, sizeof(float));
    if (!f->p[kind])
        return fgio_error("no memory for %u chunks", f->chunks);
    if (frugi_matrix_create(&plan, &f->matrix[kind]) != FRUG_OK)
        return fgio_library_error("cannot create a matrix");
    float *work = array(frugi_matrix_span(f->matrix[kind]), sizeof *work);
    if (!work)
        return fgio_error("no memory for %u columns", z->d);
    for (uint32_t c = 0; c < f->chunks; c++)
        frugi_matrix_apply(f->matrix[kind], f->truth + (size_t)c * f->entries,
                           f->value_of_entry + (size_t)c * f->entries, f->entries, work, f->p[kind] + (size_t)c * z->k);
    free(work);
    return FGIO_EXIT_OK;
}

static int open_case(const bench_state *f, const recover_case *is, case_state *c) {
    const size *z = f->size;
    uint64_t entries = (uint64_t)f->chunks * z->s;
    frugi_recover_options plan = {is->method, z->s, is->atoms, is->wide * z->s, 0.0, f->run->threads};
    c->is = is;
    c->a = f->matrix[is->kind];
    c->p = f->p[is->kind];
    c->index = array(entries, sizeof *c->index);
    c->value = array(entries, sizeof *c->value);
    c->first_index = array(entries, sizeof *c->first_index);
    c->first_value = array(entries, sizeof *c->first_value);
    c->count = array(f->chunks, sizeof *c->count);
    if (!c->index || !c->value || !c->first_index || !c->first_value || !c->count)
        return fgio_error("no memory for %u chunks", f->chunks);
    if (frugi_recover_create(c->a, &plan, &c->recover) != FRUG_OK)
        return fgio_library_error("cannot recover");
    c->row = (fgp_recover_row){.name = is->name, .against = is->against, .d = z->d, .s = z->s, .k = z->k};
    c->row.atoms = is->atoms;
    c->row.reach = plan.reach;
    c->row.chunks = f->chunks;
    c->row.matrix_bytes = (double)frugi_matrix_bytes(c->a);
    c->row.work_bytes = (double)frugi_recover_bytes(c->recover);
    return FGIO_EXIT_OK;
}

static int open_bench(bench_state *f) {
    f->truth = array((uint64_t)f->chunks * f->entries, sizeof *f->truth);
    f->value_of_entry = array((uint64_t)f->chunks * f->entries, sizeof *f->value_of_entry);
    f->case_state = calloc(MAX_CASES, sizeof *f->case_state);
    if (!f->truth || !f->value_of_entry || !f->case_state)
        return fgio_error("no memory for %u chunks", f->chunks);
    draw_values(f);
    draw_indices(f);
    int status = open_matrix(f, FRUGI_MATRIX_GAUSSIAN);
    if (status == FGIO_EXIT_OK)
        status = open_matrix(f, FRUGI_MATRIX_HADAMARD);
    for (size_t i = 0; i < f->size->count && status == FGIO_EXIT_OK; i++)
        status = open_case(f, &f->size->item[i], &f->case_state[i]);
    return status;
}

static void close_bench(bench_state *f) {
    for (size_t i = 0; i < MAX_CASES && f->case_state; i++) {
        case_state *c = &f->case_state[i];
        frugi_recover_destroy(c->recover);
        free(c->index), free(c->value), free(c->count), free(c->first_index), free(c->first_value);
    }
    for (int kind = 0; kind < 2; kind++) {
        frugi_matrix_destroy(f->matrix[kind]);
        free(f->p[kind]);
    }
    free(f->truth), free(f->value_of_entry), free(f->case_state);
}

static case_state *find(const bench_state *f, const char *name) {
    for (size_t i = 0; i < f->size->count; i++)
        if (strcmp(f->size->item[i].name, name) == 0)
            return &f->case_state[i];
    return NULL;
}

/* ---- measured --------------------------------------------------------------------------------- */

/* Round 0 is not timed; all others must give the same result. */
static int run_once(const bench_state *f, case_state *c, size_t round) {
    size_t entries = (size_t)f->chunks * f->size->s;
    double start = frugi_clock();
    if (frugi_recover_run(c->recover, c->p, f->chunks, c->index, c->value, c->count) != FRUG_OK)
        return fgio_library_error("cannot recover");
    double seconds = frugi_clock() - start;
    if (round > 0)
        c->row.seconds[round - 1] = seconds;
    if (round == 0) {
        memcpy(c->first_index, c->index, entries * sizeof *c->index);
        memcpy(c->first_value, c->value, entries * sizeof *c->value);
    } else if (memcmp(c->first_index, c->index, entries * sizeof *c->index) != 0 ||
               memcmp(c->first_value, c->value, entries * sizeof *c->value) != 0) {
        snprintf(c->row.wrong, sizeof c->row.wrong, "round %zu differs from the first", round);
    }
    return FGIO_EXIT_OK;
}

static int run_rounds(const bench_state *f) {
    int status = FGIO_EXIT_OK;
    for (size_t round = 0; round <= f->run->rounds && status == FGIO_EXIT_OK; round++)
        for (size_t i = 0; i < f->size->count && status == FGIO_EXIT_OK; i++)
            status = run_once(f, &f->case_state[i], round);
    for (size_t i = 0; i < f->size->count; i++) {
        case_state *c = &f->case_state[i];
        memcpy(c->row.base, find(f, c->is->against)->row.seconds, sizeof c->row.base);
    }
    return status;
}

/* ---- verified --------------------------------------------------------------------------------- */

static void count_found(const bench_state *f, case_state *c) {
    uint32_t s = f->size->s;
    double all = 0, whole = 0;
    for (uint32_t chunk = 0; chunk < f->chunks; chunk++) {
        uint32_t hits = 0;
        for (uint32_t i = 0; i < c->count[chunk]; i++)
            for (uint32_t m = 0; m < s; m++)
                hits += c->index[(size_t)chunk * s + i] == f->truth[(size_t)chunk * f->entries + m];
        all += hits;
        whole += hits == s;
    }
    c->row.overlap = all / ((double)f->chunks * s);
    c->row.exact = whole / f->chunks;
}

/* max |A_S^T (p - A x)| of one chunk, relative to |p|. */
static double orthogonality_error(const bench_state *f, const case_state *c, uint32_t chunk, float *r, float *work,
                                  float *out) {
    uint32_t s = f->size->s, k = f->size->k;
    const uint32_t *index = c->index + (size_t)chunk * s;
    const float *p = c->p + (size_t)chunk * k;
    double squares = 0, most = 0;
    frugi_matrix_apply(c->a, index, c->value + (size_t)chunk * s, c->count[chunk], work, r);
    for (uint32_t t = 0; t < k; t++) {
        squares += (double)p[t] * (double)p[t];
        r[t] = p[t] - r[t];
    }
    frugi_matrix_correlate(c->a, r, 1, out);
    for (uint32_t i = 0; i < c->count[chunk]; i++)
        most = fmax(most, fabs((double)out[index[i]]));
    return most / sqrt(squares);
}

static int check_orthogonal(const bench_state *f, case_state *c) {
    uint64_t span = frugi_matrix_span(c->a), stride = frugi_matrix_stride(c->a);
    float *r = array(stride, sizeof *r), *work = array(2 * span, sizeof *work);
    if (r && work) {
        memset(r, 0, (size_t)stride * sizeof *r);
        for (uint32_t chunk = 0; chunk < f->chunks && !c->row.wrong[0]; chunk++)
            if (!(orthogonality_error(f, c, chunk, r, work, work + span) <= 1e-4))
                snprintf(c->row.wrong, sizeof c->row.wrong, "chunk %u is not a least-squares solution", chunk);
    }
    int status = r && work ? FGIO_EXIT_OK : fgio_error("no memory for a check");
    free(r);
    free(work);
    return status;
}

/* The same indices as another case, or as many within three standard errors of that number of chunks. */
static void compare_cases(const bench_state *f, case_state *c) {
    case_state *same_indices_as = c->is->same_indices_as ? find(f, c->is->same_indices_as) : NULL,
               *same_rate_as = c->is->same_rate_as ? find(f, c->is->same_rate_as) : NULL;
    size_t entries = (size_t)f->chunks * f->size->s;
    if (same_indices_as && memcmp(same_indices_as->index, c->index, entries * sizeof *c->index) != 0)
        snprintf(c->row.wrong, sizeof c->row.wrong, "indices differ from those of %s", c->is->same_indices_as);
    if (!same_rate_as)
        return;
    double mean = (same_rate_as->row.overlap + c->row.overlap) / 2;
    double error = sqrt(2 * (mean * (1 - mean) + 0.002) / f->chunks);
    if (c->row.overlap < same_rate_as->row.overlap - 3 * error)
        snprintf(c->row.wrong, sizeof c->row.wrong, "finds %.3f of the indices, %s %.3f", c->row.overlap,
                 c->is->same_rate_as, same_rate_as->row.overlap);
}

static int verify_and_print(const bench_state *f) {
    int status = FGIO_EXIT_OK, failed = 0;
    for (size_t i = 0; i < f->size->count; i++)
        count_found(f, &f->case_state[i]);
    for (size_t i = 0; i < f->size->count && status == FGIO_EXIT_OK; i++) {
        case_state *c = &f->case_state[i];
        if (f->run->filter && !strstr(c->row.name, f->run->filter))
            continue;
        status = check_orthogonal(f, c);
        compare_cases(f, c);
        if (status == FGIO_EXIT_OK)
            status = fgp_recover_print(f->run, &c->row);
        if (c->row.wrong[0]) {
            fgio_error("case %s does not verify: %s", c->row.name, c->row.wrong);
            failed = 1;
        }
    }
    return status == FGIO_EXIT_OK && failed ? FGIO_EXIT_FAIL : status;
}

/* ---- the command ------------------------------------------------------------------------------ */

static int matches_filter(const fgp_recover_bench *run, const size *z) {
    for (size_t i = 0; i < z->count; i++)
        if (!run->filter || strstr(z->item[i].name, run->filter))
            return 1;
    return 0;
}

static int run_size(const fgp_recover_bench *run, const size *z) {
    bench_state f = {.run = run, .size = z, .chunks = run->quick ? z->quick_chunks : z->chunks};
    f.entries = z->s + z->tail;
    fgio_progress *meter =
        fgio_progress_begin(0, "recovering %zu entries from a chunk of %zu", (size_t)z->s, (size_t)z->d);
    int status = open_bench(&f);
    if (status == FGIO_EXIT_OK)
        status = run_rounds(&f);
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK)
        status = verify_and_print(&f);
    close_bench(&f);
    return status;
}

static int reject_options(const fgp_args *args) {
    static const char *const other[] = {"n", "k", "density", "workers", "dist", "grad", "config"};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (fgp_arg_given(args, other[i]))
            return fgio_usage_error("bench recover takes no --%s", other[i]);
    if (!fgp_arg_given(args, "gradients") && (fgp_arg_given(args, "s") || fgp_arg_given(args, "chunk")))
        return fgio_usage_error("--s and --chunk are for bench recover --gradients");
#ifndef _OPENMP
    if (fgp_arg_given(args, "threads") && strcmp(fgp_arg(args, "threads"), "1") != 0)
        return fgio_usage_error("--threads: this program was built without OpenMP");
#endif
    return FGIO_EXIT_OK;
}

static int read_run(const fgp_args *args, fgp_recover_bench *run) {
    uint64_t rounds = 7, threads = 1;
    int status = FGIO_EXIT_OK;
    run->quick = fgp_arg_given(args, "quick");
    run->json = fgp_arg_given(args, "json");
    run->filter = fgp_arg(args, "case");
    rounds = run->quick ? 2 : rounds;
    if (fgp_arg_given(args, "rounds"))
        status = fgp_arg_u64(args, "rounds", 1, FGP_RECOVER_ROUNDS_MAX, &rounds);
    if (status == FGIO_EXIT_OK && fgp_arg_given(args, "threads"))
        status = fgp_arg_u64(args, "threads", 1, 1024, &threads);
    run->rounds = (size_t)rounds;
    run->threads = (int)threads;
    return status;
}

int fgp_bench_recover(const fgp_args *args) {
    fgp_recover_bench run = {0};
    int status = reject_options(args), any = 0, failed = 0;
    if (status == FGIO_EXIT_OK && fgp_arg_given(args, "gradients"))
        return fgp_bench_gradients(args);
    if (status == FGIO_EXIT_OK)
        status = read_run(args, &run);
    if (status != FGIO_EXIT_OK)
        return status;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        any |= matches_filter(&run, &sizes[i]);
    if (!any)
        return fgio_usage_error("no case has '%s' in its name", run.filter);
    fgp_recover_print_head(&run);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (matches_filter(&run, &sizes[i]))
            failed |= run_size(&run, &sizes[i]);
    return failed ? FGIO_EXIT_FAIL : FGIO_EXIT_OK;
}
