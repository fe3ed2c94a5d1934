/*
 * vocabulary.c - the hash table has open addressing with linear probing and is never more than half full; words are in
 * one pool, so a vocabulary needs three allocations however many entries it has. The hash reads eight bytes at a time,
 * because every word of a text is looked up.
 */
#include "trainer/data/vocabulary.h"
#include "trainer/base/keyed_random.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_bytes(const unsigned char *bytes, size_t len) {
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

void fgt_string_map_free(fgt_string_map *map) {
    free(map->pool);
    free(map->words);
    free(map->slots);
    *map = (fgt_string_map){0};
}

/* The slot of a word, or the free slot for it. The table must have slots. */
static uint32_t find_slot(const fgt_string_map *map, const unsigned char *bytes, size_t len, uint32_t hash) {
    uint32_t slot = hash & map->mask;
    for (; map->slots[slot] != 0; slot = (slot + 1) & map->mask) {
        const fgt_string_entry *word = &map->words[map->slots[slot] - 1];
        if (word->hash == hash && word->len == len && memcmp(map->pool + word->at, bytes, len) == 0)
            break;
    }
    return slot;
}

uint32_t fgt_string_map_get(const fgt_string_map *map, const unsigned char *bytes, size_t len) {
    if (map->count == 0 || len == 0)
        return FGT_STRING_NONE;
    uint32_t number = map->slots[find_slot(map, bytes, len, hash_bytes(bytes, len))];
    return number == 0 ? FGT_STRING_NONE : map->words[number - 1].value;
}

/* Doubles the capacity. */
static int grow_table(fgt_string_map *map) {
    uint32_t cap = map->cap == 0 ? 64 : map->cap * 2, mask = cap * 2 - 1;
    if (cap > UINT32_MAX / 4)
        return -1;
    fgt_string_entry *list = realloc(map->words, cap * sizeof *list);
    if (list == NULL)
        return -1;
    map->words = list;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (slots == NULL)
        return -1;
    for (uint32_t i = 0; i < map->count; i++) {
        uint32_t slot = list[i].hash & mask;
        while (slots[slot] != 0)
            slot = (slot + 1) & mask;
        slots[slot] = i + 1;
    }
    free(map->slots);
    map->slots = slots;
    map->cap = cap;
    map->mask = mask;
    return 0;
}

static int grow_pool(fgt_string_map *map, size_t more) {
    size_t cap = map->pool_cap == 0 ? 4096 : map->pool_cap;
    while (cap - map->pool_len < more) {
        if (cap > SIZE_MAX / 2)
            return -1;
        cap *= 2;
    }
    unsigned char *pool = realloc(map->pool, cap);
    if (pool == NULL)
        return -1;
    map->pool = pool;
    map->pool_cap = cap;
    return 0;
}

int fgt_string_map_put(fgt_string_map *map, const unsigned char *bytes, size_t len, uint32_t value) {
    if (len == 0 || len > UINT32_MAX || (map->count == map->cap && grow_table(map) != 0))
        return -1;
    uint32_t hash = hash_bytes(bytes, len), slot = find_slot(map, bytes, len, hash);
    if (map->slots[slot] != 0) {
        map->words[map->slots[slot] - 1].value = value;
        return 0;
    }
    if (map->pool_cap - map->pool_len < len && grow_pool(map, len) != 0)
        return -1;
    memcpy(map->pool + map->pool_len, bytes, len);
    map->words[map->count] = (fgt_string_entry){map->pool_len, (uint32_t)len, hash, value};
    map->pool_len += len;
    map->slots[slot] = ++map->count;
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
