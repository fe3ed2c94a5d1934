/*
 * test_data_questions.c - BoolQ's lines become [CLS] question [SEP] passage [SEP], ARC's rows a pair for each choice,
 * with the labels of the rows; invalid files are refused with file and line or row; the real ones have their official
 * numbers of rows and the shares of labels in docs/data.md.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data_helpers.h"

enum { CLS = 1, SEP = 2, A = 4, B = 5, C = 6, T = 10 };

static char vocabulary[2 * TEMP_PATH_MAX];

static void make_directory(char directory[TEMP_PATH_MAX], const char *name) {
    temp_dir_create(directory, name);
    temp_dir_write_text(directory, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n");
    snprintf(vocabulary, sizeof vocabulary, "%s/vocab.txt", directory);
}

static fgt_data *open_questions(const char *path, const char *subset, const char *tokens, uint64_t hold_out) {
    fgt_data_options want = {.task = FGT_TASK_SENTENCES,
                             .path = path,
                             .tokens = tokens,
                             .subset = subset,
                             .length = T,
                             .hold_out = hold_out};
    fgt_data *data = NULL;
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    return data;
}

static void assert_refused(const char *subset, const char *file, const char *text, const char *reason) {
    char directory[TEMP_PATH_MAX];
    make_directory(directory, "some");
    temp_dir_write_text(directory, file, text);
    fgt_data_options want = {
        .task = FGT_TASK_SENTENCES, .path = directory, .tokens = vocabulary, .subset = subset, .length = T};
    assert_data_refused(&want, reason);
    temp_dir_remove(directory);
}

static void assert_row(const fgt_data *data, fgt_split split, uint64_t at, const int32_t tokens[T], int label) {
    fgt_batch batch;
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, split, 0, at, 1, &batch);
    assert_memory_equal(batch.tokens, tokens, T * sizeof *tokens);
    assert_int_equal(batch.targets[0], label);
    fgt_batch_destroy(&batch);
}

static void boolq_line_is_question_and_passage(void **state) {
    char directory[TEMP_PATH_MAX];
    (void)state;
    make_directory(directory, "BoolQ"); /* the directory says which */
    temp_dir_write_text(directory, "train_1_of_2.jsonl",
                        "{\"question\": \"a b\", \"title\": \"c\", \"answer\": true, \"passage\": \"b b\"}\r\n \n"
                        "{\"question\": \"c\", \"answer\": false, \"passage\": \"b b b b b b b b\"}");
    temp_dir_write_text(directory, "dev.jsonl", "{\"question\": \"\\u0061\", \"answer\": false, \"passage\": \"c\"}\n");
    fgt_data *data = open_questions(directory, NULL, vocabulary, 1);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_string_equal(info->name, "boolq");
    assert_int_equal(info->classes, 2);
    assert_memory_equal(info->count, ((uint64_t[]){1, 1, 1}), sizeof info->count);
    assert_row(data, FGT_TRAIN, 0, (int32_t[T]){CLS, A, B, SEP, B, B, SEP}, 1);
    assert_row(data, FGT_VALID, 0, (int32_t[T]){CLS, C, SEP, B, B, B, B, B, B, SEP}, 0); /* cut */
    assert_row(data, FGT_TEST, 0, (int32_t[T]){CLS, A, SEP, C, SEP}, 0);
    fgt_data_close(data);
    temp_dir_write_text(directory, "train.jsonl", "{\"question\": \"c\", \"answer\": true, \"passage\": \"c\"}");
    data = open_questions(directory, "boolq", vocabulary, 0); /* goes before a part */
    assert_row(data, FGT_TRAIN, 0, (int32_t[T]){CLS, C, SEP, C, SEP}, 1);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void each_choice_becomes_a_pair(void **state) {
    static const char train[] = "[{\"instruction\": \"Choose the answer to the question: a Answer1: b\\n\\nc?\\n\\n"
                                "Answer1: a Answer3: Answer2: b Answer3: c\\n\\nAnswer format: answer1/answer2\", "
                                "\"input\": \"\", \"output\": \"\", \"answer\": \"answer3\"}]";
    static const int32_t pairs[3][T] = {{CLS, A, 0, 0, B, SEP, A, 0, 0, SEP}, /* "Answer1:" is in the question */
                                        {CLS, A, 0, 0, B, C, 0, SEP, B, SEP},
                                        {CLS, A, 0, 0, B, C, 0, SEP, C, SEP}};
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    (void)state;
    make_directory(directory, "some");
    temp_dir_write_text(directory, "ARC-Challenge_train.json", train);
    fgt_data *data = open_questions(directory, "ARC-Challenge", vocabulary, 0);
    assert_memory_equal(fgt_data_get_info(data)->count, ((uint64_t[]){3, 0, 0}), sizeof(uint64_t[3]));
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 3, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TRAIN, 0, 0, 3, &batch);
    int seen = 0;
    for (int i = 0; i < 3; i++) { /* shuffled */
        int which = 0;
        while (which < 3 && memcmp(batch.tokens + i * T, pairs[which], sizeof pairs[which]) != 0)
            which++;
        assert_in_range(which, 0, 2);
        assert_int_equal(batch.targets[i], which == 2);
        seen |= 1 << which;
    }
    assert_int_equal(seen, 7);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void wrong_lines_are_refused(void **state) {
    static const char good[] = "{\"question\": \"a\", \"answer\": true, \"passage\": \"b\"}\n";
    char text[256];
    (void)state;
    assert_refused("boolq", "else.jsonl", "", "some: expected 'train.jsonl' in this directory");
    assert_refused("boolq", "train.jsonl", "", "train.jsonl: line 1: expected a JSON object a line, found none");
    snprintf(text, sizeof text, "%s{\"question\": \"a\"", good);
    assert_refused("boolq", "train.jsonl", text, "train.jsonl: line 2, column 16: expected JSON (");
    snprintf(text, sizeof text, "%s\n{\"question\": \"a\", \"answer\": 1, \"passage\": \"b\"}\n", good);
    assert_refused("boolq", "train.jsonl", text, "line 3: expected an object with \"question\" and \"passage\"");
    assert_refused("boolq", "train.jsonl", "{\"question\": 1, \"answer\": true, \"passage\": \"b\"}",
                   "line 1: expected");
    assert_refused("boolq", "train.jsonl", "{\"question\": \"\\u0000\", \"answer\": true, \"passage\": \"b\"}",
                   "line 1, column");
    assert_refused("boolq", "train.jsonl", "[]", "line 1: expected");
}

static void wrong_choices_are_refused(void **state) {
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"[", "ARC-Easy_train.json: line 1, column 1: expected JSON ("},
        {"{}", "line 1: expected a JSON array of questions"},
        {"[]", "line 1: expected a JSON array of questions"},
        {"[3]", "row 1: expected an object with an \"instruction\""},
        {"[{\"instruction\": \"question: a\\n\\nAnswer1: b Answer2: c\", \"answer\": \"answer1\"}]", "row 1: expected"},
        {"[{\"instruction\": \"question: a\\n\\nAnswer1: b\\n\\nAnswer format:\", \"answer\": \"answer1\"}]",
         "with 2 to 26 choices"},
        {"[{\"instruction\": \"question: a\\n\\nAnswer1: b Answer2: c\\n\\nAnswer format:\", \"answer\": \"answer3\"}]",
         "row 1: expected an \"answer\" of \"answer1\" to \"answer2\""},
        {"[{\"instruction\": \"question: a\\n\\nAnswer1: b Answer2: c\\n\\nAnswer format:\"}]",
         "row 1: expected an \"ans"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused("arc-easy", "ARC-Easy_train.json", cases[i].text, cases[i].reason);
}

static void several_parts_are_refused(void **state) {
    char directory[TEMP_PATH_MAX];
    (void)state;
    make_directory(directory, "boolq");
    temp_dir_write_text(directory, "train_1.jsonl", "");
    temp_dir_write_text(directory, "train_2.jsonl.xz", "");
    fgt_data_options want = {.task = FGT_TASK_SENTENCES, .path = directory, .tokens = vocabulary, .length = T};
    assert_data_refused(&want, "or one file called 'train_WHATEVER.jsonl', found 2");
    temp_dir_remove(directory);
}

/* The share of samples of the test split with label 1, in thousandths, rounded. */
static int share_of_ones(const fgt_data *data) {
    uint64_t count = fgt_data_get_info(data)->count[FGT_TEST], ones = 0;
    fgt_batch batch;
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
    for (uint64_t i = 0; i < count; i++) {
        fgt_data_batch(data, FGT_TEST, 0, i, 1, &batch);
        ones += (uint64_t)batch.targets[0];
    }
    fgt_batch_destroy(&batch);
    return (int)((1000 * ones + count / 2) / count);
}

static void real_files_have_the_published_rows(void **state) {
    static const struct {
        const char *dir, *subset;
        uint64_t count[FGT_SPLITS];
        int ones;
    } tasks[] = {{"boolq", NULL, {1886, 0, 3270}, 622},
                 {"commonsense", "arc-easy", {9002, 0, 9501}, 250},
                 {"commonsense", "arc-challenge", {4476, 0, 4687}, 250}};
    char path[TEMP_PATH_MAX], tokens[TEMP_PATH_MAX];
    (void)state;
    if (real_data("boolq", path) == NULL || real_data("commonsense", path) == NULL ||
        real_data("tokenizers/bert_base_uncased_vocab.txt", tokens) == NULL)
        skip();
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        fgt_data *data = open_questions(real_data(tasks[i].dir, path), tasks[i].subset, tokens, 0);
        assert_memory_equal(fgt_data_get_info(data)->count, tasks[i].count, sizeof tasks[i].count);
        assert_int_equal(share_of_ones(data), tasks[i].ones);
        fgt_data_close(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boolq_line_is_question_and_passage),
        cmocka_unit_test(each_choice_becomes_a_pair),
        cmocka_unit_test(wrong_lines_are_refused),
        cmocka_unit_test(wrong_choices_are_refused),
        cmocka_unit_test(several_parts_are_refused),
        cmocka_unit_test(real_files_have_the_published_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
