/*
 * test_tokens_wordpiece.c - BERT's WordPiece: splitting text into words and words into pieces, and the ids of GLUE's
 * rows against the oracle.
 */
#include "trainer/data/tsv.h"
#include "trainer/data/unicode.h"
#include "io/unpack_file.h"
#include "trainer/data/wordpiece.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/temp_files.h"

static const char lines[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n##a\naff\n,\n$\ncafe\n\xE6\x9C\xAC\n##s\ne\n";
enum { UNK = 1, UN = 5, AFF = 6, ABLE = 7, COMMA = 10, DOLLAR = 11, CAFE = 12, BOOK = 13, S = 14, E_ = 15 };

static fgt_wordpiece *make(const char *text) {
    fgt_wordpiece *pieces = NULL;
    fgio_reason why = {""};
    if (fgt_wordpiece_create((const unsigned char *)text, strlen(text), &pieces, &why) != 0)
        fail_msg("refused: %s", why.text);
    return pieces;
}

/* Twice, so that the second time the words come from the cache. */
static void assert_pieces(const fgt_wordpiece *pieces, const char *text, size_t n, const int32_t *expected) {
    fgt_wordpiece_cache cache = {0};
    fgt_ids ids = {0};
    for (int round = 0; round < 2; round++) {
        ids.len = 0;
        assert_int_equal(fgt_wordpiece_encode(pieces, &cache, (const unsigned char *)text, strlen(text), &ids), 0);
        assert_int_equal(ids.len, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(fgt_ids_at(&ids, i), expected[i]);
    }
    fgt_ids_free(&ids);
    fgt_wordpiece_cache_free(&cache);
}

static void text_is_encoded_to_pieces(void **state) {
    (void)state;
    fgt_wordpiece *p = make(lines);
    assert_pieces(p, "unaffable", 3, (int32_t[]){UN, AFF, ABLE});
    assert_pieces(p, "UnAffable,  un", 5, (int32_t[]){UN, AFF, ABLE, COMMA, UN});
    assert_pieces(p, "unaffx un", 2, (int32_t[]){UNK, UN}); /* the whole word is unknown */
    assert_pieces(p, "Caf\xC3\xA9s", 2, (int32_t[]){CAFE, S});
    assert_pieces(p, "Cafe\xCC\x81", 1, (int32_t[]){CAFE}); /* the accent as a character of its own */
    assert_pieces(p, "un$un", 3, (int32_t[]){UN, DOLLAR, UN});
    assert_pieces(p, "un\xE6\x9C\xACun", 3, (int32_t[]){UN, BOOK, UN});       /* Chinese stands alone */
    assert_pieces(p, "u\x01n\xC2\xAD\x0B\xC2\xA0un", 2, (int32_t[]){UN, UN}); /* controls vanish, a space separates */
    assert_pieces(p, "u\xFFn", 1, (int32_t[]){UN});
    assert_pieces(p, " \t\r\n", 0, NULL);
    assert_pieces(p, "", 0, NULL);
    assert_int_equal(fgt_wordpiece_vocab(p), 16);
    fgt_wordpiece_destroy(p);
}

static void words_over_a_hundred_characters_are_unknown(void **state) {
    char text[401];
    (void)state;
    fgt_wordpiece *p = make("[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n");
    int32_t expected[100];
    for (int i = 0; i < 100; i++)
        expected[i] = i == 0 ? 4 : 5;
    memset(text, 'a', 400);
    text[100] = '\0';
    assert_pieces(p, text, 100, expected);
    text[100] = 'a';
    text[101] = '\0';
    assert_pieces(p, text, 1, (int32_t[]){0});
    text[101] = 'a';
    text[400] = '\0';
    assert_pieces(p, text, 1, (int32_t[]){0});
    fgt_wordpiece_destroy(p);
}

static void incomplete_vocabularies_are_refused(void **state) {
    fgt_wordpiece *pieces = NULL;
    fgio_reason why;
    (void)state;
    assert_int_equal(fgt_wordpiece_create((const unsigned char *)"[UNK]\n[CLS]\n[SEP]\n", 18, &pieces, &why), -1);
    assert_non_null(strstr(why.text, "line 4: the end; expected a line '[MASK]'"));
    assert_int_equal(fgt_wordpiece_create((const unsigned char *)"[UNK]\n\nx\n", 9, &pieces, &why), -1);
    assert_non_null(strstr(why.text, "line 2, byte 6: expected a token"));
    assert_null(pieces);
}

static void characters_are_folded(void **state) {
    static const struct {
        uint32_t from, n, to[FGT_FOLD_MAX];
    } cases[] = {
        {'A', 1, {'a'}},
        {0xC4, 1, {'a'}},
        {0x130, 1, {'i'}},
        {0x301, 0, {0}},
        {0x1E69, 1, {'s'}},
        {0xDF, 1, {0xDF}},
        {0x393, 1, {0x3B3}},
        {0x1F80, 1, {0x3B1}},
        {0xAC01, 3, {0x1100, 0x1161, 0x11A8}},
        {0xAC00, 2, {0x1100, 0x1161}},
        {0x10400, 1, {0x10428}},
        {0x10FFFF, 1, {0x10FFFF}},
    };
    uint32_t folded[FGT_FOLD_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(fgt_char_fold(cases[i].from, folded), cases[i].n);
        assert_memory_equal(folded, cases[i].to, cases[i].n * sizeof *folded);
    }
    for (uint32_t point = 0; point < 0x110000; point++)
        assert_in_range(fgt_char_fold(point, folded), 0, FGT_FOLD_MAX);
}

static void utf8_round_trip(void **state) {
    unsigned char bytes[4];
    uint32_t point, back;
    (void)state;
    for (point = 0; point < 0x110000; point++) {
        size_t n = fgt_utf8_put(point, bytes);
        size_t got = fgt_utf8_get(bytes, n, &back);
        int surrogate = point >= 0xD800 && point <= 0xDFFF;
        assert_int_equal(got, surrogate ? 1 : n);
        assert_int_equal(back, surrogate ? FGT_REPLACEMENT : point);
        if (n > 1) /* cut short, it is broken */
            assert_int_equal(fgt_utf8_get(bytes, n - 1, &back), 1);
    }
    assert_int_equal(fgt_utf8_get((const unsigned char *)"\xC0\x80", 2, &back), 1); /* too long for what it says */
    assert_int_equal(back, FGT_REPLACEMENT);
}

/* One row of the oracle is numbers with spaces between them. */
static size_t compare_row(const fgt_ids *ids, char **at) {
    for (size_t i = 0; i < ids->len; i++) {
        char *end;
        long expected = strtol(*at, &end, 10);
        assert_ptr_not_equal(end, *at);
        assert_int_equal(fgt_ids_at(ids, i), expected);
        *at = end;
    }
    assert_true(**at == '\n' || **at == '\0');
    *at += **at == '\n';
    return ids->len;
}

static size_t compare_task(const fgt_wordpiece *pieces, const char *task, int header, int a, int b) {
    char name[64], path[TEMP_PATH_MAX];
    fgio_bytes rows, oracle;
    fgt_wordpiece_cache cache = {0};
    fgt_ids ids = {0};
    fgt_tsv tsv;
    fgio_reason why;
    const fgt_wordpiece_special *special = fgt_wordpiece_specials(pieces);
    snprintf(name, sizeof name, "glue/%s/dev.tsv.xz", task);
    assert_int_equal(fgio_unpack_file(real_data(name, path), UINT32_MAX, &rows), FGIO_EXIT_OK);
    snprintf(name, sizeof name, "tokenizers/oracle/bert_%s.dev.ids.txt.xz", task);
    assert_int_equal(fgio_unpack_file(real_data(name, path), UINT32_MAX, &oracle), FGIO_EXIT_OK);
    oracle.data = realloc(oracle.data, oracle.len + 1);
    assert_non_null(oracle.data);
    oracle.data[oracle.len] = '\0';
    char *at = (char *)oracle.data;
    size_t same = 0;
    fgt_tsv_open(&tsv, rows.data, rows.len);
    while (fgt_tsv_next(&tsv, &why) > 0) {
        const int columns[] = {a, b};
        if (tsv.row == 1 && header)
            continue;
        ids.len = 0;
        fgt_ids_push(&ids, special->first);
        for (int i = 0; i < 2 && columns[i] >= 0; i++) {
            const fgt_tsv_field *field = &tsv.fields[columns[i]];
            fgt_wordpiece_encode(pieces, &cache, field->text, field->len, &ids);
            fgt_ids_push(&ids, special->separator);
        }
        same += compare_row(&ids, &at);
    }
    assert_int_equal(*at, '\0');
    fgt_ids_free(&ids);
    fgt_wordpiece_cache_free(&cache);
    fgio_bytes_free(&rows);
    fgio_bytes_free(&oracle);
    return same;
}

static void glue_ids_match_the_oracle(void **state) {
    char path[TEMP_PATH_MAX];
    fgt_wordpiece *pieces;
    (void)state;
    if (real_data("glue", path) == NULL || real_data("tokenizers/bert_base_uncased_vocab.txt", path) == NULL)
        skip();
    assert_int_equal(fgt_wordpiece_open(path, &pieces), FGIO_EXIT_OK);
    assert_int_equal(compare_task(pieces, "SST-2", 1, 0, -1), 21943);
    assert_int_equal(compare_task(pieces, "CoLA", 0, 3, -1), 12174);
    assert_int_equal(compare_task(pieces, "MRPC", 1, 3, 4), 21723);
    fgt_wordpiece_destroy(pieces);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_encoded_to_pieces),
        cmocka_unit_test(words_over_a_hundred_characters_are_unknown),
        cmocka_unit_test(incomplete_vocabularies_are_refused),
        cmocka_unit_test(characters_are_folded),
        cmocka_unit_test(utf8_round_trip),
        cmocka_unit_test(glue_ids_match_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
