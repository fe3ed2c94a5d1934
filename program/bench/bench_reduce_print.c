/* bench_reduce_print.c - results of `frugrad bench reduce`, as a table or as one JSON object per line. */
#include "program/bench/bench_reduce.h"

#include "program/args/args.h"
#include "io/json.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

typedef struct figures {
    double ms, minimum; /* of an exchange */
    double speedup;     /* time of the dense exchange over it; median of the rounds' ratios */
    double ideal;       /* bytes of the dense exchange over its own */
} figures;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers. */
static double median(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_doubles);
    return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static figures compute_figures(const fgp_reduce_run *run, const fgp_reduce_row *dense, const fgp_reduce_row *row) {
    double number[FGP_REDUCE_ROUNDS_MAX];
    figures f = {0};
    for (size_t i = 0; i < run->rounds; i++)
        number[i] = row->seconds[i] > 0 ? dense->seconds[i] / row->seconds[i] : 0;
    f.speedup = median(number, run->rounds);
    memcpy(number, row->seconds, run->rounds * sizeof *number);
    f.ms = 1e3 * median(number, run->rounds);
    f.minimum = 1e3 * number[0];
    f.ideal = row->sent > 0 ? dense->sent / row->sent : 0;
    return f;
}

static const char *verified_text(const fgp_reduce_row *row) {
    return row->wrong[0] ? "NO" : row->compared ? "yes, by hand" : "yes";
}

static const char *machine(void) {
    static struct utsname system;
    return uname(&system) == 0 ? system.machine : "?";
}

static void print_text(const fgp_reduce_row *row, figures f) {
    char sent[32];
    if (row->skipped[0]) {
        printf("%-10s skipped: %s\n", row->name, row->skipped);
        return;
    }
    printf("%-10s %9.2f %8.2fx %11s %9.2fx %7.0f%% %9.2f %8.2f %8.2f %8.2f  %s\n", row->name, f.ms, f.speedup,
           fgio_bytes_text((uint64_t)row->sent, sent, sizeof sent), f.ideal,
           f.ideal > 0 ? 100 * f.speedup / f.ideal : 0, 1e3 * row->compress, 1e3 * row->wait, 1e3 * row->wire,
           1e3 * row->decode, verified_text(row));
}

static int print_json(const fgp_reduce_run *run, const char *transport, const fgp_reduce_row *row, figures f) {
    json_t *line;
    if (row->skipped[0])
        line = json_pack("{s:s, s:i, s:s, s:o}", "reduce", row->name, "workers", run->workers, "transport", transport,
                         "skipped", fgio_json_text(row->skipped));
    else
        line = json_pack(
            "{s:s, s:i, s:s, s:I, s:f, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:s, s:i, s:i, s:s, "
            "s:s}",
            "reduce", row->name, "workers", run->workers, "transport", transport, "n", (json_int_t)run->n, "density",
            run->density, "ms_median", fgio_json_real(f.ms), "ms_min", fgio_json_real(f.minimum), "speedup",
            fgio_json_real(f.speedup), "bytes_sent", (json_int_t)row->sent, "ideal", fgio_json_real(f.ideal),
            "of_ideal", fgio_json_real(f.ideal > 0 ? f.speedup / f.ideal : 0), "ms_compress",
            fgio_json_real(1e3 * row->compress), "ms_wait", fgio_json_real(1e3 * row->wait), "ms_wire",
            fgio_json_real(1e3 * row->wire), "ms_decode", fgio_json_real(1e3 * row->decode), "verified", !row->wrong[0],
            "by_hand", row->compared, "config", row->config, "threads", run->threads, "rounds", (int)run->rounds,
            "machine", machine(), "version", frug_version());
    return fgio_json_print(line, JSON_COMPACT, stdout);
}

static void print_head(const fgp_reduce_run *run, const char *transport) {
    const char *isa = frug_isa();
    printf("frugrad %s on %s, variant %s; %d workers over %s, %llu elements, density %g, %zu rounds, medians\n\n",
           frug_version(), machine(), isa ? isa : "?", run->workers, transport, (unsigned long long)run->n,
           run->density, run->rounds);
    printf("%-10s %9s %9s %11s %10s %8s %9s %8s %8s %8s  %s\n", "reduce", "ms", "vs dense", "sent each", "by bytes",
           "of that", "compress", "wait", "wire", "decode", "verified");
}

int fgp_reduce_print(const fgp_reduce_run *run, const char *transport, const fgp_reduce_row *row, size_t rows) {
    int status = FGIO_EXIT_OK, failed = 0;
    if (row[0].skipped[0])
        return fgio_error("the dense exchange does not run: %s", row[0].skipped);
    if (!run->json)
        print_head(run, transport);
    for (size_t i = 0; i < rows && status == FGIO_EXIT_OK; i++) {
        figures f = compute_figures(run, &row[0], &row[i]);
        if (run->json)
            status = print_json(run, transport, &row[i], f);
        else
            print_text(&row[i], f);
        if (row[i].wrong[0]) {
            fgio_error("reduce=%s does not verify: %s", row[i].name, row[i].wrong);
            failed = 1;
        }
    }
    return status == FGIO_EXIT_OK && failed ? FGIO_EXIT_FAIL : status;
}
