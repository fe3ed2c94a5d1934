/*
 * payload.h - the payload file (.fgr): a safetensors file with one U8 tensor,
 * "frugrad.frame", and these metadata strings:
 *
 *   frugrad            version of this list, "1"
 *   frugrad.source     format of the file that was compressed: raw, npy or safetensors
 *   frugrad.config     the config, every option spelled out
 *   frugrad.layout     JSON: [{"name": "fc.weight", "shape": [10, 512], "role": "linear"}, ...], back to back
 *   frugrad.shape      JSON: the only tensor's shape in its file, where the layout has another
 *   frugrad.metadata   JSON: the metadata map of the safetensors file that was compressed
 *
 * The last two may be missing. Any safetensors reader opens it.
 */
#ifndef FGP_PAYLOAD_H
#define FGP_PAYLOAD_H

#include "io/files.h"
#include "program/compress/gradient_file.h"

typedef struct fgp_payload {
    fgp_gradient gradient;      /* without data */
    char *config;               /* as recorded; not parsed */
    const unsigned char *frame; /* inside the file's bytes, unchecked */
    size_t frame_len;
} fgp_payload;

/** Encode everything before a frame of that length. Returns 0, or -1 with the reason. */
int fgp_payload_header(const fgp_gradient *gradient, const char *config, size_t frame_len, fgio_bytes *header,
                       fgio_reason *why);

/**
 * Parse a payload file in memory; the result points into the bytes. They are untrusted; the frame itself is checked by
 * the library. Returns 0, or -1 with the reason.
 */
int fgp_payload_parse(const unsigned char *bytes, size_t len, fgp_payload *payload, fgio_reason *why);

void fgp_payload_free(fgp_payload *payload);

#endif
