/*
 * cmd_patch.c - `frugrad patch`: another version of a safetensors file, from a patch or a chain of them.
 *
 * Patches are in memory, of the weights one tensor at a time: it is read, led through all patches and written. The file
 * appears under its name when all hashes were right.
 */
#include "program/args/commands.h"
#include "program/delta/patch_file.h"
#include "frugrad.h"
#include "frugrad/delta.h"
#include "io/files.h"
#include "io/progress.h"
#include "io/tensor_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct patch_job {
    const char *out;
    int threads;
    frug_delta_direction direction;
    fgio_tensor_file base;
    size_t count;
    fgp_patch *patch; /* in the order in which they are applied */
    fgio_bytes header;
    fgio_safetensors result;
    fgio_bytes tensor; /* len: the room there is */
    fgio_writer writer;
} patch_job;

/* The version that a patch begins with, in the direction in which it is applied, or ends with. */
static uint64_t version(const patch_job *job, const fgp_patch *patch, int end) {
    return end != (job->direction == FRUG_DELTA_BACK) ? patch->totals.result : patch->totals.base;
}

static int read_patches(patch_job *job, const fgp_args *args) {
    job->patch = calloc(job->count, sizeof *job->patch);
    if (job->patch == NULL)
        return fgio_error("not enough memory");
    for (size_t i = 0; i < job->count; i++) {
        size_t which = job->direction == FRUG_DELTA_BACK ? job->count - 1 - i : i;
        int code = fgp_patch_read(args->operand[1 + which], &job->patch[i]);
        if (code != FGIO_EXIT_OK)
            return code;
    }
    for (size_t i = 1; i < job->count; i++) {
        uint64_t from = version(job, &job->patch[i], 0), to = version(job, &job->patch[i - 1], 1);
        if (from == to)
            continue;
        fgio_error("%s: does not continue %s, which leads to version %016" PRIx64 " and not to %016" PRIx64,
                   job->patch[i].path, job->patch[i - 1].path, to, from);
        fgio_hint("give the patches in the order in which they were made");
        return FGIO_EXIT_FAIL;
    }
    return FGIO_EXIT_OK;
}

static int hash_header(const fgio_bytes *header, uint64_t *hash) {
    unsigned char record[FRUG_DELTA_START + 8];
    frug_delta_info info = {.struct_size = sizeof info};
    size_t len = 0;
    if (frug_delta_header(header->data, header->len, header->data, header->len, record, sizeof record, &len) !=
            FRUG_OK ||
        frug_delta_read(record, len, &info) != FRUG_OK)
        return fgio_library_error("header");
    *hash = info.base;
    return FGIO_EXIT_OK;
}

/* Lead the header through one patch. */
static int patch_header(patch_job *job, const fgp_patch *patch) {
    const frug_delta_info *record = fgp_patch_header(patch);
    uint64_t hash = 0;
    int back = job->direction == FRUG_DELTA_BACK, code = hash_header(&job->header, &hash);
    if (code != FGIO_EXIT_OK || record == NULL)
        return code;
    if (hash != (back ? record->result : record->base)) {
        if (hash == (back ? record->base : record->result))
            fgio_error("%s: has the header that %s leads to: it seems to be patched already", job->base.path,
                       patch->path);
        else
            fgio_error("%s: its header is not that of the file that %s was made from", job->base.path, patch->path);
        fgio_hint("a patch needs the file it was made from, byte for byte");
        return FGIO_EXIT_FAIL;
    }
    if (record->body_len == 0)
        return FGIO_EXIT_OK;
    if (back)
        return fgio_error("%s: cannot go back: the header of the file changed, and a patch has only the new one",
                          patch->path);
    fgio_bytes_free(&job->header);
    job->header.data = malloc((size_t)record->body_len);
    if (job->header.data == NULL)
        return fgio_error("%s: not enough memory", patch->path);
    memcpy(job->header.data, record->body, (size_t)record->body_len);
    job->header.len = (size_t)record->body_len;
    return FGIO_EXIT_OK;
}

/* Bytes of all tensors after the last patch. */
static uint64_t result_bytes(const patch_job *job) {
    const fgp_patch *last = &job->patch[job->count - 1];
    uint64_t bytes = 0;
    for (size_t i = 0; i < last->count; i++)
        if (last->record[i].kind == FRUG_DELTA_CHANGE || last->record[i].kind == FRUG_DELTA_FULL)
            bytes += last->record[i].count * last->record[i].width;
    return bytes;
}

static int make_header(patch_job *job) {
    fgio_reason why;
    job->header.data = malloc((size_t)job->base.data);
    job->header.len = (size_t)job->base.data;
    int code = job->header.data == NULL ? fgio_error("%s: not enough memory", job->base.path)
                                        : fgio_tensor_file_read(&job->base, 0, job->header.data, job->header.len);
    for (size_t i = 0; i < job->count && code == FGIO_EXIT_OK; i++)
        code = patch_header(job, &job->patch[i]);
    if (code == FGIO_EXIT_OK &&
        fgio_safetensors_parse_head(job->header.data, job->header.len, job->header.len + result_bytes(job),
                                    &job->result, &why) != 0)
        code = fgio_error("%s: the patched file would be invalid: %s", job->base.path, why.text);
    return code;
}

static int unknown_tensor(const patch_job *job, const fgp_patch *patch, const char *name) {
    return fgio_error("%s: has no record of tensor '%.80s' of %s", patch->path, name, job->base.path);
}

/* Every tensor of the base has to be known to the first patch. */
static int check_base(const patch_job *job) {
    for (size_t i = 0; i < job->base.head.count; i++)
        if (fgp_patch_find(&job->patch[0], job->base.head.item[i].name) == job->patch[0].count)
            return unknown_tensor(job, &job->patch[0], job->base.head.item[i].name);
    return FGIO_EXIT_OK;
}

static int matches(const frug_delta_info *record, const fgio_tensor *item) {
    return strcmp(record->dtype, item->word) == 0 && record->ndim == item->ndim &&
           memcmp(record->shape, item->shape, item->ndim * sizeof *item->shape) == 0;
}

/* Lead a tensor through one patch. *known: the version before it is in job->tensor. */
static int patch_tensor(patch_job *job, const fgp_patch *patch, const char *name, const fgio_tensor *item, int *known) {
    size_t i = fgp_patch_find(patch, name);
    const frug_delta_info *record = &patch->record[i];
    if (i == patch->count)
        return *known ? unknown_tensor(job, patch, name) : FGIO_EXIT_OK;
    if (record->kind != FRUG_DELTA_CHANGE && job->direction == FRUG_DELTA_BACK)
        return fgio_error("%s: cannot go back: tensor '%.80s' was added or removed", patch->path, name);
    *known = record->kind != FRUG_DELTA_REMOVED && matches(record, item);
    if (!*known)
        return FGIO_EXIT_OK;
    if (record->kind == FRUG_DELTA_FULL)
        memcpy(job->tensor.data, record->body, (size_t)record->body_len);
    else if (frug_delta_apply(patch->bytes.data + patch->offset[i], (size_t)record->bytes, job->direction, job->threads,
                              job->tensor.data, (size_t)(record->count * record->width), job->tensor.data) != FRUG_OK)
        return fgio_library_error(job->base.path);
    return FGIO_EXIT_OK;
}

static int reserve_tensor(patch_job *job, const fgio_tensor *item, size_t bytes) {
    if (job->tensor.data != NULL && bytes <= job->tensor.len)
        return FGIO_EXIT_OK;
    fgio_bytes_free(&job->tensor);
    job->tensor.data = malloc(bytes > 0 ? bytes : 1);
    job->tensor.len = bytes;
    return job->tensor.data != NULL ? FGIO_EXIT_OK
                                    : fgio_error("not enough memory for tensor '%.80s' (%zu bytes)", item->name, bytes);
}

/* Make one tensor of the result. A tensor whose shape changes on the way is of no use before that. */
static int put_tensor(patch_job *job, const fgio_tensor *item) {
    size_t bytes = (size_t)item->count * fgio_dtype_size(item->dtype);
    const fgio_tensor *from = fgio_safetensors_find(&job->base.head, item->name);
    int code = reserve_tensor(job, item, bytes), known = 0;
    if (code == FGIO_EXIT_OK && from != NULL && strcmp(from->word, item->word) == 0 && from->count == item->count) {
        code = fgio_tensor_file_read(&job->base, from->offset, job->tensor.data, bytes);
        known = 1;
    }
    for (size_t i = 0; i < job->count && code == FGIO_EXIT_OK; i++)
        code = patch_tensor(job, &job->patch[i], item->name, item, &known);
    if (code == FGIO_EXIT_OK && !known)
        code = unknown_tensor(job, &job->patch[job->count - 1], item->name);
    return code == FGIO_EXIT_OK ? fgio_writer_put(&job->writer, job->tensor.data, bytes) : code;
}

static int put_file(patch_job *job) {
    fgio_progress *meter = fgio_progress_begin(job->base.len, "patching %s", job->base.path);
    int code = fgio_writer_put(&job->writer, job->header.data, job->header.len);
    for (size_t i = 0; i < job->result.count && code == FGIO_EXIT_OK; i++) {
        fgio_progress_update(meter, job->result.item[i].offset);
        code = put_tensor(job, &job->result.item[i]);
    }
    fgio_progress_end(meter);
    return code == FGIO_EXIT_OK ? fgio_writer_commit(&job->writer) : code;
}

static int check_output(const patch_job *job, const fgp_args *args) {
    for (size_t i = 0; i < job->count; i++)
        if (fgio_file_same(job->out, args->operand[1 + i]))
            return fgio_error("%s: is both a patch and the output", job->out);
    if (fgp_arg(args, "output") == NULL || fgp_arg_given(args, "force") || !fgio_file_exists(job->out))
        return FGIO_EXIT_OK;
    fgio_error("%s: exists already", job->out);
    fgio_hint("--force replaces it");
    return FGIO_EXIT_FAIL;
}

static int patch_file(patch_job *job, const fgp_args *args) {
    int code = check_output(job, args);
    if (code == FGIO_EXIT_OK)
        code = fgio_tensor_file_open(args->operand[0], &job->base);
    if (code == FGIO_EXIT_OK)
        code = read_patches(job, args);
    if (code == FGIO_EXIT_OK)
        code = check_base(job);
    if (code == FGIO_EXIT_OK)
        code = make_header(job);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_open(job->out, &job->writer);
    return code == FGIO_EXIT_OK ? put_file(job) : code;
}

static void print_summary(const patch_job *job) {
    if (strcmp(job->out, "-") != 0)
        printf("%s -> %s\n  versions     %016" PRIx64 " -> %016" PRIx64 ", by %zu patch%s\n", job->base.path, job->out,
               version(job, &job->patch[0], 0), version(job, &job->patch[job->count - 1], 1), job->count,
               job->count > 1 ? "es" : "");
}

static int run_patch(const fgp_args *args) {
    const char *given = fgp_arg(args, "output");
    patch_job job = {.out = given != NULL ? given : args->operand[0],
                     .direction = fgp_arg_given(args, "back") ? FRUG_DELTA_BACK : FRUG_DELTA_FORWARD,
                     .count = args->operand_count - 1,
                     .base = FGIO_TENSOR_FILE_CLOSED,
                     .writer = FGIO_WRITER_CLOSED};
    uint64_t threads = 0;
    int code = fgp_arg_u64(args, "threads", 0, 1024, &threads);
    job.threads = (int)threads;
    if (code == FGIO_EXIT_OK)
        code = patch_file(&job, args);
    if (code == FGIO_EXIT_OK)
        print_summary(&job);
    fgio_writer_abort(&job.writer);
    for (size_t i = 0; job.patch != NULL && i < job.count; i++)
        fgp_patch_free(&job.patch[i]);
    free(job.patch);
    fgio_safetensors_free(&job.result);
    fgio_bytes_free(&job.header);
    fgio_bytes_free(&job.tensor);
    fgio_tensor_file_close(&job.base);
    return code;
}

static const fgp_opt options[] = {
    {"output", 'o', "OUT", NULL, "the new file, - for standard output; BASE if not given"},
    {"back", 0, NULL, NULL, "go from the new version to the old one"},
    {"threads", 't', "N", "0", "threads to use; 0: one per core"},
    {"force", 0, NULL, NULL, "replace OUT if it exists"},
    {NULL, 0, NULL, NULL, NULL},
};

const fgp_command fgp_command_patch = {
    .name = "patch",
    .summary = "apply patches of frugrad diff to a file of weights",
    .operands = "BASE P...",
    .min_operands = 2,
    .max_operands = 1000000,
    .about = "BASE is the safetensors file that the first patch was made from; each patch continues\n"
             "the one before. A file of another version is refused. The new file replaces BASE or\n"
             "OUT in one step, after all its hashes were checked. With --back, BASE is the newest\n"
             "version, and the patches, in the same order, are taken back.",
    .options = options,
    .run = run_patch,
};
