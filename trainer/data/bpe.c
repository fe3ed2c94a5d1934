/*
 * bpe.c - the files of GPT-2's tokenizer. Their tokens are byte strings, written with one printable character for each
 * byte (the 188 printable ones of Latin-1 stand for themselves, the others are U+0100 and up in order); they are
 * decoded to bytes here. Merges become a hash table from two token ids to the rank and the product, so that encoding
 * never touches strings. A merge must build on bytes and earlier merges and make a new token: that is how such tables
 * are learned, and what lets bpe_encode.c merge one pair at a time.
 */
#include "trainer/data/bpe.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/unicode.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 1 << 20, BYTE_CHARS = 256 + 68 };

typedef struct merge {
    uint32_t left, right, rank, product; /* product FGT_STRING_NONE: a free slot */
} merge;

struct fgt_bpe {
    uint32_t vocab;
    size_t *at;         /* vocab: offset of a token in the pool */
    uint32_t *len;      /* vocab */
    fgt_string_map map; /* tokens as bytes */
    unsigned char *pool;
    uint32_t byte[256];
    merge *merges;
    uint32_t mask, count;
};

/* The byte of each character, -1 for none. */
static void build_byte_table(int16_t table[BYTE_CHARS]) {
    int16_t next = 256;
    for (int i = 0; i < BYTE_CHARS; i++)
        table[i] = -1;
    for (int16_t b = 0; b < 256; b++) {
        int plain = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        table[plain ? b : next++] = b;
    }
}

size_t fgt_bpe_spell(const unsigned char *bytes, size_t len, char *dst) {
    int16_t table[BYTE_CHARS];
    uint16_t character[256];
    size_t n = 0;
    build_byte_table(table);
    for (uint16_t i = 0; i < BYTE_CHARS; i++)
        if (table[i] >= 0)
            character[table[i]] = i;
    for (size_t i = 0; i < len; i++)
        n += fgt_utf8_put(character[bytes[i]], (unsigned char *)dst + n);
    return n;
}

/* Decodes characters to bytes. Returns their number, 0 where a character has no byte. */
static size_t decode_spelling(const int16_t table[BYTE_CHARS], const unsigned char *text, size_t len,
                              unsigned char *dst) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t point;
        i += fgt_utf8_get(text + i, len - i, &point);
        if (point >= BYTE_CHARS || table[point] < 0)
            return 0;
        dst[n++] = (unsigned char)table[point];
    }
    return n;
}

/* Adds one entry. A token with other characters (a special one) is stored as written and is never a result of encoding.
 * */
static int add_token(fgt_bpe *bpe, const char *key, json_t *value, const int16_t table[BYTE_CHARS], size_t *used,
                     fgio_reason *why) {
    size_t len = strlen(key);
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    char name[64];
    if (id < 0 || id >= bpe->vocab || bpe->len[id] != 0 || len == 0)
        return fgio_fail(why, "token '%s': expected a number of its own below %u, the number of tokens",
                         fgio_printable(key, name, sizeof name), bpe->vocab);
    unsigned char *dst = bpe->pool + *used;
    size_t n = decode_spelling(table, (const unsigned char *)key, len, dst);
    if (n == 0)
        memcpy(dst, key, n = len);
    else if (fgt_string_map_put(&bpe->map, dst, n, (uint32_t)id) != 0)
        return fgio_fail(why, "not enough memory");
    bpe->at[id] = *used;
    bpe->len[id] = (uint32_t)n;
    *used += n;
    return 0;
}

static int find_byte_tokens(fgt_bpe *bpe, fgio_reason *why) {
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        bpe->byte[b] = fgt_string_map_get(&bpe->map, &byte, 1);
        if (bpe->byte[b] == FGT_STRING_NONE)
            return fgio_fail(why, "no token for byte 0x%02x; expected one for each of the 256 bytes", (unsigned)b);
    }
    return 0;
}

static int load_tokens(fgt_bpe *bpe, json_t *root, size_t capacity, fgio_reason *why) {
    int16_t table[BYTE_CHARS];
    const char *key;
    json_t *value;
    size_t used = 0;
    bpe->vocab = (uint32_t)json_object_size(root);
    bpe->at = calloc(bpe->vocab, sizeof *bpe->at);
    bpe->len = calloc(bpe->vocab, sizeof *bpe->len);
    bpe->pool = malloc(capacity); /* unescaped tokens are not longer than the file */
    if (bpe->at == NULL || bpe->len == NULL || bpe->pool == NULL)
        return fgio_fail(why, "not enough memory");
    build_byte_table(table);
    json_object_foreach(root, key, value) {
        if (add_token(bpe, key, value, table, &used, why) != 0)
            return -1;
    }
    return find_byte_tokens(bpe, why);
}

int fgt_bpe_create(const unsigned char *json, size_t len, fgt_bpe **out, fgio_reason *why) {
    json_error_t error;
    json_t *root = json_loadb((const char *)json, len, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return fgio_fail(why, "byte %d: expected JSON (%s)", error.position, error.text);
    size_t count = json_object_size(root); /* 0 if it is not an object */
    fgt_bpe *bpe = NULL;
    int status = -1;
    if (count < 256 || count > TOKENS_MAX)
        fgio_fail(why, "byte 0: expected a JSON object of 256 to %d tokens, found %zu", TOKENS_MAX, count);
    else if ((bpe = calloc(1, sizeof *bpe)) == NULL)
        fgio_fail(why, "not enough memory");
    else
        status = load_tokens(bpe, root, len, why);
    json_decref(root);
    if (status == 0)
        *out = bpe;
    else
        fgt_bpe_destroy(bpe);
    return status;
}

static uint32_t slot_of(const fgt_bpe *bpe, uint32_t left, uint32_t right) {
    uint32_t slot = (uint32_t)(fgt_mix((uint64_t)left << 32 | right) >> 32) & bpe->mask;
    while (bpe->merges[slot].product != FGT_STRING_NONE &&
           (bpe->merges[slot].left != left || bpe->merges[slot].right != right))
        slot = (slot + 1) & bpe->mask;
    return slot;
}

uint32_t fgt_bpe_merge(const fgt_bpe *bpe, uint32_t left, uint32_t right, uint32_t *rank) {
    if (bpe->merges == NULL)
        return FGT_STRING_NONE;
    const merge *found = &bpe->merges[slot_of(bpe, left, right)];
    *rank = found->rank;
    return found->product;
}

/* One line: two existing tokens whose product does not exist yet. `exists` has a flag for each token. */
static int add_merge(fgt_bpe *bpe, const int16_t table[BYTE_CHARS], const unsigned char *line, size_t len,
                     unsigned char *exists) {
    unsigned char bytes[512];
    const unsigned char *space = memchr(line, ' ', len);
    if (space == NULL || len > sizeof bytes)
        return -1;
    size_t first = (size_t)(space - line), n = decode_spelling(table, line, first, bytes);
    size_t m = n == 0 ? 0 : decode_spelling(table, space + 1, len - first - 1, bytes + n);
    uint32_t left = fgt_string_map_get(&bpe->map, bytes, n), right = fgt_string_map_get(&bpe->map, bytes + n, m);
    uint32_t product = m == 0 ? FGT_STRING_NONE : fgt_string_map_get(&bpe->map, bytes, n + m);
    if (left == FGT_STRING_NONE || right == FGT_STRING_NONE || product == FGT_STRING_NONE || !exists[left] ||
        !exists[right] || exists[product])
        return -1;
    exists[product] = 1;
    bpe->merges[slot_of(bpe, left, right)] = (merge){left, right, bpe->count++, product};
    return 0;
}

static int add_merges(fgt_bpe *bpe, const unsigned char *text, size_t len, unsigned char *exists, fgio_reason *why) {
    int16_t table[BYTE_CHARS];
    build_byte_table(table);
    for (int b = 0; b < 256; b++)
        exists[bpe->byte[b]] = 1;
    size_t line = 1;
    for (size_t at = 0, end; at < len; at = end + 1, line++) {
        const unsigned char *found = memchr(text + at, '\n', len - at);
        end = found == NULL ? len : (size_t)(found - text);
        size_t width = end - at;
        width -= width > 0 && text[end - 1] == '\r';
        if (width == 0 || (line == 1 && width >= 8 && memcmp(text, "#version", 8) == 0))
            continue;
        if (add_merge(bpe, table, text + at, width, exists) != 0)
            return fgio_fail(why,
                             "line %zu, byte %zu: expected two tokens of the vocabulary, of bytes or made by "
                             "earlier lines, that together are a token not made before",
                             line, at);
    }
    return 0;
}

int fgt_bpe_merges(fgt_bpe *bpe, const unsigned char *text, size_t len, fgio_reason *why) {
    uint32_t slots = 512;
    while (slots < 2 * bpe->vocab) /* every merge makes another token, so there are fewer merges than tokens */
        slots *= 2;
    bpe->mask = slots - 1;
    bpe->merges = malloc(slots * sizeof *bpe->merges);
    unsigned char *exists = calloc(bpe->vocab, 1);
    int status = -1;
    if (bpe->merges == NULL || exists == NULL) {
        fgio_fail(why, "not enough memory");
    } else {
        for (uint32_t i = 0; i < slots; i++)
            bpe->merges[i].product = FGT_STRING_NONE;
        status = add_merges(bpe, text, len, exists, why);
    }
    free(exists);
    return status;
}

void fgt_bpe_destroy(fgt_bpe *bpe) {
    if (bpe == NULL)
        return;
    fgt_string_map_free(&bpe->map);
    free(bpe->at);
    free(bpe->len);
    free(bpe->pool);
    free(bpe->merges);
    free(bpe);
}

uint32_t fgt_bpe_vocab(const fgt_bpe *bpe) {
    return bpe->vocab;
}

int32_t fgt_bpe_end(const fgt_bpe *bpe) {
    static const unsigned char name[] = "<|endoftext|>";
    uint32_t id = fgt_string_map_get(&bpe->map, name, sizeof name - 1);
    return id == FGT_STRING_NONE ? -1 : (int32_t)id;
}

const unsigned char *fgt_bpe_piece(const fgt_bpe *bpe, uint32_t id, size_t *len) {
    *len = bpe->len[id];
    return bpe->pool + bpe->at[id];
}

uint32_t fgt_bpe_byte(const fgt_bpe *bpe, unsigned char byte) {
    return bpe->byte[byte];
}
