/*
 * unpack_stream.c - decompression of a file in pieces. zlib reads plain files as they are, so there are two ways: its
 * own files, and liblzma over a buffer of input. A hostile .xz header gets at most dictionary_max bytes.
 */
#include "io/unpack_stream.h"
#include "io/unpack_file.h"

#include <errno.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { INPUT = 1 << 16, PIECE = 1 << 20 };
static const uint64_t dictionary_max = UINT64_C(256) << 20;

struct fgio_stream {
    gzFile plain; /* plain and gzip; NULL: */
    FILE *file;   /* xz */
    lzma_stream xz;
    uint64_t size, position;
    int ended; /* xz */
    unsigned char input[INPUT];
};

void fgio_stream_close(fgio_stream *s) {
    if (s == NULL)
        return;
    if (s->plain != NULL)
        gzclose(s->plain);
    if (s->file != NULL)
        fclose(s->file);
    lzma_end(&s->xz);
    free(s);
}

int fgio_stream_open(const char *path, fgio_stream **out) {
    fgio_stream *s = calloc(1, sizeof *s);
    struct stat st;
    if (s == NULL)
        return fgio_error("%s: not enough memory to read it", path);
    s->xz = (lzma_stream)LZMA_STREAM_INIT;
    int xz = fgio_packing_of(path) == FGIO_XZ, opened;
    errno = 0;
    if (xz)
        opened = (s->file = fopen(path, "rb")) != NULL &&
                 lzma_stream_decoder(&s->xz, dictionary_max, LZMA_CONCATENATED) == LZMA_OK;
    else
        opened = (s->plain = gzopen(path, "rb")) != NULL;
    if (!opened || stat(path, &st) != 0) {
        int status = fgio_error("%s: cannot read: %s", path, errno != 0 ? strerror(errno) : "not enough memory");
        fgio_stream_close(s);
        return status;
    }
    s->size = (uint64_t)st.st_size;
    *out = s;
    return FGIO_EXIT_OK;
}

static int read_plain(fgio_stream *s, unsigned char *dst, size_t n, size_t *got, fgio_reason *why) {
    while (*got < n) {
        size_t piece = n - *got < PIECE ? n - *got : PIECE;
        int count = gzread(s->plain, dst + *got, (unsigned)piece), code = Z_OK;
        const char *message = gzerror(s->plain, &code);
        if (count < 0 || code != Z_OK)
            return fgio_fail(why, "byte %llu: cannot unpack: %s", (unsigned long long)s->position,
                             code == Z_ERRNO ? strerror(errno) : message);
        s->position = (uint64_t)gzoffset(s->plain);
        if (count == 0)
            return 0;
        *got += (size_t)count;
    }
    return 0;
}

static const char *xz_message(lzma_ret code) {
    switch (code) {
    case LZMA_MEM_ERROR: return "not enough memory";
    case LZMA_MEMLIMIT_ERROR: return "its dictionary is too large";
    case LZMA_BUF_ERROR: return "the xz data ends too early";
    case LZMA_FORMAT_ERROR: return "expected the start of an xz file";
    default: return "expected xz data, found damage";
    }
}

static int read_xz(fgio_stream *s, unsigned char *dst, size_t n, size_t *got, fgio_reason *why) {
    s->xz.next_out = dst;
    s->xz.avail_out = n;
    while (s->xz.avail_out > 0 && !s->ended) {
        if (s->xz.avail_in == 0) {
            s->xz.next_in = s->input;
            s->xz.avail_in = fread(s->input, 1, INPUT, s->file);
            s->position += s->xz.avail_in;
        }
        if (ferror(s->file))
            return fgio_fail(why, "cannot read: %s", strerror(errno));
        lzma_ret code = lzma_code(&s->xz, s->xz.avail_in == 0 ? LZMA_FINISH : LZMA_RUN);
        s->ended = code == LZMA_STREAM_END;
        if (code != LZMA_OK && !s->ended)
            return fgio_fail(why, "byte %llu: cannot unpack: %s", (unsigned long long)(s->position - s->xz.avail_in),
                             xz_message(code));
    }
    *got = n - s->xz.avail_out;
    return 0;
}

int fgio_stream_read(fgio_stream *s, void *dst, size_t n, size_t *got, fgio_reason *why) {
    *got = 0;
    return s->plain != NULL ? read_plain(s, dst, n, got, why) : read_xz(s, dst, n, got, why);
}

uint64_t fgio_stream_position(const fgio_stream *s) {
    return s->position;
}

uint64_t fgio_stream_size(const fgio_stream *s) {
    return s->size;
}
