/*
 * state.c - save and restore what a compressor has left behind.
 *
 * A state is a header of 48 bytes and the raw stores:
 *   0  "FGS1"   4 version u8   5 feedback u8   6 residual u8   7 zero   8 block u32   12 checksum u32 (this field zero)
 *   16 layout hash u64   24 blocks u64   32 length u64   40 zero u64
 * then the residual's elements and scales, then the momentum's. Little-endian.
 */
#include "compress/compressor.h"

#include "common/bits.h"
#include "common/crc32c.h"
#include "common/status.h"

#define HEADER  48u
#define VERSION 1u
#define CRC_AT  12u

size_t frug_compressor_state_size(const frug_compressor *c) {
    if (!c)
        return 0;
    return HEADER + frugi_store_bytes(&c->residual) + frugi_store_bytes(&c->momentum);
}

static void write_header(const frug_compressor *c, unsigned char *h) {
    memset(h, 0, HEADER);
    memcpy(h, "FGS1", 4);
    h[4] = VERSION;
    h[5] = (unsigned char)c->config.feedback;
    h[6] = (unsigned char)c->config.residual;
    frugi_put32(h + 8, c->config.block);
    frugi_put64(h + 16, c->layout_hash);
    frugi_put64(h + 24, c->blocks);
    frugi_put64(h + 32, frug_compressor_state_size(c));
}

static uint32_t state_crc(const unsigned char *state, size_t len) {
    unsigned char h[HEADER];
    memcpy(h, state, HEADER);
    frugi_put32(h + CRC_AT, 0);
    return frugi_crc32c(frugi_crc32c(0, h, HEADER), state + HEADER, len - HEADER);
}

frug_status frug_compressor_save(const frug_compressor *c, void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!c || !dst || !len, FRUG_ERR_ARG, "save: no compressor, destination or place for the length");
    size_t size = frug_compressor_state_size(c);
    FRUG_FAIL_IF(cap < size, FRUG_ERR_SHORT_BUFFER, "save: %zu bytes to write, room for %zu", size, cap);
    unsigned char *out = dst;
    write_header(c, out);
    frugi_store_export(&c->residual, out + HEADER);
    frugi_store_export(&c->momentum, out + HEADER + frugi_store_bytes(&c->residual));
    frugi_put32(out + CRC_AT, state_crc(out, size));
    *len = size;
    return FRUG_OK;
}

static frug_status check_state(const frug_compressor *c, const unsigned char *src, size_t len) {
    FRUG_FAIL_IF(len < HEADER || memcmp(src, "FGS1", 4) != 0, FRUG_ERR_FORMAT, "state: it does not begin with FGS1");
    FRUG_FAIL_IF(src[4] != VERSION, FRUG_ERR_VERSION, "state: format version %u, this library knows %u",
                 (unsigned)src[4], VERSION);
    FRUG_FAIL_IF(frugi_get64(src + 32) != len, FRUG_ERR_FORMAT, "state: its header says %llu bytes, there are %zu",
                 (unsigned long long)frugi_get64(src + 32), len);
    FRUG_FAIL_IF(frugi_get32(src + CRC_AT) != state_crc(src, len), FRUG_ERR_CHECKSUM,
                 "state: the checksum does not match; it was damaged");
    unsigned char want[HEADER];
    write_header(c, want);
    frugi_put32(want + CRC_AT, frugi_get32(src + CRC_AT));
    FRUG_FAIL_IF(memcmp(want, src, HEADER) != 0, FRUG_ERR_MISMATCH,
                 "state: it was made for another layout, block length, feedback or residual format");
    return FRUG_OK;
}

frug_status frug_compressor_restore(frug_compressor *c, const void *src, size_t len) {
    FRUG_FAIL_IF(!c || !src, FRUG_ERR_ARG, "restore: no compressor or no state");
    FRUG_TRY(check_state(c, src, len));
    const unsigned char *residual = (const unsigned char *)src + HEADER;
    const unsigned char *momentum = residual + frugi_store_bytes(&c->residual);
    FRUG_FAIL_IF(!frugi_store_check(&c->residual, residual) || !frugi_store_check(&c->momentum, momentum),
                 FRUG_ERR_FORMAT, "state: it holds a NaN or an infinity");
    frugi_store_import(&c->residual, residual);
    frugi_store_import(&c->momentum, momentum);
    return FRUG_OK;
}
