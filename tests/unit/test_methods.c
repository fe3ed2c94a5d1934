/*
 * test_methods.c - what every method of the menu promises, whatever its rule, unit, feedback and codes: nothing is
 * lost, nothing depends on threads, variants or restarts, no frame is longer than its bound, and what cannot be is
 * refused.
 */
#include "base/hash.h"
#include "support/test_layouts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SMALL    60u   /* rows of the embedding */
#define LARGE    2100u /* worth three threads */
#define ALWAYS   "min_size=1,stats=full,"

/* Every rule, with every unit and segment that it can have. */
static const char *const methods[] = {
    "segment=block",
    "segment=block,block=64,index=auto",
    "segment=block,density=0.001",
    "segment=block,value=int4",
    "segment=tensor",
    "segment=tensor,density=0.001",
    "segment=all",
    "segment=2:4",
    "segment=1:8",
    "segment=5:100",
    "rule=threshold:absolute:1.2,segment=tensor",
    "rule=threshold:absolute:100,segment=tensor",
    "rule=threshold:absolute:0.01,segment=all",
    "rule=threshold:percentile,segment=tensor",
    "rule=threshold:percentile,segment=all",
    "rule=threshold:track,segment=tensor",
    "rule=threshold:track,segment=all",
    "rule=random,segment=block",
    "rule=random,segment=tensor,density=0.3",
    "rule=probabilistic,segment=tensor",
    "rule=probabilistic,segment=all,density=0.5",
    "rule=hybrid,segment=tensor",
    "rule=hybrid:32,segment=all",
    "rule=hybrid,segment=all,frequency=on",
    "rule=learned:3:7:0.1,segment=tensor,unit=run:32",
    "rule=learned:2:5:0.1,segment=tensor,unit=element",
    "rule=learned:2:5:0.1,segment=tensor,unit=head,density=0.5",
    "segment=tensor,unit=run:16",
    "segment=block,block=64,unit=run:16",
    "segment=all,unit=run:16",
    "segment=tensor,unit=tile:4x4,score=l1",
    "segment=tensor,unit=tile:8x8,score=max,density=0.2",
    "segment=all,unit=tile:8x8",
    "segment=2:4,unit=tile:2x3",
    "segment=tensor,unit=row,density=0.25",
    "segment=tensor,unit=column,density=0.25",
    "segment=tensor,unit=channel,density=0.5",
    "segment=tensor,unit=head,density=0.5",
    "segment=tensor,unit=head,density=0.5,score=max",
    "rule=threshold:absolute:3,segment=tensor,unit=row",
    "rule=threshold:track,segment=tensor,unit=head,density=0.5",
    "rule=random,segment=tensor,unit=row,density=0.3",
    "rule=random,segment=tensor,unit=head,density=0.5",
    "segment=tensor,layers=role",
    "segment=tensor,layers=budget",
    "segment=tensor,layers=budget,strict=on",
    "segment=tensor,norm=follow",
    "segment=block,layers=role,norm=accordion",
    "segment=tensor,warmup=1,dense_every=3",
    "segment=block,warmup=1,dense_every=3",
    "segment=tensor,clip=5",
    "segment=block,clip=5",
    "segment=block,schedule=frugrad,hold=auto",
    "segment=tensor,unit=run:16,hold=0.5",
    "density=1,value=qsgd",
    "density=1,value=qsgd,levels=7,bucket=64,qnorm=max",
    "density=1,value=onebit",
};

static const char *const feedbacks[] = {"merged", "plain", "dgc,mask=off", "ef21"};
static const char *const values[] = {"f32", "bf16", "f16", "int8", "int4", "sign", "two_bit"};
static const char *const indices[] = {"fixed", "auto", "local", "bitmap", "coo", "csr", "rle", "rice"};

/* Unbiased sampling sends more than the value of an entry; with feedback it would diverge, and is rejected. */
static int is_rejected(const char *config) {
    if (strstr(config, "hold=") && !strstr(config, "feedback=merged"))
        return 1;
    return strstr(config, "probabilistic") && !strstr(config, "feedback=none");
}

/** A compressor of the test layout, the gradient of the current step, and what a receiver decodes from each frame. */
typedef struct simulation {
    const frug_layout *z;
    frug_compressor *c;
    size_t n, len;
    uint64_t step;
    float *grad, *sent;
    unsigned char *frame;
} simulation;

static simulation begin_simulation(const char *config, const frug_layout *z, const frug_compressor_options *options) {
    simulation w = {.z = z, .c = make_compressor(config, z, options), .n = frug_layout_elements(z), .step = UINT64_MAX};
    w.sent = test_calloc(w.n, sizeof *w.sent);
    return w;
}

/* Run the next step; wild: with a NaN and an infinity in the gradient. */
static void run_step(simulation *w, bool wild) {
    test_free(w->frame);
    test_free(w->grad);
    w->step++;
    w->grad = make_test_gradient(w->z, w->step + 1);
    if (wild) {
        w->grad[700] = NAN;
        w->grad[SMALL * 64 + 3] = INFINITY;
    }
    w->frame = compress_range(w->c, w->step, 0, w->n, w->grad, &w->len);
    restore_range(w->c, w->frame, w->len, 0, w->n, w->sent); /* rejects values that are not finite */
}

static void end_simulation(simulation *w) {
    test_free(w->frame);
    test_free(w->grad);
    test_free(w->sent);
    frug_compressor_destroy(w->c);
}

/* ---- conservation ------------------------------------------------------------ */

/** What the accumulator of each element must be, worked out step by step beside the compressor. */
typedef struct model {
    size_t n;
    float beta, mu, theta, clip;
    float *left, *smooth, *acc;
    uint8_t *dense; /* the tensor of the element is sent dense */
} model;

static float clip_factor(const model *m, const float *grad) {
    double sum = 0;
    for (size_t i = 0; i < m->n; i++)
        sum += (double)grad[i] * (double)grad[i];
    double norm = sqrt(sum);
    return m->clip > 0 && norm > (double)m->clip ? (float)((double)m->clip / norm) : 1.0f;
}

static void accumulate(model *m, const float *grad) {
    float gain = clip_factor(m, grad);
    for (size_t i = 0; i < m->n; i++) {
        float g = gain * grad[i], before = m->smooth[i];
        if (m->dense[i]) {
            m->acc[i] = g;
        } else if (m->mu > 0) {
            m->smooth[i] = m->mu * before + g;
            m->acc[i] = m->left[i] + m->smooth[i];
        } else if (m->theta > 0) {
            float moved = m->theta * (g - before);
            m->smooth[i] = before + moved;
            m->acc[i] = m->left[i] + moved;
        } else {
            m->acc[i] = m->beta * m->left[i] + g;
        }
    }
}

static model make_model(const frug_layout *z, const char *config) {
    model m = {.n = frug_layout_elements(z), .beta = 1.0f};
    m.left = test_calloc(m.n, sizeof(float));
    m.smooth = test_calloc(m.n, sizeof(float));
    m.acc = test_calloc(m.n, sizeof(float));
    m.dense = test_calloc(m.n, 1);
    if (strstr(config, "feedback=merged"))
        m.beta = 0.95f;
    if (strstr(config, "feedback=dgc"))
        m.mu = 0.9f;
    if (strstr(config, "feedback=ef21"))
        m.theta = 0.1f;
    if (strstr(config, "clip=5"))
        m.clip = 5.0f;
    for (size_t i = 0; i < frug_layout_count(z); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        OK(frug_layout_get(z, i, &t));
        uint64_t count = 1;
        for (uint32_t d = 0; d < t.ndim; d++)
            count *= t.shape[d];
        if (t.ndim < 2)
            memset(m.dense + t.offset, 1, count);
    }
    return m;
}

static void free_model(model *m) {
    test_free(m->left);
    test_free(m->smooth);
    test_free(m->acc);
    test_free(m->dense);
}

/* A step of both; the residual of the compressor is copied to the model. */
static void step_with(model *m, simulation *w) {
    run_step(w, false);
    accumulate(m, w->grad);
    OK(frug_compressor_get_residual(w->c, (frug_range){0, w->n}, m->left));
}

/* Codes that do not round to nearest have the rounding error of one subtraction, relative to the larger number. */
static float tolerance(const char *config) {
    static const char *const rough[] = {"value=sign", "value=two_bit", "value=qsgd", "value=onebit"};
    for (size_t i = 0; i < COUNT(rough); i++)
        if (strstr(config, rough[i]))
            return 0x1p-22f;
    return 0;
}

static void check_conservation(const char *config, const frug_layout *z) {
    if (is_rejected(config) || strstr(config, "hold=")) /* retained values are in both: tested separately */
        return;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    simulation w = begin_simulation(config, z, &options);
    model m = make_model(z, config);
    const float share = tolerance(config);
    for (int step = 0; step < 4; step++) {
        step_with(&m, &w);
        frug_frame_info info = {.struct_size = sizeof info};
        OK(frug_frame_check(w.frame, w.len, &info));
        assert_int_equal(info.bytes, w.len);
        for (size_t i = 0; i < m.n; i++)
            if (!(fabsf(w.sent[i] + m.left[i] - m.acc[i]) <= share * fmaxf(fabsf(w.sent[i]), fabsf(m.acc[i]))))
                fail_msg("%s step %d element %zu: %a + %a is not %a", config, step, i, (double)w.sent[i],
                         (double)m.left[i], (double)m.acc[i]);
    }
    free_model(&m);
    end_simulation(&w);
}

static void no_method_loses_anything_with_any_feedback(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    char config[256];
    for (size_t i = 0; i < COUNT(methods); i++)
        for (size_t f = 0; f < COUNT(feedbacks); f++) {
            snprintf(config, sizeof config, ALWAYS "residual=f32,value=f32,%s,feedback=%s%s", methods[i], feedbacks[f],
                     strcmp(feedbacks[f], "merged") == 0 ? ",beta=0.95" : "");
            check_conservation(config, z);
        }
    frug_layout_destroy(z);
}

static void no_code_loses_anything(void **state) {
    (void)state;
    static const char *const some[] = {"segment=tensor", "segment=all,unit=tile:4x4", "rule=hybrid,segment=tensor",
                                       "segment=tensor,unit=head,density=0.5"};
    frug_layout *z = make_test_layout(SMALL);
    char config[256];
    for (size_t s = 0; s < COUNT(some); s++)
        for (size_t v = 0; v < COUNT(values); v++)
            for (size_t i = 0; i < COUNT(indices); i++) {
                snprintf(config, sizeof config, ALWAYS "residual=f32,beta=0.95,feedback=merged,value=%s,index=%s,%s",
                         values[v], indices[i], some[s]);
                check_conservation(config, z);
            }
    frug_layout_destroy(z);
}

/* Masked momentum: that of sent entries restarts from zero, that of the others continues. */
static void masking_clears_the_momentum_of_what_was_sent(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    simulation w = begin_simulation(ALWAYS "segment=tensor,feedback=dgc,mask=on,residual=f32,value=f32", z, NULL);
    float *u = test_calloc(w.n, sizeof(float)), *v = test_calloc(w.n, sizeof(float));
    for (int step = 0; step < 4; step++) {
        run_step(&w, false);
        for (size_t i = 0; i < SMALL * 64; i++) { /* the embedding */
            u[i] = 0.9f * u[i] + w.grad[i];
            v[i] += u[i];
            if (w.sent[i] != 0) {
                assert_true(w.sent[i] == v[i]);
                u[i] = v[i] = 0;
            }
        }
    }
    test_free(u);
    test_free(v);
    end_simulation(&w);
    frug_layout_destroy(z);
}

/* hold: at density d a selected accumulator a is sent as (1 - beta h) a and h a stays; the others are unchanged. */
static void check_retention(const char *config, const frug_layout *z, float hold) {
    simulation w = begin_simulation(config, z, NULL);
    model m = make_model(z, config);
    const float *sent = w.sent;
    size_t whole = 0;
    for (int step = 0; step < 4; step++) {
        step_with(&m, &w);
        for (size_t i = 0; i < m.n; i++) {
            float part = m.dense[i] ? 1.0f : 1.0f - 0.95f * hold, stays = m.dense[i] ? 0.0f : hold * m.acc[i];
            whole += sent[i] != 0 && !m.dense[i];
            if (sent[i] != 0 ? fabsf(sent[i] - part * m.acc[i]) > 1e-6f * fabsf(m.acc[i]) ||
                                   fabsf(m.left[i] - stays) > 1e-6f * fabsf(m.acc[i])
                             : m.left[i] != m.acc[i])
                fail_msg("%s step %d element %zu: %a of %a, %a stays", config, step, i, (double)sent[i],
                         (double)m.acc[i], (double)m.left[i]);
        }
    }
    assert_true(whole > 0);
    free_model(&m);
    end_simulation(&w);
}

/* hold=auto: 1 - (1 - 0.9 / 0.95) / d, but not below 0. hold=adam: 1 - 1 / (200 d), from 0 to 0.8. */
static void retention_sends_a_share_and_keeps_the_rest(void **state) {
    (void)state;
    static const char *const some[] = {"segment=block", "segment=tensor", "segment=tensor,unit=tile:4x4",
                                       "rule=random,segment=tensor"};
    static const struct {
        const char *text;
        float hold;
    } cases[] = {{"density=0.25,hold=0.5", 0.5f},       {"density=0.25,hold=1", 1.0f},
                 {"density=1,hold=0.25", 0.25f},        {"density=0.5,hold=auto", 0.894737f},
                 {"density=0.25,hold=auto", 0.789474f}, {"density=0.0625,hold=auto", 0.157895f},
                 {"density=0.05,hold=auto", 0.0f},      {"density=0.25,hold=adam", 0.8f},
                 {"density=0.01,hold=adam", 0.5f},      {"density=0.005,hold=adam", 0.0f}};
    frug_layout *z = make_test_layout(SMALL);
    char config[256];
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t s = 0; s < COUNT(some); s++) {
            snprintf(config, sizeof config, ALWAYS "residual=f32,beta=0.95,feedback=merged,value=f32,%s,%s", some[s],
                     cases[i].text);
            check_retention(config, z, cases[i].hold);
        }
    frug_layout_destroy(z);
}

/*
 * Short residuals round retained entries like all others: by less than 1 / 126 of the largest residual (int8), and
 * without bias: the errors of four steps add up to less than five times their standard deviation.
 */
static void retention_is_rounded_without_bias(void **state) {
    (void)state;
    static const char *const some[] = {"segment=block", "segment=tensor", "segment=tensor,unit=run:16",
                                       "rule=random,segment=tensor", "rule=random,segment=tensor,unit=row"};
    frug_layout *z = make_test_layout(SMALL);
    for (size_t s = 0; s < COUNT(some); s++) {
        char config[256];
        snprintf(config, sizeof config,
                 ALWAYS "residual=int8,beta=0.95,feedback=merged,value=f32,density=0.25,hold=0.5,%s", some[s]);
        simulation w = begin_simulation(config, z, NULL);
        model m = make_model(z, config);
        const float *sent = w.sent;
        double sum = 0, squares = 0, worst = 0, most = 0;
        for (int step = 0; step < 4; step++) {
            step_with(&m, &w);
            for (size_t i = 0; i < m.n; i++) {
                if (m.dense[i])
                    continue;
                double want = (sent[i] != 0 ? 0.5 : 1.0) * (double)m.acc[i], error = (double)m.left[i] - want;
                sum += error;
                squares += error * error;
                worst = fmax(worst, fabs(error));
                most = fmax(most, fabs(want));
                if (sent[i] != 0 && fabs((double)sent[i] - 0.525 * (double)m.acc[i]) > 1e-6 * fabs((double)m.acc[i]))
                    fail_msg("%s: %a of %a is sent", config, (double)sent[i], (double)m.acc[i]);
            }
        }
        if (squares == 0 || worst > most / 126 || fabs(sum) > 5 * sqrt(squares))
            fail_msg("%s: errors of up to %g of %g add up to %g, %g expected", config, worst, most, sum, sqrt(squares));
        free_model(&m);
        end_simulation(&w);
    }
    frug_layout_destroy(z);
}

/* At density 1 hold=auto is momentum: the sum of ten steps is that of u = 0.9 u + g, times 1 - 0.9; to 1e-5. */
static void full_retention_is_momentum(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    simulation w = begin_simulation(
        ALWAYS "density=1,hold=auto,beta=0.95,residual=f32,value=f32,vectors=sparse,min_size=0", z, NULL);
    double *u = test_calloc(w.n, sizeof *u), miss = 0, all = 0;
    for (int step = 0; step < 10; step++) {
        run_step(&w, false);
        for (size_t i = 0; i < w.n; i++) {
            u[i] = 0.9 * u[i] + (double)w.grad[i];
            miss += pow((double)w.sent[i] - 0.1 * u[i], 2);
            all += pow(0.1 * u[i], 2);
        }
    }
    assert_true(all > 1 && miss < 1e-10 * all);
    test_free(u);
    end_simulation(&w);
    frug_layout_destroy(z);
}

/* ---- the same bytes, always --------------------------------------------------- */

/** The checksum of all frames of some steps; a restart after `restart` steps. */
static uint64_t digest(const char *config, const frug_layout *z, int threads, uint64_t restart) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = threads;
    options.total_steps = 6;
    frug_compressor *c = make_compressor(config, z, &options);
    const size_t n = frug_layout_elements(z);
    uint64_t hash = FRUGI_HASH_INIT;
    for (uint64_t step = 0; step < 6; step++) {
        if (step == restart) {
            size_t size = frug_compressor_state_size(c), len;
            unsigned char *saved = test_malloc(size);
            OK(frug_compressor_save(c, saved, size, &len));
            frug_compressor_destroy(c);
            c = make_compressor(config, z, &options);
            OK(frug_compressor_restore(c, saved, len));
            test_free(saved);
        }
        float *grad = make_test_gradient(z, step + 1);
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, n, grad, &len);
        hash = frugi_hash_bytes(hash, frame, len);
        test_free(frame);
        test_free(grad);
    }
    frug_compressor_destroy(c);
    return hash;
}

static void nothing_depends_on_threads_or_restarts(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(LARGE);
    char config[256];
    for (size_t i = 0; i < COUNT(methods); i++) {
        static const char *const kept[] = {"merged,residual=int8", "dgc,residual=f32", "none"};
        const char *feedback = strstr(methods[i], "probabilistic") ? "none"
                               : strstr(methods[i], "hold=")       ? kept[0]
                                                                   : kept[i % COUNT(kept)];
        snprintf(config, sizeof config, ALWAYS "value=bf16,%s,feedback=%s", methods[i], feedback);
        if (is_rejected(config))
            continue;
        uint64_t want = digest(config, z, 1, UINT64_MAX);
        if (digest(config, z, 3, UINT64_MAX) != want)
            fail_msg("%s: three threads send something else than one", config);
        if (digest(config, z, 2, 3) != want)
            fail_msg("%s: after a restart something else is sent", config);
    }
    frug_layout_destroy(z);
}

static void nothing_depends_on_the_variant(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    char config[256];
    for (size_t i = 0; i < COUNT(methods); i++) {
        snprintf(config, sizeof config, ALWAYS "value=int8,%s,feedback=merged,residual=bf16", methods[i]);
        if (strstr(methods[i], "value="))
            snprintf(config, sizeof config, ALWAYS "%s,feedback=merged,residual=bf16", methods[i]);
        if (is_rejected(config))
            continue;
        uint64_t want = digest(config, z, 1, UINT64_MAX);
        for (size_t v = 0; frug_isa_at(v); v++) {
            assert_int_equal(setenv("FRUG_ISA", frug_isa_at(v), 1), 0);
            if (digest(config, z, 1, UINT64_MAX) != want)
                fail_msg("%s: variant %s sends something else", config, frug_isa_at(v));
        }
        unsetenv("FRUG_ISA");
    }
    frug_layout_destroy(z);
}

/* ---- several workers -------------------------------------------------------------- */

/* The sum of several frames is the sum of each by itself, in order; decay reaches every weight. */
static void frames_of_several_workers_add_up(void **state) {
    (void)state;
    enum { WORKERS = 3 };
    frug_layout *z = make_test_layout(LARGE);
    const size_t n = frug_layout_elements(z);
    float *one = test_calloc(n, sizeof(float)), *sum = test_calloc(n, sizeof(float)),
          *w = test_calloc(n, sizeof(float));
    char config[256];
    for (size_t m = 0; m < COUNT(methods); m++) {
        snprintf(config, sizeof config, ALWAYS "%s,feedback=none", methods[m]);
        if (is_rejected(config))
            continue;
        const void *frames[WORKERS];
        size_t lens[WORKERS];
        frug_compressor *c = NULL;
        memset(sum, 0, n * sizeof *sum);
        for (uint32_t p = 0; p < WORKERS; p++) {
            frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
            options.source = p;
            options.threads = 2;
            frug_compressor_destroy(c);
            c = make_compressor(config, z, &options);
            float *grad = make_test_gradient(z, 100 * m + p + 1);
            frames[p] = compress_range(c, 2, 0, n, grad, &lens[p]);
            restore_range(c, frames[p], lens[p], 0, n, one);
            for (size_t i = 0; i < n; i++)
                sum[i] += one[i];
            test_free(grad);
        }
        for (size_t i = 0; i < n; i++)
            w[i] = 1.0f;
        OK(frug_decode_apply(frug_compressor_decoder(c), (frug_range){0, n}, frames, lens, WORKERS, 0.5f, 0.25f, w));
        for (size_t i = 0; i < n; i++)
            if (w[i] != 0.75f * 1.0f + -0.5f * sum[i])
                fail_msg("%s element %zu: %a, the sum is %a", config, i, (double)w[i], (double)sum[i]);
        for (uint32_t p = 0; p < WORKERS; p++)
            test_free((void *)frames[p]);
        frug_compressor_destroy(c);
    }
    test_free(one);
    test_free(sum);
    test_free(w);
    frug_layout_destroy(z);
}

/* ---- NaN, dense steps, ranges ------------------------------------------------------- */

static void a_block_with_a_nan_changes_nothing_else(void **state) {
    (void)state;
    static const char *const kept[] = {"merged,residual=f32", "dgc,mask=off,residual=f32", "none"};
    frug_layout *z = make_test_layout(SMALL);
    char config[256];
    for (size_t i = 0; i < COUNT(methods); i++)
        for (size_t f = 0; f < COUNT(kept); f++) {
            snprintf(config, sizeof config, ALWAYS "%s,feedback=%s", methods[i], kept[f]);
            if (is_rejected(config))
                continue;
            simulation w = begin_simulation(config, z, NULL);
            for (int step = 0; step < 3; step++) {
                run_step(&w, step == 1);
                frug_frame_info info = {.struct_size = sizeof info};
                OK(frug_frame_check(w.frame, w.len, &info));
                assert_int_equal(info.skipped > 0, step == 1);
            }
            end_simulation(&w);
        }
    frug_layout_destroy(z);
}

static void dense_steps_clear_the_residual(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    const size_t n = frug_layout_elements(z);
    float *left = test_calloc(n, sizeof(float));
    char config[256];
    for (size_t i = 0; i < COUNT(methods); i++) {
        snprintf(config, sizeof config, ALWAYS "%s,feedback=merged,warmup=2,dense_every=4", methods[i]);
        if (is_rejected(config))
            continue;
        simulation w = begin_simulation(config, z, NULL);
        for (int step = 0; step < 9; step++) {
            run_step(&w, false);
            OK(frug_compressor_get_residual(w.c, (frug_range){0, n}, left));
            double energy = 0;
            for (size_t e = 0; e < n; e++)
                energy += (double)left[e] * (double)left[e];
            int dense = step < 2 || step % 4 == 3;
            if ((energy == 0) != dense && !strstr(methods[i], "value=qsgd"))
                fail_msg("%s step %d: %g is left", config, step, energy);
            const size_t exact = step < 2 && !strstr(config, "clip") ? n : 0;
            for (size_t e = 0; e < exact; e++)
                assert_true(w.sent[e] == w.grad[e]);
        }
        end_simulation(&w);
    }
    test_free(left);
    frug_layout_destroy(z);
}

/* Ranges of whole tensors give the same result as one range if tensors do not compete with each other. */
static void tensors_one_by_one_give_the_same_result_as_all_at_once(void **state) {
    (void)state;
    static const char *const some[] = {"segment=tensor", "rule=random,segment=tensor", "segment=tensor,unit=row",
                                       "rule=hybrid,segment=tensor", "rule=threshold:track,segment=tensor"};
    frug_layout *z = make_test_layout(SMALL);
    const size_t n = frug_layout_elements(z);
    float *whole = test_calloc(n, sizeof(float)), *parts = test_calloc(n, sizeof(float));
    char config[256];
    for (size_t s = 0; s < COUNT(some); s++) {
        snprintf(config, sizeof config, ALWAYS "%s,feedback=plain,residual=f32", some[s]);
        frug_compressor *a = make_compressor(config, z, NULL), *b = make_compressor(config, z, NULL);
        for (uint64_t step = 0; step < 3; step++) {
            float *grad = make_test_gradient(z, step + 1);
            size_t len;
            unsigned char *frame = compress_range(a, step, 0, n, grad, &len);
            restore_range(a, frame, len, 0, n, whole);
            test_free(frame);
            for (size_t i = frug_layout_count(z); i-- > 0;) {
                frug_tensor t = FRUG_TENSOR_INIT;
                OK(frug_layout_get(z, i, &t));
                uint64_t count = 1;
                for (uint32_t d = 0; d < t.ndim; d++)
                    count *= t.shape[d];
                frame = compress_range(b, step, t.offset, count, grad + t.offset, &len);
                restore_range(b, frame, len, t.offset, count, parts + t.offset);
                test_free(frame);
            }
            assert_same_bits(whole, parts, n * sizeof(float));
            test_free(grad);
        }
        frug_compressor_destroy(a);
        frug_compressor_destroy(b);
    }
    test_free(whole);
    test_free(parts);
    frug_layout_destroy(z);
}

static void ranges_that_split_a_selection_group_are_rejected(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    size_t bytes;
    frug_compressor *c = make_compressor(ALWAYS "segment=tensor", z, NULL);
    assert_int_equal(frug_compressor_bound(c, (frug_range){0, 256}, &bytes), FRUG_ERR_ARG);
    assert_non_null(strstr(frug_last_error(), "cuts tensor 'embed'"));
    OK(frug_compressor_bound(c, (frug_range){0, SMALL * 64}, &bytes));
    frug_compressor_destroy(c);
    c = make_compressor(ALWAYS "segment=tensor,unit=head", z, NULL);
    frug_tensor q = FRUG_TENSOR_INIT;
    OK(frug_layout_get(z, 3, &q));
    assert_int_equal(frug_compressor_bound(c, (frug_range){q.offset, 64 * 64}, &bytes), FRUG_ERR_ARG);
    assert_non_null(strstr(frug_last_error(), "cuts an attention module"));
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

static void a_buffer_below_the_bound_changes_nothing(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(SMALL);
    const size_t n = frug_layout_elements(z);
    float *left = test_calloc(n, sizeof(float)), *grad = make_test_gradient(z, 1);
    for (size_t i = 0; i < COUNT(methods); i++) {
        char config[256];
        snprintf(config, sizeof config, ALWAYS "%s,feedback=merged", methods[i]);
        if (is_rejected(config))
            continue;
        frug_compressor *c = make_compressor(config, z, NULL);
        unsigned char small[64];
        size_t len = 7;
        assert_int_equal(frug_compress(c, 0, (frug_range){0, n}, grad, small, sizeof small, &len),
                         FRUG_ERR_SHORT_BUFFER);
        assert_int_equal(len, 7);
        OK(frug_compressor_get_residual(c, (frug_range){0, n}, left));
        for (size_t e = 0; e < n; e++)
            assert_true(left[e] == 0);
        frug_compressor_destroy(c);
    }
    test_free(left);
    test_free(grad);
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_method_loses_anything_with_any_feedback),
        cmocka_unit_test(no_code_loses_anything),
        cmocka_unit_test(masking_clears_the_momentum_of_what_was_sent),
        cmocka_unit_test(retention_sends_a_share_and_keeps_the_rest),
        cmocka_unit_test(retention_is_rounded_without_bias),
        cmocka_unit_test(full_retention_is_momentum),
        cmocka_unit_test(nothing_depends_on_threads_or_restarts),
        cmocka_unit_test(nothing_depends_on_the_variant),
        cmocka_unit_test(frames_of_several_workers_add_up),
        cmocka_unit_test(a_block_with_a_nan_changes_nothing_else),
        cmocka_unit_test(dense_steps_clear_the_residual),
        cmocka_unit_test(tensors_one_by_one_give_the_same_result_as_all_at_once),
        cmocka_unit_test(ranges_that_split_a_selection_group_are_rejected),
        cmocka_unit_test(a_buffer_below_the_bound_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
