/*
 * weight_changes.c - a byte says which of two forms follows:
 *
 *   0   all weights: count f32
 *   1   u64 k, then k gaps between the indices, then k f32. A gap is the distance to the index before, less one, in
 *       groups of seven bits, the lowest first; the highest bit of a byte says that another follows
 */
#include "federated/weight_changes.h"

#include "base/float_bits.h"
#include "federated/message.h"

#include <stdlib.h>
#include <string.h>

enum { FORM_ALL = 0, FORM_CHANGED = 1 };
#define CHANGED_HEADER 9u
#define GAP_MAX        10u /* bytes of the longest */

uint64_t fgf_changes_note(const float *after, uint64_t count, uint32_t version, float *weights, uint32_t *changed) {
    uint64_t differ = 0;
    for (uint64_t i = 0; i < count; i++)
        if (frugi_f32_bits(after[i]) != frugi_f32_bits(weights[i])) {
            weights[i] = after[i];
            changed[i] = version;
            differ++;
        }
    return differ;
}

static size_t gap_bytes(uint64_t gap) {
    size_t bytes = 1;
    while (gap >>= 7)
        bytes++;
    return bytes;
}

static unsigned char *put_gap(unsigned char *to, uint64_t gap) {
    for (; gap >= 128; gap >>= 7)
        *to++ = (unsigned char)(gap | 128);
    *to++ = (unsigned char)gap;
    return to;
}

/** The weights that changed after a version: how many, and the bytes of their gaps. */
typedef struct tally {
    uint64_t entries;
    size_t gaps;
} tally;

static tally count_changes(const uint32_t *changed, uint64_t count, uint64_t have) {
    tally t = {0, 0};
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; i++)
        if (changed[i] > have) {
            t.entries++;
            t.gaps += gap_bytes(i - next);
            next = i + 1;
        }
    return t;
}

static void write_changes(const float *weights, const uint32_t *changed, uint64_t count, uint64_t have, tally t,
                          unsigned char *to) {
    unsigned char *gap = to + CHANGED_HEADER, *value = gap + t.gaps;
    uint64_t next = 0;
    to[0] = FORM_CHANGED;
    frugi_put64(to + 1, t.entries);
    for (uint64_t i = 0; i < count; i++)
        if (changed[i] > have) {
            gap = put_gap(gap, i - next);
            memcpy(value, &weights[i], 4);
            value += 4;
            next = i + 1;
        }
}

int fgf_changes_encode(const float *weights, const uint32_t *changed, uint64_t count, uint64_t have,
                       unsigned char **bytes, size_t *len) {
    tally t = have == FGF_NO_VERSION ? (tally){0, 0} : count_changes(changed, count, have);
    size_t all = 1 + count * sizeof *weights, some = CHANGED_HEADER + t.gaps + t.entries * 4;
    bool whole = have == FGF_NO_VERSION || some >= all;
    unsigned char *to = malloc(whole ? all : some);
    if (!to)
        return -1;
    if (whole) {
        to[0] = FORM_ALL;
        memcpy(to + 1, weights, all - 1);
    } else {
        write_changes(weights, changed, count, have, t, to);
    }
    *bytes = to;
    *len = whole ? all : some;
    return 0;
}

/* Reads a gap; returns what follows it, or NULL. */
static const unsigned char *get_gap(const unsigned char *from, const unsigned char *end, uint64_t *gap) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < GAP_MAX && from < end; i++) {
        sum |= (uint64_t)(*from & 127) << (7 * i);
        if (*from++ < 128) {
            *gap = sum;
            return from;
        }
    }
    return NULL;
}

/* Walks all gaps: the position of the values behind them, or NULL when an index is outside. With weights, sets them. */
static const unsigned char *walk(const unsigned char *from, const unsigned char *end, uint64_t entries, uint64_t count,
                                 const unsigned char *value, float *weights) {
    uint64_t next = 0, gap;
    for (uint64_t k = 0; k < entries; k++) {
        from = get_gap(from, end, &gap);
        if (!from || next >= count || gap >= count - next)
            return NULL;
        next += gap;
        if (weights)
            memcpy(&weights[next], value + 4 * k, 4);
        next++;
    }
    return from;
}

int fgf_changes_apply(const unsigned char *bytes, size_t len, uint64_t count, float *weights, fgio_reason *why) {
    if (len == 1 + count * sizeof *weights && bytes[0] == FORM_ALL) {
        memcpy(weights, bytes + 1, len - 1);
        return 0;
    }
    if (len < CHANGED_HEADER || bytes[0] != FORM_CHANGED)
        return fgio_fail(why, "weights: %zu bytes do not fit a model of %llu parameters", len,
                         (unsigned long long)count);
    uint64_t entries = frugi_get64(bytes + 1);
    const unsigned char *end = bytes + len, *gaps = bytes + CHANGED_HEADER;
    if (entries > count || entries * 5 > len - CHANGED_HEADER)
        return fgio_fail(why, "weights: %llu changes do not fit into %zu bytes", (unsigned long long)entries, len);
    const unsigned char *values = walk(gaps, end - 4 * entries, entries, count, NULL, NULL);
    if (!values || values != end - 4 * entries)
        return fgio_fail(why, "weights: the indices of the changes are damaged");
    walk(gaps, values, entries, count, values, weights);
    return 0;
}
