/*
 * delta_chunk_loops.h - encoding of the changes of one chunk: the functions of a frugi_delta_chunk_code.
 *
 * In 16-bit weights that an optimizer moves by less than their precision, few elements change, and most of those by one
 * unit in the last place. So a difference of bit patterns is a sign, and a magnitude that is usually 1: two bits. The
 * numbers of the elements, ascending, are split (Elias-Fano): low bits at fixed positions, upper bits as gaps in unary,
 * within 6 % of the entropy. In both, no entry waits for the length of the one before; only magnitudes above 1 are a
 * serial code. Cost: one pass over the bits of the elements and some nanoseconds per entry.
 */
#ifndef FRUGI_DELTA_CHUNK_LOOPS_H
#define FRUGI_DELTA_CHUNK_LOOPS_H

#include "delta/delta_chunk.h"

#include "delta/delta_bits.h"

#include <assert.h>

enum { LOW_MOST = 15, EAGER = 3 };

static uint32_t bytes_of(uint64_t bits) {
    return (uint32_t)((bits + 7) / 8);
}

/* Bits of the upper part: a one per entry, and a zero for each step of 2^low elements. */
static uint32_t upper_bits(uint32_t entries, uint32_t n, uint32_t low) {
    return entries + ((n - 1) >> low) + 1;
}

static uint32_t split_bytes(uint32_t entries, uint32_t n, uint32_t low) {
    return bytes_of(upper_bits(entries, n, low)) + bytes_of((uint64_t)entries * low);
}

/* The shortest code of the indices. */
static uint32_t choose_index(uint32_t entries, uint32_t n, uint32_t *bytes) {
    uint32_t best = FRUGI_DELTA_BITMAP;
    *bytes = bytes_of(n);
    for (uint32_t low = 0; low <= LOW_MOST; low++) {
        uint32_t size = split_bytes(entries, n, low);
        if (size < *bytes) {
            *bytes = size;
            best = low;
        }
    }
    return best;
}

/* The numbers of the set bits. A few stores per word are unconditional, because their number cannot be predicted. */
static uint32_t list_changed(const unsigned char *changed, uint32_t n, uint16_t *index) {
    uint32_t count = 0;
    for (uint32_t first = 0; first < n; first += 64) {
        uint64_t bits = frugi_get64(changed + first / 8);
        uint32_t more = (uint32_t)__builtin_popcountll(bits);
        uint16_t *out = index + count;
        count += more;
        for (uint32_t i = 0; i < EAGER; i++, bits &= bits - 1)
            out[i] = (uint16_t)(first + (uint32_t)__builtin_ctzll(bits | (uint64_t)1 << 63));
        for (uint32_t i = EAGER; i < more; i++, bits &= bits - 1)
            out[i] = (uint16_t)(first + (uint32_t)__builtin_ctzll(bits));
    }
    return count;
}

/* Signs, flags and magnitudes of the differences. */
#define MEASURE(type)                                                                                                  \
    static uint32_t measure_##type(const unsigned char *before, const unsigned char *after, uint32_t entries,          \
                                   frugi_delta_scratch *s) {                                                           \
        uint32_t flagged = 0;                                                                                          \
        for (uint32_t i = 0; i < entries; i += 64) {                                                                   \
            uint64_t sign = 0, flag = 0;                                                                               \
            for (uint32_t j = 0; j < 64 && i + j < entries; j++) {                                                     \
                type a, b;                                                                                             \
                memcpy(&a, before + sizeof a * s->index[i + j], sizeof a);                                             \
                memcpy(&b, after + sizeof b * s->index[i + j], sizeof b);                                              \
                type d = (type)(b - a), negative = (type)(d >> (8 * sizeof d - 1));                                    \
                type magnitude = (type)((d ^ (type)(0 - negative)) + negative);                                        \
                sign |= (uint64_t)negative << j;                                                                       \
                flag |= (uint64_t)(magnitude > 1) << j;                                                                \
                s->difference[i + j] = magnitude;                                                                      \
            }                                                                                                          \
            s->sign[i / 64] = sign;                                                                                    \
            s->flag[i / 64] = flag;                                                                                    \
            flagged += (uint32_t)__builtin_popcountll(flag);                                                           \
        }                                                                                                              \
        return flagged;                                                                                                \
    }

MEASURE(uint8_t)
MEASURE(uint16_t)
MEASURE(uint32_t)
MEASURE(uint64_t)

static uint32_t measure(const unsigned char *before, const unsigned char *after, uint32_t width, uint32_t entries,
                        frugi_delta_scratch *s) {
    switch (width) {
    case 1: return measure_uint8_t(before, after, entries, s);
    case 2: return measure_uint16_t(before, after, entries, s);
    case 4: return measure_uint32_t(before, after, entries, s);
    default: return measure_uint64_t(before, after, entries, s);
    }
}

/* The order of the Exp-Golomb code, from the lengths of the numbers: about the best, and the same on every machine. */
static uint32_t choose_order(const uint32_t *lengths) {
    uint32_t best = 0, most = 63;
    uint64_t least = UINT64_MAX;
    while (most > 0 && lengths[most] == 0)
        most--;
    for (uint32_t k = 0; k <= most; k++) {
        uint64_t bits = 0;
        for (uint32_t c = 0; c <= most; c++)
            bits += (uint64_t)lengths[c] * (c <= k ? k + 1 : 2 * c + 1 - k);
        if (bits < least) {
            least = bits;
            best = k;
        }
    }
    return best;
}

/* Magnitudes that are encoded, less the smallest one: those above 1 or, without flags, all. Compacted in place. */
static uint32_t collect_magnitudes(frugi_delta_scratch *s, uint32_t entries, int flags, uint32_t *lengths) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < entries; i += 64) {
        uint32_t some = entries - i < 64 ? entries - i : 64;
        uint64_t which = flags ? s->flag[i / 64] : some < 64 ? ((uint64_t)1 << some) - 1 : UINT64_MAX;
        for (; which; which &= which - 1) {
            uint64_t v = s->difference[i + (uint32_t)__builtin_ctzll(which)] - (flags ? 2 : 1);
            lengths[frugi_bit_length(v + 1) - 1]++;
            s->difference[count++] = v;
        }
    }
    return count;
}

/* A one at bit (index >> low) + i for every entry i. */
static void put_upper(const uint16_t *index, uint32_t entries, uint32_t low, unsigned char *out, uint32_t bytes) {
    uint64_t word = 0;
    uint32_t at = 0; /* of the word, in words */
    memset(out, 0, bytes);
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t bit = (uint32_t)(index[i] >> low) + i;
        if (bit / 64 != at) {
            memcpy(out + 8 * at, &word, 8);
            word = 0;
            at = bit / 64;
        }
        word |= (uint64_t)1 << bit % 64;
    }
    memcpy(out + 8 * at, &word, bytes - 8 * at < 8 ? bytes - 8 * at : 8);
}

/* The low bits of three entries at a time. */
static unsigned char *put_low(const uint16_t *index, uint32_t entries, uint32_t low, unsigned char *out) {
    const uint64_t mask = ((uint64_t)1 << low) - 1;
    frugi_bit_sink sink = {out, 0, 0};
    uint32_t i = 0;
    for (; i + 3 <= entries; i += 3)
        frugi_bits_put(&sink, (index[i] & mask) | (index[i + 1] & mask) << low | (index[i + 2] & mask) << 2 * low,
                       3 * low);
    for (; i < entries; i++)
        frugi_bits_put(&sink, index[i] & mask, low);
    return frugi_bits_end(&sink);
}

static unsigned char *put_index(const frugi_delta_scratch *s, uint32_t entries, uint32_t n, uint32_t index,
                                unsigned char *out) {
    if (index == FRUGI_DELTA_BITMAP) {
        memcpy(out, s->changed, bytes_of(n));
        return out + bytes_of(n);
    }
    put_upper(s->index, entries, index, out, bytes_of(upper_bits(entries, n, index)));
    return put_low(s->index, entries, index, out + bytes_of(upper_bits(entries, n, index)));
}

static unsigned char *put_plane(const uint64_t *plane, uint32_t entries, unsigned char *out) {
    memcpy(out, plane, bytes_of(entries));
    return out + bytes_of(entries);
}

static void encode_raw(const unsigned char *before, const unsigned char *after, uint32_t n, uint32_t width,
                       unsigned char *body, frugi_delta_code *code) {
    code->bytes = n * width;
    code->index = FRUGI_DELTA_RAW;
    for (uint32_t i = 0; i < n * width; i += width) {
        uint64_t a = 0, b = 0;
        memcpy(&a, before + i, width);
        memcpy(&b, after + i, width);
        b -= a;
        memcpy(body + i, &b, width);
    }
}

/* Bits of the numbers in Exp-Golomb code of order k. */
static uint64_t golomb_bits(const uint64_t *v, uint32_t count, uint32_t k) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < count; i++)
        bits += 2 * frugi_bit_length(v[i] + ((uint64_t)1 << k)) - 1 - k;
    return bits;
}

static void encode_chunk(const unsigned char *before, const unsigned char *after, uint32_t n, uint32_t width,
                         frugi_delta_scratch *s, unsigned char *body, frugi_delta_code *code) {
    uint32_t lengths[64] = {0}, index_bytes, entries = list_changed(s->changed, n, s->index);
    *code = (frugi_delta_code){0, (uint16_t)entries, 0, 0};
    if (entries == 0)
        return;
    uint32_t flagged = measure(before, after, width, entries, s);
    int flags = flagged < entries - entries / 4; /* with more of them, the flags cost more than they save */
    uint32_t count = collect_magnitudes(s, entries, flags, lengths), order = choose_order(lengths);
    uint64_t rest = (uint64_t)bytes_of(entries) * (flags ? 2 : 1) + bytes_of(golomb_bits(s->difference, count, order));
    code->index = (uint8_t)choose_index(entries, n, &index_bytes);
    if (index_bytes + rest >= (uint64_t)n * width) {
        encode_raw(before, after, n, width, body, code);
        return;
    }
    code->value = (uint8_t)(order | (flags ? FRUGI_DELTA_FLAGS : 0));
    unsigned char *at = put_plane(s->sign, entries, put_index(s, entries, n, code->index, body));
    frugi_bit_sink sink = {flags ? put_plane(s->flag, entries, at) : at, 0, 0};
    for (uint32_t i = 0; i < count; i++)
        frugi_golomb_put(&sink, s->difference[i], order);
    code->bytes = (uint32_t)(frugi_bits_end(&sink) - body);
    assert(code->bytes == index_bytes + rest);
}

/* ---- decoding ----------------------------------------------------------- */

/* Read the indices that are set in a bitmap of n bits. Returns whether there are `entries` of them. */
static int read_bitmap(const unsigned char *in, uint32_t entries, uint32_t n, uint16_t *index) {
    uint32_t count = 0;
    for (uint32_t first = 0; first < n; first += 64) {
        uint64_t bits = frugi_get64(in + first / 8);
        if (n - first < 64)
            bits &= ((uint64_t)1 << (n - first)) - 1;
        if (count + (uint32_t)__builtin_popcountll(bits) > entries)
            return 0;
        for (; bits; bits &= bits - 1)
            index[count++] = (uint16_t)(first + (uint32_t)__builtin_ctzll(bits));
    }
    return count == entries;
}

/* Read the upper parts: the i-th one at bit p means p - i. Returns whether there are `entries` ones. */
static int read_upper(const unsigned char *in, uint32_t bits, uint32_t entries, uint32_t low, uint16_t *index) {
    uint32_t count = 0;
    for (uint32_t first = 0; first < bits; first += 64) {
        uint64_t word = frugi_get64(in + first / 8);
        if (bits - first < 64)
            word &= ((uint64_t)1 << (bits - first)) - 1;
        if (count + (uint32_t)__builtin_popcountll(word) > entries)
            return 0;
        for (; word; word &= word - 1, count++)
            index[count] = (uint16_t)((first + (uint32_t)__builtin_ctzll(word) - count) << low);
    }
    return count == entries;
}

/* Add the low parts. Returns whether the indices ascend and are below n. */
static int read_low(const unsigned char *in, uint32_t entries, uint32_t low, uint32_t n, uint16_t *index) {
    const uint64_t mask = ((uint64_t)1 << low) - 1;
    int32_t last = -1;
    int bad = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < entries; i++, at += low) {
        int32_t now = index[i] | (int32_t)(frugi_bits_peek(in, at) & mask);
        index[i] = (uint16_t)now;
        bad |= now <= last;
        last = now;
    }
    return !bad && last < (int32_t)n;
}

/* The indices; *bytes: of their code. */
static int read_index(const unsigned char *body, const frugi_delta_code *code, uint32_t n, uint16_t *index,
                      uint32_t *bytes) {
    if (code->index == FRUGI_DELTA_BITMAP) {
        *bytes = bytes_of(n);
        return code->bytes >= *bytes && read_bitmap(body, code->entries, n, index);
    }
    uint32_t upper = upper_bits(code->entries, n, code->index);
    *bytes = split_bytes(code->entries, n, code->index);
    return code->bytes >= *bytes && read_upper(body, upper, code->entries, code->index, index) &&
           read_low(body + bytes_of(upper), code->entries, code->index, n, index);
}

/* Differences of 1 and -1. */
static void read_signs(const unsigned char *sign, uint32_t entries, uint64_t *difference) {
    for (uint32_t i = 0; i < entries; i++)
        difference[i] = 1 - 2 * (uint64_t)(sign[i / 8] >> i % 8 & 1u);
}

/* Add the magnitudes that are not 1. A magnitude has at most 8 * width bits; more are lost when it is applied. */
static int read_magnitudes(const unsigned char *in, uint32_t bytes, const unsigned char *flag, uint32_t entries,
                           uint32_t order, uint64_t *difference) {
    const uint64_t end = (uint64_t)bytes * 8, add = flag != NULL, mask = ((uint64_t)1 << order) - 1;
    uint64_t at = 0;
    for (uint32_t first = 0; first < entries; first += 64) {
        uint32_t some = entries - first < 64 ? entries - first : 64;
        uint64_t which = some < 64 ? ((uint64_t)1 << some) - 1 : UINT64_MAX;
        if (flag)
            which &= frugi_get64(flag + first / 8);
        for (; which; which &= which - 1) {
            uint64_t *d = difference + first + (uint32_t)__builtin_ctzll(which), v;
            uint64_t bits = at < end ? frugi_bits_peek(in, at) : 0;
            uint32_t zeros = bits ? (uint32_t)__builtin_ctzll(bits) : 64, b = zeros + order, length = zeros + 1 + b;
            if (length <= 56) {
                v = (bits >> (zeros + 1) & (((uint64_t)1 << b) - 1)) + ((uint64_t)1 << b) - mask - 1;
            } else if ((length = frugi_golomb_get_long(in, at, end, order, &v)) == 0) {
                return 0;
            }
            at += length;
            *d *= v + 1 + add;
        }
    }
    return at <= end && end - at < 8;
}

static frug_status decode_raw(const unsigned char *body, const frugi_delta_code *code, uint32_t n, uint32_t width,
                              frugi_delta_scratch *s) {
    uint32_t count = 0;
    FRUG_FAIL_IF(code->bytes != n * width || code->value != 0, FRUG_ERR_FORMAT,
                 "delta: a chunk of plain differences has a wrong length");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t d = 0;
        memcpy(&d, body + i * width, width);
        s->index[count] = (uint16_t)i;
        s->difference[count] = d;
        count += d != 0;
    }
    FRUG_FAIL_IF(count != code->entries, FRUG_ERR_FORMAT, "delta: a chunk has %u changed elements, not %u", count,
                 code->entries);
    return FRUG_OK;
}

static frug_status decode_chunk(const unsigned char *body, const frugi_delta_code *code, uint32_t n, uint32_t width,
                                frugi_delta_scratch *s) {
    uint32_t entries = code->entries, index_bytes, plane = bytes_of(entries);
    int flags = (code->value & FRUGI_DELTA_FLAGS) != 0;
    if (entries == 0 && code->bytes == 0 && code->index == 0 && code->value == 0)
        return FRUG_OK;
    if (code->index == FRUGI_DELTA_RAW)
        return decode_raw(body, code, n, width, s);
    FRUG_FAIL_IF(entries == 0 || entries > n || code->index > FRUGI_DELTA_BITMAP ||
                     code->value >= 2 * FRUGI_DELTA_FLAGS,
                 FRUG_ERR_FORMAT, "delta: a chunk of %u elements has %u entries of code %u %u", n, entries, code->index,
                 code->value);
    FRUG_FAIL_IF(!read_index(body, code, n, s->index, &index_bytes), FRUG_ERR_FORMAT,
                 "delta: the indices of a chunk are invalid");
    uint32_t rest = code->bytes - index_bytes, planes = plane * (flags ? 2 : 1);
    const unsigned char *sign = body + index_bytes;
    FRUG_FAIL_IF(rest < planes, FRUG_ERR_FORMAT, "delta: a chunk ends inside its signs");
    read_signs(sign, entries, s->difference);
    FRUG_FAIL_IF(!read_magnitudes(sign + planes, rest - planes, flags ? sign + plane : NULL, entries,
                                  code->value & (FRUGI_DELTA_FLAGS - 1), s->difference),
                 FRUG_ERR_FORMAT, "delta: the magnitudes of a chunk are invalid");
    return FRUG_OK;
}

#define APPLY(type)                                                                                                    \
    static void apply_##type(const frugi_delta_scratch *s, uint32_t entries, uint64_t flip, unsigned char *elements) { \
        for (uint32_t i = 0; i < entries; i++) {                                                                       \
            unsigned char *at = elements + sizeof(type) * s->index[i];                                                 \
            type x;                                                                                                    \
            memcpy(&x, at, sizeof x);                                                                                  \
            x = (type)(x + ((s->difference[i] ^ flip) - flip));                                                        \
            memcpy(at, &x, sizeof x);                                                                                  \
        }                                                                                                              \
    }

APPLY(uint8_t)
APPLY(uint16_t)
APPLY(uint32_t)
APPLY(uint64_t)

static void apply_chunk(const frugi_delta_scratch *s, uint32_t entries, uint32_t width, int back,
                        unsigned char *elements) {
    uint64_t flip = back ? UINT64_MAX : 0; /* -d is (d ^ flip) - flip */
    switch (width) {
    case 1: apply_uint8_t(s, entries, flip, elements); break;
    case 2: apply_uint16_t(s, entries, flip, elements); break;
    case 4: apply_uint32_t(s, entries, flip, elements); break;
    default: apply_uint64_t(s, entries, flip, elements); break;
    }
}

#endif
