/*
 * checkpoint_parts.c - the parts of a checkpoint and the agreement of workers about them. Floats are little-endian in
 * files on every host, so they are packed for transfer. Workers agree by an all-gather of a few words: a worker that
 * failed alone would leave the others waiting.
 */
#include "trainer/checkpoint/checkpoint_parts.h"

#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fgt_checkpoint_part *append_part(fgt_checkpoint_parts *parts, fgt_checkpoint_part_kind kind, int worker,
                                        const char *name) {
    if (parts->count == parts->capacity) {
        size_t capacity = 2 * parts->capacity + 64;
        fgt_checkpoint_part *grown = realloc(parts->part, capacity * sizeof *grown);
        if (grown == NULL) {
            parts->out_of_memory = true;
            return NULL;
        }
        parts->part = grown;
        parts->capacity = capacity;
    }
    fgt_checkpoint_part *part = &parts->part[parts->count];
    *part = (fgt_checkpoint_part){.kind = kind, .worker = worker, .item = {.name = strdup(name)}};
    if (part->item.name == NULL) {
        parts->out_of_memory = true;
        return NULL;
    }
    parts->count++;
    return part;
}

static void set_shape(fgt_checkpoint_part *part, fgio_dtype dtype, uint32_t ndim, const uint64_t *shape) {
    part->item.dtype = dtype;
    part->item.ndim = ndim;
    part->item.count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        part->item.count *= part->item.shape[d] = shape[d];
    part->bytes = part->item.count * fgio_dtype_size(dtype);
}

void fgt_checkpoint_parts_add_model(fgt_checkpoint_parts *parts, fgt_graph *graph, bool by_stage) {
    for (fgt_param *p = graph->params; p != NULL; p = p->next) {
        int owner = by_stage ? (int)p->stage : FGT_ALL_WORKERS;
        fgt_checkpoint_part *part = append_part(parts, FGT_PART_MODEL, owner, p->tensor.name);
        if (part == NULL)
            return;
        set_shape(part, FGIO_F32, p->tensor.ndim, p->tensor.shape);
        part->memory = p->w;
    }
    for (fgt_buffer *b = graph->buffers; b != NULL; b = b->next) {
        int owner = by_stage ? (int)b->stage : FGT_ALL_WORKERS;
        fgt_checkpoint_part *part = append_part(parts, FGT_PART_MODEL, owner, b->name);
        if (part == NULL)
            return;
        set_shape(part, FGIO_F32, 1, &(uint64_t){b->count});
        part->memory = b->data;
    }
}

void fgt_checkpoint_parts_add_outer(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state) {
    fgt_checkpoint_part *part =
        state->outer == NULL ? NULL : append_part(parts, FGT_PART_OUTER, FGT_ALL_WORKERS, "frugrad.outer");
    if (part == NULL)
        return;
    set_shape(part, FGIO_F32, 1, &state->graph->elements);
    part->memory = state->outer;
}

void fgt_checkpoint_parts_add(fgt_checkpoint_parts *parts, fgt_checkpoint_part_kind kind, int number, int worker,
                              uint64_t count, void *memory) {
    static const char *const names[] = {
        [FGT_PART_BUFFERS] = "buffers", [FGT_PART_OPTIMIZER] = "optimizer", [FGT_PART_RESIDUAL] = "residual",
        [FGT_PART_MASK] = "mask",       [FGT_PART_MASTER] = "master",       [FGT_PART_GROWTH] = "growth",
        [FGT_PART_STAGE] = "stage"};
    const bool floats =
        kind == FGT_PART_BUFFERS || kind == FGT_PART_MASTER || kind == FGT_PART_GROWTH || kind == FGT_PART_STAGE;
    char name[64];
    if (kind == FGT_PART_MASK || kind == FGT_PART_MASTER || (kind == FGT_PART_OPTIMIZER && number == 0))
        snprintf(name, sizeof name, "frugrad.%s", names[kind]);
    else
        snprintf(name, sizeof name, "frugrad.%s.%d", names[kind], number);
    fgt_checkpoint_part *part = append_part(parts, kind, worker, name);
    if (part != NULL) {
        set_shape(part, floats ? FGIO_F32 : FGIO_U8, 1, &count);
        part->memory = memory;
    }
}

void fgt_checkpoint_parts_add_optimizer(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state, int workers,
                                        const fgt_checkpoint_agreement *all, void *memory) {
    if (state->optimizer == NULL)
        return;
    for (int r = 0; r < (state->own_optimizer ? workers : 1) && !parts->out_of_memory; r++)
        fgt_checkpoint_parts_add(parts, FGT_PART_OPTIMIZER, r, state->own_optimizer ? r : FGT_ALL_WORKERS,
                                 all[r].optimizer_bytes, memory);
}

void fgt_checkpoint_parts_add_sparse(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state, int workers) {
    const uint64_t floats = state->graph->elements;
    if (state->master != NULL)
        fgt_checkpoint_parts_add(parts, FGT_PART_MASTER, 0, FGT_ALL_WORKERS, floats, state->master);
    for (int r = 0; r < workers && state->growth != NULL; r++)
        fgt_checkpoint_parts_add(parts, FGT_PART_GROWTH, r, r, floats, state->growth);
    if (state->mask != NULL)
        fgt_checkpoint_parts_add(parts, FGT_PART_MASK, 0, FGT_ALL_WORKERS, state->mask_bytes, state->mask);
}

void fgt_checkpoint_parts_add_stages(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state, int workers) {
    for (int r = 0; r < workers && state->memory_floats; r++)
        fgt_checkpoint_parts_add(parts, FGT_PART_STAGE, r, r, state->memory_floats, state->memory);
}

void fgt_checkpoint_parts_free(fgt_checkpoint_parts *parts) {
    for (size_t i = 0; i < parts->count; i++)
        free(parts->part[i].item.name);
    free(parts->part);
    *parts = (fgt_checkpoint_parts){NULL, 0, 0, false};
}

void fgt_checkpoint_part_pack(const fgt_checkpoint_part *part, uint64_t at, size_t bytes, unsigned char *dst) {
    if (part->item.dtype == FGIO_U8) {
        memcpy(dst, (const unsigned char *)part->memory + at, bytes);
        return;
    }
    const float *src = (const float *)part->memory + at / 4;
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, 4);
        for (unsigned b = 0; b < 4; b++)
            dst[4 * i + b] = (unsigned char)(bits >> 8 * b);
    }
}

void fgt_checkpoint_part_unpack(const fgt_checkpoint_part *part, uint64_t at, size_t bytes, const unsigned char *src) {
    if (part->item.dtype == FGIO_U8) {
        memcpy((unsigned char *)part->memory + at, src, bytes);
        return;
    }
    fgio_tensor floats = {.dtype = FGIO_F32, .ndim = 1, .shape = {bytes / 4}, .count = bytes / 4, .data = src};
    fgio_tensor_to_f32(&floats, (float *)part->memory + at / 4);
}

int fgt_checkpoint_blobs_alloc(fgt_checkpoint_blobs *blobs, const fgt_checkpoint_state *state) {
    *blobs = (fgt_checkpoint_blobs){NULL, NULL, NULL, 0, 0, 0};
    for (const fgt_buffer *b = state->graph->buffers; b != NULL; b = b->next)
        blobs->buffer_floats += b->count;
    blobs->residual_bytes = frug_compressor_state_size(state->compressor);
    blobs->optimizer_bytes = state->optimizer == NULL ? 0 : frug_optimizer_state_size(state->optimizer);
    blobs->residual = malloc(blobs->residual_bytes + 1);
    blobs->optimizer = malloc(blobs->optimizer_bytes + 1);
    blobs->buffers = malloc((blobs->buffer_floats + 1) * sizeof *blobs->buffers);
    if (blobs->residual == NULL || blobs->optimizer == NULL || blobs->buffers == NULL)
        return fgio_error("checkpoint: not enough memory for the state of this worker (%zu bytes)",
                          blobs->residual_bytes + blobs->optimizer_bytes);
    return FGIO_EXIT_OK;
}

void fgt_checkpoint_blobs_free(fgt_checkpoint_blobs *blobs) {
    free(blobs->residual);
    free(blobs->optimizer);
    free(blobs->buffers);
}

void fgt_checkpoint_copy_buffers(fgt_checkpoint_blobs *blobs, fgt_graph *graph, bool into_graph) {
    float *at = blobs->buffers;
    for (fgt_buffer *b = graph->buffers; b != NULL; at += b->count, b = b->next) {
        if (into_graph)
            memcpy(b->data, at, b->count * sizeof *at);
        else
            memcpy(at, b->data, b->count * sizeof *at);
    }
}

/* The first worker that differs from worker 0; -1: none. A worker that has failed reports its own error. */
static int first_difference(const fgt_checkpoint_agreement *all, int size, bool stages, const char **what) {
    for (int r = 1; r < size; r++) {
        *what = all[r].step != all[0].step                                    ? "the step"
                : !stages && all[r].residual_bytes != all[0].residual_bytes   ? "the compression method"
                : !stages && all[r].optimizer_bytes != all[0].optimizer_bytes ? "the optimizer"
                : all[r].buffer_floats != all[0].buffer_floats                ? "the model"
                                                                              : NULL;
        if (*what != NULL)
            return r;
    }
    return -1;
}

int fgt_checkpoint_agree(const fgt_checkpoint_state *state, const fgt_checkpoint_blobs *blobs, uint64_t step, int code,
                         fgt_checkpoint_agreement **result) {
    int size = frug_comm_size(state->comm);
    fgt_checkpoint_agreement mine = {(uint64_t)code, step, blobs->residual_bytes, blobs->optimizer_bytes,
                                     blobs->buffer_floats};
    fgt_checkpoint_agreement *all = calloc((size_t)size, sizeof *all);
    const char *what = NULL;
    if (all == NULL)
        return fgio_error("checkpoint: out of memory");
    if (frug_comm_allgather(state->comm, &mine, sizeof mine, all) != FRUG_OK) {
        free(all);
        return fgio_library_error("checkpoint");
    }
    int differing = first_difference(all, size, state->stages, &what);
    code = FGIO_EXIT_OK;
    for (int r = 0; r < size; r++)
        if (all[r].code != FGIO_EXIT_OK)
            code = FGIO_EXIT_FAIL;
    if (code == FGIO_EXIT_OK && differing >= 0) {
        code = FGIO_EXIT_FAIL;
        if (frug_comm_rank(state->comm) == 0)
            fgio_error("checkpoint: workers 0 and %d disagree about %s", differing, what);
    }
    if (code == FGIO_EXIT_OK)
        *result = all;
    else
        free(all);
    return code;
}

int fgt_checkpoint_sync(frug_comm *comm, int code) {
    size_t size = (size_t)frug_comm_size(comm);
    unsigned char mine = code != FGIO_EXIT_OK;
    unsigned char *all = calloc(size, 1);
    if (all == NULL)
        return fgio_error("checkpoint: out of memory");
    if (frug_comm_allgather(comm, &mine, 1, all) != FRUG_OK)
        code = fgio_library_error("checkpoint");
    else
        for (size_t r = 0; r < size; r++)
            if (all[r] != 0)
                code = FGIO_EXIT_FAIL;
    free(all);
    return code;
}
