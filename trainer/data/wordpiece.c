/*
 * wordpiece.c - WordPiece as in BERT's uncased models. Text is split into words first: control characters and invalid
 * bytes are dropped, white space separates, punctuation and CJK characters are words of their own, everything else is
 * lower-cased and loses its accents. A word is then the longest piece of the vocabulary that it begins with, then the
 * longest "##" piece that continues it, and so on; a word for which that fails, or of over 100 characters, is [UNK].
 * Words are cached, because most of a text consists of few.
 */
#include "trainer/data/wordpiece.h"
#include "trainer/data/unicode.h"
#include "io/unpack_file.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_CHARS = 100, WORD_BYTES = 4 * WORD_CHARS + 4 * FGT_FOLD_MAX, CACHED_MAX = 1 << 20, VOCAB_MAX = 1 << 24 };
static const uint64_t file_max = UINT64_C(64) << 20;

struct fgt_wordpiece {
    fgt_string_map starts;        /* pieces that begin a word */
    fgt_string_map continuations; /* those with ##, without it */
    uint32_t vocab;
    size_t longest_piece; /* bytes of a piece */
    fgt_wordpiece_special special;
    uint32_t *by_id; /* index of a word * 2, + 1 for continuations */
};

/* The word being read. */
typedef struct reader {
    const fgt_wordpiece *pieces;
    fgt_wordpiece_cache *cache;
    fgt_ids *ids;
    unsigned char word[WORD_BYTES];
    size_t len, chars;
} reader;

static int add_piece(fgt_wordpiece *pieces, const unsigned char *line, size_t len, uint32_t id) {
    int is_continuation = len > 2 && line[0] == '#' && line[1] == '#';
    if (len > pieces->longest_piece)
        pieces->longest_piece = len;
    return fgt_string_map_put(is_continuation ? &pieces->continuations : &pieces->starts, line + 2 * is_continuation,
                              len - 2 * (size_t)is_continuation, id);
}

static int find_specials(fgt_wordpiece *pieces, fgio_reason *why) {
    fgt_wordpiece_special *s = &pieces->special;
    const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    uint32_t *const to[] = {&s->unknown, &s->first, &s->separator, &s->mask};
    for (int i = 0; i < 4; i++) {
        *to[i] = fgt_string_map_get(&pieces->starts, (const unsigned char *)names[i], strlen(names[i]));
        if (*to[i] == FGT_STRING_NONE)
            return fgio_fail(why, "line %u: the end; expected a line '%s'", pieces->vocab + 1, names[i]);
    }
    return 0;
}

static int load_pieces(fgt_wordpiece *pieces, const unsigned char *text, size_t len, fgio_reason *why) {
    for (size_t at = 0, end; at < len; at = end + 1) {
        const unsigned char *found = memchr(text + at, '\n', len - at);
        end = found == NULL ? len : (size_t)(found - text);
        size_t width = end - at;
        width -= width > 0 && text[end - 1] == '\r';
        if (width == 0 || pieces->vocab == VOCAB_MAX)
            return fgio_fail(why, "line %u, byte %zu: expected a token, one of at most %d", pieces->vocab + 1, at,
                             VOCAB_MAX);
        if (add_piece(pieces, text + at, width, pieces->vocab++) != 0)
            return fgio_fail(why, "not enough memory");
    }
    return find_specials(pieces, why);
}

/* Of a duplicate line the last one is used, and the first has no text. */
static int index_pieces(fgt_wordpiece *pieces, fgio_reason *why) {
    pieces->by_id = malloc(pieces->vocab * sizeof *pieces->by_id);
    if (pieces->by_id == NULL)
        return fgio_fail(why, "not enough memory");
    for (uint32_t id = 0; id < pieces->vocab; id++)
        pieces->by_id[id] = FGT_STRING_NONE;
    for (uint32_t i = 0; i < pieces->starts.count; i++)
        pieces->by_id[pieces->starts.words[i].value] = 2 * i;
    for (uint32_t i = 0; i < pieces->continuations.count; i++)
        pieces->by_id[pieces->continuations.words[i].value] = 2 * i + 1;
    return 0;
}

const unsigned char *fgt_wordpiece_piece(const fgt_wordpiece *pieces, uint32_t id, size_t *len, int *is_continuation) {
    uint32_t number = pieces->by_id[id];
    *is_continuation = number & 1;
    *len = 0;
    if (number == FGT_STRING_NONE)
        return pieces->starts.pool;
    const fgt_string_map *map = *is_continuation ? &pieces->continuations : &pieces->starts;
    const fgt_string_entry *word = &map->words[number / 2];
    *len = word->len;
    return map->pool + word->at;
}

int fgt_wordpiece_create(const unsigned char *text, size_t len, fgt_wordpiece **out, fgio_reason *why) {
    fgt_wordpiece *pieces = calloc(1, sizeof *pieces);
    if (pieces == NULL)
        return fgio_fail(why, "not enough memory");
    int status = load_pieces(pieces, text, len, why);
    if (status == 0)
        status = index_pieces(pieces, why);
    if (status == 0)
        *out = pieces;
    else
        fgt_wordpiece_destroy(pieces);
    return status;
}

int fgt_wordpiece_open(const char *path, fgt_wordpiece **pieces) {
    fgio_bytes bytes;
    fgio_reason why;
    if (fgio_unpack_file(path, file_max, &bytes) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    int bad = fgt_wordpiece_create(bytes.data, bytes.len, pieces, &why);
    fgio_bytes_free(&bytes);
    return bad ? fgio_error("%s: %s", path, why.text) : FGIO_EXIT_OK;
}

void fgt_wordpiece_destroy(fgt_wordpiece *pieces) {
    if (pieces == NULL)
        return;
    fgt_string_map_free(&pieces->starts);
    fgt_string_map_free(&pieces->continuations);
    free(pieces->by_id);
    free(pieces);
}

const fgt_wordpiece_special *fgt_wordpiece_specials(const fgt_wordpiece *pieces) {
    return &pieces->special;
}

uint32_t fgt_wordpiece_vocab(const fgt_wordpiece *pieces) {
    return pieces->vocab;
}

void fgt_wordpiece_cache_free(fgt_wordpiece_cache *cache) {
    fgt_string_map_free(&cache->words);
    fgt_ids_free(&cache->cached_ids);
}

/* The longest piece at word[at]. A cut inside a character matches nothing, as pieces are whole characters. */
static uint32_t longest_piece(const reader *r, size_t at, size_t *end) {
    const fgt_string_map *map = at == 0 ? &r->pieces->starts : &r->pieces->continuations;
    size_t max = r->len - at < r->pieces->longest_piece ? r->len - at : r->pieces->longest_piece;
    for (size_t len = max; len > 0; len--) {
        uint32_t id = fgt_string_map_get(map, r->word + at, len);
        if (id != FGT_STRING_NONE) {
            *end = at + len;
            return id;
        }
    }
    return FGT_STRING_NONE;
}

/* Appends the pieces of the word to a list. */
static int split_word(const reader *r, fgt_ids *ids) {
    size_t begin = ids->len;
    for (size_t at = 0; at < r->len;) {
        uint32_t id = r->chars > WORD_CHARS ? FGT_STRING_NONE : longest_piece(r, at, &at);
        if (id == FGT_STRING_NONE) {
            ids->len = begin;
            return fgt_ids_push(ids, r->pieces->special.unknown);
        }
        if (fgt_ids_push(ids, id) != 0)
            return -1;
    }
    return 0;
}

static int split_word_cached(const reader *r) {
    fgt_ids *cached_ids = &r->cache->cached_ids;
    uint32_t at = fgt_string_map_get(&r->cache->words, r->word, r->len);
    if (at == FGT_STRING_NONE) {
        if (r->cache->words.count == CACHED_MAX || r->chars > WORD_CHARS)
            return split_word(r, r->ids);
        cached_ids->wide = 1;
        at = (uint32_t)cached_ids->len;
        if (fgt_ids_push(cached_ids, 0) != 0 || split_word(r, cached_ids) != 0 ||
            fgt_string_map_put(&r->cache->words, r->word, r->len, at) != 0)
            return -1;
        ((int32_t *)cached_ids->data)[at] = (int32_t)(cached_ids->len - at - 1);
    }
    size_t count = (size_t)fgt_ids_at(cached_ids, at);
    for (size_t i = 1; i <= count; i++)
        if (fgt_ids_push(r->ids, (uint32_t)fgt_ids_at(cached_ids, at + i)) != 0)
            return -1;
    return 0;
}

static int end_word(reader *r) {
    int status = r->len == 0 ? 0 : split_word_cached(r);
    r->len = r->chars = 0;
    return status;
}

/* Adds a character to the word. Of a word that is too long only the beginning is stored; it becomes [UNK]. */
static void append_char(reader *r, uint32_t point) {
    uint32_t folded[FGT_FOLD_MAX];
    size_t n = fgt_char_fold(point, folded);
    for (size_t i = 0; i < n; i++) {
        if (r->chars <= WORD_CHARS)
            r->len += fgt_utf8_put(folded[i], r->word + r->len);
        r->chars++;
    }
}

static int is_cjk(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81D) || (c >= 0x2B820 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

/* ASCII symbols count as punctuation, whatever their Unicode class. */
static int is_punctuation(uint32_t c, fgt_char kind) {
    return kind == FGT_CHAR_PUNCTUATION || (c < 0x80 && kind == FGT_CHAR_OTHER);
}

static int is_dropped(uint32_t c, fgt_char kind) {
    return c == FGT_REPLACEMENT || kind == FGT_CHAR_CONTROL || c == 0x0B || c == 0x0C || c == 0x85;
}

static int process_char(reader *r, uint32_t point) {
    fgt_char kind = fgt_char_class(point);
    if (is_dropped(point, kind))
        return 0;
    if (kind == FGT_CHAR_SPACE)
        return end_word(r);
    if (!is_punctuation(point, kind) && !is_cjk(point)) {
        append_char(r, point);
        return 0;
    }
    if (end_word(r) != 0)
        return -1;
    append_char(r, point);
    return end_word(r);
}

int fgt_wordpiece_encode(const fgt_wordpiece *pieces, fgt_wordpiece_cache *cache, const unsigned char *text, size_t len,
                         fgt_ids *ids) {
    reader r = {.pieces = pieces, .cache = cache, .ids = ids};
    for (size_t at = 0; at < len;) {
        uint32_t point;
        at += fgt_utf8_get(text + at, len - at, &point);
        if (process_char(&r, point) != 0)
            return -1;
    }
    return end_word(&r);
}
