/*
 * text_sample.c - each token is drawn from the softmax of the scores at the end of the text so far. A graph that was
 * built for it computes token by token; others compute the whole window for each token, in which the positions after
 * the text are padding, which a causal model does not attend to.
 */
#include "trainer/run/text_sample.h"

#include "trainer/base/counted_alloc.h"
#include "trainer/base/keyed_random.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float score;
    int32_t token;
} candidate;

typedef struct sampler {
    fgt_graph *g;
    const fgt_sampling *options;
    const fgt_value *scores; /* (T, vocab) */
    int32_t *tokens;         /* the window */
    int32_t *targets;        /* as many: no targets */
    candidate *candidates;   /* vocab */
    size_t filled;           /* tokens in the window */
    uint64_t drawn;          /* tokens so far */
} sampler;

static int by_score(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->token > b->token ? 1 : -1;
}

/* Tokens of the window. */
static size_t window_length(const sampler *s) {
    return s->g->past_most ? s->g->past_most : s->scores->dims[0];
}

static void push_token(sampler *s, int32_t token) {
    const size_t T = window_length(s);
    if (s->filled == T) {
        memmove(s->tokens, s->tokens + 1, (T - 1) * sizeof *s->tokens);
        s->filled--;
    }
    s->tokens[s->filled++] = token;
}

/* Draws one of the first `limit` candidates, most likely first. */
static int32_t draw_token(const sampler *s, size_t limit) {
    const candidate *c = s->candidates;
    const double temperature = s->options->temperature;
    double total = 0.0;
    for (size_t i = 0; i < limit; i++)
        total += exp(((double)c[i].score - (double)c[0].score) / temperature);
    uint64_t bits = fgt_random(s->options->seed, FGT_STREAM_SAMPLE, s->drawn);
    double left = (double)(bits >> 11) * 0x1p-53 * total;
    for (size_t i = 0; i + 1 < limit; i++) {
        left -= exp(((double)c[i].score - (double)c[0].score) / temperature);
        if (left < 0.0)
            return c[i].token;
    }
    return c[limit - 1].token;
}

/* The scores at the end of the text. */
static const float *compute_scores(sampler *s) {
    fgt_batch batch = {.n = 1, .tokens = s->tokens, .targets = s->targets};
    if (!s->g->past_most) {
        fgt_graph_forward(s->g, &batch, false);
        return s->scores->data + (s->filled - 1) * s->scores->dims[1];
    }
    for (; s->g->past < s->filled; s->g->past++) {
        batch.tokens = s->tokens + s->g->past;
        fgt_graph_forward(s->g, &batch, false);
    }
    return s->scores->data;
}

static int next_token(sampler *s, int32_t *token) {
    const size_t vocab = s->scores->dims[1];
    const float *scores = compute_scores(s);
    for (size_t i = 0; i < vocab; i++) {
        if (isnan(scores[i]))
            return fgio_error("the model's scores are NaN");
        s->candidates[i] = (candidate){scores[i], (int32_t)i};
    }
    qsort(s->candidates, vocab, sizeof *s->candidates, by_score);
    size_t limit = s->options->top_k && s->options->top_k < vocab ? s->options->top_k : vocab;
    *token = s->options->temperature > 0.0 ? draw_token(s, limit) : s->candidates[0].token;
    s->drawn++;
    return FGIO_EXIT_OK;
}

static int generate(sampler *s, const int32_t *text, size_t count, size_t more, fgt_sample_fn *fn, void *ctx) {
    const size_t T = window_length(s), vocab = s->scores->dims[1];
    s->g->past = 0;
    if (s->g->past_most && count + more > T)
        return fgio_error("the text has more than the %zu tokens that the model was built for", T);
    for (size_t i = 0; i < T; i++)
        s->targets[i] = -1;
    for (size_t i = 0; i < count; i++) {
        if (text[i] < 0 || (size_t)text[i] >= vocab)
            return fgio_error(
                "the text has token %d, but the model's vocabulary is 0 to %zu: --tokens differs from that of training",
                text[i], vocab - 1);
        push_token(s, text[i]);
    }
    for (size_t i = 0; i < more; i++) {
        int32_t token = 0;
        if (next_token(s, &token) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        if (!fn(ctx, token))
            break;
        push_token(s, token);
    }
    return FGIO_EXIT_OK;
}

int fgt_sample(fgt_graph *g, const fgt_sampling *options, const int32_t *text, size_t count, size_t more,
               fgt_sample_fn *fn, void *ctx) {
    const fgt_value *scores = g->last ? g->last->in[0] : NULL;
    if (!scores || scores->ndim != 2)
        return fgio_error("only language models generate text");
    if (count == 0)
        return fgio_error("the text to continue must have at least one token");
    sampler s = {.g = g, .options = options, .scores = scores};
    s.tokens = fgt_counted_alloc(FGT_USE_DATA, window_length(&s) * sizeof *s.tokens);
    s.targets = fgt_counted_alloc(FGT_USE_DATA, window_length(&s) * sizeof *s.targets);
    s.candidates = fgt_counted_alloc(FGT_USE_DATA, scores->dims[1] * sizeof *s.candidates);
    int status = s.tokens && s.targets && s.candidates ? generate(&s, text, count, more, fn, ctx)
                                                       : fgio_error("not enough memory to generate text");
    fgt_counted_free(s.tokens);
    fgt_counted_free(s.targets);
    fgt_counted_free(s.candidates);
    return status;
}
