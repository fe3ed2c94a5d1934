/* cmd_export.c - `frugrad export`: weights without the state of the run, as safetensors or as a compact file. */
#include "program/args/commands.h"
#include "program/deploy/model_weights.h"

#include "io/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const fgp_opt options[] = {
    {"output", 'o', "FILE", NULL, "what to write: safetensors if its name ends so, otherwise a compact file"},
    {"code", 'c', "WORD", "f32", "compact: weights of matrices as f32, or as int8 with a scale for each row"},
    {"json", 'j', NULL, NULL, "print the summary as JSON"},
    {NULL, 0, NULL, NULL, NULL},
};

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int print_summary(const fgp_weights *weights, const char *out, size_t bytes, int json) {
    uint64_t elements = 0, entries = 0;
    char size[32];
    for (size_t i = 0; i < weights->count; i++) {
        size_t n = fgp_weights_size(&weights->tensor[i]);
        elements += n;
        for (size_t j = 0; j < n; j++)
            entries += weights->data[i][j] < 0.0f || weights->data[i][j] > 0.0f;
    }
    double dense = (double)bytes / (4.0 * (double)elements);
    if (json)
        return fgio_json_print(json_pack("{s:o, s:I, s:I, s:I, s:I, s:o}", "output", fgio_json_text(out), "tensors",
                                         (json_int_t)weights->count, "weights", (json_int_t)elements, "entries",
                                         (json_int_t)entries, "bytes", (json_int_t)bytes, "of_dense",
                                         fgio_json_real(dense)),
                               0, stdout);
    printf("%s: %zu tensors, %" PRIu64 " weights, %.1f %% of them zero; %s, %.3f of dense f32\n", out, weights->count,
           elements, 100.0 * (1.0 - (double)entries / (double)elements), fgio_bytes_text(bytes, size, sizeof size),
           dense);
    return FGIO_EXIT_OK;
}

static int export_weights(const fgp_args *args, const char *out, bool int8) {
    fgp_weights weights;
    size_t bytes = 0;
    int safetensors = ends_with(out, ".safetensors"), code = fgp_weights_read(args->operand[0], &weights);
    if (code == FGIO_EXIT_OK)
        code = fgp_weights_check_output(&weights, out);
    if (code == FGIO_EXIT_OK)
        code = safetensors ? fgp_weights_write_safetensors(&weights, out)
                           : fgp_weights_write_compact(&weights, out, int8, &bytes);
    for (size_t i = 0; i < weights.count && safetensors; i++)
        bytes += 4 * fgp_weights_size(&weights.tensor[i]);
    if (code == FGIO_EXIT_OK)
        code = print_summary(&weights, out, bytes, fgp_arg_given(args, "json"));
    fgp_weights_free(&weights);
    return code;
}

static int run(const fgp_args *args) {
    static const char *const codes[] = {"f32", "int8", NULL};
    const char *out = fgp_arg(args, "output");
    int int8 = 0, code = fgp_arg_word(args, "code", codes, &int8);
    if (code != FGIO_EXIT_OK)
        return code;
    if (out == NULL || strcmp(out, "-") == 0)
        return fgio_usage_error("export: name the file with -o");
    if (ends_with(out, ".safetensors") && int8)
        return fgio_usage_error("export: --code int8 is for compact files; give -o another name than *.safetensors");
    return export_weights(args, out, int8 != 0);
}

const fgp_command fgp_command_export = {
    .name = "export",
    .summary = "write the weights of a checkpoint as safetensors or as a compact file",
    .operands = "CHECKPOINT",
    .min_operands = 1,
    .max_operands = 1,
    .about = "CHECKPOINT is a safetensors file, a directory of checkpoints, of which the newest is used, or a\n"
             "compact file. The state of the run is left out. A compact file stores only the weights that are\n"
             "not zero, where that is shorter; frugrad eval and sample run it as it is.\n"
             "\n"
             "  frugrad export pruned.safetensors -o model.fgc --code int8",
    .options = options,
    .run = run,
};
