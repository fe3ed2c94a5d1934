/*
 * checkpoint_restore.c - restoring a checkpoint: worker 0 checks that the file has all parts, then reads them in chunks
 * and sends each to its owners.
 *
 * With another number of workers no residual fits a worker. The residuals of the old workers were to change the weights
 * by their mean, so every new worker gets that mean: the mean over the new workers is then the same, up to the rounding
 * of the residual's format. With reduce=nodes it is the mean of those that have the residual of an entry, one a node.
 * Each worker restores one old state after the other, sums the residuals, and keeps the rest of the last state (masks,
 * norms), which hardly differs between workers.
 */
#include "trainer/checkpoint/checkpoint_parts.h"

#include "io/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct restore_state {
    fgt_checkpoint *file;
    const fgt_checkpoint_state *state;
    bool redistribute;
    fgt_checkpoint_blobs blobs;
    fgt_checkpoint_agreement *all; /* of all workers */
    fgt_checkpoint_parts parts;
    float *residual_sum,
        *residual; /* sum of the residuals of the old workers so far; residual of one parameter of one of them */
    uint64_t bytes_since_sync; /* bytes since the last synchronization */
    int code;                  /* exit status of this worker */
} restore_state;

static size_t elements_of(const fgt_param *p) {
    return p->rows * p->cols;
}

/* The range of a parameter in the compressor's layout. With masks, where its tensors may be joined: of all parameters.
 */
static frug_range range_of(const restore_state *r, const fgt_param *p) {
    frug_range all = {0, 0};
    if (r->state->mask == NULL)
        return (frug_range){p->tensor.offset, elements_of(p)};
    for (; p != NULL; p = p->next)
        all.count += p->packed_count;
    return all;
}

static const fgt_param *next_range(const restore_state *r, const fgt_param *p) {
    return r->state->mask == NULL ? p->next : NULL;
}

static int alloc_memory(restore_state *r) {
    size_t largest = 0;
    if (r->redistribute && r->state->own_optimizer)
        return fgio_error("%s: has the optimizers of %" PRIu64 " workers, which differ with local steps, so it needs "
                          "as many workers; this run has %d",
                          r->file->path, r->file->workers, r->file->size);
    int code = fgt_checkpoint_blobs_alloc(&r->blobs, r->state);
    if (code != FGIO_EXIT_OK || !r->redistribute || r->state->compressor == NULL)
        return code;
    for (const fgt_param *p = r->state->graph->params; p != NULL; p = next_range(r, p))
        largest = range_of(r, p).count > largest ? range_of(r, p).count : largest;
    r->residual_sum = calloc((size_t)r->state->graph->elements + 1, sizeof *r->residual_sum);
    r->residual = malloc((largest + 1) * sizeof *r->residual);
    return r->residual_sum != NULL && r->residual != NULL
               ? FGIO_EXIT_OK
               : fgio_error("%s: not enough memory to redistribute residuals", r->file->path);
}

/* All workers build the same list of parts. */
static int list_parts(restore_state *r) {
    int old = (int)r->file->workers;
    fgt_checkpoint_parts_add_model(&r->parts, r->state->graph, r->state->stages);
    fgt_checkpoint_parts_add_outer(&r->parts, r->state);
    for (int i = 1; i < old && r->blobs.buffer_floats > 0 && !r->redistribute && !r->state->stages; i++)
        fgt_checkpoint_parts_add(&r->parts, FGT_PART_BUFFERS, i, i, r->blobs.buffer_floats, r->blobs.buffers);
    fgt_checkpoint_parts_add_sparse(&r->parts, r->state, r->redistribute ? 0 : old);
    fgt_checkpoint_parts_add_stages(&r->parts, r->state, old);
    fgt_checkpoint_parts_add_optimizer(&r->parts, r->state, old, r->all, r->blobs.optimizer);
    for (int i = 0; i < old && r->state->compressor != NULL && !r->parts.out_of_memory; i++)
        fgt_checkpoint_parts_add(&r->parts, FGT_PART_RESIDUAL, i, r->redistribute ? FGT_ALL_WORKERS : i,
                                 r->all[r->redistribute ? 0 : i].residual_bytes, r->blobs.residual);
    return r->parts.out_of_memory ? fgio_error("%s: out of memory", r->file->path) : FGIO_EXIT_OK;
}

/* Checks that the file has a part with the right type and shape, and stores its offset. */
static int find_part(const fgt_checkpoint *c, fgt_checkpoint_part *part) {
    const fgio_tensor_file *file = &c->file;
    const fgio_tensor *item = fgio_safetensors_find(&file->head, part->item.name), *want = &part->item;
    const char *model = json_string_value(json_object_get(c->metadata, "model"));
    char has[128], wants[128];
    if (item == NULL && part->kind == FGT_PART_MODEL)
        return fgio_error("%s: has no tensor '%s', which this model has; the checkpoint is of model %s", file->path,
                          want->name, model == NULL ? "unknown" : model);
    if (item == NULL)
        return fgio_error("%s: has no tensor '%s': it was written without that state", file->path, want->name);
    bool same = item->dtype == want->dtype && item->ndim == want->ndim &&
                memcmp(item->shape, want->shape, want->ndim * sizeof *want->shape) == 0;
    if (!same && part->kind == FGT_PART_MODEL)
        return fgio_error("%s: tensor '%s' has shape %s%s; the model has %s of F32", file->path, want->name,
                          fgio_shape_text(item->ndim, item->shape, has, sizeof has),
                          item->dtype == FGIO_F32 ? "" : ", not of F32",
                          fgio_shape_text(want->ndim, want->shape, wants, sizeof wants));
    if (!same)
        return fgio_error("%s: '%s' has %" PRIu64 " bytes, this run's has %" PRIu64
                          ": it was written with another method, optimizer, model or number of steps, or by another "
                          "version",
                          file->path, want->name, item->count * fgio_dtype_size(item->dtype), part->bytes);
    part->item.offset = item->offset;
    return FGIO_EXIT_OK;
}

static int find_parts(restore_state *r) {
    for (size_t i = 0; i < r->parts.count; i++)
        if (find_part(r->file, &r->parts.part[i]) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    return FGIO_EXIT_OK;
}

static bool is_for_this_rank(const fgt_checkpoint *file, const fgt_checkpoint_part *part) {
    return part->worker == FGT_ALL_WORKERS || part->worker == file->rank;
}

/* One chunk, from the file to the owners. Returns errors of the comm only; if worker 0 cannot read, it sends what it
 * has and reports the error at the next synchronization. */
static int read_chunk(restore_state *r, const fgt_checkpoint_part *part, uint64_t at, size_t bytes) {
    fgt_checkpoint *file = r->file;
    frug_status status = FRUG_OK;
    if (file->rank == 0) {
        if (r->code == FGIO_EXIT_OK)
            r->code = fgio_tensor_file_read(&file->file, part->item.offset + at, file->chunk, bytes);
        for (int to = 1; to < file->size && status == FRUG_OK; to++)
            if (part->worker == FGT_ALL_WORKERS || part->worker == to)
                status = frug_comm_send(file->comm, to, file->chunk, bytes);
    } else if (is_for_this_rank(file, part)) {
        status = frug_comm_receive(file->comm, 0, file->chunk, bytes);
    }
    if (status != FRUG_OK)
        return fgio_library_error("checkpoint");
    if (is_for_this_rank(file, part))
        fgt_checkpoint_part_unpack(part, at, bytes, file->chunk);
    return FGIO_EXIT_OK;
}

static int add_residual(restore_state *r) {
    for (const fgt_param *p = r->state->graph->params; p != NULL; p = next_range(r, p)) {
        frug_range range = range_of(r, p);
        float *residual_sum = r->residual_sum + range.begin;
        if (frug_compressor_get_residual(r->state->compressor, range, r->residual) != FRUG_OK)
            return fgio_library_error(r->file->path);
        for (size_t i = 0; i < range.count; i++)
            residual_sum[i] += r->residual[i];
    }
    return FGIO_EXIT_OK;
}

static int set_mean_residual(restore_state *r) {
    uint32_t node = r->state->node ? r->state->node : 1;
    float old = (float)r->file->workers / (float)node; /* that had a residual */
    for (const fgt_param *p = r->state->graph->params; p != NULL; p = next_range(r, p)) {
        frug_range range = range_of(r, p);
        float *residual_sum = r->residual_sum + range.begin;
        for (size_t i = 0; i < range.count; i++)
            residual_sum[i] /= old;
        if (frug_compressor_set_residual(r->state->compressor, range, residual_sum) != FRUG_OK)
            return fgio_library_error(r->file->path);
    }
    return FGIO_EXIT_OK;
}

/* A part is complete: restore its object. */
static int apply_part(restore_state *r, const fgt_checkpoint_part *part) {
    frug_status status = FRUG_OK;
    if (part->kind == FGT_PART_BUFFERS)
        fgt_checkpoint_copy_buffers(&r->blobs, r->state->graph, true);
    else if (part->kind == FGT_PART_OPTIMIZER)
        status = frug_optimizer_restore(r->state->optimizer, r->blobs.optimizer, r->blobs.optimizer_bytes);
    else if (part->kind == FGT_PART_RESIDUAL)
        status = frug_compressor_restore(r->state->compressor, r->blobs.residual, r->blobs.residual_bytes);
    if (status != FRUG_OK)
        return fgio_error("%s: '%s': %s", r->file->path, part->item.name, frug_last_error());
    return part->kind == FGT_PART_RESIDUAL && r->redistribute ? add_residual(r) : FGIO_EXIT_OK;
}

static int read_part(restore_state *r, const fgt_checkpoint_part *part) {
    for (uint64_t at = 0; at < part->bytes; at += FGT_CHUNK_BYTES) {
        uint64_t left = part->bytes - at;
        size_t bytes = left < FGT_CHUNK_BYTES ? (size_t)left : FGT_CHUNK_BYTES;
        if (read_chunk(r, part, at, bytes) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        r->bytes_since_sync += bytes;
        if (r->bytes_since_sync >= FGT_SYNC_BYTES) {
            r->bytes_since_sync = 0;
            if (fgt_checkpoint_sync(r->state->comm, r->code) != FGIO_EXIT_OK)
                return FGIO_EXIT_FAIL;
        }
    }
    if (r->code == FGIO_EXIT_OK && is_for_this_rank(r->file, part))
        r->code = apply_part(r, part);
    return FGIO_EXIT_OK;
}

static int restore_all(restore_state *r) {
    r->code = alloc_memory(r);
    if (fgt_checkpoint_agree(r->state, &r->blobs, r->file->step, r->code, &r->all) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    r->code = list_parts(r);
    if (r->file->rank == 0 && r->code == FGIO_EXIT_OK)
        r->code = find_parts(r);
    if (fgt_checkpoint_sync(r->state->comm, r->code) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    for (size_t i = 0; i < r->parts.count; i++)
        if (read_part(r, &r->parts.part[i]) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    if (r->code == FGIO_EXIT_OK && r->residual_sum != NULL)
        r->code = set_mean_residual(r);
    return fgt_checkpoint_sync(r->state->comm, r->code);
}

int fgt_checkpoint_restore(fgt_checkpoint *checkpoint, const fgt_checkpoint_state *state, bool *redistributed) {
    restore_state r = {
        .file = checkpoint, .state = state, .redistribute = checkpoint->workers != (uint64_t)checkpoint->size};
    int code = restore_all(&r);
    if (code == FGIO_EXIT_OK)
        *redistributed = r.redistribute;
    fgt_checkpoint_parts_free(&r.parts);
    fgt_checkpoint_blobs_free(&r.blobs);
    free(r.all);
    free(r.residual_sum);
    free(r.residual);
    return code;
}
