/*
 * checkpoint_parts.h - what the writer and the reader of checkpoints share: the list of parts that make one, how they
 * travel, and the files of a directory.
 */
#ifndef FRUGI_CHECKPOINT_PARTS_H
#define FRUGI_CHECKPOINT_PARTS_H

#include "trainer/checkpoint/checkpoint.h"
#include "io/tensor_file.h"

#define FRUGI_KEY_FORMAT  "frugrad.format"
#define FRUGI_KEY_STEP    "frugrad.step"
#define FRUGI_KEY_WORKERS "frugrad.workers"
#define FRUGI_FORMAT      "1"

/** How often steps have gone back in the directory of a checkpoint; 0, or no such key: never. */
#define FRUGI_KEY_GENERATION   "frugrad.generation"
#define FRUGI_GENERATIONS_MOST UINT64_C(1000000000)

/** The last tensor: a CRC-32C, low byte first, of all bytes of the file before it. */
#define FRUGI_CHECKSUM_NAME  "frugrad.checksum"
#define FRUGI_CHECKSUM_BYTES 4

/** Bytes that travel at once, and bytes after which workers meet, so that nobody waits for the disk too long. */
#define FRUGI_PIECE_BYTES ((size_t)1 << 20)
#define FRUGI_MEET_BYTES  ((uint64_t)64 << 20)

typedef enum frugi_part_kind {
    FRUGI_PART_MODEL,     /* a parameter, or running statistics of worker 0 */
    FRUGI_PART_BUFFERS,   /* running statistics of another worker, one after the other */
    FRUGI_PART_OPTIMIZER, /* saved state */
    FRUGI_PART_RESIDUAL   /* saved state of one worker's compressor */
} frugi_part_kind;

#define FRUGI_ALL_WORKERS (-1)

/** One tensor of a checkpoint. */
typedef struct frugi_part {
    frugi_part_kind kind;
    int worker;      /* whose it is; FRUGI_ALL_WORKERS: all have the same, and worker 0's is written */
    frugi_item item; /* name (owned), dtype F32 or U8, shape, count */
    uint64_t bytes;
    void *memory; /* on the workers whose it is */
} frugi_part;

typedef struct frugi_parts {
    frugi_part *part;
    size_t count, room;
    bool broken; /* memory ran out */
} frugi_parts;

/** Add the parameters and running statistics of a graph. */
void frugi_parts_model(frugi_parts *parts, frugi_graph *graph);

/** Add one tensor of one dimension, "frugrad.KIND.NUMBER"; the optimiser's has no number. */
void frugi_parts_add(frugi_parts *parts, frugi_part_kind kind, int number, int worker, uint64_t count, void *memory);
void frugi_parts_free(frugi_parts *parts);

/** Copy bytes at .. of a part to what stands in files, and back. at is a multiple of 4. */
void frugi_part_pack(const frugi_part *part, uint64_t at, size_t bytes, unsigned char *dst);
void frugi_part_unpack(const frugi_part *part, uint64_t at, size_t bytes, const unsigned char *src);

/** Saved states of this worker, and its running statistics one after the other. */
typedef struct frugi_blobs {
    unsigned char *residual, *optimizer;
    float *buffers;
    size_t residual_bytes, optimizer_bytes, buffer_floats;
} frugi_blobs;

/** Room for them, by what there is to be saved or restored. */
int frugi_blobs_take(frugi_blobs *blobs, const frugi_state *state);
void frugi_blobs_give(frugi_blobs *blobs);

/** Copy running statistics out of the graph, or into it. */
void frugi_blobs_buffers(frugi_blobs *blobs, frugi_graph *graph, bool into_graph);

/** What workers tell each other first. */
typedef struct frugi_agreement {
    uint64_t code; /* FRUGI_EXIT_OK: well */
    uint64_t step, residual_bytes, optimizer_bytes, buffer_floats;
} frugi_agreement;

/** Everybody hears whether everybody is well and has the same; `code` is this worker's. Returns an exit status. */
int frugi_agree(const frugi_state *state, const frugi_blobs *blobs, uint64_t step, int code);

/** Everybody hears whether everybody is well. Returns FRUGI_EXIT_OK only if so. */
int frugi_meet(frug_comm *comm, int code);

/** "DIRECTORY/step-000000120.safetensors". Returns false where it does not fit. */
bool frugi_checkpoint_name(const char *directory, uint64_t step, char *dst, size_t cap);

/** The step that a file name (without directory) says; false for names of other files. */
bool frugi_checkpoint_name_step(const char *name, uint64_t *step);

/** A whole number out of metadata, whose values are strings; false where it is missing or above `most`. */
bool frugi_checkpoint_number(const json_t *metadata, const char *key, uint64_t most, uint64_t *number);

/** The generation that metadata says; false where it makes no sense. */
bool frugi_checkpoint_generation(const json_t *metadata, uint64_t *generation);

/** A checkpoint of a directory. */
typedef struct frugi_entry {
    uint64_t generation, step;
    bool readable; /* the header, not more */
} frugi_entry;

/** The checkpoints in a directory, the unreadable ones, then newest first; *entries is to be freed. Returns an exit
 * status. */
int frugi_checkpoint_list(const char *directory, frugi_entry **entries, size_t *count);

/** Whether a directory has any. */
bool frugi_checkpoint_there(const char *directory);

/** Remove all but the `keep` newest with at most this step; 0 keeps all. Those with later steps, of an earlier run,
 * stay. */
void frugi_checkpoint_prune(const char *directory, uint32_t keep, uint64_t generation, uint64_t step);

struct frugi_checkpoint {
    frug_comm *comm;
    int rank, size;
    char *path;             /* as given */
    frugi_tensor_file file; /* worker 0's */
    json_t *facts;
    uint64_t step, workers;
    unsigned char *piece; /* FRUGI_PIECE_BYTES */
    uint64_t *words;      /* of all workers, while it is being opened */
};

#endif
