/*
 * cmd_compress.c - `frugrad compress`: compress a file of gradients to a payload file.
 *
 * With --residual the residual is carried from call to call, so that several calls are several steps of training.
 */
#include "program/args/commands.h"
#include "io/files.h"
#include "frugrad.h"
#include "program/compress/gradient_file.h"
#include "io/json.h"
#include "io/progress.h"
#include "program/compress/payload.h"
#include "io/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct compress_job {
    const char *in, *residual; /* residual may be NULL */
    char *out;
    uint64_t step;
    frug_config *config;
    fgp_gradient gradient;
    frug_compressor *compressor;
    fgio_bytes frame, state; /* state stays empty without residual */
    size_t file_bytes;
    frug_stats stats;
} compress_job;

static int choose_output(const fgp_args *args, compress_job *job) {
    const char *given = fgp_arg(args, "output");
    if (given == NULL && strcmp(job->in, "-") == 0)
        given = "-";
    size_t room = strlen(given == NULL ? job->in : given) + sizeof ".fgr";
    job->out = malloc(room);
    if (job->out == NULL)
        return fgio_error("%s: not enough memory", fgio_input_name(job->in));
    snprintf(job->out, room, "%s%s", given == NULL ? job->in : given, given == NULL ? ".fgr" : "");
    if (fgio_file_same(job->in, job->out))
        return fgio_error("%s: is both input and output", job->out);
    if (job->residual != NULL && strcmp(job->residual, "-") == 0)
        return fgio_usage_error("compress: --residual needs a file, not '-'");
    if (job->residual != NULL && (fgio_file_same(job->residual, job->in) || fgio_file_same(job->residual, job->out) ||
                                  strcmp(job->residual, job->out) == 0))
        return fgio_error("%s: is both the residual and the input or output", job->residual);
    return FGIO_EXIT_OK;
}

static int restore_residual(compress_job *job) {
    fgio_bytes bytes;
    if (job->residual == NULL || !fgio_file_exists(job->residual))
        return FGIO_EXIT_OK;
    int code = fgio_file_read(job->residual, &bytes);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_compressor_restore(job->compressor, bytes.data, bytes.len) != FRUG_OK) {
        code = fgio_library_error(job->residual);
        fgio_hint("a residual needs the tensors and the config it was made with; another FILE begins a new one");
    }
    fgio_bytes_free(&bytes);
    return code;
}

static int save_residual(compress_job *job) {
    if (job->residual == NULL)
        return FGIO_EXIT_OK;
    size_t cap = frug_compressor_state_size(job->compressor);
    job->state.data = malloc(cap);
    if (job->state.data == NULL)
        return fgio_error("%s: not enough memory", job->residual);
    if (frug_compressor_save(job->compressor, job->state.data, cap, &job->state.len) != FRUG_OK)
        return fgio_library_error(job->residual);
    return FGIO_EXIT_OK;
}

/* Always with stats=full: a single step has no others over which estimates would average out. */
static int make_compressor(compress_job *job) {
    const char *text = frug_config_text(job->config);
    frug_config *counted = NULL;
    size_t room = strlen(text) + sizeof ",stats=full";
    char *full = malloc(room);
    if (full == NULL)
        return fgio_error("%s: not enough memory", fgio_input_name(job->in));
    snprintf(full, room, "%s,stats=full", text);
    frug_status status = frug_config_create(full, &counted);
    if (status == FRUG_OK)
        status = frug_compressor_create(counted, job->gradient.layout, NULL, &job->compressor);
    frug_config_destroy(counted);
    free(full);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error(fgio_input_name(job->in));
}

static int make_frame(compress_job *job) {
    uint64_t n = frug_layout_elements(job->gradient.layout);
    size_t cap = 0;
    int code = make_compressor(job);
    if (code == FGIO_EXIT_OK)
        code = restore_residual(job);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_compressor_bound(job->compressor, (frug_range){0, n}, &cap) != FRUG_OK)
        return fgio_library_error(fgio_input_name(job->in));
    job->frame.data = malloc(cap);
    if (job->frame.data == NULL)
        return fgio_error("%s: not enough memory", fgio_input_name(job->in));
    if (frug_compress(job->compressor, job->step, (frug_range){0, n}, job->gradient.data, job->frame.data, cap,
                      &job->frame.len) != FRUG_OK)
        return fgio_library_error(fgio_input_name(job->in));
    job->stats.struct_size = sizeof job->stats;
    if (frug_compressor_stats(job->compressor, &job->stats) != FRUG_OK)
        return fgio_library_error(fgio_input_name(job->in));
    return save_residual(job);
}

static int put_payload(compress_job *job, fgio_writer *writer) {
    fgio_bytes header;
    fgio_reason why;
    if (fgp_payload_header(&job->gradient, frug_config_text(job->config), job->frame.len, &header, &why) != 0)
        return fgio_error("%s: cannot write: %s", job->out, why.text);
    job->file_bytes = header.len + job->frame.len;
    int code = fgio_writer_open(job->out, writer);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put(writer, header.data, header.len);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put(writer, job->frame.data, job->frame.len);
    fgio_bytes_free(&header);
    return code;
}

/* Payload and residual belong together: both are synced before the first of them is renamed. */
static int write_files(compress_job *job) {
    fgio_writer payload = FGIO_WRITER_CLOSED, state = FGIO_WRITER_CLOSED;
    int code = put_payload(job, &payload);
    if (code == FGIO_EXIT_OK && job->residual != NULL) {
        code = fgio_writer_open(job->residual, &state);
        if (code == FGIO_EXIT_OK)
            code = fgio_writer_put(&state, job->state.data, job->state.len);
        if (code == FGIO_EXIT_OK)
            code = fgio_writer_sync(&state);
    }
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_commit(&payload);
    if (code == FGIO_EXIT_OK && job->residual != NULL)
        code = fgio_writer_commit(&state);
    fgio_writer_abort(&payload);
    fgio_writer_abort(&state);
    return code;
}

static double speed(const frug_stats *stats) {
    return stats->seconds_compress > 0 ? (double)stats->bytes_dense / stats->seconds_compress / 1e9 : 0;
}

static int print_json(const compress_job *job, FILE *to) {
    const frug_stats *s = &job->stats;
    json_t *object = json_pack(
        "{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:o}", "input", fgio_json_text(job->in),
        "output", fgio_json_text(job->out), "format", fgp_format_words[job->gradient.format], "config",
        frug_config_text(job->config), "tensors", (json_int_t)frug_layout_count(job->gradient.layout), "elements",
        (json_int_t)s->entries_seen, "bytes_in", (json_int_t)s->bytes_dense, "bytes_frame", (json_int_t)job->frame.len,
        "bytes_out", (json_int_t)job->file_bytes, "step", (json_int_t)job->step, "ratio",
        fgio_json_real((double)s->bytes_dense / (double)job->frame.len), "density", fgio_json_real(s->density_now),
        "energy_sent", fgio_json_real(s->energy_sent_now), "blocks_skipped", (json_int_t)s->blocks_skipped, "gbps",
        fgio_json_real(speed(s)));
    return fgio_json_print(object, 0, to);
}

static int print_summary(const compress_job *job, FILE *to) {
    char in[32], frame[32], file[32];
    const frug_stats *s = &job->stats;
    fprintf(to, "%s -> %s\n", job->in, job->out);
    fprintf(to, "  tensors      %zu with %" PRIu64 " numbers (%s)\n", frug_layout_count(job->gradient.layout),
            s->entries_seen, fgp_format_words[job->gradient.format]);
    fprintf(to, "  bytes        %s in, frame %s, file %s\n", fgio_bytes_text(s->bytes_dense, in, sizeof in),
            fgio_bytes_text(job->frame.len, frame, sizeof frame), fgio_bytes_text(job->file_bytes, file, sizeof file));
    fprintf(to, "  ratio        %.1f : 1\n", (double)s->bytes_dense / (double)job->frame.len);
    fprintf(to, "  density      %.2f %% sent\n", 100 * s->density_now);
    fprintf(to, "  energy sent  %.2f %%\n", 100 * s->energy_sent_now);
    fprintf(to, "  speed        %.2f GB/s, with full statistics\n", speed(s));
    if (s->blocks_skipped > 0)
        fprintf(to, "  skipped      %" PRIu64 " blocks with a NaN or an infinity\n", s->blocks_skipped);
    if (job->residual != NULL)
        fprintf(to, "  residual     %s\n", job->residual);
    return FGIO_EXIT_OK;
}

static int compress(const fgp_args *args, compress_job *job) {
    int format = FGP_FORMAT_AUTO;
    fgp_heads heads;
    int code = fgp_arg_word(args, "format", fgp_format_words, &format);
    if (code == FGIO_EXIT_OK)
        code = fgp_arg_u64(args, "step", 0, INT64_MAX, &job->step);
    if (code == FGIO_EXIT_OK)
        code = fgp_heads_arg(args, &heads);
    if (code == FGIO_EXIT_OK)
        code = choose_output(args, job);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_config_create(fgp_arg(args, "config"), &job->config) != FRUG_OK)
        return fgio_config_error();
    code = fgp_gradient_load(job->in, (fgp_format)format, heads, &job->gradient);
    fgio_progress *meter = fgio_progress_begin(0, "compressing %s", fgio_input_name(job->in));
    if (code == FGIO_EXIT_OK)
        code = make_frame(job);
    if (code == FGIO_EXIT_OK)
        code = write_files(job);
    fgio_progress_end(meter);
    if (code == FGIO_EXIT_OK) {
        FILE *to = strcmp(job->out, "-") == 0 ? stderr : stdout; /* stdout has the payload */
        code = (fgp_arg_given(args, "json") ? print_json : print_summary)(job, to);
    }
    const char *transform = frug_config_get(job->config, "transform");
    if (code == FGIO_EXIT_OK && strcmp(transform, "off") != 0)
        fgio_hint("transform=%s is done by the trainers; this frame has entries of the gradient itself", transform);
    return code;
}

static int run_compress(const fgp_args *args) {
    compress_job job = {.in = args->operand[0], .residual = fgp_arg(args, "residual")};
    int code = compress(args, &job);
    frug_compressor_destroy(job.compressor);
    frug_config_destroy(job.config);
    fgp_gradient_free(&job.gradient);
    fgio_bytes_free(&job.frame);
    fgio_bytes_free(&job.state);
    free(job.out);
    return code;
}

static const fgp_opt options[] = {
    {"output", 'o', "OUT", NULL, "the payload file; IN.fgr when not given, - for standard output"},
    {"config", 'c', "S", "frugrad", "how to compress; see frugrad inspect --config"},
    {"format", 'f', "WORD", "auto", "what IN is: raw, npy, safetensors, or auto"},
    {"residual", 'r', "FILE", NULL, "residual: read if it exists, written afterwards"},
    {"heads", 0, "H[:KV]", NULL, "attention heads of the model, and of keys and values if fewer"},
    {"step", 's', "N", "0", "the optimizer step"},
    {"json", 0, NULL, NULL, "print the summary as one JSON object"},
    {NULL, 0, NULL, NULL, NULL},
};

const fgp_command fgp_command_compress = {
    .name = "compress",
    .summary = "compress a file of gradients",
    .operands = "IN",
    .min_operands = 1,
    .max_operands = 1,
    .about = "IN holds raw little-endian f32, or is a .npy or safetensors file with F32, F16,\n"
             "BF16 or F64 numbers; - is standard input. The payload file OUT is a safetensors\n"
             "file with one tensor, the frame as it would be sent, and metadata that names the\n"
             "tensors. A file with a single tensor of one dimension is compressed as one row;\n"
             "beside others, tensors of one dimension are biases and norms and are sent dense.",
    .options = options,
    .run = run_compress,
};
