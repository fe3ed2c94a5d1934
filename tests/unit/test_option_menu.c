/*
 * test_option_menu.c - that each method of the menu does what its name says, seen from outside: which entries are sent,
 * how many, and with what expectation.
 */
#include "support/test_layouts.h"

#include <math.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/** What one step from nothing sends. */
static float *send_once(const char *config, const frug_layout *z, const float *grad, uint64_t step, uint32_t source) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.source = source;
    options.threads = 1;
    frug_compressor *c = make_compressor(config, z, &options);
    size_t n = frug_layout_elements(z), len;
    float *sent = test_calloc(n + 1, sizeof(float));
    unsigned char *frame = compress_range(c, step, 0, n, grad, &len);
    restore_range(c, frame, len, 0, n, sent);
    test_free(frame);
    frug_compressor_destroy(c);
    return sent;
}

static frug_layout *matrix(uint64_t rows, uint64_t cols, frug_role role) {
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    test_layout_add(z, "w", role, TEST_SHAPE(rows, cols), 0, 0, 0, 0);
    return z;
}

static size_t count_sent(const float *sent, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += sent[i] != 0;
    return count;
}

/* Every entry kept is at least as large as every one dropped. */
static void assert_kept_are_largest(const float *grad, const float *sent, size_t n) {
    float least = INFINITY, most = 0;
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(grad[i]);
        if (sent[i] != 0)
            least = a < least ? a : least;
        else
            most = a > most ? a : most;
    }
    assert_true(least >= most);
}

/* ---- element by element ------------------------------------------------------- */

static void whole_tensor_top_k_sends_the_k_largest(void **state) {
    (void)state;
    frug_layout *z = matrix(100, 300, FRUG_ROLE_LINEAR);
    float *grad = bell_array(30000, 1), *sent = send_once("topk,density=0.06,feedback=none", z, grad, 0, 0);
    assert_int_equal(count_sent(sent, 30000), 1800);
    assert_kept_are_largest(grad, sent, 30000);
    test_free(grad);
    test_free(sent);
    frug_layout_destroy(z);
}

static void all_tensors_together_send_the_k_largest_of_all(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(300);
    size_t n = frug_layout_elements(z);
    float *grad = make_test_gradient(z, 3);
    float *sent = send_once("segment=all,density=0.1,min_size=1,vectors=sparse,feedback=none,value=f32", z, grad, 0, 0);
    assert_kept_are_largest(grad, sent, n);
    assert_in_range(count_sent(sent, n), n / 10 - 13, n / 10 + 13); /* one rounding per tensor */
    test_free(grad);
    test_free(sent);
    frug_layout_destroy(z);
}

static void n_of_m_sends_exactly_n_of_every_m(void **state) {
    (void)state;
    static const struct { uint32_t n, m; } cases[] = {{2, 4}, {1, 4}, {1, 2}, {4, 8}, {3, 16}, {7, 100}};
    frug_layout *z = matrix(64, 100, FRUG_ROLE_LINEAR);
    float *grad = bell_array(6400, 2);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[64];
        snprintf(config, sizeof config, "segment=%u:%u,feedback=none,select=exact", cases[i].n, cases[i].m);
        float *sent = send_once(config, z, grad, 0, 0);
        for (uint32_t at = 0; at + cases[i].m <= 6400; at += cases[i].m) {
            assert_int_equal(count_sent(sent + at, cases[i].m), cases[i].n);
            assert_kept_are_largest(grad + at, sent + at, cases[i].m);
        }
        test_free(sent);
    }
    test_free(grad);
    frug_layout_destroy(z);
}

static void thresholds_send_all_entries_that_reach_them(void **state) {
    (void)state;
    frug_layout *z = matrix(100, 300, FRUG_ROLE_LINEAR);
    float *grad = bell_array(30000, 4);
    float *sent =
        send_once("rule=threshold:absolute:2,segment=tensor,density=0.1,feedback=none,value=f32", z, grad, 0, 0);
    for (size_t i = 0; i < 30000; i++)
        assert_true(sent[i] == (fabsf(grad[i]) >= 2.0f ? grad[i] : 0.0f));
    test_free(sent);
    sent = send_once("rule=threshold:percentile,segment=tensor,density=0.05,feedback=none", z, grad, 0, 0);
    assert_kept_are_largest(grad, sent, 30000);
    assert_in_range(count_sent(sent, 30000), 1500, 1560); /* within one step of a 128th of the threshold */
    test_free(sent);
    sent = send_once("rule=threshold:absolute:0.0001,segment=tensor,density=0.05,feedback=none", z, grad, 0, 0);
    assert_int_equal(count_sent(sent, 30000), 3000); /* never more than twice the density */
    test_free(sent);
    test_free(grad);
    frug_layout_destroy(z);
}

static void a_tracked_threshold_finds_and_holds_the_density(void **state) {
    (void)state;
    frug_layout *z = matrix(200, 300, FRUG_ROLE_LINEAR);
    frug_compressor *c =
        make_compressor("rule=threshold:track,segment=tensor,density=0.02,feedback=none,value=f32", z, NULL);
    float *sent = test_calloc(60000, sizeof(float));
    for (uint64_t step = 0; step < 60; step++) {
        float *grad = bell_array(60000, step + 1), scale = step < 30 ? 1.0f : 50.0f; /* and survives a jump */
        for (size_t i = 0; i < 60000; i++)
            grad[i] *= scale;
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, 60000, grad, &len);
        restore_range(c, frame, len, 0, 60000, sent);
        assert_in_range(count_sent(sent, 60000), 600, 2400);
        if (step > 5 && step < 30)
            assert_in_range(count_sent(sent, 60000), 1000, 1450);
        test_free(frame);
        test_free(grad);
    }
    test_free(sent);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

static void hybrid_meets_the_budget_and_sends_from_every_block(void **state) {
    (void)state;
    frug_layout *z = matrix(1, 256 * 64, FRUG_ROLE_LINEAR);
    const size_t n = 256 * 64;
    float *grad = bell_array(n, 5);
    for (size_t b = 0; b < 64; b++)
        for (size_t i = 0; i < 256; i++)
            grad[256 * b + i] *= b < 8 ? 10.0f : 1.0f;
    float *sent = send_once("rule=hybrid:100,segment=tensor,density=0.0625,feedback=none,select=exact", z, grad, 0, 0);
    assert_int_equal(count_sent(sent, n), n / 16);
    for (size_t b = 0; b < 64; b++) {
        assert_in_range(count_sent(sent + 256 * b, 256), 1, 100);
        assert_kept_are_largest(grad + 256 * b, sent + 256 * b, 256);
        if (b < 8)
            assert_true(count_sent(sent + 256 * b, 256) > 50);
    }
    test_free(sent);
    test_free(grad);
    frug_layout_destroy(z);
}

static void learned_masks_are_constant_between_refreshes_and_waits_are_bounded(void **state) {
    (void)state;
    enum { UNITS = 64, LEN = 64, STEPS = 60, KEPT = 8 };
    frug_layout *z = matrix(UNITS, LEN, FRUG_ROLE_LINEAR);
    frug_compressor *c = make_compressor(
        "rule=learned:10:20:0.1,unit=row,segment=tensor,density=0.125,feedback=merged,value=f32", z, NULL);
    float *sent = test_calloc(UNITS * LEN, sizeof(float));
    int waited[UNITS] = {0}, longest = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        float *grad = bell_array(UNITS * LEN, step + 1);
        size_t len, units = 0;
        unsigned char *frame = compress_range(c, step, 0, UNITS * LEN, grad, &len);
        restore_range(c, frame, len, 0, UNITS * LEN, sent);
        for (size_t u = 0; u < UNITS; u++) {
            size_t here = count_sent(sent + u * LEN, LEN);
            assert_true(here == 0 || here == LEN);
            units += here != 0;
            waited[u] = here ? 0 : waited[u] + 1;
            longest = waited[u] > longest ? waited[u] : longest;
        }
        assert_int_equal(units, KEPT);
        test_free(frame);
        test_free(grad);
    }
    assert_in_range(longest, 1, 20 + UNITS / KEPT); /* the age limit, and a queue of all units behind it */
    test_free(sent);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

/* ---- units ---------------------------------------------------------------------- */

/* Tile by tile of h x w: all or none. Returns how many tiles were sent. */
static size_t whole_tiles(const float *sent, size_t rows, size_t cols, size_t h, size_t w) {
    size_t tiles = 0;
    for (size_t r = 0; r < rows; r += h)
        for (size_t c = 0; c < cols; c += w) {
            size_t there = 0, all = 0;
            for (size_t i = r; i < r + h && i < rows; i++)
                for (size_t j = c; j < c + w && j < cols; j++, all++)
                    there += sent[i * cols + j] != 0;
            assert_true(there == 0 || there == all);
            tiles += there != 0;
        }
    return tiles;
}

static void units_are_sent_as_a_whole(void **state) {
    (void)state;
    enum { ROWS = 45, COLS = 70 };
    static const struct {
        const char *unit;
        size_t h, w, kept;
    } cases[] = {{"unit=row,density=0.2", 1, COLS, 9},          {"unit=column,density=0.2", ROWS, 1, 14},
                 {"unit=tile:4x4,density=0.25", 4, 4, 54},      {"unit=tile:8x8,density=0.25,score=l1", 8, 8, 14},
                 {"unit=tile:3x100,density=0.2", 3, COLS, 3},   {"unit=channel,density=0.5", 1, COLS, 23},
                 {"unit=run:7,density=0.1,score=max", 1, 7, 45}};
    frug_layout *z = matrix(ROWS, COLS, FRUG_ROLE_LINEAR);
    float *grad = bell_array(ROWS * COLS, 6);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[128];
        snprintf(config, sizeof config, "segment=tensor,feedback=none,min_size=1,%s", cases[i].unit);
        float *sent = send_once(config, z, grad, 0, 0);
        assert_int_equal(whole_tiles(sent, ROWS, COLS, cases[i].h, cases[i].w), cases[i].kept);
        test_free(sent);
    }
    test_free(grad);
    frug_layout_destroy(z);
}

static void scores_decide_which_rows_are_sent(void **state) {
    (void)state;
    frug_layout *z = matrix(3, 4, FRUG_ROLE_LINEAR);
    const float grad[12] = {3, 0, 0, 0.5f, 1, 1.5f, 1.5f, 1, 2, 2, 0.25f, 0.25f};
    /* l1: 3.5, 5, 4.5; l2: 9.25, 6.5, 8.125; max: 3, 1.5, 2 */
    static const struct {
        const char *score;
        size_t row;
    } cases[] = {{"l1", 1}, {"l2", 0}, {"max", 0}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[128];
        snprintf(config, sizeof config, "segment=tensor,unit=row,density=0.3,min_size=1,feedback=none,score=%s",
                 cases[i].score);
        float *sent = send_once(config, z, grad, 0, 0);
        for (size_t r = 0; r < 3; r++)
            assert_int_equal(count_sent(sent + 4 * r, 4) != 0, r == cases[i].row);
        test_free(sent);
    }
    frug_layout_destroy(z);
}

/* Which heads of a tensor were sent, as bits, by one element that belongs to each. */
static unsigned heads_of(const float *sent, const frug_layout *z, size_t tensor, unsigned heads, int across) {
    frug_tensor t = FRUG_TENSOR_INIT;
    OK(frug_layout_get(z, tensor, &t));
    size_t side = across ? t.shape[1] : t.shape[0], each = side / heads, h = across ? t.shape[0] : each,
           w = across ? each : t.shape[1];
    whole_tiles(sent + t.offset, t.shape[0], t.shape[1], h, w);
    unsigned bits = 0;
    for (unsigned i = 0; i < heads; i++)
        bits |= (unsigned)(sent[t.offset + (across ? i * each : i * each * t.shape[1])] != 0) << i;
    return bits;
}

static void all_tensors_of_a_head_are_selected_together(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(300);
    float *grad = make_test_gradient(z, 8);
    static const char *const rules[] = {"rule=topk", "rule=random", "rule=learned"};
    for (size_t i = 0; i < COUNT(rules); i++) {
        char config[128];
        snprintf(config, sizeof config, "heads,%s,feedback=none,min_size=1,value=f32", rules[i]);
        float *sent = send_once(config, z, grad, 0, 0);
        unsigned q = heads_of(sent, z, 3, 2, 0); /* 8 heads share 2 of keys and values: 2 groups of 4 */
        assert_true(q == 1 || q == 2);
        assert_int_equal(heads_of(sent, z, 4, 2, 0), q);
        assert_int_equal(heads_of(sent, z, 6, 2, 0), q);
        assert_int_equal(heads_of(sent, z, 7, 2, 1), q);
        unsigned fused = heads_of(sent, z, 9, 12, 1), o = heads_of(sent, z, 10, 4, 0); /* stored input first */
        assert_int_equal(__builtin_popcount(o), 2);
        assert_int_equal(fused, o | o << 4 | o << 8);
        test_free(sent);
    }
    test_free(grad);
    frug_layout_destroy(z);
}

static void heads_compete_by_given_scores(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(300);
    size_t n = frug_layout_elements(z), len;
    float *grad = make_test_gradient(z, 8), *sent = test_calloc(n, sizeof(float));
    frug_compressor *c = make_compressor("heads,score=given,feedback=none,min_size=1", z, NULL);
    const double entropy[4] = {0.1, 3.0, 0.2, 2.0}, bad[1] = {-1};
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_HEADS, 9, entropy, 3), FRUG_ERR_ARG);
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_HEADS, 0, entropy, 4), FRUG_ERR_ARG);
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_NORM, 0, bad, 1), FRUG_ERR_ARG);
    OK(frug_compressor_set_signal(c, FRUG_SIGNAL_HEADS, 9, entropy, 4));
    unsigned char *frame = compress_range(c, 0, 0, n, grad, &len);
    restore_range(c, frame, len, 0, n, sent);
    assert_int_equal(heads_of(sent, z, 10, 4, 0), 1 << 1 | 1 << 3);
    test_free(frame);
    test_free(sent);
    test_free(grad);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

/* What the caller sets changes what is sent, and is rejected if it has no effect. */
static void norms_and_sensitivities_change_what_is_sent(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(300);
    size_t n = frug_layout_elements(z), calm, wild, len;
    float *grad = make_test_gradient(z, 14);
    const double one = 1, four = 4, hundred = 100;
    frug_compressor *c = make_compressor("segment=tensor,norm=follow,min_size=1", z, NULL);
    for (uint64_t step = 0; step < 3; step++) {
        OK(frug_compressor_set_signal(c, FRUG_SIGNAL_NORM, 0, &one, 1));
        test_free(compress_range(c, step, 0, n, grad, &calm));
    }
    OK(frug_compressor_set_signal(c, FRUG_SIGNAL_NORM, 0, &four, 1));
    test_free(compress_range(c, 3, 0, n, grad, &wild));
    assert_true(wild > 2 * calm);
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_SENSITIVITY, 0, &one, 1), FRUG_ERR_ARG);
    frug_compressor_destroy(c);
    c = make_compressor("segment=tensor,layers=sensitivity,min_size=1", z, NULL);
    frug_tensor_plan before = {.struct_size = sizeof before}, after = before;
    OK(frug_compressor_plan(c, 0, 0, &before));
    for (size_t i = 0; i < frug_layout_count(z); i++)
        if (i != 2 && i != 8 && i != 11) /* vectors and the scalar are sent dense */
            OK(frug_compressor_set_signal(c, FRUG_SIGNAL_SENSITIVITY, i, i == 0 ? &hundred : &one, 1));
    OK(frug_compressor_plan(c, 0, 0, &after));
    assert_true(after.selected > 2 * before.selected);
    test_free(compress_range(c, 0, 0, n, grad, &len));
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_SENSITIVITY, 2, &one, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_NORM, 0, &one, 1), FRUG_ERR_ARG);
    frug_compressor_destroy(c);
    test_free(grad);
    frug_layout_destroy(z);
}

static void unit_head_without_heads_is_rejected(void **state) {
    (void)state;
    frug_layout *z = matrix(64, 100, FRUG_ROLE_LINEAR);
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    OK(frug_config_create("heads", &config));
    assert_int_equal(frug_compressor_create(config, z, NULL, &c), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "no tensor of the layout has heads"));
    frug_layout_destroy(z);
    OK(frug_layout_create(&z));
    test_layout_add(z, "q", FRUG_ROLE_ATTN_Q, TEST_SHAPE(64, 100), 5, 0, 1, 0);
    assert_int_equal(frug_compressor_create(config, z, NULL, &c), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "no whole number of 5 heads"));
    frug_layout_destroy(z);
    frug_config_destroy(config);
}

/* ---- expectation ------------------------------------------------------------------ */

/** Means of what is sent over many steps, against the gradient, in standard errors. */
static void assert_unbiased(const char *config, size_t draws, double limit, double *energy_of_error) {
    enum { N = 320 };
    frug_layout *z = matrix(8, 40, FRUG_ROLE_LINEAR);
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    frug_compressor *c = make_compressor(config, z, &options);
    float *grad = bell_array(N, 9), sent[N];
    double sum[N] = {0}, squares[N] = {0}, error = 0, least = 1e30;
    for (size_t i = 0; i < N; i += 5)
        grad[i] *= 6.0f;
    for (uint64_t step = 0; step < draws; step++) {
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, N, grad, &len);
        restore_range(c, frame, len, 0, N, sent);
        for (size_t i = 0; i < N; i++) {
            least = sent[i] != 0 && fabs((double)sent[i]) < least ? fabs((double)sent[i]) : least;
            sum[i] += (double)sent[i];
            squares[i] += (double)sent[i] * (double)sent[i];
            error += ((double)sent[i] - (double)grad[i]) * ((double)sent[i] - (double)grad[i]);
        }
        test_free(frame);
    }
    for (size_t i = 0; i < N; i++) {
        double mean = sum[i] / (double)draws, variance = squares[i] / (double)draws - mean * mean;
        variance = fmax(variance, fabs((double)grad[i]) * least); /* at least, where it is sent as something larger */
        double standard = sqrt(variance / (double)draws) + 1e-6;
        if (fabs(mean - (double)grad[i]) > limit * standard)
            fail_msg("%s element %zu: mean %g, should be %g, standard error %g", config, i, mean, (double)grad[i],
                     standard);
    }
    *energy_of_error = error / (double)draws;
    test_free(grad);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

static double energy_of_test_gradient(void) {
    float *grad = bell_array(320, 9);
    double sum = 0;
    for (size_t i = 0; i < 320; i++)
        sum += (double)grad[i] * (double)grad[i] * (i % 5 ? 1.0 : 36.0);
    test_free(grad);
    return sum;
}

/* 320 means within 5.5 standard errors each: a sound method fails once in 80,000 runs; the seeds are fixed. */
static void random_probabilistic_and_qsgd_are_unbiased(void **state) {
    (void)state;
    double uniform, chance, qsgd, whole = energy_of_test_gradient();
    assert_unbiased("randomk,density=0.25,min_size=1", 8000, 5.5, &uniform);
    assert_true(fabs(uniform - 3.0 * whole) < 0.05 * 3.0 * whole); /* (1 / p - 1) ||g||^2 */
    assert_unbiased("rule=probabilistic,segment=tensor,density=0.25,feedback=none,value=f32,min_size=1", 8000, 5.5,
                    &chance);
    assert_true(chance < 0.5 * uniform); /* and varies less than drawing blindly */
    assert_unbiased("qsgd,levels=7,bucket=64,min_size=1", 8000, 5.5, &qsgd);
    assert_true(qsgd <= fmin(64.0 / 49.0, 8.0 / 7.0) * whole);
    assert_unbiased("qsgd,levels=1,bucket=64,qnorm=max,min_size=1", 8000, 5.5, &qsgd);
}

static void random_units_need_no_index_and_are_the_same_on_all_workers(void **state) {
    (void)state;
    frug_layout *z = matrix(100, 300, FRUG_ROLE_LINEAR);
    float *grad = bell_array(30000, 11), *a = send_once("randomk", z, grad, 5, 0),
          *b = send_once("randomk", z, grad, 5, 1);
    assert_same_bits(a, b, 30000 * sizeof(float));
    float *other = send_once("randomk", z, grad, 6, 0);
    assert_memory_not_equal(a, other, 30000 * sizeof(float));
    frug_compressor *c = make_compressor("randomk", z, NULL);
    size_t len;
    unsigned char *frame = compress_range(c, 5, 0, 30000, grad, &len);
    assert_int_equal(len, 48 + 96 + 4 * 1875); /* headers and values */
    test_free(frame);
    frug_compressor_destroy(c);
    test_free(a);
    test_free(b);
    test_free(other);
    test_free(grad);
    frug_layout_destroy(z);
}

/* ---- plans ------------------------------------------------------------------------ */

static void plans_match_frames(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad",
                                          "segment=tensor,unit=row,density=0.3",
                                          "2:4",
                                          "heads",
                                          "segment=block,value=int4,density=0.1",
                                          "rule=hybrid,segment=tensor",
                                          "segment=tensor,unit=tile:8x8",
                                          "learned",
                                          "randomk"};
    frug_layout *z = make_test_layout(300);
    size_t n = frug_layout_elements(z), len;
    float *grad = make_test_gradient(z, 12);
    for (size_t i = 0; i < COUNT(configs); i++) {
        char config[128];
        snprintf(config, sizeof config, "%s,min_size=1", configs[i]);
        frug_compressor *c = make_compressor(config, z, NULL);
        unsigned char *frame = compress_range(c, 3, 0, n, grad, &len);
        frug_frame_info info = {.struct_size = sizeof info};
        OK(frug_frame_check(frame, len, &info));
        uint64_t bytes = 48;
        for (uint32_t s = 0; s < info.sections; s++) {
            frug_section_info section = {.struct_size = sizeof section};
            frug_tensor_plan plan = {.struct_size = sizeof plan};
            OK(frug_frame_section(frame, len, s, &section));
            OK(frug_compressor_plan(c, 3, section.tensor, &plan));
            bytes += section.bytes;
            if (plan.dense)
                continue;
            assert_int_equal(plan.selected, section.selected);
            assert_int_equal(plan.units, section.units);
            assert_int_equal(plan.unit_h * plan.unit_w, section.unit_h * section.unit_w);
        }
        assert_int_equal(bytes, len);
        test_free(frame);
        frug_compressor_destroy(c);
    }
    test_free(grad);
    frug_layout_destroy(z);
}

/* auto is never longer than the best single code. */
static void index_auto_is_the_shortest(void **state) {
    (void)state;
    static const char *const codes[] = {"fixed", "local", "bitmap", "coo", "csr", "rle", "rice"};
    static const char *const some[] = {
        "segment=tensor,density=0.001",          "segment=tensor,density=0.06", "segment=tensor,density=0.6",
        "segment=tensor,unit=row,density=0.3",   "segment=all,density=0.02",    "segment=block,density=0.0625",
        "segment=tensor,unit=run:64,density=0.1"};
    frug_layout *z = make_test_layout(300);
    size_t n = frug_layout_elements(z), best, len;
    float *grad = make_test_gradient(z, 13);
    for (size_t s = 0; s < COUNT(some); s++) {
        char config[128];
        snprintf(config, sizeof config, "%s,min_size=1,index=auto", some[s]);
        frug_compressor *c = make_compressor(config, z, NULL);
        test_free(compress_range(c, 0, 0, n, grad, &best));
        frug_compressor_destroy(c);
        for (size_t i = 0; i < COUNT(codes); i++) {
            snprintf(config, sizeof config, "%s,min_size=1,index=%s", some[s], codes[i]);
            c = make_compressor(config, z, NULL);
            test_free(compress_range(c, 0, 0, n, grad, &len));
            frug_compressor_destroy(c);
            /* a section by units has 48 bytes more of header than one by blocks; 11 tensors */
            size_t headers = strstr(some[s], "block") && i < 3 ? 11 * 48 : 0;
            if (best > len + headers)
                fail_msg("%s: auto takes %zu bytes, %s %zu", some[s], best, codes[i], len);
        }
    }
    test_free(grad);
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensor_top_k_sends_the_k_largest),
        cmocka_unit_test(all_tensors_together_send_the_k_largest_of_all),
        cmocka_unit_test(n_of_m_sends_exactly_n_of_every_m),
        cmocka_unit_test(thresholds_send_all_entries_that_reach_them),
        cmocka_unit_test(a_tracked_threshold_finds_and_holds_the_density),
        cmocka_unit_test(hybrid_meets_the_budget_and_sends_from_every_block),
        cmocka_unit_test(learned_masks_are_constant_between_refreshes_and_waits_are_bounded),
        cmocka_unit_test(units_are_sent_as_a_whole),
        cmocka_unit_test(scores_decide_which_rows_are_sent),
        cmocka_unit_test(all_tensors_of_a_head_are_selected_together),
        cmocka_unit_test(heads_compete_by_given_scores),
        cmocka_unit_test(norms_and_sensitivities_change_what_is_sent),
        cmocka_unit_test(unit_head_without_heads_is_rejected),
        cmocka_unit_test(random_probabilistic_and_qsgd_are_unbiased),
        cmocka_unit_test(random_units_need_no_index_and_are_the_same_on_all_workers),
        cmocka_unit_test(plans_match_frames),
        cmocka_unit_test(index_auto_is_the_shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
