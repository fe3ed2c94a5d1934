/* test_block_select.c - the reference selector against a sort. */
#include "support/assertions.h"

#include "base/float_bits.h"
#include "select/block_select.h"

#include <math.h>

#define MOST 4096u

typedef struct entry {
    uint32_t key;
    uint32_t at;
} entry;

static int by_key_then_index(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_index(const void *a, const void *b) {
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return x < y ? -1 : x > y;
}

/* The first k of a stable sort by falling magnitude, in index order. */
static void expect_selection(const float *x, uint32_t n, uint32_t k, frugi_selector how, uint16_t *idx) {
    static entry all[MOST];
    for (uint32_t i = 0; i < n; i++)
        all[i] = (entry){frugi_magnitude(x[i]) >> (how == FRUGI_SELECT_EXACT ? 0 : 16), i};
    qsort(all, n, sizeof *all, by_key_then_index);
    for (uint32_t j = 0; j < k; j++)
        idx[j] = (uint16_t)all[j].at;
    qsort(idx, k, sizeof *idx, by_index);
}

static float draw(int kind, uint32_t i, uint64_t *random) {
    float u = next_float(random);
    switch (kind) {
    case 0: return next_bell(random);
    case 1: return u / (1e-3f + u * u * u * u); /* heavy-tailed */
    case 2: return (float)((int)(u * 3));       /* many ties, many zeros */
    case 3: return 1.0f;                        /* all equal */
    case 4: return 0.0f;
    case 5: return i % 50 == 3 ? u : 0.0f;                   /* sparse */
    case 6: return ldexpf(u, -140);                          /* denormal */
    case 7: return i % 2 ? -0.0f : 0.0f;                     /* zeros of both signs */
    case 8: return (i % 2 ? -1.0f : 1.0f) * (1 + u * 1e-6f); /* equal but for the last bits */
    default: return ldexpf(u, (int)(i % 250) - 125);         /* all exponents */
    }
}

static void reference_is_a_stable_sort(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 2, 63, 64, 100, 128, 255, 256, 1024, 4096};
    uint64_t random = 12;
    for (int kind = 0; kind < 10; kind++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            uint32_t n = lengths[l];
            float x[MOST];
            for (uint32_t i = 0; i < n; i++)
                x[i] = draw(kind, i, &random);
            for (uint32_t k = 0; k <= n; k += k < 20 ? 1 : n / 7 + 1)
                for (int how = 0; how < 2; how++) {
                    uint16_t got[MOST], want[MOST];
                    frugi_select_ref(x, n, k, (frugi_selector)how, got);
                    expect_selection(x, n, k, (frugi_selector)how, want);
                    assert_memory_equal(got, want, k * sizeof *got);
                }
        }
}

/* hist sends exactly as many entries and at least 99 % of the energy. */
static void hist_selects_nearly_the_energy_of_exact(void **state) {
    (void)state;
    uint64_t random = 77;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t k = 1; k <= 128; k *= 2) {
            double exact = 0, hist = 0;
            for (int block = 0; block < 200; block++) {
                float x[256];
                uint16_t a[256], b[256];
                for (uint32_t i = 0; i < 256; i++)
                    x[i] = draw(kind, i, &random);
                frugi_select_ref(x, 256, k, FRUGI_SELECT_EXACT, a);
                frugi_select_ref(x, 256, k, FRUGI_SELECT_HIST, b);
                for (uint32_t j = 0; j < k; j++) {
                    exact += (double)x[a[j]] * (double)x[a[j]];
                    hist += (double)x[b[j]] * (double)x[b[j]];
                }
            }
            assert_true(hist >= 0.99 * exact);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_a_stable_sort),
        cmocka_unit_test(hist_selects_nearly_the_energy_of_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
