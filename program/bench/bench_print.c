/* bench_print.c - rows of bench, as a table or as one JSON object per line. */
#include "program/args/args.h"
#include "program/bench/bench.h"
#include "io/json.h"
#include "io/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *seconds, size_t count) {
    double sorted[FGP_BENCH_ROUNDS_MAX];
    memcpy(sorted, seconds, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double minimum(const double *seconds, size_t count) {
    double low = seconds[0];
    for (size_t i = 1; i < count; i++)
        low = seconds[i] < low ? seconds[i] : low;
    return low;
}

static double per_second(double bytes, double seconds) {
    return seconds > 0 ? bytes / seconds / 1e9 : 0;
}

void fgp_bench_print_head(const fgp_bench *bench) {
    struct utsname system;
    const char *isa = frug_isa();
    if (bench->json)
        return;
    printf("frugrad %s on %s, variant %s; %" PRIu64 " elements, gradients: %s, %zu rounds, medians\n\n", frug_version(),
           uname(&system) == 0 ? system.machine : "?", isa ? isa : "?", bench->n, bench->source.name, bench->rounds);
    printf("%-30s %9s %3s %8s %8s %8s %6s %6s %7s %8s %7s %8s  %s\n", "case", "K of B", "thr", "ms", "GB/s", "limit",
           "ratio", "own", "x1 thr", "B/block", "energy", "of exact", "verified");
}

static void text_or_dash(double number, const char *format, char *dst, size_t cap) {
    if (number < 0)
        snprintf(dst, cap, "-");
    else if (strcmp(format, ".") == 0)
        snprintf(dst, cap, "%.3f", number);
    else if (strcmp(format, "%") == 0)
        snprintf(dst, cap, "%.2f%%", 100 * number);
    else
        snprintf(dst, cap, "%.2fx", number);
}

typedef struct figures {
    double ms, ms_min, limit_ms, gbps, limit_gbps, ratio, own_ms, own_ratio, speedup;
} figures;

static figures compute_figures(const fgp_case *which, const fgp_row *row) {
    double time = median(row->seconds, row->rounds), limit = median(row->limit_seconds, row->rounds);
    int two = which->kind == FGP_CASE_COMPRESS && which->threads > 1;
    figures f = {.ms = 1e3 * time, .ms_min = 1e3 * minimum(row->seconds, row->rounds), .limit_ms = 1e3 * limit};
    f.gbps = per_second(row->bytes, time);
    f.limit_gbps = per_second(row->limit_bytes, limit);
    f.ratio = time > 0 ? row->limit_count * limit / time : 0;
    f.own_ms = which->kind == FGP_CASE_COMPRESS ? 1e3 * median(row->own_seconds, row->rounds) : -1;
    f.own_ratio = f.own_ms < 0 || time <= 0 ? -1 : 1e-3 * f.own_ms / time;
    f.speedup = two && time > 0 ? median(row->one_seconds, row->rounds) / time : -1;
    return f;
}

static void print_row(const fgp_bench *bench, const fgp_case *which, const fgp_row *row, const figures *f) {
    char of[32], own[16], speedup[16], energy[16], exact[16];
    double blocks = (double)((bench->n + row->block - 1) / row->block);
    snprintf(of, sizeof of, "%.4g/%" PRIu32, row->k, row->block);
    text_or_dash(f->own_ratio, ".", own, sizeof own);
    text_or_dash(f->speedup, "x", speedup, sizeof speedup);
    text_or_dash(row->energy_kept, "%", energy, sizeof energy);
    text_or_dash(row->energy_vs_exact, "%", exact, sizeof exact);
    printf("%-30s %9s %3d %8.3f %8.2f %8.2f %6.3f %6s %7s %8.1f %7s %8s  %s%s%s\n", which->name, of, which->threads,
           f->ms, f->gbps, f->limit_gbps, f->ratio, own, speedup, row->frame_bytes / blocks, energy, exact,
           row->why[0] ? "NO" : "yes", row->note[0] ? "  " : "", row->note);
}

static json_t *number_or_null(double number) {
    return number < 0 ? json_null() : fgio_json_real(number);
}

static int print_json(const fgp_bench *bench, const fgp_case *which, const fgp_row *row, const figures *f) {
    struct utsname system;
    const char *isa = frug_isa();
    json_t *object =
        json_pack("{s:s, s:I, s:f, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:I, s:o, s:o, s:o, s:b, s:o, "
                  "s:o, s:s, s:I, s:s, "
                  "s:s, s:s}",
                  "case", which->name, "n", (json_int_t)bench->n, "k", row->k, "block", (json_int_t)row->block,
                  "threads", which->threads, "gbps", f->gbps, "limit_gbps", f->limit_gbps, "ratio", f->ratio,
                  "ms_median", f->ms, "ms_min", f->ms_min, "limit_ms_median", f->limit_ms, "own_limit_ms_median",
                  number_or_null(f->own_ms > 0 ? f->own_ms : -1), "own_ratio", number_or_null(f->own_ratio),
                  "frame_bytes", (json_int_t)row->frame_bytes, "energy_kept", number_or_null(row->energy_kept),
                  "energy_vs_exact", number_or_null(row->energy_vs_exact), "speedup", number_or_null(f->speedup),
                  "verified", !row->why[0], "config", fgio_json_text(which->config), "dist",
                  fgio_json_text(bench->source.name), "isa", isa ? isa : "?", "rounds", (json_int_t)row->rounds,
                  "machine", uname(&system) == 0 ? system.machine : "?", "version", frug_version(), "note", row->note);
    return fgio_json_print(object, JSON_COMPACT, stdout);
}

int fgp_bench_print_row(const fgp_bench *bench, const fgp_case *which, const fgp_row *row) {
    figures f = compute_figures(which, row);
    int status = FGIO_EXIT_OK;
    if (bench->json)
        status = print_json(bench, which, row, &f);
    else
        print_row(bench, which, row, &f);
    /* Cases take seconds: flush each row, for terminals and pipes. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return fgio_error("cannot write the results");
    return status;
}
