/*
 * test_data_text.c - text for language models and masked models: every token is a target once per epoch, targets follow
 * their tokens, tokens are masked by the rule, and invalid files are refused with a position.
 */
#include "trainer/data/text_files.h"
#include "trainer/data/tokenizer.h"
#include "io/unpack_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data_helpers.h"

enum { T = 8 };

static fgt_data *open_text(fgt_task task, const char *path, const char *tokens, uint32_t length) {
    fgt_data_options want = {.task = task, .path = path, .tokens = tokens, .length = length, .seed = 6};
    fgt_data *data = NULL;
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    return data;
}

static void assert_refused(fgt_task task, const char *path, const char *tokens, const char *reason) {
    fgt_data_options want = {.task = task, .path = path, .tokens = tokens, .length = T};
    assert_data_refused(&want, reason);
}

/* Byte i of the training text is i, so that a token shows its position. */
static void windows_shift_and_targets_follow(void **state) {
    char directory[TEMP_PATH_MAX];
    unsigned char bytes[100];
    fgt_batch batch;
    (void)state;
    for (int i = 0; i < 100; i++)
        bytes[i] = (unsigned char)i;
    temp_dir_create(directory, "abc");
    temp_dir_write(directory, "train.txt", bytes, 100);
    temp_dir_write(directory, "test.txt", bytes, 20);
    fgt_data *data = open_text(FGT_TASK_LANGUAGE, directory, NULL, T);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_string_equal(info->name, "abc");
    assert_int_equal(info->vocab, 256);
    assert_int_equal(info->count[FGT_TRAIN], 11); /* 11 windows of 8 fit into 99 wherever they begin */
    assert_int_equal(info->count[FGT_VALID], 0);
    assert_int_equal(info->count[FGT_TEST], 3);
    assert_int_equal(fgt_batch_create(info, 11, &batch), FGIO_EXIT_OK);
    int shifts[T] = {0}, different = 0;
    for (uint64_t epoch = 0; epoch < 64; epoch++) {
        int seen[100] = {0};
        fgt_data_batch(data, FGT_TRAIN, epoch, 0, 11, &batch);
        for (int i = 0; i < 11 * T; i++) {
            assert_int_equal(batch.targets[i], batch.tokens[i] + 1);
            assert_int_equal(seen[batch.tokens[i]]++, 0);
            assert_int_equal(batch.tokens[i] % T, (batch.tokens[0] + i) % T);
        }
        shifts[batch.tokens[0] % T]++;
    }
    for (int i = 0; i < T; i++)
        different += shifts[i] > 0;
    assert_int_equal(different, T);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void test_windows_cover_every_token_once(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    (void)state;
    temp_dir_create(directory, "abc");
    temp_dir_write_text(directory, "train.txt", "abcdefghijklmnopqrstuvwxyz");
    temp_dir_write_text(directory, "valid.txt", "0123456789abcdefghi");
    fgt_data *data = open_text(FGT_TASK_LANGUAGE, directory, "bytes", T);
    assert_int_equal(fgt_data_get_info(data)->count[FGT_VALID], 3);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 3, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_VALID, 5, 0, 3, &batch);
    for (int i = 0; i < 3 * T; i++) {
        assert_int_equal(batch.tokens[i], i < 19 ? "0123456789abcdefghi"[i] : 0);
        assert_int_equal(batch.targets[i], i < 18 ? "0123456789abcdefghi"[i + 1] : -1);
    }
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void token_id_files_are_read(void **state) {
    char directory[TEMP_PATH_MAX];
    unsigned char numbers[64];
    fgt_batch batch;
    (void)state;
    for (int i = 0; i < 32; i++) {
        numbers[2 * i] = (unsigned char)i;
        numbers[2 * i + 1] = 0x80;
    }
    temp_dir_create(directory, "abc");
    temp_dir_write(directory, "train.gpt2bpe.u16", numbers, 64);
    fgt_data *data = open_text(FGT_TASK_LANGUAGE, directory, NULL, T);
    assert_int_equal(fgt_data_get_info(data)->vocab, 50257);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TRAIN, 0, 0, 1, &batch);
    assert_in_range(batch.tokens[0], 0x8000, 0x801F);
    assert_int_equal(batch.targets[T - 1], batch.tokens[0] + T);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_write(directory, "train.gpt2bpe.u16", numbers, 63);
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL,
                   "train.gpt2bpe.u16: byte 63: the file ends; expected numbers of two");
    numbers[11] = 0xC4; /* 0xC405 = 50181 is fine, 0xC5.. is not */
    numbers[13] = 0xC5;
    temp_dir_write(directory, "train.gpt2bpe.u16", numbers, 64);
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "byte 12: expected a token below 50257, found 50438");
    temp_dir_remove(directory);
}

static void a_vocabulary_beside_token_ids_gives_its_size(void **state) {
    static const char *const wrong[] = {"[0, 1]", "{}", "{\"a\": 0, \"b\": 2}", "{\"a\": 0, \"b\": 0}",
                                        "{\"a\": 0, \"b\": true}"};
    char directory[TEMP_PATH_MAX];
    unsigned char numbers[64] = {0};
    (void)state;
    temp_dir_create(directory, "abc");
    temp_dir_write(directory, "train.u16", numbers, 64);
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "expected 'vocab.json', the vocabulary of the tokens");
    temp_dir_write(directory, "vocab.json", "{\"a\": 1, \"b\": 2, \"c\": 0}", 24);
    fgt_data *data = open_text(FGT_TASK_LANGUAGE, directory, NULL, T);
    assert_int_equal(fgt_data_get_info(data)->vocab, 3);
    assert_string_equal(fgt_data_get_info(data)->tokens, "ids in the data");
    fgt_data_close(data);
    numbers[6] = 3;
    temp_dir_write(directory, "train.u16", numbers, 64);
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "train.u16: byte 6: expected a token below 3, found 3");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        temp_dir_write(directory, "vocab.json", wrong[i], strlen(wrong[i]));
        assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "vocab.json: expected a JSON object of up to 65536 tokens");
    }
    temp_dir_write(directory, "vocab.json", "{", 1);
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "vocab.json: byte 1: expected JSON");
    temp_dir_remove(directory);
}

/* With --tokens, a directory of token ids is not read by the .txt files of its tokenizer. */
static void token_ids_are_no_text(void **state) {
    char directory[TEMP_PATH_MAX];
    unsigned char numbers[64] = {0};
    const char *message = "abc: has token ids and no text; omit --tokens";
    (void)state;
    temp_dir_create(directory, "abc");
    temp_dir_write_text(directory, "merges.txt", "#version: 0.2\na b\nc d\ne f\ng h\ni j\n");
    temp_dir_write_text(directory, "vocab.txt.gz", "unread");
    assert_refused(FGT_TASK_LANGUAGE, directory, "bytes", "any other .txt file in this directory but merges.txt and");
    temp_dir_write(directory, "train.u16", numbers, 64);
    temp_dir_write_text(directory, "readme.txt", "what these token ids are, in more than eight bytes");
    assert_refused(FGT_TASK_LANGUAGE, directory, "bytes", message);
    assert_refused(FGT_TASK_LANGUAGE, directory, directory, message);
    assert_refused(FGT_TASK_MASKED, directory, "/nowhere", "abc: has token ids and no text; masked models read text");
    temp_dir_write_text(directory, "train.txt", "the text of the token ids");
    fgt_data_close(open_text(FGT_TASK_LANGUAGE, directory, "bytes", T));
    temp_dir_remove(directory);
}

static void wrong_text_is_refused(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_data_options want = {.task = FGT_TASK_LANGUAGE, .path = "builtin", .length = 1};
    fgt_data *data = NULL;
    stderr_capture c;
    (void)state;
    temp_dir_create(directory, "abc");
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL,
                   "expected 'train.txt', 'wiki.train.tokens', 'wiki.train.raw' or any");
    assert_refused(FGT_TASK_LANGUAGE, "/no/where.txt", NULL, "/no/where.txt: No such file");
    assert_refused(FGT_TASK_MASKED, directory, NULL, "needs the file of a WordPiece vocabulary");
    temp_dir_write_text(directory, "train.txt", "");
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "abc: expected text to train on, found none");
    temp_dir_write_text(directory, "train.txt", "short");
    assert_refused(FGT_TASK_LANGUAGE, directory, NULL, "expected training data for at least one sample");
    assert_refused(FGT_TASK_LANGUAGE, directory, "/nowhere", "/nowhere: expected 'encoder.json'");
    stderr_capture_begin(&c);
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_FAIL);
    assert_non_null(strstr(stderr_capture_end(&c), "samples of 1 tokens: expected 8 to 65536"));
    temp_dir_remove(directory);
}

/* Texts as they were passed to the callback. */
typedef struct handed {
    char text[FGT_SPLITS][4096];
    size_t len[FGT_SPLITS], pieces;
} handed;

static int keep_text(void *with, fgt_split split, const unsigned char *text, size_t len) {
    handed *h = with;
    char last = h->len[split] ? h->text[split][h->len[split] - 1] : '\0';
    if (last) { /* before a space, between two visible characters */
        assert_true(last > ' ' && last < 0x7F);
        assert_true(len > 1 && text[0] == ' ' && text[1] > ' ' && text[1] < 0x7F);
    }
    assert_true(h->len[split] + len < sizeof h->text[split]);
    memcpy(h->text[split] + h->len[split], text, len);
    h->len[split] += len;
    h->pieces++;
    return FGIO_EXIT_OK;
}

static void read_text(const char *path, handed *h, const char *message) {
    stderr_capture c;
    memset(h, 0, sizeof *h);
    stderr_capture_begin(&c);
    assert_int_equal(fgt_text_read(path, keep_text, h), FGIO_EXIT_OK);
    stderr_capture_end(&c);
    if (message ? strstr(c.text, message) == NULL : c.text[0] != '\0')
        fail_msg("the message is '%s'; expected: %s", c.text, message ? message : "nothing");
}

/* A text without splits: 90 %, 5 % and 5 %, cut where lines or characters begin. */
static void text_is_divided_into_three_splits(void **state) {
    char directory[TEMP_PATH_MAX], path[2 * TEMP_PATH_MAX], lines[2001] = "";
    handed h;
    (void)state;
    for (int i = 0; i < 200; i++)
        snprintf(lines + 10 * i, 11, "line %04d\n", i);
    lines[1799] = 'x'; /* the end of line 179: the first cut goes on to the next */
    temp_dir_create(directory, "books");
    temp_dir_write_text(directory, "any.txt", lines);
    snprintf(path, sizeof path, "%s/any.txt", directory);
    read_text(path, &h, "of its 2.00 kB the first 90 % train, the next 5 % validate, the last 5 % test");
    assert_int_equal(h.len[FGT_TRAIN], 1810);
    assert_int_equal(h.len[FGT_VALID], 90);
    assert_int_equal(h.len[FGT_TEST], 100);
    assert_memory_equal(h.text[FGT_TEST], lines + 1900, 100);
    fgt_data *data = open_text(FGT_TASK_LANGUAGE, path, NULL, T); /* as `train --data any.txt` does */
    assert_string_equal(fgt_data_get_info(data)->name, "any.txt");
    assert_int_equal(fgt_data_get_info(data)->count[FGT_TEST], 13);
    fgt_data_close(data);
    for (int i = 0; i < 1000; i++)
        memcpy(lines + 2 * i, "\xC3\xA4", 2); /* no line ends; characters of two bytes */
    lines[0] = lines[1] = 'a';
    temp_dir_write_text(directory, "any.txt", lines + 1);
    read_text(path, &h, "any.txt");
    assert_int_equal(h.len[FGT_TRAIN], 1801); /* 1999 - 199 = 1800 is within a character */
    assert_int_equal(h.len[FGT_VALID], 100);
    temp_dir_remove(directory);
}

static void folders_of_text_are_read(void **state) {
    static const char *const layouts[][FGT_SPLITS] = {{"train.txt", "valid.txt", "test.txt"},
                                                      {"wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"},
                                                      {"wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"}};
    char directory[TEMP_PATH_MAX];
    handed h;
    (void)state;
    for (int i = 0; i < 3; i++) {
        temp_dir_create(directory, "wikitext-103");
        for (int k = 0; k < FGT_SPLITS; k++)
            temp_dir_write_text(directory, layouts[i][k], layouts[i][k]);
        read_text(directory, &h, NULL);
        for (int k = 0; k < FGT_SPLITS; k++)
            assert_string_equal(h.text[k], layouts[i][k]);
        temp_dir_remove(directory);
    }
    temp_dir_create(directory, "books");
    temp_dir_write_text(directory, "b.txt", "second\n");
    temp_dir_write_text(directory, "a.txt", "first\n");
    temp_dir_write_text(directory, "c.md", "no text\n");
    read_text(directory, &h, "books has no files for each split");
    assert_string_equal(h.text[FGT_TRAIN], "first\nsecond"); /* of 13 bytes one is for validation */
    assert_string_equal(h.text[FGT_VALID], "\n");
    temp_dir_remove(directory);
}

/* The text and its tokens do not depend on the pieces. */
static int encode_piece(void *with, fgt_split split, const unsigned char *text, size_t len) {
    void **both = with;
    (void)split;
    return fgt_tokenizer_encode(both[0], text, len, both[1]);
}

static void streaming_gives_the_same_tokens(void **state) {
    static const char text[] = "a  b c\n d 'e f's \xC3\xA4 \xC3\xA4 g h  \n\n i - j     k l\tm \nn o";
    char directory[TEMP_PATH_MAX], path[2 * TEMP_PATH_MAX], real[TEMP_PATH_MAX];
    handed h;
    (void)state;
    temp_dir_create(directory, "abc");
    temp_dir_write_text(directory, "train.txt", text);
    snprintf(path, sizeof path, "%s/train.txt", directory);
    for (size_t piece = 2; piece < sizeof text + 2; piece++) {
        memset(&h, 0, sizeof h);
        assert_int_equal(fgt_text_stream(path, piece, FGT_TRAIN, keep_text, &h), FGIO_EXIT_OK);
        assert_string_equal(h.text[FGT_TRAIN], text);
        assert_true(piece < sizeof text ? piece > 20 || h.pieces > 2 : h.pieces == 1);
    }
    if (real_data("tokenizers", real) != NULL) {
        fgio_bytes bytes;
        fgt_tokenizer *tokens = NULL;
        fgt_ids whole = {0}, pieces = {0};
        assert_int_equal(fgt_tokenizer_open(real, &tokens), FGIO_EXIT_OK);
        assert_non_null(real_data("wikitext-2/valid.txt.xz", real));
        assert_int_equal(fgio_unpack_file(real, 1 << 24, &bytes), FGIO_EXIT_OK);
        temp_dir_write(directory, "train.txt", bytes.data, bytes.len);
        assert_int_equal(fgt_tokenizer_encode(tokens, bytes.data, bytes.len, &whole), FGIO_EXIT_OK);
        void *both[] = {tokens, &pieces};
        assert_int_equal(fgt_text_stream(path, 100, FGT_TRAIN, encode_piece, both), FGIO_EXIT_OK);
        assert_int_equal(pieces.len, whole.len);
        assert_memory_equal(pieces.data, whole.data, whole.len * 2);
        fgt_ids_free(&whole);
        fgt_ids_free(&pieces);
        fgio_bytes_free(&bytes);
        fgt_tokenizer_close(tokens);
    }
    temp_dir_remove(directory);
}

enum { UNK, CLS, SEP, MASK, FIRST_LETTER };

/* A vocabulary of single letters, and a text of single letters. */
static void write_letters(const char *directory, char vocabulary[2 * TEMP_PATH_MAX]) {
    char text[8001], lines[256] = "[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    size_t used = strlen(lines);
    for (int i = 0; i < 26; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%c\n", 'a' + i);
    for (int i = 0; i < 4000; i++) {
        text[2 * i] = (char)('a' + i * 7 % 26);
        text[2 * i + 1] = ' ';
    }
    text[8000] = '\0';
    temp_dir_write_text(directory, "vocab.txt", lines);
    temp_dir_write_text(directory, "train.txt", text);
    text[200] = '\0';
    temp_dir_write_text(directory, "valid.txt", text);
    snprintf(vocabulary, 2 * TEMP_PATH_MAX, "%s/vocab.txt", directory);
}

/* Counts the outcomes for the tokens of one sample. */
static void count_masks(const fgt_batch *batch, size_t slot, uint32_t length, int counts[4]) {
    const int32_t *tokens = batch->tokens + slot * length, *targets = batch->targets + slot * length;
    int32_t len = batch->lengths[slot];
    int asked = 0;
    assert_int_equal(tokens[0], CLS);
    assert_int_equal(tokens[len - 1], SEP);
    for (int32_t t = 0; t < (int32_t)length; t++) {
        if (t == 0 || t >= len - 1)
            assert_int_equal(targets[t], -1);
        if (t >= len)
            assert_int_equal(tokens[t], 0);
        if (t == 0 || t >= len - 1)
            continue;
        asked += targets[t] >= 0;
        counts[targets[t] < 0 ? 0 : tokens[t] == MASK ? 1 : tokens[t] == targets[t] ? 2 : 3]++;
        assert_true(targets[t] < 0 || targets[t] >= FIRST_LETTER);
    }
    assert_true(asked > 0);
}

/* 40 epochs of 3,900 tokens; five deviations allowed. A random token may hit the mask or the token itself, 1 in 30
 * each. */
static void tokens_are_masked_by_the_rule(void **state) {
    char directory[TEMP_PATH_MAX], vocabulary[2 * TEMP_PATH_MAX];
    int counts[4] = {0};
    fgt_batch batch;
    (void)state;
    temp_dir_create(directory, "letters");
    write_letters(directory, vocabulary);
    fgt_data *data = open_text(FGT_TASK_MASKED, directory, vocabulary, 52);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_int_equal(info->vocab, 30);
    assert_int_equal(info->count[FGT_TRAIN], 79);
    assert_int_equal(info->count[FGT_VALID], 2);
    assert_int_equal(fgt_batch_create(info, 79, &batch), FGIO_EXIT_OK);
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        fgt_data_batch(data, FGT_TRAIN, epoch, 0, 79, &batch);
        for (size_t i = 0; i < 79; i++)
            count_masks(&batch, i, 52, counts);
    }
    double n = 40 * 79 * 50, hidden = counts[1] + counts[2] + counts[3];
    assert_true(fabs(hidden / n - 0.15) < 5 * sqrt(0.15 * 0.85 / n));
    assert_true(fabs(counts[1] / hidden - (0.8 + 0.1 / 30)) < 5 * sqrt(0.16 / hidden));
    assert_true(fabs(counts[2] / hidden - (0.1 + 0.1 / 30)) < 5 * sqrt(0.09 / hidden));
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void masks_change_in_training_only(void **state) {
    char directory[TEMP_PATH_MAX], vocabulary[2 * TEMP_PATH_MAX];
    fgt_batch a, b;
    (void)state;
    temp_dir_create(directory, "letters");
    write_letters(directory, vocabulary);
    fgt_data *data = open_text(FGT_TASK_MASKED, directory, vocabulary, 72);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_int_equal(fgt_batch_create(info, 2, &a), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(info, 2, &b), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_VALID, 0, 0, 2, &a);
    fgt_data_batch(data, FGT_VALID, 1, 0, 2, &b);
    assert_memory_equal(a.tokens, b.tokens, sizeof(int32_t[2 * 72]));
    assert_memory_equal(a.targets, b.targets, sizeof(int32_t[2 * 72]));
    assert_int_equal(a.lengths[0], 72);
    assert_int_equal(a.lengths[1], 32); /* 100 letters: 70 and 30 */
    fgt_data_batch(data, FGT_TRAIN, 0, 0, 2, &a);
    fgt_data_batch(data, FGT_TRAIN, 0, 0, 2, &b);
    assert_memory_equal(a.targets, b.targets, sizeof(int32_t[2 * 72]));
    fgt_data_batch(data, FGT_TRAIN, 1, 0, 2, &b);
    assert_memory_not_equal(a.targets, b.targets, sizeof(int32_t[2 * 72]));
    fgt_batch_destroy(&a);
    fgt_batch_destroy(&b);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

/* The real text through our tokenizer and the token id files beside it give the same batches. */
static void wikitext_encoded_here_equals_its_token_files(void **state) {
    char path[TEMP_PATH_MAX], tokens[TEMP_PATH_MAX];
    fgt_batch a, b;
    (void)state;
    if (real_data("wikitext-2", path) == NULL || real_data("tokenizers", tokens) == NULL)
        skip();
    fgt_data *made = open_text(FGT_TASK_LANGUAGE, path, tokens, 256);
    fgt_data *found = open_text(FGT_TASK_LANGUAGE, path, NULL, 256);
    const fgt_data_info *info = fgt_data_get_info(made);
    assert_string_equal(info->name, "wikitext-2");
    assert_memory_equal(info->count, fgt_data_get_info(found)->count, sizeof info->count);
    assert_int_equal(info->count[FGT_TRAIN], (2448382 - 256) / 256);
    assert_int_equal(fgt_batch_create(info, 100, &a), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(info, 100, &b), FGIO_EXIT_OK);
    for (fgt_split split = 0; split < FGT_SPLITS; split++) {
        fgt_data_batch(made, split, 3, 70, 100, &a);
        fgt_data_batch(found, split, 3, 70, 100, &b);
        assert_memory_equal(a.tokens, b.tokens, sizeof(int32_t[100 * 256]));
        assert_memory_equal(a.targets, b.targets, sizeof(int32_t[100 * 256]));
    }
    fgt_batch_destroy(&a);
    fgt_batch_destroy(&b);
    fgt_data_close(made);
    fgt_data_close(found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_shift_and_targets_follow),
        cmocka_unit_test(test_windows_cover_every_token_once),
        cmocka_unit_test(token_id_files_are_read),
        cmocka_unit_test(a_vocabulary_beside_token_ids_gives_its_size),
        cmocka_unit_test(token_ids_are_no_text),
        cmocka_unit_test(wrong_text_is_refused),
        cmocka_unit_test(tokens_are_masked_by_the_rule),
        cmocka_unit_test(masks_change_in_training_only),
        cmocka_unit_test(wikitext_encoded_here_equals_its_token_files),
        cmocka_unit_test(text_is_divided_into_three_splits),
        cmocka_unit_test(folders_of_text_are_read),
        cmocka_unit_test(streaming_gives_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
