/*
 * text_files.c - reading text files. Plain files of named splits are streamed, so that WikiText-103 needs the memory of
 * its tokens but not that of its bytes; compressed files are decompressed as a whole.
 *
 * A piece may end before a space between two visible ASCII characters: words of GPT-2's BPE begin with their space, and
 * no WordPiece token spans one, so tokens do not depend on the pieces.
 *
 * Any other text is divided into three splits: the first 90 % of its bytes for training, the next 5 % for validation,
 * the last 5 % for testing. A cut moves to the next line if that begins within a thousand bytes and half a split, or
 * else to the next character.
 */
#include "trainer/data/text_files.h"
#include "io/progress.h"
#include "io/unpack_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 16 << 20, LINE_SEARCH_MAX = 1000 };
static const uint64_t file_max = UINT64_C(4) << 30;

/* ---- pieces ---- */

static int is_visible_ascii(unsigned char c) {
    return c > ' ' && c < 0x7F;
}

/* The last position to cut at, or 0. */
static size_t last_safe_cut(const unsigned char *text, size_t len) {
    for (size_t i = len < 2 ? 0 : len - 2; i > 0; i--)
        if (text[i] == ' ' && is_visible_ascii(text[i - 1]) && is_visible_ascii(text[i + 1]))
            return i;
    return 0;
}

/* Buffer for reading a file. */
typedef struct stream {
    FILE *file;
    unsigned char *data;
    size_t len, cap;
    uint64_t total;
} stream;

static int grow_buffer(stream *s) {
    unsigned char *data = realloc(s->data, s->cap * 2);
    if (data == NULL)
        return -1;
    s->data = data;
    s->cap *= 2;
    return 0;
}

/* Passes on the text up to the last cut, or all of it at the end. */
static int emit_piece(stream *s, int end, fgt_split split, fgt_text_fn *fn, void *ctx) {
    size_t cut = end ? s->len : last_safe_cut(s->data, s->len);
    if (cut == 0)
        return end || grow_buffer(s) == 0 ? FGIO_EXIT_OK : fgio_error("not enough memory for a text");
    int status = fn(ctx, split, s->data, cut);
    s->len -= cut;
    memmove(s->data, s->data + cut, s->len);
    return status;
}

int fgt_text_stream(const char *path, size_t piece, fgt_split split, fgt_text_fn *fn, void *ctx) {
    stream s = {.file = fopen(path, "rb"), .data = malloc(piece), .cap = piece};
    int status = FGIO_EXIT_OK, end = 0;
    struct stat st = {0};
    if (s.file == NULL || s.data == NULL)
        status = fgio_error("%s: cannot read: %s", path, strerror(errno));
    else if (fstat(fileno(s.file), &st) != 0)
        st.st_size = 0;
    fgio_progress *meter = fgio_progress_begin((uint64_t)st.st_size, "tokenizing %s", path);
    while (status == FGIO_EXIT_OK && !end) {
        size_t got = fread(s.data + s.len, 1, s.cap - s.len, s.file);
        s.len += got;
        s.total += got;
        end = s.len < s.cap;
        if (ferror(s.file))
            status = fgio_error("%s: cannot read: %s", path, strerror(errno));
        else if (s.total > file_max)
            status = fgio_error("%s: has more than the %llu bytes that are allowed here", path,
                                (unsigned long long)file_max);
        else
            status = emit_piece(&s, end, split, fn, ctx);
        fgio_progress_update(meter, s.total);
    }
    fgio_progress_end(meter);
    if (s.file != NULL)
        fclose(s.file);
    free(s.data);
    return status;
}

/* ---- files of splits ---- */

static const char *const layouts[][FGT_SPLITS] = {
    {"train.txt", "valid.txt", "test.txt"},
    {"wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"},
    {"wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static int read_split(const char *path, fgt_split split, fgt_text_fn *fn, void *ctx) {
    fgio_bytes bytes;
    if (fgio_packing_of(path) == FGIO_PLAIN)
        return fgt_text_stream(path, PIECE, split, fn, ctx);
    int status = fgio_unpack_file(path, file_max, &bytes);
    if (status == FGIO_EXIT_OK) {
        status = fn(ctx, split, bytes.data, bytes.len);
        fgio_bytes_free(&bytes);
    }
    return status;
}

static int read_layout(const char *dir, const char *const names[FGT_SPLITS], fgt_text_fn *fn, void *ctx) {
    int status = FGIO_EXIT_OK;
    for (int i = 0; i < FGT_SPLITS && status == FGIO_EXIT_OK; i++) {
        char *path = fgio_unpack_find(dir, names[i]);
        if (path != NULL)
            status = read_split(path, (fgt_split)i, fn, ctx);
        free(path);
    }
    return status;
}

/* ---- any text ---- */

/* Position of a cut near this one. */
static size_t find_cut(const fgio_bytes *text, size_t at) {
    size_t part = text->len / 40,
           max = part < LINE_SEARCH_MAX ? part : LINE_SEARCH_MAX; /* half of 5 %: no split is left empty */
    const unsigned char *line = at == 0 ? NULL : memchr(text->data + at - 1, '\n', max);
    if (line != NULL)
        return (size_t)(line - text->data) + 1;
    while (at < text->len && (text->data[at] & 0xC0) == 0x80)
        at++;
    return at;
}

static int split_text(const char *path, const fgio_bytes *text, fgt_text_fn *fn, void *ctx) {
    size_t valid = find_cut(text, text->len - text->len / 10), test = find_cut(text, text->len - text->len / 20);
    char size[32];
    fgio_hint("%s has no files for each split: of its %s the first 90 %% train, the next 5 %% validate, the last 5 %% "
              "test",
              path, fgio_bytes_text(text->len, size, sizeof size));
    int status = fn(ctx, FGT_TRAIN, text->data, valid);
    if (status == FGIO_EXIT_OK && test > valid)
        status = fn(ctx, FGT_VALID, text->data + valid, test - valid);
    if (status == FGIO_EXIT_OK && text->len > test)
        status = fn(ctx, FGT_TEST, text->data + test, text->len - test);
    return status;
}

static int append_file(const char *path, fgio_bytes *text) {
    fgio_bytes more;
    int status = fgio_unpack_file(path, file_max, &more);
    if (status != FGIO_EXIT_OK)
        return status;
    unsigned char *data = text->data == NULL ? NULL : realloc(text->data, text->len + more.len + 1);
    if (text->data == NULL) { /* avoids a second copy of a single file */
        *text = more;
        return FGIO_EXIT_OK;
    }
    if (data != NULL) {
        memcpy(data + text->len, more.data, more.len);
        *text = (fgio_bytes){data, text->len + more.len};
    }
    fgio_bytes_free(&more);
    if (data == NULL)
        return fgio_error("%s: not enough memory for it", path);
    return text->len <= file_max ? FGIO_EXIT_OK
                                 : fgio_error("%s: with it the texts have more than the %llu bytes that are allowed",
                                              path, (unsigned long long)file_max);
}

/* Files of tokenizers, which are often beside a text. */
static int is_vocabulary(const char *name) {
    static const char *const names[] = {"merges.txt", "vocab.txt"};
    for (int i = 0; i < 2; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

static int is_text(const struct dirent *entry) {
    static const char *const ends[] = {".txt", ".txt.xz", ".txt.gz"};
    size_t len = strlen(entry->d_name);
    for (int i = 0; i < 3; i++)
        if (len > strlen(ends[i]) && strcmp(entry->d_name + len - strlen(ends[i]), ends[i]) == 0)
            return entry->d_name[0] != '.' && !is_vocabulary(entry->d_name);
    return 0;
}

/* The same order whatever the locale is. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* All .txt files of a directory but those of tokenizers, concatenated. */
static int read_folder(const char *dir, fgio_bytes *text) {
    struct dirent **names = NULL;
    int count = scandir(dir, &names, is_text, by_name), status = FGIO_EXIT_OK;
    if (count <= 0)
        status = fgio_error("%s: expected 'train.txt', 'wiki.train.tokens', 'wiki.train.raw' or any other .txt file "
                            "in this directory but merges.txt and vocab.txt, plain, .gz or .xz",
                            dir);
    for (int i = 0; i < count; i++) {
        size_t room = strlen(dir) + strlen(names[i]->d_name) + 2;
        char *path = status == FGIO_EXIT_OK ? malloc(room) : NULL;
        if (path != NULL) {
            snprintf(path, room, "%s/%s", dir, names[i]->d_name);
            status = append_file(path, text);
        }
        free(path);
        free(names[i]);
    }
    free(names);
    return status;
}

/* The layout of a directory; LAYOUTS: none of them. */
static int find_layout(const char *dir) {
    for (int i = 0; i < LAYOUTS; i++) {
        char *train = fgio_unpack_find(dir, layouts[i][FGT_TRAIN]);
        free(train);
        if (train != NULL)
            return i;
    }
    return LAYOUTS;
}

int fgt_text_has_splits(const char *dir) {
    return find_layout(dir) < LAYOUTS;
}

int fgt_text_read(const char *path, fgt_text_fn *fn, void *ctx) {
    struct stat st;
    fgio_bytes text = {NULL, 0};
    if (stat(path, &st) != 0)
        return fgio_error("%s: %s; expected a text file or a directory with text", path, strerror(errno));
    int layout = S_ISDIR(st.st_mode) ? find_layout(path) : LAYOUTS;
    if (layout < LAYOUTS)
        return read_layout(path, layouts[layout], fn, ctx);
    int status = S_ISDIR(st.st_mode) ? read_folder(path, &text) : append_file(path, &text);
    if (status == FGIO_EXIT_OK)
        status = split_text(path, &text, fn, ctx);
    fgio_bytes_free(&text);
    return status;
}
