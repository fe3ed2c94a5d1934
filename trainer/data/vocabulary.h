/*
 * vocabulary.h - two containers of the tokenizers: a hash table of byte strings, and a growing list of token ids, two
 * bytes each where the vocabulary allows, four otherwise.
 */
#ifndef FGT_VOCABULARY_H
#define FGT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#define FGT_STRING_NONE UINT32_MAX

typedef struct fgt_string_entry {
    size_t at; /* in the pool */
    uint32_t len, hash, value;
} fgt_string_entry;

/** A hash table of byte strings; {0} is an empty one. */
typedef struct fgt_string_map {
    unsigned char *pool;     /* all bytes, concatenated */
    fgt_string_entry *words; /* in the order of insertion */
    uint32_t *slots;         /* index of a word + 1, 0: free */
    size_t pool_len, pool_cap;
    uint32_t count, cap, mask;
} fgt_string_map;

void fgt_string_map_free(fgt_string_map *map);

/** The value of a word, or FGT_STRING_NONE. */
uint32_t fgt_string_map_get(const fgt_string_map *map, const unsigned char *bytes, size_t len);

/** Sets the value of a word (not FGT_STRING_NONE), new or existing. Returns 0, or -1 without memory. */
int fgt_string_map_put(fgt_string_map *map, const unsigned char *bytes, size_t len, uint32_t value);

/** Token numbers; {.wide = w} is an empty list. */
typedef struct fgt_ids {
    void *data;
    size_t len, cap;
    int wide; /* 0: uint16_t, 1: int32_t */
} fgt_ids;

void fgt_ids_free(fgt_ids *ids);

/** Appends; ids above 65,535 need a wide list. Returns 0, or -1 without memory. */
int fgt_ids_push(fgt_ids *ids, uint32_t id);

static inline int32_t fgt_ids_at(const fgt_ids *ids, size_t i) {
    return ids->wide ? ((const int32_t *)ids->data)[i] : ((const uint16_t *)ids->data)[i];
}

#endif
