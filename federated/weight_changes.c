/*
 * weight_changes.c - a byte says which of two forms follows:
 *
 *   0   all weights: count f32
 *   1   u64 k, then k gaps between the indices, then k f32. A gap is the distance to the index before, less one, in
 *       groups of seven bits, the lowest first; the highest bit of a byte says that another follows
 */
#include "federated/weight_changes.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "federated/message.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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

/** Bytes on their way to a file. */
typedef struct sink {
    int fd;
    bool failed;
    uint32_t checksum;
    uint64_t len; /* in all */
    size_t held;
    unsigned char buffer[1 << 16];
} sink;

static void drain(sink *s) {
    s->checksum = frugi_crc32c(s->checksum, s->buffer, s->held);
    for (size_t at = 0; at < s->held && !s->failed;) {
        ssize_t put = write(s->fd, s->buffer + at, s->held - at);
        s->failed = put < 0 ? errno != EINTR : put == 0;
        at += put > 0 ? (size_t)put : 0;
    }
    s->len += s->held;
    s->held = 0;
}

/* Where the next bytes go; `most` is small. */
static unsigned char *room_for(sink *s, size_t most) {
    if (s->held + most > sizeof s->buffer)
        drain(s);
    return s->buffer + s->held;
}

static void write_weight(sink *s, float weight) {
    memcpy(room_for(s, 4), &weight, 4);
    s->held += 4;
}

static void write_changes(sink *s, const float *weights, const uint32_t *changed, uint64_t count, uint64_t have,
                          uint64_t entries) {
    uint64_t next = 0;
    s->buffer[0] = FORM_CHANGED;
    frugi_put64(s->buffer + 1, entries);
    s->held = CHANGED_HEADER;
    for (uint64_t i = 0; i < count; i++)
        if (changed[i] > have) {
            unsigned char *to = room_for(s, GAP_MAX);
            s->held += (size_t)(put_gap(to, i - next) - to);
            next = i + 1;
        }
    for (uint64_t i = 0; i < count; i++)
        if (changed[i] > have)
            write_weight(s, weights[i]);
}

static void write_all(sink *s, const float *weights, uint64_t count) {
    s->buffer[0] = FORM_ALL;
    s->held = 1;
    for (uint64_t i = 0; i < count; i++)
        write_weight(s, weights[i]);
}

int fgf_changes_write(const float *weights, const uint32_t *changed, uint64_t count, uint64_t have, int fd,
                      uint64_t *len, uint32_t *checksum) {
    tally t = have == FGF_NO_VERSION ? (tally){0, 0} : count_changes(changed, count, have);
    sink s = {.fd = fd};
    if (have == FGF_NO_VERSION || CHANGED_HEADER + t.gaps + t.entries * 4 >= 1 + count * 4)
        write_all(&s, weights, count);
    else
        write_changes(&s, weights, changed, count, have, t.entries);
    drain(&s);
    if (s.failed)
        return -1;
    *len = s.len;
    *checksum = s.checksum;
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
