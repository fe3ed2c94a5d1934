/* bench_recover_print.c - results of `frugrad bench recover`, as a table or as one JSON object per line. */
#include "program/bench/bench_recover.h"

#include "frugrad.h"
#include "io/json.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers. */
static double median(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_doubles);
    return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static const char *machine(void) {
    static struct utsname system;
    return uname(&system) == 0 ? system.machine : "?";
}

void fgp_recover_print_head(const fgp_recover_bench *run) {
    if (run->json)
        return;
    printf("frugrad %s on %s; sparse recovery, %d threads, %zu rounds, medians\n\n", frug_version(), machine(),
           run->threads, run->rounds);
    printf("%-24s %6s %4s %4s %5s %6s %10s %8s %-22s %7s %7s %10s %10s  %s\n", "case", "d", "s", "k", "atoms", "reach",
           "ms/chunk", "faster", "than", "found", "exact", "matrix", "work", "verified");
}

static int print_json(const fgp_recover_bench *run, const fgp_recover_row *row, double ms, double faster) {
    return fgio_json_print(
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s, s:o, s:o, s:I, s:I, s:b, s:i, s:I, s:s, s:s}",
                  "recover", row->name, "d", (json_int_t)row->d, "s", (json_int_t)row->s, "k", (json_int_t)row->k,
                  "atoms", (json_int_t)row->atoms, "reach", (json_int_t)row->reach, "chunks", (json_int_t)row->chunks,
                  "ms_chunk", fgio_json_real(ms), "faster", fgio_json_real(faster), "than", row->against, "found",
                  fgio_json_real(row->overlap), "exact", fgio_json_real(row->exact), "matrix_bytes",
                  (json_int_t)row->matrix_bytes, "work_bytes", (json_int_t)row->work_bytes, "verified", !row->wrong[0],
                  "threads", run->threads, "rounds", (json_int_t)run->rounds, "machine", machine(), "version",
                  frug_version()),
        JSON_COMPACT, stdout);
}

int fgp_recover_print(const fgp_recover_bench *run, const fgp_recover_row *row) {
    double number[FGP_RECOVER_ROUNDS_MAX];
    char matrix[32], work[32];
    int status = FGIO_EXIT_OK;
    for (size_t i = 0; i < run->rounds; i++)
        number[i] = row->seconds[i] > 0 ? row->base[i] / row->seconds[i] : 0;
    double faster = median(number, run->rounds);
    memcpy(number, row->seconds, run->rounds * sizeof *number);
    double ms = 1e3 * median(number, run->rounds) / row->chunks;
    if (run->json)
        status = print_json(run, row, ms, faster);
    else
        printf("%-24s %6u %4u %4u %5u %6u %10.4f %7.2fx %-22s %7.3f %7.3f %10s %10s  %s\n", row->name, row->d, row->s,
               row->k, row->atoms, row->reach, ms, faster, row->against, row->overlap, row->exact,
               fgio_bytes_text((uint64_t)row->matrix_bytes, matrix, sizeof matrix),
               fgio_bytes_text((uint64_t)row->work_bytes, work, sizeof work), row->wrong[0] ? "NO" : "yes");
    if (fflush(stdout) != 0 || ferror(stdout))
        return fgio_error("cannot write the results");
    return status;
}
