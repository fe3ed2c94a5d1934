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
#ifndef FRUGI_PAYLOAD_H
#define FRUGI_PAYLOAD_H

#include "io/files.h"
#include "program/compress/gradient_file.h"

typedef struct frugi_payload {
    frugi_gradient gradient;    /* without data */
    char *config;               /* as recorded; not parsed */
    const unsigned char *frame; /* inside the file's bytes, unchecked */
    size_t frame_len;
} frugi_payload;

/** Make all that stands before a frame of that length. Returns 0, or -1 with the reason. */
int frugi_payload_header(const frugi_gradient *gradient, const char *config, size_t frame_len, frugi_bytes *header,
                         frugi_why *why);

/**
 * Read a payload file held in memory; it points into the bytes. They are untrusted;
 * the frame itself is the library's to check. Returns 0, or -1 with the reason.
 */
int frugi_payload_parse(const unsigned char *bytes, size_t len, frugi_payload *payload, frugi_why *why);

void frugi_payload_free(frugi_payload *payload);

#endif
