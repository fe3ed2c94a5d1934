/*
 * frame.c - write, seal, open, verify and iterate over frames.
 *
 * Received bytes are used only after they have been checked: the header first, then every section header against
 * the length, then checksum and contents, for sections by blocks in one pass.
 */
#include "codec/frame.h"

#include "codec/unit_value.h"
#include "codec/unit_index.h"
#include "base/float_bits.h"
#include "base/block_count.h"
#include "base/crc32c.h"
#include "base/status.h"

#define CRC_AT     44u
#define PIECES_MAX 64
#define PASS       (96u * 1024u) /* bytes per step when data is read twice; a multiple of the ranges of the fast checksum */

static const unsigned char magic[4] = {'F', 'G', 'R', '1'};

void frugi_frame_write(const frugi_frame *frame, unsigned char *dst) {
    memcpy(dst, magic, 4);
    dst[4] = FRUGI_FRAME_VERSION;
    dst[5] = FRUGI_FRAME_HEADER;
    frugi_put16(dst + 6, 0);
    frugi_put64(dst + 8, frame->bytes);
    frugi_put64(dst + 16, frame->step);
    frugi_put64(dst + 24, frame->layout_hash);
    frugi_put32(dst + 32, frame->source);
    frugi_put32(dst + 36, frame->sections);
    frugi_put32(dst + 40, frame->held);
    frugi_put32(dst + CRC_AT, 0);
}

/* The checksum of everything after the header, by several threads if it is long. */
static uint32_t body_crc(const unsigned char *body, uint64_t bytes, int threads) {
    int pieces = bytes < 1 << 18 ? 1 : threads > PIECES_MAX ? PIECES_MAX : threads;
    uint64_t piece = bytes / (uint64_t)pieces;
    uint32_t crc[PIECES_MAX], joined = 0;
#pragma omp parallel for num_threads(pieces) schedule(static, 1) if (pieces > 1)
    for (int i = 0; i < pieces; i++) {
        uint64_t from = piece * (uint64_t)i, to = i + 1 == pieces ? bytes : from + piece;
        crc[i] = frugi_crc32c(0, body + from, to - from);
    }
    for (int i = 0; i < pieces; i++)
        joined = frugi_crc32c_combine(joined, crc[i], i + 1 == pieces ? bytes - piece * (uint64_t)i : piece);
    return joined;
}

/* The checksum of a frame, computed with zeros in the checksum field. */
static uint32_t frame_crc(const unsigned char *frame, uint64_t bytes, int threads) {
    unsigned char header[FRUGI_FRAME_HEADER];
    memcpy(header, frame, sizeof header);
    frugi_put32(header + CRC_AT, 0);
    uint64_t body = bytes - FRUGI_FRAME_HEADER;
    return frugi_crc32c_combine(frugi_crc32c(0, header, sizeof header),
                                body_crc(frame + FRUGI_FRAME_HEADER, body, threads), body);
}

void frugi_frame_seal(unsigned char *frame, uint64_t bytes, int threads) {
    frugi_put32(frame + CRC_AT, frame_crc(frame, bytes, threads));
}

/* Whether two sections by units cover the same elements with the same grid; their values are then added. */
static int same_units(const frugi_section *a, const frugi_section *b) {
    return !a->block && !b->block && a->begin == b->begin && a->count == b->count && a->grid.rows == b->grid.rows &&
           a->grid.h == b->grid.h && a->grid.w == b->grid.w;
}

/* Read the section header at src, if the `left` bytes begin with a valid one. */
static int read_section_header(const frugi_frame *frame, const unsigned char *src, uint64_t left,
                               frugi_section *section) {
    if (left < FRUGI_SECTION_HEADER || left < frugi_section_header(src) || !frugi_section_read(src, section))
        return 0;
    return section->block || frame->version > 1;
}

static frug_status check_sections(const unsigned char *src, const frugi_frame *frame) {
    uint64_t at = FRUGI_FRAME_HEADER, end = 0;
    frugi_section section, before = {.block = 1};
    for (uint32_t i = 0; i < frame->sections; i++, before = section) {
        FRUG_FAIL_IF(!read_section_header(frame, src + at, frame->bytes - at, &section), FRUG_ERR_FORMAT,
                     "frame: section %u at byte %llu has no valid header", (unsigned)i, (unsigned long long)at);
        at += section.header;
        FRUG_FAIL_IF(section.bytes > frame->bytes - at, FRUG_ERR_FORMAT,
                     "frame: section %u has a length of %llu bytes, but the frame has %llu left", (unsigned)i,
                     (unsigned long long)section.bytes, (unsigned long long)(frame->bytes - at));
        FRUG_FAIL_IF(section.begin < end && !same_units(&section, &before), FRUG_ERR_FORMAT,
                     "frame: section %u overlaps the previous section", (unsigned)i);
        end = section.begin + section.count;
        at += section.bytes;
    }
    FRUG_FAIL_IF(at != frame->bytes, FRUG_ERR_FORMAT, "frame: %llu bytes follow the last section",
                 (unsigned long long)(frame->bytes - at));
    return FRUG_OK;
}

frug_status frugi_frame_open(const unsigned char *src, size_t len, frugi_frame *frame) {
    FRUG_FAIL_IF(len < FRUGI_FRAME_HEADER, FRUG_ERR_FORMAT, "frame: %zu bytes are shorter than the header of %u", len,
                 FRUGI_FRAME_HEADER);
    FRUG_FAIL_IF(memcmp(src, magic, 4) != 0, FRUG_ERR_FORMAT, "frame: bad magic, it does not begin with FGR1");
    FRUG_FAIL_IF(src[4] < 1 || src[4] > FRUGI_FRAME_VERSION, FRUG_ERR_VERSION,
                 "frame: format version %u is not supported, only 1 to %u", (unsigned)src[4], FRUGI_FRAME_VERSION);
    FRUG_FAIL_IF(src[5] != FRUGI_FRAME_HEADER || frugi_get16(src + 6) != 0, FRUG_ERR_FORMAT,
                 "frame: unknown header length or flags");
    frugi_frame read = {.version = src[4],
                        .bytes = frugi_get64(src + 8),
                        .step = frugi_get64(src + 16),
                        .layout_hash = frugi_get64(src + 24),
                        .source = frugi_get32(src + 32),
                        .sections = frugi_get32(src + 36),
                        .held = frugi_get32(src + 40)};
    FRUG_FAIL_IF(read.bytes != len, FRUG_ERR_FORMAT, "frame: the header has a length of %llu bytes, but there are %zu",
                 (unsigned long long)read.bytes, len);
    FRUG_TRY(check_sections(src, &read));
    *frame = read;
    return FRUG_OK;
}

int frugi_frame_next(const unsigned char *src, const frugi_frame *frame, uint64_t *at, frugi_section *section,
                     const unsigned char **payload) {
    uint64_t here = *at ? *at : FRUGI_FRAME_HEADER;
    if (here >= frame->bytes || !frugi_section_read(src + here, section))
        return 0;
    *payload = src + here + section->header;
    *at = here + section->header + section->bytes;
    return 1;
}

/*
 * One byte per index, at least one in each block: within a block indices must ascend. Counting the descents of all
 * bytes and comparing with those at the starts of blocks is several times faster than checking block by block.
 */
static int byte_indices_ascend(const frugi_section *s, const unsigned char *payload, uint64_t lo, uint64_t hi) {
    const unsigned char *index = payload + s->index_at;
    uint64_t from = frugi_section_k_before(s, lo), at = from, descents = 0, walk = (s->first + lo) * s->kappa;
    int in_block = 1;
    for (uint64_t b = lo; b + 1 < hi; b++) {
        at += frugi_count_next(s->kappa, &walk);
        descents += index[at] <= index[at - 1];
        in_block &= index[at - 1] < s->block;
    }
    at += frugi_section_k(s, hi - 1);
    in_block &= index[at - 1] < frugi_section_length(s, hi - 1);
    return in_block && frugi_index_descents(index + from + 1, at - from - 1) == descents;
}

static int indices_are_valid(const frugi_section *s, const unsigned char *payload, uint64_t lo, uint64_t hi) {
    if (s->index == FRUGI_INDEX_CODE_NONE || lo >= hi)
        return 1;
    if (s->index == FRUGI_INDEX_CODE_LOCAL && s->block <= 256 && s->kappa >> 32)
        return byte_indices_ascend(s, payload, lo, hi);
    int good = 1;
    uint64_t at = frugi_section_block_offsets(s, lo).index;
    for (uint64_t b = lo; b < hi && good; b++) {
        uint32_t k = frugi_section_k(s, b);
        good = frugi_index_check(s->index, s->block, payload + at, k, frugi_section_length(s, b));
        at += frugi_index_bytes(s->index, s->block, 1, k);
    }
    return good;
}

/* Verify indices and update the checksum, in ranges of blocks that stay in the cache between the two passes. */
static int verify_indices(const frugi_section *s, const unsigned char *payload, uint32_t *crc) {
    uint64_t run = PASS / frugi_index_bytes(FRUGI_INDEX_CODE_BITMAP, s->block, 1, 0), from = s->index_at;
    int good = 1;
    for (uint64_t lo = 0; lo < s->blocks; lo += run) {
        uint64_t hi = s->blocks - lo < run ? s->blocks : lo + run;
        uint64_t to = hi == s->blocks ? s->value_at : frugi_section_block_offsets(s, hi).index;
        *crc = frugi_crc32c(*crc, payload + from, to - from);
        good = good && indices_are_valid(s, payload, lo, hi);
        from = to;
    }
    return good;
}

static int verify_values(const frugi_section *s, const unsigned char *payload, uint32_t *crc) {
    uint64_t bytes = frugi_value_bytes(s->value), run = PASS / bytes;
    int good = 1;
    for (uint64_t lo = 0; lo < s->entries; lo += run) {
        uint64_t hi = s->entries - lo < run ? s->entries : lo + run;
        uint64_t from = s->value_at + lo * bytes, to = hi == s->entries ? s->bytes : s->value_at + hi * bytes;
        *crc = frugi_crc32c(*crc, payload + from, to - from);
        good = good && frugi_value_check(s->value, NULL, 0, payload + from, hi - lo);
    }
    return good;
}

static int verify_blocks(const frugi_section *s, const unsigned char *payload, uint32_t *crc) {
    *crc = frugi_crc32c(*crc, payload, s->index_at);
    int good = frugi_value_check(s->value, payload, s->blocks, NULL, 0);
    good &= verify_indices(s, payload, crc);
    good &= verify_values(s, payload, crc);
    return good;
}

static int verify_units(const frugi_section *s, const unsigned char *payload, uint32_t *crc) {
    *crc = frugi_crc32c(*crc, payload, s->bytes);
    return frugi_unit_index_check(s, payload + s->index_at) &&
           frugi_value_group_check(s, payload, payload + s->value_at);
}

frug_status frugi_frame_verify(const unsigned char *src, const frugi_frame *frame) {
    unsigned char header[FRUGI_FRAME_HEADER];
    memcpy(header, src, sizeof header);
    frugi_put32(header + CRC_AT, 0);
    uint32_t crc = frugi_crc32c(0, header, sizeof header);
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0;
    int good = 1;
    while (frugi_frame_next(src, frame, &at, &s, &payload)) {
        crc = frugi_crc32c(crc, payload - s.header, s.header);
        good &= s.block ? verify_blocks(&s, payload, &crc) : verify_units(&s, payload, &crc);
    }
    if (crc != frugi_get32(src + CRC_AT))
        return FRUG_ERR_CHECKSUM;
    return good ? FRUG_OK : FRUG_ERR_FORMAT;
}
