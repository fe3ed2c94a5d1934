/*
 * option_table.c - every option of the config string, once.
 *
 * The parser, the canonical text, the help and the man page all read this table, so they cannot
 * disagree; the defaults are the fallback texts, read by the same parser. Where the values are words,
 * their order in the text is that of the enumeration in config.h, and the text itself is searched.
 */
#include "config/option_table.h"
#include "config/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint32_t block_lengths[] = {64, 128, 256, 1024, 4096};

static void set_block(frug_config *config, size_t which) {
    config->block = block_lengths[which];
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
WORD_FIELD(feedback, frugi_feedback)
WORD_FIELD(mask, frugi_mask)
WORD_FIELD(residual, frugi_residual)
WORD_FIELD(index, frugi_index_choice)
WORD_FIELD(value, frugi_value)
WORD_FIELD(qnorm, frugi_qnorm)
WORD_FIELD(reduce, frugi_reduce)
WORD_FIELD(down, frugi_down)
WORD_FIELD(stats, frugi_stats_level)

static frug_status parse_word(const frugi_option_row *row, frugi_word value, frug_config *config) {
    char of[32];
    size_t which = 0;
    if (frugi_word_find(value, frugi_choice_of_text, row->option.values, &which)) {
        row->set(config, which);
        return FRUG_OK;
    }
    snprintf(of, sizeof of, " of %s", row->option.name);
    return frugi_word_unknown(value, "value", of, frugi_choice_of_text, row->option.values);
}

static void print_word(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    size_t len = 0;
    const char *word = frugi_choice_of_text(row->option.values, row->get(config), &len);
    snprintf(text, FRUGI_VALUE_TEXT_MAX, "%.*s", (int)len, word);
}

frug_status frugi_option_bad_number(const frugi_option_row *row, frugi_word value) {
    return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of %s at position %zu; accepted: %s",
                      frugi_word_shown(value), value.at, row->option.name, value.position, row->option.values);
}

static frug_status parse_count(const frugi_option_row *row, frugi_word value, frug_config *config) {
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

/* What auto means depends on the schedule, which may still change: resolve() in config.c decides. */
static frug_status parse_beta(const frugi_option_row *row, frugi_word value, frug_config *config) {
    double beta = 0;
    config->beta_auto = frugi_word_is(value, "auto");
    if (config->beta_auto)
        return FRUG_OK;
    if (!frugi_read_double(value.at, value.len, &beta) || beta < 0 || beta > 1)
        return frugi_option_bad_number(row, value);
    config->beta = beta;
    return FRUG_OK;
}

static void print_beta(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->beta_auto)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "auto");
    else
        frugi_write_double(config->beta, text);
}

/* What auto means depends on the density of a step: step_options.c. */
static frug_status parse_hold(const frugi_option_row *row, frugi_word value, frug_config *config) {
    double hold = 0;
    config->hold_auto = frugi_word_is(value, "auto");
    config->hold = 0;
    if (config->hold_auto || frugi_word_is(value, "off"))
        return FRUG_OK;
    if (!frugi_read_double(value.at, value.len, &hold) || hold < 0 || hold > 1)
        return frugi_option_bad_number(row, value);
    config->hold = hold;
    return FRUG_OK;
}

static void print_hold(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->hold_auto || config->hold == 0)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, config->hold_auto ? "auto" : "off");
    else
        frugi_write_double(config->hold, text);
}

static int below_one(double x) {
    return x >= 0 && x < 1;
}

static int above_zero_to_one(double x) {
    return x > 0 && x <= 1;
}

static int not_negative(double x) {
    return x >= 0;
}

static frug_status parse_real(const frugi_option_row *row, frugi_word value, frug_config *config) {
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

static frug_status parse_levels(const frugi_option_row *row, frugi_word value, frug_config *config) {
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

/* Auto depends on the value code, which may still change: resolve() in config.c decides. */
static frug_status parse_bucket(const frugi_option_row *row, frugi_word value, frug_config *config) {
    uint64_t bucket = 0;
    config->bucket_auto = frugi_word_is(value, "auto");
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
    /* Who competes, for what, and who wins. */
    {{"rule",
      "topk|threshold:absolute:T|threshold:percentile|threshold:track|random|probabilistic|hybrid[:MOST]|"
      "learned[:REFRESH:AGE:RATE]",
      "topk",
      "who wins: the largest; all above T, above this step's percentile or above one followed from step to step; any, "
      "drawn from a seed that both sides know; any, likelier when larger; the largest of all, but at most MOST (64) of "
      "a block; or a mask learned at RATE (0.01), renewed every REFRESH (200) steps, that lets nobody wait beyond AGE "
      "(2000)"},
     .parse = frugi_parse_rule,
     .print = frugi_print_rule},
    {{"segment", "block|tensor|all|N:M", "block",
      "where they compete: within blocks, within each tensor, across all tensors, or N of every M neighbours (M up to "
      "256), which sets the schedule to constant:(1 - N/M)"},
     .parse = frugi_parse_segment,
     .print = frugi_print_segment},
    {{"block", "64|128|256|1024|4096", "256", "units that compete with each other where segment=block"}, WORDS(block)},
    {{"unit", "element|run:L|tile:HxW|row|column|channel|head", "element",
      "what is sent or kept back as one: single entries, L neighbours (2 to 65536), tiles (sides up to 1024), matrix "
      "rows or columns, output channels of a convolution, or attention heads"},
     .parse = frugi_parse_unit,
     .print = frugi_print_unit},
    {{"score", "l2|l1|max|given", "l2",
      "what a unit of several entries weighs: squares, magnitudes, the largest, or what the program gives (unit=head)"},
     WORDS(score)},
    {{"select", "hist|exact", "hist",
      "the largest of a block by a histogram (fast, at least 99 % of the energy), or exactly; whole tensors are always "
      "searched exactly"},
     WORDS(select)},

    /* How many, and when. */
    {{"schedule",
      "constant:S|frugrad[:S0:SMAX:R]|anneal[:S0:S1]|dgc[:S:E:R]|relax[:S0:SMAX:R:SR:TAIL]|piecewise:T1:S1:T2:S2...",
      "constant:0.9375",
      "share held back: always S; rising from S0 to SMAX (0.5, 0.94) over the first R (0.5) of training; falling from "
      "S0 to S1 (0.99, 0.9); to S (0.999) in E (5) stages of equal ratio over the first R (0.1); frugrad, then falling "
      "to SR (0.9) over the last TAIL (0.1); or straight between 2 to 8 points (progress, share)"},
     .parse = frugi_parse_schedule,
     .print = frugi_print_schedule},
    {{"density", "above 0, up to 1", "0.0625", "share sent; short for schedule=constant:(1 - density)"},
     .parse = frugi_parse_density},
    {{"layers", "even|role|budget|sensitivity", "even",
      "how tensors share: all alike, embeddings 0.001 at most, by one threshold for all, or by what the program says "
      "compressing each one costs"},
     WORDS(layers)},
    {{"norm", "off|follow|accordion", "off",
      "send more when the norm of the gradient grows: in proportion to its running mean (1/4 to 4 times), or 4 times "
      "when it changes by half"},
     WORDS(norm)},
    {{"frequency", "off|on", "off", "blocks that have sent much lately may send more (rule=hybrid)"}, WORDS(frequency)},
    {{"strict", "off|on", "off", "what layers gives one tensor it takes from the others, to the entry"}, WORDS(strict)},
    {{"warmup", "a whole number", "0", "steps at the start that send everything"}, COUNT(warmup)},
    {{"dense_every", "a whole number", "0", "every so many steps, one sends everything (500 is usual); 0: never"},
     COUNT(dense_every)},

    /* What stays behind. */
    {{"feedback", "merged|plain|dgc|none|ef21", "merged",
      "what stays behind: momentum and residual in one buffer, an undecayed residual, two buffers, nothing, or the "
      "difference to what receivers already hold"},
     WORDS(feedback)},
    {{"beta", "auto, or 0 to 1", "auto",
      "decay of the buffer of feedback=merged; auto is 0.95, or 0.99 when 98 % or more is held back (0.98 with a "
      "number "
      "for hold)"},
     .parse = parse_beta,
     .print = print_beta},
    {{"hold", "off, auto, or 0 to 1", "off",
      "share of a sent entry that stays in the buffer of feedback=merged and is sent again; auto: as much as keeps the "
      "momentum up at any density"},
     .parse = parse_hold,
     .print = print_hold},
    {{"momentum", "0 to below 1", "0.9", "momentum of feedback=dgc, and the one that hold=auto keeps up"},
     REAL(momentum, below_one)},
    {{"theta", "above 0, up to 1", "0.1", "weight of the new gradient in feedback=ef21"},
     REAL(theta, above_zero_to_one)},
    {{"mask", "auto|on|off", "auto", "clear the momentum of what was sent (feedback=dgc); auto: below density 0.25"},
     WORDS(mask)},
    {{"clip", "0 or more", "0", "the largest norm of a gradient before it joins what stayed behind; 0: any"},
     REAL(clip, not_negative)},
    {{"residual", "int8|int4|bf16|f32", "int8",
      "how what stays behind is stored; methods that look at whole tensors work fastest on f32"},
     WORDS(residual)},

    /* How it travels. */
    {{"index", "fixed|auto|local|bitmap|coo|csr|rle|rice", "fixed",
      "how places travel: the shorter of local and bitmap, the shortest of all, one byte each within blocks, one bit "
      "per unit, 32 bits each, rows and columns, run lengths, or Rice-coded gaps"},
     WORDS(index)},
    {{"value", "f32|bf16|f16|int8|int4|sign|two_bit|qsgd|onebit", "bf16",
      "how values travel; qsgd (rounded at random to levels) and onebit (two means) where everything is sent"},
     WORDS(value)},
    {{"bucket", "auto, or a multiple of 8 up to 65536", "auto",
      "values that share a scale, where blocks do not say it; auto is 512 for qsgd and onebit, 64 for others"},
     .parse = parse_bucket,
     .print = print_bucket},
    {{"levels", "1 to 127", "127", "levels of value=qsgd beside zero; 127 take 8 bits with the sign, 7 take 4"},
     .parse = parse_levels,
     .print = print_levels},
    {{"qnorm", "l2|max", "l2", "what value=qsgd divides a bucket by: its norm, or its largest magnitude"},
     WORDS(qnorm)},

    /* The rest. */
    {{"reduce", "gather|dense|split|tree|nodes|shared|auto|gossip", "gather",
      "how workers add up what they send: everything to everyone; uncompressed; each part to its owner, who sends the "
      "sum on; sums of two, four, eight workers; dense inside a machine and sparse between machines; all at the "
      "same places, which one worker at a time chooses; what a short trial finds fastest; or not at all: each steps "
      "by itself, and weights are averaged with neighbours"},
     WORDS(reduce)},
    {{"down", "1|2|4|union", "union",
      "what an owner sends on of its sum (reduce=split): so many times what a worker sends, while the rest joins what "
      "the owner has left behind, or all that is not zero"},
     WORDS(down)},
    {{"node", "a whole number", "0", "workers that share a machine, for reduce=nodes: ranks 0 to node - 1, and so on"},
     COUNT(node)},
    {{"servers", "a whole number", "1", "ranks that serve, from 0 on, where there are parameter servers"},
     COUNT(servers)},
    {{"staleness", "a whole number", "0",
      "steps that a worker of a parameter server may be ahead of the slowest; 0: all in step, and deterministic"},
     COUNT(staleness)},
    {{"topology", "ring|torus|random:D[:SEED]", "ring",
      "who talks to whom in gossip: two neighbours, four, or D drawn from SEED (0)"},
     .parse = frugi_parse_topology,
     .print = frugi_print_topology},
    {{"gamma", "above 0, up to 1", "0.2",
      "how far a gossiping worker moves towards its neighbours; 1 only where everything is sent"},
     REAL(gamma, above_zero_to_one)},
    {{"average_every", "a whole number", "0",
      "every so many steps, gossiping workers average over all (32 is usual); 0: never"},
     COUNT(average_every)},
    {{"min_size", "a whole number", "4096", "tensors with fewer entries travel dense"}, COUNT(min_size)},
    {{"vectors", "dense|sparse", "dense", "how tensors of one dimension travel"}, WORDS(vectors)},
    {{"seed", "a whole number", "0", "seed of all that is random: draws, and the rounding of what stays behind"},
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
