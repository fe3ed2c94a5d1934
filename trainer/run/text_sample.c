/*
 * text_sample.c - each token is drawn from the softmax of the scores at the end of the text so far. The whole window
 * goes through the model each time; what stands behind the text in it is filled up, and a causal model does not see it.
 */
#include "trainer/run/text_sample.h"

#include "trainer/base/counted_alloc.h"
#include "trainer/base/keyed_random.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice {
    float score;
    int32_t token;
} choice;

typedef struct sampler {
    fgt_graph *g;
    const fgt_sampling *how;
    const fgt_value *scores; /* (T, vocab) */
    int32_t *tokens;         /* the window: T */
    int32_t *targets;        /* T: nothing is asked */
    choice *choices;         /* vocab */
    size_t filled;           /* tokens in the window */
    uint64_t drawn;          /* tokens so far */
} sampler;

static int by_score(const void *left, const void *right) {
    const choice *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->token > b->token ? 1 : -1;
}

static void push(sampler *s, int32_t token) {
    const size_t T = s->scores->dims[0];
    if (s->filled == T) {
        memmove(s->tokens, s->tokens + 1, (T - 1) * sizeof *s->tokens);
        s->filled--;
    }
    s->tokens[s->filled++] = token;
}

/* Weights of the first `among` choices, likeliest first, until the draw falls into one of them. */
static int32_t draw(const sampler *s, size_t among) {
    const choice *c = s->choices;
    const double heat = s->how->temperature;
    double total = 0.0;
    for (size_t i = 0; i < among; i++)
        total += exp(((double)c[i].score - (double)c[0].score) / heat);
    uint64_t bits = fgt_random(s->how->seed, FGT_STREAM_SAMPLE, s->drawn);
    double left = (double)(bits >> 11) * 0x1p-53 * total;
    for (size_t i = 0; i + 1 < among; i++) {
        left -= exp(((double)c[i].score - (double)c[0].score) / heat);
        if (left < 0.0)
            return c[i].token;
    }
    return c[among - 1].token;
}

static int next_token(sampler *s, int32_t *token) {
    const size_t vocab = s->scores->dims[1];
    const fgt_batch batch = {.n = 1, .tokens = s->tokens, .targets = s->targets};
    fgt_graph_forward(s->g, &batch, false);
    const float *scores = s->scores->data + (s->filled - 1) * vocab;
    for (size_t i = 0; i < vocab; i++) {
        if (isnan(scores[i]))
            return fgio_error("the model's scores are not numbers");
        s->choices[i] = (choice){scores[i], (int32_t)i};
    }
    qsort(s->choices, vocab, sizeof *s->choices, by_score);
    size_t among = s->how->top_k && s->how->top_k < vocab ? s->how->top_k : vocab;
    *token = s->how->temperature > 0.0 ? draw(s, among) : s->choices[0].token;
    s->drawn++;
    return FGIO_EXIT_OK;
}

static int run(sampler *s, const int32_t *text, size_t count, size_t more, fgt_sample_fn *take, void *ctx) {
    const size_t T = s->scores->dims[0], vocab = s->scores->dims[1];
    for (size_t i = 0; i < T; i++)
        s->targets[i] = -1;
    for (size_t i = 0; i < count; i++) {
        if (text[i] < 0 || (size_t)text[i] >= vocab)
            return fgio_error(
                "the text has token %d, and the model knows 0 to %zu: --tokens is not what it was trained with",
                text[i], vocab - 1);
        push(s, text[i]);
    }
    for (size_t i = 0; i < more; i++) {
        int32_t token = 0;
        if (next_token(s, &token) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        if (!take(ctx, token))
            break;
        push(s, token);
    }
    return FGIO_EXIT_OK;
}

int fgt_sample(fgt_graph *g, const fgt_sampling *how, const int32_t *text, size_t count, size_t more,
               fgt_sample_fn *take, void *ctx) {
    const fgt_value *scores = g->last ? g->last->in[0] : NULL;
    if (!scores || scores->ndim != 2)
        return fgio_error("only language models make text");
    if (count == 0)
        return fgio_error("a text to go on with has at least one token");
    sampler s = {.g = g, .how = how, .scores = scores};
    s.tokens = fgt_hold(FGT_USE_DATA, scores->dims[0] * sizeof *s.tokens);
    s.targets = fgt_hold(FGT_USE_DATA, scores->dims[0] * sizeof *s.targets);
    s.choices = fgt_hold(FGT_USE_DATA, scores->dims[1] * sizeof *s.choices);
    int status = s.tokens && s.targets && s.choices ? run(&s, text, count, more, take, ctx)
                                                    : fgio_error("not enough memory to make text");
    fgt_let_go(s.tokens);
    fgt_let_go(s.targets);
    fgt_let_go(s.choices);
    return status;
}
