/*
 * token_files.c - files of token ids and the size of their vocabulary. Every id is checked against it, so that models
 * never see one beyond their embedding.
 */
#include "trainer/data/token_files.h"
#include "trainer/data/data_source.h"
#include "io/unpack_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { GPT2_VOCAB = 50257, VOCAB_MAX = 1 << 16 };
static const uint64_t file_max = UINT64_C(4) << 30, vocabulary_max = UINT64_C(64) << 20;
static const char own_ending[] = "u16", gpt2_ending[] = "gpt2bpe.u16", vocabulary_name[] = "vocab.json";

static char *find_split(const char *dir, fgt_split split, const char *ending) {
    char name[32];
    snprintf(name, sizeof name, "%s.%s", fgt_split_names[split], ending);
    return fgio_unpack_find(dir, name);
}

static int has_files(const char *dir, const char *ending) {
    char *path = find_split(dir, FGT_TRAIN, ending);
    free(path);
    return path != NULL;
}

int fgt_token_files_exist(const char *dir) {
    return has_files(dir, own_ending) || has_files(dir, gpt2_ending);
}

/* Whether a JSON object numbers its tokens from 0 on, each once. */
static int is_vocabulary(json_t *root) {
    size_t count = json_object_size(root); /* 0 if it is not an object */
    unsigned char *seen = calloc(count + 1, 1);
    const char *key;
    json_t *value;
    size_t numbered = 0;
    json_object_foreach(root, key, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (seen != NULL && id >= 0 && (size_t)id < count && !seen[id])
            numbered += seen[id] = 1;
    }
    free(seen);
    return count > 0 && count <= VOCAB_MAX && numbered == count;
}

static int read_vocabulary(const char *dir, uint32_t *vocab) {
    char *path = fgio_unpack_find(dir, vocabulary_name);
    fgio_bytes bytes = {NULL, 0};
    if (path == NULL)
        return fgio_error("%s: expected '%s', the vocabulary of the tokens in this directory", dir, vocabulary_name);
    int status = fgio_unpack_file(path, vocabulary_max, &bytes);
    if (status == FGIO_EXIT_OK) {
        json_error_t error;
        json_t *root = json_loadb((const char *)bytes.data, bytes.len, JSON_REJECT_DUPLICATES, &error);
        if (root == NULL)
            status = fgio_error("%s: byte %d: expected JSON (%s)", path, error.position, error.text);
        else if (!is_vocabulary(root))
            status = fgio_error("%s: expected a JSON object of up to %d tokens, numbered from 0", path, VOCAB_MAX);
        *vocab = (uint32_t)json_object_size(root);
        json_decref(root);
    }
    fgio_bytes_free(&bytes);
    free(path);
    return status;
}

static int read_ids(const char *path, const fgio_bytes *bytes, uint32_t vocab, fgt_ids *ids) {
    if (bytes->len % 2 != 0)
        return fgio_error("%s: byte %zu: the file ends; expected numbers of two bytes", path, bytes->len);
    for (size_t i = 0; i < bytes->len; i += 2) {
        uint32_t id = bytes->data[i] | (uint32_t)bytes->data[i + 1] << 8;
        if (id >= vocab)
            return fgio_error("%s: byte %zu: expected a token below %u, found %u", path, i, vocab, id);
        if (fgt_ids_push(ids, id) != 0)
            return fgio_error("%s: not enough memory for its tokens", path);
    }
    return FGIO_EXIT_OK;
}

static int read_file(const char *path, uint32_t vocab, fgt_ids *ids) {
    fgio_bytes bytes = {NULL, 0};
    int status = fgio_unpack_file(path, file_max, &bytes);
    if (status == FGIO_EXIT_OK)
        status = read_ids(path, &bytes, vocab, ids);
    fgio_bytes_free(&bytes);
    return status;
}

int fgt_token_files_read(const char *dir, fgt_ids ids[FGT_SPLITS], uint32_t *vocab) {
    int own = has_files(dir, own_ending), status = FGIO_EXIT_OK;
    *vocab = GPT2_VOCAB;
    if (own)
        status = read_vocabulary(dir, vocab);
    for (int i = 0; i < FGT_SPLITS && status == FGIO_EXIT_OK; i++) {
        char *path = find_split(dir, (fgt_split)i, own ? own_ending : gpt2_ending);
        if (path != NULL)
            status = read_file(path, *vocab, &ids[i]);
        free(path);
    }
    return status;
}
