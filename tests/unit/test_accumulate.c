/* test_accumulate.c - the variants of the loops of error feedback: their results, and that nothing changes if a number
 * is not finite. */
#include "support/assertions.h"

#include "base/cpu.h"
#include "feedback/accumulate_kernel.h"

#include <float.h>
#include <math.h>

enum { MOST = 4096 };

typedef struct arrays {
    float acc[MOST], momentum[MOST], grad[MOST];
} arrays;

typedef enum rule { ADD, DGC, EF21, RULES } rule;

static arrays *draw_arrays(uint64_t *random) {
    arrays *a = test_malloc(sizeof *a);
    for (int i = 0; i < MOST; i++) {
        a->acc[i] = next_float(random);
        a->momentum[i] = next_float(random);
        a->grad[i] = next_float(random) * 1e-3f;
    }
    return a;
}

static bool run(const frugi_accumulate_kernel *kernel, rule r, arrays *a, uint32_t n) {
    switch (r) {
    case ADD: return kernel->add(a->acc, a->grad, 0.95f, n);
    case DGC: return kernel->add_dgc(a->acc, a->momentum, a->grad, 0.9f, n);
    default: return kernel->add_ef21(a->acc, a->momentum, a->grad, 0.3f, n);
    }
}

/* The definition, one element at a time. */
static void run_reference(rule r, arrays *a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float m = r == DGC ? 0.9f * a->momentum[i] : 0.3f * (a->grad[i] - a->momentum[i]);
        float added = r == ADD ? a->grad[i] : r == DGC ? m + a->grad[i] : m;
        a->acc[i] = (r == ADD ? 0.95f * a->acc[i] : a->acc[i]) + added;
        if (r != ADD)
            a->momentum[i] = r == DGC ? added : a->momentum[i] + added;
    }
}

static void check_kernel(const frugi_accumulate_kernel *kernel) {
    static const uint32_t lengths[] = {64, 128, 192, 256, 1024, 4096};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    uint64_t random = 3;
    for (rule r = 0; r < RULES; r++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            uint32_t n = lengths[l], at = (uint32_t)(next_random(&random) % n);
            arrays *got = draw_arrays(&random), *want = test_malloc(sizeof *want);
            memcpy(want, got, sizeof *want);
            run_reference(r, want, n);
            assert_true(run(kernel, r, got, n));
            assert_same_bits(got, want, sizeof *want);
            assert_true(kernel->all_finite(got->acc, n));
            for (size_t b = 0; b < 3; b++) { /* one number in the gradient; or a sum that overflows */
                got->grad[at] = want->grad[at] = bad[b];
                assert_false(run(kernel, r, got, n));
                assert_false(kernel->all_finite(got->grad, n));
                assert_memory_equal(got, want, sizeof *want);
            }
            got->grad[at] = want->grad[at] = FLT_MAX;
            got->acc[at] = want->acc[at] = FLT_MAX;
            assert_false(run(kernel, r, got, n));
            assert_memory_equal(got, want, sizeof *want);
            test_free(got);
            test_free(want);
        }
}

static void check_all_finite(const frugi_accumulate_kernel *kernel) {
    float x[200] = {0};
    for (uint32_t n = 0; n < 200; n++) {
        x[n] = INFINITY; /* behind the end */
        assert_true(kernel->all_finite(x, n));
        assert_false(kernel->all_finite(x, n + 1));
        x[n] = n % 2 ? FLT_MAX : -FLT_MAX;
    }
}

static void all_variants_accumulate_identically(void **state) {
    (void)state;
    check_kernel(&frugi_accumulate_ref);
    check_all_finite(&frugi_accumulate_ref);
#if defined(__aarch64__)
    check_kernel(&frugi_accumulate_neon);
    check_all_finite(&frugi_accumulate_neon);
#elif defined(__x86_64__)
    if (frugi_isa_runs(FRUGI_ISA_AVX2)) {
        check_kernel(&frugi_accumulate_avx2);
        check_all_finite(&frugi_accumulate_avx2);
    }
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_variants_accumulate_identically)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
