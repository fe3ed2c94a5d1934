/*
 * text_source.c - text for language models and masked models; text_files.c and token_files.c read it. A split is one
 * sequence of tokens; a sample is a window of it. Windows do not overlap. In training they begin at another offset each
 * epoch, so that the edges do not always cut the same context; in testing they cover all tokens, the last one with
 * positions without targets.
 */
#include "io/progress.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/data_source.h"
#include "trainer/data/text_files.h"
#include "trainer/data/token_files.h"
#include "trainer/data/tokenizer.h"
#include "trainer/data/wordpiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    fgt_ids ids[FGT_SPLITS];
    uint32_t window;     /* tokens of the text in a sample; language: and one more */
    int32_t first, last; /* masked: the tokens before and after the window */
    fgt_mask_rule rule;
} text;

static void close_text(void *state) {
    text *s = state;
    for (int i = 0; i < FGT_SPLITS; i++)
        fgt_ids_free(&s->ids[i]);
    free(s);
}

/* Begin of the window of a sample. */
static uint64_t window_begin(const fgt_data *data, fgt_sample_id id) {
    uint32_t window = ((const text *)data->state)->window;
    uint64_t shift = id.split == FGT_TRAIN ? fgt_random(data->seed, FGT_STREAM_AUGMENT, id.epoch) % window : 0;
    return id.index * window + shift;
}

static void language_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const fgt_ids *ids = &((const text *)data->state)->ids[id.split];
    uint32_t T = data->info.length;
    uint64_t open_source = window_begin(data, id), left = ids->len - open_source;
    int32_t *tokens = batch->tokens + slot * T, *targets = batch->targets + slot * T;
    for (uint32_t t = 0; t < T; t++) {
        tokens[t] = t < left ? fgt_ids_at(ids, open_source + t) : 0;
        targets[t] = t + UINT64_C(1) < left ? fgt_ids_at(ids, open_source + t + 1) : -1;
    }
    batch->lengths[slot] = (int32_t)T;
}

static void masked_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const text *s = data->state;
    const fgt_ids *ids = &s->ids[id.split];
    uint32_t T = data->info.length;
    uint64_t open_source = window_begin(data, id), left = ids->len - open_source;
    uint32_t n = left < s->window ? (uint32_t)left : s->window;
    int32_t *tokens = batch->tokens + slot * T;
    memset(tokens, 0, T * sizeof *tokens);
    memset(batch->segments + slot * T, 0, T * sizeof *batch->segments);
    tokens[0] = s->first;
    for (uint32_t t = 0; t < n; t++)
        tokens[t + 1] = fgt_ids_at(ids, open_source + t);
    tokens[n + 1] = s->last;
    batch->lengths[slot] = (int32_t)(n + 2);
    fgt_mask(data, id, &s->rule, 1, n + 1, tokens, batch->targets + slot * T);
}

static const fgt_source language_source = {.sample = language_sample, .close = close_text};
static const fgt_source masked_source = {.sample = masked_sample, .close = close_text};

/* Selects tokens with probability 0.15 each, at least one: 8 in 10 become the mask, 1 in 10 a random token, 1 in 10
 * stay the same. Masks of training samples change every epoch. */
void fgt_mask(const fgt_data *data, fgt_sample_id id, const fgt_mask_rule *rule, uint32_t first, uint32_t last,
              int32_t *tokens, int32_t *targets) {
    uint64_t split = (uint64_t)id.split, epoch = id.split == FGT_TRAIN ? id.epoch : 0;
    uint64_t key = fgt_random(data->seed, FGT_STREAM_MASK | split << 8 | epoch << 10, id.index);
    uint32_t forced = first + (uint32_t)(fgt_mix(key) % (last - first));
    uint32_t hidden = 0;
    for (uint32_t t = 0; t < data->info.length; t++)
        targets[t] = -1;
    for (uint32_t t = first; t < last || hidden == 0; t++) {
        uint32_t at = t < last ? t : forced;
        uint64_t bits = fgt_mix(key + 1 + at);
        if (t < last && fgt_uniform(bits) >= 0.15f)
            continue;
        hidden++;
        targets[at] = tokens[at];
        float what = fgt_uniform(fgt_mix(bits));
        if (what < 0.8f)
            tokens[at] = rule->mask;
        else if (what < 0.9f)
            tokens[at] = (int32_t)(rule->lowest + fgt_mix(bits + 1) % (rule->beyond - rule->lowest));
    }
}

/* Number of windows of a split. In training the last one must fit at every offset. */
static void count_windows(fgt_data *data, uint32_t extra) {
    const text *s = data->state;
    for (int i = 0; i < FGT_SPLITS; i++) {
        uint64_t len = s->ids[i].len, usable = len > extra ? len - extra : 0;
        if (i != FGT_TRAIN)
            data->info.count[i] = (usable + s->window - 1) / s->window;
        else
            data->info.count[i] = usable >= s->window ? (usable - (s->window - 1)) / s->window : 0;
    }
}

/* Tokenizer of the text, and its destination. */
typedef struct encoder {
    fgt_data *data;
    const fgt_tokenizer *tokens; /* language */
    const fgt_wordpiece *pieces; /* masked */
    fgt_wordpiece_cache cache;
} encoder;

static int encode_text(void *ctx, fgt_split split, const unsigned char *bytes, size_t len) {
    encoder *e = ctx;
    fgt_ids *ids = &((text *)e->data->state)->ids[split];
    if (e->tokens != NULL)
        return fgt_tokenizer_encode(e->tokens, bytes, len, ids);
    if (fgt_wordpiece_encode(e->pieces, &e->cache, bytes, len, ids) == 0)
        return FGIO_EXIT_OK;
    return fgio_error("not enough memory for the tokens of %zu bytes", len);
}

/* A directory of token ids may have the text as well; without it any .txt file there is something else. */
static int check_text(const char *path, const char *advice) {
    if (!fgt_token_files_exist(path) || fgt_text_has_splits(path))
        return FGIO_EXIT_OK;
    return fgio_error("%s: has token ids and no text; %s", path, advice);
}

static int read_text(const char *path, encoder *e) {
    text *s = e->data->state;
    for (int i = 0; i < FGT_SPLITS; i++)
        s->ids[i].wide = e->data->info.vocab > UINT16_MAX + 1;
    fgio_progress *meter = fgio_progress_begin(0, "tokenizing %s", path);
    int status = fgt_text_read(path, encode_text, e);
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK && s->ids[FGT_TRAIN].len == 0)
        status = fgio_error("%s: expected text to train on, found none", path);
    fgt_wordpiece_cache_free(&e->cache);
    return status;
}

static text *open_source(const fgt_source *source, fgt_data *data) {
    text *s = calloc(1, sizeof *s);
    if (s == NULL)
        fgio_error("not enough memory for a data set");
    else
        data->source = source;
    data->state = s;
    return s;
}

static int open_text(const fgt_data_options *options, fgt_data *data) {
    fgt_tokenizer *tokens;
    if (check_text(options->path, "omit --tokens") != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (fgt_tokenizer_open(options->tokens == NULL ? "bytes" : options->tokens, &tokens) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    data->info.vocab = fgt_tokenizer_vocab(tokens);
    int status = read_text(options->path, &(encoder){.data = data, .tokens = tokens});
    fgt_tokenizer_close(tokens);
    return status;
}

int fgt_text_open(const fgt_data_options *options, fgt_data *data) {
    text *s = open_source(&language_source, data);
    if (s == NULL)
        return FGIO_EXIT_FAIL;
    int numbers = options->tokens == NULL && fgt_token_files_exist(options->path);
    int status = numbers ? fgt_token_files_read(options->path, s->ids, &data->info.vocab) : open_text(options, data);
    data->info.tokens = numbers ? "ids in the data" : options->tokens == NULL ? "bytes" : options->tokens;
    s->window = options->length;
    count_windows(data, 1);
    return status;
}

int fgt_masked_open(const fgt_data_options *options, fgt_data *data) {
    fgt_wordpiece *pieces;
    text *s = open_source(&masked_source, data);
    if (s == NULL)
        return FGIO_EXIT_FAIL;
    if (options->tokens == NULL)
        return fgio_error("%s: masked text needs the file of a WordPiece vocabulary for its tokens", options->path);
    if (check_text(options->path, "masked models read text, so --data needs a text") != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (fgt_wordpiece_open(options->tokens, &pieces) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    const fgt_wordpiece_special *special = fgt_wordpiece_specials(pieces);
    data->info.vocab = fgt_wordpiece_vocab(pieces);
    s->window = options->length - 2;
    s->first = (int32_t)special->first;
    s->last = (int32_t)special->separator;
    s->rule = (fgt_mask_rule){(int32_t)special->mask, 0, data->info.vocab};
    int status = read_text(options->path, &(encoder){.data = data, .pieces = pieces});
    count_windows(data, 0);
    fgt_wordpiece_destroy(pieces);
    return status;
}
