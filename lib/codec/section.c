/* section.c - sizes, offsets and headers of sections of both kinds. See docs/wire-format.md. */
#include "codec/section.h"

#include "codec/unit_value.h"
#include "codec/unit_index.h"
#include "base/float_bits.h"
#include "base/block_count.h"

#define ELEMENTS_MAX    FRUGI_GRID_ELEMENTS_MAX
#define VALUE_GROUP_MAX 65536u
#define LEVELS_MAX      127u

static uint64_t pad_to_4(uint64_t bytes) {
    return (bytes + 3) & ~(uint64_t)3;
}

static int is_valid_block(uint32_t block) {
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

static int is_valid_range(const frugi_section *s) {
    return s->count && s->count <= ELEMENTS_MAX && s->begin <= ELEMENTS_MAX - s->count;
}

static int measure_blocks(frugi_section *s) {
    uint64_t most = (uint64_t)s->block << 32;
    if (!is_valid_block(s->block) || s->index > FRUGI_INDEX_CODE_BITMAP || s->value > FRUGI_VALUE_INT8)
        return 0;
    if (s->kappa < FRUGI_KAPPA_MIN || s->kappa > most || (s->index == FRUGI_INDEX_CODE_NONE && s->kappa != most))
        return 0;
    s->header = FRUGI_SECTION_HEADER;
    s->blocks = (s->count + s->block - 1) / s->block;
    s->last_length = (uint32_t)(s->count - (s->blocks - 1) * s->block);
    s->entries = frugi_section_k_before(s, s->blocks - 1) + frugi_section_k(s, s->blocks - 1);
    s->index_bytes = frugi_index_bytes(s->index, s->block, s->blocks, s->entries);
    s->index_at = pad_to_4(s->blocks * frugi_value_scale_bytes(s->value));
    s->value_at = s->index_at + pad_to_4(s->index_bytes);
    s->bytes = s->value_at + pad_to_4(s->entries * frugi_value_bytes(s->value));
    return 1;
}

/* Whether the size of the value groups and the levels fit the value code. */
static int is_valid_value_group(const frugi_section *s) {
    if (s->value > FRUGI_VALUE_ONEBIT)
        return 0;
    if (s->value == FRUGI_VALUE_QSGD ? !s->levels || s->levels > LEVELS_MAX : s->levels != 0)
        return 0;
    if (s->value == FRUGI_VALUE_F32 || s->value == FRUGI_VALUE_BF16)
        return s->group == 0;
    return s->group ? s->group % 8 == 0 && s->group <= VALUE_GROUP_MAX : s->value == FRUGI_VALUE_SIGN;
}

/* Whether `kept` units can have `entries` elements. If units differ in size, the exact number depends on the indices.
 */
static int is_valid_entries(const frugi_section *s) {
    const frugi_grid *g = &s->grid;
    if (s->kept == g->units)
        return s->entries == s->count;
    if (frugi_grid_is_uniform(g))
        return s->entries == s->kept * (g->h * g->w); /* below count: no overflow */
    return s->entries >= s->kept && s->entries < s->count;
}

static int is_valid_index_code(const frugi_section *s) {
    uint64_t least, most;
    if (s->index > FRUGI_INDEX_CODE_SEEDED || (s->index == FRUGI_INDEX_CODE_NONE && s->kept != s->grid.units))
        return 0;
    if ((s->key && s->index != FRUGI_INDEX_CODE_SEEDED) || s->rice > (s->index == FRUGI_INDEX_CODE_RICE ? 31u : 0u))
        return 0;
    frugi_unit_index_bounds(s, &least, &most);
    return s->index_bytes >= least && s->index_bytes <= most;
}

static int measure_units(frugi_section *s) {
    frugi_grid *g = &s->grid;
    if (!frugi_grid_measure(g) || g->rows * g->cols != s->count || !s->kept || s->kept > g->units ||
        !is_valid_entries(s) || !is_valid_index_code(s) || !is_valid_value_group(s))
        return 0;
    s->header = FRUGI_UNIT_SECTION_HEADER;
    s->blocks = 0;
    s->last_length = 0;
    s->index_at = pad_to_4(frugi_value_group_scale_bytes(s));
    s->value_at = s->index_at + pad_to_4(s->index_bytes);
    s->bytes = s->value_at + pad_to_4(frugi_value_group_bytes(s));
    return 1;
}

int frugi_section_measure(frugi_section *s) {
    return is_valid_range(s) && (s->block ? measure_blocks(s) : measure_units(s));
}

frugi_block_offsets frugi_section_block_offsets(const frugi_section *s, uint64_t b) {
    uint64_t before = frugi_section_k_before(s, b);
    frugi_block_offsets offsets = {
        .scale = b * frugi_value_scale_bytes(s->value),
        .index = s->index_at + frugi_index_bytes(s->index, s->block, b, before),
        .value = s->value_at + before * frugi_value_bytes(s->value),
    };
    return offsets;
}

uint32_t frugi_section_header(const unsigned char *start) {
    return frugi_get16(start + 2) ? FRUGI_SECTION_HEADER : FRUGI_UNIT_SECTION_HEADER;
}

static void write_units(const frugi_section *s, unsigned char *h) {
    frugi_put64(h + 24, s->grid.rows);
    frugi_put64(h + 32, s->grid.h);
    frugi_put64(h + 40, s->grid.w);
    frugi_put64(h + 48, s->kept);
    frugi_put64(h + 56, s->entries);
    frugi_put32(h + 64, s->group);
    frugi_put16(h + 68, (uint16_t)s->levels);
    h[70] = (unsigned char)s->rice;
    h[71] = 0;
    frugi_put64(h + 72, s->key);
    frugi_put64(h + 80, s->index_bytes);
    frugi_put64(h + 88, s->bytes);
}

void frugi_section_write(const frugi_section *s, unsigned char *h) {
    h[0] = (unsigned char)s->index;
    h[1] = (unsigned char)s->value;
    frugi_put16(h + 2, (uint16_t)s->block);
    frugi_put32(h + 4, s->tensor);
    frugi_put64(h + 8, s->begin);
    frugi_put64(h + 16, s->count);
    if (!s->block) {
        write_units(s, h);
        return;
    }
    frugi_put64(h + 24, s->kappa);
    frugi_put64(h + 32, s->first);
    frugi_put64(h + 40, s->bytes);
}

static int read_units(const unsigned char *h, frugi_section *s) {
    s->grid.rows = frugi_get64(h + 24);
    s->grid.cols = s->grid.rows ? s->count / s->grid.rows : 0;
    s->grid.h = frugi_get64(h + 32);
    s->grid.w = frugi_get64(h + 40);
    s->kept = frugi_get64(h + 48);
    s->entries = frugi_get64(h + 56);
    s->group = frugi_get32(h + 64);
    s->levels = frugi_get16(h + 68);
    s->rice = h[70];
    s->key = frugi_get64(h + 72);
    s->index_bytes = frugi_get64(h + 80);
    return h[71] == 0 && frugi_section_measure(s) && s->bytes == frugi_get64(h + 88);
}

static int read_blocks(const unsigned char *h, frugi_section *s) {
    s->kappa = frugi_get64(h + 24);
    s->first = frugi_get64(h + 32);
    return frugi_section_measure(s) && s->bytes == frugi_get64(h + 40);
}

int frugi_section_read(const unsigned char *h, frugi_section *s) {
    frugi_section read = {
        .index = (frugi_index)h[0],
        .value = (frugi_value)h[1],
        .block = frugi_get16(h + 2),
        .tensor = frugi_get32(h + 4),
        .begin = frugi_get64(h + 8),
        .count = frugi_get64(h + 16),
    };
    if (!(read.block ? read_blocks(h, &read) : read_units(h, &read)))
        return 0;
    *s = read;
    return 1;
}
