/*
 * test_safetensors.c - the safetensors reader and writer, and the payload files built on them.
 *
 * Inputs are copied into buffers of their exact size, so that a sanitizer detects every access outside.
 */
#include "program/compress/payload.h"
#include "program/model/tensor_roles.h"
#include "io/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FILE_MAX = 4096 };

typedef struct st_file {
    unsigned char bytes[FILE_MAX];
    size_t len;
} st_file;

static st_file make_with_length(uint64_t claimed, const char *header, size_t header_len, size_t data_len) {
    st_file file = {{0}, 8 + header_len + data_len};
    assert_true(file.len <= FILE_MAX);
    for (unsigned i = 0; i < 8; i++)
        file.bytes[i] = (unsigned char)(claimed >> 8 * i);
    memcpy(file.bytes + 8, header, header_len);
    for (size_t i = 0; i < data_len; i++)
        file.bytes[8 + header_len + i] = (unsigned char)(i + 1);
    return file;
}

static st_file make(const char *header, size_t data_len) {
    return make_with_length(strlen(header), header, strlen(header), data_len);
}

static int parse_exact(const st_file *file, size_t len, fgio_safetensors *parsed, fgio_reason *why,
                       unsigned char **copy) {
    *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(*copy);
    memcpy(*copy, file->bytes, len);
    return fgio_safetensors_parse(*copy, len, parsed, why);
}

static void assert_refused(const st_file *file, size_t len, const char *reason) {
    fgio_safetensors parsed = {NULL, 77, NULL};
    fgio_reason why = {""};
    unsigned char *copy;
    if (parse_exact(file, len, &parsed, &why, &copy) == 0)
        fail_msg("%zu bytes were accepted; expected: %s", len, reason);
    if (strstr(why.text, reason) == NULL)
        fail_msg("refused with '%s'; expected: %s", why.text, reason);
    assert_int_equal(parsed.count, 77); /* outputs are written only on success */
    free(copy);
}

static void assert_header_refused(const char *header, size_t data_len, const char *reason) {
    st_file file = make(header, data_len);
    assert_refused(&file, file.len, reason);
}

static const char two_tensors[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                  "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[2,10]},"
                                  "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}  ";

static void tensors_come_in_the_order_of_their_data(void **state) {
    st_file file = make(two_tensors, 10);
    fgio_safetensors parsed;
    fgio_reason why = {""};
    unsigned char *copy;
    (void)state;
    assert_int_equal(parse_exact(&file, file.len, &parsed, &why, &copy), 0);
    assert_int_equal(parsed.count, 2);
    assert_string_equal(parsed.item[0].name, "a");
    assert_int_equal(parsed.item[0].dtype, FGIO_BF16);
    assert_int_equal(parsed.item[0].ndim, 0);
    assert_int_equal(parsed.item[0].count, 1);
    assert_string_equal(parsed.item[1].name, "b");
    assert_int_equal(parsed.item[1].shape[0], 2);
    assert_int_equal(parsed.item[1].count, 2);
    assert_ptr_equal(parsed.item[1].data, parsed.item[0].data + 2);
    assert_int_equal(parsed.item[0].data[0], 1);
    assert_string_equal(json_string_value(json_object_get(parsed.metadata, "format")), "pt");
    assert_ptr_equal(fgio_safetensors_find(&parsed, "b"), &parsed.item[1]);
    assert_null(fgio_safetensors_find(&parsed, "c"));
    fgio_safetensors_free(&parsed);
    free(copy);
}

static void bf16_becomes_the_float_with_its_upper_half(void **state) {
    const unsigned char bytes[] = {0xc0, 0x3f, 0x80, 0xff, 0x01, 0x80};
    const uint32_t expected[] = {0x3fc00000u, 0xff800000u, 0x80010000u};
    fgio_tensor item = {.dtype = FGIO_BF16, .ndim = 1, .shape = {3}, .count = 3, .data = bytes};
    float got[3];
    (void)state;
    fgio_tensor_to_f32(&item, got);
    assert_memory_equal(got, expected, sizeof got);
}

static void written_headers_are_read_back(void **state) {
    char first[] = "layer \"0\"\n\xc3\xa9", second[] = "frame", third[] = "empty";
    fgio_tensor items[] = {
        {.name = first, .dtype = FGIO_F32, .ndim = 2, .shape = {2, 3}, .count = 6},
        {.name = third, .dtype = FGIO_F32, .ndim = 2, .shape = {0, 5}, .count = 0},
        {.name = second, .dtype = FGIO_U8, .ndim = 1, .shape = {5}, .count = 5},
    };
    fgio_safetensors parsed;
    fgio_bytes header;
    fgio_reason why = {""};
    json_t *metadata = json_pack("{s:s}", "key", "value");
    (void)state;
    assert_int_equal(fgio_safetensors_header(items, 3, metadata, &header, &why), 0);
    assert_int_equal(header.len % 8, 0);
    unsigned char *file = calloc(1, header.len + 29);
    memcpy(file, header.data, header.len);
    if (fgio_safetensors_parse(file, header.len + 29, &parsed, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(parsed.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(parsed.item[i].name, items[i].name);
        assert_int_equal(parsed.item[i].dtype, items[i].dtype);
        assert_int_equal(parsed.item[i].ndim, items[i].ndim);
        assert_memory_equal(parsed.item[i].shape, items[i].shape, sizeof items[i].shape);
    }
    assert_ptr_equal(parsed.item[2].data, file + header.len + 24);
    assert_true(json_equal(parsed.metadata, metadata));
    fgio_safetensors_free(&parsed);
    fgio_bytes_free(&header);
    json_decref(metadata);
    free(file);
}

static void names_that_are_not_utf8_are_not_written(void **state) {
    char name[] = "\xff";
    fgio_tensor item = {.name = name, .dtype = FGIO_F32, .count = 1};
    fgio_bytes header = {NULL, 77};
    fgio_reason why = {""};
    (void)state;
    assert_int_equal(fgio_safetensors_header(&item, 1, NULL, &header, &why), -1);
    assert_int_equal(header.len, 77);
}

static void every_truncation_and_extension_is_refused(void **state) {
    st_file file = make(two_tensors, 10);
    (void)state;
    for (size_t len = 0; len < file.len; len++)
        assert_refused(&file, len, "");
    assert_refused(&file, file.len + 1, "1 bytes at the end belong to no tensor");
}

static void absurd_header_lengths_are_refused(void **state) {
    static const uint64_t lengths[] = {100000001, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, UINT64_C(1) << 32};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        st_file file = make_with_length(lengths[i], "{}", 2, 0);
        assert_refused(&file, file.len, "the limit is 100 MB");
    }
    st_file file = make_with_length(100000000, "{}", 2, 0);
    assert_refused(&file, file.len, "ends inside the safetensors header");
}

#define ENTRY(name, dtype, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void damaged_json_is_refused(void **state) {
    (void)state;
    assert_header_refused("", 0, "safetensors header");
    assert_header_refused("[]", 0, "not a JSON object");
    assert_header_refused("{}x", 0, "safetensors header");
    assert_header_refused("{\"a\":3}", 0, "not described by an object");
    assert_header_refused("{\"\xff\":3}", 0, "safetensors header");
    assert_header_refused("{\"a\\u0000b\":3}", 0, "safetensors header");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("a", "U8", "[1]", "[1,2]") "}", 2,
                          "duplicate");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
                          "duplicate");
    assert_header_refused("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    assert_header_refused("{\"__metadata__\":{\"a\":1}}", 0, "not a string");
}

static void entries_that_disagree_with_themselves_are_refused(void **state) {
    (void)state;
    assert_header_refused("{\"a\":{\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}", 1, "has no dtype");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"x\":1}}", 1, "has no shape");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"x\":1}}", 1, "bad data_offsets");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}", 1, "has keys");
    assert_header_refused("{" ENTRY("a", "F33", "[1]", "[0,4]") "}", 4, "unknown dtype 'F33'");
    assert_header_refused("{" ENTRY("a", "F32", "[1]", "[0,2]") "}", 2, "needs 4 bytes but is given 2");
    assert_header_refused("{" ENTRY("a", "F64", "[2]", "[0,8]") "}", 8, "needs 16 bytes but is given 8");
    assert_header_refused("{" ENTRY("a", "U8", "[-1]", "[0,1]") "}", 1, "bad shape");
    assert_header_refused("{" ENTRY("a", "U8", "[1.0]", "[0,1]") "}", 1, "bad shape");
    assert_header_refused("{" ENTRY("a", "U8", "[\"1\"]", "[0,1]") "}", 1, "bad shape");
    assert_header_refused("{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "more than 8 dimensions");
    assert_header_refused("{" ENTRY("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "2^48");
    assert_header_refused("{" ENTRY("a", "F64", "[281474976710656]", "[0,0]") "}", 0, "but is given 0");
}

static void offsets_that_overlap_or_leave_the_file_are_refused(void **state) {
    (void)state;
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[1,0]") "}", 1, "bad data_offsets");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[-1,0]") "}", 1, "bad data_offsets");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[0,1,2]") "}", 1, "bad data_offsets");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[0.0,1]") "}", 1, "bad data_offsets");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[0,18446744073709551616]") "}", 1, "too big integer");
    assert_header_refused("{" ENTRY("a", "U8", "[2]", "[0,2]") "}", 1, "ends outside the file");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
                          "leaves a hole");
    assert_header_refused("{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[2]", "[1,3]") "}", 3, "overlaps");
    assert_header_refused("{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[2]", "[0,2]") "}", 2, "overlaps");
    assert_header_refused("{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("b", "U8", "[1]", "[2,3]") "}", 3,
                          "leaves a hole");
}

static void roles_follow_the_names(void **state) {
    static const struct {
        const char *name;
        uint32_t ndim;
        frug_role role;
    } cases[] = {
        {"layer1.0.conv1.weight", 4, FRUG_ROLE_CONV},
        {"layer1.0.bn1.weight", 1, FRUG_ROLE_NORM},
        {"encoder.LayerNorm.weight", 1, FRUG_ROLE_NORM},
        {"h.0.ln_f.weight", 1, FRUG_ROLE_NORM},
        {"fc.bias", 1, FRUG_ROLE_BIAS},
        {"scale", 1, FRUG_ROLE_OTHER},
        {"fc.weight", 2, FRUG_ROLE_LINEAR},
        {"wte.weight", 2, FRUG_ROLE_EMBEDDING},
        {"embeddings.position.weight", 2, FRUG_ROLE_EMBEDDING},
        {"attn.q_proj.weight", 2, FRUG_ROLE_ATTN_Q},
        {"attention.self.key.weight", 2, FRUG_ROLE_ATTN_K},
        {"layers.0.wv", 2, FRUG_ROLE_ATTN_V},
        {"attention.output.dense.weight", 2, FRUG_ROLE_ATTN_O},
        {"world.weight", 2, FRUG_ROLE_LINEAR}, /* "wo" inside a longer word */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(fgp_guess_role(cases[i].name, cases[i].ndim), cases[i].role);
    for (int role = 0; frug_role_name((frug_role)role) != NULL; role++)
        assert_int_equal(fgp_role_of(frug_role_name((frug_role)role)), role);
}

/* ---- payload files ------------------------------------------------------------------------------ */

static void add(frug_layout *layout, const char *name, uint64_t rows, uint64_t columns, frug_role role) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    tensor.name = name;
    tensor.role = role;
    tensor.ndim = 2;
    tensor.shape[0] = rows;
    tensor.shape[1] = columns;
    assert_int_equal(frug_layout_add(layout, &tensor), FRUG_OK);
}

static void payload_description_is_read_back(void **state) {
    fgp_gradient gradient = {.format = FGP_FORMAT_SAFETENSORS, .metadata = json_pack("{s:s}", "k", "v")};
    fgp_payload payload;
    fgio_bytes header;
    fgio_reason why = {""};
    frug_tensor tensor = FRUG_TENSOR_INIT;
    (void)state;
    assert_int_equal(frug_layout_create(&gradient.layout), FRUG_OK);
    add(gradient.layout, "fc.weight", 2, 3, FRUG_ROLE_LINEAR);
    add(gradient.layout, "wte", 5, 7, FRUG_ROLE_EMBEDDING);
    assert_int_equal(fgp_payload_header(&gradient, "value=f32", 9, &header, &why), 0);
    unsigned char *file = calloc(1, header.len + 9);
    memcpy(file, header.data, header.len);
    if (fgp_payload_parse(file, header.len + 9, &payload, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(payload.gradient.format, FGP_FORMAT_SAFETENSORS);
    assert_int_equal(frug_layout_hash(payload.gradient.layout), frug_layout_hash(gradient.layout));
    assert_int_equal(frug_layout_get(payload.gradient.layout, 1, &tensor), FRUG_OK);
    assert_int_equal(tensor.role, FRUG_ROLE_EMBEDDING);
    assert_string_equal(payload.config, "value=f32");
    assert_true(json_equal(payload.gradient.metadata, gradient.metadata));
    assert_false(payload.gradient.reshaped);
    assert_int_equal(payload.frame_len, 9);
    assert_ptr_equal(payload.frame, file + header.len);
    fgp_payload_free(&payload);
    fgp_gradient_free(&gradient);
    fgio_bytes_free(&header);
    free(file);
}

static void assert_payload_refused(const char *metadata, const char *reason) {
    char header[2048];
    fgp_payload payload = {.frame_len = 77};
    fgio_reason why = {""};
    snprintf(header, sizeof header, "{\"__metadata__\":{%s}," ENTRY("frugrad.frame", "U8", "[1]", "[0,1]") "}",
             metadata);
    st_file file = make(header, 1);
    if (fgp_payload_parse(file.bytes, file.len, &payload, &why) == 0)
        fail_msg("accepted; expected: %s", reason);
    if (strstr(why.text, reason) == NULL)
        fail_msg("refused with '%s'; expected: %s", why.text, reason);
    assert_int_equal(payload.frame_len, 77);
}

static void payloads_with_a_bad_description_are_refused(void **state) {
#define HEAD   "\"frugrad\":\"1\",\"frugrad.config\":\"\","
#define RAW    HEAD "\"frugrad.source\":\"raw\","
#define TENSOR "{\\\"name\\\":\\\"a\\\",\\\"shape\\\":[1,4],\\\"role\\\":\\\"other\\\"}"
    (void)state;
    assert_payload_refused("", "not a payload");
    assert_payload_refused("\"frugrad\":\"2\",\"frugrad.config\":\"\",\"frugrad.source\":\"raw\"", "version '2'");
    assert_payload_refused(HEAD "\"frugrad.source\":\"auto\"", "format 'auto'");
    assert_payload_refused(HEAD "\"frugrad.source\":\"raw\"", "no layout");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[]\"", "no layout");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[\"", "no layout");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[1]\"", "no name");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[" TENSOR "," TENSOR "]\"", "has more");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[{\\\"name\\\":\\\"a\\\",\\\"shape\\\":[281474976710656,2],"
                               "\\\"role\\\":\\\"other\\\"}]\"",
                           "2^48");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[" TENSOR "]\",\"frugrad.shape\":\"[5]\"", "do not agree");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[" TENSOR "]\",\"frugrad.shape\":\"5\"", "bad shape");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[" TENSOR "]\",\"frugrad.metadata\":\"[]\"", "not a map");
    assert_payload_refused(RAW "\"frugrad.layout\":\"[" TENSOR "]\",\"frugrad.metadata\":\"{\\\"a\\\":1}\"",
                           "not a string");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_in_the_order_of_their_data),
        cmocka_unit_test(bf16_becomes_the_float_with_its_upper_half),
        cmocka_unit_test(written_headers_are_read_back),
        cmocka_unit_test(names_that_are_not_utf8_are_not_written),
        cmocka_unit_test(every_truncation_and_extension_is_refused),
        cmocka_unit_test(absurd_header_lengths_are_refused),
        cmocka_unit_test(damaged_json_is_refused),
        cmocka_unit_test(entries_that_disagree_with_themselves_are_refused),
        cmocka_unit_test(offsets_that_overlap_or_leave_the_file_are_refused),
        cmocka_unit_test(roles_follow_the_names),
        cmocka_unit_test(payload_description_is_read_back),
        cmocka_unit_test(payloads_with_a_bad_description_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
