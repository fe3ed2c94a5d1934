/*
 * test_data_sentences.c - GLUE's tables become [CLS] A [SEP] B [SEP] with segments, cut longest first; labels are what
 * the rows say; wrong tables are refused with row and byte; the real ones have their official numbers of rows.
 */
#include "data/data.h"
#include "say.h"
#include "data/tsv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data_files.h"

enum { CLS = 1, SEP = 2, A = 4, B = 5, T = 10 };

static char vocabulary[2 * PLACE_MAX];

static void make_place(char place[PLACE_MAX], const char *name, const char *train) {
    place_make(place, name);
    place_text(place, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
    place_text(place, "train.tsv", train);
    snprintf(vocabulary, sizeof vocabulary, "%s/vocab.txt", place);
}

static frugi_data *open_sentences(const char *path, const char *subset, const char *tokens, uint32_t length) {
    frugi_data_want want = {
        .task = FRUGI_TASK_SENTENCES, .path = path, .tokens = tokens, .subset = subset, .length = length};
    frugi_data *data = NULL;
    assert_int_equal(frugi_data_open(&want, &data), FRUGI_EXIT_OK);
    return data;
}

static void assert_refused(const char *name, const char *subset, const char *train, const char *reason) {
    char place[PLACE_MAX];
    frugi_data *data = NULL;
    caught c;
    make_place(place, name, train);
    frugi_data_want want = {
        .task = FRUGI_TASK_SENTENCES, .path = place, .tokens = vocabulary, .subset = subset, .length = T};
    catch_begin(&c);
    int status = frugi_data_open(&want, &data);
    catch_end(&c);
    if (status != FRUGI_EXIT_FAIL || data != NULL || strstr(c.text, reason) == NULL)
        fail_msg("said '%s'; expected: %s", c.text, reason);
    place_remove(place);
}

static void pairs_are_cut_longest_first(void **state) {
    char place[PLACE_MAX];
    frugi_batch batch;
    static const int32_t tokens[4][T] = {{CLS, A, SEP, B, B, SEP},
                                         {CLS, A, A, A, A, SEP, B, B, B, SEP},
                                         {CLS, A, SEP, B, B, B, B, B, B, SEP},
                                         {CLS, A, A, A, A, A, A, SEP, B, SEP}};
    static const int32_t lengths[4] = {6, T, T, T}, firsts[4] = {3, 6, 3, 8}, labels[4] = {1, 0, 1, 0};
    (void)state;
    make_place(place, "MRPC", "nothing");
    place_text(place, "train.tsv",
               "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
               "1\tx\ty\ta\tb b\r\n"
               "0\tx\ty\ta a a a a a a\tb b b b b b b\n"
               "1\tx\ty\ta\tb b b b b b b b b b\n"
               "0\tx\ty\ta a a a a a a a a a\tb");
    frugi_data *data = open_sentences(place, NULL, vocabulary, T);
    const frugi_data_info *info = frugi_data_about(data);
    assert_string_equal(info->name, "mrpc");
    assert_int_equal(info->classes, 2);
    assert_int_equal(info->count[FRUGI_TRAIN], 4);
    assert_int_equal(info->count[FRUGI_VALID], 0);
    assert_int_equal(frugi_batch_create(info, 1, &batch), FRUGI_EXIT_OK);
    int seen = 0;
    for (uint64_t i = 0; i < 4; i++) { /* shuffled: each sample must be one of the four */
        int which = 0;
        frugi_data_batch(data, FRUGI_TRAIN, 0, i, 1, &batch);
        while (which < 4 && memcmp(batch.tokens, tokens[which], sizeof tokens[which]) != 0)
            which++;
        assert_in_range(which, 0, 3);
        seen |= 1 << which;
        assert_int_equal(batch.lengths[0], lengths[which]);
        assert_int_equal(batch.targets[0], labels[which]);
        for (int t = 0; t < T; t++)
            assert_int_equal(batch.segments[t], t >= firsts[which] && t < lengths[which]);
    }
    assert_int_equal(seen, 15);
    frugi_batch_destroy(&batch);
    frugi_data_close(data);
    place_remove(place);
}

static void single_sentences_and_numbers(void **state) {
    char place[PLACE_MAX];
    frugi_batch batch;
    (void)state;
    make_place(place, "some", "gj04\t1\t\ta \"b\n");
    frugi_data *data = open_sentences(place, "CoLA", vocabulary, T);
    assert_int_equal(frugi_batch_create(frugi_data_about(data), 1, &batch), FRUGI_EXIT_OK);
    frugi_data_batch(data, FRUGI_TRAIN, 0, 0, 1, &batch);
    assert_memory_equal(batch.tokens, ((int32_t[]){CLS, A, 0, B, SEP, 0}), sizeof(int32_t[6])); /* " is unknown */
    assert_int_equal(batch.targets[0], 1);
    frugi_batch_destroy(&batch);
    frugi_data_close(data);
    place_text(place, "train.tsv", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.25\n");
    data = open_sentences(place, "sts-b", vocabulary, T);
    assert_int_equal(frugi_data_about(data)->classes, 1);
    assert_int_equal(frugi_batch_create(frugi_data_about(data), 1, &batch), FRUGI_EXIT_OK);
    frugi_data_batch(data, FRUGI_TRAIN, 0, 0, 1, &batch);
    assert_true(batch.numbers[0] == 3.25f);
    frugi_batch_destroy(&batch);
    frugi_data_close(data);
    place_remove(place);
}

static void wrong_tables_are_refused(void **state) {
    (void)state;
    assert_refused("SST-2", NULL, "", "train.tsv: row 1, byte 0: expected columns named 'label', 'sentence'");
    assert_refused("SST-2", NULL, "text\tlabel\n", "row 1, byte 0: expected columns named 'label', 'sentence'");
    assert_refused("SST-2", NULL, "sentence\tlabel\n", "expected training data for at least one sample");
    assert_refused("SST-2", NULL, "sentence\tlabel\na\t1\nb\n", "row 3, byte 19: expected 2 columns, found 1");
    assert_refused("SST-2", NULL, "sentence\tlabel\na\t2\n", "row 2, byte 17: expected a label of 0 or 1");
    assert_refused("STS-B", NULL, "score\tsentence1\tsentence2\n5.1\ta\tb\n",
                   "row 2, byte 26: expected a label of 0 to 5");
    assert_refused("CoLA", NULL, "", "row 1, byte 0: expected a row");
    assert_refused("CoLA", NULL, "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n",
                   "at most 32 columns");
    assert_refused("what", NULL, "", "expected a directory called SST-2, CoLA, MRPC, STS-B or BoolQ");
    assert_refused("what", "mnli", "", "'mnli' is no task known here");
}

static void numbers_are_read_by_hand(void **state) {
    static const struct {
        const char *text;
        int bad;
        double value;
    } cases[] = {{"0", 0, 0},       {"3.800", 0, 3.8},
                 {"-1.5", 0, -1.5}, {".5", 0, 0.5},
                 {"5.", 0, 5},      {"", 1, 0},
                 {"-", 1, 0},       {".", 1, 0},
                 {"1.2.3", 1, 0},   {"1e3", 1, 0},
                 {"nan", 1, 0},     {"1 ", 1, 0},
                 {"0x1", 1, 0},     {"1234567890123456", 1, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        frugi_tsv_field field = {(const unsigned char *)cases[i].text, strlen(cases[i].text)};
        double value = 0;
        assert_int_equal(frugi_tsv_number(&field, &value), -cases[i].bad);
        assert_true(fabs(value - cases[i].value) < 1e-12);
    }
}

static void the_real_tables_have_their_rows(void **state) {
    static const struct {
        const char *dir;
        uint64_t count[FRUGI_SPLITS];
    } tasks[] = {{"glue/SST-2", {67349, 872, 1821}},
                 {"glue/CoLA", {8551, 1043, 0}},
                 {"glue/MRPC", {3668, 408, 1725}},
                 {"glue/STS-B", {5749, 1500, 0}}};
    char path[PLACE_MAX], tokens[PLACE_MAX];
    (void)state;
    if (real_data("glue", path) == NULL || real_data("tokenizers/bert_base_uncased_vocab.txt", tokens) == NULL)
        skip();
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        frugi_batch batch;
        frugi_data *data = open_sentences(real_data(tasks[i].dir, path), NULL, tokens, 128);
        assert_memory_equal(frugi_data_about(data)->count, tasks[i].count, sizeof tasks[i].count);
        assert_int_equal(frugi_batch_create(frugi_data_about(data), 1, &batch), FRUGI_EXIT_OK);
        frugi_data_batch(data, FRUGI_VALID, 0, 0, 1, &batch);
        assert_int_equal(batch.tokens[0], 101);
        assert_int_equal(batch.tokens[batch.lengths[0] - 1], 102);
        frugi_batch_destroy(&batch);
        frugi_data_close(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_cut_longest_first),     cmocka_unit_test(single_sentences_and_numbers),
        cmocka_unit_test(wrong_tables_are_refused),        cmocka_unit_test(numbers_are_read_by_hand),
        cmocka_unit_test(the_real_tables_have_their_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
