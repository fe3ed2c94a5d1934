/*
 * Writing a checkpoint: header first, then every part in pieces, then a checksum, then the name. Worker 0 writes; the
 * others send it what only they have. When its disk fails worker 0 still takes what is sent and drops it, until the
 * next meeting, where all hear of it. The file is synced before each meeting, so that the one at the end is short.
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

typedef struct writing {
    const fgt_state *state;
    int rank, size;
    fgt_blobs blobs;
    fgt_parts parts;
    fgio_writer writer;  /* worker 0's */
    char path[PATH_MAX]; /* likewise */
    uint64_t generation;
    unsigned char *piece;
    uint32_t sum;
    uint64_t since; /* bytes since the workers have met */
    int code;       /* how this worker does */
} writing;

/* Have in memory what only this worker can say. */
static int save_states(writing *w) {
    const fgt_state *s = w->state;
    size_t len;
    int code = fgt_blobs_take(&w->blobs, s);
    if (code != FGIO_EXIT_OK)
        return code;
    fgt_blobs_buffers(&w->blobs, s->graph, false);
    w->piece = malloc(FGT_PIECE_BYTES);
    if (w->piece == NULL)
        return fgio_error("checkpoint: out of memory");
    if (s->compressor != NULL &&
        frug_compressor_save(s->compressor, w->blobs.residual, w->blobs.residual_bytes, &len) != FRUG_OK)
        return fgio_library_error("checkpoint");
    if (s->optimizer != NULL && w->rank == 0 &&
        frug_optimizer_save(s->optimizer, w->blobs.optimizer, w->blobs.optimizer_bytes, &len) != FRUG_OK)
        return fgio_library_error("checkpoint");
    return FGIO_EXIT_OK;
}

/* All workers make the same list: floats first, so that all are aligned. */
static int list_parts(writing *w) {
    fgt_parts_model(&w->parts, w->state->graph);
    for (int r = 1; r < w->size && w->blobs.buffer_floats > 0; r++)
        fgt_parts_add(&w->parts, FGT_PART_BUFFERS, r, r, w->blobs.buffer_floats, w->blobs.buffers);
    if (w->state->optimizer != NULL)
        fgt_parts_add(&w->parts, FGT_PART_OPTIMIZER, 0, FGT_ALL_WORKERS, w->blobs.optimizer_bytes, w->blobs.optimizer);
    for (int r = 0; r < w->size && w->state->compressor != NULL; r++)
        fgt_parts_add(&w->parts, FGT_PART_RESIDUAL, r, r, w->blobs.residual_bytes, w->blobs.residual);
    return w->parts.broken ? fgio_error("checkpoint: out of memory") : FGIO_EXIT_OK;
}

static json_t *metadata_of(const writing *w, uint64_t step, json_t *facts) {
    const char *key;
    json_t *value;
    char number[32];
    json_t *metadata = json_object();
    json_object_foreach(facts, key, value) {
        if (json_is_string(value))
            json_object_set(metadata, key, value);
    }
    json_object_set_new(metadata, "format", json_string("pt")); /* what readers of models ask for */
    json_object_set_new(metadata, FGT_KEY_FORMAT, json_string(FGT_FORMAT));
    snprintf(number, sizeof number, "%" PRIu64, step);
    json_object_set_new(metadata, FGT_KEY_STEP, json_string(number));
    snprintf(number, sizeof number, "%d", w->size);
    json_object_set_new(metadata, FGT_KEY_WORKERS, json_string(number));
    snprintf(number, sizeof number, "%" PRIu64, w->generation);
    if (w->generation > 0)
        json_object_set_new(metadata, FGT_KEY_GENERATION, json_string(number));
    return metadata;
}

static void put(writing *w, const void *bytes, size_t len) {
    if (w->code != FGIO_EXIT_OK)
        return;
    w->sum = frugi_crc32c(w->sum, bytes, len);
    w->code = fgio_writer_put(&w->writer, bytes, len);
}

static int put_header(writing *w, uint64_t step, json_t *facts) {
    fgio_bytes header = {NULL, 0};
    fgio_why why;
    size_t count = w->parts.count;
    fgio_item *items = calloc(count + 1, sizeof *items);
    if (items == NULL)
        return fgio_error("%s: out of memory", w->path);
    for (size_t i = 0; i < count; i++)
        items[i] = w->parts.part[i].item;
    items[count] = (fgio_item){.name = (char[]){FGT_CHECKSUM_NAME},
                               .dtype = FGIO_U8,
                               .ndim = 1,
                               .shape = {FGT_CHECKSUM_BYTES},
                               .count = FGT_CHECKSUM_BYTES};
    json_t *metadata = metadata_of(w, step, facts);
    int bad = fgio_safetensors_header(items, count + 1, metadata, &header, &why);
    json_decref(metadata);
    free(items);
    if (bad)
        return fgio_error("%s: %s", w->path, why.text);
    put(w, header.data, header.len);
    fgio_bytes_free(&header);
    return w->code;
}

static int open_file(writing *w, const char *directory, uint64_t step, json_t *facts) {
    if (!fgt_checkpoint_name(directory, step, w->path, sizeof w->path))
        return fgio_error("%s: the name is too long", directory);
    int code = fgio_folder_make(directory);
    if (code != FGIO_EXIT_OK)
        return code;
    fgio_folder_clean(directory);
    code = fgio_writer_open(w->path, &w->writer);
    return code != FGIO_EXIT_OK ? code : put_header(w, step, facts);
}

/* One piece of a part: from memory or from the worker that has it, to the file. Only the comm's errors are returned. */
static int move_piece(writing *w, const fgt_part *part, uint64_t at, size_t bytes) {
    int owner = part->worker == FGT_ALL_WORKERS ? 0 : part->worker;
    frug_status status = FRUG_OK;
    if (w->rank == owner)
        fgt_part_pack(part, at, bytes, w->piece);
    if (owner != 0 && w->rank == owner)
        status = frug_comm_send(w->state->comm, 0, w->piece, bytes);
    else if (owner != 0 && w->rank == 0)
        status = frug_comm_receive(w->state->comm, owner, w->piece, bytes);
    if (status != FRUG_OK)
        return fgio_library_error("checkpoint");
    if (w->rank == 0)
        put(w, w->piece, bytes);
    return FGIO_EXIT_OK;
}

/* Meet when much has been written since the last time. */
static int meet_now_and_then(writing *w, uint64_t bytes) {
    w->since += bytes;
    if (w->since < FGT_MEET_BYTES)
        return FGIO_EXIT_OK;
    w->since = 0;
    if (w->rank == 0 && w->code == FGIO_EXIT_OK)
        w->code = fgio_writer_sync(&w->writer);
    return fgt_meet(w->state->comm, w->code);
}

static int put_parts(writing *w) {
    for (size_t i = 0; i < w->parts.count; i++) {
        const fgt_part *part = &w->parts.part[i];
        for (uint64_t at = 0; at < part->bytes; at += FGT_PIECE_BYTES) {
            uint64_t left = part->bytes - at;
            size_t bytes = left < FGT_PIECE_BYTES ? (size_t)left : FGT_PIECE_BYTES;
            if (move_piece(w, part, at, bytes) != FGIO_EXIT_OK || meet_now_and_then(w, bytes) != FGIO_EXIT_OK)
                return FGIO_EXIT_FAIL;
        }
    }
    return FGIO_EXIT_OK;
}

static void finish_file(writing *w) {
    unsigned char sum[FGT_CHECKSUM_BYTES];
    for (unsigned i = 0; i < sizeof sum; i++)
        sum[i] = (unsigned char)(w->sum >> 8 * i);
    put(w, sum, sizeof sum);
    if (w->code == FGIO_EXIT_OK)
        w->code = fgio_writer_commit(&w->writer);
}

/* The meetings of all workers; between them each does its part. */
static int write_all(writing *w, const char *directory, uint64_t step, json_t *facts) {
    w->code = save_states(w);
    if (w->code == FGIO_EXIT_OK)
        w->code = list_parts(w);
    if (fgt_agree(w->state, &w->blobs, step, w->code) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (w->rank == 0)
        w->code = open_file(w, directory, step, facts);
    if (fgt_meet(w->state->comm, w->code) != FGIO_EXIT_OK || put_parts(w) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (w->rank == 0)
        finish_file(w);
    return fgt_meet(w->state->comm, w->code);
}

int fgt_checkpoint_write(const char *directory, uint32_t keep, uint64_t generation, uint64_t step,
                         const fgt_state *state, json_t *facts, char *path, size_t cap) {
    writing w = {.state = state,
                 .generation = generation,
                 .rank = frug_comm_rank(state->comm),
                 .size = frug_comm_size(state->comm),
                 .writer = FGIO_WRITER_CLOSED};
    int code = write_all(&w, directory, step, facts);
    if (code == FGIO_EXIT_OK && w.rank == 0) {
        fgt_checkpoint_prune(directory, keep, generation, step);
        if (path != NULL)
            snprintf(path, cap, "%s", w.path);
    }
    fgio_writer_abort(&w.writer);
    fgt_parts_free(&w.parts);
    fgt_blobs_give(&w.blobs);
    free(w.piece);
    return code;
}
