/*
 * fuzz_compress.c - the bytes define a layout, a config, gradients and ranges; two workers then run a few steps.
 *
 * Configs may be rejected. For all others must hold: a buffer of the bound is enough and nothing is written past it,
 * frames are valid and add up, plans match frames, nothing is lost where codes are exact, and a restart
 * changes no byte.
 */
#include "frugrad.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TENSORS  6u
#define ELEMENTS 6000u
#define STEPS    5u
#define GUARD    32u

/* ---- choices -------------------------------------------------------------- */

/** The input, byte by byte; zeros after its end. */
typedef struct input {
    const uint8_t *at, *end;
} input;

static uint32_t pick(input *b, size_t below) {
    uint32_t byte = b->at < b->end ? *b->at++ : 0;
    return byte % (uint32_t)below;
}

/** An option and values to choose from; the first means that it is omitted. */
typedef struct option {
    const char *name;
    const char *values[16];
} option;

static const option options[] = {
    {"unit",
     {"element", "element", "run:2", "run:16", "run:5000", "tile:2x3", "tile:8x8", "tile:1x1", "tile:1000x1", "row",
      "column", "channel", "head"}},
    {"score", {"l2", "l1", "max", "given"}},
    {"select", {"hist", "exact"}},
    {"block", {"256", "64", "128", "1024", "4096"}},
    {"schedule",
     {"constant:0.9375", "constant:0.5", "constant:0.999", "constant:0", "frugrad", "anneal", "dgc", "relax",
      "piecewise:0:0:1:0.99", "piecewise:0:0.9:0.2:0.1:0.5:0.999:1:0.3", "constant:0.1", "constant:0.999999"}},
    {"layers", {"even", "role", "budget", "sensitivity"}},
    {"norm", {"off", "follow", "accordion"}},
    {"frequency", {"off", "on"}},
    {"strict", {"off", "on"}},
    {"warmup", {"0", "1", "2"}},
    {"dense_every", {"0", "1", "2", "3"}},
    {"feedback", {"merged", "plain", "dgc", "none", "ef21"}},
    {"beta", {"0.95", "0.5", "0", "1"}},
    {"mask", {"auto", "on", "off"}},
    {"clip", {"0", "5", "1e-30"}},
    {"residual", {"f32", "int8", "int4", "bf16"}},
    {"index", {"fixed", "auto", "local", "bitmap", "coo", "csr", "rle", "rice"}},
    {"value", {"f32", "bf16", "f16", "int8", "int4", "sign", "two_bit", "qsgd", "onebit"}},
    {"bucket", {"auto", "8", "64", "512", "4104", "65536"}},
    {"levels", {"127", "1", "7", "8", "100"}},
    {"qnorm", {"l2", "max"}},
    {"min_size", {"1", "2", "16", "300"}},
    {"vectors", {"dense", "sparse"}},
    {"seed", {"0", "1", "18446744073709551615"}},
    {"stats", {"sample", "full"}},
};

enum { OPTION_FEEDBACK = 11, OPTION_BETA = 12, OPTION_CLIP = 14, OPTION_RESIDUAL = 15, OPTION_VALUE = 17 };

/* Options that need each other; these come last and override others. */
static const char *const methods[] = {
    "rule=topk",
    "segment=tensor",
    "segment=all",
    "segment=2:4",
    "segment=1:8",
    "segment=5:100",
    "segment=3:256",
    "rule=threshold:absolute:1.2,segment=tensor",
    "rule=threshold:absolute:1e-30,segment=all",
    "rule=threshold:percentile,segment=tensor",
    "rule=threshold:percentile,segment=all",
    "rule=threshold:track,segment=tensor",
    "rule=threshold:track,segment=all",
    "rule=random,segment=block,index=fixed",
    "rule=random,segment=tensor,index=auto",
    "rule=random,segment=all,index=auto,feedback=none",
    "rule=probabilistic,segment=tensor,unit=element,feedback=none",
    "rule=probabilistic,segment=all,unit=element,feedback=none",
    "rule=hybrid,segment=tensor,unit=element",
    "rule=hybrid,segment=all,unit=element",
    "rule=hybrid:4096,segment=tensor,unit=element,frequency=on",
    "rule=hybrid:1,segment=all,unit=element,frequency=on,density=0.0001",
    "rule=learned,segment=tensor",
    "rule=learned:2:5:0.1,segment=tensor",
    "rule=learned:3:3:1,segment=tensor",
    "unit=head,segment=tensor",
    "unit=head,segment=block",
    "unit=head,segment=2:4",
    "unit=head,segment=tensor,rule=learned:2:3:0.5",
    "unit=head,segment=tensor,rule=random,index=fixed",
    "density=1,layers=even,norm=off,value=qsgd",
    "density=1,layers=even,norm=off,value=onebit",
};

/** What an input describes. */
typedef struct scene {
    char config[1024];
    const char *chosen[COUNT(options)];
    const char *method;
    frug_layout *layout;
    frug_compressor_options how;
    uint64_t elements, first_step, stride;
    uint32_t steps, restart, cut; /* cut: 0 whole, 1 tensor by tensor, 2 backwards, 3 somewhere */
    uint32_t signal;              /* a signal, or none */
    double signal_values[8];
    uint64_t random;
} scene;

static void choose_config(input *b, scene *s) {
    size_t used = 0;
    s->method = methods[pick(b, COUNT(methods))];
    for (size_t i = 0; i < COUNT(options); i++) {
        size_t n = 0;
        while (n < COUNT(options[i].values) && options[i].values[n])
            n++;
        s->chosen[i] = options[i].values[pick(b, n)];
        used += (size_t)snprintf(s->config + used, sizeof s->config - used, "%s=%s,", options[i].name, s->chosen[i]);
    }
    snprintf(s->config + used, sizeof s->config - used, "%s", s->method);
}

static void choose_tensor(input *b, uint64_t *left, frug_tensor *t) {
    static const uint64_t sides[] = {1, 2, 3, 4, 5, 8, 12, 16, 31, 48, 64, 100, 257, 0, 1000, 5000};
    t->role = (frug_role)pick(b, FRUG_ROLE_ATTN_QKV + 1);
    t->ndim = pick(b, 5);
    for (uint32_t d = 0; d < t->ndim; d++) {
        uint64_t side = sides[pick(b, COUNT(sides))];
        t->shape[d] = side < *left ? side : *left;
        *left = side > 1 ? *left / side : *left;
    }
    uint32_t attention = pick(b, 32);
    t->heads = attention & 7;
    t->kv_heads = attention & 8 ? t->heads / 2 : 0;
    t->input_first = attention >> 4;
    t->module = pick(b, 3);
}

static int choose_layout(input *b, scene *s) {
    uint32_t n = 1 + pick(b, TENSORS);
    char name[8] = "t0";
    if (frug_layout_create(&s->layout) != FRUG_OK)
        abort();
    for (uint32_t i = 0; i < n; i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        uint64_t left = ELEMENTS - frug_layout_elements(s->layout);
        uint32_t gap = pick(b, 8);
        name[1] = (char)('0' + i);
        t.name = name;
        choose_tensor(b, &left, &t);
        if (gap > 4)
            t.offset = frug_layout_elements(s->layout) + gap;
        if (frug_layout_elements(s->layout) + 10 > ELEMENTS || frug_layout_add(s->layout, &t) != FRUG_OK)
            break;
    }
    s->elements = frug_layout_elements(s->layout);
    return s->elements <= 2 * ELEMENTS;
}

static int choose_scene(input *b, scene *s) {
    static const uint64_t lengths[] = {0, 4, 1000, UINT64_MAX};
    static const uint64_t starts[] = {0, 1, 3, 98, 1u << 31, UINT64_MAX - 3};
    *s = (scene){.how = FRUG_COMPRESSOR_OPTIONS_INIT};
    choose_config(b, s);
    s->how.threads = 1;
    s->how.total_steps = lengths[pick(b, COUNT(lengths))];
    s->first_step = starts[pick(b, COUNT(starts))];
    s->stride = 1 + pick(b, 2) * 49;
    s->steps = 1 + pick(b, STEPS);
    s->restart = pick(b, STEPS + 1);
    s->cut = pick(b, 4);
    s->signal = pick(b, 8);
    for (size_t i = 0; s->signal < 3 && i < COUNT(s->signal_values); i++)
        s->signal_values[i] = (double)pick(b, 256) * (s->signal == FRUG_SIGNAL_NORM ? 1e10 : 1);
    s->random = 0x9e3779b97f4a7c15u * (1 + pick(b, 256));
    return choose_layout(b, s);
}

/* ---- gradients ------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static float next_bell(uint64_t *state) {
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)((double)(next_random(state) >> 11) * 0x1p-52 - 1.0);
    return sum;
}

enum { BELL, ZEROS, EQUAL, HUGE_ONES, TINY, NANS, INFINITIES, SPIKES, LARGEST, KINDS };

static float element_of(uint32_t kind, uint64_t i, uint64_t *random) {
    float x = next_bell(random);
    switch (kind) {
    case ZEROS: return i % 3 ? 0.0f : -0.0f;
    case EQUAL: return 0.7f;
    case HUGE_ONES: return x * 1e38f;
    case TINY: return x * 1e-41f;
    case NANS: return next_random(random) % 512 ? x : NAN;
    case INFINITIES: return next_random(random) % 2048 ? x : -INFINITY;
    case SPIKES: return next_random(random) % 64 ? 1e-3f * x : 1e4f * x;
    case LARGEST: return x < 0 ? -3.40282347e38f : 3.40282347e38f;
    default: return x;
    }
}

static uint64_t elements_of(const frug_tensor *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

static void get_tensor(const scene *s, size_t i, frug_tensor *t) {
    *t = (frug_tensor)FRUG_TENSOR_INIT;
    if (frug_layout_get(s->layout, i, t) != FRUG_OK)
        abort();
}

/* Returns whether all are of ordinary size, so that rounding errors are bounded. */
static int fill(input *b, scene *s, float *grad) {
    int tame = 1;
    for (uint64_t i = 0; i < s->elements; i++)
        grad[i] = NAN; /* gaps, which are not read */
    for (size_t i = 0; i < frug_layout_count(s->layout); i++) {
        frug_tensor t;
        get_tensor(s, i, &t);
        uint32_t kind = pick(b, 2 * KINDS);
        kind = kind < KINDS ? kind : BELL;
        tame &= kind == BELL || kind == ZEROS || kind == EQUAL || kind == SPIKES;
        for (uint64_t e = 0; e < elements_of(&t); e++)
            grad[t.offset + e] = element_of(kind, e, &s->random);
    }
    return tame;
}

/* ---- claims --------------------------------------------------------------- */

#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\nconfig: %s\nlast error: %s\n", __FILE__, __LINE__, #condition, s->config,      \
                    frug_last_error());                                                                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) HOLDS((call) == FRUG_OK)

static int is(const scene *s, size_t which, const char *word) {
    return strncmp(s->chosen[which], word, strlen(word)) == 0;
}

static frug_compressor *make(const scene *s, uint32_t source) {
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    frug_compressor_options how = s->how;
    how.source = source;
    if (frug_config_create(s->config, &config) == FRUG_OK) {
        frug_config *again = NULL;
        OK(frug_config_create(frug_config_text(config), &again));
        HOLDS(strcmp(frug_config_text(config), frug_config_text(again)) == 0);
        frug_config_destroy(again);
        if (frug_compressor_create(config, s->layout, &how, &c) != FRUG_OK)
            c = NULL;
        frug_config_destroy(config);
    }
    return c;
}

/** A range that is compressed. */
typedef struct range {
    uint64_t begin, count;
    int tame;
} range;

static unsigned char *compress(const scene *s, frug_compressor *c, uint64_t step, const range *r, const float *grad,
                               size_t *len) {
    size_t cap = 0;
    OK(frug_compressor_bound(c, (frug_range){r->begin, r->count}, &cap));
    unsigned char *frame = malloc(cap + GUARD);
    HOLDS(frame != NULL);
    memset(frame, 0xa5, cap + GUARD);
    OK(frug_compress(c, step, (frug_range){r->begin, r->count}, grad + r->begin, frame, cap, len));
    HOLDS(*len <= cap);
    for (size_t i = 0; i < GUARD; i++)
        HOLDS(frame[cap + i] == 0xa5);
    return frame;
}

/* Whether what is sent does not depend on the data. */
static int is_planned(const scene *s) {
    return !strstr(s->method, "segment=all") && !strstr(s->method, "threshold") && !strstr(s->method, "probabilistic");
}

static void check_plans(const scene *s, frug_compressor *c, uint64_t step, const range *r, const uint64_t *kept,
                        const uint64_t *units) {
    for (size_t i = 0; i < frug_layout_count(s->layout); i++) {
        frug_tensor_plan plan = {.struct_size = sizeof plan};
        frug_tensor t;
        get_tensor(s, i, &t);
        OK(frug_compressor_plan(c, step, i, &plan));
        HOLDS(plan.selected <= plan.units && plan.density > 0 && plan.density <= 1);
        int inside = t.offset >= r->begin && t.offset + elements_of(&t) <= r->begin + r->count;
        if (plan.dense || !inside || !is_planned(s))
            continue;
        HOLDS(plan.selected == kept[i]);
        HOLDS(plan.units == units[i]);
    }
}

static void check_frame(const scene *s, frug_compressor *c, uint64_t step, const range *r, const unsigned char *frame,
                        size_t len, uint32_t *held) {
    frug_frame_info info = {.struct_size = sizeof info};
    uint64_t bytes = 48, kept[TENSORS] = {0}, units[TENSORS] = {0};
    OK(frug_frame_check(frame, len, &info));
    HOLDS(info.bytes == len && info.step == step);
    for (uint32_t i = 0; i < info.sections; i++) {
        frug_section_info section = {.struct_size = sizeof section};
        OK(frug_frame_section(frame, len, i, &section));
        HOLDS(section.range.begin >= r->begin && section.range.begin + section.range.count <= r->begin + r->count);
        HOLDS(section.tensor < TENSORS);
        bytes += section.bytes;
        kept[section.tensor] += section.selected;
        units[section.tensor] = section.units;
    }
    HOLDS(bytes == len);
    *held = info.skipped;
    check_plans(s, c, step, r, kept, units);
}

/* sent + residual == decayed residual before + gradient. */
static void check_conservation(const scene *s, frug_compressor *c, const range *r, const float *grad,
                               const float *before, const float *sent) {
    static const char *const exact[] = {"f32", "bf16", "f16", "int8", "int4"};
    int is_exact = 0, decays = is(s, OPTION_FEEDBACK, "merged");
    float beta = decays ? (float)atof(s->chosen[OPTION_BETA]) : 1.0f, left[2 * ELEMENTS];
    for (size_t i = 0; i < COUNT(exact); i++)
        is_exact |= strcmp(s->chosen[OPTION_VALUE], exact[i]) == 0;
    is_exact &= !strstr(s->method, "value=");
    if (strstr(s->method, "feedback=none") || !is(s, OPTION_RESIDUAL, "f32") ||
        !(decays || is(s, OPTION_FEEDBACK, "plain")) || !is(s, OPTION_CLIP, "0"))
        return;
    OK(frug_compressor_get_residual(c, (frug_range){r->begin, r->count}, left));
    for (size_t t = 0; t < frug_layout_count(s->layout); t++) {
        frug_tensor tensor;
        get_tensor(s, t, &tensor);
        for (uint64_t e = tensor.offset; e < tensor.offset + elements_of(&tensor); e++) {
            if (e < r->begin || e >= r->begin + r->count)
                continue;
            uint64_t i = e - r->begin;
            float acc = beta * before[i] + grad[e];
            float slack = is_exact && r->tame ? 0 : 0x1p-22f * fmaxf(fabsf(sent[i]), fabsf(acc));
            HOLDS(fabs((double)sent[i] + (double)left[i] - (double)acc) <= (double)slack + (r->tame ? 0 : 1e-44) ||
                  sent[i] + left[i] == acc);
        }
    }
}

static void restore(const scene *s, frug_compressor *c, const range *r, size_t n, const void *const *frames,
                    const size_t *lens, float *sum) {
    for (uint64_t i = 0; i < r->count; i++)
        sum[i] = 0;
    OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){r->begin, r->count}, frames, lens, n, 1.0f, sum));
}

/* A new compressor, restored from the state of another. */
static frug_compressor *restart(const scene *s, frug_compressor *c, uint32_t source) {
    size_t size = frug_compressor_state_size(c), len = 0;
    unsigned char *state = malloc(size);
    frug_compressor *again = make(s, source);
    HOLDS(state && again);
    OK(frug_compressor_save(c, state, size, &len));
    HOLDS(len == size);
    OK(frug_compressor_restore(again, state, len));
    free(state);
    return again;
}

/* One range of one step of both workers; `twin`, where not NULL, must give the same as the first one. */
static void take_range(const scene *s, frug_compressor *const c[2], frug_compressor *twin, uint64_t step,
                       const range *r, float *const grad[2]) {
    static float before[2 * ELEMENTS], sent[2][2 * ELEMENTS], sum[2 * ELEMENTS];
    unsigned char *frame[2];
    size_t len[2];
    for (size_t w = 0; w < 2; w++) {
        uint32_t held;
        OK(frug_compressor_get_residual(c[w], (frug_range){r->begin, r->count}, before));
        frame[w] = compress(s, c[w], step, r, grad[w], &len[w]);
        check_frame(s, c[w], step, r, frame[w], len[w], &held);
        restore(s, c[w], r, 1, (const void *const *)&frame[w], &len[w], sent[w]);
        for (uint64_t i = 0; i < r->count; i++)
            HOLDS(isfinite(sent[w][i]));
        if (!held)
            check_conservation(s, c[w], r, grad[w], before, sent[w]);
    }
    restore(s, c[0], r, 2, (const void *const *)frame, len, sum);
    for (uint64_t i = 0; i < r->count; i++)
        HOLDS(sum[i] == sent[0][i] + sent[1][i]);
    if (twin) {
        size_t same = 0;
        unsigned char *other = compress(s, twin, step, r, grad[0], &same);
        HOLDS(same == len[0] && memcmp(other, frame[0], same) == 0);
        free(other);
    }
    free(frame[0]);
    free(frame[1]);
}

static size_t ranges_of(input *b, const scene *s, const frug_compressor *c, range *ranges) {
    size_t n = 0, bytes;
    uint64_t middle = s->elements * pick(b, 256) / 256 / 64 * 64;
    int allowed = 1;
    if (s->cut == 3) {
        ranges[n++] = (range){.begin = middle, .count = s->elements - middle};
        ranges[n++] = (range){.count = middle};
    } else {
        for (size_t i = 0; s->cut && i < frug_layout_count(s->layout); i++) {
            frug_tensor t;
            get_tensor(s, s->cut == 1 ? i : frug_layout_count(s->layout) - 1 - i, &t);
            ranges[n++] = (range){.begin = t.offset, .count = elements_of(&t)};
        }
    }
    for (size_t i = 0; i < n; i++)
        allowed &= frug_compressor_bound(c, (frug_range){ranges[i].begin, ranges[i].count}, &bytes) == FRUG_OK;
    if (n && allowed)
        return n;
    ranges[0] = (range){.count = s->elements};
    return 1;
}

/* Set signals, the same before every step; refused where the config does not use them. */
static void set_signals(const scene *s, frug_compressor *c) {
    for (size_t t = 0; s->signal < 3 && t < frug_layout_count(s->layout); t++)
        for (size_t n = 1; n <= COUNT(s->signal_values); n++)
            (void)frug_compressor_set_signal(c, (frug_signal)s->signal, t, s->signal_values, n);
}

static void train(input *b, scene *s, frug_compressor *c[2], float *const grad[2]) {
    range ranges[TENSORS];
    size_t n = ranges_of(b, s, c[0], ranges);
    for (uint32_t i = 0; i < s->steps; i++) {
        int tame = fill(b, s, grad[0]);
        tame &= fill(b, s, grad[1]);
        frug_compressor *twin = i + 1 == s->restart ? restart(s, c[0], 0) : NULL;
        set_signals(s, c[0]);
        set_signals(s, c[1]);
        if (twin)
            set_signals(s, twin);
        for (size_t r = 0; r < n; r++) {
            ranges[r].tame = tame;
            take_range(s, c, twin, s->first_step + i * s->stride, &ranges[r], grad);
        }
        if (twin) {
            frug_compressor_destroy(c[0]);
            c[0] = twin;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input b = {data, data + size};
    scene s;
    if (choose_scene(&b, &s)) {
        frug_compressor *c[2] = {make(&s, 0), NULL};
        float *grad[2] = {malloc((s.elements + 1) * sizeof(float)), malloc((s.elements + 1) * sizeof(float))};
        if (c[0] && (c[1] = make(&s, 1)) && grad[0] && grad[1])
            train(&b, &s, c, grad);
        for (size_t w = 0; w < 2; w++) {
            frug_compressor_destroy(c[w]);
            free(grad[w]);
        }
    }
    frug_layout_destroy(s.layout);
    return 0;
}
