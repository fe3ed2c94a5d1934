/* checkpoint_checksum.h - the checksum at the end of a checkpoint. */
#ifndef FGT_CHECKPOINT_CHECKSUM_H
#define FGT_CHECKPOINT_CHECKSUM_H

#include "io/tensor_file.h"

/** Compares the checksum, which must be the last tensor, with one over everything before it. chunk: FGT_CHUNK_BYTES of
 * scratch memory. sync: called after each FGT_SYNC_BYTES, an error of it ends the reading; or NULL. */
int fgt_checksum_verify(const fgio_tensor_file *file, unsigned char *chunk, int (*sync)(void *ctx), void *ctx);

/** Likewise of any file of weights, if it has such a checksum. */
int fgt_weights_verify(const fgio_tensor_file *file);

#endif
