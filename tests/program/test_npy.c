/*
 * test_npy.c - the .npy reader and writer: files of NumPy are read correctly, all others are rejected.
 *
 * Inputs are copied into buffers of their exact size, so that a sanitizer detects every access outside.
 */
#include "program/compress/npy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FILE_MAX = 1024 };

typedef struct npy_file {
    unsigned char bytes[FILE_MAX];
    size_t len;
} npy_file;

static npy_file make(int version, const char *header, const void *data, size_t data_len) {
    npy_file file = {{0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version, 0}, 0};
    size_t width = version == 1 ? 2 : 4, length = strlen(header);
    for (size_t i = 0; i < width; i++)
        file.bytes[8 + i] = (unsigned char)(length >> 8 * i);
    memcpy(file.bytes + 8 + width, header, length);
    if (data_len > 0)
        memcpy(file.bytes + 8 + width + length, data, data_len);
    file.len = 8 + width + length + data_len;
    return file;
}

/* Parse the first len bytes; the item's data points into *copy, which the caller frees. */
static int parse_exact(const npy_file *file, size_t len, fgio_tensor *item, fgio_reason *why, unsigned char **copy) {
    *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(*copy);
    memcpy(*copy, file->bytes, len);
    return fgp_npy_parse(*copy, len, item, why);
}

static void assert_refused(const npy_file *file, size_t len, const char *reason) {
    fgio_tensor item = {.ndim = 77};
    fgio_reason why = {""};
    unsigned char *copy;
    if (parse_exact(file, len, &item, &why, &copy) == 0)
        fail_msg("%zu bytes were accepted; expected: %s", len, reason);
    if (strstr(why.text, reason) == NULL)
        fail_msg("refused with '%s'; expected: %s", why.text, reason);
    assert_int_equal(item.ndim, 77); /* outputs are written only on success */
    free(copy);
}

static void assert_header_refused(const char *header, const char *reason) {
    static const unsigned char zeros[64] = {0};
    npy_file file = make(1, header, zeros, sizeof zeros);
    assert_refused(&file, file.len, reason);
}

/* Parse a whole file and compare what it converts to. */
static void assert_floats(const npy_file *file, const float *expected, size_t count) {
    fgio_tensor item;
    fgio_reason why = {""};
    unsigned char *copy;
    float *got = malloc((count + 1) * sizeof *got);
    if (parse_exact(file, file->len, &item, &why, &copy) != 0)
        fail_msg("refused: %s", why.text);
    assert_int_equal(item.count, count);
    fgio_tensor_to_f32(&item, got);
    assert_memory_equal(got, expected, count * sizeof *got);
    free(got);
    free(copy);
}

static void written_headers_are_read_back(void **state) {
    const uint64_t shape[FRUG_MAX_DIMS] = {1, 2, 1, 3, 1, 2, 1, 1};
    (void)state;
    for (uint32_t ndim = 0; ndim <= FRUG_MAX_DIMS; ndim++) {
        npy_file file = {{0}, 0};
        unsigned char *copy;
        fgio_tensor item;
        fgio_reason why = {""};
        size_t header = fgp_npy_header(ndim, shape, file.bytes);
        uint64_t count = 1;
        for (uint32_t d = 0; d < ndim; d++)
            count *= shape[d];
        assert_int_equal(header % 64, 0);
        if (parse_exact(&file, header + 4 * count, &item, &why, &copy) != 0)
            fail_msg("%u dimensions: %s", (unsigned)ndim, why.text);
        assert_int_equal(item.ndim, ndim);
        assert_int_equal(item.count, count);
        assert_int_equal(item.dtype, FGIO_F32);
        assert_false(item.big_endian || item.fortran);
        assert_memory_equal(item.shape, shape, ndim * sizeof *shape);
        assert_ptr_equal(item.data, copy + header);
        free(copy);
    }
}

static void longest_header_fits_its_bound(void **state) {
    uint64_t shape[FRUG_MAX_DIMS];
    unsigned char *header = malloc(FGP_NPY_HEADER_MAX); /* of the exact size, for the sanitizer */
    (void)state;
    for (int d = 0; d < FRUG_MAX_DIMS; d++)
        shape[d] = UINT64_MAX;
    size_t length = fgp_npy_header(FRUG_MAX_DIMS, shape, header);
    assert_true(length <= FGP_NPY_HEADER_MAX);
    assert_int_equal(header[8] + 256 * header[9], length - 10);
    assert_int_equal(header[length - 1], '\n');
    free(header);
}

static void header_is_what_numpy_writes(void **state) {
    static const char expected[] = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
    unsigned char header[FGP_NPY_HEADER_MAX];
    const uint64_t shape[] = {3, 4};
    (void)state;
    assert_int_equal(fgp_npy_header(2, shape, header), 128);
    assert_memory_equal(header, expected, sizeof expected - 1);
}

static void all_versions_are_read(void **state) {
    const float one = 1.0f;
    (void)state;
    for (int version = 1; version <= 3; version++) {
        npy_file file = make(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }  \n", &one, 4);
        assert_floats(&file, &one, 1);
    }
}

static void spellings_that_numpy_accepts_are_read(void **state) {
    static const char *const headers[] = {
        "{'descr':'<f4','fortran_order':False,'shape':(1,)}",
        "{\"shape\": (1L,), \"fortran_order\": True, \"descr\": \"<f4\"}\n",
        " { 'shape' : ( 1 , 1 ) , 'descr' : '<f4' , 'fortran_order' : False , } ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
    };
    const float one = 1.0f;
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        npy_file file = make(1, headers[i], &one, 4);
        assert_floats(&file, &one, 1);
    }
}

static void every_type_and_byte_order_is_converted(void **state) {
    static const struct {
        const char *header;
        unsigned char data[16];
        size_t len;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", {0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0}, 8},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", {0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0}, 8},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }", {0, 0x3e, 0, 0xc0}, 4},
        {"{'descr': '>f2', 'fortran_order': False, 'shape': (2,), }", {0x3e, 0, 0xc0, 0}, 4},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }",
         {0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0},
         16},
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (2,), }",
         {0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0},
         16},
    };
    const float expected[] = {1.5f, -2.0f};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        npy_file file = make(1, cases[i].header, cases[i].data, cases[i].len);
        assert_floats(&file, expected, 2);
    }
}

static void every_half_becomes_the_float_of_its_definition(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const unsigned char bytes[2] = {(unsigned char)half, (unsigned char)(half >> 8)};
        fgio_tensor item = {.dtype = FGIO_F16, .count = 1, .data = bytes};
        int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
        double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        double expected = copysign(exponent == 31 ? (fraction == 0 ? INFINITY : NAN) : size, half >> 15 ? -1.0 : 1.0);
        float got;
        fgio_tensor_to_f32(&item, &got);
        assert_true(isnan(expected) ? isnan(got) : (double)got == expected);
        assert_int_equal(signbit(got) != 0, half >> 15);
    }
}

static void fortran_order_is_turned_into_c_order(void **state) {
    float data[12], expected[12];
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++) {
                data[i + 2 * j + 6 * k] = (float)(100 * i + 10 * j + k);
                expected[6 * i + 2 * j + k] = (float)(100 * i + 10 * j + k);
            }
    npy_file file = make(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 2), }", data, sizeof data);
    assert_floats(&file, expected, 12);
}

static void empty_arrays_are_read(void **state) {
    npy_file file = make(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 0), }", NULL, 0);
    (void)state;
    assert_floats(&file, NULL, 0);
}

static void every_truncation_and_extension_is_refused(void **state) {
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    (void)state;
    for (int version = 1; version <= 3; version++) {
        npy_file file =
            make(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", data, sizeof data);
        assert_floats(&file, data, 6);
        for (size_t len = 0; len < file.len; len++)
            assert_refused(&file, len, "");
        assert_refused(&file, file.len + 1, "the file has 25");
    }
}

static void other_files_and_versions_are_refused(void **state) {
    npy_file file = make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "abcd", 4);
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        npy_file other = file;
        other.bytes[i] ^= 0x20;
        assert_refused(&other, other.len, "is not a .npy file");
    }
    file.bytes[6] = 4;
    assert_refused(&file, file.len, "version 4.0");
    file.bytes[6] = 0;
    assert_refused(&file, file.len, "version 0.0");
}

static void header_length_beyond_the_file_is_refused(void **state) {
    npy_file file = make(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "abcd", 4);
    (void)state;
    memset(file.bytes + 8, 0xff, 4);
    assert_refused(&file, file.len, "ends inside the npy header");
}

static void hostile_headers_are_refused(void **state) {
#define BEGIN "{'descr': '<f4', 'fortran_order': False, 'shape': "
    static const struct {
        const char *header, *reason;
    } cases[] = {
        {"", "'{' is missing"},
        {"{", "string is missing"},
        {"{}", "a key is missing"},
        {"{'descr'", "':' is missing"},
        {"{'descr", "''' is missing"},
        {"{'descr': '<f4', 'fortran_order': False}", "a key is missing"},
        {"{'descr': '<f4', 'descr': '<f4'}", "duplicate key"},
        {"{'descr': '<f4' 'fortran_order': False}", "',' is missing"},
        {"{'descr': '<f4', 'color': 3}", "unknown key 'color'"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (16,)}", "type '<i4'"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (16,)}", "type '|f4'"},
        {"{'descr': '', 'fortran_order': False, 'shape': (16,)}", "type ''"},
        {"{'descr': '<f4\\'', 'fortran_order': False, 'shape': (16,)}", "unexpected characters"},
        {"{'descr': '<f444444444444444444444444444444444'}", "too long"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (16,)}", "records"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (16,)}", "neither True nor False"},
        {BEGIN "16}", "'(' is missing"},
        {BEGIN "(16)}", "not a tuple"},
        {BEGIN "(4 4)}", "',' is missing in the shape"},
        {BEGIN "(,)}", "not a whole number"},
        {BEGIN "(-16,)}", "not a whole number"},
        {BEGIN "(16.0,)}", "',' is missing in the shape"},
        {BEGIN "(16", "',' is missing in the shape"},
        {BEGIN "(16,", "not a whole number"},
        {BEGIN "(1,1,1,1,1,1,1,1,16)}", "more than 8 dimensions"},
        {BEGIN "(99999999999999999999999999,)}", "too large"},
        {BEGIN "(18446744073709551615,)}", "too large"},
        {BEGIN "(1844674407370955160,)}", "2^48"},
        {BEGIN "(4294967296, 4294967296)}", "2^48"}, /* the product is 0 modulo 2^64 */
        {BEGIN "(281474976710656,)}", "needs 1125899906842624 bytes"},
        {BEGIN "(15,)}", "needs 60 bytes"},
        {BEGIN "(17,)}", "needs 68 bytes"},
        {BEGIN "(16,)} x", "unexpected text"},
        {BEGIN "(16,)}}", "unexpected text"},
    };
#undef BEGIN
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_header_refused(cases[i].header, cases[i].reason);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_headers_are_read_back),
        cmocka_unit_test(longest_header_fits_its_bound),
        cmocka_unit_test(header_is_what_numpy_writes),
        cmocka_unit_test(all_versions_are_read),
        cmocka_unit_test(spellings_that_numpy_accepts_are_read),
        cmocka_unit_test(every_type_and_byte_order_is_converted),
        cmocka_unit_test(every_half_becomes_the_float_of_its_definition),
        cmocka_unit_test(fortran_order_is_turned_into_c_order),
        cmocka_unit_test(empty_arrays_are_read),
        cmocka_unit_test(every_truncation_and_extension_is_refused),
        cmocka_unit_test(other_files_and_versions_are_refused),
        cmocka_unit_test(header_length_beyond_the_file_is_refused),
        cmocka_unit_test(hostile_headers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
