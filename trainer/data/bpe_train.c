/*
 * bpe_train.c - learning a BPE (Sennrich et al. 2016): the most frequent pair of adjacent tokens becomes a token, again
 * and again. Words are kept once, with their counts. Each pair has a list of the words it was ever in, so that a merge
 * visits only these. A heap has the pairs by their counts when they were pushed; counts of existing pairs only fall, so
 * a pair whose count has changed is pushed again when it is popped. Ties go to the pair with the lower ids.
 *
 * A pair that together spells an existing token is not merged: bpe.c wants a token to be made in one way.
 */
#include "trainer/data/bpe_train.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/bpe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 64, FIRST_SLOTS = 1 << 16, NO_NODE = -1 };
static const char end_token[] = "<|endoftext|>";

typedef struct word {
    size_t at; /* of its tokens */
    uint32_t len, count;
} word;

typedef struct node {
    uint32_t word;
    int64_t next; /* or NO_NODE */
} node;

typedef struct pair {
    uint32_t left, right;
    uint64_t count;
    int64_t words; /* list of words, may have one twice */
} pair;

typedef struct candidate {
    uint64_t count;
    uint32_t left, right, pair;
} candidate;

typedef struct token {
    uint32_t left, right, len;
    unsigned char bytes[WORD_MAX];
} token;

typedef struct trainer {
    word *words;
    uint32_t *ids; /* tokens of all words */
    size_t word_count;
    pair *pairs;
    uint32_t *slots; /* hash table of pairs: index + 1, 0: free */
    size_t pair_count, pair_cap;
    node *nodes;
    size_t node_count, node_cap;
    candidate *heap;
    size_t heap_len, heap_cap;
    token *tokens;
    uint32_t token_count;
    fgt_string_map spelled; /* the bytes of all tokens */
} trainer;

int fgt_bpe_count_words(fgt_string_map *counts, const unsigned char *text, size_t len) {
    for (size_t at = 0, end; at < len; at = end) {
        end = fgt_bpe_word_end(text, len, at);
        if (end - at > WORD_MAX)
            continue;
        uint32_t seen = fgt_string_map_get(counts, text + at, end - at);
        seen = seen == FGT_STRING_NONE ? 1 : seen < UINT32_MAX - 1 ? seen + 1 : seen;
        if (fgt_string_map_put(counts, text + at, end - at, seen) != 0)
            return -1;
    }
    return 0;
}

/* Makes room for one more element. Returns 0, or -1 without memory. */
static int grow(void **array, size_t count, size_t *cap, size_t size) {
    if (count < *cap)
        return 0;
    size_t more = *cap == 0 ? 1024 : *cap * 2;
    void *grown = realloc(*array, more * size);
    if (grown == NULL)
        return -1;
    *array = grown;
    *cap = more;
    return 0;
}

/* ---- pairs ---- */

static size_t slot_of(const trainer *t, uint32_t left, uint32_t right) {
    size_t mask = 2 * t->pair_cap - 1, slot = (size_t)fgt_mix((uint64_t)left << 32 | right) & mask;
    for (; t->slots[slot] != 0; slot = (slot + 1) & mask) {
        const pair *p = &t->pairs[t->slots[slot] - 1];
        if (p->left == left && p->right == right)
            break;
    }
    return slot;
}

/* Doubles the room for pairs; the table has twice as many slots. */
static int grow_pairs(trainer *t) {
    size_t cap = t->pair_cap == 0 ? FIRST_SLOTS : 2 * t->pair_cap;
    pair *pairs = realloc(t->pairs, cap * sizeof *pairs);
    uint32_t *slots = calloc(2 * cap, sizeof *slots);
    if (pairs != NULL)
        t->pairs = pairs;
    if (pairs == NULL || slots == NULL) {
        free(slots);
        return -1;
    }
    free(t->slots);
    t->slots = slots;
    t->pair_cap = cap;
    for (size_t i = 0; i < t->pair_count; i++)
        slots[slot_of(t, pairs[i].left, pairs[i].right)] = (uint32_t)i + 1;
    return 0;
}

/* The pair of two tokens, new if there is none; NULL without memory. */
static pair *pair_of(trainer *t, uint32_t left, uint32_t right) {
    if (t->pair_count == t->pair_cap && grow_pairs(t) != 0)
        return NULL;
    size_t slot = slot_of(t, left, right);
    if (t->slots[slot] == 0) {
        t->pairs[t->pair_count++] = (pair){.left = left, .right = right, .words = NO_NODE};
        t->slots[slot] = (uint32_t)t->pair_count;
    }
    return &t->pairs[t->slots[slot] - 1];
}

static int list_word(trainer *t, pair *p, uint32_t w) {
    if (p->words != NO_NODE && t->nodes[p->words].word == w)
        return 0;
    if (grow((void **)&t->nodes, t->node_count, &t->node_cap, sizeof *t->nodes) != 0)
        return -1;
    t->nodes[t->node_count] = (node){w, p->words};
    p->words = (int64_t)t->node_count++;
    return 0;
}

/* Adds the pairs of a word to their counts, and the word to the lists of those with a token from `fresh` on. */
static int add_pairs(trainer *t, uint32_t w, uint32_t fresh) {
    const word *now = &t->words[w];
    const uint32_t *id = t->ids + now->at;
    for (uint32_t i = 0; i + 1 < now->len; i++) {
        pair *p = pair_of(t, id[i], id[i + 1]);
        if (p == NULL || ((id[i] >= fresh || id[i + 1] >= fresh) && list_word(t, p, w) != 0))
            return -1;
        p->count += now->count;
    }
    return 0;
}

static void subtract_pairs(trainer *t, const word *now) {
    const uint32_t *id = t->ids + now->at;
    for (uint32_t i = 0; i + 1 < now->len; i++)
        t->pairs[t->slots[slot_of(t, id[i], id[i + 1])] - 1].count -= now->count;
}

/* ---- the heap ---- */

static int comes_before(const candidate *a, const candidate *b) {
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static int heap_push(trainer *t, uint32_t index) {
    const pair *p = &t->pairs[index];
    candidate item = {p->count, p->left, p->right, index};
    if (grow((void **)&t->heap, t->heap_len, &t->heap_cap, sizeof *t->heap) != 0)
        return -1;
    size_t i = t->heap_len++;
    for (; i > 0 && comes_before(&item, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = item;
    return 0;
}

static candidate heap_pop(trainer *t) {
    candidate top = t->heap[0], item = t->heap[--t->heap_len];
    size_t i = 0;
    for (size_t child = 1; child < t->heap_len; child = 2 * i + 1) {
        child += child + 1 < t->heap_len && comes_before(&t->heap[child + 1], &t->heap[child]);
        if (!comes_before(&t->heap[child], &item))
            break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = item;
    return top;
}

static int push_pairs(trainer *t, size_t first) {
    for (size_t i = first; i < t->pair_count; i++)
        if (t->pairs[i].count > 1 && heap_push(t, (uint32_t)i) != 0)
            return -1;
    return 0;
}

/* ---- merging ---- */

/* A token of two others. Returns 0 if it is new, 1 if its bytes exist already, -1 without memory. */
static int add_token(trainer *t, uint32_t left, uint32_t right) {
    token *made = &t->tokens[t->token_count];
    const token *a = &t->tokens[left], *b = &t->tokens[right];
    *made = (token){.left = left, .right = right, .len = a->len + b->len};
    memcpy(made->bytes, a->bytes, a->len);
    memcpy(made->bytes + a->len, b->bytes, b->len);
    if (fgt_string_map_get(&t->spelled, made->bytes, made->len) != FGT_STRING_NONE)
        return 1;
    return fgt_string_map_put(&t->spelled, made->bytes, made->len, t->token_count++);
}

static void replace_pair(trainer *t, word *now, const pair *p, uint32_t product) {
    uint32_t *id = t->ids + now->at, n = 0;
    for (uint32_t i = 0; i < now->len; i++) {
        int here = i + 1 < now->len && id[i] == p->left && id[i + 1] == p->right;
        id[n++] = here ? product : id[i];
        i += here ? 1 : 0;
    }
    now->len = n;
}

static int has_pair(const trainer *t, const word *now, const pair *p) {
    const uint32_t *id = t->ids + now->at;
    for (uint32_t i = 0; i + 1 < now->len; i++)
        if (id[i] == p->left && id[i + 1] == p->right)
            return 1;
    return 0;
}

static int merge_pair(trainer *t, uint32_t index) {
    pair p = t->pairs[index]; /* a copy: pairs may move */
    uint32_t product = t->token_count;
    size_t first = t->pair_count;
    int status = add_token(t, p.left, p.right);
    if (status != 0)
        return status < 0 ? -1 : 0;
    for (int64_t n = p.words; n != NO_NODE; n = t->nodes[n].next) {
        uint32_t w = t->nodes[n].word;
        if (!has_pair(t, &t->words[w], &p))
            continue;
        subtract_pairs(t, &t->words[w]);
        replace_pair(t, &t->words[w], &p, product);
        if (add_pairs(t, w, product) != 0)
            return -1;
    }
    return push_pairs(t, first);
}

static int learn(trainer *t, uint32_t tokens, fgio_reason *why) {
    while (t->token_count < tokens) {
        if (t->heap_len == 0)
            return fgio_fail(why, "the text gives %u tokens at most; expected %u", t->token_count + 1, tokens + 1);
        candidate top = heap_pop(t);
        uint64_t now = t->pairs[top.pair].count;
        int status = now == top.count ? merge_pair(t, top.pair) : now > 1 ? heap_push(t, top.pair) : 0;
        if (status != 0)
            return fgio_fail(why, "not enough memory to learn tokens");
    }
    return 0;
}

/* ---- before and after ---- */

static int begin(trainer *t, const fgt_string_map *counts, uint32_t vocab) {
    t->words = calloc((size_t)counts->count + 1, sizeof *t->words);
    t->ids = malloc((counts->pool_len + 1) * sizeof *t->ids);
    t->tokens = calloc(vocab, sizeof *t->tokens);
    if (t->words == NULL || t->ids == NULL || t->tokens == NULL)
        return -1;
    for (t->token_count = 0; t->token_count < 256; t->token_count++) {
        t->tokens[t->token_count].len = 1;
        t->tokens[t->token_count].bytes[0] = (unsigned char)t->token_count;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < counts->count; i++) {
        const fgt_string_entry *entry = &counts->words[i];
        t->words[i] = (word){at, entry->len, entry->value};
        for (uint32_t j = 0; j < entry->len; j++)
            t->ids[at++] = counts->pool[entry->at + j];
        if (add_pairs(t, i, 0) != 0)
            return -1;
    }
    return push_pairs(t, 0);
}

static int write_vocabulary(const trainer *t, fgio_bytes *out) {
    json_t *root = json_object();
    char text[2 * WORD_MAX + 1];
    int bad = 0;
    for (uint32_t i = 0; i < t->token_count; i++) {
        text[fgt_bpe_spell(t->tokens[i].bytes, t->tokens[i].len, text)] = '\0';
        bad |= json_object_set_new(root, text, json_integer(i));
    }
    bad |= json_object_set_new(root, end_token, json_integer(t->token_count));
    char *dumped = bad ? NULL : json_dumps(root, JSON_INDENT(0));
    json_decref(root);
    *out = (fgio_bytes){(unsigned char *)dumped, dumped == NULL ? 0 : strlen(dumped)};
    return dumped == NULL ? -1 : 0;
}

static int write_merges(const trainer *t, fgio_bytes *out) {
    static const char version[] = "#version: 0.2\n";
    char *text = malloc(sizeof version + (size_t)t->token_count * (2 * WORD_MAX + 2));
    if (text == NULL)
        return -1;
    size_t n = sizeof version - 1;
    memcpy(text, version, n);
    for (uint32_t i = 256; i < t->token_count; i++) {
        const token *left = &t->tokens[t->tokens[i].left], *right = &t->tokens[t->tokens[i].right];
        n += fgt_bpe_spell(left->bytes, left->len, text + n);
        text[n++] = ' ';
        n += fgt_bpe_spell(right->bytes, right->len, text + n);
        text[n++] = '\n';
    }
    *out = (fgio_bytes){(unsigned char *)text, n};
    return 0;
}

static void end(trainer *t) {
    free(t->words);
    free(t->ids);
    free(t->pairs);
    free(t->slots);
    free(t->nodes);
    free(t->heap);
    free(t->tokens);
    fgt_string_map_free(&t->spelled);
}

int fgt_bpe_train(const fgt_string_map *counts, uint32_t vocab, fgio_bytes *vocabulary, fgio_bytes *merges,
                  fgio_reason *why) {
    trainer t = {0};
    *vocabulary = *merges = (fgio_bytes){NULL, 0};
    int status = vocab < 257 ? fgio_fail(why, "a vocabulary has 257 tokens at least: the bytes, and the end of a text")
                 : begin(&t, counts, vocab) != 0 ? fgio_fail(why, "not enough memory to learn tokens")
                                                 : learn(&t, vocab - 1, why);
    if (status == 0 && (write_vocabulary(&t, vocabulary) != 0 || write_merges(&t, merges) != 0)) {
        fgio_bytes_free(vocabulary);
        status = fgio_fail(why, "not enough memory for a vocabulary");
    }
    end(&t);
    return status;
}
