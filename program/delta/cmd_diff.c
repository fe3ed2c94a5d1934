/*
 * cmd_diff.c - `frugrad diff`: the difference between two safetensors files as a patch.
 *
 * One tensor at a time is in memory, in both versions. Tensors that only one file has, or whose dtype or shape changed,
 * are kept whole.
 */
#include "program/args/commands.h"
#include "frugrad.h"
#include "frugrad/delta.h"
#include "io/files.h"
#include "io/json.h"
#include "io/progress.h"
#include "io/tensor_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct diff_job {
    const char *out;
    int threads;
    fgio_tensor_file old, new;
    fgio_bytes before, after, record; /* len: the room there is */
    fgio_writer writer;
    fgio_progress *meter;
    frug_delta_totals totals;
    uint64_t elements, entries, bytes, added, removed;
} diff_job;

/* Make room for that many bytes; what was there is lost. */
static int reserve(fgio_bytes *bytes, size_t need, const char *name) {
    if (need <= bytes->len && bytes->data != NULL)
        return FGIO_EXIT_OK;
    fgio_bytes_free(bytes);
    bytes->data = malloc(need > 0 ? need : 1);
    if (bytes->data == NULL)
        return fgio_error("not enough memory for tensor '%s' (%zu bytes)", name, need);
    bytes->len = need;
    return FGIO_EXIT_OK;
}

static int load(const fgio_tensor_file *file, const fgio_tensor *item, fgio_bytes *to) {
    size_t bytes = (size_t)item->count * fgio_dtype_size(item->dtype);
    int code = reserve(to, bytes, item->name);
    return code == FGIO_EXIT_OK ? fgio_tensor_file_read(file, item->offset, to->data, bytes) : code;
}

/* Write a record and count it. */
static int put_record(diff_job *job, size_t len) {
    frug_delta_info info = {.struct_size = sizeof info};
    if (frug_delta_read(job->record.data, len, &info) != FRUG_OK)
        return fgio_library_error(job->out);
    frug_delta_add(&job->totals, &info);
    job->bytes += len;
    job->added += info.kind == FRUG_DELTA_FULL;
    job->removed += info.kind == FRUG_DELTA_REMOVED;
    if (info.kind == FRUG_DELTA_CHANGE || info.kind == FRUG_DELTA_FULL) {
        job->elements += info.count;
        job->entries += info.entries;
        fgio_progress_update(job->meter, job->elements);
    }
    return fgio_writer_put(&job->writer, job->record.data, len);
}

/* The record of one tensor, item; old or new may be NULL. */
static int put_tensor(diff_job *job, const fgio_tensor *item, const fgio_tensor *old, const fgio_tensor *new) {
    frug_delta_tensor tensor = FRUG_DELTA_TENSOR_INIT;
    size_t cap = 0, len = 0;
    int code = old != NULL ? load(&job->old, old, &job->before) : FGIO_EXIT_OK;
    if (code == FGIO_EXIT_OK && new != NULL)
        code = load(&job->new, new, &job->after);
    if (code != FGIO_EXIT_OK)
        return code;
    tensor.name = item->name;
    tensor.dtype = item->word;
    tensor.width = (uint32_t)fgio_dtype_size(item->dtype);
    tensor.ndim = item->ndim;
    memcpy(tensor.shape, item->shape, sizeof tensor.shape);
    tensor.before = old != NULL ? job->before.data : NULL;
    tensor.after = new != NULL ? job->after.data : NULL;
    if (frug_delta_bound(&tensor, &cap) != FRUG_OK)
        return fgio_library_error(job->out);
    code = reserve(&job->record, cap, item->name);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_delta_make(&tensor, job->threads, job->record.data, job->record.len, &len) != FRUG_OK)
        return fgio_library_error(job->out);
    return put_record(job, len);
}

static int same_kind(const fgio_tensor *a, const fgio_tensor *b) {
    return strcmp(a->word, b->word) == 0 && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

static int put_header(diff_job *job) {
    size_t len = 0;
    int code = reserve(&job->before, (size_t)job->old.data, "header");
    if (code == FGIO_EXIT_OK)
        code = reserve(&job->after, (size_t)job->new.data, "header");
    if (code == FGIO_EXIT_OK)
        code = reserve(&job->record, (size_t)job->new.data + 128, "header");
    if (code == FGIO_EXIT_OK)
        code = fgio_tensor_file_read(&job->old, 0, job->before.data, (size_t)job->old.data);
    if (code == FGIO_EXIT_OK)
        code = fgio_tensor_file_read(&job->new, 0, job->after.data, (size_t)job->new.data);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_delta_header(job->before.data, (size_t)job->old.data, job->after.data, (size_t)job->new.data,
                          job->record.data, job->record.len, &len) != FRUG_OK)
        return fgio_library_error(job->out);
    return put_record(job, len);
}

static int put_tensors(diff_job *job) {
    int code = put_header(job);
    for (size_t i = 0; i < job->new.head.count &&code == FGIO_EXIT_OK; i++) {
        const fgio_tensor *new = &job->new.head.item[i], *old = fgio_safetensors_find(&job->old.head, new->name);
        if (old != NULL && !same_kind(old, new)) {
            code = put_tensor(job, old, old, NULL);
            old = NULL;
        }
        if (code == FGIO_EXIT_OK)
            code = put_tensor(job, new, old, new);
    }
    for (size_t i = 0; i < job->old.head.count && code == FGIO_EXIT_OK; i++)
        if (fgio_safetensors_find(&job->new.head, job->old.head.item[i].name) == NULL)
            code = put_tensor(job, &job->old.head.item[i], &job->old.head.item[i], NULL);
    return code;
}

static int put_end(diff_job *job) {
    unsigned char end[FRUG_DELTA_START + 8];
    size_t len = 0;
    if (frug_delta_end(&job->totals, end, sizeof end, &len) != FRUG_OK)
        return fgio_library_error(job->out);
    job->bytes += len;
    return fgio_writer_put(&job->writer, end, len);
}

static double share(uint64_t part, uint64_t all) {
    return all > 0 ? (double)part / (double)all : 0;
}

static int print_summary(const diff_job *job, int json) {
    FILE *to = strcmp(job->out, "-") == 0 ? stderr : stdout;
    uint64_t dense = job->new.len - job->new.data;
    if (json) {
        char base[17], result[17];
        snprintf(base, sizeof base, "%016" PRIx64, job->totals.base);
        snprintf(result, sizeof result, "%016" PRIx64, job->totals.result);
        return fgio_json_print(
            json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "output", fgio_json_text(job->out),
                      "density", fgio_json_real(share(job->entries, job->elements)), "tensors",
                      (json_int_t)job->new.head.count, "added", (json_int_t)job->added, "removed",
                      (json_int_t)job->removed, "elements", (json_int_t)job->elements, "entries",
                      (json_int_t)job->entries, "bytes", (json_int_t)job->bytes, "base", base, "result", result),
            0, to);
    }
    char out[32], in[32];
    fprintf(to, "%s -> %s: %s\n", job->old.path, job->new.path, job->out);
    fprintf(to, "  tensors      %zu with %" PRIu64 " numbers", job->new.head.count, job->elements);
    if (job->added + job->removed > 0)
        fprintf(to, "; %" PRIu64 " added, %" PRIu64 " removed", job->added, job->removed);
    fprintf(to, "\n  changed      %.3f %%\n", 100 * share(job->entries, job->elements));
    fprintf(to, "  bytes        %s of %s, %.3f bits per number\n", fgio_bytes_text(job->bytes, out, sizeof out),
            fgio_bytes_text(dense, in, sizeof in), 8 * share(job->bytes, job->elements));
    fprintf(to, "  versions     %016" PRIx64 " -> %016" PRIx64 "\n", job->totals.base, job->totals.result);
    return FGIO_EXIT_OK;
}

static int diff(diff_job *job, const fgp_args *args) {
    int code = fgio_tensor_file_open(args->operand[0], &job->old);
    if (code == FGIO_EXIT_OK)
        code = fgio_tensor_file_open(args->operand[1], &job->new);
    if (code == FGIO_EXIT_OK && (fgio_file_same(job->out, job->old.path) || fgio_file_same(job->out, job->new.path)))
        code = fgio_error("%s: is both input and output", job->out);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_open(job->out, &job->writer);
    if (code != FGIO_EXIT_OK)
        return code;
    uint64_t elements = 0;
    for (size_t i = 0; i < job->new.head.count; i++)
        elements += job->new.head.item[i].count;
    job->meter = fgio_progress_begin(elements, "comparing %s", job->new.path);
    code = put_tensors(job);
    fgio_progress_end(job->meter);
    if (code == FGIO_EXIT_OK)
        code = put_end(job);
    return code == FGIO_EXIT_OK ? fgio_writer_commit(&job->writer) : code;
}

static int run_diff(const fgp_args *args) {
    diff_job job = {.out = fgp_arg(args, "output"),
                    .old = FGIO_TENSOR_FILE_CLOSED,
                    .new = FGIO_TENSOR_FILE_CLOSED,
                    .writer = FGIO_WRITER_CLOSED};
    uint64_t threads = 0;
    if (job.out == NULL)
        return fgio_usage_error("diff: name the patch with -o");
    int code = fgp_arg_u64(args, "threads", 0, 1024, &threads);
    job.threads = (int)threads;
    if (code == FGIO_EXIT_OK)
        code = diff(&job, args);
    fgio_writer_abort(&job.writer);
    if (code == FGIO_EXIT_OK)
        code = print_summary(&job, fgp_arg_given(args, "json"));
    fgio_tensor_file_close(&job.old);
    fgio_tensor_file_close(&job.new);
    fgio_bytes_free(&job.before);
    fgio_bytes_free(&job.after);
    fgio_bytes_free(&job.record);
    return code;
}

static const fgp_opt options[] = {
    {"output", 'o', "P", NULL, "the patch, - for standard output"},
    {"threads", 't', "N", "0", "threads to use; 0: one per core"},
    {"json", 0, NULL, NULL, "print the summary as JSON"},
    {NULL, 0, NULL, NULL, NULL},
};

const fgp_command fgp_command_diff = {
    .name = "diff",
    .summary = "write the difference between two versions of the weights",
    .operands = "OLD NEW",
    .min_operands = 2,
    .max_operands = 2,
    .about = "OLD and NEW are safetensors files of any number formats. The patch holds what changed,\n"
             "without loss; frugrad patch makes NEW from OLD and the patch, byte for byte.",
    .options = options,
    .run = run_diff,
};
