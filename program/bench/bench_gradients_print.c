/* bench_gradients_print.c - results of `frugrad bench recover --gradients`, as a table or as JSON objects. */
#include "program/bench/bench_gradients.h"

#include "frugrad.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static const char *machine(void) {
    static struct utsname system;
    return uname(&system) == 0 ? system.machine : "?";
}

void fgp_gradient_head(const fgp_gradient_run *run, const char *path, const fgp_recording *recording) {
    if (run->json)
        return;
    printf("frugrad %s on %s; %s: %zu tensors", frug_version(), machine(), path, recording->count);
    if (recording->left_out)
        printf(" (%zu left out: vectors, small ones, few steps)", recording->left_out);
    printf("\nmeans over the second half of each recording; found, error, best: of the mean of the selected entries;\n"
           "cosine: of the step and AdamW's on the selected entries, and on the whole gradient\n");
}

/* A number, or a dash where there is none. */
static void print_number(int width, int digits, double number) {
    if (isnan(number))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, number);
}

static void print_line(const fgp_gradient_row *row) {
    char bytes[32] = "-";
    if (!isnan(row->bytes))
        fgio_bytes_text((uint64_t)row->bytes, bytes, sizeof bytes);
    printf("%-20s %5u %6u %10s", row->name, row->c, row->s, bytes);
    print_number(6, 3, row->found);
    print_number(6, 3, row->error);
    print_number(6, 3, row->error_best);
    print_number(7, 2, row->in_union);
    print_number(7, 2, row->heavy);
    print_number(7, 3, row->cosine);
    print_number(7, 3, row->cosine_whole);
    print_number(7, 3, row->energy);
    print_number(7, 3, row->overlap);
    print_number(9, 4, row->ms);
    printf("%s\n", row->wrong[0] ? "  NOT VERIFIED" : "");
}

/* The heading above the rows of a tensor, and above the averages. */
static void print_tensor(const fgp_gradient_row *row) {
    static char last[128] = "";
    char shown[100], title[128];
    if (row->tensor)
        snprintf(title, sizeof title, "%s", fgio_printable(row->tensor, shown, sizeof shown));
    else
        snprintf(title, sizeof title, "average of %zu tensors; bytes of all", row->tensors);
    if (strcmp(title, last) == 0)
        return;
    memcpy(last, title, sizeof last);
    printf("\n%s\n%-20s %5s %6s %10s %6s %6s %6s %7s %7s %7s %7s %7s %7s %9s\n", title, "case", "c", "s", "states",
           "found", "error", "best", "union/s", "heavy/s", "cosine", "whole", "energy", "global", "ms/chunk");
}

static int print_json(const fgp_gradient_run *run, const fgp_gradient_row *row) {
    return fgio_json_print(
        json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:b, "
                  "s:i, s:s, s:s}",
                  "gradients", row->name, "tensor", row->tensor ? fgio_json_text(row->tensor) : json_null(), "tensors",
                  (json_int_t)row->tensors, "kappa", (json_int_t)row->kappa, "c", (json_int_t)row->c, "s",
                  (json_int_t)row->s, "bytes", fgio_json_real(row->bytes), "found", fgio_json_real(row->found), "error",
                  fgio_json_real(row->error), "error_best", fgio_json_real(row->error_best), "union",
                  fgio_json_real(row->in_union), "heavy", fgio_json_real(row->heavy), "cosine",
                  fgio_json_real(row->cosine), "cosine_whole", fgio_json_real(row->cosine_whole), "energy",
                  fgio_json_real(row->energy), "overlap", fgio_json_real(row->overlap), "ms_chunk",
                  fgio_json_real(row->ms), "steps", (json_int_t)row->steps, "verified", !row->wrong[0], "threads",
                  run->threads, "machine", machine(), "version", frug_version()),
        JSON_COMPACT, stdout);
}

int fgp_gradient_print(const fgp_gradient_run *run, const fgp_gradient_row *row) {
    int status = FGIO_EXIT_OK;
    if (run->json) {
        status = print_json(run, row);
    } else {
        print_tensor(row);
        print_line(row);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        return fgio_error("cannot write the results");
    return status;
}
