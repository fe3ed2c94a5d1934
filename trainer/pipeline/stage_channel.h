/*
 * stage_channel.h - one direction of a link between two pipeline stages: activations to the next stage, or their
 * gradients to the stage before, in the order of micro-batches.
 *
 * A message is its length and then a frame of the library (docs/wire-format.md), or raw floats where nothing is
 * compressed. A send returns at once; its bytes are in one of several slots until the peer has received them.
 */
#ifndef FGT_STAGE_CHANNEL_H
#define FGT_STAGE_CHANNEL_H

#include "frugrad.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fgt_channel fgt_channel;

typedef struct fgt_channel_options {
    frug_comm *comm;
    int peer, tag;
    bool sending;
    const frug_config *config; /* NULL: raw floats */
    uint32_t samples_max;      /* of a message; others have one less (nothing else can be compressed) */
    size_t sample_size;        /* floats */
    uint32_t slots;            /* messages that may be on their way */
    int threads;
    uint64_t messages; /* of the whole run, for schedules of the config */
} fgt_channel_options;

/** Totals of this end. */
typedef struct fgt_channel_stats {
    uint64_t bytes, bytes_dense; /* sent, with headers; as raw floats */
    double seconds_compress, seconds_decode;
    double seconds_wait; /* for the length of a message, or for a free slot */
    double seconds_wire; /* from the length of a message to its last byte */
} fgt_channel_stats;

/** Returns an exit status, after an error message. */
int fgt_channel_create(const fgt_channel_options *options, fgt_channel **channel);
void fgt_channel_destroy(fgt_channel *channel);

/** From now on the change of each sample since its last message is sent. memory: zeros, sample_size for each sample of
 * the data set; both ends have one. Not owned. */
void fgt_channel_set_memory(fgt_channel *channel, float *memory);

/** One message of n samples.
 *
 *   number    of the message in the run; the same on both ends
 *   ids       with a memory: number of each sample in the data set; else ignored
 *   raw       not compressed, whatever the config says: for evaluations
 */
frug_status fgt_channel_send(fgt_channel *channel, uint64_t number, const uint64_t *ids, uint32_t n, const float *x,
                             bool raw);
frug_status fgt_channel_receive(fgt_channel *channel, const uint64_t *ids, uint32_t n, float *x, bool raw);

/** Waits until the peer has received everything that was sent. */
frug_status fgt_channel_finish(fgt_channel *channel);

const fgt_channel_stats *fgt_channel_get_stats(const fgt_channel *channel);

#endif
