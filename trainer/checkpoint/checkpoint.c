/*
 * checkpoint.c - opening a checkpoint: worker 0 searches for a valid file, verifies its checksum, and sends the
 * metadata to the others. While it reads, it sends the others a status now and then, because a file may take longer
 * than their timeout.
 */
#include "trainer/checkpoint/checkpoint_checksum.h"
#include "trainer/checkpoint/checkpoint_parts.h"

#include "io/error.h"
#include "io/json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OPEN_IN_PROGRESS = 1, OPEN_DONE, OPEN_FAILED }; /* status of worker 0 */
enum { STATUS_WORDS = 2 };

#define METADATA_BYTES_MAX UINT64_C(100000000) /* as for headers of files */
#define WORKERS_MAX        UINT64_C(65536)
#define STEP_MAX           (UINT64_MAX - 1)
#define NOT_A_CHECKPOINT   "is not a checkpoint of frugrad: its metadata has no " FGT_KEY_FORMAT

/* Broadcasts a status and a number from worker 0. Returns an exit status of the comm. */
static int broadcast_status(fgt_checkpoint *c, uint64_t *state, uint64_t *number) {
    uint64_t mine[STATUS_WORDS] = {*state, *number};
    if (frug_comm_allgather(c->comm, mine, sizeof mine, c->gathered) != FRUG_OK)
        return fgio_library_error("checkpoint");
    *state = c->gathered[0];
    *number = c->gathered[1];
    return FGIO_EXIT_OK;
}

static int parse_metadata(fgt_checkpoint *c, const char *path, json_t *metadata) {
    const char *format = json_string_value(json_object_get(metadata, FGT_KEY_FORMAT));
    if (format == NULL)
        return fgio_error("%s: " NOT_A_CHECKPOINT, path);
    if (strcmp(format, FGT_FORMAT) != 0)
        return fgio_error("%s: is a checkpoint of format %s; this program supports format " FGT_FORMAT, path, format);
    if (!fgt_checkpoint_number(metadata, FGT_KEY_STEP, STEP_MAX, &c->step))
        return fgio_error("%s: its metadata has no step (" FGT_KEY_STEP ", a whole number)", path);
    if (!fgt_checkpoint_number(metadata, FGT_KEY_WORKERS, WORKERS_MAX, &c->workers) || c->workers == 0)
        return fgio_error("%s: its metadata has no number of workers (" FGT_KEY_WORKERS ")", path);
    uint64_t generation;
    if (!fgt_checkpoint_generation(metadata, &generation))
        return fgio_error("%s: " FGT_INVALID_GENERATION, path);
    c->metadata = json_incref(metadata);
    return FGIO_EXIT_OK;
}

/* While worker 0 reads: the others must not time out. */
static int send_progress(void *ctx) {
    uint64_t state = OPEN_IN_PROGRESS, none = 0;
    return broadcast_status(ctx, &state, &none);
}

static int open_verified(fgt_checkpoint *c, const char *path) {
    const char *slash = strrchr(path, '/');
    uint64_t named;
    int code = fgio_tensor_file_open(path, &c->file);
    if (code == FGIO_EXIT_OK)
        code = parse_metadata(c, path, c->file.head.metadata);
    if (code == FGIO_EXIT_OK && fgt_checkpoint_name_step(slash == NULL ? path : slash + 1, &named) && named != c->step)
        code = fgio_error("%s: its metadata has step %" PRIu64 ", its name step %" PRIu64 "", path, c->step, named);
    if (code == FGIO_EXIT_OK)
        code = fgt_checksum_verify(&c->file, c->chunk, send_progress, c);
    if (code != FGIO_EXIT_OK) {
        json_decref(c->metadata);
        c->metadata = NULL;
        bool out_of_memory = c->file.out_of_memory;
        fgio_tensor_file_close(&c->file);
        c->file.out_of_memory = out_of_memory;
    }
    return code;
}

static int open_newest(fgt_checkpoint *c, const char *directory) {
    fgt_checkpoint_entry *entry = NULL;
    size_t count = 0, i = 0;
    char path[PATH_MAX];
    int code = fgt_checkpoint_list(directory, &entry, &count);
    if (code != FGIO_EXIT_OK)
        return code;
    if (count == 0)
        code = fgio_error("%s: " FGT_NO_CHECKPOINT, directory);
    for (; i < count; i++) {
        code = fgt_checkpoint_name(directory, entry[i].step, path, sizeof path)
                   ? open_verified(c, path)
                   : fgio_error("%s: the name is too long", directory);
        if (code == FGIO_EXIT_OK || c->file.out_of_memory) /* without memory it is not known to be damaged */
            break;
        fgt_checkpoint_hint_skipped(entry, count, i);
    }
    free(entry);
    return code;
}

/* Opens the file on worker 0; *text is the metadata for the others. */
static int find_and_open(fgt_checkpoint *c, const char *path, char **text) {
    struct stat st;
    int code = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? open_newest(c, path) : open_verified(c, path);
    if (code != FGIO_EXIT_OK)
        return code;
    *text = fgio_json_dump(c->metadata, JSON_COMPACT);
    return *text == NULL ? fgio_error("%s: out of memory", path) : FGIO_EXIT_OK;
}

/* Sends a text from worker 0 to all, in chunks; a worker with a NULL text drops it. Returns errors of the comm only. */
static int broadcast_text(fgt_checkpoint *c, char *text, size_t bytes) {
    for (size_t at = 0; at < bytes; at += FGT_CHUNK_BYTES) {
        size_t some = bytes - at < FGT_CHUNK_BYTES ? bytes - at : FGT_CHUNK_BYTES;
        void *dst = text == NULL ? c->chunk : (void *)(text + at);
        frug_status status = c->rank == 0 ? FRUG_OK : frug_comm_receive(c->comm, 0, dst, some);
        for (int r = 1; r < c->size && c->rank == 0 && status == FRUG_OK; r++)
            status = frug_comm_send(c->comm, r, text + at, some);
        if (status != FRUG_OK)
            return fgio_library_error("checkpoint");
    }
    return FGIO_EXIT_OK;
}

/* On the other workers: waits for the outcome, then receives the metadata. */
static int receive_metadata(fgt_checkpoint *c) {
    uint64_t state = 0, bytes = 0;
    json_error_t error;
    do {
        if (broadcast_status(c, &state, &bytes) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    } while (state == OPEN_IN_PROGRESS);
    if (state == OPEN_FAILED)
        return FGIO_EXIT_FAIL;
    char *text = bytes <= METADATA_BYTES_MAX ? malloc((size_t)bytes + 1) : NULL;
    int code = broadcast_text(c, text, (size_t)bytes);
    json_t *metadata = code == FGIO_EXIT_OK && text ? json_loadb(text, (size_t)bytes, 0, &error) : NULL;
    free(text);
    if (metadata == NULL)
        return code == FGIO_EXIT_OK ? fgio_error("%s: no memory for its metadata", c->path) : code;
    code = parse_metadata(c, c->path, metadata);
    json_decref(metadata);
    return code;
}

static int open_and_send_metadata(fgt_checkpoint *c, const char *path) {
    char *text = NULL;
    int code = find_and_open(c, path, &text);
    uint64_t state = code == FGIO_EXIT_OK ? OPEN_DONE : OPEN_FAILED, bytes = text == NULL ? 0 : strlen(text);
    if (broadcast_status(c, &state, &bytes) != FGIO_EXIT_OK)
        code = FGIO_EXIT_FAIL;
    if (code == FGIO_EXIT_OK)
        code = broadcast_text(c, text, (size_t)bytes);
    free(text);
    return code;
}

static fgt_checkpoint *create(const char *path, frug_comm *comm) {
    fgt_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    *c = (fgt_checkpoint){.comm = comm,
                          .rank = frug_comm_rank(comm),
                          .size = frug_comm_size(comm),
                          .path = strdup(path),
                          .file = FGIO_TENSOR_FILE_CLOSED,
                          .chunk = malloc(FGT_CHUNK_BYTES),
                          .gathered = calloc((size_t)frug_comm_size(comm), STATUS_WORDS * sizeof *c->gathered)};
    if (c->path != NULL && c->chunk != NULL && c->gathered != NULL)
        return c;
    fgt_checkpoint_close(c);
    return NULL;
}

/* Worker 0 receives all codes and sends the worst one to all. Unlike an all-gather it needs no memory here. */
static int agree(frug_comm *comm, int code) {
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm), worst = code;
    frug_status status = rank == 0 ? FRUG_OK : frug_comm_send(comm, 0, &code, sizeof code);
    for (int r = 1; r < size && rank == 0 && status == FRUG_OK; r++) {
        status = frug_comm_receive(comm, r, &code, sizeof code);
        worst = code > worst ? code : worst;
    }
    for (int r = 1; r < size && rank == 0 && status == FRUG_OK; r++)
        status = frug_comm_send(comm, r, &worst, sizeof worst);
    if (rank != 0 && status == FRUG_OK)
        status = frug_comm_receive(comm, 0, &worst, sizeof worst);
    return status == FRUG_OK ? worst : fgio_library_error("checkpoint");
}

int fgt_checkpoint_open(const char *path, frug_comm *comm, fgt_checkpoint **checkpoint, json_t **metadata,
                        uint64_t *step) {
    fgt_checkpoint *c = create(path, comm);
    int code = agree(comm, c == NULL ? fgio_error("%s: out of memory", path) : FGIO_EXIT_OK);
    if (code == FGIO_EXIT_OK)
        code = c->rank == 0 ? open_and_send_metadata(c, path) : receive_metadata(c);
    if (code != FGIO_EXIT_OK) {
        fgt_checkpoint_close(c);
        return code;
    }
    *checkpoint = c;
    *metadata = c->metadata;
    *step = c->step;
    return FGIO_EXIT_OK;
}

int fgt_checkpoint_exists(const char *directory, frug_comm *comm, bool *any) {
    unsigned char mine = frug_comm_rank(comm) == 0 && fgt_checkpoint_in_directory(directory);
    unsigned char *all = calloc((size_t)frug_comm_size(comm), 1);
    if (all == NULL)
        return fgio_error("%s: out of memory", directory);
    int code = frug_comm_allgather(comm, &mine, 1, all) == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error("checkpoint");
    *any = all[0] != 0;
    free(all);
    return code;
}

void fgt_checkpoint_close(fgt_checkpoint *checkpoint) {
    if (checkpoint == NULL)
        return;
    fgio_tensor_file_close(&checkpoint->file);
    json_decref(checkpoint->metadata);
    free(checkpoint->path);
    free(checkpoint->chunk);
    free(checkpoint->gathered);
    free(checkpoint);
}
