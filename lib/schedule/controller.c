/*
 * controller.c - the density of each tensor at a step.
 *
 * A density is the product of three factors: the schedule, the tensor (layers) and the norm of the gradient (norm);
 * controller.h has the formula. It is computed from a few numbers at every call, so no cached value can be stale.
 * strict=on finds the common factor that brings the total back to that of the schedule by bisecting the bits of a
 * double: the total is monotone in the factor, limits and rounding included, so 63 passes over the tensors find it to
 * the last bit. Finally the density is multiplied by density_gain of the config, which is 1 except where sums are
 * compressed again.
 *
 * Cost: O(1) for one tensor; with layers=sensitivity one pass over all tensors, with strict=on about sixty.
 */
#include "schedule/controller.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/status.h"
#include "schedule/density.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FACTOR_MAX        4.0
#define EMA_GAIN          0.1 /* weight of the new value in the running mean */
#define ACCORDION_CHANGE  0.5
#define EMBEDDING_DENSITY 0.001
#define NORM_BYTES        40u
#define UNSET_WEIGHT      (-1.0) /* a weight that has not been set */

/* History of the norm of the gradient. */
typedef struct norm_state {
    uint64_t known; /* 0: no norm yet; 1: one; 2: more */
    uint64_t step;  /* of the last norm */
    double norm;    /* the last norm */
    double before;  /* the previous norm */
    double mean;    /* running mean of all norms before the last */
} norm_state;

struct frugi_control {
    frug_config config;
    uint64_t total_steps;
    size_t count;
    frugi_control_tensor *tensor;
    double *weight;
    norm_state norm, before; /* the current state, and the one before the last norm was set */
};

static int is_finite_nonnegative(double x) {
    return isfinite(x) && x >= 0;
}

static double clip(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

frug_status frugi_control_create(const frug_config *config, const frugi_control_tensor *tensor, size_t count,
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
        c->weight[i] = UNSET_WEIGHT;
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

int frugi_control_sends_all(const frug_config *config, uint64_t step) {
    uint64_t every = config->dense_every;
    return step < config->warmup || (every && step % every == every - 1);
}

/* A second norm for the same step replaces the first, so workers may repeat a step. */
void frugi_control_set_norm(frugi_control *c, uint64_t step, double norm) {
    norm_state *s = &c->norm;
    c->before = *s;
    if (!is_finite_nonnegative(norm))
        return;
    if (s->known && s->step != step) {
        /* In this form the mean does not change if all norms are equal. */
        s->mean = s->known == 1 ? s->norm : s->mean + EMA_GAIN * (s->norm - s->mean);
        s->before = s->norm;
        s->known = 2;
    }
    s->known = s->known ? s->known : 1;
    s->step = step;
    s->norm = norm;
}

void frugi_control_undo_norm(frugi_control *c) {
    c->norm = c->before;
}

void frugi_control_set_weight(frugi_control *c, size_t i, double weight) {
    if (i < c->count && is_finite_nonnegative(weight))
        c->weight[i] = weight;
}

/* ---- factors ---- */

static double norm_factor(const frugi_control *c) {
    const norm_state *s = &c->norm;
    if (s->known < 2 || c->config.norm == FRUGI_NORM_OFF)
        return 1.0;
    if (c->config.norm == FRUGI_NORM_FOLLOW) {
        if (s->norm == s->mean) /* both may be 0 */
            return 1.0;
        return s->norm >= FACTOR_MAX * s->mean ? FACTOR_MAX : clip(s->norm / s->mean, 1.0 / FACTOR_MAX, FACTOR_MAX);
    }
    double change = fabs(s->norm - s->before);
    return change > 0 && change >= ACCORDION_CHANGE * s->before ? FACTOR_MAX : 1.0;
}

static double mean_weight(const frugi_control *c) {
    double sum = 0;
    size_t known = 0;
    for (size_t i = 0; i < c->count; i++)
        known += c->weight[i] >= 0;
    for (size_t i = 0; i < c->count; i++)
        sum += c->weight[i] >= 0 ? c->weight[i] / (double)known : 0; /* cannot overflow */
    return sum;
}

/* Values of one step that all tensors share. */
typedef struct step_state {
    double base, norm, mean;
} step_state;

static step_state compute_step_state(const frugi_control *c, uint64_t step) {
    step_state s = {.base = frugi_schedule_density(&c->config.schedule, step, c->total_steps), .norm = norm_factor(c)};
    if (c->config.layers == FRUGI_LAYERS_SENSITIVITY)
        s.mean = mean_weight(c);
    return s;
}

/* The density of a tensor before norm and limits. */
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
            return s->base * clip(sqrt(weight / s->mean), 1.0 / FACTOR_MAX, FACTOR_MAX);
        break;
    }
    return s->base;
}

/* The lower limit: one entry of the tensor, unless the schedule itself is lower. */
static double min_density(const frugi_control *c, double base, size_t i) {
    double one = c->tensor[i].elements ? 1.0 / (double)c->tensor[i].elements : 1.0;
    return one < base ? one : base;
}

static double unscaled_density(const frugi_control *c, const step_state *s, size_t i) {
    return clip(layer_density(c, s, i) * s->norm, min_density(c, s->base, i), 1.0);
}

/* ---- strict ---- */

static double scaled_density(const frugi_control *c, const step_state *s, double scale, size_t i) {
    return clip(unscaled_density(c, s, i) * scale, min_density(c, s->base, i), 1.0);
}

static double total_entries(const frugi_control *c, const step_state *s, double scale) {
    double sum = 0;
    for (size_t i = 0; i < c->count; i++)
        sum += scaled_density(c, s, scale, i) * (double)c->tensor[i].elements;
    return sum;
}

/* The largest factor whose total does not exceed that of the schedule. */
static double strict_scale(const frugi_control *c, const step_state *s) {
    double budget = 0, scale = DBL_MAX;
    uint64_t low = 0, high;
    for (size_t i = 0; i < c->count; i++)
        budget += s->base * (double)c->tensor[i].elements;
    memcpy(&high, &scale, sizeof high);
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        memcpy(&scale, &middle, sizeof scale);
        if (total_entries(c, s, scale) <= budget)
            low = middle;
        else
            high = middle - 1;
    }
    memcpy(&scale, &low, sizeof scale);
    return scale;
}

static double apply_gain(const frugi_control *c, double density) {
    return clip(c->config.density_gain * density, 0, 1);
}

double frugi_control_density(const frugi_control *c, uint64_t step, size_t i) {
    step_state s = compute_step_state(c, step);
    return apply_gain(c, c->config.strict ? scaled_density(c, &s, strict_scale(c, &s), i) : unscaled_density(c, &s, i));
}

void frugi_control_densities(const frugi_control *c, uint64_t step, double *density) {
    step_state s = compute_step_state(c, step);
    double scale = c->config.strict ? strict_scale(c, &s) : 1.0;
    for (size_t i = 0; i < c->count; i++)
        density[i] = apply_gain(c, scaled_density(c, &s, scale, i));
}

double frugi_control_max_density(const frugi_control *c, size_t i) {
    step_state s = {.base = frugi_schedule_max_density(&c->config.schedule),
                    .norm = c->config.norm == FRUGI_NORM_OFF ? 1.0 : FACTOR_MAX};
    if (c->config.strict || c->config.layers == FRUGI_LAYERS_BUDGET)
        return 1.0;
    if (c->config.layers == FRUGI_LAYERS_SENSITIVITY)
        return apply_gain(c, clip(s.base * FACTOR_MAX * s.norm, 0, 1));
    return apply_gain(c, unscaled_density(c, &s, i));
}

/* ---- state: the norm if it is used, then the weights if they are used ---- */

static int uses_norm(const frugi_control *c) {
    return c->config.norm != FRUGI_NORM_OFF;
}

static size_t weights_used(const frugi_control *c) {
    int used = c->config.layers == FRUGI_LAYERS_BUDGET || c->config.layers == FRUGI_LAYERS_SENSITIVITY;
    return used ? c->count : 0;
}

size_t frugi_control_bytes(const frugi_control *c) {
    return (uses_norm(c) ? NORM_BYTES : 0) + weights_used(c) * 8;
}

static void put_double(unsigned char *dst, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    frugi_put64(dst, bits);
}

static double get_double(const unsigned char *src) {
    uint64_t bits = frugi_get64(src);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static norm_state get_norm(const unsigned char *src) {
    return (norm_state){.known = frugi_get64(src),
                        .step = frugi_get64(src + 8),
                        .norm = get_double(src + 16),
                        .before = get_double(src + 24),
                        .mean = get_double(src + 32)};
}

void frugi_control_export(const frugi_control *c, unsigned char *dst) {
    if (uses_norm(c)) {
        frugi_put64(dst, c->norm.known);
        frugi_put64(dst + 8, c->norm.step);
        put_double(dst + 16, c->norm.norm);
        put_double(dst + 24, c->norm.before);
        put_double(dst + 32, c->norm.mean);
        dst += NORM_BYTES;
    }
    for (size_t i = 0; i < weights_used(c); i++)
        put_double(dst + i * 8, c->weight[i]);
}

int frugi_control_check(const frugi_control *like, const unsigned char *src) {
    if (uses_norm(like)) {
        norm_state s = get_norm(src);
        if (s.known > 2 || !is_finite_nonnegative(s.norm) || !is_finite_nonnegative(s.before) ||
            !is_finite_nonnegative(s.mean))
            return 0;
        src += NORM_BYTES;
    }
    for (size_t i = 0; i < weights_used(like); i++) {
        double weight = get_double(src + i * 8);
        if (weight != UNSET_WEIGHT && !is_finite_nonnegative(weight))
            return 0;
    }
    return 1;
}

void frugi_control_import(frugi_control *c, const unsigned char *src) {
    if (uses_norm(c)) {
        c->norm = get_norm(src);
        src += NORM_BYTES;
    }
    for (size_t i = 0; i < weights_used(c); i++)
        c->weight[i] = get_double(src + i * 8);
}
