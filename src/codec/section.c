/* section.c - the arithmetic of a section, and its header. See docs/wire-format.md. */
#include "codec/section.h"

#include "common/bits.h"
#include "common/count.h"

#define MOST_ELEMENTS ((uint64_t)1 << 48)

static uint64_t padded(uint64_t bytes) {
    return (bytes + 3) & ~(uint64_t)3;
}

static int block_is_known(uint32_t block) {
    return block == 64 || block == 128 || block == 256 || block == 1024 || block == 4096;
}

uint32_t frugi_section_length(const frugi_section *s, uint64_t b) {
    return b + 1 == s->blocks ? s->last_length : s->block;
}

uint32_t frugi_section_k(const frugi_section *s, uint64_t b) {
    uint32_t k = frugi_count(s->kappa, s->first + b);
    return b + 1 == s->blocks && s->last_length < s->block ? frugi_tail_count(k, s->last_length, s->block) : k;
}

uint64_t frugi_section_k_before(const frugi_section *s, uint64_t b) {
    return frugi_count_range(s->kappa, s->first, b);
}

int frugi_section_measure(frugi_section *s) {
    uint64_t most = (uint64_t)s->block << 32;
    if (!block_is_known(s->block) || s->count == 0 || s->count > MOST_ELEMENTS || s->begin > MOST_ELEMENTS - s->count)
        return 0;
    if (s->kappa < ((uint64_t)1 << 32) || s->kappa > most || (s->index == FRUGI_INDEX_CODE_NONE && s->kappa != most))
        return 0;
    s->header = FRUGI_SECTION_HEADER;
    s->blocks = (s->count + s->block - 1) / s->block;
    s->last_length = (uint32_t)(s->count - (s->blocks - 1) * s->block);
    s->entries = frugi_section_k_before(s, s->blocks - 1) + frugi_section_k(s, s->blocks - 1);
    s->index_at = padded(s->blocks * frugi_value_scale_bytes(s->value));
    s->value_at = s->index_at + padded(frugi_index_bytes(s->index, s->block, s->blocks, s->entries));
    s->bytes = s->value_at + padded(s->entries * frugi_value_bytes(s->value));
    return 1;
}

frugi_place frugi_section_place(const frugi_section *s, uint64_t b) {
    uint64_t before = frugi_section_k_before(s, b);
    frugi_place place = {
        .scale = b * frugi_value_scale_bytes(s->value),
        .index = s->index_at + frugi_index_bytes(s->index, s->block, b, before),
        .value = s->value_at + before * frugi_value_bytes(s->value),
    };
    return place;
}

void frugi_section_write(const frugi_section *s, unsigned char *h) {
    memset(h, 0, FRUGI_SECTION_HEADER);
    h[0] = (unsigned char)s->index;
    h[1] = (unsigned char)s->value;
    frugi_put16(h + 2, (uint16_t)s->block);
    frugi_put32(h + 4, s->tensor);
    frugi_put64(h + 8, s->begin);
    frugi_put64(h + 16, s->count);
    frugi_put64(h + 24, s->kappa);
    frugi_put64(h + 32, s->first);
    frugi_put64(h + 40, s->bytes);
}

int frugi_section_read(const unsigned char *h, frugi_section *s) {
    if (!frugi_index_name(h[0]) || !frugi_value_name(h[1]))
        return 0;
    frugi_section read = {
        .index = (frugi_index)h[0],
        .value = (frugi_value)h[1],
        .block = frugi_get16(h + 2),
        .tensor = frugi_get32(h + 4),
        .begin = frugi_get64(h + 8),
        .count = frugi_get64(h + 16),
        .kappa = frugi_get64(h + 24),
        .first = frugi_get64(h + 32),
    };
    if (!frugi_section_measure(&read) || read.bytes != frugi_get64(h + 40))
        return 0;
    *s = read;
    return 1;
}
