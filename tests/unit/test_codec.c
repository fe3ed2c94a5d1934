/* test_codec.c - the wire format: every code, every length, every damage. */
#include "support/assertions.h"

#include "codec/bf16_encode.h"
#include "codec/frame.h"
#include "base/float_bits.h"
#include "base/crc32c.h"

#include <math.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void crc32c_matches_known_checksums(void **state) {
    (void)state;
    unsigned char zeros[32] = {0}, ones[32], rising[32];
    memset(ones, 0xff, sizeof ones);
    for (unsigned i = 0; i < 32; i++)
        rising[i] = (unsigned char)i;
    assert_int_equal(frugi_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(frugi_crc32c(0, zeros, 32), 0x8a9136aau); /* these three: RFC 3720, B.4 */
    assert_int_equal(frugi_crc32c(0, ones, 32), 0x62a8ab43u);
    assert_int_equal(frugi_crc32c(0, rising, 32), 0x46dd794eu);
}

static void crc32c_variants_and_combined_parts_agree(void **state) {
    (void)state;
    enum { N = 120000 };
    unsigned char *data = test_malloc(N);
    uint64_t random = 99;
    for (size_t i = 0; i < N; i++)
        data[i] = (unsigned char)next_random(&random);
    for (size_t len = 0; len <= N; len += len < 70 ? 1 : 1777) {
        uint32_t whole = frugi_crc32c(0, data, len);
        assert_int_equal(whole, ~frugi_crc32c_ref(~0u, data, len));
        size_t cut = len / 3;
        uint32_t a = frugi_crc32c(0, data, cut), b = frugi_crc32c(0, data + cut, len - cut);
        assert_int_equal(whole, frugi_crc32c_combine(a, b, len - cut));
        assert_int_equal(whole, frugi_crc32c(a, data + cut, len - cut));
    }
    test_free(data);
}

static void f16_round_trips_and_rounds_to_nearest(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000u; h++)
        if ((h & 0x7c00u) != 0x7c00u)
            assert_int_equal(frugi_f32_f16(frugi_f16_f32((uint16_t)h)), h);
    for (uint32_t h = 0; h < 0x7bffu;
         h++) { /* between two adjacent values: the nearer one; in the middle, the even one */
        double lo = (double)frugi_f16_f32((uint16_t)h), hi = (double)frugi_f16_f32((uint16_t)(h + 1));
        float middle = (float)((lo + hi) / 2);
        assert_int_equal(frugi_f32_f16(middle), h % 2 ? h + 1 : h);
        assert_int_equal(frugi_f32_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(frugi_f32_f16(nextafterf(middle, 1e9f)), h + 1);
    }
}

static void bf16_rounds_to_nearest_and_up(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7f7fu; h++) {
        uint32_t middle = h << 16 | 0x8000u;
        assert_int_equal(frugi_f32_bf16(frugi_bits_f32(middle)), h % 2 ? h + 1 : h);
        assert_int_equal(frugi_f32_bf16(frugi_bits_f32(middle - 1)), h);
        assert_int_equal(frugi_f32_bf16(frugi_bits_f32(middle + 1)), h + 1);
        assert_int_equal(frugi_f32_bf16_up(frugi_bits_f32(h << 16)), h);
        assert_int_equal(frugi_f32_bf16_up(frugi_bits_f32((h << 16) + 1)), h + 1);
    }
    assert_int_equal(frugi_f32_bf16(3.4028235e38f), 0x7f7f); /* never to infinity */
    assert_int_equal(frugi_f32_bf16(-3.4028235e38f), 0xff7f);
    assert_int_equal(frugi_f32_bf16_up(3.4028235e38f), 0x7f7f);
}

/* decoded + rest == original, bit for bit, from denormals to the largest floats. */
static void decoded_plus_error_is_the_original(void **state) {
    (void)state;
    uint64_t random = 5;
    for (uint32_t code = 0; code <= FRUGI_VALUE_INT8; code++)
        for (int exponent = -149; exponent <= 127; exponent++)
            for (int round = 0; round < 20; round++) {
                float v[64], rest[64], decoded[64];
                unsigned char scale[2], bytes[256];
                for (int i = 0; i < 64; i++)
                    v[i] = ldexpf(next_float(&random), exponent - (round == 0 ? 0 : i % 30));
                memcpy(rest, v, sizeof v);
                frugi_value_encode((frugi_value)code, rest, 64, scale, bytes);
                assert_true(frugi_value_check((frugi_value)code, scale, 1, bytes, 64));
                frugi_value_decode((frugi_value)code, scale, bytes, 64, decoded);
                for (int i = 0; i < 64; i++)
                    if (decoded[i] + rest[i] != v[i])
                        fail_msg("%s: %a + %a is not %a", frugi_value_name(code), (double)decoded[i], (double)rest[i],
                                 (double)v[i]);
            }
}

static void indices_round_trip(void **state) {
    (void)state;
    static const uint32_t blocks[] = {64, 128, 256, 1024, 4096};
    uint64_t random = 17;
    for (size_t b = 0; b < COUNT(blocks); b++)
        for (uint32_t code = FRUGI_INDEX_CODE_LOCAL; code <= FRUGI_INDEX_CODE_BITMAP; code++)
            for (uint32_t k = 1; k <= blocks[b]; k += k < 40 ? 1 : 61) {
                uint16_t idx[4096], back[4096];
                unsigned char bytes[8192];
                uint32_t n = 0;
                for (uint32_t i = 0; i < blocks[b] && n < k; i++)
                    if (next_random(&random) % (blocks[b] - i) < k - n)
                        idx[n++] = (uint16_t)i;
                frugi_index_encode((frugi_index)code, blocks[b], 1, &k, idx, bytes);
                assert_true(frugi_index_check((frugi_index)code, blocks[b], bytes, k, blocks[b]));
                assert_false(frugi_index_check((frugi_index)code, blocks[b], bytes, k, idx[k - 1]));
                frugi_index_decode((frugi_index)code, blocks[b], bytes, k, back);
                assert_same_bits(idx, back, k * sizeof *idx);
            }
}

static void invalid_indices_are_rejected(void **state) {
    (void)state;
    const unsigned char falling[] = {5, 4}, twice[] = {7, 7}, good[] = {1, 2};
    assert_false(frugi_index_check(FRUGI_INDEX_CODE_LOCAL, 256, falling, 2, 256));
    assert_false(frugi_index_check(FRUGI_INDEX_CODE_LOCAL, 256, twice, 2, 256));
    assert_true(frugi_index_check(FRUGI_INDEX_CODE_LOCAL, 256, good, 2, 256));
    unsigned char bitmap[32] = {0x07};
    assert_true(frugi_index_check(FRUGI_INDEX_CODE_BITMAP, 256, bitmap, 3, 256));
    assert_false(frugi_index_check(FRUGI_INDEX_CODE_BITMAP, 256, bitmap, 2, 256));
    assert_false(frugi_index_check(FRUGI_INDEX_CODE_BITMAP, 256, bitmap, 3, 2));
}

/* Every pair of codes, many counts: the frame opens, its length matches the formula, and it decodes to what exact
 * selects. */
static void all_code_pairs_round_trip(void **state) {
    (void)state;
    static const char *const index[] = {"local", "bitmap", "auto"}, *const value[] = {"f32", "bf16", "f16", "int8"};
    static const uint32_t counts[] = {1, 2, 15, 16, 31, 32, 128, 255, 256};
    enum { N = 256 * 5 + 100 };
    float *grad = bell_array(N, 31), *sent = test_calloc(N, sizeof(float));
    for (size_t i = 0; i < COUNT(index); i++)
        for (size_t v = 0; v < COUNT(value); v++)
            for (size_t k = 0; k < COUNT(counts); k++) {
                frug_layout *layout = NULL;
                OK(frug_layout_flat(N, &layout));
                char config[128];
                snprintf(config, sizeof config, "feedback=none,min_size=1,index=%s,value=%s,density=%.9g", index[i],
                         value[v], counts[k] / 256.0);
                frug_compressor *c = make_compressor(config, layout, NULL);
                size_t len;
                unsigned char *frame = compress_range(c, 0, 0, N, grad, &len);
                frug_frame_info info = {.struct_size = sizeof info};
                frug_section_info section = {.struct_size = sizeof section};
                OK(frug_frame_check(frame, len, &info));
                OK(frug_frame_section(frame, len, 0, &section));
                uint32_t tail = (counts[k] * 100 + 255) / 256;
                assert_int_equal(info.entries, 5 * counts[k] + tail);
                assert_int_equal(section.bytes + 48, len);
                restore_range(c, frame, len, 0, N, sent);
                size_t nonzero = 0;
                for (size_t e = 0; e < N; e++) {
                    nonzero += sent[e] != 0.0f;
                    if (sent[e] != 0.0f)
                        assert_true(fabsf(sent[e] - grad[e]) <= 0.02f);
                }
                assert_true(nonzero <= info.entries && nonzero >= info.entries * 9 / 10);
                test_free(frame);
                frug_compressor_destroy(c);
                frug_layout_destroy(layout);
            }
    test_free(grad);
    test_free(sent);
}

static unsigned char *small_frame(frug_layout **layout, frug_compressor **c, size_t *len) {
    OK(frug_layout_flat(600, layout));
    *c = make_compressor("residual=f32,min_size=1,value=int8,density=0.03", *layout, NULL);
    float *grad = bell_array(600, 3);
    unsigned char *frame = compress_range(*c, 7, 0, 600, grad, len);
    test_free(grad);
    return frame;
}

static void every_flipped_bit_is_rejected(void **state) {
    (void)state;
    frug_layout *layout;
    frug_compressor *c;
    size_t len;
    unsigned char *frame = small_frame(&layout, &c, &len);
    float dst[600] = {0}, zeros[600] = {0};
    const void *frames[1] = {frame};
    for (size_t bit = 0; bit < 8 * len; bit++) {
        frame[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(
            frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, &len, 1, 1.0f, dst), FRUG_OK);
        frame[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_same_bits(dst, zeros, sizeof dst);
    OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, &len, 1, 1.0f, dst));
    test_free(frame);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void every_truncation_is_rejected(void **state) {
    (void)state;
    frug_layout *layout;
    frug_compressor *c;
    size_t len;
    unsigned char *frame = small_frame(&layout, &c, &len);
    for (size_t cut = 0; cut < len; cut++) {
        unsigned char *copy = test_malloc(cut + 1);
        memcpy(copy, frame, cut);
        frug_frame_info info = {.struct_size = sizeof info};
        assert_int_equal(frug_frame_check(copy, cut, &info), FRUG_ERR_FORMAT);
        test_free(copy);
    }
    test_free(frame);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* A sound checksum over contents that break the rules: the contents are checked all the same, and nothing is applied.
 */
static void invalid_frames_with_a_valid_checksum_are_rejected(void **state) {
    (void)state;
    frug_layout *layout;
    frug_compressor *c;
    size_t len;
    unsigned char *frame = small_frame(&layout, &c, &len);
    frugi_section section;
    assert_true(frugi_section_read(frame + 48, &section));
    float dst[600] = {0}, zeros[600] = {0};
    const void *frames[1] = {frame};
    unsigned char *index = frame + 96 + section.index_at, kept = index[1];
    index[1] = index[0];
    frugi_frame_seal(frame, len, 1);
    assert_int_equal(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, &len, 1, 1.0f, dst),
                     FRUG_ERR_FORMAT);
    index[1] = kept;
    uint16_t scale = frugi_get16(frame + 96);
    frugi_put16(frame + 96, 0x7fc0); /* a NaN as scale */
    frugi_frame_seal(frame, len, 1);
    assert_int_equal(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, &len, 1, 1.0f, dst),
                     FRUG_ERR_FORMAT);
    frugi_put16(frame + 96, scale);
    frugi_put64(frame + 48 + 8, 1ull << 40); /* a section far outside */
    frugi_frame_seal(frame, len, 1);
    assert_int_equal(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, &len, 1, 1.0f, dst),
                     FRUG_ERR_MISMATCH);
    assert_same_bits(dst, zeros, sizeof dst);
    frame[4] = 3;
    frugi_frame_seal(frame, len, 1);
    assert_int_equal(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, &len, 1, 1.0f, dst),
                     FRUG_ERR_VERSION);
    test_free(frame);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void frames_of_other_layouts_or_ranges_are_rejected(void **state) {
    (void)state;
    frug_layout *layout, *other = NULL;
    frug_compressor *c;
    size_t len, lens[2];
    unsigned char *frame = small_frame(&layout, &c, &len);
    OK(frug_layout_flat(601, &other));
    frug_compressor *wider = make_compressor("frugrad", other, NULL),
                    *coarse = make_compressor("block=64", layout, NULL);
    float dst[601] = {0}, *grad = bell_array(600, 1);
    const void *frames[2] = {frame};
    lens[0] = len;
    assert_int_equal(frug_decode_add(frug_compressor_decoder(wider), (frug_range){0, 601}, frames, lens, 1, 1.0f, dst),
                     FRUG_ERR_MISMATCH);
    unsigned char *second = compress_range(coarse, 0, 0, 512, grad, &lens[1]);
    frames[1] = second;
    assert_int_equal(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 600}, frames, lens, 2, 1.0f, dst),
                     FRUG_ERR_MISMATCH);
    assert_int_equal(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, 256}, frames, lens, 1, 1.0f, dst),
                     FRUG_ERR_MISMATCH);
    test_free(frame);
    test_free(second);
    test_free(grad);
    frug_compressor_destroy(c);
    frug_compressor_destroy(wider);
    frug_compressor_destroy(coarse);
    frug_layout_destroy(layout);
    frug_layout_destroy(other);
}

/* Frames name their codes: workers with different codes, and a receiver with another config, can decode each other.
 */
static void frames_with_different_codes_add_up(void **state) {
    (void)state;
    enum { N = 5 * 4096 + 777, P = 4 };
    static const char *const texts[P] = {"index=bitmap,density=0.2,value=f16", "index=local,density=0.05,value=int8",
                                         "density=1,value=bf16", "select=exact,density=0.5,value=f32"};
    frug_layout *layout = NULL;
    OK(frug_layout_flat(N, &layout));
    for (int large = 0; large < 2; large++) {
        frug_compressor *receiver = make_compressor("feedback=none,block=64", layout, NULL);
        float *sum = test_calloc(N, sizeof(float)), *expect = test_calloc(N, sizeof(float));
        float *one = test_calloc(N, sizeof(float));
        unsigned char *frame[P];
        const void *frames[P];
        size_t lens[P];
        for (int p = 0; p < P; p++) {
            char config[128];
            snprintf(config, sizeof config, "feedback=none,block=%s,%s", large ? "4096" : "256", texts[p]);
            frug_compressor *c = make_compressor(config, layout, NULL);
            float *grad = bell_array(N, (uint64_t)p + 40);
            frames[p] = frame[p] = compress_range(c, 3, 0, N, grad, &lens[p]);
            restore_range(receiver, frame[p], lens[p], 0, N, one);
            for (size_t i = 0; i < N; i++)
                expect[i] += one[i];
            test_free(grad);
            frug_compressor_destroy(c);
        }
        OK(frug_decode_add(frug_compressor_decoder(receiver), (frug_range){0, N}, frames, lens, P, 1.0f, sum));
        for (size_t i = 0; i < N; i++)
            assert_true(sum[i] == expect[i]);
        for (int p = 0; p < P; p++)
            test_free(frame[p]);
        test_free(sum);
        test_free(expect);
        test_free(one);
        frug_compressor_destroy(receiver);
    }
    frug_layout_destroy(layout);
}

/* A decoder is made from the layout alone and gives the same bits as that of a compressor, on any number of threads. */
static void a_decoder_of_its_own_gives_the_same_bits(void **state) {
    (void)state;
    enum { ROWS = 26000, COLS = 11 };
    static const char *const configs[] = {"frugrad", "block=4096,value=int8", "segment=tensor,density=0.01",
                                          "unit=row,density=0.1", "qsgd,bucket=8192"};
    frug_tensor tensor = FRUG_TENSOR_INIT;
    tensor.name = "w";
    tensor.ndim = 2;
    tensor.shape[0] = ROWS;
    tensor.shape[1] = COLS;
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    OK(frug_layout_add(layout, &tensor));
    const uint64_t n = (uint64_t)ROWS * COLS;
    float *grad = bell_array(n, 7), *expect = test_calloc(n, sizeof(float)), *sum = test_calloc(n, sizeof(float));
    for (size_t i = 0; i < COUNT(configs); i++) {
        frug_compressor *c = make_compressor(configs[i], layout, NULL);
        size_t lens[2];
        unsigned char *a = compress_range(c, 0, 0, n, grad, &lens[0]), *b = compress_range(c, 1, 0, n, grad, &lens[1]);
        const void *frames[] = {a, b};
        memset(expect, 0, n * sizeof *expect);
        OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, n}, frames, lens, 2, 0.5, expect));
        for (int threads = 0; threads <= 3; threads++) {
            frug_decoder *d = NULL;
            OK(frug_decoder_create(layout, threads, &d));
            memset(sum, 0, n * sizeof *sum);
            OK(frug_decode_add(d, (frug_range){0, n}, frames, lens, 2, 0.5, sum));
            assert_same_bits(sum, expect, n * sizeof *sum);
            frug_decoder_destroy(d);
        }
        test_free(a);
        test_free(b);
        frug_compressor_destroy(c);
    }
    test_free(grad);
    test_free(expect);
    test_free(sum);
    frug_layout_destroy(layout);
}

static void invalid_decoder_arguments_are_rejected(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    frug_decoder *d = NULL;
    float dst[8] = {0};
    OK(frug_layout_flat(8, &layout));
    assert_int_equal(frug_decoder_create(NULL, 1, &d), FRUG_ERR_ARG);
    assert_int_equal(frug_decoder_create(layout, 1, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_decoder_create(layout, -1, &d), FRUG_ERR_ARG);
    assert_null(d);
    OK(frug_decoder_create(layout, 1, &d));
    assert_int_equal(frug_decode_add(d, (frug_range){0, 9}, NULL, NULL, 0, 1, dst), FRUG_ERR_ARG);
    assert_int_equal(frug_decode_add(NULL, (frug_range){0, 8}, NULL, NULL, 0, 1, dst), FRUG_ERR_ARG);
    OK(frug_decode_apply(d, (frug_range){0, 8}, NULL, NULL, 0, 1, 0.5, dst));
    frug_decoder_destroy(d);
    frug_decoder_destroy(NULL);
    frug_layout_destroy(layout);
}

/* The bytes themselves, so that no later version changes them without noticing. See docs/wire-format.md. */
static void wire_bytes_are_unchanged(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    OK(frug_layout_flat(64, &layout));
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.source = 3;
    frug_compressor *c =
        make_compressor("feedback=none,min_size=1,block=64,value=bf16,density=0.0625", layout, &options);
    float grad[64] = {0};
    grad[1] = 1.0f;
    grad[9] = -2.5f;
    grad[40] = 0.375f;
    grad[63] = 100.0f;
    size_t len;
    unsigned char *frame = compress_range(c, 5, 0, 64, grad, &len);
    static const unsigned char golden[] = {
#include "unit/golden_frame.inc"
    };
    assert_int_equal(len, sizeof golden);
    assert_same_bits(frame, golden, len);
    static const unsigned char version_1[] = {
#include "unit/golden_frame_v1.inc"
    };
    frug_frame_info info = {.struct_size = sizeof info};
    OK(frug_frame_check(version_1, sizeof version_1, &info));
    assert_int_equal(info.version, 1);
    float sent[64];
    restore_range(c, version_1, sizeof version_1, 0, 64, sent);
    assert_same_bits(sent, grad, sizeof grad);
    test_free(frame);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void variants_of_bf16_agree(void **state) {
    (void)state;
    enum { MOST = 100 };
    uint64_t random = 9;
    for (frugi_isa isa = FRUGI_ISA_REF; isa < FRUGI_ISA_COUNT; isa++)
        for (uint32_t n = 0; n <= MOST && frugi_isa_runs(isa); n++) {
            float v[MOST], x[MOST];
            unsigned char out[2 * MOST + 1];
            for (uint32_t i = 0; i < n; i++) {
                uint32_t bits = (uint32_t)next_random(&random);
                bits = i % 7 == 0 ? (bits & 0x8000ffffu) | 0x7f7f0000u : bits; /* may round to infinity */
                x[i] = v[i] = frugi_bits_f32((bits & 0x7f800000u) == 0x7f800000u ? bits & 0x807fffffu : bits);
            }
            out[2 * n] = 99;
            frugi_bf16_encoder_for(isa)(v, n, out);
            assert_int_equal(out[2 * n], 99);
            for (uint32_t i = 0; i < n; i++) {
                uint16_t h = frugi_f32_bf16(x[i]);
                assert_int_equal(frugi_get16(out + 2 * i), h);
                assert_int_equal(frugi_f32_bits(v[i]), frugi_f32_bits(x[i] - frugi_bf16_f32(h)));
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_of_bf16_agree),
        cmocka_unit_test(crc32c_matches_known_checksums),
        cmocka_unit_test(crc32c_variants_and_combined_parts_agree),
        cmocka_unit_test(f16_round_trips_and_rounds_to_nearest),
        cmocka_unit_test(bf16_rounds_to_nearest_and_up),
        cmocka_unit_test(decoded_plus_error_is_the_original),
        cmocka_unit_test(indices_round_trip),
        cmocka_unit_test(invalid_indices_are_rejected),
        cmocka_unit_test(all_code_pairs_round_trip),
        cmocka_unit_test(every_flipped_bit_is_rejected),
        cmocka_unit_test(every_truncation_is_rejected),
        cmocka_unit_test(invalid_frames_with_a_valid_checksum_are_rejected),
        cmocka_unit_test(frames_of_other_layouts_or_ranges_are_rejected),
        cmocka_unit_test(frames_with_different_codes_add_up),
        cmocka_unit_test(a_decoder_of_its_own_gives_the_same_bits),
        cmocka_unit_test(invalid_decoder_arguments_are_rejected),
        cmocka_unit_test(wire_bytes_are_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
