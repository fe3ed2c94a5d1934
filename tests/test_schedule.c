/*
 * test_schedule.c - how many entries leave: the density of a step, and its share for each block.
 *
 * Counts are compared with 128-bit arithmetic, which cannot wrap at the sizes used here.
 */
#include "common/count.h"
#include "schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

__extension__ typedef unsigned __int128 u128;

static const uint32_t blocks[] = {64, 128, 256, 1024, 4096};
#define NBLOCKS (sizeof blocks / sizeof blocks[0])

static uint64_t random_state = 0x2545f4914f6cdd1du;

static uint64_t random_u64(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
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

static void constant_schedule_never_moves(void **state) {
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

static void kappa_is_density_times_block_within_bounds(void **state) {
    (void)state;
    assert_int_equal(frugi_kappa(0.0625, 256), 16ull << 32);
    assert_int_equal(frugi_kappa(1, 4096), 4096ull << 32);
    assert_int_equal(frugi_kappa(1.5, 64), 64ull << 32);
    assert_int_equal(frugi_kappa(0.001, 256), 1ull << 32);
    assert_int_equal(frugi_kappa(0, 64), 1ull << 32);
    assert_int_equal(frugi_kappa(-1, 64), 1ull << 32);
    assert_int_equal(frugi_kappa(0.06, 256), 65970697667); /* 15.36 * 2^32 = 65970697666.56 */
    for (size_t b = 0; b < NBLOCKS; b++) {
        for (int i = 0; i < 1000; i++) {
            double density = random_unit();
            double exact = density * blocks[b];
            double error = (double)frugi_kappa(density, blocks[b]) / 4294967296.0 - (exact < 1 ? 1 : exact);
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
        assert_true(count >= down && count <= up && count >= 1 && count <= block);
        assert_int_equal(count, floor_of(kappa, (u128)j + 1) - floor_of(kappa, j));
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

static void tail_keeps_its_share_and_at_least_one(void **state) {
    (void)state;
    assert_int_equal(frugi_tail_count(16, 128, 256), 8);
    assert_int_equal(frugi_tail_count(16, 129, 256), 9);
    assert_int_equal(frugi_tail_count(1, 1, 4096), 1);
    assert_int_equal(frugi_tail_count(256, 3, 256), 3);
    assert_int_equal(frugi_tail_count(4096, 4095, 4096), 4095);
    assert_int_equal(frugi_tail_count(7, 0, 64), 0);
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
        cmocka_unit_test(constant_schedule_never_moves),
        cmocka_unit_test(frugrad_schedule_meets_its_end_points),
        cmocka_unit_test(frugrad_schedule_never_grows_denser),
        cmocka_unit_test(kappa_is_density_times_block_within_bounds),
        cmocka_unit_test(counts_are_kappa_rounded_down_or_up),
        cmocka_unit_test(counts_are_exact_at_the_largest_block_number),
        cmocka_unit_test(range_count_is_the_sum_of_its_blocks),
        cmocka_unit_test(range_count_is_exact_beyond_32_bits),
        cmocka_unit_test(long_run_mean_is_kappa),
        cmocka_unit_test(tail_keeps_its_share_and_at_least_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
