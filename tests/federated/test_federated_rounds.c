/* test_federated_rounds.c - rules of a round, the book of clients, the history of rounds, and robust sums against a
 * plain computation. */
#define _GNU_SOURCE /* nftw */
#include "support/assertions.h"
#include "support/temp_tree.h"

#include "federated/robust_sum.h"
#include "federated/round_book.h"
#include "federated/round_history.h"
#include "federated/update_layout.h"
#include "io/files.h"
#include "io/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fgf_public_key key_of(unsigned number) {
    fgf_public_key key = {{0}};
    key.bytes[0] = (unsigned char)number;
    return key;
}

/* ---- layout ---- */

static void segment_all_makes_an_update_one_tensor(void **state) {
    frug_layout *model, *updates = NULL;
    (void)state;
    assert_int_equal(frug_layout_create(&model), FRUG_OK);
    for (uint64_t i = 0; i < 3; i++) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        tensor.name = (const char *[]){"weight", "bias", "head"}[i];
        tensor.ndim = 1;
        tensor.shape[0] = 100 + i;
        assert_int_equal(frug_layout_add(model, &tensor), FRUG_OK);
    }
    assert_int_equal(fgf_update_layout(model, "density=0.01,segment=all", &updates), FRUG_OK);
    assert_int_equal(frug_layout_count(updates), 1);
    assert_int_equal(frug_layout_elements(updates), 303);
    frug_layout_destroy(updates);
    assert_int_equal(fgf_update_layout(model, "density=0.01", &updates), FRUG_OK);
    assert_int_equal(frug_layout_hash(updates), frug_layout_hash(model));
    frug_layout_destroy(updates);
    frug_layout_destroy(model);
}

/* ---- rules ---- */

static void an_update_is_counted_once_and_in_time(void **state) {
    const fgf_round_rule rule = {.rounds = 10, .quorum = 1, .deadline = 1, .stale_max = 2};
    fgf_client_record client = {.base = FGF_NO_VERSION};
    (void)state;
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 5, 77), FGF_VERDICT_ACCEPT);
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 3, 77), FGF_VERDICT_ACCEPT);
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 2, 77), FGF_VERDICT_STALE);
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 6, 77), FGF_VERDICT_FUTURE);
    client.base = 4;
    client.upload = 77;
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 4, 77), FGF_VERDICT_CONFIRMED);
    assert_int_equal(fgf_round_judge(&rule, &client, 9, 4, 77), FGF_VERDICT_CONFIRMED);
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 4, 78), FGF_VERDICT_DOUBLE);
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 3, 79), FGF_VERDICT_DOUBLE);
    assert_int_equal(fgf_round_judge(&rule, &client, 5, 5, 77), FGF_VERDICT_ACCEPT);
}

static void a_round_closes_with_all_or_with_a_quorum_at_its_deadline(void **state) {
    const fgf_round_rule rule = {.rounds = 10, .quorum = 2, .deadline = 30, .stale_max = 0};
    (void)state;
    assert_false(fgf_round_closes(&rule, 4, 3, 29));
    assert_true(fgf_round_closes(&rule, 4, 4, 0));
    assert_true(fgf_round_closes(&rule, 4, 2, 30));
    assert_false(fgf_round_closes(&rule, 4, 1, 1000));
    assert_false(fgf_round_closes(&rule, 0, 0, 1000));
    const fgf_round_rule half = {.rounds = 10, .deadline = 30};
    assert_false(fgf_round_closes(&half, 5, 2, 30));
    assert_true(fgf_round_closes(&half, 5, 3, 30));
}

static void the_book_keeps_clients_in_the_order_of_their_keys(void **state) {
    static const unsigned order[] = {7, 3, 200, 1, 90, 3, 7};
    fgf_book book = {0}, copy = {0};
    (void)state;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        fgf_public_key key = key_of(order[i]);
        fgf_client_record *record = fgf_book_add(&book, &key);
        assert_non_null(record);
        record->counted++;
    }
    assert_int_equal(book.count, 5);
    for (size_t i = 1; i < book.count; i++)
        assert_true(book.client[i - 1].key.bytes[0] < book.client[i].key.bytes[0]);
    fgf_public_key seven = key_of(7), two = key_of(2);
    assert_int_equal(fgf_book_find(&book, &seven)->counted, 2);
    assert_null(fgf_book_find(&book, &two));
    assert_int_equal(fgf_book_copy(&book, &copy), 0);
    assert_non_null(fgf_book_add(&copy, &two));
    assert_int_equal(copy.count, 6);
    assert_int_equal(book.count, 5);
    fgf_book_free(&book);
    fgf_book_free(&copy);
}

/* ---- history ---- */

/** A directory with a file of rounds. */
typedef struct rounds_file {
    char directory[64], path[96];
} rounds_file;

static int open_rounds(void **state) {
    rounds_file *f = calloc(1, sizeof *f);
    strcpy(f->directory, "/tmp/frugrad-test-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/rounds.jsonl", f->directory);
    *state = f;
    return 0;
}

static int close_rounds(void **state) {
    temp_tree_remove(((rounds_file *)*state)->directory);
    free(*state);
    return 0;
}

static fgf_round_report report_of(uint64_t round) {
    return (fgf_round_report){.round = round,
                              .rounds = 1000,
                              .updates = 2 + round % 3,
                              .bytes_up = 100 * round,
                              .changes = 7 + round,
                              .loss = round % 5 ? 0.25 * (double)round : (double)NAN,
                              .seconds = 1.5,
                              .eval_loss = (double)NAN,
                              .eval_accuracy = round % 2 ? 0.75 : (double)NAN};
}

static void write_rounds(const rounds_file *f, uint64_t count) {
    fgio_metrics *file = NULL;
    assert_int_equal(fgio_metrics_open(f->path, 0, &file), FGIO_EXIT_OK);
    for (uint64_t i = 0; i < count; i++) {
        fgf_round_report r = report_of(i);
        assert_int_equal(fgio_metrics_put(file, fgf_round_to_json(&r)), FGIO_EXIT_OK);
    }
    fgio_metrics_close(file);
}

/* Rounds of a history from a file, up to `round`; how many lines were left out. */
static uint64_t read_rounds(const rounds_file *f, uint64_t round, fgf_history *history) {
    uint64_t left_out = UINT64_MAX;
    fgio_reason why = {""};
    *history = (fgf_history){0};
    if (fgf_history_read(f->path, round, 1000, history, &left_out, &why) != 0)
        fail_msg("%s", why.text);
    return left_out;
}

static void assert_same_json(json_t *a, json_t *b) {
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
}

static void the_last_rounds_are_read_from_a_file_of_any_length(void **state) {
    const uint64_t counts[] = {0, 1, FGF_HISTORY - 1, FGF_HISTORY, FGF_HISTORY + 1, 3 * FGF_HISTORY + 5};
    fgf_history *expected = malloc(sizeof *expected), *found = malloc(sizeof *found);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *expected = (fgf_history){0};
        for (uint64_t round = 0; round < counts[i]; round++) {
            fgf_round_report r = report_of(round);
            fgf_history_add(expected, &r);
        }
        write_rounds(*state, counts[i]);
        assert_int_equal(read_rounds(*state, counts[i], found), 0);
        assert_int_equal(found->count, counts[i]);
        assert_true(counts[i] == 0 || found->last[0].rounds == 1000);
        json_t *rounds = fgf_history_to_json(found);
        assert_int_equal(json_array_size(rounds), counts[i] < FGF_HISTORY ? counts[i] : FGF_HISTORY);
        assert_same_json(rounds, fgf_history_to_json(expected));
    }
    free(expected);
    free(found);
}

static void a_run_without_a_file_has_no_rounds_and_a_directory_in_its_place_is_an_error(void **state) {
    rounds_file *f = *state;
    fgf_history *history = malloc(sizeof *history);
    uint64_t left_out;
    fgio_reason why = {""};
    assert_int_equal(read_rounds(f, 5, history), 0);
    assert_int_equal(history->count, 0);
    assert_int_equal(fgf_history_read(f->directory, 5, 5, history, &left_out, &why), -1);
    assert_non_null(strstr(why.text, "cannot be read"));
    free(history);
}

static void lines_that_are_not_of_a_round_are_left_out_and_counted(void **state) {
    static const char start[] = "{\"step\":1,\"round\":0,\"updates\":2,\"bytes_up\":3,\"changes\":4,\"loss\":0.5,";
    static const char end[] = "\"seconds\":1,\"eval_loss\":null,\"eval_accuracy\":null}\n";
    static const char *const wrong[] = {
        "\n",
        "nonsense\n",
        "[]\n",
        "{}\n",
        "\xff\xfe\n",
        "{\"round\":-1,\"updates\":2,\"bytes_up\":3,\"changes\":4,\"loss\":1,\"seconds\":1,\"eval_loss\":1,"
        "\"eval_accuracy\":1}\n",
        "{\"round\":1,\"updates\":\"2\",\"bytes_up\":3,\"changes\":4,\"loss\":1,\"seconds\":1,\"eval_loss\":1,"
        "\"eval_accuracy\":1}\n",
        "{\"round\":1,\"updates\":2,\"bytes_up\":3,\"changes\":4,\"loss\":[],\"seconds\":1,\"eval_loss\":1,"
        "\"eval_accuracy\":1}\n",
        "{\"round\":1,\"updates\":2,\"bytes_up\":3,\"changes\":4,\"loss\":1,\"seconds\":1,\"eval_loss\":1}\n",
    };
    const rounds_file *f = *state;
    fgf_history *history = malloc(sizeof *history);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FILE *file = fopen(f->path, "w");
        fprintf(file, "%s%s%s%s%s", wrong[i], start, end, wrong[i], start); /* the last line is incomplete */
        fclose(file);
        assert_int_equal(read_rounds(f, 9, history), 3);
        assert_int_equal(history->count, 1);
        assert_int_equal(history->last[0].bytes_up, 3);
    }
    FILE *file = fopen(f->path, "w"); /* twice the same round, and a line that is too long */
    fprintf(file, "%s%s%s%s%s%5000s%s", start, end, start, end, start, "", end);
    fclose(file);
    assert_int_equal(read_rounds(f, 9, history), 2);
    assert_int_equal(history->count, 1);
    write_rounds(f, 7); /* rounds that the state does not have */
    assert_int_equal(read_rounds(f, 4, history), 3);
    assert_int_equal(history->count, 4);
    free(history);
}

/* ---- sums ---- */

#define N       3000u
#define CLIENTS 7u

/** Updates in memory. */
typedef struct updates {
    frug_layout *layout;
    frug_decoder *decoder;
    float dense[CLIENTS][N];
    void *frame[CLIENTS];
    fgf_update update[CLIENTS];
} updates;

static void make_update(updates *u, unsigned c) {
    frug_config *config = NULL;
    frug_compressor *compressor = NULL;
    size_t cap, len;
    assert_int_equal(frug_config_create("density=0.1,feedback=plain,value=f32,min_size=1", &config), FRUG_OK);
    assert_int_equal(frug_compressor_create(config, u->layout, NULL, &compressor), FRUG_OK);
    assert_int_equal(frug_compressor_bound(compressor, (frug_range){0, N}, &cap), FRUG_OK);
    u->frame[c] = malloc(cap);
    assert_int_equal(frug_compress(compressor, 5, (frug_range){0, N}, u->dense[c], u->frame[c], cap, &len), FRUG_OK);
    frug_compressor_destroy(compressor);
    frug_config_destroy(config);
    fgio_reason why;
    u->update[c] = (fgf_update){.client = key_of(c), .base = 5, .upload = c, .examples = 100, .bytes = len};
    assert_int_equal(
        fgf_sum_check(u->decoder, u->frame[c], len, 5, N, u->dense[c], &u->update[c].norm, &u->update[c].entries, &why),
        0);
}

/* After this, u->dense has what the frames decode to. */
static updates *make_updates(float poison) {
    updates *u = calloc(1, sizeof *u);
    assert_int_equal(frug_layout_flat(N, &u->layout), FRUG_OK);
    assert_int_equal(frug_decoder_create(u->layout, 1, &u->decoder), FRUG_OK);
    for (unsigned c = 0; c < CLIENTS; c++) {
        for (unsigned i = 0; i < N; i++)
            u->dense[c][i] = (float)((i * 2654435761u + c * 40503u) % 1009) / 1009.0f * (i % 11 < 3 ? 4.0f : 1.0f);
        for (unsigned i = 0; i < N && c == 3; i++)
            u->dense[c][i] *= poison;
        make_update(u, c);
    }
    return u;
}

static void free_updates(updates *u) {
    for (unsigned c = 0; c < CLIENTS; c++)
        free(u->frame[c]);
    frug_decoder_destroy(u->decoder);
    frug_layout_destroy(u->layout);
    free(u);
}

static void *load(void *ctx, const fgf_update *update, fgio_reason *why) {
    const updates *u = ctx;
    void *copy = malloc(update->bytes);
    (void)why;
    memcpy(copy, u->frame[update->upload], update->bytes);
    return copy;
}

static void sum(updates *u, fgf_sum_rule rule, uint64_t round, float *mean) {
    static float scratch[N];
    fgio_reason why;
    assert_int_equal(fgf_sum_updates(&rule, round, u->update, CLIENTS, u->decoder, load, u, N, scratch, mean, &why), 0);
}

static void the_mean_is_weighted_by_examples_and_age(void **state) {
    updates *u = make_updates(1);
    float mean[N];
    double all = 0;
    (void)state;
    u->update[2].examples = 300;
    u->update[4].examples = 1000000; /* limited to ten times the median */
    u->update[5].base = 3;           /* two rounds late: (1 + 2) ^ -0.5 */
    double weight[CLIENTS];
    for (unsigned c = 0; c < CLIENTS; c++)
        all += weight[c] = c == 2 ? 300 : c == 4 ? 1000 : c == 5 ? 100 / sqrt(3) : 100;
    sum(u, (fgf_sum_rule){.robust = FGF_ROBUST_MEAN, .stale_power = 0.5}, 5, mean);
    for (unsigned i = 0; i < N; i++) {
        double want = 0;
        for (unsigned c = 0; c < CLIENTS; c++)
            want += weight[c] / all * (double)u->dense[c][i];
        assert_true(fabs(want - (double)mean[i]) < 1e-5); /* sums of floats of up to 4 */
    }
    free_updates(u);
}

static double largest_difference(const float *a, const float *b) {
    double most = 0;
    for (unsigned i = 0; i < N; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (d > most)
            most = d;
    }
    return most;
}

static void an_update_a_thousand_times_too_large_is_limited_to_the_median(void **state) {
    updates *honest = make_updates(1), *poisoned = make_updates(1000);
    float clean[N], mean[N], clipped[N];
    (void)state;
    sum(honest, (fgf_sum_rule){.robust = FGF_ROBUST_MEAN}, 5, clean);
    sum(poisoned, (fgf_sum_rule){.robust = FGF_ROBUST_MEAN}, 5, mean);
    sum(poisoned, (fgf_sum_rule){.robust = FGF_ROBUST_CLIP}, 5, clipped);
    assert_true(largest_difference(mean, clean) > 100);
    assert_true(largest_difference(clipped, clean) < 0.5);
    free_updates(honest);
    free_updates(poisoned);
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void the_trimmed_mean_is_over_those_who_sent_an_index(void **state) {
    updates *u = make_updates(1);
    const fgf_sum_rule rule = {.robust = FGF_ROBUST_TRIM, .trim = 0.2, .entries_max = FGF_TRIM_ENTRIES};
    fgf_share shares[CLIENTS];
    float mean[N];
    (void)state;
    sum(u, rule, 5, mean);
    assert_int_equal(fgf_sum_shares(&rule, 5, u->update, CLIENTS, shares), 0);
    for (unsigned i = 0; i < N; i++) {
        double sent[CLIENTS], want = 0;
        size_t count = 0;
        for (unsigned c = 0; c < CLIENTS; c++)
            if (u->dense[c][i] != 0)
                sent[count++] = (double)u->dense[c][i] * shares[c].limit;
        size_t drop = (size_t)(0.2 * (double)count);
        qsort(sent, count, sizeof *sent, compare_doubles);
        for (size_t k = drop; k < count - drop; k++)
            want += sent[k] / (double)(count - 2 * drop);
        want *= (double)count / CLIENTS; /* as in a mean: who did not send has sent 0 */
        assert_true(fabs(want - (double)mean[i]) < 1e-5);
    }
    free_updates(u);
}

static void the_trimmed_mean_has_the_same_bits_when_memory_is_for_a_part(void **state) {
    updates *u = make_updates(1);
    fgf_sum_rule rule = {.robust = FGF_ROBUST_TRIM, .trim = 0.2, .entries_max = FGF_TRIM_ENTRIES};
    float whole[N], parts[N];
    (void)state;
    sum(u, rule, 5, whole);
    for (rule.entries_max = 1; rule.entries_max < 4000;
         rule.entries_max += 1600) { /* three windows, two and one, one */
        sum(u, rule, 5, parts);
        assert_memory_equal(parts, whole, sizeof whole);
    }
    free_updates(u);
}

static void what_is_not_finite_or_of_another_round_is_refused(void **state) {
    updates *u = make_updates(1);
    float scratch[N];
    double norm;
    uint64_t entries;
    fgio_reason why;
    (void)state;
    assert_int_equal(fgf_sum_check(u->decoder, u->frame[0], u->update[0].bytes, 6, N, scratch, &norm, &entries, &why),
                     -1);
    assert_non_null(strstr(why.text, "of step 5"));
    assert_int_equal(
        fgf_sum_check(u->decoder, u->frame[0], u->update[0].bytes - 1, 5, N, scratch, &norm, &entries, &why), -1);
    free_updates(u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_rounds_are_read_from_a_file_of_any_length, open_rounds, close_rounds),
        cmocka_unit_test_setup_teardown(a_run_without_a_file_has_no_rounds_and_a_directory_in_its_place_is_an_error,
                                        open_rounds, close_rounds),
        cmocka_unit_test_setup_teardown(lines_that_are_not_of_a_round_are_left_out_and_counted, open_rounds,
                                        close_rounds),
        cmocka_unit_test(segment_all_makes_an_update_one_tensor),
        cmocka_unit_test(an_update_is_counted_once_and_in_time),
        cmocka_unit_test(a_round_closes_with_all_or_with_a_quorum_at_its_deadline),
        cmocka_unit_test(the_book_keeps_clients_in_the_order_of_their_keys),
        cmocka_unit_test(the_mean_is_weighted_by_examples_and_age),
        cmocka_unit_test(an_update_a_thousand_times_too_large_is_limited_to_the_median),
        cmocka_unit_test(the_trimmed_mean_is_over_those_who_sent_an_index),
        cmocka_unit_test(the_trimmed_mean_has_the_same_bits_when_memory_is_for_a_part),
        cmocka_unit_test(what_is_not_finite_or_of_another_round_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
