/*
 * test_density.c - the density of a step, and the number of entries of each block.
 *
 * Counts are compared with 128-bit arithmetic, which cannot wrap at the sizes used here.
 */
#include "base/block_count.h"
#include "schedule/density.h"
#include "support/assertions.h"

__extension__ typedef unsigned __int128 u128;

static const uint32_t blocks[] = {64, 128, 256, 1024, 4096};
#define NBLOCKS (sizeof blocks / sizeof blocks[0])

static uint64_t random_state = 0x2545f4914f6cdd1du;

static uint64_t random_u64(void) {
    return next_random(&random_state);
}

static double random_unit(void) {
    return (double)(random_u64() >> 11) * 0x1p-53;
}

static uint64_t random_kappa(uint32_t block) {
    return frugi_kappa(random_unit(), block);
}

/* A block number of any magnitude, the largest included. */
static uint64_t random_block_number(void) {
    return random_u64() >> (random_u64() % 64);
}

static uint64_t floor_of(uint64_t kappa, u128 j) {
    return (uint64_t)((j * kappa) >> 32);
}

static void constant_schedule_is_constant(void **state) {
    (void)state;
    frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_CONSTANT, .arg = {0.9375}};
    assert_true(frugi_schedule_density(&schedule, 0, 100) == 0.0625);
    assert_true(frugi_schedule_density(&schedule, 99, 100) == 0.0625);
    assert_true(frugi_schedule_density(&schedule, 7, 0) == 0.0625);
    assert_true(frugi_schedule_final_density(&schedule) == 0.0625);
}

static void frugrad_schedule_meets_its_end_points(void **state) {
    (void)state;
    frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_FRUGRAD, .arg = {0.5, 0.94, 0.5}};
    assert_true(frugi_schedule_density(&schedule, 0, 1000) == 1 - 0.5);
    assert_true(frugi_schedule_density(&schedule, 250, 1000) == 1 - (0.5 + (0.94 - 0.5) * 0.5));
    assert_true(frugi_schedule_density(&schedule, 500, 1000) == 1 - 0.94);
    assert_true(frugi_schedule_density(&schedule, 1000, 1000) == 1 - 0.94);
    assert_true(frugi_schedule_density(&schedule, UINT64_MAX, 1000) == 1 - 0.94);
    assert_true(frugi_schedule_density(&schedule, 0, 0) == 1 - 0.94);
    assert_true(frugi_schedule_final_density(&schedule) == 1 - 0.94);
}

static void frugrad_schedule_never_grows_denser(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        double s0 = random_unit(), smax = s0 + (1 - s0) * random_unit() * 0.999;
        frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_FRUGRAD, .arg = {s0, smax, 1 - random_unit()}};
        double before = 1 - s0;
        for (uint64_t step = 0; step <= 300; step++) {
            double now = frugi_schedule_density(&schedule, step, 300);
            assert_true(now <= before && now >= 1 - smax && now > 0);
            before = now;
        }
        assert_true(before == 1 - smax);
    }
}

/* arg of every kind at its defaults, as config/schedule_option.c has them */
static const frugi_schedule anneal = {.kind = FRUGI_SCHEDULE_ANNEAL, .args = 2, .arg = {0.99, 0.9}};
static const frugi_schedule relax = {.kind = FRUGI_SCHEDULE_RELAX, .args = 5, .arg = {0.5, 0.94, 0.5, 0.9, 0.1}};

static void anneal_schedule_meets_its_end_points_and_never_grows_sparser(void **state) {
    (void)state;
    assert_true(frugi_schedule_density(&anneal, 0, 1000) == 1 - 0.99);
    assert_true(frugi_schedule_density(&anneal, 1000, 1000) == 1 - 0.9);
    assert_true(frugi_schedule_density(&anneal, 3, 0) == 1 - 0.9);
    assert_true(frugi_schedule_final_density(&anneal) == 1 - 0.9);
    assert_true(frugi_schedule_max_density(&anneal) == 1 - 0.9);
    for (int round = 0; round < 200; round++) {
        double s1 = random_unit() * 0.999, s0 = s1 + (1 - s1) * random_unit() * 0.999;
        frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_ANNEAL, .args = 2, .arg = {s0, s1}};
        double before = 1 - s0;
        for (uint64_t step = 0; step <= 300; step++) {
            double now = frugi_schedule_density(&schedule, step, 300);
            assert_true(now >= before && now <= 1 - s1);
            before = now;
        }
        assert_true(before == 1 - s1);
    }
}

/* Stage i of E sends final^((i + 1) / (E + 1)), so its (E + 1)-th power is final^(i + 1); compared to 1e-12, relative.
 */
static void dgc_schedule_has_stages_of_equal_ratio(void **state) {
    (void)state;
    for (int stages = 1; stages <= 100; stages += stages < 8 ? 1 : 23) {
        double s = 0.5 + 0.4999 * random_unit(), r = 1 - 0.9 * random_unit();
        frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_DGC, .args = 3, .arg = {s, stages, r}};
        double ending = 1 - s, before = 1;
        for (int i = 0; i < stages; i++) {
            /* The middle of stage i, in a training of a million steps. */
            uint64_t step = (uint64_t)((i + 0.5) / stages * r * 1e6);
            double now = frugi_schedule_density(&schedule, step, 1000000), left = 1, right = 1;
            for (int j = 0; j <= stages; j++)
                left *= now;
            for (int j = 0; j <= i; j++)
                right *= ending;
            assert_true(left / right > 1 - 1e-10 && left / right < 1 + 1e-10);
            assert_true(now < before && now > ending);
            before = now;
        }
        assert_true(frugi_schedule_density(&schedule, (uint64_t)(r * 1e6) + 1, 1000000) == ending);
        assert_true(frugi_schedule_final_density(&schedule) == ending);
        assert_true(frugi_schedule_max_density(&schedule) == frugi_schedule_density(&schedule, 0, 7));
    }
}

/* Published: 75, 93.75, 98.4375, 99.6 and 99.9 % sparsity, an epoch each; the powers of 1/4 are rounded there. */
static void dgc_schedule_of_four_stages_is_the_published_one(void **state) {
    (void)state;
    static const double published[] = {0.25, 0.0625, 0.015625, 0.004, 0.001};
    static const double five[] = {0.31623, 0.1, 0.031623, 0.01, 0.0031623, 0.001};
    frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_DGC, .args = 3, .arg = {0.999, 4, 0.4}};
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        double ratio = frugi_schedule_density(&schedule, epoch, 10) / published[epoch];
        assert_true(ratio > 0.98 && ratio < 1.02);
    }
    schedule.arg[1] = 5;
    schedule.arg[2] = 0.5;
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        double ratio = frugi_schedule_density(&schedule, epoch, 10) / five[epoch];
        assert_true(ratio > 0.9999 && ratio < 1.0001);
    }
}

static void dgc_schedule_never_grows_denser(void **state) {
    (void)state;
    static const double corner[] = {0, 0x1p-53, 0.5, 0.999, 1 - 0x1p-53};
    for (int round = 0; round < 200; round++) {
        double s = round < 5 ? corner[round] : random_unit(), before = 1;
        frugi_schedule schedule = {
            .kind = FRUGI_SCHEDULE_DGC, .args = 3, .arg = {s, (double)(1 + random_u64() % 100), 1 - random_unit()}};
        for (uint64_t step = 0; step <= 100; step++) {
            double now = frugi_schedule_density(&schedule, step, 100);
            assert_true(now <= before && now >= 1 - s && now > 0);
            before = now;
        }
        assert_true(before == 1 - s);
    }
}

static void relax_schedule_rises_then_falls(void **state) {
    (void)state;
    frugi_schedule plain = {.kind = FRUGI_SCHEDULE_FRUGRAD, .args = 3, .arg = {0.5, 0.94, 0.5}};
    double before = 0;
    for (uint64_t step = 0; step <= 900; step++)
        assert_true(frugi_schedule_density(&relax, step, 1000) == frugi_schedule_density(&plain, step, 1000));
    for (uint64_t step = 900; step <= 1000; step++) {
        double now = frugi_schedule_density(&relax, step, 1000);
        assert_true(now >= before && now >= 1 - 0.94 && now <= 1 - 0.9);
        before = now;
    }
    double middle = frugi_schedule_density(&relax, 950, 1000);
    assert_true(middle > 0.08 - 1e-12 && middle < 0.08 + 1e-12);
    assert_true(before == 1 - 0.9 && frugi_schedule_final_density(&relax) == 1 - 0.9);
    assert_true(frugi_schedule_max_density(&relax) == 0.5);
}

static void piecewise_schedule_meets_its_points_and_is_flat_outside(void **state) {
    (void)state;
    frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_PIECEWISE, .args = 6, .arg = {0.25, 0.9, 0.5, 0.3, 0.75, 0.99}};
    assert_true(frugi_schedule_density(&schedule, 0, 100) == 1 - 0.9);
    assert_true(frugi_schedule_density(&schedule, 25, 100) == 1 - 0.9);
    assert_true(frugi_schedule_density(&schedule, 50, 100) == 1 - 0.3);
    assert_true(frugi_schedule_density(&schedule, 75, 100) == 1 - 0.99);
    assert_true(frugi_schedule_density(&schedule, 80, 100) == 1 - 0.99);
    assert_true(frugi_schedule_final_density(&schedule) == 1 - 0.99);
    assert_true(frugi_schedule_max_density(&schedule) == 1 - 0.3);
    double middle = frugi_schedule_density(&schedule, 375, 1000);
    assert_true(middle > 0.4 - 1e-12 && middle < 0.4 + 1e-12);
}

static frugi_schedule random_schedule(void) {
    double a = random_unit() * 0.999, b = a + (0.9999 - a) * random_unit();
    frugi_schedule s = {.kind = (frugi_schedule_kind)(random_u64() % 6)};
    switch (s.kind) {
    case FRUGI_SCHEDULE_CONSTANT: return (frugi_schedule){s.kind, 1, {a}};
    case FRUGI_SCHEDULE_FRUGRAD: return (frugi_schedule){s.kind, 3, {a, b, 1 - random_unit()}};
    case FRUGI_SCHEDULE_ANNEAL: return (frugi_schedule){s.kind, 2, {b, a}};
    case FRUGI_SCHEDULE_DGC: return (frugi_schedule){s.kind, 3, {a, (double)(1 + random_u64() % 9), 0.3}};
    case FRUGI_SCHEDULE_RELAX: return (frugi_schedule){s.kind, 5, {a, b, 0.4, b * random_unit(), 0.3}};
    case FRUGI_SCHEDULE_PIECEWISE: break;
    }
    s.args = 2 * (2 + (uint32_t)(random_u64() % 7));
    for (uint32_t i = 0; i < s.args; i += 2) {
        s.arg[i] = (i + 1.9 * random_unit()) / s.args;
        s.arg[i + 1] = random_unit() * 0.999;
    }
    return s;
}

static void no_step_exceeds_the_maximum_density(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        frugi_schedule schedule = random_schedule();
        double most = frugi_schedule_max_density(&schedule);
        uint64_t total = random_u64() % 100;
        assert_true(most <= 1);
        for (uint64_t step = 0; step <= total + 1; step++) {
            double density = frugi_schedule_density(&schedule, step, total);
            assert_true(density > 0 && density <= most);
        }
    }
}

static void kappa_is_density_times_block_within_bounds(void **state) {
    (void)state;
    assert_int_equal(frugi_kappa(0.0625, 256), 16ull << 32);
    assert_int_equal(frugi_kappa(1, 4096), 4096ull << 32);
    assert_int_equal(frugi_kappa(1.5, 64), 64ull << 32);
    assert_int_equal(frugi_kappa(0.25 / 256, 256), 1ull << 30);
    assert_int_equal(frugi_kappa(0, 64), 1ull << 28);
    assert_int_equal(frugi_kappa(-1, 64), 1ull << 28);
    assert_int_equal(frugi_kappa_at_least_one(0.001, 256), 1ull << 32);
    assert_int_equal(frugi_kappa_at_least_one(0.0625, 256), 16ull << 32);
    assert_int_equal(frugi_kappa(0.06, 256), 65970697667); /* 15.36 * 2^32 = 65970697666.56 */
    for (size_t b = 0; b < NBLOCKS; b++) {
        for (int i = 0; i < 1000; i++) {
            double density = random_unit();
            double exact = density * blocks[b];
            double error = (double)frugi_kappa(density, blocks[b]) / 4294967296.0 - (exact < 0.0625 ? 0.0625 : exact);
            assert_true(error <= 0x1p-33 && error >= -0x1p-33);
        }
    }
}

static void counts_are_kappa_rounded_down_or_up(void **state) {
    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint32_t block = blocks[random_u64() % NBLOCKS];
        uint64_t kappa = random_kappa(block), j = random_block_number();
        uint32_t count = frugi_count(kappa, j);
        uint64_t down = kappa >> 32, up = down + ((kappa & UINT32_MAX) != 0);
        assert_true(count >= down && count <= up && count <= block);
        assert_int_equal(count, floor_of(kappa, (u128)j + 1) - floor_of(kappa, j));
    }
}

static void every_block_sends_within_all_phases(void **state) {
    (void)state;
    for (int i = 0; i < 10000; i++) {
        uint64_t kappa = FRUGI_KAPPA_MIN + random_u64() % (1ull << 32), block = random_block_number();
        uint32_t entries = 0;
        for (uint64_t step = 0; step < FRUGI_PHASES; step++)
            entries += frugi_count(kappa, block + step);
        assert_true(entries >= 1);
    }
}

static void counts_are_exact_at_the_largest_block_number(void **state) {
    (void)state;
    uint64_t kappa = frugi_kappa(0.06, 256);
    assert_int_equal(frugi_count(kappa, UINT64_MAX), floor_of(kappa, (u128)1 << 64) - floor_of(kappa, UINT64_MAX));
    assert_in_range(frugi_count(kappa, UINT64_MAX), 15, 16);
}

static void range_count_is_the_sum_of_its_blocks(void **state) {
    (void)state;
    for (int i = 0; i < 500; i++) {
        uint64_t kappa = random_kappa(blocks[random_u64() % NBLOCKS]);
        uint64_t j0 = random_block_number(), m = random_u64() % 1000, sum = 0;
        for (uint64_t j = 0; j < m; j++)
            sum += frugi_count(kappa, j0 + j);
        assert_int_equal(frugi_count_range(kappa, j0, m), sum);
        uint64_t cut = m ? random_u64() % m : 0;
        assert_int_equal(frugi_count_range(kappa, j0, cut) + frugi_count_range(kappa, j0 + cut, m - cut), sum);
    }
}

static void range_count_is_exact_beyond_32_bits(void **state) {
    (void)state;
    for (int i = 0; i < 10000; i++) {
        uint64_t kappa = random_kappa(4096), j0 = random_u64() >> 20, m = random_u64() >> (20 + random_u64() % 44);
        assert_int_equal(frugi_count_range(kappa, j0, m), floor_of(kappa, (u128)j0 + m) - floor_of(kappa, j0));
    }
}

static void long_run_mean_is_kappa(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        uint64_t kappa = random_kappa(256), j0 = random_u64() >> 1;
        /* 2^32 blocks send kappa * 2^32 entries, to the last one, wherever they start */
        assert_int_equal(frugi_count_range(kappa, j0, 1ull << 32), kappa);
    }
}

static void tail_has_its_share_and_at_least_one_entry(void **state) {
    (void)state;
    assert_int_equal(frugi_tail_count(16, 128, 256), 8);
    assert_int_equal(frugi_tail_count(16, 129, 256), 9);
    assert_int_equal(frugi_tail_count(1, 1, 4096), 1);
    assert_int_equal(frugi_tail_count(256, 3, 256), 3);
    assert_int_equal(frugi_tail_count(4096, 4095, 4096), 4095);
    assert_int_equal(frugi_tail_count(7, 0, 64), 0);
    assert_int_equal(frugi_tail_count(0, 63, 64), 0);
    for (size_t b = 0; b < NBLOCKS; b++) {
        for (int i = 0; i < 2000; i++) {
            uint32_t block = blocks[b], k = 1 + (uint32_t)(random_u64() % block);
            uint32_t len = 1 + (uint32_t)(random_u64() % (block - 1)), tail = frugi_tail_count(k, len, block);
            assert_true(tail >= 1 && tail <= len && tail <= k);
            assert_true((uint64_t)tail * block >= (uint64_t)k * len);
            assert_true(tail == 1 || (uint64_t)(tail - 1) * block < (uint64_t)k * len);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_schedule_is_constant),
        cmocka_unit_test(frugrad_schedule_meets_its_end_points),
        cmocka_unit_test(frugrad_schedule_never_grows_denser),
        cmocka_unit_test(anneal_schedule_meets_its_end_points_and_never_grows_sparser),
        cmocka_unit_test(dgc_schedule_has_stages_of_equal_ratio),
        cmocka_unit_test(dgc_schedule_of_four_stages_is_the_published_one),
        cmocka_unit_test(dgc_schedule_never_grows_denser),
        cmocka_unit_test(relax_schedule_rises_then_falls),
        cmocka_unit_test(piecewise_schedule_meets_its_points_and_is_flat_outside),
        cmocka_unit_test(no_step_exceeds_the_maximum_density),
        cmocka_unit_test(kappa_is_density_times_block_within_bounds),
        cmocka_unit_test(counts_are_kappa_rounded_down_or_up),
        cmocka_unit_test(every_block_sends_within_all_phases),
        cmocka_unit_test(counts_are_exact_at_the_largest_block_number),
        cmocka_unit_test(range_count_is_the_sum_of_its_blocks),
        cmocka_unit_test(range_count_is_exact_beyond_32_bits),
        cmocka_unit_test(long_run_mean_is_kappa),
        cmocka_unit_test(tail_has_its_share_and_at_least_one_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
