/*
 * weight_changes.h - what a client needs to get from the version of the weights that it has to the current one.
 *
 * The server notes for every weight the version at which it last changed. From any older version, the weights that have
 * changed since are sent, as indices and exact values; where that would be longer than all weights, all are sent. So
 * client and server have the same bits, however the server computes its steps, and no version is too old.
 */
#ifndef FGF_WEIGHT_CHANGES_H
#define FGF_WEIGHT_CHANGES_H

#include "io/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Notes version in changed[i] where the bits of weights before and after differ, and copies them. Returns how many. */
uint64_t fgf_changes_note(const float *after, uint64_t count, uint32_t version, float *weights, uint32_t *changed);

/**
 * Writes the weights that changed after version `have` to an empty file, or all weights if that is shorter or have is
 * FGF_NO_VERSION. They may be as many bytes as the weights, so they are never in memory as a whole.
 *
 *   *len, *checksum   of what was written; the checksum is CRC-32C
 *
 * Returns -1 when the file cannot be written; errno says why.
 */
int fgf_changes_write(const float *weights, const uint32_t *changed, uint64_t count, uint64_t have, int fd,
                      uint64_t *len, uint32_t *checksum);

/** Applies such bytes, untrusted: all are checked before a weight changes. Returns -1 after setting the reason. */
int fgf_changes_apply(const unsigned char *bytes, size_t len, uint64_t count, float *weights, fgio_reason *why);

#endif
