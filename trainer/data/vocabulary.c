/*
 * Words and ids. The table is open addressing with linear probing, never more than half full; words live in one pool,
 * so a vocabulary is three allocations however many entries it has. The hash reads eight bytes at a time, as most words
 * of a text are looked up once for every time they occur.
 */
#include "trainer/data/vocabulary.h"
#include "trainer/base/keyed_random.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(const unsigned char *bytes, size_t len) {
    uint64_t hash = len, piece = 0;
    for (; len >= 8; bytes += 8, len -= 8) {
        memcpy(&piece, bytes, 8);
        hash = fgt_mix(hash ^ piece);
    }
    piece = 0;
    for (size_t i = 0; i < len; i++)
        piece = piece << 8 | bytes[i];
    hash = fgt_mix(hash ^ piece);
    return (uint32_t)(hash ^ hash >> 32);
}

void fgt_words_free(fgt_words *words) {
    free(words->pool);
    free(words->words);
    free(words->slots);
    *words = (fgt_words){0};
}

/* The slot of a word, or the free slot where it belongs. The table has slots. */
static uint32_t find(const fgt_words *words, const unsigned char *bytes, size_t len, uint32_t hash) {
    uint32_t slot = hash & words->mask;
    for (; words->slots[slot] != 0; slot = (slot + 1) & words->mask) {
        const fgt_word *word = &words->words[words->slots[slot] - 1];
        if (word->hash == hash && word->len == len && memcmp(words->pool + word->at, bytes, len) == 0)
            break;
    }
    return slot;
}

uint32_t fgt_words_get(const fgt_words *words, const unsigned char *bytes, size_t len) {
    if (words->count == 0 || len == 0)
        return FGT_NO_WORD;
    uint32_t number = words->slots[find(words, bytes, len, hash_of(bytes, len))];
    return number == 0 ? FGT_NO_WORD : words->words[number - 1].value;
}

/* Double the number of words that fit. */
static int widen_table(fgt_words *words) {
    uint32_t cap = words->cap == 0 ? 64 : words->cap * 2, mask = cap * 2 - 1;
    if (cap > UINT32_MAX / 4)
        return -1;
    fgt_word *list = realloc(words->words, cap * sizeof *list);
    if (list == NULL)
        return -1;
    words->words = list;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (slots == NULL)
        return -1;
    for (uint32_t i = 0; i < words->count; i++) {
        uint32_t slot = list[i].hash & mask;
        while (slots[slot] != 0)
            slot = (slot + 1) & mask;
        slots[slot] = i + 1;
    }
    free(words->slots);
    words->slots = slots;
    words->cap = cap;
    words->mask = mask;
    return 0;
}

static int widen_pool(fgt_words *words, size_t more) {
    size_t cap = words->pool_cap == 0 ? 4096 : words->pool_cap;
    while (cap - words->pool_len < more) {
        if (cap > SIZE_MAX / 2)
            return -1;
        cap *= 2;
    }
    unsigned char *pool = realloc(words->pool, cap);
    if (pool == NULL)
        return -1;
    words->pool = pool;
    words->pool_cap = cap;
    return 0;
}

int fgt_words_put(fgt_words *words, const unsigned char *bytes, size_t len, uint32_t value) {
    if (len == 0 || len > UINT32_MAX || (words->count == words->cap && widen_table(words) != 0))
        return -1;
    uint32_t hash = hash_of(bytes, len), slot = find(words, bytes, len, hash);
    if (words->slots[slot] != 0) {
        words->words[words->slots[slot] - 1].value = value;
        return 0;
    }
    if (words->pool_cap - words->pool_len < len && widen_pool(words, len) != 0)
        return -1;
    memcpy(words->pool + words->pool_len, bytes, len);
    words->words[words->count] = (fgt_word){words->pool_len, (uint32_t)len, hash, value};
    words->pool_len += len;
    words->slots[slot] = ++words->count;
    return 0;
}

void fgt_ids_free(fgt_ids *ids) {
    free(ids->data);
    *ids = (fgt_ids){.wide = ids->wide};
}

int fgt_ids_push(fgt_ids *ids, uint32_t id) {
    if (ids->len == ids->cap) {
        size_t cap = ids->cap == 0 ? 256 : ids->cap * 2, width = ids->wide ? sizeof(int32_t) : sizeof(uint16_t);
        void *data = cap > SIZE_MAX / 2 / width ? NULL : realloc(ids->data, cap * width);
        if (data == NULL)
            return -1;
        ids->data = data;
        ids->cap = cap;
    }
    if (ids->wide)
        ((int32_t *)ids->data)[ids->len++] = (int32_t)id;
    else
        ((uint16_t *)ids->data)[ids->len++] = (uint16_t)id;
    return 0;
}
