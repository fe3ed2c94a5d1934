/*
 * option_table.c - every option of the config string, once.
 *
 * The parser, the canonical text, the help and the man page all read this table, so they cannot
 * disagree; the defaults are the fallback texts, read by the same parser. Where the values are words,
 * their order in the text is that of the enumeration in config.h, and the parser searches that text.
 */
#include "config/option_table.h"
#include "config/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint32_t block_lengths[] = {64, 128, 256, 1024, 4096};

/* Behind the lengths are auto and sgd, printed as their values. */
static void set_block(frug_config *config, size_t which) {
    const size_t lengths = sizeof block_lengths / sizeof block_lengths[0];
    config->block_choice = which < lengths    ? FRUGI_CHOICE_NUMBER
                           : which == lengths ? FRUGI_CHOICE_AUTO
                                              : FRUGI_CHOICE_SGD;
    config->block = which < lengths ? block_lengths[which] : 256;
}

static size_t get_block(const frug_config *config) {
    size_t which = 0;
    while (block_lengths[which] != config->block)
        which++;
    return which;
}

static void set_vectors(frug_config *config, size_t which) {
    config->vectors_dense = which == 0;
}

static size_t get_vectors(const frug_config *config) {
    return config->vectors_dense ? 0 : 1;
}

#define WORD_FIELD(field, type)                                                                                        \
    static void set_##field(frug_config *config, size_t which) {                                                       \
        config->field = (type)which;                                                                                   \
    }                                                                                                                  \
    static size_t get_##field(const frug_config *config) {                                                             \
        return (size_t)config->field;                                                                                  \
    }

WORD_FIELD(score, frugi_score)
WORD_FIELD(select, frugi_selector)
WORD_FIELD(layers, frugi_layers)
WORD_FIELD(norm, frugi_norm_rule)
WORD_FIELD(frequency, int)
WORD_FIELD(strict, int)
WORD_FIELD(transform, frugi_transform)
WORD_FIELD(mean, frugi_mean)
WORD_FIELD(feedback, frugi_feedback)
WORD_FIELD(mask, frugi_mask)
WORD_FIELD(residual, frugi_residual)
WORD_FIELD(index, frugi_index_choice)
WORD_FIELD(value, frugi_value)
WORD_FIELD(qnorm, frugi_qnorm)
WORD_FIELD(reduce, frugi_reduce)
WORD_FIELD(down, frugi_down)
WORD_FIELD(stats, frugi_stats_level)

static frug_status parse_word(const frugi_option_row *row, frugi_token value, frug_config *config) {
    char of[32];
    size_t which = 0;
    if (frugi_token_find(value, frugi_choice_of_text, row->option.values, &which)) {
        row->set(config, which);
        return FRUG_OK;
    }
    snprintf(of, sizeof of, " of %s", row->option.name);
    return frugi_token_unknown(value, "value", of, frugi_choice_of_text, row->option.values);
}

static void print_word(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    size_t len = 0;
    const char *word = frugi_choice_of_text(row->option.values, row->get(config), &len);
    snprintf(text, FRUGI_VALUE_TEXT_MAX, "%.*s", (int)len, word);
}

frug_status frugi_option_bad_number(const frugi_option_row *row, frugi_token value) {
    return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of %s at position %zu; accepted: %s",
                      frugi_token_shown(value), value.at, row->option.name, value.position, row->option.values);
}

static frug_status parse_count(const frugi_option_row *row, frugi_token value, frug_config *config) {
    uint64_t count = 0;
    if (!frugi_read_u64(value.at, value.len, &count))
        return frugi_option_bad_number(row, value);
    memcpy((char *)config + row->offset, &count, sizeof count);
    return FRUG_OK;
}

static void print_count(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    uint64_t count = 0;
    memcpy(&count, (const char *)config + row->offset, sizeof count);
    snprintf(text, FRUGI_VALUE_TEXT_MAX, "%" PRIu64, count);
}

/* The values of auto and sgd depend on the schedule, which a later option may change: resolve_auto() in config.c. */
static frug_status parse_beta(const frugi_option_row *row, frugi_token value, frug_config *config) {
    double beta = 0;
    config->beta_choice = frugi_token_is(value, "auto")  ? FRUGI_CHOICE_AUTO
                          : frugi_token_is(value, "sgd") ? FRUGI_CHOICE_SGD
                                                         : FRUGI_CHOICE_NUMBER;
    if (config->beta_choice != FRUGI_CHOICE_NUMBER)
        return FRUG_OK;
    if (!frugi_read_double(value.at, value.len, &beta) || beta < 0 || beta > 1)
        return frugi_option_bad_number(row, value);
    config->beta = beta;
    return FRUG_OK;
}

static void print_beta(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->beta_choice == FRUGI_CHOICE_AUTO)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "auto");
    else
        frugi_write_double(config->beta, text);
}

/* The values of auto and adam depend on the density of the step: retention.c. */
static frug_status parse_hold(const frugi_option_row *row, frugi_token value, frug_config *config) {
    double hold = 0;
    config->hold_rule = frugi_token_is(value, "auto")   ? FRUGI_HOLD_MOMENTUM
                        : frugi_token_is(value, "adam") ? FRUGI_HOLD_ADAM
                                                        : FRUGI_HOLD_NUMBER;
    config->hold = 0;
    if (config->hold_rule != FRUGI_HOLD_NUMBER || frugi_token_is(value, "off"))
        return FRUG_OK;
    if (!frugi_read_double(value.at, value.len, &hold) || hold < 0 || hold > 1)
        return frugi_option_bad_number(row, value);
    config->hold = hold;
    return FRUG_OK;
}

static void print_hold(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    static const char *const words[] = {"off", "auto", "adam"};
    if (config->hold > 0)
        frugi_write_double(config->hold, text);
    else
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", words[config->hold_rule]);
}

static int below_one(double x) {
    return x >= 0 && x < 1;
}

static int above_zero_to_thousand(double x) {
    return x > 0 && x <= 1000;
}

static int above_zero_to_one(double x) {
    return x > 0 && x <= 1;
}

static int not_negative(double x) {
    return x >= 0;
}

static frug_status parse_real(const frugi_option_row *row, frugi_token value, frug_config *config) {
    double number = 0;
    if (!frugi_read_double(value.at, value.len, &number) || !row->valid(number))
        return frugi_option_bad_number(row, value);
    memcpy((char *)config + row->offset, &number, sizeof number);
    return FRUG_OK;
}

static void print_real(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    double number = 0;
    memcpy(&number, (const char *)config + row->offset, sizeof number);
    frugi_write_double(number, text);
}

static frug_status parse_levels(const frugi_option_row *row, frugi_token value, frug_config *config) {
    uint64_t levels = 0;
    if (!frugi_read_u64(value.at, value.len, &levels) || levels < 1 || levels > 127)
        return frugi_option_bad_number(row, value);
    config->levels = (uint32_t)levels;
    return FRUG_OK;
}

static void print_levels(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    snprintf(text, FRUGI_VALUE_TEXT_MAX, "%" PRIu32, config->levels);
}

/* The value of auto depends on the value code, which a later option may change: resolve_auto() in config.c sets it. */
static frug_status parse_bucket(const frugi_option_row *row, frugi_token value, frug_config *config) {
    uint64_t bucket = 0;
    config->bucket_auto = frugi_token_is(value, "auto");
    if (config->bucket_auto)
        return FRUG_OK;
    if (!frugi_read_u64(value.at, value.len, &bucket) || bucket < 8 || bucket > 65536 || bucket % 8 != 0)
        return frugi_option_bad_number(row, value);
    config->bucket = (uint32_t)bucket;
    return FRUG_OK;
}

static void print_bucket(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->bucket_auto)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "auto");
    else
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%" PRIu32, config->bucket);
}

#define WORDS(field) .parse = parse_word, .print = print_word, .set = set_##field, .get = get_##field
#define COUNT(field) .parse = parse_count, .print = print_count, .offset = offsetof(frug_config, field)
#define REAL(field, range)                                                                                             \
    .parse = parse_real, .print = print_real, .valid = range, .offset = offsetof(frug_config, field)

static const frugi_option_row rows[] = {
    /* Selection. */
    {{"rule",
      "topk|threshold:absolute:T|threshold:percentile|threshold:track|random|probabilistic|hybrid[:MOST]|"
      "learned[:REFRESH:AGE:RATE]",
      "topk",
      "which units are sent: the largest; all above the threshold T, above the percentile of this step, or above a "
      "threshold tracked from step to step; a random set from a seed that both sides know; a random set in which "
      "larger "
      "ones are more likely; the largest of the tensor, but at most MOST (64) per block; or those in a mask that is "
      "learned at RATE (0.01), refreshed every REFRESH (200) steps, and includes each unit at least every AGE (2000) "
      "steps"},
     .parse = frugi_parse_rule,
     .print = frugi_print_rule},
    {{"segment", "block|tensor|all|N:M", "block",
      "where units compete: within blocks, within each tensor, across all tensors, or N of every M neighbors (M up to "
      "256), which sets the schedule to constant:(1 - N/M)"},
     .parse = frugi_parse_segment,
     .print = frugi_print_segment},
    {{"block", "64|128|256|1024|4096|auto|sgd", "256",
      "units per block for segment=block; auto: 64 below 97 % sparsity, 256 below 99.5 %, 4096 from there; sgd: 256 "
      "below 99.5 %, 4096 from there"},
     WORDS(block)},
    {{"unit", "element|run:L|tile:HxW|row|column|channel|head", "element",
      "what is selected as a whole: single entries, runs of L neighbors (2 to 65536), tiles (sides up to 1024), matrix "
      "rows or columns, output channels of a convolution, or attention heads"},
     .parse = frugi_parse_unit,
     .print = frugi_print_unit},
    {{"score", "l2|l1|max|given", "l2",
      "score of a unit of several entries: sum of squares, sum of magnitudes, largest magnitude, or a number from the "
      "program (unit=head)"},
     WORDS(score)},
    {{"select", "hist|exact", "hist",
      "how the largest of a block are found: by a histogram (fast, at least 99 % of the energy) or exactly; in whole "
      "tensors, always exactly"},
     WORDS(select)},

    /* Density. */
    {{"schedule",
      "constant:S|frugrad[:S0:SMAX:R]|anneal[:S0:S1]|dgc[:S:E:R]|relax[:S0:SMAX:R:SR:TAIL]|piecewise:T1:S1:T2:S2...",
      "constant:0.9375",
      "sparsity during training: always S; rising from S0 to SMAX (0.5, 0.94) over the first R (0.5) of training; "
      "falling from S0 to S1 (0.99, 0.9); rising to S (0.999) in E (5) stages of equal ratio over the first R (0.1); "
      "as frugrad, then falling to SR (0.9) over the last TAIL (0.1); or linear between 2 to 8 points (progress, "
      "sparsity)"},
     .parse = frugi_parse_schedule,
     .print = frugi_print_schedule},
    {{"density", "above 0, up to 1", "0.0625",
      "share of the entries that is sent; short for schedule=constant:(1 - density)"},
     .parse = frugi_parse_density},
    {{"layers", "even|role|budget|sensitivity", "even",
      "density of each tensor: the same for all; by role (embeddings at most 0.001, norms and biases 1); from one "
      "threshold over all tensors; or by sensitivities that the program sets"},
     WORDS(layers)},
    {{"norm", "off|follow|accordion", "off",
      "adapt the density to the norm of the gradient: in proportion to norm / running mean (1/4 to 4 times), or 4 "
      "times "
      "when the norm changes by half or more"},
     WORDS(norm)},
    {{"frequency", "off|on", "off",
      "larger limits for blocks that have sent many entries in recent steps (rule=hybrid)"},
     WORDS(frequency)},
    {{"strict", "off|on", "off", "scale the densities of layers so that the total stays exactly that of the schedule"},
     WORDS(strict)},
    {{"warmup", "a whole number", "0", "number of steps at the start that send everything"}, COUNT(warmup)},
    {{"dense_every", "a whole number", "0", "send everything every this many steps (500 is usual); 0: never"},
     COUNT(dense_every)},

    {{"transform", "off|cosine|hadamard", "off",
      "blocks are sent as coefficients of an orthonormal transform of two dimensions, so that each entry changes all "
      "weights of a block; done by the trainers"},
     WORDS(transform)},

    /* Error feedback. */
    {{"feedback", "merged|plain|dgc|none|ef21", "merged",
      "error feedback: momentum and residual in one buffer, a residual without decay, momentum and residual in two "
      "buffers, none, or the difference to what the receivers already have"},
     WORDS(feedback)},
    {{"beta", "auto, sgd, or 0 to 1", "auto",
      "decay of the buffer of feedback=merged; auto: 0.95, from a sparsity of 98 % on 0.99, or 0.98 where a number or "
      "hold=adam retains something; sgd: 0.95 below 99.5 %, 0.998 from there"},
     .parse = parse_beta,
     .print = print_beta},
    {{"hold", "off, auto, adam, or 0 to 1", "off",
      "retention: share of a sent entry that stays in the buffer of feedback=merged and is sent again; auto: the share "
      "that preserves the momentum at the density of the step; adam: 0.8 down to a density of 2.5 %, 0.5 at 1 %, 0 "
      "from 0.5 % on"},
     .parse = parse_hold,
     .print = print_hold},
    {{"momentum", "0 to below 1", "0.9", "momentum of feedback=dgc, and the one that hold=auto preserves"},
     REAL(momentum, below_one)},
    {{"theta", "above 0, up to 1", "0.1", "weight of the new gradient in feedback=ef21"},
     REAL(theta, above_zero_to_one)},
    {{"mask", "auto|on|off", "auto", "clear the momentum of what was sent (feedback=dgc); auto: below density 0.25"},
     WORDS(mask)},
    {{"clip", "0 or more", "0", "clip the gradient to this norm before it is added to the residual; 0: do not clip"},
     REAL(clip, not_negative)},
    {{"residual", "int8|int4|bf16|f32", "int8",
      "storage format of the residual; methods that select from whole tensors are fastest with f32"},
     WORDS(residual)},

    /* Encoding. */
    {{"index", "fixed|auto|local|bitmap|coo|csr|rle|rice", "fixed",
      "encoding of indices: the shorter of local and bitmap, the shortest of all, one byte each within blocks, one bit "
      "per unit, 32 bits each, rows and columns, run lengths, or Rice-coded gaps"},
     WORDS(index)},
    {{"value", "f32|bf16|f16|int8|int4|sign|two_bit|qsgd|onebit", "bf16",
      "encoding of values; qsgd (stochastic rounding to levels) and onebit (two means) only where everything is sent"},
     WORDS(value)},
    {{"bucket", "auto, or a multiple of 8 up to 65536", "auto",
      "values that share a scale, where they are not grouped by blocks; auto is 512 for qsgd and onebit, 64 for "
      "others"},
     .parse = parse_bucket,
     .print = print_bucket},
    {{"levels", "1 to 127", "127", "levels of value=qsgd besides zero; 127 need 8 bits with the sign, 7 need 4"},
     .parse = parse_levels,
     .print = print_levels},
    {{"qnorm", "l2|max", "l2", "scale of a value group of value=qsgd: its L2 norm, or its largest magnitude"},
     WORDS(qnorm)},

    /* Exchange, and the rest. */
    {{"reduce", "gather|dense|split|tree|nodes|shared|auto|gossip", "gather",
      "how workers sum their gradients: all-gather of frames; uncompressed all-reduce; reduce-scatter, then all-gather "
      "of the sums; a tree of pairwise sums; hierarchical, dense inside a node and sparse between nodes; common "
      "support, with the indices of one worker per step; the fastest in a short trial; or no sum: each worker steps "
      "by itself and averages its weights with its neighbors"},
     WORDS(reduce)},
    {{"down", "1|2|4|union", "union",
      "what a rank sends of the sum of its shard (reduce=split): this many times what a worker sends, and the "
      "remainder "
      "goes to its residual; or all nonzero entries"},
     WORDS(down)},
    {{"node", "a whole number", "0",
      "workers per node for reduce=nodes: ranks 0 to node - 1 share the first, and so on"},
     COUNT(node)},
    {{"topology", "ring|torus|random:D[:SEED]", "ring",
      "neighbors of a worker in gossip: two, four, or D drawn from SEED (0)"},
     .parse = frugi_parse_topology,
     .print = frugi_print_topology},
    {{"gamma", "above 0, up to 1", "0.2",
      "step size of gossip towards the mean of the neighbors; 1 only where everything is sent"},
     REAL(gamma, above_zero_to_one)},
    {{"average_every", "a whole number", "0",
      "average over all gossip workers every this many steps (32 is usual); 0: never"},
     COUNT(average_every)},
    {{"local", "a whole number", "0",
      "local steps: each worker's optimizer takes this many steps before workers exchange the differences of their "
      "weights, in place of gradients; 0: gradients are exchanged at every step"},
     COUNT(local)},
    {{"outer", "above 0, up to 1000", "1", "factor of the mean difference that is applied after local steps"},
     REAL(outer, above_zero_to_thousand)},
    {{"outer_momentum", "0 to below 1", "0", "Nesterov momentum of the mean differences of local steps; 0: none"},
     REAL(outer_momentum, below_one)},
    {{"mean", "all|senders", "all",
      "the mean difference of local steps is over all workers, or for each entry over those that sent it"},
     WORDS(mean)},
    {{"min_size", "a whole number", "4096", "tensors with fewer entries are sent dense"}, COUNT(min_size)},
    {{"vectors", "dense|sparse", "dense", "whether tensors of one dimension are sent dense or sparse"}, WORDS(vectors)},
    {{"seed", "a whole number", "0", "seed of random selection and of the stochastic rounding of the residual"},
     COUNT(seed)},
    {{"stats", "sample|full", "sample",
      "energy and stage times from one batch of blocks in 64 of each tensor, or from all"},
     WORDS(stats)},
};

const frugi_option_row *frugi_option_row_at(size_t i) {
    return i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}

const frug_option *frug_option_at(size_t i) {
    const frugi_option_row *row = frugi_option_row_at(i);
    return row ? &row->option : NULL;
}
