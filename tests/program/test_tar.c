/*
 * test_tar.c - tar archives from memory: names in every form, sizes, links, and headers that are refused. cli_data.sh
 * reads archives that Python writes.
 */
#include "io/tar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 512, BLOCKS = 16 };

/** An archive, and how much of it has been read. */
typedef struct archive {
    unsigned char data[BLOCKS * BLOCK];
    size_t len, at;
} archive;

static int read_archive(void *ctx, void *dst, size_t n, size_t *got, fgio_reason *why) {
    archive *a = ctx;
    (void)why;
    *got = n < a->len - a->at ? n : a->len - a->at;
    memcpy(dst, a->data + a->at, *got);
    a->at += *got;
    return 0;
}

static void set_sum(unsigned char *header) {
    unsigned sum = 0;
    char digits[8];
    memset(header + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += header[i];
    snprintf(digits, sizeof digits, "%06o", sum);
    memcpy(header + 148, digits, 7);
}

/* Appends an entry; `size` is what its header says, or NULL for the length of the content. */
static unsigned char *add(archive *a, const char *name, char type, const char *size, const char *content) {
    unsigned char *header = a->data + a->len;
    char digits[16];
    snprintf(digits, sizeof digits, "%011o", (unsigned)strlen(content));
    memcpy(header, name, strlen(name));
    memcpy(header + 124, size == NULL ? digits : size, 11);
    header[156] = (unsigned char)type;
    set_sum(header);
    a->len += BLOCK;
    memcpy(a->data + a->len, content, strlen(content));
    a->len += (strlen(content) + BLOCK - 1) / BLOCK * BLOCK;
    return header;
}

static void assert_next(fgio_tar *tar, const char *name, int is_file, uint64_t size) {
    fgio_reason why = {""};
    if (fgio_tar_next(tar, &why) != 1)
        fail_msg("no entry: %s", why.text);
    assert_string_equal(tar->name, name);
    assert_int_equal(tar->is_file, is_file);
    assert_int_equal(tar->size, size);
}

static void assert_refused(archive *a, const char *reason) {
    fgio_tar tar;
    fgio_reason why = {""};
    fgio_tar_open(&tar, read_archive, a);
    int got;
    while ((got = fgio_tar_next(&tar, &why)) > 0)
        continue;
    if (got == 0 || strstr(why.text, reason) == NULL)
        fail_msg("%s; expected: %s", got == 0 ? "accepted" : why.text, reason);
}

static void entries_follow_each_other(void **state) {
    archive a = {.len = 0};
    fgio_tar tar;
    fgio_reason why = {""};
    char content[8] = "";
    (void)state;
    add(&a, "a.c", '0', NULL, "int x;\n");
    add(&a, "old.c", '\0', NULL, "skipped");
    add(&a, "link", '2', "00000001000", "");
    add(&a, "b.c", '0', NULL, "int y;\n");
    a.len += 2 * BLOCK;
    fgio_tar_open(&tar, read_archive, &a);
    assert_next(&tar, "a.c", 1, 7);
    assert_int_equal(fgio_tar_content(&tar, content, &why), 0);
    assert_string_equal(content, "int x;\n");
    assert_next(&tar, "old.c", 1, 7);
    assert_next(&tar, "link", 0, 0); /* no content, whatever the size says */
    assert_next(&tar, "b.c", 1, 7);
    assert_int_equal(fgio_tar_content(&tar, content, &why), 0);
    assert_string_equal(content, "int y;\n");
    assert_int_equal(fgio_tar_next(&tar, &why), 0);
}

static void names_have_four_forms(void **state) {
    archive a = {.len = 0};
    fgio_tar tar;
    fgio_reason why;
    (void)state;
    unsigned char *header = add(&a, "b.c", '0', NULL, "");
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    memcpy(header + 345, "folder", 6);
    set_sum(header);
    add(&a, "././@LongLink", 'L', NULL, "a/long/name.c");
    add(&a, "a/lon", '0', NULL, "");
    add(&a, "global", 'g', NULL, "12 path=no!\n");
    add(&a, "pax", 'x', NULL, "13 mtime=1.5\n16 path=pax/b.c\n");
    add(&a, "pax/", '0', NULL, "");
    add(&a, "plain.c", '0', NULL, "");
    a.len += BLOCK;
    fgio_tar_open(&tar, read_archive, &a);
    assert_next(&tar, "folder/b.c", 1, 0);
    assert_next(&tar, "a/long/name.c", 1, 0);
    assert_next(&tar, "pax/b.c", 1, 0);
    assert_next(&tar, "plain.c", 1, 0);
    assert_int_equal(fgio_tar_next(&tar, &why), 0);
}

static void sizes_from_8_gib_on_are_binary(void **state) {
    archive a = {.len = 0};
    fgio_tar tar;
    fgio_reason why;
    (void)state;
    unsigned char *header = add(&a, "big", '0', NULL, "");
    static const unsigned char size[12] = {0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1};
    memcpy(header + 124, size, 12);
    set_sum(header);
    fgio_tar_open(&tar, read_archive, &a);
    assert_next(&tar, "big", 1, (UINT64_C(2) << 32) + 1);
    assert_int_equal(fgio_tar_next(&tar, &why), -1);
}

static void damage_is_reported(void **state) {
    archive a = {.len = 0};
    (void)state;
    assert_refused(&a, "byte 0 of the archive: it ends too early");
    unsigned char *header = add(&a, "a.c", '0', NULL, "content");
    a.len = BLOCK + 100;
    archive cut = a;
    assert_refused(&cut, "byte 612 of the archive: it ends too early");
    header[3] ^= 1;
    assert_refused(&a, "byte 0 of the archive: expected a header of tar");
    archive sizes = {.len = 0};
    add(&sizes, "a.c", '0', "0000000000x", "");
    assert_refused(&sizes, "byte 0 of the archive: expected a header of tar");
    archive negative = {.len = 0};
    add(&negative, "a.c", '0', "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "");
    assert_refused(&negative, "byte 0 of the archive: expected a header of tar");
    archive longest = {.len = 0};
    add(&longest, "name", 'L', "00100000000", "");
    assert_refused(&longest, "a header of 16777216 bytes");
    archive empty = {.len = 0};
    add(&empty, "name", 'L', NULL, "");
    assert_refused(&empty, "expected a name of 1 to 4096 bytes");
    static const char *const wrong[] = {"99 path=x\n", "5 a=b", "path=x\n", "0 path=x\n", "9 path=\n", "8 path=\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        archive pax = {.len = 0};
        add(&pax, "pax", 'x', NULL, wrong[i]);
        assert_refused(&pax, i == 5 ? "expected a name of 1 to" : "expected records of a pax header");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_follow_each_other),
        cmocka_unit_test(names_have_four_forms),
        cmocka_unit_test(sizes_from_8_gib_on_are_binary),
        cmocka_unit_test(damage_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
