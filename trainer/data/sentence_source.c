/*
 * sentence_source.c - labeled sentences in memory: all tokens in one list, and for each row its range. Rows are
 * truncated to T by shortening the longer sentence first, and padded only when a batch is loaded.
 */
#include "trainer/data/sentence_source.h"

#include <stdlib.h>

typedef struct row {
    uint64_t at;     /* of its tokens in ids */
    uint32_t len, a; /* tokens, and those of the first sentence */
    float label;
} row;

typedef struct sentence_store {
    fgt_ids ids;
    row *rows[FGT_SPLITS];
} sentence_store;

static void close_store(void *state) {
    sentence_store *s = state;
    fgt_ids_free(&s->ids);
    for (int i = 0; i < FGT_SPLITS; i++)
        free(s->rows[i]);
    free(s);
}

static void load_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const sentence_store *s = data->state;
    const row *r = &s->rows[id.split][id.index];
    uint32_t T = data->info.length;
    int32_t *tokens = batch->tokens + slot * T, *segments = batch->segments + slot * T;
    for (uint32_t t = 0; t < T; t++) {
        tokens[t] = t < r->len ? fgt_ids_at(&s->ids, r->at + t) : 0;
        segments[t] = t >= r->a && t < r->len;
    }
    batch->lengths[slot] = (int32_t)r->len;
    batch->targets[slot] = data->info.classes == 1 ? 0 : (int32_t)r->label;
    batch->numbers[slot] = r->label;
}

static const fgt_source sentences_source = {.sample = load_sample, .close = close_store};

/* Truncates the longer sentence until both fit; of two equal ones the second, as in BERT. */
static void truncate_pair(size_t *a, size_t *b, size_t max) {
    while (*a + *b > max)
        --*(*a > *b ? a : b);
}

static int append_ids(fgt_ids *to, const fgt_ids *from, size_t n, uint32_t then) {
    int bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= fgt_ids_push(to, (uint32_t)fgt_ids_at(from, i));
    return bad | fgt_ids_push(to, then);
}

/* Appends a row to its split. */
static int append_row(fgt_sentences *s, fgt_split split, row add) {
    sentence_store *to = s->data->state;
    uint64_t *count = &s->data->info.count[split];
    if (*count == 0)
        s->cap = 0;
    if (*count == s->cap) {
        size_t cap = s->cap == 0 ? 256 : s->cap * 2;
        row *rows = realloc(to->rows[split], cap * sizeof *rows);
        if (rows == NULL)
            return -1;
        to->rows[split] = rows;
        s->cap = cap;
    }
    to->rows[split][(*count)++] = add;
    return 0;
}

int fgt_sentences_add(fgt_sentences *s, fgt_split split, const fgt_sentence *from, fgio_reason *why) {
    const fgt_wordpiece_special *special = fgt_wordpiece_specials(s->pieces);
    fgt_ids *ids = &((sentence_store *)s->data->state)->ids;
    int is_pair = from->b.text != NULL;
    row to = {.at = ids->len, .label = from->label};
    s->a.len = s->b.len = 0;
    int bad = fgt_wordpiece_encode(s->pieces, &s->cache, from->a.text, from->a.len, &s->a);
    if (is_pair)
        bad |= fgt_wordpiece_encode(s->pieces, &s->cache, from->b.text, from->b.len, &s->b);
    size_t a = s->a.len, b = s->b.len;
    truncate_pair(&a, &b, s->data->info.length - (is_pair ? 3 : 2));
    bad |= fgt_ids_push(ids, special->first) | append_ids(ids, &s->a, a, special->separator);
    to.a = (uint32_t)(ids->len - to.at);
    if (is_pair)
        bad |= append_ids(ids, &s->b, b, special->separator);
    to.len = (uint32_t)(ids->len - to.at);
    return bad || append_row(s, split, to) != 0 ? fgio_fail(why, "not enough memory") : 0;
}

int fgt_sentences_begin(const fgt_data_options *options, uint32_t classes, const char *name, fgt_data *data,
                        fgt_sentences *s) {
    *s = (fgt_sentences){.data = data};
    if (options->tokens == NULL)
        return fgio_error("%s: sentences need the file of a WordPiece vocabulary for their tokens", options->path);
    sentence_store *state = calloc(1, sizeof *state);
    if (state == NULL)
        return fgio_error("not enough memory for a data set");
    data->source = &sentences_source;
    data->state = state;
    if (fgt_wordpiece_open(options->tokens, &s->pieces) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    data->info.vocab = fgt_wordpiece_vocab(s->pieces);
    data->info.classes = classes;
    data->info.name = name;
    s->a.wide = s->b.wide = state->ids.wide = data->info.vocab > UINT16_MAX + 1;
    return FGIO_EXIT_OK;
}

void fgt_sentences_end(fgt_sentences *s) {
    fgt_wordpiece_cache_free(&s->cache);
    fgt_ids_free(&s->a);
    fgt_ids_free(&s->b);
    fgt_wordpiece_destroy(s->pieces);
}

const char *fgt_sentences_task(const fgt_data_options *options, const fgt_data *data) {
    return options->subset == NULL ? data->name : options->subset;
}
