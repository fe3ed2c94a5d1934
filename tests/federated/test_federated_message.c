/* test_federated_message.c - messages to bytes and back, the bytes of each type, and hostile bytes. */
#include "support/assertions.h"

#include "base/crc32c.h"
#include "federated/message.h"
#include "federated/weight_changes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fgf_message example(fgf_message_type type) {
    static const unsigned char text[] = "text";
    fgf_message m = {.type = type,
                     .layout_hash = 0x1111111111111111u,
                     .elements = 2,
                     .round = 3,
                     .rounds = 4,
                     .have = 5,
                     .upload = 6,
                     .offset = 7,
                     .bytes = 8,
                     .examples = 9,
                     .checksum = 0xaabbccddu,
                     .code = 10,
                     .loss = 1.5,
                     .text = {text, 4}};
    for (int i = 0; i < FGF_RUN_ID; i++)
        m.run.bytes[i] = (unsigned char)i;
    return m;
}

static void every_type_survives_a_round_trip(void **state) {
    (void)state;
    for (unsigned type = FGF_HELLO; type < FGF_MESSAGE_TYPES; type++) {
        fgf_message m = example((fgf_message_type)type), back;
        unsigned char bytes[256], again[256];
        fgio_reason why;
        size_t size = fgf_message_size(&m);
        assert_true(size <= sizeof bytes);
        fgf_message_encode(&m, bytes);
        assert_int_equal(fgf_message_parse(bytes, size, &back, &why), 0);
        assert_int_equal(back.type, type);
        assert_int_equal(fgf_message_size(&back), size);
        fgf_message_encode(&back, again);
        assert_memory_equal(bytes, again, size);
    }
}

static void an_offer_has_these_bytes(void **state) {
    static const unsigned char golden[] = {'F',  'G',  1,    8,    60, 0,  0,    0, /* header */
                                           0,    1,    2,    3,    4,  5,  6,    7,
                                           8,    9,    10,   11,   12, 13, 14,   15,    /* run */
                                           3,    0,    0,    0,    0,  0,  0,    0,     /* round */
                                           6,    0,    0,    0,    0,  0,  0,    0,     /* upload */
                                           9,    0,    0,    0,    0,  0,  0,    0,     /* examples */
                                           8,    0,    0,    0,    0,  0,  0,    0,     /* bytes */
                                           0xdd, 0xcc, 0xbb, 0xaa,                      /* checksum */
                                           0,    0,    0,    0,    0,  0,  0xf8, 0x3f}; /* loss */
    fgf_message m = example(FGF_OFFER);
    unsigned char bytes[sizeof golden];
    (void)state;
    assert_int_equal(fgf_message_size(&m), sizeof golden);
    fgf_message_encode(&m, bytes);
    assert_memory_equal(bytes, golden, sizeof golden);
}

static void a_chunk_has_these_bytes(void **state) {
    static const unsigned char golden[] = {'F', 'G', 1, 7, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 't', 'e', 'x', 't'};
    fgf_message m = example(FGF_CHUNK_DATA);
    unsigned char bytes[sizeof golden];
    (void)state;
    assert_int_equal(fgf_message_size(&m), sizeof golden);
    fgf_message_encode(&m, bytes);
    assert_memory_equal(bytes, golden, sizeof golden);
}

static void wrong_headers_are_refused_before_anything_is_allocated(void **state) {
    static const struct {
        unsigned char header[FGF_HEADER];
        const char *reason;
    } cases[] = {
        {{'H', 'T', 'T', 'P', 0, 0, 0, 0}, "no message of FruGrad"},
        {{'F', 'G', 2, 1, 4, 0, 0, 0}, "install the same release"},
        {{'F', 'G', 1, 0, 0, 0, 0, 0}, "unknown message"},
        {{'F', 'G', 1, FGF_MESSAGE_TYPES, 0, 0, 0, 0}, "unknown message"},
        {{'F', 'G', 1, FGF_OFFER, 61, 0, 0, 0}, "expected 60 to 60"},
        {{'F', 'G', 1, FGF_OFFER, 59, 0, 0, 0}, "expected 60 to 60"},
        {{'F', 'G', 1, FGF_CHUNK_DATA, 0xff, 0xff, 0xff, 0xff}, "CHUNK has 4294967295 bytes"},
        {{'F', 'G', 1, FGF_CHUNK_DATA, 9, 0, 1, 0}, "expected 8 to 65544"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fgf_message_type type;
        size_t payload;
        fgio_reason why = {""};
        assert_int_equal(fgf_message_header(cases[i].header, &type, &payload, &why), -1);
        assert_non_null(strstr(why.text, cases[i].reason));
    }
}

static void cut_and_flipped_messages_never_pass_for_longer_ones(void **state) {
    (void)state;
    for (unsigned type = FGF_HELLO; type < FGF_MESSAGE_TYPES; type++) {
        fgf_message m = example((fgf_message_type)type), back;
        unsigned char bytes[256];
        fgio_reason why;
        size_t size = fgf_message_size(&m);
        fgf_message_encode(&m, bytes);
        for (size_t cut = 0; cut < size; cut++)
            assert_int_equal(fgf_message_parse(bytes, cut, &back, &why), -1);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (fgf_message_parse(bytes, size, &back, &why) == 0 && back.text.len)
                assert_true(back.text.data + back.text.len == bytes + size);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}

/* ---- changes of weights ---- */

#define N 20000u

static unsigned char *changes_of(const float *w, const uint32_t *changed, uint64_t have, size_t *len) {
    FILE *file = tmpfile();
    uint64_t written;
    uint32_t checksum;
    assert_non_null(file);
    assert_int_equal(fgf_changes_write(w, changed, N, have, fileno(file), &written, &checksum), 0);
    unsigned char *bytes = malloc(written);
    assert_int_equal(pread(fileno(file), bytes, written, 0), written);
    assert_int_equal(checksum, frugi_crc32c(0, bytes, written));
    fclose(file);
    *len = written;
    return bytes;
}

static void changes_take_any_version_to_the_current_one(void **state) {
    float versions[6][N], w[N] = {0}, next[N];
    uint32_t changed[N] = {0};
    (void)state;
    memcpy(versions[0], w, sizeof w);
    for (uint32_t v = 1; v < 6; v++) {
        memcpy(next, w, sizeof w);
        for (uint32_t i = 0; i < 20; i++)
            next[(v * 131 + i * i * 7) % N] += (float)(v + i + 1);
        assert_true(fgf_changes_note(next, N, v, w, changed) > 0);
        memcpy(versions[v], w, sizeof w);
    }
    for (uint64_t have = 0; have < 6; have++) {
        size_t len;
        fgio_reason why;
        unsigned char *bytes = changes_of(w, changed, have, &len);
        assert_true(len < 6 * 100 + 9);
        assert_int_equal(fgf_changes_apply(bytes, len, N, versions[have], &why), 0);
        assert_memory_equal(versions[have], w, sizeof w);
        free(bytes);
    }
}

static void no_version_and_many_changes_get_all_weights(void **state) {
    float w[N], copy[N] = {0};
    uint32_t changed[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        w[i] = (float)i;
        changed[i] = 1;
    }
    for (int known = 0; known < 2; known++) {
        size_t len;
        fgio_reason why;
        unsigned char *bytes = changes_of(w, changed, known ? 0 : FGF_NO_VERSION, &len);
        assert_int_equal(len, 1 + 4 * N);
        assert_int_equal(fgf_changes_apply(bytes, len, N, copy, &why), 0);
        assert_memory_equal(copy, w, sizeof w);
        free(bytes);
    }
}

static void damaged_changes_change_nothing(void **state) {
    float w[N] = {0}, next[N] = {0}, copy[N] = {0};
    uint32_t changed[N] = {0};
    size_t len;
    fgio_reason why;
    (void)state;
    for (uint32_t i = 0; i < N; i += 37)
        next[i] = 1;
    fgf_changes_note(next, N, 1, w, changed);
    unsigned char *bytes = changes_of(w, changed, 0, &len);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(fgf_changes_apply(bytes, cut, N, copy, &why), -1);
    bytes[1]++; /* one entry more than there is */
    assert_int_equal(fgf_changes_apply(bytes, len, N, copy, &why), -1);
    bytes[1]--;
    bytes[9] = 0xff; /* the first gap leads past the end */
    assert_int_equal(fgf_changes_apply(bytes, len, N, copy, &why), -1);
    for (uint32_t i = 0; i < N; i++)
        assert_true(copy[i] == 0);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_survives_a_round_trip),
        cmocka_unit_test(an_offer_has_these_bytes),
        cmocka_unit_test(a_chunk_has_these_bytes),
        cmocka_unit_test(wrong_headers_are_refused_before_anything_is_allocated),
        cmocka_unit_test(cut_and_flipped_messages_never_pass_for_longer_ones),
        cmocka_unit_test(changes_take_any_version_to_the_current_one),
        cmocka_unit_test(no_version_and_many_changes_get_all_weights),
        cmocka_unit_test(damaged_changes_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
