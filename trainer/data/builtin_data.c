/*
 * builtin_data.c - synthetic data: samples computed on demand, the same on every machine and for every seed, for
 * every task and size. Nothing is stored, so they fit models of any input size.
 *
 * - Images: stripes at one of some angles to the horizontal (leaning either way) and one of two widths, with random
 * phase and contrast, on a random shade, in noise. Angle and width make the class. As the phase is random, all classes
 * have the same mean image: a linear model stays near chance, two layers of convolution do not.
 * - Tokens: a chain in which each token has four successors, of probability 1/2, 1/4, 1/8, 1/8, by one of four tables;
 *   the first token selects it. Knowing the table leaves 1.213 nats a token, not knowing it up to 2.6.
 * - Sentences: words of one group outnumber those of another; which group, is the class, moved on by one where the word
 *   "not" occurs, in one sentence of four. A sum of weights of words gets at most seven in eight right (with two
 *   classes: no weight of "not" turns both around), seeing both together gets all.
 */
#include "trainer/data/epoch_order.h"
#include "trainer/base/keyed_random.h"
#include "io/error.h"
#include "trainer/data/data_source.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { PAD, CLS, SEP, MASK, WORDS }; /* ids of the special tokens, and of the first word */
enum {
    SAMPLES = 4096,
    SHORT_LENGTH = 256, /* tokens */
    TOPICS = 4,
    CHAIN_WORDS = 256, /* maximum of different tokens, because a larger chain would need long texts to be learned */
    SENTENCE_WORDS = 1024,
    CUES = 4, /* words of a group */
    SIDE_MAX = 1 << 14
};

/* Random key of a sample. */
static uint64_t sample_key(fgt_sample_id id) {
    return fgt_random(FGT_STREAM_BUILTIN, (uint64_t)id.split, id.index);
}

/* Approximately normal: the sum of four uniform numbers, scaled to variance 1. */
static float noise(uint64_t bits) {
    uint32_t sum = (uint32_t)(bits & 0xFFFF) + (uint32_t)(bits >> 16 & 0xFFFF) + (uint32_t)(bits >> 32 & 0xFFFF) +
                   (uint32_t)(bits >> 48);
    return ((float)sum * 0x1p-16f - 2.0f) * 1.7320508f;
}

/* Stripes: a wave of this phase, growing by these steps per pixel. */
typedef struct stripes {
    float right, down, phase, contrast, shade;
} stripes;

static stripes make_stripes(uint64_t key, uint32_t label, uint32_t classes) {
    const float pi = 3.14159265f;
    uint32_t angles = (classes + 1) / 2;
    float angle = angles == 1 ? 0 : 0.5f * pi * (float)(label / 2) / (float)(angles - 1);
    float step = label % 2 == 0 ? 0.55f : 1.1f; /* radians a pixel: stripes of 11 and 6 pixels */
    float side = (fgt_mix(key + 1) & 1) != 0 ? 1.0f : -1.0f;
    return (stripes){.right = side * step * sinf(angle),
                     .down = step * cosf(angle),
                     .phase = 2 * pi * fgt_uniform(fgt_mix(key + 2)),
                     .contrast = 0.6f + 0.8f * fgt_uniform(fgt_mix(key + 3)),
                     .shade = noise(fgt_mix(key + 4)) * 0.5f};
}

static void image_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const fgt_data_info *info = &data->info;
    int height = (int)info->height, width = (int)info->width;
    size_t plane = (size_t)height * (size_t)width;
    uint64_t key = sample_key(id);
    uint32_t label = (uint32_t)(id.index % info->classes);
    stripes s = make_stripes(key, label, info->classes);
    fgt_image_shift shift = fgt_augment_draw(data, id);
    float *pixels = batch->pixels + slot * info->channels * plane;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int right = (shift.flip ? width - 1 - x : x) + shift.right, down = y + shift.down;
            float wave = sinf(s.phase + s.right * (float)right + s.down * (float)down);
            uint64_t at = key + 16 + ((uint64_t)(down + 4) << 20 | (uint64_t)(right + 4));
            float *to = pixels + (size_t)y * (size_t)width + (size_t)x;
            for (uint64_t c = 0; c < info->channels; c++)
                to[c * plane] = s.shade + s.contrast * wave + 0.5f * noise(fgt_mix(at + (c << 40)));
        }
    batch->targets[slot] = (int32_t)label;
}

/* Which of its four successors a token gets. */
static uint64_t draw_branch(uint64_t bits) {
    uint64_t eighth = bits >> 61;
    return eighth < 4 ? 0 : eighth < 6 ? 1 : eighth - 4;
}

/* A chain of n tokens from `base` on, of which there are `words`. */
static void make_chain(uint64_t key, uint32_t base, uint32_t words, uint32_t n, int32_t *tokens) {
    uint64_t topic = fgt_mix(key) % TOPICS, word = topic;
    for (uint32_t t = 0; t < n; t++) {
        uint64_t bits = fgt_mix(key + 1 + t);
        if (t == 1)
            word = TOPICS + bits % (words - TOPICS);
        else if (t > 1)
            word = TOPICS + fgt_random(topic, word, draw_branch(bits)) % (words - TOPICS);
        tokens[t] = (int32_t)(base + word);
    }
}

static uint32_t chain_vocab(const fgt_data *data, uint32_t base) {
    uint32_t words = data->info.vocab - base;
    return words < CHAIN_WORDS ? words : CHAIN_WORDS;
}

static void language_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    uint32_t T = data->info.length;
    int32_t *tokens = batch->tokens + slot * T, *targets = batch->targets + slot * T;
    uint64_t key = sample_key(id);
    make_chain(key, 0, chain_vocab(data, 0), T, tokens);
    memcpy(targets, tokens + 1, (T - 1) * sizeof *targets);
    /* One token more than there is room for: continue the chain from the last one. */
    uint32_t words = chain_vocab(data, 0);
    uint64_t next = fgt_random((uint64_t)tokens[0], (uint64_t)tokens[T - 1], draw_branch(fgt_mix(key + 1 + T)));
    targets[T - 1] = (int32_t)(TOPICS + next % (words - TOPICS));
    batch->lengths[slot] = (int32_t)T;
}

static void masked_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    uint32_t T = data->info.length, words = chain_vocab(data, WORDS);
    int32_t *tokens = batch->tokens + slot * T;
    const fgt_mask_rule rule = {MASK, WORDS, WORDS + words};
    tokens[0] = CLS;
    make_chain(sample_key(id), WORDS, words, T - 2, tokens + 1);
    tokens[T - 1] = SEP;
    memset(batch->segments + slot * T, 0, T * sizeof *batch->segments);
    batch->lengths[slot] = (int32_t)T;
    fgt_mask(data, id, &rule, 1, T - 1, tokens, batch->targets + slot * T);
}

/* Words of a sentence: `not` is the first word, then come the groups, then neutral words. */
static int32_t cue_word(uint64_t key, uint64_t group) {
    return (int32_t)(WORDS + 1 + group * CUES + fgt_mix(key) % CUES);
}

static void sentence_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const fgt_data_info *info = &data->info;
    uint32_t T = info->length, groups = info->classes < 2 ? 2 : info->classes;
    uint32_t beyond = info->vocab < SENTENCE_WORDS ? info->vocab : SENTENCE_WORDS, plain = WORDS + 1 + groups * CUES;
    beyond = beyond > plain ? beyond : plain + 1;
    uint64_t key = sample_key(id), group = fgt_mix(key + 1) % groups,
             other = (group + 1 + fgt_mix(key + 2) % (groups - 1)) % groups;
    uint32_t n = T / 2 - 1 + (uint32_t)(fgt_mix(key + 3) % (T - T / 2)), max = 1 + n / 6, fewer = max / 2;
    int negated = fgt_mix(key + 4) % 4 == 0;
    int32_t *tokens = batch->tokens + slot * T;
    memset(tokens, 0, T * sizeof *tokens);
    memset(batch->segments + slot * T, 0, T * sizeof *batch->segments);
    tokens[0] = CLS;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t sample_id_of = 1 + fgt_epoch_order(key, 0, n, i), draw = key + 16 + i;
        tokens[sample_id_of] = i < max                       ? cue_word(draw, group)
                               : i < max + fewer             ? cue_word(draw, other)
                               : i == max + fewer && negated ? WORDS
                                                             : (int32_t)(plain + fgt_mix(draw) % (beyond - plain));
    }
    tokens[n + 1] = SEP;
    batch->lengths[slot] = (int32_t)(n + 2);
    batch->targets[slot] = info->classes == 1 ? 0 : (int32_t)((group + (uint64_t)negated) % groups);
    batch->numbers[slot] = info->classes == 1 ? 5.0f * (float)((group + (uint64_t)negated) % groups) : 0;
}

static void close_builtin(void *state) {
    (void)state;
}

/* Sets defaults for sizes that are 0, and refuses sizes out of range. */
static int set_images(const fgt_data_options *options, fgt_data_info *info) {
    info->channels = options->channels == 0 ? 1 : options->channels;
    info->height = options->height == 0 ? 28 : options->height;
    info->width = options->width == 0 ? 28 : options->width;
    info->classes = options->classes == 0 ? 10 : options->classes;
    if (info->height > SIDE_MAX || info->width > SIDE_MAX || info->channels > 1024 || info->classes > UINT16_MAX)
        return fgio_error("builtin images of %u x %u x %u in %u classes: expected at most 1024 x %d x %d in %d",
                          info->channels, info->height, info->width, info->classes, SIDE_MAX, SIDE_MAX, UINT16_MAX);
    return FGIO_EXIT_OK;
}

static int set_tokens(const fgt_data_options *options, fgt_data_info *info) {
    info->vocab = options->vocab == 0 ? 256 : options->vocab;
    uint32_t min = WORDS + 2 * TOPICS;
    if (info->task == FGT_TASK_SENTENCES) {
        info->classes = options->classes == 0 ? 2 : options->classes;
        min = info->classes > UINT16_MAX ? UINT32_MAX : WORDS + 2 + CUES * (info->classes < 2 ? 2 : info->classes);
    }
    if (info->vocab < min || info->vocab > INT32_MAX)
        return fgio_error("builtin tokens from a vocabulary of %u: expected at least %u", info->vocab, min);
    return FGIO_EXIT_OK;
}

/* Long sequences get fewer samples, so that an evaluation takes as many tokens as with SHORT_LENGTH. */
static uint64_t default_samples(const fgt_data_options *options) {
    bool long_text = options->task != FGT_TASK_IMAGES && options->length > SHORT_LENGTH;
    return long_text ? SAMPLES * SHORT_LENGTH / options->length : SAMPLES;
}

int fgt_builtin_open(const fgt_data_options *options, fgt_data *data) {
    static const fgt_source sources[] = {[FGT_TASK_IMAGES] = {.sample = image_sample, .close = close_builtin},
                                         [FGT_TASK_LANGUAGE] = {.sample = language_sample, .close = close_builtin},
                                         [FGT_TASK_SENTENCES] = {.sample = sentence_sample, .close = close_builtin},
                                         [FGT_TASK_MASKED] = {.sample = masked_sample, .close = close_builtin}};
    uint64_t samples = options->samples == 0 ? default_samples(options) : options->samples;
    data->source = &sources[options->task];
    data->auto_augment = FGT_AUGMENT_CROP | FGT_AUGMENT_MIRROR; /* stripes lean either way */
    data->info.count[FGT_TRAIN] = samples;
    data->info.count[FGT_VALID] = data->info.count[FGT_TEST] = (samples + 7) / 8;
    return options->task == FGT_TASK_IMAGES ? set_images(options, &data->info) : set_tokens(options, &data->info);
}
