/* test_layout.c - layouts accept valid tensors and reject others with an error text; status and log. */
#include "support/assertions.h"

static frug_tensor tensor(const char *name, uint32_t ndim, uint64_t a, uint64_t b) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.ndim = ndim;
    t.shape[0] = a;
    t.shape[1] = b;
    return t;
}

static void tensors_follow_each_other(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    assert_int_equal(frug_layout_elements(layout), 0);
    frug_tensor a = tensor("a", 2, 3, 5), b = tensor("b", 1, 7, 0), c = tensor("c", 0, 0, 0);
    frug_tensor got = FRUG_TENSOR_INIT;
    b.offset = 20;
    b.role = FRUG_ROLE_BIAS;
    OK(frug_layout_add(layout, &a));
    OK(frug_layout_add(layout, &b));
    OK(frug_layout_add(layout, &c));
    assert_int_equal(frug_layout_count(layout), 3);
    assert_int_equal(frug_layout_elements(layout), 28);
    OK(frug_layout_get(layout, 1, &got));
    assert_string_equal(got.name, "b");
    assert_string_equal(frug_role_name(got.role), "bias");
    assert_int_equal(got.offset, 20);
    assert_int_equal(frug_layout_get(layout, 3, &got), FRUG_ERR_ARG);
    frug_layout_destroy(layout);
}

static void invalid_tensors_are_rejected(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    frug_tensor good = tensor("w", 2, 10, 10);
    OK(frug_layout_add(layout, &good));
    frug_tensor nameless = tensor(NULL, 1, 1, 0), empty_name = tensor("", 1, 1, 0), deep = tensor("deep", 9, 1, 1);
    frug_tensor huge = tensor("huge", 2, 1ull << 40, 1ull << 40), overlap = tensor("o", 1, 5, 0);
    frug_tensor role = tensor("r", 1, 1, 0), old = tensor("old", 1, 1, 0);
    overlap.offset = 99;
    role.role = (frug_role)77;
    old.struct_size = 8;
    const frug_tensor *bad[] = {&nameless, &empty_name, &deep, &huge, &overlap, &role, &old, NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(frug_layout_add(layout, bad[i]), FRUG_ERR_ARG);
        assert_int_not_equal(strlen(frug_last_error()), 0);
    }
    assert_int_equal(frug_layout_add(NULL, &good), FRUG_ERR_ARG);
    assert_int_equal(frug_layout_count(layout), 1);
    frug_layout_destroy(layout);
    frug_layout_destroy(NULL);
}

static uint64_t hash_of(const frug_tensor *a, const frug_tensor *b) {
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    OK(frug_layout_add(layout, a));
    OK(frug_layout_add(layout, b));
    uint64_t hash = frug_layout_hash(layout);
    frug_layout_destroy(layout);
    return hash;
}

static void the_hash_depends_on_names_shapes_and_offsets(void **state) {
    (void)state;
    frug_tensor a = tensor("a", 2, 4, 6), b = tensor("b", 2, 2, 2), turned = tensor("a", 2, 6, 4);
    frug_tensor renamed = tensor("c", 2, 2, 2), moved = b;
    moved.offset = 30;
    uint64_t hash = hash_of(&a, &b);
    assert_int_equal(hash, hash_of(&a, &b));
    assert_int_not_equal(hash, hash_of(&turned, &b));
    assert_int_not_equal(hash, hash_of(&a, &renamed));
    assert_int_not_equal(hash, hash_of(&a, &moved));
}

static int logged;
static char last_message[256];

static void count_log(void *ctx, frug_log_level level, const char *message) {
    assert_ptr_equal(ctx, &logged);
    assert_int_equal(level, FRUG_LOG_ERROR);
    logged++;
    strncpy(last_message, message, sizeof last_message - 1);
}

static void an_error_is_logged_once(void **state) {
    (void)state;
    frug_config *config = NULL;
    frug_set_log(count_log, &logged);
    assert_int_equal(frug_config_create("frugrad,shedule=constant:0.5", &config), FRUG_ERR_CONFIG);
    frug_set_log(NULL, NULL);
    assert_int_equal(logged, 1);
    assert_string_equal(last_message, frug_last_error());
    assert_int_equal(frug_config_create("frugrad,shedule=constant:0.5", &config), FRUG_ERR_CONFIG);
    assert_int_equal(logged, 1);
    assert_null(config);
}

static void every_status_has_a_text(void **state) {
    (void)state;
    for (int status = FRUG_OK; status >= FRUG_ERR_MISMATCH; status--)
        assert_string_not_equal(frug_status_text((frug_status)status), "unknown status");
    assert_string_equal(frug_status_text((frug_status)-99), "unknown status");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_follow_each_other),
        cmocka_unit_test(invalid_tensors_are_rejected),
        cmocka_unit_test(the_hash_depends_on_names_shapes_and_offsets),
        cmocka_unit_test(an_error_is_logged_once),
        cmocka_unit_test(every_status_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
