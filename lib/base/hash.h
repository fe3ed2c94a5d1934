/* hash.h - the 64-bit FNV-1a hash: to detect differences between workers, not against attacks. */
#ifndef FRUGI_HASH_H
#define FRUGI_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FRUGI_HASH_INIT  0xcbf29ce484222325u
#define FRUGI_HASH_PRIME 0x100000001b3u

/** One FNV-1a step with a whole word instead of a byte. */
static inline uint64_t frugi_hash_word(uint64_t hash, uint64_t word) {
    return (hash ^ word) * FRUGI_HASH_PRIME;
}

static inline uint64_t frugi_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        hash = frugi_hash_word(hash, ((const unsigned char *)data)[i]);
    return hash;
}

/** The characters of a string, without its final zero. */
static inline uint64_t frugi_hash_text(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = frugi_hash_word(hash, (unsigned char)*text);
    return hash;
}

#endif
