/*
 * fuzz_wordpiece.c - any vocabulary and any text, with a zero byte between them. Tokens must be of the vocabulary, and
 * a second time, out of the cache, the same.
 */
#include "trainer/data/wordpiece.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const fgt_wordpiece *pieces, const uint8_t *text, size_t len) {
    fgt_wordpiece_cache cache = {0};
    fgt_ids ids = {.wide = 1};
    if (fgt_wordpiece_encode(pieces, &cache, text, len, &ids) != 0)
        abort();
    size_t n = ids.len;
    if (fgt_wordpiece_encode(pieces, &cache, text, len, &ids) != 0 || ids.len != 2 * n)
        abort();
    for (size_t i = 0; i < n; i++)
        if ((uint32_t)fgt_ids_at(&ids, i) >= fgt_wordpiece_vocab(pieces) ||
            fgt_ids_at(&ids, i) != fgt_ids_at(&ids, n + i))
            abort();
    fgt_ids_free(&ids);
    fgt_wordpiece_cache_free(&cache);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    size_t len = zero == NULL ? size : (size_t)(zero - data);
    fgt_wordpiece *pieces = NULL;
    fgio_reason why = {""};
    if (fgt_wordpiece_create(data, len, &pieces, &why) != 0) {
        if (why.text[0] == '\0')
            abort();
        return 0;
    }
    if (zero != NULL)
        check_text(pieces, zero + 1, size - len - 1);
    fgt_wordpiece_destroy(pieces);
    return 0;
}
