/*
 * stage_channel.h - one direction of a link between two pipeline stages: activations to the next stage, or their
 * gradients to the stage before, in the order of micro-batches.
 *
 * A message is its length and then a frame of the library (docs/wire-format.md), or raw floats where nothing is
 * compressed. A send returns at once; its bytes are in one of several slots until the peer has received them.
 *
 * A stage that fails sends a reserved length in place of its next message, so that its peers need not wait for the
 * timeout: UINT64_MAX - 2 s says that stage s has failed, and one less that it has lost another stage. They send it on.
 */
#ifndef FGT_STAGE_CHANNEL_H
#define FGT_STAGE_CHANNEL_H

#include "frugrad.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fgt_channel fgt_channel;

#define FGT_CHANNEL_SIZES 2 /* lengths of messages that can be compressed, each by a compressor of its own */

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

/** The stage that was the first to fail. */
typedef struct fgt_stage_failure {
    bool failed;
    bool lost; /* it received nothing from another one, which cannot take part in anything any more */
    uint32_t stage;
} fgt_stage_failure;

/** As a length that no message has, or 0: not failed. */
uint64_t fgt_stage_failure_code(fgt_stage_failure failure);

/** Of a received number; not failed where it is not a code. */
fgt_stage_failure fgt_stage_failure_of(uint64_t code);

/** Returns FRUG_ERR_REMOTE, and sets the text of the error: a sentence that names the stage. */
frug_status fgt_stage_failure_error(fgt_stage_failure failure);

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

/** Tells the peer that a stage has failed, in place of the next message, and returns at once. Nothing can be sent
 * afterwards. */
frug_status fgt_channel_fail(fgt_channel *channel, fgt_stage_failure failure);

/** What the peer sent in place of a message: fgt_channel_receive() has returned FRUG_ERR_REMOTE. */
fgt_stage_failure fgt_channel_failure(const fgt_channel *channel);

/** Waits until the peer has received everything that was sent. */
frug_status fgt_channel_finish(fgt_channel *channel);

const fgt_channel_stats *fgt_channel_get_stats(const fgt_channel *channel);

#endif
