/*
 * frame.h - the frame format: a header, then sections in ascending order. See docs/wire-format.md.
 */
#ifndef FRUGI_FRAME_H
#define FRUGI_FRAME_H

#include "codec/section.h"
#include "base/status.h"

#define FRUGI_FRAME_HEADER  48u
#define FRUGI_FRAME_VERSION 2u /* version written; version 1, without sections by units, is read too */

typedef struct frugi_frame {
    uint32_t version; /* of a received frame; new frames have FRUGI_FRAME_VERSION */
    uint64_t bytes;   /* total length, with the header */
    uint64_t step;
    uint64_t layout_hash;
    uint32_t source;
    uint32_t sections;
    uint32_t held;
} frugi_frame;

/** Write the header with a zero checksum; frugi_frame_seal() completes it. */
void frugi_frame_write(const frugi_frame *frame, unsigned char *dst);

/** Compute the checksum of the whole frame and store it in the header. threads > 1 compute it in parallel. */
void frugi_frame_seal(unsigned char *frame, uint64_t bytes, int threads);

/** Check the header, the lengths and the section headers of a received frame, but not its contents. */
frug_status frugi_frame_open(const unsigned char *src, size_t len, frugi_frame *frame);

/**
 * Check the contents of an open frame: the checksum, every index, every value. Cost: O(bytes), however many elements
 * the frame claims to cover.
 * Returns FRUG_ERR_CHECKSUM or FRUG_ERR_FORMAT without logging, so that threads may call it.
 */
frug_status frugi_frame_verify(const unsigned char *src, const frugi_frame *frame);

/**
 * Iterate over the sections of an open frame; *at starts at 0.
 *
 *   *payload   the payload of the section
 *
 * Returns 0 after the last one.
 */
int frugi_frame_next(const unsigned char *src, const frugi_frame *frame, uint64_t *at, frugi_section *section,
                     const unsigned char **payload);

#endif
