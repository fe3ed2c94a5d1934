/*
 * unpack_file.c - decompression of whole files with zlib and liblzma.
 *
 * Both fill a buffer that doubles whenever it is full, up to the limit, so that it is never more than twice the output.
 * A hostile .xz header may demand a large dictionary; it gets at most dictionary_max. Files of several members or
 * streams are read to the end, as gzip and xz do.
 */
#include "io/unpack_file.h"
#include "io/progress.h"

#include <limits.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { FIRST_CAPACITY = 1 << 16 };
static const uint64_t dictionary_max = UINT64_C(256) << 20;

/* The output buffer. */
typedef struct sink {
    fgio_reason *why;
    unsigned char *data;
    size_t len, cap;
    uint64_t limit;
} sink;

/* Grow the buffer if it is full. One byte above the limit is allowed, to distinguish too much from exactly enough. */
static int grow_sink(sink *to) {
    if (to->len > to->limit)
        return fgio_fail(to->why, "unpacks to more than %llu bytes, the most that is allowed here",
                         (unsigned long long)to->limit);
    if (to->len < to->cap)
        return 0;
    uint64_t most = to->limit < SIZE_MAX ? to->limit + 1 : SIZE_MAX;
    uint64_t wanted = to->cap == 0 ? FIRST_CAPACITY : (uint64_t)to->cap * 2;
    size_t cap = (size_t)(wanted < most ? wanted : most);
    unsigned char *grown = realloc(to->data, cap);
    if (grown == NULL)
        return fgio_fail(to->why, "not enough memory to unpack it (over %zu bytes)", to->len);
    to->data = grown;
    to->cap = cap;
    return 0;
}

static int gzip_error(const sink *to, const z_stream *z, size_t offset, int code) {
    if (code == Z_MEM_ERROR)
        return fgio_fail(to->why, "not enough memory to unpack it");
    if (code == Z_OK || code == Z_BUF_ERROR)
        return fgio_fail(to->why, "byte %zu: the gzip data ends too early", offset);
    return fgio_fail(to->why, "byte %zu: expected gzip data (%s)", offset, z->msg ? z->msg : "damaged");
}

/* zlib counts in 32 bits, so the input is passed in chunks. */
static int run_gzip(z_stream *z, const fgio_bytes *packed, sink *to) {
    size_t given = 0;
    for (;;) {
        if (z->avail_in == 0) {
            size_t piece = packed->len - given < INT_MAX ? packed->len - given : INT_MAX;
            z->next_in = packed->data + given;
            z->avail_in = (unsigned)piece;
            given += piece;
        }
        if (grow_sink(to) != 0)
            return -1;
        size_t room = to->cap - to->len < INT_MAX ? to->cap - to->len : INT_MAX;
        z->next_out = to->data + to->len;
        z->avail_out = (unsigned)room;
        int code = inflate(z, Z_NO_FLUSH);
        size_t made = room - z->avail_out, left = z->avail_in + (packed->len - given);
        to->len += made;
        if (code == Z_STREAM_END) {
            if (left == 0)
                return grow_sink(to);
            code = inflateReset(z); /* another member */
        } else if (code == Z_OK && made == 0 && left == 0) {
            return gzip_error(to, z, packed->len, code);
        }
        if (code != Z_OK)
            return gzip_error(to, z, packed->len - left, code);
    }
}

static int unpack_gzip(const fgio_bytes *packed, sink *to) {
    z_stream z = {0};
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return fgio_fail(to->why, "not enough memory to unpack it");
    int code = run_gzip(&z, packed, to);
    inflateEnd(&z);
    return code;
}

static int xz_error(const sink *to, const fgio_bytes *packed, const lzma_stream *z, lzma_ret code) {
    size_t offset = packed->len - z->avail_in;
    switch (code) {
    case LZMA_MEM_ERROR: return fgio_fail(to->why, "not enough memory to unpack it");
    case LZMA_MEMLIMIT_ERROR:
        return fgio_fail(to->why, "byte %zu: its dictionary needs more than %llu bytes of memory", offset,
                         (unsigned long long)dictionary_max);
    case LZMA_OPTIONS_ERROR: return fgio_fail(to->why, "byte %zu: uses an unknown xz filter", offset);
    case LZMA_BUF_ERROR: return fgio_fail(to->why, "byte %zu: the xz data ends too early", offset);
    case LZMA_FORMAT_ERROR: return fgio_fail(to->why, "byte %zu: expected the start of an xz file", offset);
    default: return fgio_fail(to->why, "byte %zu: expected xz data, found damage", offset);
    }
}

static int unpack_xz(const fgio_bytes *packed, sink *to) {
    lzma_stream z = LZMA_STREAM_INIT;
    if (lzma_stream_decoder(&z, dictionary_max, LZMA_CONCATENATED) != LZMA_OK)
        return fgio_fail(to->why, "not enough memory to unpack it");
    z.next_in = packed->data;
    z.avail_in = packed->len;
    lzma_ret code = LZMA_OK;
    int status = 0;
    while (code == LZMA_OK && (status = grow_sink(to)) == 0) {
        z.next_out = to->data + to->len;
        z.avail_out = to->cap - to->len;
        code = lzma_code(&z, LZMA_FINISH);
        to->len = to->cap - z.avail_out;
    }
    if (status == 0)
        status = code == LZMA_STREAM_END ? grow_sink(to) : xz_error(to, packed, &z, code);
    lzma_end(&z);
    return status;
}

static int copy_plain(const fgio_bytes *packed, sink *to) {
    if (packed->len > to->limit)
        return fgio_fail(to->why, "has %zu bytes, more than the %llu that are allowed here", packed->len,
                         (unsigned long long)to->limit);
    to->data = malloc(packed->len + 1);
    if (to->data == NULL)
        return fgio_fail(to->why, "not enough memory");
    if (packed->len > 0)
        memcpy(to->data, packed->data, packed->len);
    to->len = packed->len;
    return 0;
}

int fgio_unpack(fgio_packing packing, const fgio_bytes *packed, uint64_t limit, fgio_bytes *bytes, fgio_reason *why) {
    sink to = {.why = why, .limit = limit};
    int status = packing == FGIO_GZIP ? unpack_gzip(packed, &to)
                 : packing == FGIO_XZ ? unpack_xz(packed, &to)
                                      : copy_plain(packed, &to);
    if (status == 0)
        *bytes = (fgio_bytes){to.data, to.len};
    else
        free(to.data);
    return status;
}

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

fgio_packing fgio_packing_of(const char *path) {
    return ends_with(path, ".gz") ? FGIO_GZIP : ends_with(path, ".xz") ? FGIO_XZ : FGIO_PLAIN;
}

int fgio_unpack_file(const char *path, uint64_t limit, fgio_bytes *bytes) {
    fgio_bytes packed;
    fgio_reason why;
    fgio_packing packing = fgio_packing_of(path);
    if (fgio_file_read(path, &packed) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (packing == FGIO_PLAIN && packed.len <= limit) { /* no second copy */
        *bytes = packed;
        return FGIO_EXIT_OK;
    }
    fgio_progress *meter = fgio_progress_begin(0, "unpacking %s", path);
    int status = fgio_unpack(packing, &packed, limit, bytes, &why);
    fgio_progress_end(meter);
    fgio_bytes_free(&packed);
    return status ? fgio_error("%s: %s", path, why.text) : FGIO_EXIT_OK;
}

char *fgio_unpack_find(const char *dir, const char *name) {
    static const char *const ends[] = {"", ".xz", ".gz"};
    size_t cap = strlen(dir) + strlen(name) + 5;
    char *path = malloc(cap);
    for (size_t i = 0; path != NULL && i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, cap, "%s/%s%s", dir, name, ends[i]);
        if (fgio_file_exists(path))
            return path;
    }
    free(path);
    return NULL;
}
