/* test_compact.c - compact files: weights come back, bytes are as documented, damage is found. */
#include "support/assertions.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "frugrad/compact.h"
#include "sparse/compact_record.h"

#include <math.h>
#include <stdio.h>

#include "golden_compact.inc"

/* The tensors of the golden file: tests/python/compact_oracle.py has the same. */
static const float bias[3] = {0.5f, -0.0f, 3.0f};
static const float matrix[2 * 5] = {0, 1.5f, 0, 0, -2, 0.25f, 0, 0, 127, 0};
enum { TENSORS = 5 };

static frug_compact_tensor golden_tensor(int i) {
    frug_compact_tensor t = FRUG_COMPACT_TENSOR_INIT;
    static const char *const names[TENSORS] = {"b", "dense8", "sparse", "sparse8", "turned"};
    static const frug_compact_code codes[TENSORS] = {FRUG_COMPACT_F32, FRUG_COMPACT_INT8, FRUG_COMPACT_SPARSE_F32,
                                                     FRUG_COMPACT_SPARSE_INT8, FRUG_COMPACT_SPARSE_INT8};
    t.name = names[i];
    t.code = codes[i];
    t.input_first = i == 4;
    t.ndim = i == 0 ? 1 : 2;
    t.shape[0] = i == 0 ? 3 : 2;
    t.shape[1] = i == 0 ? 0 : 5;
    t.data = i == 0 ? bias : matrix;
    return t;
}

static size_t write_golden(unsigned char *file, size_t cap) {
    frug_compact_totals totals = {0, 0};
    size_t at = 0, len = 0;
    for (int i = 0; i < TENSORS; i++) {
        frug_compact_tensor t = golden_tensor(i);
        frug_compact_info info = {.struct_size = sizeof info};
        OK(frug_compact_write(&t, file + at, cap - at, &len));
        OK(frug_compact_read(file + at, len, &info));
        frug_compact_add(&totals, &info);
        at += len;
    }
    OK(frug_compact_end(&totals, file + at, cap - at, &len));
    return at + len;
}

static void bytes_are_as_documented(void **state) {
    (void)state;
    unsigned char file[4096];
    size_t len = write_golden(file, sizeof file);
    assert_int_equal(len, sizeof golden_compact);
    assert_memory_equal(file, golden_compact, len);
    frug_compact_totals totals;
    OK(frug_compact_check(golden_compact, sizeof golden_compact, &totals));
    assert_int_equal(totals.records, TENSORS);
}

/* Weights of a pattern: every fifth is not zero. */
static float *make_weights(uint64_t count) {
    float *w = test_malloc(count * sizeof *w);
    uint64_t state = 3;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t r = next_random(&state);
        w[i] = r >> 32 & 7 ? 0.0f : (float)(int32_t)(uint32_t)r * 0x1p-31f;
    }
    return w;
}

static unsigned char *encode(const frug_compact_tensor *t, frug_compact_info *info) {
    size_t cap = 0, len = 0;
    OK(frug_compact_bound(t, &cap));
    unsigned char *record = test_malloc(cap);
    OK(frug_compact_write(t, record, cap, &len));
    assert_true(len <= cap);
    *info = (frug_compact_info){.struct_size = sizeof *info};
    OK(frug_compact_read(record, len, info));
    assert_int_equal(info->bytes, len);
    return record;
}

/* f32 bit for bit; int8 within half a step of the largest weight of all, which no row's exceeds. */
static void check_tensor(uint32_t ndim, const uint64_t *shape, int input_first, frug_compact_code code) {
    frug_compact_tensor t = FRUG_COMPACT_TENSOR_INIT;
    frug_compact_info info;
    uint64_t count = 1;
    t.name = "layer.weight";
    t.code = code;
    t.ndim = ndim;
    t.input_first = input_first;
    for (uint32_t d = 0; d < ndim; d++)
        count *= t.shape[d] = shape[d];
    float *w = make_weights(count), *back = test_malloc(count * sizeof *back);
    t.data = w;
    unsigned char *record = encode(&t, &info);
    assert_int_equal(info.count, count);
    frug_compact_decode(&info, back);
    double most = (double)frugi_bits_f32(frugi_largest_magnitude(w, (uint32_t)count)) / 127 * 0.50001;
    int int8 = code == FRUG_COMPACT_INT8 || code == FRUG_COMPACT_SPARSE_INT8;
    for (uint64_t i = 0; i < count; i++)
        assert_true(fabs((double)back[i] - (double)w[i]) <= (int8 ? most : 0));
    if (ndim == 2) { /* packed rows are those of the tensor, or of its transpose */
        frug_sparse *packed = NULL;
        OK(frug_compact_pack(&info, &packed));
        float *row = test_malloc(info.cols * sizeof *row);
        for (uint32_t r = 0; r < info.rows; r++) {
            frug_sparse_unpack(packed, r, 1, row);
            for (uint64_t c = 0; c < info.cols; c++)
                assert_true(row[c] == back[input_first ? c * info.rows + r : r * info.cols + c]);
        }
        test_free(row);
        frug_sparse_destroy(packed);
    }
    test_free(record);
    test_free(w);
    test_free(back);
}

static void weights_come_back(void **state) {
    (void)state;
    for (int code = FRUG_COMPACT_F32; code <= FRUG_COMPACT_SPARSE_INT8; code++) {
        check_tensor(0, NULL, 0, (frug_compact_code)code);
        check_tensor(1, (uint64_t[]){37}, 0, (frug_compact_code)code);
        check_tensor(2, (uint64_t[]){13, 40}, 0, (frug_compact_code)code);
        check_tensor(2, (uint64_t[]){13, 41}, 1, (frug_compact_code)code);
        check_tensor(4, (uint64_t[]){6, 3, 3, 5}, 0, (frug_compact_code)code);
    }
}

/* The promise for four of five weights zero: 0.30 of dense f32, and 0.10 with int8. */
static void sparse_files_are_small(void **state) {
    (void)state;
    enum { ROWS = 96, COLS = 768 };
    float *w = test_malloc(ROWS * COLS * sizeof *w);
    for (size_t i = 0; i < ROWS * COLS; i++)
        w[i] = i % 5 ? 0.0f : (float)(i % 97) - 48.5f;
    for (int int8 = 0; int8 < 2; int8++) {
        frug_compact_tensor t = FRUG_COMPACT_TENSOR_INIT;
        frug_compact_info info;
        t.name = "w";
        t.ndim = 2;
        t.shape[0] = ROWS;
        t.shape[1] = COLS;
        t.data = w;
        t.code = int8 ? FRUG_COMPACT_SPARSE_INT8 : FRUG_COMPACT_SPARSE_F32;
        test_free(encode(&t, &info));
        assert_true((double)info.bytes <= (int8 ? 0.10 : 0.30) * 4 * ROWS * COLS);
    }
    test_free(w);
}

/* Every byte counts: whichever is changed, the file is refused. */
static void any_changed_byte_is_found(void **state) {
    (void)state;
    unsigned char file[sizeof golden_compact];
    frug_compact_totals totals;
    for (size_t i = 0; i < sizeof golden_compact; i++) {
        memcpy(file, golden_compact, sizeof golden_compact);
        file[i] ^= (unsigned char)(1u << i % 8);
        assert_int_not_equal(frug_compact_check(file, sizeof file, &totals), FRUG_OK);
    }
    for (size_t len = 0; len < sizeof golden_compact; len++)
        assert_int_not_equal(frug_compact_check(golden_compact, len, &totals), FRUG_OK);
    memcpy(file, golden_compact, sizeof golden_compact);
    file[3] = '2';
    assert_int_equal(frug_compact_check(file, sizeof file, &totals), FRUG_ERR_VERSION);
}

static void bad_tensors_are_refused(void **state) {
    (void)state;
    unsigned char record[1024];
    size_t len = 0;
    float nan[10] = {1, NAN};
    frug_compact_tensor t = golden_tensor(2);
    t.data = nan;
    assert_int_equal(frug_compact_write(&t, record, sizeof record, &len), FRUG_ERR_ARG);
    t.code = FRUG_COMPACT_SPARSE_INT8;
    assert_int_equal(frug_compact_write(&t, record, sizeof record, &len), FRUG_ERR_ARG);
    t.code = FRUG_COMPACT_F32; /* every bit is kept */
    OK(frug_compact_write(&t, record, sizeof record, &len));
    assert_int_equal(frug_compact_write(&t, record, 20, &len), FRUG_ERR_SHORT_BUFFER);
    t.shape[0] = 0;
    assert_int_equal(frug_compact_write(&t, record, sizeof record, &len), FRUG_ERR_ARG);
    t.shape[0] = UINT64_MAX;
    assert_int_equal(frug_compact_write(&t, record, sizeof record, &len), FRUG_ERR_ARG);
    t = golden_tensor(0);
    t.input_first = 1;
    assert_int_equal(frug_compact_write(&t, record, sizeof record, &len), FRUG_ERR_ARG);
    t = golden_tensor(0);
    t.name = "";
    assert_int_equal(frug_compact_write(&t, record, sizeof record, &len), FRUG_ERR_ARG);
}

/* A file of scalars with the names 0, 1, 2 ...; with `again`, the last is called 0 too. */
static frug_status check_scalars(int count, bool again) {
    enum { RECORD = 80 };
    unsigned char *file = test_malloc((size_t)count * RECORD + FRUG_COMPACT_END_BYTES);
    frug_compact_totals totals = {0, 0};
    size_t at = 0, len = 0;
    for (int i = 0; i < count; i++, at += len) {
        frug_compact_tensor t = FRUG_COMPACT_TENSOR_INIT;
        frug_compact_info info = {.struct_size = sizeof info};
        char name[8];
        snprintf(name, sizeof name, "%d", again && i == count - 1 ? 0 : i);
        t.name = name;
        t.data = bias;
        OK(frug_compact_write(&t, file + at, RECORD, &len));
        OK(frug_compact_read(file + at, len, &info));
        frug_compact_add(&totals, &info);
    }
    frug_status end = frug_compact_end(&totals, file + at, FRUG_COMPACT_END_BYTES, &len);
    assert_int_equal(end, count > 65536 ? FRUG_ERR_ARG : FRUG_OK);
    frug_status status = frug_compact_check(file, at + len, &totals);
    test_free(file);
    return status;
}

static void names_are_checked(void **state) {
    (void)state;
    assert_int_equal(check_scalars(65536, false), FRUG_OK);
    assert_int_equal(check_scalars(65536, true), FRUG_ERR_FORMAT);
    assert_int_equal(check_scalars(65537, false), FRUG_ERR_FORMAT);
    frug_compact_tensor t = golden_tensor(0);
    frug_compact_info info;
    unsigned char *record = encode(&t, &info);
    info.name = "b\0b";
    info.name_len = 3;
    size_t len = frugi_compact_seal(&info, record);
    assert_int_equal(frug_compact_read(record, len, &info), FRUG_ERR_FORMAT);
    test_free(record);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_as_documented), cmocka_unit_test(weights_come_back),
        cmocka_unit_test(sparse_files_are_small),  cmocka_unit_test(any_changed_byte_is_found),
        cmocka_unit_test(bad_tensors_are_refused), cmocka_unit_test(names_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
