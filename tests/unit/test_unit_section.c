/* test_unit_section.c - sections by units on the wire: headers, golden bytes, frames that hold both kinds. */
#include "unit/unit_helpers.h"

#include "codec/frame.h"
#include "base/float_bits.h"

#include "unit/golden_units.inc"

static frugi_section example(frugi_index code) {
    static uint32_t list[600];
    uint64_t kept = code == FRUGI_INDEX_CODE_NONE ? 600 : 46;
    for (uint32_t i = 0; i < 600; i++)
        list[i] = kept == 600 ? i : i < 3 ? i : i == 3 ? 130 : i < 45 ? 251 + i : 599;
    frugi_section s = section_of(3, 200, 1, 1);
    s.value = FRUGI_VALUE_BF16;
    s.tensor = 7;
    s.begin = 1000;
    if (code == FRUGI_INDEX_CODE_SEEDED) {
        s.index = code;
        s.key = 0x0123456789abcdef;
        s.kept = s.entries = kept;
        assert_true(frugi_section_measure(&s));
    } else {
        set_list(&s, code, list, kept);
    }
    if (code == FRUGI_INDEX_CODE_RICE) {
        s.rice = 3;
        uint64_t bits = kept * 4;
        for (uint64_t i = 0; i < kept; i++)
            bits += (i ? list[i] - list[i - 1] - 1 : list[0]) >> 3;
        s.index_bytes = (bits + 7) / 8;
        assert_true(frugi_section_measure(&s));
    }
    return s;
}

/* The bytes themselves, so that no later version changes them without noticing. See docs/wire-format.md. */
static void wire_bytes_are_unchanged(void **state) {
    (void)state;
    static const struct {
        const unsigned char *bytes;
        size_t len;
    } golden[FRUGI_INDEX_CODES] = {
        {golden_none, sizeof golden_none}, {golden_local, sizeof golden_local},   {golden_bitmap, sizeof golden_bitmap},
        {golden_coo, sizeof golden_coo},   {golden_csr, sizeof golden_csr},       {golden_rle, sizeof golden_rle},
        {golden_rice, sizeof golden_rice}, {golden_seeded, sizeof golden_seeded},
    };
    uint32_t list[46];
    for (uint32_t i = 0; i < 46; i++)
        list[i] = i < 3 ? i : i == 3 ? 130 : i < 45 ? 251 + i : 599;
    for (uint32_t code = 0; code < FRUGI_INDEX_CODES; code++) {
        frugi_section s = example((frugi_index)code), read;
        assert_int_equal(s.header + s.index_bytes, golden[code].len);
        unsigned char *index = encode_list(&s, list), header[FRUGI_UNIT_SECTION_HEADER];
        frugi_section_write(&s, header);
        assert_same_bits(header, golden[code].bytes, sizeof header);
        assert_same_bits(index, golden[code].bytes + sizeof header, s.index_bytes);
        assert_true(frugi_section_read(header, &read));
        assert_memory_equal(&read, &s, sizeof s); /* both without padding in between that was not zeroed */
        test_free(index);
    }
    frugi_section s = example(FRUGI_INDEX_CODE_SEEDED);
    uint32_t drawn[64];
    frugi_index_reader walk;
    frugi_index_reader_start(&walk, &s, NULL);
    assert_int_equal(frugi_index_read_below(&walk, 600, drawn, 64), COUNT(golden_drawn));
    assert_same_bits(drawn, golden_drawn, sizeof golden_drawn);
}

/* Every field that can be wrong, wrong in every way that is checked, in a header that is right otherwise. */
static void invalid_headers_are_rejected(void **state) {
    (void)state;
    static const struct {
        frugi_index code;
        uint32_t at, bytes;
        uint64_t value;
    } cases[] = {
        {FRUGI_INDEX_CODE_COO, 0, 1, 8}, /* index codes */
        {FRUGI_INDEX_CODE_COO, 0, 1, 255},
        {FRUGI_INDEX_CODE_COO, 0, 1, 0},                  /* none, but not all are sent */
        {FRUGI_INDEX_CODE_COO, 1, 1, 9},                  /* value codes */
        {FRUGI_INDEX_CODE_COO, 1, 1, 2},                  /* f16 without a group */
        {FRUGI_INDEX_CODE_COO, 2, 2, 256},                /* a block: the other kind */
        {FRUGI_INDEX_CODE_COO, 8, 8, (1ull << 48) - 599}, /* begin */
        {FRUGI_INDEX_CODE_COO, 8, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 16, 8, 0}, /* count */
        {FRUGI_INDEX_CODE_COO, 16, 8, 601},
        {FRUGI_INDEX_CODE_COO, 16, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 24, 8, 0}, /* rows */
        {FRUGI_INDEX_CODE_COO, 24, 8, 7},
        {FRUGI_INDEX_CODE_COO, 24, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 32, 8, 0}, /* h */
        {FRUGI_INDEX_CODE_COO, 40, 8, 2},
        {FRUGI_INDEX_CODE_COO, 32, 8, 4},
        {FRUGI_INDEX_CODE_COO, 32, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 40, 8, 0}, /* w */
        {FRUGI_INDEX_CODE_COO, 40, 8, 201},
        {FRUGI_INDEX_CODE_COO, 40, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 48, 8, 0}, /* kept */
        {FRUGI_INDEX_CODE_COO, 48, 8, 45},
        {FRUGI_INDEX_CODE_NONE, 48, 8, 601},
        {FRUGI_INDEX_CODE_NONE, 48, 8, 599},
        {FRUGI_INDEX_CODE_COO, 48, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 56, 8, 45}, /* entries */
        {FRUGI_INDEX_CODE_COO, 56, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 64, 4, 8}, /* group of bf16 */
        {FRUGI_INDEX_CODE_COO, 68, 2, 1}, /* levels of bf16 */
        {FRUGI_INDEX_CODE_COO, 70, 1, 1}, /* low bits of coo */
        {FRUGI_INDEX_CODE_RICE, 70, 1, 32},
        {FRUGI_INDEX_CODE_COO, 71, 1, 1},  /* zero */
        {FRUGI_INDEX_CODE_COO, 72, 8, 1},  /* a key that draws nothing */
        {FRUGI_INDEX_CODE_NONE, 80, 8, 1}, /* index bytes */
        {FRUGI_INDEX_CODE_SEEDED, 80, 8, 1},
        {FRUGI_INDEX_CODE_BITMAP, 80, 8, 74},
        {FRUGI_INDEX_CODE_BITMAP, 80, 8, 76},
        {FRUGI_INDEX_CODE_COO, 80, 8, 183},
        {FRUGI_INDEX_CODE_CSR, 80, 8, 109},
        {FRUGI_INDEX_CODE_LOCAL, 80, 8, 3},
        {FRUGI_INDEX_CODE_LOCAL, 80, 8, 50},
        {FRUGI_INDEX_CODE_RLE, 80, 8, 1},
        {FRUGI_INDEX_CODE_RLE, 80, 8, 461},
        {FRUGI_INDEX_CODE_RICE, 80, 8, 22},
        {FRUGI_INDEX_CODE_RICE, 80, 8, 33},
        {FRUGI_INDEX_CODE_RICE, 80, 8, UINT64_MAX},
        {FRUGI_INDEX_CODE_COO, 88, 8, 272}, /* payload bytes */
        {FRUGI_INDEX_CODE_COO, 88, 8, UINT64_MAX},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        frugi_section s = example(cases[i].code), read;
        unsigned char header[FRUGI_UNIT_SECTION_HEADER];
        frugi_section_write(&s, header);
        assert_true(frugi_section_read(header, &read));
        memcpy(header + cases[i].at, &cases[i].value, cases[i].bytes);
        if (cases[i].at == 80 || cases[i].at == 64) { /* the length of the payload must not reveal it */
            uint64_t before = (s.index_bytes + 3) / 4 * 4, now = cases[i].at == 80 ? cases[i].value : s.index_bytes;
            frugi_put64(header + 88, s.bytes - before + (now + 3) / 4 * 4);
        }
        if (frugi_section_read(header, &read))
            fail_msg("case %zu is accepted", i);
    }
}

static void value_groups_and_levels_are_checked(void **state) {
    (void)state;
    static const struct {
        frugi_value value;
        uint32_t group, levels;
        int good;
    } cases[] = {
        {FRUGI_VALUE_F32, 0, 0, 1},      {FRUGI_VALUE_F32, 8, 0, 0},       {FRUGI_VALUE_BF16, 256, 0, 0},
        {FRUGI_VALUE_F16, 0, 0, 0},      {FRUGI_VALUE_F16, 8, 0, 1},       {FRUGI_VALUE_INT8, 65536, 0, 1},
        {FRUGI_VALUE_INT8, 65544, 0, 0}, {FRUGI_VALUE_INT8, 12, 0, 0},     {FRUGI_VALUE_INT8, 256, 1, 0},
        {FRUGI_VALUE_INT4, 64, 0, 1},    {FRUGI_VALUE_INT4, 0, 0, 0},      {FRUGI_VALUE_SIGN, 0, 0, 1},
        {FRUGI_VALUE_SIGN, 64, 0, 1},    {FRUGI_VALUE_SIGN, 65, 0, 0},     {FRUGI_VALUE_TWO_BIT, 0, 0, 0},
        {FRUGI_VALUE_TWO_BIT, 64, 0, 1}, {FRUGI_VALUE_QSGD, 64, 0, 0},     {FRUGI_VALUE_QSGD, 64, 1, 1},
        {FRUGI_VALUE_QSGD, 64, 127, 1},  {FRUGI_VALUE_QSGD, 64, 128, 0},   {FRUGI_VALUE_QSGD, 0, 4, 0},
        {FRUGI_VALUE_ONEBIT, 0, 0, 0},   {FRUGI_VALUE_ONEBIT, 1024, 0, 1}, {(frugi_value)9, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        frugi_section s = example(FRUGI_INDEX_CODE_COO);
        s.value = cases[i].value;
        s.group = cases[i].group;
        s.levels = cases[i].levels;
        if (frugi_section_measure(&s) != cases[i].good)
            fail_msg("case %zu: expected %d", i, cases[i].good);
    }
}

/* Sections of both kinds, with f32 values 1, 2, 3, ... . */
static uint64_t put_section(unsigned char *dst, const frugi_section *s, const uint32_t *list) {
    memset(dst, 0, s->header + s->bytes);
    frugi_section_write(s, dst);
    unsigned char *payload = dst + s->header;
    if (!s->block)
        frugi_unit_index_encode(s, list, payload + s->index_at);
    for (uint64_t i = 0; i < s->entries; i++)
        frugi_put32(payload + s->value_at + 4 * i, frugi_f32_bits((float)(i + 1)));
    return s->header + s->bytes;
}

static size_t put_frame(unsigned char *dst, const frugi_section *const *sections, uint32_t n, const uint32_t *list) {
    frugi_frame frame = {.bytes = FRUGI_FRAME_HEADER, .step = 4, .layout_hash = 5, .source = 6, .sections = n};
    for (uint32_t i = 0; i < n; i++)
        frame.bytes += put_section(dst + frame.bytes, sections[i], list);
    frugi_frame_write(&frame, dst);
    frugi_frame_seal(dst, frame.bytes, 1);
    return frame.bytes;
}

static void frames_contain_both_kinds_of_sections(void **state) {
    (void)state;
    static const uint32_t list[] = {1, 2, 9, 30};
    static unsigned char bytes[8192];
    frugi_section blocks = {.block = 64, .count = 64, .kappa = (uint64_t)64 << 32}, units = section_of(9, 30, 2, 3);
    assert_true(frugi_section_measure(&blocks));
    units.begin = 64;
    units.tensor = 1;
    frugi_section twin = units, other = section_of(9, 30, 1, 3);
    other.begin = 64;
    set_list(&units, FRUGI_INDEX_CODE_RICE, list, COUNT(list));
    set_list(&twin, FRUGI_INDEX_CODE_CSR, list, COUNT(list));
    set_list(&other, FRUGI_INDEX_CODE_COO, list, COUNT(list));
    frug_frame_info info = {.struct_size = sizeof info};
    frug_section_info section = {.struct_size = sizeof section};

    const frugi_section *good[] = {&blocks, &units, &twin};
    size_t len = put_frame(bytes, good, 3, list);
    OK(frug_frame_check(bytes, len, &info));
    assert_int_equal(info.version, 2);
    assert_int_equal(info.range.begin, 0);
    assert_int_equal(info.range.count, 64 + 270);
    assert_int_equal(info.entries, 64 + 2 * units.entries);
    for (uint32_t i = 1; i < 3; i++) {
        OK(frug_frame_section(bytes, len, i, &section));
        uint64_t plain[FRUGI_INDEX_CODES];
        plain_sizes(&units.grid, list, COUNT(list), plain);
        assert_memory_equal(section.index_bytes, plain, sizeof plain);
        assert_string_equal(section.index, i == 1 ? "rice" : "csr");
        assert_string_equal(section.value, "f32");
        assert_int_equal(section.block, 0);
        assert_int_equal(section.units, 50);
        assert_int_equal(section.selected, 4);
        assert_int_equal(section.unit_h, 2);
        assert_int_equal(section.unit_w, 3);
        assert_int_equal(section.bytes, 96 + good[i]->bytes);
        assert_true(section.density == (double)units.entries / 270);
    }
    OK(frug_frame_section(bytes, len, 0, &section));
    assert_int_equal(section.units, 64);
    assert_int_equal(section.selected, 64);
    assert_int_equal(section.index_bytes[FRUGI_INDEX_CODE_NONE], 0);
    assert_int_equal(section.index_bytes[FRUGI_INDEX_CODE_LOCAL], 64);
    assert_int_equal(section.index_bytes[FRUGI_INDEX_CODE_BITMAP], 8);
    assert_true(section.index_bytes[FRUGI_INDEX_CODE_RICE] == UINT64_MAX);

    bytes[4] = 1; /* version 1 knows no sections by units */
    frugi_frame_seal(bytes, len, 1);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);

    const frugi_section *cut_otherwise[] = {&units, &other}, *backwards[] = {&units, &blocks};
    len = put_frame(bytes, cut_otherwise, 2, list);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);
    len = put_frame(bytes, backwards, 2, list);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);
    blocks.begin = 64; /* the two kinds must not overlap in either order */
    const frugi_section *mixed[] = {&units, &blocks}, *mixed_too[] = {&blocks, &units};
    len = put_frame(bytes, mixed, 2, list);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);
    len = put_frame(bytes, mixed_too, 2, list);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);
}

static void damaged_frames_by_units_are_rejected(void **state) {
    (void)state;
    static const uint32_t list[] = {1, 2, 9, 30};
    unsigned char bytes[512];
    frugi_section s = section_of(9, 30, 3, 2);
    set_list(&s, FRUGI_INDEX_CODE_LOCAL, list, COUNT(list));
    const frugi_section *one[] = {&s};
    size_t len = put_frame(bytes, one, 1, list);
    frug_frame_info info = {.struct_size = sizeof info};
    OK(frug_frame_check(bytes, len, &info));
    for (size_t bit = 0; bit < 8 * len; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(frug_frame_check(bytes, len, &info), FRUG_OK);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < len; cut++) {
        unsigned char *copy = test_malloc(cut + 1);
        memcpy(copy, bytes, cut);
        assert_int_equal(frug_frame_check(copy, cut, &info), FRUG_ERR_FORMAT);
        frugi_put64(bytes + 8, cut); /* a header that agrees with the cut */
        memcpy(copy, bytes, cut);
        assert_int_equal(frug_frame_check(copy, cut, &info), FRUG_ERR_FORMAT);
        frugi_put64(bytes + 8, len);
        test_free(copy);
    }
    unsigned char *payload = bytes + 48 + 96;
    payload[s.index_at + 1] = 2; /* invalid with a valid checksum: an index twice */
    frugi_frame_seal(bytes, len, 1);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);
    payload[s.index_at + 1] = 1;
    frugi_put32(payload + s.value_at, 0x7fc00000u); /* a NaN */
    frugi_frame_seal(bytes, len, 1);
    assert_int_equal(frug_frame_check(bytes, len, &info), FRUG_ERR_FORMAT);
}

static void index_codes_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"none", "local", "bitmap", "coo", "csr", "rle", "rice", "seeded"};
    for (size_t i = 0; i < FRUG_INDEX_CODES; i++)
        assert_string_equal(frug_index_code_at(i), names[i]);
    assert_null(frug_index_code_at(FRUG_INDEX_CODES));
    assert_null(frug_index_code_at(SIZE_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_bytes_are_unchanged),
        cmocka_unit_test(invalid_headers_are_rejected),
        cmocka_unit_test(value_groups_and_levels_are_checked),
        cmocka_unit_test(frames_contain_both_kinds_of_sections),
        cmocka_unit_test(damaged_frames_by_units_are_rejected),
        cmocka_unit_test(index_codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
