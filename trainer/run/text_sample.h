/* text_sample.h - generating text with a language model, token by token. */
#ifndef FGT_TEXT_SAMPLE_H
#define FGT_TEXT_SAMPLE_H

#include "trainer/nn/graph.h"

/** How the next token is drawn. */
typedef struct fgt_sampling {
    double temperature; /* divides the scores; 0: always the most likely token */
    uint32_t top_k;     /* from this many of the most likely tokens; 0: from all */
    uint64_t seed;
} fgt_sampling;

/** Called with every new token; returns false to stop. */
typedef bool fgt_sample_fn(void *ctx, int32_t token);

/** Continues a text of count >= 1 tokens by `more` tokens. A graph built for past_most tokens computes one token after
 * the other, and count + more may not exceed that. Any other reads the last T tokens, T being the length it was built
 * for: build it for no more than is needed, since every token costs a forward pass over all T. The same seed, text and
 * weights give the same tokens. Returns an exit status, after an error message: not a language model, a token outside
 * its vocabulary, scores that are NaN. */
int fgt_sample(fgt_graph *g, const fgt_sampling *options, const int32_t *text, size_t count, size_t more,
               fgt_sample_fn *fn, void *ctx);

#endif
