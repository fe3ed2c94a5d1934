/* test_delta.c - differences between two versions of the weights: exact, the same on every variant, safe for any bytes.
 */
#include "support/assertions.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "delta/delta_hash.h"
#include "delta/delta_record.h"
#include "frugrad/delta.h"

#include <stdio.h>

/* Two versions of a tensor, of which a share differs: by 1 in the last place, by a little, or by anything. */
typedef struct pair {
    frug_delta_tensor tensor;
    unsigned char *before, *after;
    size_t bytes;
} pair;

static pair make_pair(uint64_t n, uint32_t width, double density, uint64_t seed) {
    pair p = {.tensor = FRUG_DELTA_TENSOR_INIT, .bytes = (size_t)n * width};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    p.before = test_malloc(p.bytes + 8);
    p.after = test_malloc(p.bytes + 8);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = next_random(&state), y = x, r = next_random(&state);
        if ((double)(r >> 40) < density * 0x1p24)
            y += r % 16 < 12 ? (r & 16 ? 1 : UINT64_MAX) : r % 16 < 15 ? r >> 5 & 255 : next_random(&state);
        memcpy(p.before + i * width, &x, width);
        memcpy(p.after + i * width, &y, width);
    }
    p.tensor.name = "layer.weight";
    p.tensor.dtype = width == 2 ? "BF16" : "I64";
    p.tensor.width = width;
    p.tensor.ndim = 1;
    p.tensor.shape[0] = n;
    p.tensor.before = p.before;
    p.tensor.after = p.after;
    return p;
}

static void free_pair(pair *p) {
    test_free(p->before);
    test_free(p->after);
}

static unsigned char *make(const frug_delta_tensor *tensor, int threads, size_t *len) {
    size_t cap = 0;
    OK(frug_delta_bound(tensor, &cap));
    unsigned char *record = test_malloc(cap);
    OK(frug_delta_make(tensor, threads, record, cap, len));
    assert_true(*len <= cap);
    return record;
}

static uint64_t count_different(const pair *p) {
    uint64_t count = 0;
    for (size_t i = 0; i < p->bytes; i += p->tensor.width)
        count += memcmp(p->before + i, p->after + i, p->tensor.width) != 0;
    return count;
}

static void check_round_trip(const pair *p) {
    size_t len;
    unsigned char *record = make(&p->tensor, 2, &len), *copy = test_malloc(p->bytes + 8);
    frug_delta_info info = {.struct_size = sizeof info};
    OK(frug_delta_read(record, len, &info));
    assert_int_equal(info.bytes, len);
    assert_int_equal(info.entries, count_different(p));
    assert_true(info.kind == FRUG_DELTA_CHANGE && info.name_len == 12 && strcmp(info.dtype, p->tensor.dtype) == 0);
    OK(frug_delta_apply(record, len, FRUG_DELTA_FORWARD, 2, p->before, p->bytes, copy));
    assert_same_bits(copy, p->after, p->bytes);
    OK(frug_delta_apply(record, len, FRUG_DELTA_BACK, 1, copy, p->bytes, copy));
    assert_same_bits(copy, p->before, p->bytes);
    OK(frug_delta_apply(record, len, FRUG_DELTA_FORWARD, 3, copy, p->bytes, copy));
    assert_same_bits(copy, p->after, p->bytes);
    uint64_t *indices = test_malloc((info.entries + 1) * sizeof *indices);
    OK(frug_delta_indices(record, len, indices));
    for (uint64_t i = 0; i < info.entries; i++) {
        assert_true(i == 0 || indices[i] > indices[i - 1]);
        size_t at = (size_t)indices[i] * p->tensor.width;
        assert_memory_not_equal(p->before + at, p->after + at, p->tensor.width);
    }
    test_free(indices);
    test_free(copy);
    test_free(record);
}

static void every_width_length_and_density_is_restored(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 7, 8, 63, 64, 65, 1000, 32767, 32768, 32769, 70001};
    static const double densities[] = {0, 0.0001, 0.01, 0.1, 0.5, 1};
    for (uint32_t width = 1; width <= 8; width *= 2)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
                pair p = make_pair(lengths[l], width, densities[d], l + 100 * d + width);
                check_round_trip(&p);
                free_pair(&p);
            }
}

static void unaligned_and_special_values_are_restored(void **state) {
    (void)state;
    pair p = make_pair(40000, 4, 0.3, 5);
    static const uint32_t special[] = {0, 0x80000000u, 0x7f800000u, 0xffc00001u, 1, 0xffffffffu};
    for (uint32_t i = 0; i < 6000; i++) {
        frugi_put32(p.before + 4 * i, special[i % 6]);
        frugi_put32(p.after + 4 * i, special[i / 6 % 6]);
    }
    check_round_trip(&p);
    memmove(p.before + 3, p.before, p.bytes); /* 3 bytes are behind the array */
    memmove(p.after + 1, p.after, p.bytes);
    pair moved = p;
    moved.before += 3;
    moved.after += 1;
    moved.tensor.before = moved.before;
    moved.tensor.after = moved.after;
    check_round_trip(&moved);
    free_pair(&p);
}

static void one_percent_of_bf16_takes_less_than_a_third_of_a_bit_each(void **state) {
    (void)state;
    pair p = make_pair(1 << 20, 2, 0.01, 9);
    size_t len;
    unsigned char *record = make(&p.tensor, 1, &len);
    assert_true((double)len * 8 / (1 << 20) < 0.30);
    test_free(record);
    free_pair(&p);
}

static void variants_and_threads_give_the_same_bytes(void **state) {
    (void)state;
    for (uint32_t width = 1; width <= 8; width *= 2) {
        pair p = make_pair(150001, width, 0.02, width);
        size_t len, other_len;
        setenv("FRUG_ISA", "ref", 1);
        unsigned char *record = make(&p.tensor, 1, &len);
        for (size_t i = 0; frug_isa_at(i); i++)
            for (int threads = 1; threads <= 5; threads += 2) {
                setenv("FRUG_ISA", frug_isa_at(i), 1);
                unsigned char *other = make(&p.tensor, threads, &other_len);
                assert_int_equal(other_len, len);
                assert_same_bits(other, record, len);
                OK(frug_delta_apply(record, len, FRUG_DELTA_BACK, threads, p.after, p.bytes, p.after));
                OK(frug_delta_apply(record, len, FRUG_DELTA_FORWARD, threads, p.after, p.bytes, p.after));
                test_free(other);
            }
        unsetenv("FRUG_ISA");
        test_free(record);
        free_pair(&p);
    }
}

/* The hash as docs/delta-format.md has it. */
static uint64_t plain_hash(const unsigned char *data, size_t bytes, size_t chunk) {
    uint64_t hash = 0;
    for (size_t first = 0; first < bytes; first += chunk) {
        size_t n = bytes - first < chunk ? bytes - first : chunk;
        uint64_t lane[16] = {0}, own = n;
        for (size_t i = 0; i < n; i += 128) {
            uint32_t number[32] = {0};
            memcpy(number, data + first + i, n - i < 128 ? n - i : 128);
            for (size_t e = 0; e < 16; e++) {
                uint64_t key = 0x6a09e667f3bcc908u + i / 64 * 0x9e3779b97f4a7c15u, next = key + 0x9e3779b97f4a7c15u;
                uint32_t x = number[e] ^ (uint32_t)(key >> e % 2 * 32),
                         y = number[e + 16] ^ (uint32_t)(next >> e % 2 * 32);
                lane[e] += (uint64_t)x * y;
            }
        }
        for (int j = 0; j < 16; j++)
            own = frugi_delta_mix(own * 0x9e3779b97f4a7c15u + lane[j]);
        hash = frugi_delta_mix(hash * 0x9e3779b97f4a7c15u + own);
    }
    return hash;
}

static void hashes_are_those_of_the_format(void **state) {
    (void)state;
    static const double densities[] = {0.001, 0.02, 0.6};
    for (uint32_t width = 1; width <= 8; width *= 2)
        for (int d = 0; d < 3; d++) {
            pair p = make_pair(70003, width, densities[d], width);
            size_t len;
            unsigned char *record = make(&p.tensor, 1, &len);
            frug_delta_info info = {.struct_size = sizeof info};
            OK(frug_delta_read(record, len, &info));
            assert_int_equal(info.base, plain_hash(p.before, p.bytes, 32768 * width));
            assert_int_equal(info.result, plain_hash(p.after, p.bytes, 32768 * width));
            test_free(record);
            free_pair(&p);
        }
}

static void another_base_is_refused_and_left_as_it_was(void **state) {
    (void)state;
    pair p = make_pair(100000, 2, 0.05, 3);
    size_t len;
    unsigned char *record = make(&p.tensor, 2, &len), *copy = test_malloc(p.bytes), *kept = test_malloc(p.bytes);
    for (int i = 0; i < 40; i++) {
        memcpy(copy, p.before, p.bytes);
        copy[(size_t)i * 4999] ^= (unsigned char)(1u << i % 8);
        memcpy(kept, copy, p.bytes);
        assert_int_equal(frug_delta_apply(record, len, FRUG_DELTA_FORWARD, 2, copy, p.bytes, copy), FRUG_ERR_MISMATCH);
        assert_non_null(strstr(frug_last_error(), "'layer.weight' is not the version that the patch was made from"));
        assert_same_bits(copy, kept, p.bytes);
    }
    memcpy(copy, p.after, p.bytes);
    assert_int_equal(frug_delta_apply(record, len, FRUG_DELTA_FORWARD, 2, copy, p.bytes, copy), FRUG_ERR_MISMATCH);
    assert_non_null(strstr(frug_last_error(), "is the result already"));
    assert_same_bits(copy, p.after, p.bytes);
    assert_int_equal(frug_delta_apply(record, len, FRUG_DELTA_BACK, 2, p.before, p.bytes, copy), FRUG_ERR_MISMATCH);
    test_free(kept);
    test_free(copy);
    test_free(record);
    free_pair(&p);
}

/* ---- patches ------------------------------------------------------------ */

enum { TENSORS = 5 };

typedef struct model {
    pair layer[TENSORS];
    char name[TENSORS][16];
    frug_delta_tensor weights[TENSORS]; /* copies of the base */
    unsigned char *patch;
    size_t len;
} model;

static void append(model *m, size_t *cap, const unsigned char *record, size_t len, frug_delta_totals *totals) {
    frug_delta_info info = {.struct_size = sizeof info};
    OK(frug_delta_read(record, len, &info));
    frug_delta_add(totals, &info);
    assert_true(m->len + len <= *cap);
    memcpy(m->patch + m->len, record, len);
    m->len += len;
}

static model make_model(void) {
    model m = {.len = 0};
    frug_delta_totals totals = {0, 0, 0};
    size_t cap = 1 << 20, len;
    m.patch = test_malloc(cap);
    unsigned char header[128];
    OK(frug_delta_header("old", 3, "newer", 5, header, sizeof header, &len));
    append(&m, &cap, header, len, &totals);
    for (int i = 0; i < TENSORS; i++) {
        m.layer[i] = make_pair((uint64_t)40000 + 777 * (uint64_t)i, 2, 0.02, (uint64_t)i + 50);
        snprintf(m.name[i], sizeof m.name[i], "layer.%d", TENSORS - i);
        m.layer[i].tensor.name = m.name[i];
        m.weights[i] = m.layer[i].tensor;
        m.weights[i].before = NULL;
        m.weights[i].after = test_malloc(m.layer[i].bytes);
        memcpy(m.weights[i].after, m.layer[i].before, m.layer[i].bytes);
        unsigned char *record = make(&m.layer[i].tensor, 1, &len);
        append(&m, &cap, record, len, &totals);
        test_free(record);
    }
    OK(frug_delta_end(&totals, m.patch + m.len, cap - m.len, &len));
    m.len += len;
    for (int i = 0; i < TENSORS; i++) /* names in arrays that stay where they are */
        m.weights[i].name = m.layer[i].tensor.name = NULL;
    return m;
}

/* The names again: a model was returned by value. */
static void set_names(model *m) {
    for (int i = 0; i < TENSORS; i++)
        m->weights[i].name = m->layer[i].tensor.name = m->name[i];
}

static void free_model(model *m) {
    for (int i = 0; i < TENSORS; i++) {
        test_free(m->weights[i].after);
        free_pair(&m->layer[i]);
    }
    test_free(m->patch);
}

static void assert_version(const model *m, int result) {
    for (int i = 0; i < TENSORS; i++)
        assert_same_bits(m->weights[i].after, result ? m->layer[i].after : m->layer[i].before, m->layer[i].bytes);
}

static frug_status apply_model(const model *m, size_t len, frug_delta_direction direction) {
    return frug_delta_apply_all(m->patch, len, direction, m->weights, TENSORS, 2);
}

static void a_patch_is_applied_whole_or_not_at_all(void **state) {
    (void)state;
    model m = make_model();
    set_names(&m);
    OK(apply_model(&m, m.len, FRUG_DELTA_FORWARD));
    assert_version(&m, 1);
    assert_int_equal(apply_model(&m, m.len, FRUG_DELTA_FORWARD), FRUG_ERR_MISMATCH);
    assert_version(&m, 1);
    OK(apply_model(&m, m.len, FRUG_DELTA_BACK));
    assert_version(&m, 0);
    unsigned char *last = m.weights[TENSORS - 1].after;
    last[100] ^= 1;
    assert_int_equal(apply_model(&m, m.len, FRUG_DELTA_FORWARD), FRUG_ERR_MISMATCH);
    last[100] ^= 1;
    assert_version(&m, 0);
    for (size_t len = 0; len < m.len; len += len < 200 ? 1 : 997)
        assert_int_equal(apply_model(&m, len, FRUG_DELTA_FORWARD), FRUG_ERR_FORMAT);
    assert_version(&m, 0);
    free_model(&m);
}

static void refuses(const model *m, const char *text) {
    assert_int_equal(apply_model(m, m->len, FRUG_DELTA_FORWARD), FRUG_ERR_MISMATCH);
    if (!strstr(frug_last_error(), text))
        fail_msg("'%s' and not '%s'", frug_last_error(), text);
}

static void other_tensors_are_refused_by_name(void **state) {
    (void)state;
    model m = make_model();
    set_names(&m);
    m.weights[2].name = "layer.9";
    refuses(&m, "changes tensor 'layer.3', which is not among the weights");
    set_names(&m);
    m.weights[1].dtype = "F16";
    refuses(&m, "tensor 'layer.4' has another dtype or shape than in the patch, where it is BF16");
    m.weights[1].dtype = "BF16";
    m.weights[1].shape[0]--;
    refuses(&m, "tensor 'layer.4' has another dtype or shape");
    m.weights[1].shape[0]++;
    m.weights[0].name = m.weights[1].name;
    assert_int_equal(apply_model(&m, m.len, FRUG_DELTA_FORWARD), FRUG_ERR_ARG);
    set_names(&m);
    assert_version(&m, 0);
    OK(apply_model(&m, m.len, FRUG_DELTA_FORWARD));
    free_model(&m);
}

static void added_and_removed_tensors_are_records(void **state) {
    (void)state;
    pair p = make_pair(50000, 2, 0.01, 4);
    frug_delta_tensor added = p.tensor, removed = p.tensor;
    added.before = NULL;
    removed.after = NULL;
    size_t len, end_len;
    frug_delta_info info = {.struct_size = sizeof info}, change = {.struct_size = sizeof change};
    unsigned char *record = make(&p.tensor, 1, &len);
    OK(frug_delta_read(record, len, &change));
    unsigned char *full = make(&added, 1, &len);
    OK(frug_delta_read(full, len, &info));
    assert_int_equal(info.kind, FRUG_DELTA_FULL);
    assert_int_equal(info.result, change.result);
    assert_same_bits(info.body, p.after, p.bytes);
    frug_delta_totals totals = {0, 0, 0};
    frug_delta_add(&totals, &info);
    full = test_realloc(full, len + 72);
    OK(frug_delta_end(&totals, full + len, 72, &end_len));
    assert_int_equal(frug_delta_apply_all(full, len + end_len, FRUG_DELTA_FORWARD, &p.tensor, 1, 1), FRUG_ERR_MISMATCH);
    assert_non_null(strstr(frug_last_error(), "adds tensor 'layer.weight', which cannot be done in place"));
    unsigned char *gone = make(&removed, 1, &len);
    OK(frug_delta_read(gone, len, &info));
    assert_int_equal(info.kind, FRUG_DELTA_REMOVED);
    assert_int_equal(info.base, change.base);
    assert_int_equal(info.body_len, 0);
    test_free(gone);
    test_free(full);
    test_free(record);
    free_pair(&p);
}

/* ---- bytes from outside -------------------------------------------------- */

static void seal_again(unsigned char *record, size_t len) {
    frugi_put32(record + 20, 0);
    frugi_put32(record + 20, frugi_crc32c(0, record, len));
}

static void damage_is_refused_and_nothing_is_changed(void **state) {
    (void)state;
    uint64_t random = 77;
    for (uint32_t width = 1; width <= 8; width *= 2) {
        pair p = make_pair(35000, width, width == 4 ? 1 : 0.05, 6);
        size_t len;
        unsigned char *record = make(&p.tensor, 1, &len), *bad = test_malloc(len), *copy = test_malloc(p.bytes);
        memcpy(copy, p.before, p.bytes);
        for (int i = 0; i < 400; i++) {
            memcpy(bad, record, len);
            size_t at = i % 3 ? next_random(&random) % len : next_random(&random) % 120;
            bad[at] = (unsigned char)(bad[at] ^ 1u << next_random(&random) % 8);
            frug_status status = frug_delta_apply(bad, len, FRUG_DELTA_FORWARD, 1, copy, p.bytes, copy);
            assert_true(status == FRUG_ERR_CHECKSUM || status == FRUG_ERR_FORMAT || status == FRUG_ERR_VERSION);
            seal_again(bad, len);
            status = frug_delta_apply(bad, len, FRUG_DELTA_FORWARD, 2, copy, p.bytes, copy);
            if (status == FRUG_OK) /* the name, the dtype */
                OK(frug_delta_apply(record, len, FRUG_DELTA_BACK, 1, copy, p.bytes, copy));
            assert_same_bits(copy, p.before, p.bytes);
        }
        test_free(copy);
        test_free(bad);
        test_free(record);
        free_pair(&p);
    }
}

static void arguments_are_checked(void **state) {
    (void)state;
    pair p = make_pair(10, 2, 1, 1);
    unsigned char dst[64];
    size_t len, cap;
    frug_delta_tensor t = p.tensor;
    assert_int_equal(frug_delta_make(&t, 1, dst, sizeof dst, &len), FRUG_ERR_SHORT_BUFFER);
    t.width = 3;
    assert_int_equal(frug_delta_bound(&t, &cap), FRUG_ERR_ARG);
    t = p.tensor;
    t.name = "";
    assert_int_equal(frug_delta_bound(&t, &cap), FRUG_ERR_ARG);
    t = p.tensor;
    t.shape[0] = UINT64_MAX;
    assert_int_equal(frug_delta_bound(&t, &cap), FRUG_ERR_ARG);
    t = p.tensor;
    t.before = t.after = NULL;
    unsigned char room[512];
    assert_int_equal(frug_delta_make(&t, 1, room, sizeof room, &len), FRUG_ERR_ARG);
    assert_int_equal(frug_delta_apply(room, 10, FRUG_DELTA_FORWARD, 1, room, 10, room), FRUG_ERR_FORMAT);
    setenv("FRUG_ISA", "z80", 1);
    assert_int_equal(frug_delta_make(&p.tensor, 1, room, sizeof room, &len), FRUG_ERR_CONFIG);
    unsetenv("FRUG_ISA");
    free_pair(&p);
}

#include "golden_delta.inc"

static void the_bytes_are_those_of_the_format(void **state) {
    (void)state;
    static const uint16_t before[] = {0x3f80, 0xbf80, 0x0000, 0x4000, 0x4000, 0x7fff, 0x1234, 0x8000};
    static uint16_t after[] = {0x3f81, 0xbf80, 0xffff, 0x4009, 0x4000, 0x8001, 0x1234, 0x7f00};
    frug_delta_tensor t = FRUG_DELTA_TENSOR_INIT;
    t.name = "w";
    t.dtype = "BF16";
    t.width = 2;
    t.ndim = 2;
    t.shape[0] = 2;
    t.shape[1] = 4;
    t.before = before;
    t.after = after;
    size_t len;
    unsigned char *record = make(&t, 1, &len);
    assert_int_equal(len, sizeof golden_delta);
    assert_same_bits(record, golden_delta, len);
    test_free(record);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_length_and_density_is_restored),
        cmocka_unit_test(unaligned_and_special_values_are_restored),
        cmocka_unit_test(one_percent_of_bf16_takes_less_than_a_third_of_a_bit_each),
        cmocka_unit_test(variants_and_threads_give_the_same_bytes),
        cmocka_unit_test(hashes_are_those_of_the_format),
        cmocka_unit_test(another_base_is_refused_and_left_as_it_was),
        cmocka_unit_test(a_patch_is_applied_whole_or_not_at_all),
        cmocka_unit_test(other_tensors_are_refused_by_name),
        cmocka_unit_test(added_and_removed_tensors_are_records),
        cmocka_unit_test(damage_is_refused_and_nothing_is_changed),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(the_bytes_are_those_of_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
