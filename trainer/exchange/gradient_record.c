/*
 * gradient_record.c - gradients of the first steps, copied out of the buckets and written at the end, because the
 * header of a safetensors file lists all its tensors.
 */
#include "trainer/exchange/gradient_record.h"

#include "io/safetensors.h"
#include "io/error.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX (1u << 20)

struct fgt_record {
    const fgt_param **param; /* those that match the pattern */
    size_t count;
    uint64_t first, steps; /* first: UINT64_MAX until the first gradient */
    float **grad;          /* steps x count; NULL: not recorded yet */
    bool out_of_memory;    /* an allocation failed */
};

static uint64_t elements_of(const fgt_param *p) {
    return (uint64_t)p->rows * p->cols;
}

static bool matches(const fgt_param *p, const char *pattern) {
    return !p->frozen && fnmatch(pattern, p->tensor.name, 0) == 0;
}

int fgt_record_create(const fgt_graph *graph, const char *pattern, uint64_t steps, fgt_record **record) {
    size_t count = 0;
    for (const fgt_param *p = graph->params; p; p = p->next)
        count += matches(p, pattern);
    if (count == 0)
        return fgio_error("--record-tensor: no trainable tensor matches '%s'", pattern);
    if (steps == 0 || steps > STEPS_MAX)
        return fgio_error("--record-steps: from 1 to %u", STEPS_MAX);
    fgt_record *r = calloc(1, sizeof *r);
    if (r) {
        *r = (fgt_record){.first = UINT64_MAX, .steps = steps};
        r->param = calloc(count, sizeof *r->param);
        r->grad = calloc(count * (size_t)steps, sizeof *r->grad);
    }
    if (!r || !r->param || !r->grad) {
        fgt_record_destroy(r);
        return fgio_error("not enough memory to record gradients");
    }
    for (const fgt_param *p = graph->params; p; p = p->next)
        if (matches(p, pattern))
            r->param[r->count++] = p;
    *record = r;
    return FGIO_EXIT_OK;
}

void fgt_record_destroy(fgt_record *r) {
    if (!r)
        return;
    for (size_t i = 0; r->grad && i < r->count * (size_t)r->steps; i++)
        free(r->grad[i]);
    free(r->grad);
    free(r->param);
    free(r);
}

void fgt_record_add(fgt_record *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad) {
    r->first = r->first == UINT64_MAX ? step : r->first;
    if (step < r->first || step - r->first >= r->steps)
        return;
    for (size_t i = 0; i < r->count; i++) {
        const fgt_param *p = r->param[i];
        uint64_t from = p->tensor.offset, to = from + elements_of(p), end = begin + count;
        from = from > begin ? from : begin;
        to = to < end ? to : end;
        if (from >= to)
            continue;
        float **kept = &r->grad[(size_t)(step - r->first) * r->count + i];
        if (!*kept)
            *kept = calloc((size_t)elements_of(p), sizeof **kept);
        r->out_of_memory |= !*kept;
        if (*kept)
            memcpy(*kept + (from - p->tensor.offset), grad + (from - begin), (size_t)(to - from) * sizeof **kept);
    }
}

/* The items of the header, in the order of the data. Returns how many, or -1 without memory. */
static long list_items(const fgt_record *r, fgio_tensor *items) {
    long count = 0;
    for (size_t i = 0; i < r->count * (size_t)r->steps; i++) {
        const fgt_param *p = r->param[i % r->count];
        char name[512];
        if (!r->grad[i])
            continue;
        snprintf(name, sizeof name, "%llu/%s", (unsigned long long)(r->first + i / r->count), p->tensor.name);
        fgio_tensor *item = &items[count++];
        *item = (fgio_tensor){.name = strdup(name), .dtype = FGIO_F32, .ndim = p->tensor.ndim, .count = elements_of(p)};
        memcpy(item->shape, p->tensor.shape, sizeof item->shape);
        if (!item->name)
            return -1;
    }
    return count;
}

static int write_file(const fgt_record *r, const char *path, const fgio_bytes *header) {
    fgio_writer writer = FGIO_WRITER_CLOSED;
    int code = fgio_writer_open(path, &writer);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put(&writer, header->data, header->len);
    for (size_t i = 0; i < r->count * (size_t)r->steps && code == FGIO_EXIT_OK; i++)
        if (r->grad[i])
            code = fgio_writer_put_f32(&writer, r->grad[i], (size_t)elements_of(r->param[i % r->count]));
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_commit(&writer);
    fgio_writer_abort(&writer);
    return code;
}

/* A run that was already at its end does not overwrite an earlier recording. */
int fgt_record_write(const fgt_record *r, const char *path, json_t *metadata) {
    if (r->first == UINT64_MAX) {
        fgio_hint("%s: not written, because there was no step to record", path);
        return FGIO_EXIT_OK;
    }
    size_t most = r->count * (size_t)r->steps;
    fgio_tensor *items = calloc(most, sizeof *items);
    fgio_bytes header = {NULL, 0};
    fgio_reason why = {0};
    long count = items && !r->out_of_memory ? list_items(r, items) : -1;
    int code = FGIO_EXIT_OK;
    if (count < 0)
        code = fgio_error("%s: not enough memory for the gradients", path);
    else if (fgio_safetensors_header(items, (size_t)count, metadata, &header, &why) != 0)
        code = fgio_error("%s: %s", path, why.text);
    if (code == FGIO_EXIT_OK)
        code = write_file(r, path, &header);
    for (size_t i = 0; items && i < most; i++)
        free(items[i].name);
    free(items);
    fgio_bytes_free(&header);
    return code;
}
