/*
 * controller.c - the density of each tensor at a step.
 *
 * Three numbers are multiplied: what the schedule says, what the tensor deserves (layers) and what the gradient's norm
 * suggests (norm); controller.h has the formula. A density is worked out anew whenever it is asked for, from a few
 * numbers that were told, so there is nothing that could be stale. strict=on looks for the common factor that brings
 * the total back to the schedule's by halving the bits of a double: the total rises with the factor, limits and
 * rounding included, so 63 passes over the tensors find it to the last bit. Last, all is multiplied by the config's
 * density_gain, which is 1 but where sums are selected from again.
 *
 * Cost: O(1) for one tensor; with layers=sensitivity one pass over all, with strict=on some sixty.
 */
#include "schedule/controller.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/status.h"
#include "schedule/density.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FACTOR_MOST       4.0
#define EMA_GAIN          0.1 /* the running mean keeps 0.9 of itself */
#define ACCORDION_CHANGE  0.5
#define EMBEDDING_DENSITY 0.001
#define NORM_BYTES        40u
#define UNTOLD            (-1.0) /* a weight that nobody has told */

/* What is known of the gradient's norm. */
typedef struct norm_state {
    uint64_t told; /* 0: nothing; 1: a first norm; 2: more */
    uint64_t step; /* of the last one */
    double norm;   /* the last one */
    double before; /* the one of the step before */
    double mean;   /* running mean of all before */
} norm_state;

struct frugi_control {
    frug_config config;
    uint64_t total_steps;
    size_t count;
    frugi_controlled *tensor;
    double *weight;
    norm_state norm, before; /* and as it was before it was last told */
};

static int is_amount(double x) {
    return isfinite(x) && x >= 0;
}

static double clip(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

frug_status frugi_control_create(const frug_config *config, const frugi_controlled *tensor, size_t count,
                                 uint64_t total_steps, frugi_control **control) {
    frugi_control *c = frugi_calloc(1, sizeof *c);
    FRUG_FAIL_IF(!c, FRUG_ERR_MEMORY, "control: out of memory");
    c->config = *config;
    c->total_steps = total_steps;
    c->count = count;
    c->tensor = frugi_calloc(count + 1, sizeof *c->tensor);
    c->weight = frugi_calloc(count + 1, sizeof *c->weight);
    if (!c->tensor || !c->weight) {
        frugi_control_destroy(c);
        return frugi_fail(FRUG_ERR_MEMORY, "control: out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        c->tensor[i] = tensor[i];
        c->weight[i] = UNTOLD;
    }
    *control = c;
    return FRUG_OK;
}

void frugi_control_destroy(frugi_control *c) {
    if (!c)
        return;
    frugi_free(c->tensor);
    frugi_free(c->weight);
    frugi_free(c);
}

int frugi_control_all(const frug_config *config, uint64_t step) {
    uint64_t every = config->dense_every;
    return step < config->warmup || (every && step % every == every - 1);
}

/* A second word about the same step replaces the first, so workers may repeat themselves. */
void frugi_control_norm(frugi_control *c, uint64_t step, double norm) {
    norm_state *s = &c->norm;
    c->before = *s;
    if (!is_amount(norm))
        return;
    if (s->told && s->step != step) {
        /* This form stays exactly where it is when the norm does. */
        s->mean = s->told == 1 ? s->norm : s->mean + EMA_GAIN * (s->norm - s->mean);
        s->before = s->norm;
        s->told = 2;
    }
    s->told = s->told ? s->told : 1;
    s->step = step;
    s->norm = norm;
}

void frugi_control_unsay(frugi_control *c) {
    c->norm = c->before;
}

void frugi_control_weight(frugi_control *c, size_t i, double weight) {
    if (i < c->count && is_amount(weight))
        c->weight[i] = weight;
}

/* ---- factors ---- */

static double norm_factor(const frugi_control *c) {
    const norm_state *s = &c->norm;
    if (s->told < 2 || c->config.norm == FRUGI_NORM_OFF)
        return 1.0;
    if (c->config.norm == FRUGI_NORM_FOLLOW) {
        if (s->norm == s->mean) /* both may be 0 */
            return 1.0;
        return s->norm >= FACTOR_MOST * s->mean ? FACTOR_MOST : clip(s->norm / s->mean, 1.0 / FACTOR_MOST, FACTOR_MOST);
    }
    double change = fabs(s->norm - s->before);
    return change > 0 && change >= ACCORDION_CHANGE * s->before ? FACTOR_MOST : 1.0;
}

static double mean_weight(const frugi_control *c) {
    double sum = 0;
    size_t told = 0;
    for (size_t i = 0; i < c->count; i++)
        told += c->weight[i] >= 0;
    for (size_t i = 0; i < c->count; i++)
        sum += c->weight[i] >= 0 ? c->weight[i] / (double)told : 0; /* cannot overflow */
    return sum;
}

/* What one step has in common for all tensors. */
typedef struct step_state {
    double base, norm, mean;
} step_state;

static step_state look(const frugi_control *c, uint64_t step) {
    step_state s = {.base = frugi_schedule_density(&c->config.schedule, step, c->total_steps), .norm = norm_factor(c)};
    if (c->config.layers == FRUGI_LAYERS_SENSITIVITY)
        s.mean = mean_weight(c);
    return s;
}

/* A tensor's density before norm and limits. */
static double layer_density(const frugi_control *c, const step_state *s, size_t i) {
    double weight = c->weight[i];
    frug_role role = c->tensor[i].role;
    switch (c->config.layers) {
    case FRUGI_LAYERS_EVEN: break;
    case FRUGI_LAYERS_ROLE:
        if (role == FRUG_ROLE_NORM || role == FRUG_ROLE_BIAS)
            return 1.0;
        if (role == FRUG_ROLE_EMBEDDING)
            return s->base < EMBEDDING_DENSITY ? s->base : EMBEDDING_DENSITY;
        break;
    case FRUGI_LAYERS_BUDGET: return weight >= 0 ? weight : s->base;
    case FRUGI_LAYERS_SENSITIVITY:
        if (weight >= 0 && s->mean > 0)
            return s->base * clip(sqrt(weight / s->mean), 1.0 / FACTOR_MOST, FACTOR_MOST);
        break;
    }
    return s->base;
}

/* One entry, which no modifier takes from a tensor; a schedule may. */
static double least_density(const frugi_control *c, double base, size_t i) {
    double one = c->tensor[i].elements ? 1.0 / (double)c->tensor[i].elements : 1.0;
    return one < base ? one : base;
}

static double loose_density(const frugi_control *c, const step_state *s, size_t i) {
    return clip(layer_density(c, s, i) * s->norm, least_density(c, s->base, i), 1.0);
}

/* ---- strict ---- */

static double scaled_density(const frugi_control *c, const step_state *s, double scale, size_t i) {
    return clip(loose_density(c, s, i) * scale, least_density(c, s->base, i), 1.0);
}

static double total(const frugi_control *c, const step_state *s, double scale) {
    double sum = 0;
    for (size_t i = 0; i < c->count; i++)
        sum += scaled_density(c, s, scale, i) * (double)c->tensor[i].elements;
    return sum;
}

/* The largest factor whose total does not pass the schedule's. */
static double strict_scale(const frugi_control *c, const step_state *s) {
    double budget = 0, scale = DBL_MAX;
    uint64_t low = 0, high;
    for (size_t i = 0; i < c->count; i++)
        budget += s->base * (double)c->tensor[i].elements;
    memcpy(&high, &scale, sizeof high);
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        memcpy(&scale, &middle, sizeof scale);
        if (total(c, s, scale) <= budget)
            low = middle;
        else
            high = middle - 1;
    }
    memcpy(&scale, &low, sizeof scale);
    return scale;
}

static double gained(const frugi_control *c, double density) {
    return clip(c->config.density_gain * density, 0, 1);
}

double frugi_control_density(const frugi_control *c, uint64_t step, size_t i) {
    step_state s = look(c, step);
    return gained(c, c->config.strict ? scaled_density(c, &s, strict_scale(c, &s), i) : loose_density(c, &s, i));
}

void frugi_control_densities(const frugi_control *c, uint64_t step, double *density) {
    step_state s = look(c, step);
    double scale = c->config.strict ? strict_scale(c, &s) : 1.0;
    for (size_t i = 0; i < c->count; i++)
        density[i] = gained(c, scaled_density(c, &s, scale, i));
}

double frugi_control_most(const frugi_control *c, size_t i) {
    step_state s = {.base = frugi_schedule_most_density(&c->config.schedule),
                    .norm = c->config.norm == FRUGI_NORM_OFF ? 1.0 : FACTOR_MOST};
    if (c->config.strict || c->config.layers == FRUGI_LAYERS_BUDGET)
        return 1.0;
    if (c->config.layers == FRUGI_LAYERS_SENSITIVITY)
        return gained(c, clip(s.base * FACTOR_MOST * s.norm, 0, 1));
    return gained(c, loose_density(c, &s, i));
}

/* ---- state: the norm where it counts, then the weights where they do ---- */

static int has_norm(const frugi_control *c) {
    return c->config.norm != FRUGI_NORM_OFF;
}

static size_t weights(const frugi_control *c) {
    int used = c->config.layers == FRUGI_LAYERS_BUDGET || c->config.layers == FRUGI_LAYERS_SENSITIVITY;
    return used ? c->count : 0;
}

size_t frugi_control_bytes(const frugi_control *c) {
    return (has_norm(c) ? NORM_BYTES : 0) + weights(c) * 8;
}

static void put_real(unsigned char *dst, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    frugi_put64(dst, bits);
}

static double get_real(const unsigned char *src) {
    uint64_t bits = frugi_get64(src);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static norm_state get_norm(const unsigned char *src) {
    return (norm_state){.told = frugi_get64(src),
                        .step = frugi_get64(src + 8),
                        .norm = get_real(src + 16),
                        .before = get_real(src + 24),
                        .mean = get_real(src + 32)};
}

void frugi_control_export(const frugi_control *c, unsigned char *dst) {
    if (has_norm(c)) {
        frugi_put64(dst, c->norm.told);
        frugi_put64(dst + 8, c->norm.step);
        put_real(dst + 16, c->norm.norm);
        put_real(dst + 24, c->norm.before);
        put_real(dst + 32, c->norm.mean);
        dst += NORM_BYTES;
    }
    for (size_t i = 0; i < weights(c); i++)
        put_real(dst + i * 8, c->weight[i]);
}

int frugi_control_check(const frugi_control *like, const unsigned char *src) {
    if (has_norm(like)) {
        norm_state s = get_norm(src);
        if (s.told > 2 || !is_amount(s.norm) || !is_amount(s.before) || !is_amount(s.mean))
            return 0;
        src += NORM_BYTES;
    }
    for (size_t i = 0; i < weights(like); i++) {
        double weight = get_real(src + i * 8);
        if (weight != UNTOLD && !is_amount(weight))
            return 0;
    }
    return 1;
}

void frugi_control_import(frugi_control *c, const unsigned char *src) {
    if (has_norm(c)) {
        c->norm = get_norm(src);
        src += NORM_BYTES;
    }
    for (size_t i = 0; i < weights(c); i++)
        c->weight[i] = get_real(src + i * 8);
}
