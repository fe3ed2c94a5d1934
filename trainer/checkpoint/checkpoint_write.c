/*
 * checkpoint_write.c - writing a checkpoint: the header, then every part in chunks, then a checksum; then the file is
 * renamed. Worker 0 writes; the others send it the parts that only they have. When its disk fails, worker 0 still
 * receives and drops the chunks until the next synchronization, where all workers learn of the error. The file is
 * synced before each synchronization, so that the last sync is short.
 */
#include "trainer/checkpoint/checkpoint_parts.h"

#include "base/crc32c.h"
#include "io/files.h"
#include "io/error.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer_state {
    const fgt_checkpoint_state *state;
    int rank, size;
    fgt_checkpoint_blobs blobs;
    fgt_checkpoint_agreement *all; /* of all workers */
    fgt_checkpoint_parts parts;
    fgio_writer writer;  /* worker 0's */
    char path[PATH_MAX]; /* likewise */
    uint64_t generation;
    unsigned char *chunk;
    uint32_t sum;
    uint64_t bytes_since_sync; /* bytes since the last synchronization */
    int code;                  /* exit status of this worker */
} writer_state;

/* Saves the states of this worker to memory. */
static int save_states(writer_state *w) {
    const fgt_checkpoint_state *s = w->state;
    size_t len;
    int code = fgt_checkpoint_blobs_alloc(&w->blobs, s);
    if (code != FGIO_EXIT_OK)
        return code;
    fgt_checkpoint_copy_buffers(&w->blobs, s->graph, false);
    w->chunk = malloc(FGT_CHUNK_BYTES);
    if (w->chunk == NULL)
        return fgio_error("checkpoint: out of memory");
    if (s->compressor != NULL &&
        frug_compressor_save(s->compressor, w->blobs.residual, w->blobs.residual_bytes, &len) != FRUG_OK)
        return fgio_library_error("checkpoint");
    if (s->optimizer != NULL && (w->rank == 0 || s->own_optimizer) &&
        frug_optimizer_save(s->optimizer, w->blobs.optimizer, w->blobs.optimizer_bytes, &len) != FRUG_OK)
        return fgio_library_error("checkpoint");
    return FGIO_EXIT_OK;
}

/* All workers build the same list of parts: floats first, so that all are aligned. */
static int list_parts(writer_state *w) {
    fgt_checkpoint_parts_add_model(&w->parts, w->state->graph, w->state->stages);
    fgt_checkpoint_parts_add_outer(&w->parts, w->state);
    for (int r = 1; r < w->size && w->blobs.buffer_floats > 0 && !w->state->stages; r++)
        fgt_checkpoint_parts_add(&w->parts, FGT_PART_BUFFERS, r, r, w->blobs.buffer_floats, w->blobs.buffers);
    fgt_checkpoint_parts_add_sparse(&w->parts, w->state, w->size);
    fgt_checkpoint_parts_add_stages(&w->parts, w->state, w->size);
    fgt_checkpoint_parts_add_optimizer(&w->parts, w->state, w->size, w->all, w->blobs.optimizer);
    for (int r = 0; r < w->size && w->state->compressor != NULL; r++)
        fgt_checkpoint_parts_add(&w->parts, FGT_PART_RESIDUAL, r, r, w->all[r].residual_bytes, w->blobs.residual);
    return w->parts.out_of_memory ? fgio_error("checkpoint: out of memory") : FGIO_EXIT_OK;
}

/* NULL without memory. */
static json_t *metadata_of(const writer_state *w, uint64_t step, json_t *run_metadata) {
    const char *key;
    json_t *value;
    char number[32];
    json_t *metadata = json_object();
    int failed = metadata == NULL;
    json_object_foreach(run_metadata, key, value) {
        if (json_is_string(value))
            failed |= json_object_set(metadata, key, value);
    }
    failed |= json_object_set_new(metadata, "format", json_string("pt")); /* expected by readers of models */
    failed |= json_object_set_new(metadata, FGT_KEY_FORMAT, json_string(FGT_FORMAT));
    snprintf(number, sizeof number, "%" PRIu64, step);
    failed |= json_object_set_new(metadata, FGT_KEY_STEP, json_string(number));
    snprintf(number, sizeof number, "%d", w->size);
    failed |= json_object_set_new(metadata, FGT_KEY_WORKERS, json_string(number));
    snprintf(number, sizeof number, "%" PRIu64, w->generation);
    if (w->generation > 0)
        failed |= json_object_set_new(metadata, FGT_KEY_GENERATION, json_string(number));
    if (!failed)
        return metadata;
    json_decref(metadata);
    return NULL;
}

static void write_bytes(writer_state *w, const void *bytes, size_t len) {
    if (w->code != FGIO_EXIT_OK)
        return;
    w->sum = frugi_crc32c(w->sum, bytes, len);
    w->code = fgio_writer_put(&w->writer, bytes, len);
}

static int write_header(writer_state *w, uint64_t step, json_t *run_metadata) {
    fgio_bytes header = {NULL, 0};
    fgio_reason why;
    size_t count = w->parts.count;
    fgio_tensor *items = calloc(count + 1, sizeof *items);
    if (items == NULL)
        return fgio_error("%s: out of memory", w->path);
    for (size_t i = 0; i < count; i++)
        items[i] = w->parts.part[i].item;
    items[count] = (fgio_tensor){.name = (char[]){FGT_CHECKSUM_NAME},
                                 .dtype = FGIO_U8,
                                 .ndim = 1,
                                 .shape = {FGT_CHECKSUM_BYTES},
                                 .count = FGT_CHECKSUM_BYTES};
    json_t *metadata = metadata_of(w, step, run_metadata);
    int bad = metadata == NULL ? fgio_fail(&why, "out of memory")
                               : fgio_safetensors_header(items, count + 1, metadata, &header, &why);
    json_decref(metadata);
    free(items);
    if (bad)
        return fgio_error("%s: %s", w->path, why.text);
    write_bytes(w, header.data, header.len);
    fgio_bytes_free(&header);
    return w->code;
}

static int open_file(writer_state *w, const char *directory, uint64_t step, json_t *run_metadata) {
    if (!fgt_checkpoint_name(directory, step, w->path, sizeof w->path))
        return fgio_error("%s: the name is too long", directory);
    int code = fgio_directory_make(directory);
    if (code != FGIO_EXIT_OK)
        return code;
    fgio_directory_clean(directory);
    code = fgio_writer_open(w->path, &w->writer);
    return code != FGIO_EXIT_OK ? code : write_header(w, step, run_metadata);
}

/* One chunk of a part: from memory or from its owner, to the file. Returns errors of the comm only. */
static int write_chunk(writer_state *w, const fgt_checkpoint_part *part, uint64_t at, size_t bytes) {
    int owner = part->worker == FGT_ALL_WORKERS ? 0 : part->worker;
    frug_status status = FRUG_OK;
    if (w->rank == owner)
        fgt_checkpoint_part_pack(part, at, bytes, w->chunk);
    if (owner != 0 && w->rank == owner)
        status = frug_comm_send(w->state->comm, 0, w->chunk, bytes);
    else if (owner != 0 && w->rank == 0)
        status = frug_comm_receive(w->state->comm, owner, w->chunk, bytes);
    if (status != FRUG_OK)
        return fgio_library_error("checkpoint");
    if (w->rank == 0)
        write_bytes(w, w->chunk, bytes);
    return FGIO_EXIT_OK;
}

/* Synchronizes all workers after every FGT_SYNC_BYTES. */
static int sync_if_due(writer_state *w, uint64_t bytes) {
    w->bytes_since_sync += bytes;
    if (w->bytes_since_sync < FGT_SYNC_BYTES)
        return FGIO_EXIT_OK;
    w->bytes_since_sync = 0;
    if (w->rank == 0 && w->code == FGIO_EXIT_OK)
        w->code = fgio_writer_sync(&w->writer);
    return fgt_checkpoint_sync(w->state->comm, w->code);
}

static int write_parts(writer_state *w) {
    for (size_t i = 0; i < w->parts.count; i++) {
        const fgt_checkpoint_part *part = &w->parts.part[i];
        for (uint64_t at = 0; at < part->bytes; at += FGT_CHUNK_BYTES) {
            uint64_t left = part->bytes - at;
            size_t bytes = left < FGT_CHUNK_BYTES ? (size_t)left : FGT_CHUNK_BYTES;
            if (write_chunk(w, part, at, bytes) != FGIO_EXIT_OK || sync_if_due(w, bytes) != FGIO_EXIT_OK)
                return FGIO_EXIT_FAIL;
        }
    }
    return FGIO_EXIT_OK;
}

static void finish_file(writer_state *w) {
    unsigned char sum[FGT_CHECKSUM_BYTES];
    for (unsigned i = 0; i < sizeof sum; i++)
        sum[i] = (unsigned char)(w->sum >> 8 * i);
    write_bytes(w, sum, sizeof sum);
    if (w->code == FGIO_EXIT_OK)
        w->code = fgio_writer_commit(&w->writer);
}

/* The collective steps; between them each worker does its own work. */
static int write_all(writer_state *w, const char *directory, uint64_t step, json_t *run_metadata) {
    w->code = save_states(w);
    if (fgt_checkpoint_agree(w->state, &w->blobs, step, w->code, &w->all) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    w->code = list_parts(w);
    if (w->rank == 0 && w->code == FGIO_EXIT_OK)
        w->code = open_file(w, directory, step, run_metadata);
    if (fgt_checkpoint_sync(w->state->comm, w->code) != FGIO_EXIT_OK || write_parts(w) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (w->rank == 0)
        finish_file(w);
    return fgt_checkpoint_sync(w->state->comm, w->code);
}

int fgt_checkpoint_write(const char *directory, uint32_t keep, uint64_t generation, uint64_t step,
                         const fgt_checkpoint_state *state, json_t *run_metadata, char *path, size_t cap) {
    writer_state w = {.state = state,
                      .generation = generation,
                      .rank = frug_comm_rank(state->comm),
                      .size = frug_comm_size(state->comm),
                      .writer = FGIO_WRITER_CLOSED};
    int code = write_all(&w, directory, step, run_metadata);
    if (code == FGIO_EXIT_OK && w.rank == 0) {
        fgt_checkpoint_prune(directory, keep, generation, step);
        if (path != NULL)
            snprintf(path, cap, "%s", w.path);
    }
    fgio_writer_abort(&w.writer);
    fgt_checkpoint_parts_free(&w.parts);
    fgt_checkpoint_blobs_free(&w.blobs);
    free(w.all);
    free(w.chunk);
    return code;
}
