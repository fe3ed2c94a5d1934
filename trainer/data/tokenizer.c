/*
 * tokenizer.c - tokenizers of language models: the files and the scheme. The schemes are in bpe.c and bpe_encode.c;
 * bytes need no files.
 */
#include "trainer/data/tokenizer.h"
#include "trainer/data/bpe.h"
#include "io/error.h"
#include "io/unpack_file.h"

#include <stdlib.h>
#include <string.h>

struct fgt_tokenizer {
    fgt_bpe *bpe;             /* NULL: bytes */
    unsigned char bytes[256]; /* each its own token */
};

enum { NAMES = 3 };
static const char *const vocabulary_names[NAMES] = {"encoder.json", "gpt2_encoder.json", "vocab.json"};
static const char *const merges_names[NAMES] = {"vocab.bpe", "gpt2_vocab.bpe", "merges.txt"};
static const uint64_t file_max = UINT64_C(64) << 20;

/* Read the file of one of these names. */
static int read_named(const char *dir, const char *const names[NAMES], char **path, fgio_bytes *bytes) {
    *path = NULL;
    for (int i = 0; i < NAMES && *path == NULL; i++)
        *path = fgio_unpack_find(dir, names[i]);
    if (*path == NULL)
        return fgio_error("%s: expected '%s' in this directory (or '%s', '%s')", dir, names[0], names[1], names[2]);
    return fgio_unpack_file(*path, file_max, bytes);
}

static int load_vocabulary(const char *dir, fgt_bpe **bpe) {
    char *path;
    fgio_bytes bytes = {NULL, 0};
    fgio_reason why;
    int status = read_named(dir, vocabulary_names, &path, &bytes);
    if (status == FGIO_EXIT_OK && fgt_bpe_create(bytes.data, bytes.len, bpe, &why) != 0)
        status = fgio_error("%s: %s", path, why.text);
    fgio_bytes_free(&bytes);
    free(path);
    return status;
}

static int load_merges(const char *dir, fgt_bpe *bpe) {
    char *path;
    fgio_bytes bytes = {NULL, 0};
    fgio_reason why;
    int status = read_named(dir, merges_names, &path, &bytes);
    if (status == FGIO_EXIT_OK && fgt_bpe_merges(bpe, bytes.data, bytes.len, &why) != 0)
        status = fgio_error("%s: %s", path, why.text);
    fgio_bytes_free(&bytes);
    free(path);
    return status;
}

int fgt_tokenizer_open(const char *where, fgt_tokenizer **out) {
    fgt_tokenizer *tokens = calloc(1, sizeof *tokens);
    if (tokens == NULL)
        return fgio_error("not enough memory for a tokenizer");
    for (int b = 0; b < 256; b++)
        tokens->bytes[b] = (unsigned char)b;
    int status = FGIO_EXIT_OK;
    if (strcmp(where, "bytes") != 0) {
        status = load_vocabulary(where, &tokens->bpe);
        if (status == FGIO_EXIT_OK)
            status = load_merges(where, tokens->bpe);
    }
    if (status == FGIO_EXIT_OK)
        *out = tokens;
    else
        fgt_tokenizer_close(tokens);
    return status;
}

void fgt_tokenizer_close(fgt_tokenizer *tokens) {
    if (tokens != NULL)
        fgt_bpe_destroy(tokens->bpe);
    free(tokens);
}

uint32_t fgt_tokenizer_vocab(const fgt_tokenizer *tokens) {
    return tokens->bpe == NULL ? 256 : fgt_bpe_vocab(tokens->bpe);
}

int32_t fgt_tokenizer_end(const fgt_tokenizer *tokens) {
    return tokens->bpe == NULL ? -1 : fgt_bpe_end(tokens->bpe);
}

static int encode_bytes(const unsigned char *text, size_t len, fgt_ids *ids) {
    for (size_t i = 0; i < len; i++)
        if (fgt_ids_push(ids, text[i]) != 0)
            return -1;
    return 0;
}

int fgt_tokenizer_encode(const fgt_tokenizer *tokens, const void *text, size_t len, fgt_ids *ids) {
    int bad = tokens->bpe == NULL ? encode_bytes(text, len, ids) : fgt_bpe_encode(tokens->bpe, text, len, ids);
    return bad ? fgio_error("not enough memory for the tokens of %zu bytes", len) : FGIO_EXIT_OK;
}

const unsigned char *fgt_tokenizer_piece(const fgt_tokenizer *tokens, int32_t id, size_t *len) {
    *len = 0;
    if (id < 0 || (uint32_t)id >= fgt_tokenizer_vocab(tokens))
        return tokens->bytes;
    if (tokens->bpe != NULL)
        return fgt_bpe_piece(tokens->bpe, (uint32_t)id, len);
    *len = 1;
    return tokens->bytes + id;
}

int fgt_tokenizer_decode(const fgt_tokenizer *tokens, const int32_t *ids, size_t n, fgio_bytes *text) {
    size_t total = 0, len;
    for (size_t i = 0; i < n; i++) {
        fgt_tokenizer_piece(tokens, ids[i], &len);
        total += len;
    }
    unsigned char *data = malloc(total + 1);
    if (data == NULL)
        return fgio_error("not enough memory for the text of %zu tokens", n);
    *text = (fgio_bytes){data, 0};
    for (size_t i = 0; i < n; i++) {
        const unsigned char *piece = fgt_tokenizer_piece(tokens, ids[i], &len);
        memcpy(data + text->len, piece, len);
        text->len += len;
    }
    return FGIO_EXIT_OK;
}
