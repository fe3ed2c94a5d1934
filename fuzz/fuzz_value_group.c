/*
 * fuzz_value_group.c - untrusted values of a section by units. The first bytes define the section; the rest is used
 * twice: as its scales and values, which must be rejected or decode to numbers, the same in ranges as in one call; and
 * as floats to encode, which must then pass the check and lose nothing.
 */
#include "codec/unit_value.h"
#include "base/float_bits.h"

#include <math.h>
#include <stdlib.h>

#define HEAD 8u

static void require(int good) {
    if (!good)
        abort();
}

/* A copy of exactly this length, so that a sanitizer detects every access outside; zeros past the end of the input. */
static unsigned char *copy_bytes(const uint8_t *data, size_t size, size_t from, size_t bytes) {
    unsigned char *copy = calloc(bytes ? bytes : 1, 1);
    require(copy != NULL);
    if (from < size)
        memcpy(copy, data + from, size - from < bytes ? size - from : bytes);
    return copy;
}

static void decode(const frugi_section *s, const uint8_t *data, size_t size, uint64_t cut) {
    uint64_t scale_bytes = frugi_value_group_scale_bytes(s), value_bytes = frugi_value_group_bytes(s), n = s->entries;
    unsigned char *scales = copy_bytes(data, size, HEAD, scale_bytes);
    unsigned char *values = copy_bytes(data, size, HEAD + scale_bytes, value_bytes);
    float *whole = malloc(n * sizeof *whole), *pieces = malloc(n * sizeof *pieces);
    require(whole && pieces);
    if (frugi_value_group_check(s, scales, values)) {
        frugi_value_group_decode(s, scales, values, 0, n, whole);
        frugi_value_group_decode(s, scales, values, cut, n - cut, pieces + cut);
        frugi_value_group_decode(s, scales, values, 0, cut, pieces);
        require(!memcmp(whole, pieces, n * sizeof *whole));
        for (uint64_t i = 0; i < n; i++) /* f16 and int8 may exceed the largest float */
            require(s->value == FRUGI_VALUE_F16 || s->value == FRUGI_VALUE_INT8 ? !isnan(whole[i])
                                                                                : isfinite(whole[i]));
    }
    free(scales);
    free(values);
    free(whole);
    free(pieces);
}

static void encode(const frugi_section *s, const uint8_t *data, size_t size, const frugi_value_group_options *how) {
    uint64_t n = s->entries;
    unsigned char *scales = calloc(frugi_value_group_scale_bytes(s) + 1, 1),
                  *values = malloc(frugi_value_group_bytes(s) + 1);
    float *v = (float *)(void *)copy_bytes(data, size, HEAD, n * sizeof *v);
    float *rest = malloc(n * sizeof *rest), *decoded = malloc(n * sizeof *decoded);
    require(scales && values && rest && decoded);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            v[i] = 0;
    memcpy(rest, v, n * sizeof *v);
    frugi_value_group_encode(s, how, 0, n, rest, scales, values);
    require(frugi_value_group_check(s, scales, values));
    frugi_value_group_decode(s, scales, values, 0, n, decoded);
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)v[i], d = (double)decoded[i], room = 0x1p-23 * fmax(fabs(x), fabs(d));
        require(s->value <= FRUGI_VALUE_INT4 ? decoded[i] + rest[i] == v[i] : fabs(d + (double)rest[i] - x) <= room);
    }
    free(scales);
    free(values);
    free(v);
    free(rest);
    free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD)
        return 0;
    frugi_section s = {.value = (frugi_value)(data[0] % 10), .group = frugi_get16(data + 2) % 700u, .levels = data[1]};
    s.entries = 1 + frugi_get16(data + 4) % 1500u;
    decode(&s, data, size, frugi_get16(data + 6) % s.entries);
    int good_levels = s.levels >= 1 && s.levels <= 127;
    if (s.value <= FRUGI_VALUE_ONEBIT && (s.value != FRUGI_VALUE_QSGD || good_levels)) {
        frugi_value_group_options how = {.kernel = frugi_value_kernel_chosen(),
                                         .norm = data[7] & 1 ? FRUGI_QNORM_MAX : FRUGI_QNORM_L2,
                                         .key = data[6]};
        encode(&s, data, size, &how);
    }
    return 0;
}
