/*
 * test_tokens_bpe.c - GPT-2's byte-level BPE: words are split by its rule, pairs are merged by rank, decoding restores
 * the text byte for byte, invalid files are refused with a position, and the ids of all of WikiText-2 match the oracle.
 */
#include "trainer/data/bpe.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/tokenizer.h"
#include "trainer/data/unicode.h"
#include "io/unpack_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/temp_files.h"

/* encoder.json of all bytes, numbered by value, and some more tokens. */
static char *vocabulary(const char *more) {
    char *json = malloc(8192), *at = json;
    int next = 256;
    assert_non_null(json);
    *at++ = '{';
    for (int b = 0; b < 256; b++) {
        int plain = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        at += sprintf(at, "\"\\u%04x\": %d, ", (unsigned)(plain ? b : next++), b);
    }
    sprintf(at, "%s}", more);
    return json;
}

static fgt_bpe *make(const char *more, const char *merges) {
    fgt_bpe *bpe = NULL;
    fgio_reason why = {""};
    char *json = vocabulary(more);
    if (fgt_bpe_create((unsigned char *)json, strlen(json), &bpe, &why) != 0 ||
        fgt_bpe_merges(bpe, (const unsigned char *)merges, strlen(merges), &why) != 0)
        fail_msg("refused: %s", why.text);
    free(json);
    return bpe;
}

static void assert_refused(const char *more, const char *merges, const char *reason) {
    fgt_bpe *bpe = NULL;
    fgio_reason why = {""};
    char *json = vocabulary(more);
    if (fgt_bpe_create((unsigned char *)json, strlen(json), &bpe, &why) == 0 &&
        fgt_bpe_merges(bpe, (const unsigned char *)merges, strlen(merges), &why) == 0)
        fail_msg("accepted; expected: %s", reason);
    if (strstr(why.text, reason) == NULL)
        fail_msg("refused with '%s'; expected: %s", why.text, reason);
    fgt_bpe_destroy(bpe);
    free(json);
}

/* `expected` has the words with a bar between them. */
static void assert_cut(const char *text, const char *expected) {
    char got[256] = "";
    size_t len = strlen(text), used = 0;
    for (size_t at = 0, end; at < len; at = end) {
        end = fgt_bpe_word_end((const unsigned char *)text, len, at);
        assert_true(end > at && end <= len);
        used +=
            (size_t)snprintf(got + used, sizeof got - used, "%s%.*s", at == 0 ? "" : "|", (int)(end - at), text + at);
    }
    assert_string_equal(got, expected);
}

static void words_are_split_by_the_rule(void **state) {
    (void)state;
    assert_cut("Hello world", "Hello| world");
    assert_cut("it's we'll I'd 'tis o'clock", "it|'s| we|'ll| I|'d| '|tis| o|'|clock");
    assert_cut("abc123 45,6", "abc|123| 45|,|6");
    assert_cut("a  b", "a| | b");
    assert_cut("a   b", "a|  | b");
    assert_cut("a \n b", "a| \n| b");
    assert_cut("a\nb", "a|\n|b");
    assert_cut("a\n\nb", "a|\n|\n|b");
    assert_cut("end  ", "end|  ");
    assert_cut("  ", "  ");
    assert_cut("wait... what?!", "wait|...| what|?!");
    assert_cut("\xC3\x89t\xC3\xA9 \xE6\x9C\xAC\xC2\xBD",
               "\xC3\x89t\xC3\xA9| \xE6\x9C\xAC|\xC2\xBD"); /* 1/2 is a number */
    assert_cut("a\xC2\xA0 b", "a|\xC2\xA0| b");             /* no-break space */
    assert_cut("a\xFF\xFE!b", "a|\xFF\xFE!|b");             /* broken bytes count as signs */
}

static void assert_ids(const fgt_bpe *bpe, const char *text, size_t n, const int32_t *expected) {
    fgt_ids ids = {0};
    assert_int_equal(fgt_bpe_encode(bpe, (const unsigned char *)text, strlen(text), &ids), 0);
    assert_int_equal(ids.len, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fgt_ids_at(&ids, i), expected[i]);
    fgt_ids_free(&ids);
}

/* Merges in order of rank: b+c before a+b, so that abc is a|bc unless a+bc is a merge too. */
static void lower_ranks_merge_first(void **state) {
    (void)state;
    fgt_bpe *bpe = make("\"bc\": 256, \"ab\": 257, \"aa\": 258, \"aaaa\": 259, \"<|endoftext|>\": 260",
                        "#version: 0.2\nb c\na b\na a\naa aa\n");
    assert_ids(bpe, "abc", 2, (int32_t[]){'a', 256});
    assert_ids(bpe, "abab", 2, (int32_t[]){257, 257});
    assert_ids(bpe, "aaa", 2, (int32_t[]){258, 'a'});
    assert_ids(bpe, "aaaaaaa", 3, (int32_t[]){259, 258, 'a'});
    assert_ids(bpe, " aa", 2, (int32_t[]){' ', 258});
    assert_int_equal(fgt_bpe_end(bpe), 260);
    assert_int_equal(fgt_bpe_vocab(bpe), 261);
    fgt_bpe_destroy(bpe);
}

/* Quadratic work would take minutes here. */
static void long_word_is_encoded_in_n_log_n(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    fgt_bpe *bpe = make("\"aa\": 256, \"aaaa\": 257, \"aaaaaaaa\": 258", "a a\naa aa\naaaa aaaa\n");
    unsigned char *text = malloc(N + 3);
    fgt_ids ids = {0};
    assert_non_null(text);
    memset(text, 'a', N + 3);
    assert_int_equal(fgt_bpe_encode(bpe, text, N + 3, &ids), 0);
    assert_int_equal(ids.len, N / 8 + 2);
    assert_int_equal(fgt_ids_at(&ids, 0), 258);
    assert_int_equal(fgt_ids_at(&ids, N / 8), 256);
    fgt_ids_free(&ids);
    free(text);
    fgt_bpe_destroy(bpe);
}

static void invalid_files_are_refused_with_a_position(void **state) {
    (void)state;
    fgt_bpe *bpe = NULL;
    fgio_reason why;
    assert_int_equal(fgt_bpe_create((const unsigned char *)"{\"a\": }", 7, &bpe, &why), -1);
    assert_non_null(strstr(why.text, "byte 7: expected JSON"));
    assert_int_equal(fgt_bpe_create((const unsigned char *)"[1]", 3, &bpe, &why), -1);
    assert_non_null(strstr(why.text, "expected a JSON object of 256"));
    assert_refused("\"ab\": 255", "", "token 'ab': expected a number of its own below 257");
    assert_refused("\"ab\": 257", "", "token 'ab'");
    assert_refused("\"ab\": \"x\"", "", "token 'ab'");
    assert_refused("\"ab\": 256, \"ab\": 257", "", "expected JSON");
    assert_refused("\"ab\": 256", "a b\na b\n", "line 2, byte 4: expected two tokens");
    assert_refused("\"ab\": 256", "#version\na c\n", "line 2, byte 9: expected two tokens");
    assert_refused("\"ab\": 256, \"abc\": 257", "ab c\na b\n", "line 1, byte 0"); /* ab is not made yet */
    assert_refused("\"ab\": 256", "ab\n", "line 1, byte 0");
    char *json = vocabulary("\"x\\u0021\": 256");
    memcpy(strstr(json, "\"\\u0078\""), "\"\\u0378\"", 8); /* x becomes something else */
    assert_int_equal(fgt_bpe_create((unsigned char *)json, strlen(json), &bpe, &why), -1);
    assert_non_null(strstr(why.text, "no token for byte 0x78"));
    free(json);
}

static void bytes_come_back(const fgt_tokenizer *tokens) {
    enum { N = 5000 };
    unsigned char text[N];
    int32_t list[N];
    fgt_ids ids = {0};
    fgio_bytes back;
    for (uint64_t i = 0; i < N; i++) /* random bytes, half of them printable; seed 1 */
        text[i] = (unsigned char)(fgt_random(1, 0, i) % (fgt_random(1, 1, i) % 2 == 0 ? 256 : 128));
    assert_int_equal(fgt_tokenizer_encode(tokens, text, N, &ids), FGIO_EXIT_OK);
    assert_true(ids.len <= N);
    for (size_t i = 0; i < ids.len; i++)
        list[i] = fgt_ids_at(&ids, i);
    assert_int_equal(fgt_tokenizer_decode(tokens, list, ids.len, &back), FGIO_EXIT_OK);
    assert_int_equal(back.len, N);
    assert_memory_equal(back.data, text, N);
    fgio_bytes_free(&back);
    fgt_ids_free(&ids);
}

static void decoding_restores_the_text(void **state) {
    char path[TEMP_PATH_MAX];
    size_t len;
    fgt_tokenizer *tokens;
    (void)state;
    assert_int_equal(fgt_tokenizer_open("bytes", &tokens), FGIO_EXIT_OK);
    bytes_come_back(tokens);
    assert_int_equal(fgt_tokenizer_vocab(tokens), 256);
    assert_int_equal(*fgt_tokenizer_piece(tokens, 'x', &len), 'x');
    fgt_tokenizer_piece(tokens, 256, &len);
    assert_int_equal(len, 0);
    fgt_tokenizer_close(tokens);
    if (real_data("tokenizers", path) == NULL)
        return;
    assert_int_equal(fgt_tokenizer_open(path, &tokens), FGIO_EXIT_OK);
    bytes_come_back(tokens);
    fgt_tokenizer_close(tokens);
}

static void directory_without_files_is_refused(void **state) {
    char directory[TEMP_PATH_MAX];
    stderr_capture c;
    fgt_tokenizer *tokens = NULL;
    (void)state;
    temp_dir_create(directory, "empty");
    stderr_capture_begin(&c);
    int status = fgt_tokenizer_open(directory, &tokens);
    assert_non_null(strstr(stderr_capture_end(&c), "expected 'encoder.json' in this directory"));
    assert_int_equal(status, FGIO_EXIT_FAIL);
    assert_null(tokens);
    temp_dir_remove(directory);
}

static size_t compare_split(const fgt_tokenizer *tokens, const char *split) {
    char name[64], path[TEMP_PATH_MAX];
    fgio_bytes text, oracle;
    fgt_ids ids = {0};
    snprintf(name, sizeof name, "wikitext-2/%s.txt.xz", split);
    assert_int_equal(fgio_unpack_file(real_data(name, path), UINT32_MAX, &text), FGIO_EXIT_OK);
    snprintf(name, sizeof name, "wikitext-2/%s.gpt2bpe.u16.xz", split);
    assert_int_equal(fgio_unpack_file(real_data(name, path), UINT32_MAX, &oracle), FGIO_EXIT_OK);
    assert_int_equal(fgt_tokenizer_encode(tokens, text.data, text.len, &ids), FGIO_EXIT_OK);
    assert_int_equal(ids.len, oracle.len / 2);
    size_t same = 0;
    for (; same < ids.len; same++)
        if (fgt_ids_at(&ids, same) != (oracle.data[2 * same] | oracle.data[2 * same + 1] << 8))
            fail_msg("%s: token %zu differs", split, same);
    fgt_ids_free(&ids);
    fgio_bytes_free(&text);
    fgio_bytes_free(&oracle);
    return same;
}

static void wikitext_ids_match_the_oracle(void **state) {
    char path[TEMP_PATH_MAX];
    fgt_tokenizer *tokens;
    size_t same = 0;
    (void)state;
    if (real_data("wikitext-2/train.txt.xz", path) == NULL || real_data("tokenizers", path) == NULL)
        skip();
    assert_int_equal(fgt_tokenizer_open(path, &tokens), FGIO_EXIT_OK);
    assert_int_equal(fgt_tokenizer_vocab(tokens), 50257);
    assert_int_equal(fgt_tokenizer_end(tokens), 50256);
    same += compare_split(tokens, "train");
    same += compare_split(tokens, "valid");
    same += compare_split(tokens, "test");
    assert_int_equal(same, 2448382 + 258659 + 295877);
    fgt_tokenizer_close(tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_split_by_the_rule),     cmocka_unit_test(lower_ranks_merge_first),
        cmocka_unit_test(long_word_is_encoded_in_n_log_n), cmocka_unit_test(invalid_files_are_refused_with_a_position),
        cmocka_unit_test(decoding_restores_the_text),      cmocka_unit_test(directory_without_files_is_refused),
        cmocka_unit_test(wikitext_ids_match_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
