/* test_data_subset.c - shares of the training samples: every sample is in one part. */
#include "support/assertions.h"

#include "trainer/data/data_subset.h"

#include <stdlib.h>

#define PARTS 5u

static fgt_data *open_data(void) {
    const fgt_data_options options = {.task = FGT_TASK_IMAGES,
                                      .path = "builtin",
                                      .channels = 1,
                                      .height = 12,
                                      .width = 12,
                                      .classes = 4,
                                      .samples = 203,
                                      .seed = 3};
    fgt_data *data = NULL;
    assert_int_equal(fgt_data_open(&options, &data), 0);
    return data;
}

/* alpha 0: equal shares */
static void each_sample_is_in_one_part(double alpha) {
    fgt_data *data = open_data();
    unsigned seen[203] = {0};
    uint64_t largest = 0;
    for (unsigned part = 0; part < PARTS; part++) {
        fgt_subset subset = {0};
        assert_int_equal(alpha > 0 ? fgt_subset_dirichlet(data, alpha, 7, part, PARTS, &subset)
                                   : fgt_subset_share(data, part, PARTS, &subset),
                         0);
        for (uint64_t i = 0; i < subset.count; i++) {
            assert_true(subset.index[i] < 203);
            seen[subset.index[i]]++;
        }
        largest = subset.count > largest ? subset.count : largest;
        fgt_subset_free(&subset);
    }
    for (unsigned i = 0; i < 203; i++)
        assert_int_equal(seen[i], 1);
    if (alpha > 0)
        assert_true(largest > 41); /* the size of an equal share */
    else
        assert_int_equal(largest, 41);
    fgt_data_close(data);
}

static void equal_shares_are_a_partition(void **state) {
    (void)state;
    each_sample_is_in_one_part(0);
}

static void dirichlet_shares_are_a_partition_of_unequal_parts(void **state) {
    (void)state;
    each_sample_is_in_one_part(0.3);
}

static void a_batch_has_samples_of_the_subset_only(void **state) {
    (void)state;
    fgt_data *data = open_data();
    fgt_subset one = {.index = calloc(1, sizeof *one.index), .count = 1};
    fgt_batch batch;
    one.index[0] = 17;
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 8, &batch), 0);
    assert_int_equal(fgt_subset_batch(data, &one, 0, 0, 8, &batch), 0);
    for (int i = 1; i < 8; i++)
        assert_int_equal(batch.targets[i], batch.targets[0]);
    fgt_batch_destroy(&batch);
    fgt_subset_free(&one);
    fgt_data_close(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shares_are_a_partition),
        cmocka_unit_test(dirichlet_shares_are_a_partition_of_unequal_parts),
        cmocka_unit_test(a_batch_has_samples_of_the_subset_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
