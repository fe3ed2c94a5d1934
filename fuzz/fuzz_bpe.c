/*
 * fuzz_bpe.c - any files and any text into GPT-2's BPE. An input that begins with '{' is a whole vocabulary; any other
 * is three parts with a zero byte between them: entries that are added to a vocabulary of single bytes, merges, a text.
 * What was encoded must decode to itself.
 */
#include "trainer/data/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BASE_MAX = 8192 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t base(char *json) {
    int next = 256;
    size_t len = 1;
    json[0] = '{';
    for (int b = 0; b < 256; b++) {
        int plain = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        len += (size_t)sprintf(json + len, "\"\\u%04x\": %d, ", (unsigned)(plain ? b : next++), b);
    }
    return len;
}

static void check_text(const fgt_bpe *bpe, const uint8_t *text, size_t len) {
    fgt_ids ids = {.wide = 1};
    size_t at = 0;
    if (fgt_bpe_encode(bpe, text, len, &ids) != 0)
        abort();
    for (size_t i = 0; i < ids.len; i++) {
        size_t n;
        uint32_t id = (uint32_t)fgt_ids_at(&ids, i);
        if (id >= fgt_bpe_vocab(bpe))
            abort();
        const unsigned char *piece = fgt_bpe_piece(bpe, id, &n);
        if (n == 0 || n > len - at || memcmp(piece, text + at, n) != 0)
            abort();
        at += n;
    }
    if (at != len)
        abort();
    fgt_ids_free(&ids);
}

/* Make a vocabulary and use it. */
static void run(const char *json, size_t len, const uint8_t *rest, size_t rest_len) {
    fgt_bpe *bpe = NULL;
    fgio_reason why = {""};
    const uint8_t *zero = rest_len == 0 ? NULL : memchr(rest, 0, rest_len);
    size_t merges = zero == NULL ? rest_len : (size_t)(zero - rest);
    if (fgt_bpe_create((const unsigned char *)json, len, &bpe, &why) != 0 ||
        fgt_bpe_merges(bpe, rest, merges, &why) != 0) {
        if (why.text[0] == '\0')
            abort();
    } else if (zero != NULL) {
        check_text(bpe, zero + 1, rest_len - merges - 1);
    }
    fgt_bpe_destroy(bpe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    size_t entries = zero == NULL ? size : (size_t)(zero - data), skipped = zero == NULL ? size : entries + 1;
    if (size > 0 && data[0] == '{') {
        run((const char *)data, entries, data + skipped, size - skipped);
        return 0;
    }
    char *json = malloc(BASE_MAX + entries + 1);
    if (json == NULL)
        return 0;
    size_t len = base(json);
    memcpy(json + len, data, entries);
    json[len + entries] = '}';
    run(json, len + entries + 1, data + skipped, size - skipped);
    free(json);
    return 0;
}
