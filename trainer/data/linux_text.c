/*
 * linux_text.c - which files of Linux are sampled. A hash of the name decides: 2 in 100 files are for validation, 2 for
 * testing. Left out are headers that list registers or bindings (they repeat themselves and are a tenth of all source),
 * files that are hardly text of a person (very short or very long), and those that are not UTF-8.
 */
#include "trainer/data/linux_text.h"
#include "io/progress.h"
#include "io/tar.h"
#include "io/unpack_stream.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE_MIN = 500, SIZE_LIMIT = 200000, HELD_OUT = 50, TEXT_MAX = 1 << 30 };

/* FNV-1a, mixed. The first folder is the name of the archive, with its version. */
static uint64_t hash_name(const char *name) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001B3u;
    return fgt_mix(hash);
}

/* The path without leading "./" and without its first folder. */
static const char *path_inside(const char *name) {
    while (name[0] == '.' && name[1] == '/')
        name += 2;
    const char *slash = strchr(name, '/');
    return slash == NULL ? name : slash + 1;
}

static int has_ending(const char *name, const char *const *endings) {
    const char *dot = strrchr(name, '.');
    for (; dot != NULL && *endings != NULL; endings++)
        if (strcmp(dot, *endings) == 0)
            return 1;
    return 0;
}

static int is_sampled(const fgio_tar *tar, const char *name, uint64_t hash, uint32_t percent) {
    static const char *const prose[] = {".rst", ".txt", NULL}, *const source[] = {".c", ".h", ".S", NULL};
    if (!tar->is_file || tar->size < SIZE_MIN || tar->size > SIZE_LIMIT)
        return 0;
    if (strncmp(name, "drivers/gpu/drm/amd/include/", 28) == 0 || strstr(name, "/dt-bindings/") != NULL)
        return 0;
    return has_ending(name, prose) || (has_ending(name, source) && hash % 100 < percent);
}

static fgt_split split_of(uint64_t hash) {
    uint64_t part = hash / 100 % HELD_OUT;
    return part == 0 ? FGT_VALID : part == 1 ? FGT_TEST : FGT_TRAIN;
}

static int is_text(const unsigned char *text, size_t len) {
    uint32_t point;
    for (size_t i = 0, width; i < len; i += width) {
        width = fgt_utf8_get(text + i, len - i, &point);
        if (point == 0 || (point == FGT_REPLACEMENT && width == 1))
            return 0;
    }
    return 1;
}

static int reserve(fgt_corpus *c, size_t more) {
    if (c->text_len + more > c->text_cap) {
        size_t cap = 2 * (c->text_len + more);
        unsigned char *text = realloc(c->text, cap);
        if (text == NULL)
            return -1;
        c->text = text;
        c->text_cap = cap;
    }
    if (c->count == c->cap) {
        size_t cap = c->cap == 0 ? 1024 : 2 * c->cap;
        fgt_document *documents = realloc(c->documents, cap * sizeof *documents);
        if (documents == NULL)
            return -1;
        c->documents = documents;
        c->cap = cap;
    }
    return 0;
}

/* Adds the current file of an archive, if it is in the sample. */
static int add_file(fgio_tar *tar, uint32_t percent, fgt_corpus *c, fgio_reason *why) {
    const char *name = path_inside(tar->name);
    uint64_t hash = hash_name(name);
    if (!is_sampled(tar, name, hash, percent))
        return 0;
    size_t len = (size_t)tar->size;
    if (c->text_len + len > TEXT_MAX)
        return fgio_fail(why, "the sample has more than %d bytes; a smaller share of the source files helps", TEXT_MAX);
    if (reserve(c, len) != 0)
        return fgio_fail(why, "not enough memory for the sample");
    if (fgio_tar_content(tar, c->text + c->text_len, why) != 0)
        return -1;
    if (is_text(c->text + c->text_len, len)) {
        c->documents[c->count++] = (fgt_document){fgt_mix(hash), c->text_len, (uint32_t)len, split_of(hash)};
        c->text_len += len;
    }
    return 0;
}

static int read_stream(void *ctx, void *dst, size_t n, size_t *got, fgio_reason *why) {
    return fgio_stream_read(ctx, dst, n, got, why);
}

static int by_order(const void *a, const void *b) {
    const fgt_document *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

int fgt_linux_text_read(const char *path, uint32_t percent, fgt_corpus *corpus) {
    fgio_stream *stream;
    fgio_tar tar;
    fgio_reason why;
    if (fgio_stream_open(path, &stream) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    fgio_progress *meter = fgio_progress_begin(fgio_stream_size(stream), "reading %s", path);
    fgio_tar_open(&tar, read_stream, stream);
    int got;
    while ((got = fgio_tar_next(&tar, &why)) > 0) {
        if (add_file(&tar, percent, corpus, &why) != 0) {
            got = -1;
            break;
        }
        fgio_progress_update(meter, fgio_stream_position(stream));
    }
    fgio_progress_end(meter);
    fgio_stream_close(stream);
    if (got < 0)
        return fgio_error("%s: %s", path, why.text);
    if (corpus->count > 0)
        qsort(corpus->documents, corpus->count, sizeof *corpus->documents, by_order);
    return FGIO_EXIT_OK;
}

void fgt_corpus_free(fgt_corpus *corpus) {
    free(corpus->text);
    free(corpus->documents);
    *corpus = (fgt_corpus){0};
}
