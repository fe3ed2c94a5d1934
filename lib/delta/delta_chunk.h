/*
 * delta_chunk.h - encoding of the changes of one chunk, at most FRUGI_DELTA_CHUNK elements.
 *
 * The body of a chunk is three bit strings, each padded to whole bytes: indices, signs (and flags), magnitudes. See
 * docs/delta-format.md. The parameters, which the table of the record holds:
 *
 *   entries   changed elements
 *   index     0 to 15: indices are split into that many low bits, packed, and upper bits in unary; BITMAP: one bit per
 *             element
 *   value     0 to 63: order of the Exp-Golomb code of magnitudes; bit 6 (FLAGS): one bit per entry tells whether the
 *             magnitude is above 1, and only those are encoded
 *
 * index RAW: all elements' differences as integers of `width` bytes, for chunks that would be longer otherwise.
 */
#ifndef FRUGI_DELTA_CHUNK_H
#define FRUGI_DELTA_CHUNK_H

#include "base/status.h"

#include <stdint.h>

#define FRUGI_DELTA_CHUNK  32768u
#define FRUGI_DELTA_BITMAP 16u
#define FRUGI_DELTA_RAW    17u
#define FRUGI_DELTA_FLAGS  64u
#define FRUGI_DELTA_SLACK  8u /* bytes behind the body that may be read and, when encoding, written */

typedef struct frugi_delta_code {
    uint32_t bytes; /* of the body */
    uint16_t entries;
    uint8_t index, value;
} frugi_delta_code;

/** Working memory of one thread. */
typedef struct frugi_delta_scratch {
    unsigned char changed[FRUGI_DELTA_CHUNK / 8 + 128]; /* one bit per element */
    uint16_t index[FRUGI_DELTA_CHUNK + 64];
    uint64_t difference[FRUGI_DELTA_CHUNK + 1]; /* encoding: magnitudes; decoding: differences */
    uint64_t sign[FRUGI_DELTA_CHUNK / 64], flag[FRUGI_DELTA_CHUNK / 64];
} frugi_delta_scratch;

/** The functions, compiled once for any CPU and once for those that count bits in one instruction. */
typedef struct frugi_delta_chunk_code {
    /** Encode the elements whose bit is set in scratch->changed. The body has at most n * width bytes;
     * FRUGI_DELTA_SLACK more may be written. */
    void (*encode)(const unsigned char *before, const unsigned char *after, uint32_t n, uint32_t width,
                   frugi_delta_scratch *scratch, unsigned char *body, frugi_delta_code *code);
    /** Decode a body into scratch->index and scratch->difference. Safe for any bytes, of which FRUGI_DELTA_SLACK more
     *  may be read. Returns FRUG_ERR_FORMAT. */
    frug_status (*decode)(const unsigned char *body, const frugi_delta_code *code, uint32_t n, uint32_t width,
                          frugi_delta_scratch *scratch);
    /** Add what was decoded to the elements or, if back is set, subtract it. */
    void (*apply)(const frugi_delta_scratch *scratch, uint32_t entries, uint32_t width, int back,
                  unsigned char *elements);
} frugi_delta_chunk_code;

extern const frugi_delta_chunk_code frugi_delta_chunk_code_plain, frugi_delta_chunk_code_avx2;

#endif
