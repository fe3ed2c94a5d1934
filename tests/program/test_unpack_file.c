/*
 * test_unpack_file.c - files are decompressed exactly; truncated, damaged and oversized ones are rejected with an
 * offset.
 */
#include "trainer/base/keyed_random.h"
#include "io/error.h"
#include "io/unpack_file.h"

#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "support/temp_files.h"

enum { N = 300000, ROOM = N + 4096 };

typedef struct packed {
    unsigned char *bytes;
    size_t len;
} packed;

/* Waves with noise in their low bits, partly compressible; seed 2. */
static unsigned char *sample(void) {
    unsigned char *bytes = malloc(N);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)(i / 64 + fgt_random(2, 0, i) % 4);
    return bytes;
}

static packed pack_gzip(const unsigned char *bytes, size_t len) {
    packed to = {malloc(ROOM), ROOM};
    z_stream z = {0};
    assert_non_null(to.bytes);
    assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)bytes;
    z.avail_in = (unsigned)len;
    z.next_out = to.bytes;
    z.avail_out = ROOM;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    to.len = z.total_out;
    deflateEnd(&z);
    return to;
}

/* With the delta filter, as CIFAR's files have it. */
static packed pack_xz(const unsigned char *bytes, size_t len) {
    packed to = {malloc(ROOM), 0};
    lzma_options_delta delta = {.type = LZMA_DELTA_TYPE_BYTE, .dist = 1};
    lzma_options_lzma lzma;
    assert_non_null(to.bytes);
    assert_false(lzma_lzma_preset(&lzma, 0));
    lzma_filter filters[] = {{LZMA_FILTER_DELTA, &delta}, {LZMA_FILTER_LZMA2, &lzma}, {LZMA_VLI_UNKNOWN, NULL}};
    assert_int_equal(lzma_stream_buffer_encode(filters, LZMA_CHECK_CRC32, NULL, bytes, len, to.bytes, &to.len, ROOM),
                     LZMA_OK);
    return to;
}

static packed pack(fgio_packing packing, const unsigned char *bytes, size_t len) {
    return packing == FGIO_GZIP ? pack_gzip(bytes, len) : pack_xz(bytes, len);
}

/* Unpack from a buffer of the exact size, so that a sanitizer sees any step beyond it. */
static int unpack(fgio_packing packing, const unsigned char *from, size_t len, uint64_t limit, fgio_bytes *to,
                  fgio_reason *why) {
    fgio_bytes exact = {malloc(len == 0 ? 1 : len), len};
    assert_non_null(exact.data);
    memcpy(exact.data, from, len);
    int status = fgio_unpack(packing, &exact, limit, to, why);
    fgio_bytes_free(&exact);
    return status;
}

static void decompression_inverts_compression(void **state) {
    (void)state;
    unsigned char *bytes = sample();
    for (fgio_packing packing = FGIO_GZIP; packing <= FGIO_XZ; packing++)
        for (size_t len = 0; len <= N; len = len == 0 ? 1 : len == 1 ? 65536 : len == 65536 ? N : N + 1) {
            fgio_bytes to;
            fgio_reason why;
            packed p = pack(packing, bytes, len);
            assert_int_equal(unpack(packing, p.bytes, p.len, len, &to, &why), 0); /* the limit is just met */
            assert_int_equal(to.len, len);
            assert_memory_equal(to.data, bytes, len);
            fgio_bytes_free(&to);
            free(p.bytes);
        }
    free(bytes);
}

static void several_members_are_one_file(void **state) {
    (void)state;
    unsigned char *bytes = sample();
    for (fgio_packing packing = FGIO_GZIP; packing <= FGIO_XZ; packing++) {
        packed a = pack(packing, bytes, 1000), b = pack(packing, bytes + 1000, 2000);
        fgio_bytes to;
        fgio_reason why;
        memcpy(a.bytes + a.len, b.bytes, b.len);
        assert_int_equal(unpack(packing, a.bytes, a.len + b.len, N, &to, &why), 0);
        assert_int_equal(to.len, 3000);
        assert_memory_equal(to.data, bytes, 3000);
        fgio_bytes_free(&to);
        free(a.bytes);
        free(b.bytes);
    }
    free(bytes);
}

static void cut_files_are_refused_wherever_they_are_cut(void **state) {
    (void)state;
    unsigned char *bytes = sample();
    for (fgio_packing packing = FGIO_GZIP; packing <= FGIO_XZ; packing++) {
        packed p = pack(packing, bytes, 500);
        for (size_t len = 0; len < p.len; len++) {
            fgio_bytes to = {NULL, 77};
            fgio_reason why;
            char expected[64];
            assert_int_equal(unpack(packing, p.bytes, len, N, &to, &why), -1);
            snprintf(expected, sizeof expected, "byte %zu: the %s data ends too early", len,
                     packing == FGIO_GZIP ? "gzip" : "xz");
            if (strstr(why.text, expected) == NULL)
                fail_msg("cut at %zu of %zu: %s", len, p.len, why.text);
            assert_int_equal(to.len, 77); /* outputs are written only on success */
        }
        free(p.bytes);
    }
    free(bytes);
}

static void damage_is_detected(void **state) {
    (void)state;
    unsigned char *bytes = sample();
    for (fgio_packing packing = FGIO_GZIP; packing <= FGIO_XZ; packing++) {
        packed p = pack(packing, bytes, N);
        fgio_bytes to;
        fgio_reason why;
        p.bytes[p.len / 2] ^= 1; /* may well make it longer */
        assert_int_equal(unpack(packing, p.bytes, p.len, 64 * N, &to, &why), -1);
        assert_non_null(strstr(why.text, packing == FGIO_GZIP ? "expected gzip data" : "expected xz data"));
        p.bytes[0] ^= 1;
        assert_int_equal(unpack(packing, p.bytes, p.len, 64 * N, &to, &why), -1);
        assert_non_null(strstr(why.text, "expected"));
        free(p.bytes);
    }
    free(bytes);
}

static void output_beyond_the_limit_is_rejected(void **state) {
    (void)state;
    unsigned char *zeros = calloc(1, N);
    assert_non_null(zeros);
    for (fgio_packing packing = FGIO_GZIP; packing <= FGIO_XZ; packing++)
        for (uint64_t limit = 0; limit < N; limit = limit * 2 + 1) {
            packed p = pack(packing, zeros, N);
            fgio_bytes to;
            fgio_reason why;
            assert_int_equal(unpack(packing, p.bytes, p.len, limit, &to, &why), -1);
            assert_non_null(strstr(why.text, "unpacks to more than"));
            free(p.bytes);
        }
    free(zeros);
}

static void files_are_found_and_read_by_their_names(void **state) {
    char place[TEMP_PATH_MAX];
    fgio_bytes to;
    stderr_capture c;
    (void)state;
    temp_dir_create(place, "files");
    packed p = pack_gzip((const unsigned char *)"packed", 6);
    temp_dir_write(place, "a.gz", p.bytes, p.len);
    temp_dir_write_text(place, "b", "plain");
    char *a = fgio_unpack_find(place, "a"), *b = fgio_unpack_find(place, "b");
    assert_non_null(a);
    assert_non_null(b);
    assert_null(fgio_unpack_find(place, "c"));
    assert_int_equal(fgio_unpack_file(a, 100, &to), FGIO_EXIT_OK);
    assert_int_equal(to.len, 6);
    assert_memory_equal(to.data, "packed", 6);
    fgio_bytes_free(&to);
    assert_int_equal(fgio_unpack_file(b, 5, &to), FGIO_EXIT_OK);
    assert_memory_equal(to.data, "plain", 5);
    fgio_bytes_free(&to);
    stderr_capture_begin(&c);
    assert_int_equal(fgio_unpack_file(b, 4, &to), FGIO_EXIT_FAIL);
    assert_non_null(strstr(stderr_capture_end(&c), "has 5 bytes, more than the 4"));
    free(a);
    free(b);
    free(p.bytes);
    temp_dir_remove(place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decompression_inverts_compression),
        cmocka_unit_test(several_members_are_one_file),
        cmocka_unit_test(cut_files_are_refused_wherever_they_are_cut),
        cmocka_unit_test(damage_is_detected),
        cmocka_unit_test(output_beyond_the_limit_is_rejected),
        cmocka_unit_test(files_are_found_and_read_by_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
