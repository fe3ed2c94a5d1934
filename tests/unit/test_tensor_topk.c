/* test_tensor_topk.c - selection over whole arrays against a sort. */
#include "support/assertions.h"

#include "base/float_bits.h"
#include "base/cpu.h"
#include "select/tensor_topk.h"
#include "select/block_select.h"
#include "select/tensor_topk_kernel.h"

#include <math.h>

#define MOST  300000u
#define KINDS 14

/* ---- reference: sort ------------------------------------------------------------------------- */

static int by_descending_key(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x > y ? -1 : x < y;
}

static uint32_t *sorted_keys(const float *x, uint64_t n) {
    uint32_t *key = test_malloc(n * sizeof *key);
    for (uint64_t i = 0; i < n; i++)
        key[i] = frugi_magnitude(x[i]);
    qsort(key, n, sizeof *key, by_descending_key);
    return key;
}

/* The first k of a stable sort by descending magnitude, in index order. */
static void expect_indices(const float *x, uint64_t n, const uint32_t *sorted, uint64_t k, uint32_t *list) {
    uint32_t key = sorted[k - 1];
    uint64_t above = 0, out = 0;
    while (above < k && sorted[above] > key)
        above++;
    uint64_t ties = k - above;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t m = frugi_magnitude(x[i]);
        if (m < key || (m == key && ties == 0))
            continue;
        ties -= m == key;
        list[out++] = (uint32_t)i;
    }
    assert_int_equal(out, k);
}

/* ---- data ------------------------------------------------------------------------------------ */

static float draw(int kind, uint32_t i, uint32_t n, uint64_t *random) {
    float u = next_float(random), v = next_float(random);
    switch (kind) {
    case 0: return u + v + next_float(random) + next_float(random);
    case 1: return u / (1e-3f + v * v);                                  /* heavy-tailed */
    case 2: return ldexpf(u, (int)(next_random(random) % 70) - 35);      /* over 20 decades */
    case 3: return i % 2 ? 1.0f : -1.0f;                                 /* all equal */
    case 4: return i % 3 ? 0.0f : -0.0f;                                 /* zeros of both signs */
    case 5: return (float)((int)(u * 3));                                /* few distinct values */
    case 6: return next_random(random) % 100 == 0 ? v : 0.0f;            /* 99 % zeros */
    case 7: return ldexpf(u, -140);                                      /* denormal */
    case 8: return (float)i;                                             /* sorted */
    case 9: return (float)(n - i) * 1e-3f;                               /* sorted the other way */
    case 10: return i < n / 20 ? u * 1e6f : u * 1e-6f;                   /* two scales */
    case 11: return i == n / 2 ? 3e38f : u;                              /* one giant */
    case 12: return (i % 2 ? -1.0f : 1.0f) * (1 + u * 1e-6f);            /* equal but for the last bits */
    default: return (float)(next_random(random) % 17) * (1.0f / 1024.f); /* many ties everywhere */
    }
}

static float *draw_array(int kind, uint32_t n, uint64_t *random) {
    float *x = test_malloc(n * sizeof *x);
    for (uint32_t i = 0; i < n; i++)
        x[i] = draw(kind, i, n, random);
    return x;
}

/* ---- checks ---------------------------------------------------------------------------------- */

#define GUARD 0xdeadbeefu

/* Emitted to odd addresses, the selected entries are the same, and left they leave the others as they were. */
static void check_emit_to(frugi_topk *whole, const float *x, uint64_t n, const uint32_t *want, uint64_t k, uint32_t key,
                          int threads) {
    frugi_float_array span = {x, n};
    frugi_cutoff cut = frugi_topk_cutoff(whole, &span, 1, k, threads);
    unsigned char *list = test_malloc(4 * k + 1), *values = test_malloc(4 * k + 1);
    float *left = test_malloc(n * sizeof *left);
    memcpy(left, x, n * sizeof *left);
    span.x = left;
    assert_int_equal(cut.key, key);
    assert_int_equal(
        frugi_topk_emit_to(whole, &span, &cut, (frugi_topk_rest){left, false}, list + 1, values + 1, threads), k);
    assert_memory_equal(list + 1, want, 4 * k);
    for (uint64_t i = 0, e = 0; i < n; i++) {
        bool sent = e < k && want[e] == i;
        if (sent)
            assert_int_equal(frugi_get32(values + 1 + 4 * e++), frugi_f32_bits(x[i]));
        assert_int_equal(frugi_f32_bits(left[i]), sent ? 0 : frugi_f32_bits(x[i]));
    }
    test_free(left);
    test_free(values);
    test_free(list);
}

/* Cut and emit with n cut into spans, and find what the sort finds, writing nothing more. */
static void check(frugi_topk *whole, const float *x, uint64_t n, const uint32_t *sorted, uint64_t k, size_t spans,
                  int threads) {
    uint32_t *want = test_malloc(k * sizeof *want), *got = test_malloc((k + 1) * sizeof *got);
    float *values = test_malloc(k * sizeof *values);
    expect_indices(x, n, sorted, k, want);
    got[k] = GUARD;
    frugi_float_array span[8];
    uint64_t begin = 0, out = 0;
    for (size_t s = 0; s < spans; s++) { /* of rising length; the first may be empty */
        uint64_t end = s + 1 == spans ? n : n * s * s / (spans * spans);
        span[s] = (frugi_float_array){x + begin, end - begin};
        begin = end;
    }
    frugi_cutoff cut = frugi_topk_cutoff(whole, span, spans, k, threads);
    assert_int_equal(cut.key, sorted[k - 1]);
    uint64_t reaching = frugi_topk_count(whole, span, spans, cut.key, threads);
    assert_true(reaching >= k && sorted[reaching - 1] == cut.key && (reaching == n || sorted[reaching] < cut.key));
    for (size_t s = 0; s < spans; s++) {
        uint64_t more = frugi_topk_emit(whole, &span[s], &cut, got + out, values + out, threads);
        for (uint64_t i = 0; i < more; i++)
            got[out + i] += (uint32_t)(span[s].x - x);
        out += more;
    }
    check_emit_to(whole, x, n, want, k, cut.key, threads);
    assert_int_equal(out, k);
    assert_true(cut.ties == (reaching == k ? FRUGI_ALL_TIES : 0));
    assert_int_equal(got[k], GUARD);
    assert_memory_equal(got, want, k * sizeof *got);
    for (uint64_t i = 0; i < k; i++)
        assert_memory_equal(&values[i], &x[got[i]], sizeof *x);
    test_free(values);
    test_free(want);
    test_free(got);
}

static void check_all_k(const float *x, uint64_t n) {
    const uint64_t ks[] = {1, 2, n / 100, n / 16, n / 2, n - 1, n};
    uint32_t *sorted = sorted_keys(x, n);
    frugi_topk *whole = frugi_topk_create(5);
    assert_non_null(whole);
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++)
        if (ks[j] >= 1 && ks[j] <= n)
            for (int c = 0; c < 3; c++)
                check(whole, x, n, sorted, ks[j], 1 + (size_t)(c * 3), 1 + (int)(j + (size_t)c * 2) % 5);
    frugi_topk_destroy(whole);
    test_free(sorted);
}

static void selection_equals_that_of_a_sort(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 2, 3, 63, 64, 65, 1000, 1023, 1024, 1025, 4096, 20000};
    uint64_t random = 5;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            float *x = draw_array(kind, lengths[l], &random);
            check_all_k(x, lengths[l]);
            test_free(x);
        }
}

static void long_arrays_with_many_threads(void **state) {
    (void)state;
    uint64_t random = 6;
    for (int kind = 0; kind < KINDS; kind += 3) {
        float *x = draw_array(kind, MOST, &random);
        check_all_k(x, MOST);
        test_free(x);
    }
}

/* ---- data made against the sample ------------------------------------------------------------ */

/* Sampled elements lie where none of the others are, so the bracket misses to one side and to the other. */
static void exact_if_the_sample_is_misleading(void **state) {
    (void)state;
    uint32_t n = 100000;
    for (int up = 0; up < 2; up++) {
        uint64_t random = 9;
        float *x = draw_array(0, n, &random);
        for (uint64_t i = 0; i < frugi_topk_sample_size(n); i++)
            x[frugi_topk_sample_index(n, i)] *= up ? 1e10f : 1e-10f;
        check_all_k(x, n);
        test_free(x);
    }
}

/* A search along the way: pieces are shown in any order by any thread, and the sample may be wrong. */
static void check_watched(frugi_topk *whole, const float *x, uint64_t n, uint64_t k, int threads, uint64_t *random) {
    frugi_float_array span = {x, n};
    frugi_cutoff want = frugi_topk_cutoff(whole, &span, 1, k, threads);
    bool wrong = next_random(random) % 4 == 0;
    for (uint64_t i = 0; i < frugi_topk_sample_size(n); i++)
        frugi_topk_sample(whole)[i] = wrong ? 0x3f800000u : frugi_magnitude(x[frugi_topk_sample_index(n, i)]);
    frugi_topk_watch(whole, n, k, threads);
    uint64_t piece = 1 + next_random(random) % 5000;
    for (uint64_t i = (n - 1) / piece + 1; i-- > 0;)
        frugi_topk_see(whole, (int)(i % (uint64_t)threads), x + i * piece,
                       n - i * piece < piece ? n - i * piece : piece);
    frugi_cutoff got = frugi_topk_cutoff(whole, &span, 1, k, threads);
    assert_int_equal(got.key, want.key);
    assert_true(got.ties == want.ties);
}

static void a_search_along_the_way_finds_the_same(void **state) {
    (void)state;
    uint64_t random = 31;
    for (int kind = 0; kind < KINDS; kind++)
        for (uint64_t n = 1; n < 300000; n = n * 5 + 3)
            for (int threads = 1; threads <= 3; threads++) {
                frugi_topk *whole = frugi_topk_create(threads);
                float *x = draw_array(kind, (uint32_t)n, &random);
                for (uint64_t k = 1; k <= n; k = k * 7 + 1)
                    check_watched(whole, x, n, k, threads, &random);
                test_free(x);
                frugi_topk_destroy(whole);
            }
}

/* More of them between the bracket's ends than can be collected: a million that all round to the same. */
static void exact_if_the_bracket_has_too_many_keys(void **state) {
    (void)state;
    uint32_t n = 1300000;
    uint64_t random = 10;
    float *x = test_malloc(n * sizeof *x);
    frugi_topk *whole = frugi_topk_create(2);
    for (int kind = 0; kind < 2; kind++) { /* inside the bracket, and outside */
        for (uint32_t i = 0; i < n; i++) {
            uint32_t r = (uint32_t)next_random(&random);
            x[i] = frugi_bits_f32((kind == 0 ? 0x40200000u : 0x3f800000u) + (r % 16 ? 0 : r % 4096)); /* 2.5 or 1 */
        }
        for (uint64_t i = 0; i < 32768; i++) /* a sample of many values, so that the bracket is wide */
            x[frugi_topk_sample_index(n, i)] = 0.5f + 4.0f * (float)i / 32768.0f;
        uint32_t *sorted = sorted_keys(x, n);
        for (int threads = 1; threads <= 2; threads++)
            check(whole, x, n, sorted, n / 2, 3, threads);
        test_free(sorted);
    }
    frugi_topk_destroy(whole);
    test_free(x);
}

/* ---- the scans themselves -------------------------------------------------------------------- */

static void check_kernel(const frugi_topk_kernel *kernel, const float *x, uint32_t n, uint32_t key, uint32_t width) {
    uint32_t list[FRUGI_TOPK_STAGE], want[FRUGI_TOPK_CHUNK], out = 0;
    float values[FRUGI_TOPK_STAGE];
    uint64_t below = 0, inside = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = frugi_magnitude(x[i]);
        below += m < key;
        inside += m - key < width;
        if (m >= key)
            want[out++] = i + 7;
    }
    assert_int_equal(kernel->count(x, n, key), out);
    assert_int_equal(kernel->emit(x, n, 7, key, list, values), out);
    for (uint32_t e = 0; e < out; e++)
        assert_int_equal(frugi_f32_bits(values[e]), frugi_f32_bits(x[want[e] - 7]));
    assert_memory_equal(list, want, out * sizeof *list);
    float *left = test_malloc(n * sizeof *left);
    memcpy(left, x, n * sizeof *left);
    kernel->clear(left, n, key);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(frugi_f32_bits(left[i]), frugi_magnitude(x[i]) >= key ? 0 : frugi_f32_bits(x[i]));
    test_free(left);
    for (uint64_t room = 0; room <= n; room += n / 3 + 1) {
        uint32_t *kept = test_malloc((room + 1) * sizeof *kept);
        uint64_t got = 0;
        kept[room] = GUARD;
        assert_int_equal(kernel->gather(x, n, key, width, kept, room, &got), below);
        assert_int_equal(got, inside);
        assert_int_equal(kept[room], GUARD);
        for (uint32_t i = 0, j = 0; i < n && inside + FRUGI_TOPK_SLACK <= room; i++)
            if (frugi_magnitude(x[i]) - key < width)
                assert_int_equal(kept[j++], frugi_magnitude(x[i]));
        test_free(kept);
    }
}

/* Whether element i of four is among the k largest, ties to the lower index. */
static int is_among(const float *four, uint32_t i, uint32_t k, uint32_t mask) {
    uint32_t larger = 0, own = frugi_magnitude(four[i]) & mask;
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t other = frugi_magnitude(four[j]) & mask;
        larger += other > own || (other == own && j < i);
    }
    return larger < k;
}

static void check_fours(const frugi_topk_kernel *kernel, const float *x, uint32_t words, uint32_t k, uint32_t mask) {
    uint64_t bits[FRUGI_TOPK_CHUNK / 64];
    uint32_t index[FRUGI_TOPK_STAGE], out = 0;
    float value[FRUGI_TOPK_STAGE];
    kernel->mark_fours(x, words, k, mask, bits);
    assert_int_equal(kernel->take(x, bits, words, 5, index, value), 16 * words * k);
    for (uint32_t i = 0; i < 64 * words; i++) {
        int among = is_among(x + i / 4 * 4, i % 4, k, mask);
        assert_int_equal(bits[i / 64] >> i % 64 & 1, among);
        if (!among)
            continue;
        assert_int_equal(index[out], i + 5);
        assert_int_equal(frugi_f32_bits(value[out++]), frugi_f32_bits(x[i]));
    }
}

static void all_variants_scan_identically(void **state) {
    (void)state;
    const frugi_topk_kernel *kernels[FRUGI_ISA_COUNT] = {&frugi_topk_ref};
#if defined(__aarch64__)
    kernels[FRUGI_ISA_NEON] = &frugi_topk_neon;
#elif defined(__x86_64__)
    kernels[FRUGI_ISA_AVX2] = frugi_isa_runs(FRUGI_ISA_AVX2) ? &frugi_topk_avx2 : NULL;
    kernels[FRUGI_ISA_AVX512] = frugi_isa_runs(FRUGI_ISA_AVX512) ? &frugi_topk_avx512 : NULL;
#endif
    uint64_t random = 11;
    for (int isa = 0; isa < FRUGI_ISA_COUNT; isa++)
        for (int kind = 0; kernels[isa] && kind < KINDS; kind++)
            for (uint32_t n = 1; n <= FRUGI_TOPK_CHUNK; n += n < 70 ? 1 : 159) {
                float *x = draw_array(kind, n, &random);
                uint32_t key = frugi_magnitude(x[next_random(&random) % n]);
                check_kernel(kernels[isa], x, n, key, 1);
                check_kernel(kernels[isa], x, n, key, (FRUGI_INF_BITS - key) / 2 + 1);
                check_kernel(kernels[isa], x, n, 0, 1);
                check_kernel(kernels[isa], x, n, 0, FRUGI_INF_BITS);
                for (uint32_t k = 1; k < 4; k++) {
                    check_fours(kernels[isa], x, n / 64, k, UINT32_MAX);
                    check_fours(kernels[isa], x, n / 64, k, 0xffff0000u);
                }
                test_free(x);
            }
}

/* Whenever entries are found, they are those of the reference; and they are found if the threshold is that of k. */
static void short_arrays_are_selected_near_a_threshold(void **state) {
    (void)state;
    frugi_topk *whole = frugi_topk_create(1);
    uint64_t random = 21, found = 0;
    for (int round = 0; round < 4000; round++) {
        uint32_t n = 1 + (uint32_t)(next_random(&random) % 300), k = 1 + (uint32_t)(next_random(&random) % n);
        frugi_selector how = round % 2 ? FRUGI_SELECT_EXACT : FRUGI_SELECT_HIST;
        uint32_t mask = round % 2 ? UINT32_MAX : 0xffff0000u;
        float *x = draw_array(round % KINDS, n, &random), *values = test_malloc(k * sizeof *values);
        uint32_t *sorted = sorted_keys(x, n), *list = test_malloc(k * sizeof *list);
        uint16_t *want = test_malloc(n * sizeof *want);
        uint32_t near = round % 3 ? sorted[k - 1] : sorted[next_random(&random) % n];
        float *left = test_malloc(n * sizeof *left);
        memcpy(left, x, n * sizeof *left);
        bool got =
            frugi_topk_emit_near(whole, left, n, k, near, mask, 1000, (frugi_topk_rest){left, true}, list, values);
        assert_true(got || round % 3 == 0);
        frugi_select_ref(x, n, k, how, want);
        for (uint32_t e = 0; e < k && got; e++) {
            assert_int_equal(list[e], want[e] + 1000u);
            assert_int_equal(frugi_f32_bits(values[e]), frugi_f32_bits(x[want[e]]));
            assert_int_equal(frugi_f32_bits(left[want[e]]), frugi_f32_bits(frugi_bf16_error(x[want[e]])));
            left[want[e]] = x[want[e]];
        }
        assert_memory_equal(left, x, n * sizeof *x);
        test_free(left);
        found += got;
        test_free(want);
        test_free(list);
        test_free(sorted);
        test_free(values);
        test_free(x);
    }
    assert_true(found < 4000); /* a threshold that is too far away is noticed */
    frugi_topk_destroy(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_variants_scan_identically),
        cmocka_unit_test(selection_equals_that_of_a_sort),
        cmocka_unit_test(long_arrays_with_many_threads),
        cmocka_unit_test(exact_if_the_sample_is_misleading),
        cmocka_unit_test(exact_if_the_bracket_has_too_many_keys),
        cmocka_unit_test(short_arrays_are_selected_near_a_threshold),
        cmocka_unit_test(a_search_along_the_way_finds_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
