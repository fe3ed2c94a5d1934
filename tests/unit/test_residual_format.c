/* test_residual_format.c - what the four residual formats keep, and how fairly they round. */
#include "support/assertions.h"

#include "base/philox.h"
#include "feedback/residual_format.h"

#include <float.h>
#include <math.h>

#define B 256u

static const frugi_residual formats[] = {FRUGI_RESIDUAL_F32, FRUGI_RESIDUAL_BF16, FRUGI_RESIDUAL_INT8,
                                         FRUGI_RESIDUAL_INT4};

static frugi_store make(frugi_residual format, uint64_t blocks) {
    frugi_store store;
    OK(frugi_store_create(format, B, blocks, &store));
    return store;
}

static void a_new_store_is_zero(void **state) {
    (void)state;
    for (size_t f = 0; f < 4; f++) {
        frugi_store store = make(formats[f], 3);
        float x[B], zero[B] = {0};
        for (uint64_t b = 0; b < 3; b++) {
            frugi_store_load(&store, b, x);
            assert_memory_equal(x, zero, sizeof x);
        }
        frugi_store_destroy(&store);
    }
}

static void bytes_per_element_are_as_documented(void **state) {
    (void)state;
    static const double bytes[] = {4, 2, 1.0 + 2.0 / B, 0.5 + 2.0 / B};
    for (size_t f = 0; f < 4; f++) {
        frugi_store store = make(formats[f], 1000);
        assert_true(fabs((double)frugi_store_bytes(&store) / (1000.0 * B) - bytes[f]) < 1e-9);
        frugi_store_destroy(&store);
    }
}

/* Largest error of a format, in units of the block's largest magnitude: one scale, the scale being rounded up to bf16.
 */
static double worst_error(frugi_residual format, const float *x, const float *y) {
    double largest = 0, worst = 0;
    for (uint32_t i = 0; i < B; i++)
        if (fabs((double)x[i]) > largest)
            largest = fabs((double)x[i]);
    for (uint32_t i = 0; i < B; i++) {
        double unit = format == FRUGI_RESIDUAL_BF16 ? fabs((double)x[i]) : largest;
        double error = fabs((double)x[i] - (double)y[i]);
        if (error > worst * unit)
            worst = error / unit;
    }
    return worst;
}

static void errors_stay_below_one_scale(void **state) {
    (void)state;
    static const double most[] = {0, 0x1p-7, 1.01 / 126, 1.01 / 6};
    uint64_t random = 4;
    for (size_t f = 0; f < 4; f++) {
        frugi_store store = make(formats[f], 1);
        for (int exponent = -90; exponent < 120; exponent += 3) {
            float x[B], y[B];
            for (uint32_t i = 0; i < B; i++)
                x[i] = ldexpf(next_float(&random), exponent);
            frugi_store_save(&store, 0, x, (uint32_t)next_random(&random));
            frugi_store_load(&store, 0, y);
            assert_true(worst_error(formats[f], x, y) <= most[f]);
        }
        frugi_store_destroy(&store);
    }
}

/* Over many draws the mean comes out right, element by element. */
static void rounding_is_unbiased(void **state) {
    (void)state;
    enum { DRAWS = 4000 };
    for (size_t f = 1; f < 4; f++) {
        frugi_store store = make(formats[f], 1);
        float x[B], y[B];
        double mean[B] = {0}, scale = 0;
        uint64_t random = 8;
        for (uint32_t i = 0; i < B; i++) {
            x[i] = next_float(&random);
            scale = fmax(scale, fabs((double)x[i]));
        }
        for (uint32_t draw = 0; draw < DRAWS; draw++) {
            frugi_store_save(&store, 0, x, frugi_random(1, draw, 0));
            frugi_store_load(&store, 0, y);
            for (uint32_t i = 0; i < B; i++)
                mean[i] += (double)y[i] / DRAWS;
        }
        scale *= f == 1 ? 0x1p-8 : f == 2 ? 1.0 / 126 : 1.0 / 6;
        /* One draw has a deviation of at most half a scale; five deviations of the mean over all elements. */
        for (uint32_t i = 0; i < B; i++)
            assert_true(fabs(mean[i] - (double)x[i]) < 5 * 0.5 * scale / sqrt(DRAWS) + scale / 60000);
        frugi_store_destroy(&store);
    }
}

static void saving_a_run_equals_saving_its_blocks_except_skipped_ones(void **state) {
    (void)state;
    enum { RUN = 7 };
    static float x[RUN * B], y[B], z[B];
    uint64_t random = 16;
    for (size_t f = 0; f < 4; f++) {
        frugi_store a = make(formats[f], RUN + 2), b = make(formats[f], RUN + 2);
        for (int round = 0; round < 2; round++) {
            uint32_t dice[RUN];
            bool skip[RUN];
            for (uint32_t i = 0; i < RUN; i++) {
                float size = i == 3 ? 0x1p-120f : (float)(i + 1); /* stored as zeros, or with a scale */
                for (uint32_t e = 0; e < B; e++)
                    x[i * B + e] = size * next_bell(&random);
                dice[i] = (uint32_t)next_random(&random);
                skip[i] = round == 1 && i % 3 == 1;
                if (!skip[i])
                    frugi_store_save(&b, 1 + i, x + i * B, dice[i]);
            }
            frugi_store_save_run(&a, 1, RUN, skip, x, dice);
            for (uint32_t i = 0; i < RUN + 2; i++) {
                frugi_store_load(&a, i, y);
                frugi_store_load(&b, i, z);
                assert_memory_equal(y, z, sizeof y);
            }
        }
        frugi_store_destroy(&a);
        frugi_store_destroy(&b);
    }
}

static void exported_bytes_can_be_imported(void **state) {
    (void)state;
    uint64_t random = 15;
    for (size_t f = 0; f < 4; f++) {
        frugi_store a = make(formats[f], 5), b = make(formats[f], 5);
        for (uint64_t block = 0; block < 5; block++) {
            float x[B];
            for (uint32_t i = 0; i < B; i++)
                x[i] = next_bell(&random);
            frugi_store_save(&a, block, x, 99);
        }
        unsigned char *bytes = test_malloc(frugi_store_bytes(&a));
        frugi_store_export(&a, bytes);
        assert_true(frugi_store_check(&b, bytes));
        frugi_store_import(&b, bytes);
        for (uint64_t block = 0; block < 5; block++) {
            float x[B], y[B];
            frugi_store_load(&a, block, x);
            frugi_store_load(&b, block, y);
            assert_memory_equal(x, y, sizeof x);
        }
        memset(bytes, 0xff, frugi_store_bytes(&a)); /* NaN in every float format and every scale */
        assert_false(frugi_store_check(&b, bytes));
        test_free(bytes);
        frugi_store_destroy(&a);
        frugi_store_destroy(&b);
    }
}

/* Numbers of one kind; `kind` counts from 0. Returns false if there is no such kind. */
static bool draw_block(int kind, float *x, uint32_t n, uint64_t *random) {
    for (uint32_t i = 0; i < n; i++) {
        float u = next_bell(random);
        switch (kind) {
        case 0: x[i] = u; break;
        case 1: x[i] = i % 9 ? 0.0f : u; break;                                  /* sparse */
        case 2: x[i] = i % 2 ? -0.0f : 0.0f; break;                              /* zeros of both signs */
        case 3: x[i] = i % 3 ? 0.25f : -0.25f; break;                            /* ties */
        case 4: x[i] = ldexpf(u, -130); break;                                   /* denormal, stored as 0 */
        case 5: x[i] = ldexpf(u, -100); break;                                   /* the smallest scales */
        case 6: x[i] = i % 5 ? 3.4e38f * next_float(random) : -FLT_MAX; break;   /* may round to infinity */
        case 7: x[i] = ldexpf(u, (int)(next_random(random) % 250) - 125); break; /* all exponents */
        default: return false;
        }
    }
    return true;
}

/* A store of one block, and the same with the reference kernel. */
static void compare_variant(const frugi_residual_kernel *kernel, frugi_residual format, uint32_t block) {
    static float x[4096], y[4096], z[4096];
    frugi_store fast, ref;
    uint64_t random = 21;
    OK(frugi_store_create(format, block, 1, &fast));
    OK(frugi_store_create(format, block, 1, &ref));
    fast.kernel = kernel;
    ref.kernel = &frugi_residual_kernel_ref;
    for (int kind = 0; draw_block(kind, x, block, &random); kind++)
        for (int round = 0; round < 5; round++) {
            uint32_t number = (uint32_t)next_random(&random);
            frugi_store_save(&fast, 0, x, number);
            frugi_store_save(&ref, 0, x, number);
            assert_memory_equal(fast.data, ref.data, frugi_store_stride(&ref));
            if (ref.scale)
                assert_int_equal(fast.scale[0], ref.scale[0]);
            frugi_store_load(&fast, 0, y);
            frugi_store_load(&ref, 0, z);
            assert_memory_equal(y, z, block * sizeof *y);
        }
    frugi_store_destroy(&fast);
    frugi_store_destroy(&ref);
}

static void variants_agree(void **state) {
    (void)state;
    for (frugi_isa isa = FRUGI_ISA_REF; isa < FRUGI_ISA_COUNT; isa++)
        for (size_t f = 0; f < 4 && frugi_isa_runs(isa); f++)
            for (uint32_t block = 64; block <= 4096; block *= 4)
                compare_variant(frugi_residual_kernel_for(isa), formats[f], block);
}

static void random_numbers_of_a_run_are_those_of_its_blocks(void **state) {
    (void)state;
    const uint64_t first[] = {0, 77, UINT32_MAX - 5u, UINT64_MAX - 3u};
    uint32_t run[FRUGI_RANDOM_RUN];
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        frugi_random_run(0x123456789abcdefu, 9 + i, first[i], run);
        for (uint32_t j = 0; j < FRUGI_RANDOM_RUN; j++)
            assert_int_equal(run[j], frugi_random(0x123456789abcdefu, 9 + i, first[i] + j));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_store_is_zero),
        cmocka_unit_test(bytes_per_element_are_as_documented),
        cmocka_unit_test(errors_stay_below_one_scale),
        cmocka_unit_test(rounding_is_unbiased),
        cmocka_unit_test(saving_a_run_equals_saving_its_blocks_except_skipped_ones),
        cmocka_unit_test(exported_bytes_can_be_imported),
        cmocka_unit_test(variants_agree),
        cmocka_unit_test(random_numbers_of_a_run_are_those_of_its_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
