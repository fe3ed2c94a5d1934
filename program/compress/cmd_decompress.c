/*
 * cmd_decompress.c - `frugrad decompress`: a payload file back to dense tensors in their original format.
 *
 * The frame's sizes are compared with the layout's before the dense buffer is allocated, because a few hostile bytes
 * can describe more elements than any machine has memory for.
 */
#include "program/args/commands.h"
#include "io/files.h"
#include "frugrad.h"
#include "io/progress.h"
#include "program/compress/payload.h"
#include "io/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* dir/grad.npy.fgr -> dir/grad.restored.npy; NULL when memory ran out. */
static char *default_output(const char *in) {
    size_t length = strlen(in) - strlen(".fgr");
    size_t room = length + sizeof ".restored";
    char *out = malloc(room);
    if (out == NULL)
        return NULL;
    size_t stem = length;
    for (size_t i = length; i > 0 && in[i - 1] != '/'; i--) {
        if (in[i - 1] == '.' && i > 1 && in[i - 2] != '/') { /* a leading dot is part of the name */
            stem = i - 1;
            break;
        }
    }
    snprintf(out, room, "%.*s.restored%.*s", (int)stem, in, (int)(length - stem), in + stem);
    return out;
}

static int choose_output(const fgp_args *args, char **out) {
    const char *in = args->operand[0], *given = fgp_arg(args, "output");
    size_t length = strlen(in);
    if (given == NULL && strcmp(in, "-") == 0)
        given = "-";
    if (given == NULL && (length < 5 || strcmp(in + length - 4, ".fgr") != 0)) {
        fgio_usage_error("decompress: %s does not end in .fgr", in);
        fgio_hint("name the output with -o");
        return FGIO_EXIT_USAGE;
    }
    *out = given != NULL ? strdup(given) : default_output(in);
    if (*out == NULL)
        return fgio_error("%s: not enough memory", in);
    if (fgio_file_same(in, *out))
        return fgio_error("%s: is both input and output", *out);
    if (!fgp_arg_given(args, "force") && fgio_file_exists(*out)) {
        fgio_error("%s: exists already", *out);
        fgio_hint("--force replaces it");
        return FGIO_EXIT_FAIL;
    }
    return FGIO_EXIT_OK;
}

/* A zeroed buffer for all elements of the layout; NULL if the machine has less memory. */
static float *dense_buffer(uint64_t n) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0 && n / 1024 > (uint64_t)pages * ((uint64_t)page / 1024) / sizeof(float))
        return NULL;
    return n > SIZE_MAX / sizeof(float) ? NULL : calloc((size_t)n, sizeof(float));
}

static int make_decoder(const frug_layout *layout, frug_compressor **decoder) {
    frug_config *config = NULL;
    frug_status status = frug_config_create("feedback=none", &config); /* a decoder needs no residual */
    if (status == FRUG_OK)
        status = frug_compressor_create(config, layout, NULL, decoder);
    frug_config_destroy(config);
    return status;
}

static int decode(const char *in, fgp_payload *payload) {
    frug_frame_info info = {.struct_size = sizeof info};
    frug_compressor *decoder = NULL;
    fgp_gradient *gradient = &payload->gradient;
    uint64_t n = frug_layout_elements(gradient->layout);
    if (frug_frame_check(payload->frame, payload->frame_len, &info) != FRUG_OK)
        return fgio_library_error(in);
    if (info.layout_hash != frug_layout_hash(gradient->layout))
        return fgio_error("%s: the frame is of tensors with layout %016" PRIx64
                          ", and those listed beside it have %016" PRIx64
                          "; the file was changed after frugrad compress",
                          in, info.layout_hash, frug_layout_hash(gradient->layout));
    gradient->data = dense_buffer(n);
    if (gradient->data == NULL)
        return fgio_error("%s: not enough memory for %" PRIu64 " numbers", in, n);
    const void *frames[] = {payload->frame};
    int failed = make_decoder(gradient->layout, &decoder) != FRUG_OK ||
                 frug_decode_add(frug_compressor_decoder(decoder), (frug_range){0, n}, frames, &payload->frame_len, 1,
                                 1.0f, gradient->data) != FRUG_OK;
    int code = failed ? fgio_library_error(in) : FGIO_EXIT_OK;
    frug_compressor_destroy(decoder);
    return code;
}

static int decompress(const char *in, const char *out) {
    fgio_bytes bytes;
    fgp_payload payload;
    fgio_reason why;
    int code = fgio_file_read(in, &bytes);
    if (code != FGIO_EXIT_OK)
        return code;
    in = fgio_input_name(in);
    if (fgp_payload_parse(bytes.data, bytes.len, &payload, &why) != 0) {
        fgio_bytes_free(&bytes);
        return fgio_error("%s: %s", in, why.text);
    }
    fgio_progress *meter = fgio_progress_begin(0, "decompressing %s", in);
    code = decode(in, &payload);
    if (code == FGIO_EXIT_OK)
        code = fgp_gradient_store(out, &payload.gradient);
    fgio_progress_end(meter);
    if (code == FGIO_EXIT_OK && strcmp(out, "-") != 0)
        printf("%s -> %s\n  tensors      %zu with %" PRIu64 " numbers (%s)\n", in, out,
               frug_layout_count(payload.gradient.layout), frug_layout_elements(payload.gradient.layout),
               fgp_format_words[payload.gradient.format]);
    fgp_payload_free(&payload);
    fgio_bytes_free(&bytes);
    return code;
}

static int run_decompress(const fgp_args *args) {
    char *out = NULL;
    int code = choose_output(args, &out);
    if (code == FGIO_EXIT_OK)
        code = decompress(args->operand[0], out);
    free(out);
    return code;
}

static const fgp_opt options[] = {
    {"output", 'o', "OUT", NULL, "the restored file, - for standard output"},
    {"force", 0, NULL, NULL, "replace OUT if it exists"},
    {NULL, 0, NULL, NULL, NULL},
};

const fgp_command fgp_command_decompress = {
    .name = "decompress",
    .summary = "restore the dense tensors of a payload file",
    .operands = "IN",
    .min_operands = 1,
    .max_operands = 1,
    .about = "IN is a file of frugrad compress; - is standard input. OUT gets the format of the\n"
             "file that was compressed, as f32, with zeros for what was not sent. Without -o,\n"
             "grad.npy.fgr becomes grad.restored.npy.",
    .options = options,
    .run = run_decompress,
};
