/*
 * bpe_encode.c - text to GPT-2's tokens. The text is split into words by GPT-2's rule (an apostrophe and its ending, or
 * letters, or numbers, or other characters, each with one space before it, or white space); then, in each word, the
 * adjacent pair with the lowest merge rank is merged until none is left. A heap holds the candidate pairs, so that a
 * word of n bytes takes n log n steps in the worst case; a cache has the tokens of words already seen, which makes real
 * text fast.
 */
#include "trainer/data/bpe.h"
#include "trainer/data/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORD_MAX = 1 << 20,  /* longer words are cut, which does not occur in real text */
    CACHED_LEN = 64,     /* longer words rarely repeat */
    CACHED_MAX = 1 << 20 /* words */
};

typedef struct symbol {
    uint32_t id; /* FGT_STRING_NONE: merged into the one before */
    uint32_t before, next;
} symbol;

typedef struct pair {
    uint32_t rank, at, left, right, product;
} pair;

typedef struct encoder {
    const fgt_bpe *bpe;
    fgt_string_map cache; /* word -> index in cached_ids */
    fgt_ids cached_ids;   /* wide: length, ids, length, ids, ... */
    symbol *symbols;
    pair *heap;
    size_t cap, heap_len;
} encoder;

/* Letter, number, white space; all other classes are FGT_CHAR_OTHER. */
static fgt_char class_at(const unsigned char *text, size_t len, size_t at, size_t *width) {
    uint32_t point;
    *width = fgt_utf8_get(text + at, len - at, &point);
    fgt_char kind = fgt_char_class(point);
    return kind <= FGT_CHAR_SPACE ? kind : FGT_CHAR_OTHER;
}

static size_t contraction_length(const unsigned char *text, size_t left) {
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t len = strlen(ends[i]);
        if (left > len && memcmp(text + 1, ends[i], len) == 0)
            return 1 + len;
    }
    return 0;
}

/* End of the run of one class that begins at `at`, and begin of its last character. */
static size_t run_end(const unsigned char *text, size_t len, size_t at, fgt_char kind, size_t *last) {
    size_t width;
    *last = at;
    while (at < len && class_at(text, len, at, &width) == kind) {
        *last = at;
        at += width;
    }
    return at;
}

size_t fgt_bpe_word_end(const unsigned char *text, size_t len, size_t at) {
    size_t width, last, skip = text[at] == '\'' ? contraction_length(text + at, len - at) : 0;
    if (skip > 0)
        return at + skip;
    fgt_char kind = class_at(text, len, at, &width);
    if (text[at] == ' ' && at + 1 < len && class_at(text, len, at + 1, &width) != FGT_CHAR_SPACE)
        kind = class_at(text, len, ++at, &width);
    size_t end = run_end(text, len, at, kind, &last);
    /* The last character of white space before a word belongs to that word, if it is not the only one. */
    if (kind == FGT_CHAR_SPACE && end < len && last > at)
        end = last;
    return end;
}

static int comes_before(const pair *a, const pair *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(encoder *e, pair item) {
    size_t i = e->heap_len++;
    for (; i > 0 && comes_before(&item, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = item;
}

static pair heap_pop(encoder *e) {
    pair top = e->heap[0], item = e->heap[--e->heap_len];
    size_t i = 0;
    for (size_t child = 1; child < e->heap_len; child = 2 * i + 1) {
        child += child + 1 < e->heap_len && comes_before(&e->heap[child + 1], &e->heap[child]);
        if (!comes_before(&e->heap[child], &item))
            break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = item;
    return top;
}

static void push_pair(encoder *e, uint32_t at) {
    uint32_t rank = 0, left = e->symbols[at].id, right = e->symbols[e->symbols[at].next].id;
    uint32_t product = fgt_bpe_merge(e->bpe, left, right, &rank);
    if (product != FGT_STRING_NONE)
        heap_push(e, (pair){rank, at, left, right, product});
}

/* Memory for a word of n bytes. A merge removes one pair and adds two, so 3 n pairs are enough. */
static int reserve(encoder *e, size_t n) {
    if (n <= e->cap)
        return 0;
    size_t cap = e->cap == 0 ? 256 : e->cap;
    while (cap < n)
        cap *= 2;
    symbol *symbols = realloc(e->symbols, cap * sizeof *symbols);
    e->symbols = symbols == NULL ? e->symbols : symbols;
    pair *heap = realloc(e->heap, 3 * cap * sizeof *heap);
    e->heap = heap == NULL ? e->heap : heap;
    if (symbols == NULL || heap == NULL)
        return -1;
    e->cap = cap;
    return 0;
}

/* Merges pairs, lowest rank first, leftmost first among equals. An entry of the heap may be stale; then the symbols at
 * its index are no longer the ones it was made for. */
static void merge_pairs(encoder *e, uint32_t n) {
    symbol *s = e->symbols;
    while (e->heap_len > 0) {
        pair top = heap_pop(e);
        uint32_t right = s[top.at].id == top.left ? s[top.at].next : n;
        if (right >= n || s[right].id != top.right)
            continue;
        s[top.at].id = top.product;
        s[top.at].next = s[right].next;
        s[right].id = FGT_STRING_NONE;
        if (s[right].next < n) {
            s[s[right].next].before = top.at;
            push_pair(e, top.at);
        }
        if (s[top.at].before < n)
            push_pair(e, s[top.at].before);
    }
}

static int encode_word(encoder *e, const unsigned char *word, uint32_t n, fgt_ids *ids) {
    if (reserve(e, n) != 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        e->symbols[i] = (symbol){fgt_bpe_byte(e->bpe, word[i]), i == 0 ? n : i - 1, i + 1};
    e->heap_len = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        push_pair(e, i);
    merge_pairs(e, n);
    for (uint32_t i = 0; i < n; i = e->symbols[i].next)
        if (fgt_ids_push(ids, e->symbols[i].id) != 0)
            return -1;
    return 0;
}

static int encode_cached(encoder *e, const unsigned char *word, uint32_t n, fgt_ids *ids) {
    uint32_t at = fgt_string_map_get(&e->cache, word, n);
    if (at == FGT_STRING_NONE) {
        if (e->cache.count == CACHED_MAX)
            return encode_word(e, word, n, ids);
        at = (uint32_t)e->cached_ids.len;
        if (fgt_ids_push(&e->cached_ids, 0) != 0 || encode_word(e, word, n, &e->cached_ids) != 0 ||
            fgt_string_map_put(&e->cache, word, n, at) != 0)
            return -1;
        ((int32_t *)e->cached_ids.data)[at] = (int32_t)(e->cached_ids.len - at - 1);
    }
    size_t count = (size_t)fgt_ids_at(&e->cached_ids, at);
    for (size_t i = 1; i <= count; i++)
        if (fgt_ids_push(ids, (uint32_t)fgt_ids_at(&e->cached_ids, at + i)) != 0)
            return -1;
    return 0;
}

int fgt_bpe_encode(const fgt_bpe *bpe, const unsigned char *text, size_t len, fgt_ids *ids) {
    encoder e = {.bpe = bpe, .cached_ids = {.wide = 1}};
    int status = 0;
    for (size_t at = 0, end; status == 0 && at < len; at = end) {
        end = fgt_bpe_word_end(text, len, at);
        end = end - at > WORD_MAX ? at + WORD_MAX : end;
        uint32_t n = (uint32_t)(end - at);
        status = n <= CACHED_LEN ? encode_cached(&e, text + at, n, ids) : encode_word(&e, text + at, n, ids);
    }
    fgt_string_map_free(&e.cache);
    fgt_ids_free(&e.cached_ids);
    free(e.symbols);
    free(e.heap);
    return status;
}
