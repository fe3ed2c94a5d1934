/* Tokens of language models: which files, which scheme. The schemes themselves are in bpe.c and bpe_encode.c; bytes
 * need no files. */
#include "trainer/data/tokenizer.h"
#include "trainer/data/bpe.h"
#include "io/error.h"
#include "io/unpack_file.h"

#include <stdlib.h>
#include <string.h>

struct frugi_tokens {
    frugi_bpe *bpe;           /* NULL: bytes */
    unsigned char bytes[256]; /* each its own token */
};

enum { NAMES = 3 };
static const char *const vocabulary_names[NAMES] = {"encoder.json", "gpt2_encoder.json", "vocab.json"};
static const char *const merges_names[NAMES] = {"vocab.bpe", "gpt2_vocab.bpe", "merges.txt"};
static const uint64_t file_max = UINT64_C(64) << 20;

/* Read the file of one of these names. */
static int read_named(const char *dir, const char *const names[NAMES], char **path, frugi_bytes *bytes) {
    *path = NULL;
    for (int i = 0; i < NAMES && *path == NULL; i++)
        *path = frugi_unpack_find(dir, names[i]);
    if (*path == NULL)
        return frugi_error("%s: expected '%s' in this directory (or '%s', '%s')", dir, names[0], names[1], names[2]);
    return frugi_unpack_file(*path, file_max, bytes);
}

static int load_vocabulary(const char *dir, frugi_bpe **bpe) {
    char *path;
    frugi_bytes bytes = {NULL, 0};
    frugi_why why;
    int status = read_named(dir, vocabulary_names, &path, &bytes);
    if (status == FRUGI_EXIT_OK && frugi_bpe_create(bytes.data, bytes.len, bpe, &why) != 0)
        status = frugi_error("%s: %s", path, why.text);
    frugi_bytes_free(&bytes);
    free(path);
    return status;
}

static int load_merges(const char *dir, frugi_bpe *bpe) {
    char *path;
    frugi_bytes bytes = {NULL, 0};
    frugi_why why;
    int status = read_named(dir, merges_names, &path, &bytes);
    if (status == FRUGI_EXIT_OK && frugi_bpe_merges(bpe, bytes.data, bytes.len, &why) != 0)
        status = frugi_error("%s: %s", path, why.text);
    frugi_bytes_free(&bytes);
    free(path);
    return status;
}

int frugi_tokens_open(const char *where, frugi_tokens **out) {
    frugi_tokens *tokens = calloc(1, sizeof *tokens);
    if (tokens == NULL)
        return frugi_error("not enough memory for a tokenizer");
    for (int b = 0; b < 256; b++)
        tokens->bytes[b] = (unsigned char)b;
    int status = FRUGI_EXIT_OK;
    if (strcmp(where, "bytes") != 0) {
        status = load_vocabulary(where, &tokens->bpe);
        if (status == FRUGI_EXIT_OK)
            status = load_merges(where, tokens->bpe);
    }
    if (status == FRUGI_EXIT_OK)
        *out = tokens;
    else
        frugi_tokens_close(tokens);
    return status;
}

void frugi_tokens_close(frugi_tokens *tokens) {
    if (tokens != NULL)
        frugi_bpe_destroy(tokens->bpe);
    free(tokens);
}

uint32_t frugi_tokens_vocab(const frugi_tokens *tokens) {
    return tokens->bpe == NULL ? 256 : frugi_bpe_vocab(tokens->bpe);
}

int32_t frugi_tokens_end(const frugi_tokens *tokens) {
    return tokens->bpe == NULL ? -1 : frugi_bpe_end(tokens->bpe);
}

static int encode_bytes(const unsigned char *text, size_t len, frugi_ids *ids) {
    for (size_t i = 0; i < len; i++)
        if (frugi_ids_push(ids, text[i]) != 0)
            return -1;
    return 0;
}

int frugi_tokens_encode(const frugi_tokens *tokens, const void *text, size_t len, frugi_ids *ids) {
    int bad = tokens->bpe == NULL ? encode_bytes(text, len, ids) : frugi_bpe_encode(tokens->bpe, text, len, ids);
    return bad ? frugi_error("not enough memory for the tokens of %zu bytes", len) : FRUGI_EXIT_OK;
}

const unsigned char *frugi_tokens_piece(const frugi_tokens *tokens, int32_t id, size_t *len) {
    *len = 0;
    if (id < 0 || (uint32_t)id >= frugi_tokens_vocab(tokens))
        return tokens->bytes;
    if (tokens->bpe != NULL)
        return frugi_bpe_piece(tokens->bpe, (uint32_t)id, len);
    *len = 1;
    return tokens->bytes + id;
}

int frugi_tokens_decode(const frugi_tokens *tokens, const int32_t *ids, size_t n, frugi_bytes *text) {
    size_t total = 0, len;
    for (size_t i = 0; i < n; i++) {
        frugi_tokens_piece(tokens, ids[i], &len);
        total += len;
    }
    unsigned char *data = malloc(total + 1);
    if (data == NULL)
        return frugi_error("not enough memory for the text of %zu tokens", n);
    *text = (frugi_bytes){data, 0};
    for (size_t i = 0; i < n; i++) {
        const unsigned char *piece = frugi_tokens_piece(tokens, ids[i], &len);
        memcpy(data + text->len, piece, len);
        text->len += len;
    }
    return FRUGI_EXIT_OK;
}
