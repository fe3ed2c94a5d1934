/*
 * checkpoint_parts.h - shared by the writer and the reader of checkpoints: the list of parts, their transfer between
 * workers, and the files of a directory.
 */
#ifndef FGT_CHECKPOINT_PARTS_H
#define FGT_CHECKPOINT_PARTS_H

#include "trainer/checkpoint/checkpoint.h"
#include "io/tensor_file.h"

#define FGT_KEY_FORMAT  "frugrad.format"
#define FGT_KEY_STEP    "frugrad.step"
#define FGT_KEY_WORKERS "frugrad.workers"
#define FGT_FORMAT      "1"

/** How often the step has decreased in the directory of a checkpoint; 0, or no such key: never. */
#define FGT_KEY_GENERATION "frugrad.generation"
#define FGT_GENERATION_MAX UINT64_C(1000000000)

/** Ends of error messages. */
#define FGT_NO_CHECKPOINT      "has no checkpoint (step-*.safetensors)"
#define FGT_INVALID_GENERATION "its metadata has an invalid generation (" FGT_KEY_GENERATION ")"

/** The last tensor: a CRC-32C, low byte first, of all bytes of the file before it. */
#define FGT_CHECKSUM_NAME  "frugrad.checksum"
#define FGT_CHECKSUM_BYTES 4

/** Bytes of a transfer between workers, and bytes after which workers synchronize, so that no worker times out while
 * another waits for the disk. */
#define FGT_CHUNK_BYTES ((size_t)1 << 20)
#define FGT_SYNC_BYTES  ((uint64_t)64 << 20)

typedef enum fgt_checkpoint_part_kind {
    FGT_PART_MODEL,     /* a parameter, or running statistics of worker 0 */
    FGT_PART_BUFFERS,   /* running statistics of another worker, concatenated */
    FGT_PART_OUTER,     /* momentum of local steps */
    FGT_PART_OPTIMIZER, /* saved state */
    FGT_PART_RESIDUAL,  /* saved state of one worker's compressor */
    FGT_PART_MASK,      /* sparse weights: masks */
    FGT_PART_MASTER,    /* the weights that the optimizer updates */
    FGT_PART_GROWTH,    /* sums of one worker */
    FGT_PART_STAGE      /* activations of samples of one stage */
} fgt_checkpoint_part_kind;

#define FGT_ALL_WORKERS (-1)

/** One tensor of a checkpoint. */
typedef struct fgt_checkpoint_part {
    fgt_checkpoint_part_kind kind;
    int worker;       /* owner; FGT_ALL_WORKERS: the same on all, and worker 0's is written */
    fgio_tensor item; /* name (owned), dtype F32 or U8, shape, count */
    uint64_t bytes;
    void *memory; /* on the owners */
} fgt_checkpoint_part;

typedef struct fgt_checkpoint_parts {
    fgt_checkpoint_part *part;
    size_t count, capacity;
    bool out_of_memory; /* an allocation failed */
} fgt_checkpoint_parts;

/** Adds the parameters and running statistics of a graph; by_stage: as owned by the stages that train them. */
void fgt_checkpoint_parts_add_model(fgt_checkpoint_parts *parts, fgt_graph *graph, bool by_stage);

/** Adds the momentum of local steps, if there is one. */
void fgt_checkpoint_parts_add_outer(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state);

/** Adds one tensor of one dimension, "frugrad.KIND.NUMBER"; the first optimizer's, masks and the master have no number.
 * */
void fgt_checkpoint_parts_add(fgt_checkpoint_parts *parts, fgt_checkpoint_part_kind kind, int number, int worker,
                              uint64_t count, void *memory);

/** The first message of every worker. */
typedef struct fgt_checkpoint_agreement {
    uint64_t code; /* FGIO_EXIT_OK: no error */
    uint64_t step, residual_bytes, optimizer_bytes, buffer_floats;
} fgt_checkpoint_agreement;

/** Adds the optimizer's state; that of every worker where they differ. all: of the workers. */
void fgt_checkpoint_parts_add_optimizer(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state, int workers,
                                        const fgt_checkpoint_agreement *all, void *memory);

/** Adds the states of sparse weights that there are; growth: of this many workers. */
void fgt_checkpoint_parts_add_sparse(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state, int workers);

/** Adds the memories of samples of all stages, if there are any. */
void fgt_checkpoint_parts_add_stages(fgt_checkpoint_parts *parts, const fgt_checkpoint_state *state, int workers);
void fgt_checkpoint_parts_free(fgt_checkpoint_parts *parts);

/** Copies bytes of a part from offset `at` to their format in files, and back. at is a multiple of 4. */
void fgt_checkpoint_part_pack(const fgt_checkpoint_part *part, uint64_t at, size_t bytes, unsigned char *dst);
void fgt_checkpoint_part_unpack(const fgt_checkpoint_part *part, uint64_t at, size_t bytes, const unsigned char *src);

/** Saved states of this worker, and its running statistics, concatenated. */
typedef struct fgt_checkpoint_blobs {
    unsigned char *residual, *optimizer;
    float *buffers;
    size_t residual_bytes, optimizer_bytes, buffer_floats;
} fgt_checkpoint_blobs;

/** Allocates them, by the state to be saved or restored. */
int fgt_checkpoint_blobs_alloc(fgt_checkpoint_blobs *blobs, const fgt_checkpoint_state *state);
void fgt_checkpoint_blobs_free(fgt_checkpoint_blobs *blobs);

/** Copies running statistics out of the graph, or into it. */
void fgt_checkpoint_copy_buffers(fgt_checkpoint_blobs *blobs, fgt_graph *graph, bool into_graph);

/** Exchanges the agreement of all workers; `code` is this worker's. Fails where a worker has failed or differs, except
 * that stages may have states of different lengths. *all: those of all workers, to be freed. Returns an exit status. */
int fgt_checkpoint_agree(const fgt_checkpoint_state *state, const fgt_checkpoint_blobs *blobs, uint64_t step, int code,
                         fgt_checkpoint_agreement **all);

/** Exchanges the status of all workers. Returns FGIO_EXIT_OK only if all are. */
int fgt_checkpoint_sync(frug_comm *comm, int code);

/** "DIRECTORY/step-000000120.safetensors". Returns false where it does not fit. */
bool fgt_checkpoint_name(const char *directory, uint64_t step, char *dst, size_t cap);

/** The step in a file name (without directory); false for names of other files. */
bool fgt_checkpoint_name_step(const char *name, uint64_t *step);

/** A whole number out of metadata, whose values are strings; false where it is missing or above `most`. */
bool fgt_checkpoint_number(const json_t *metadata, const char *key, uint64_t most, uint64_t *number);

/** The generation in the metadata; false where it is invalid. */
bool fgt_checkpoint_generation(const json_t *metadata, uint64_t *generation);

/** A checkpoint of a directory. */
typedef struct fgt_checkpoint_entry {
    uint64_t generation, step;
    bool readable; /* only the header was checked */
} fgt_checkpoint_entry;

/** The checkpoints in a directory: the unreadable ones, then the others, newest first; the caller frees *entries.
 * Returns an exit status. */
int fgt_checkpoint_list(const char *directory, fgt_checkpoint_entry **entries, size_t *count);

/** Prints the hint, after the error of an unreadable one, that the next one is used. */
void fgt_checkpoint_hint_skipped(const fgt_checkpoint_entry *entry, size_t count, size_t at);

/** Whether a directory has any. */
bool fgt_checkpoint_in_directory(const char *directory);

/** Removes all but the `keep` newest with at most this step; 0 keeps all. Those with later steps, of an earlier run,
 * are kept. */
void fgt_checkpoint_prune(const char *directory, uint32_t keep, uint64_t generation, uint64_t step);

struct fgt_checkpoint {
    frug_comm *comm;
    int rank, size;
    char *path;            /* as given */
    fgio_tensor_file file; /* worker 0's */
    json_t *metadata;
    uint64_t step, workers;
    unsigned char *chunk; /* FGT_CHUNK_BYTES */
    uint64_t *gathered;   /* gathered from all workers while it is being opened */
};

#endif
