/*
 * tar.c - tar archives. An entry is a header of 512 bytes and its content, padded to a multiple of 512. Names over 100
 * bytes are divided over two fields (ustar), or are the content of an entry before it: of type L (GNU), or a record
 * "path=" of type x (pax). Two headers of zeros end an archive.
 */
#include "io/tar.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, SKIP = 1 << 14, EXTENSION_MAX = 1 << 20 };

/* Fields of a header, their positions and lengths. */
enum { NAME = 0, NAME_LEN = 100, SIZE = 124, SIZE_LEN = 12, SUM = 148, SUM_LEN = 8, TYPE = 156, MAGIC = 257 };
enum { PREFIX = 345, PREFIX_LEN = 155 };

void fgio_tar_open(fgio_tar *tar, fgio_tar_read_fn *read, void *ctx) {
    *tar = (fgio_tar){.read = read, .ctx = ctx};
}

static int read_bytes(fgio_tar *tar, void *dst, size_t n, fgio_reason *why) {
    size_t got = 0;
    if (tar->read(tar->ctx, dst, n, &got, why) != 0)
        return -1;
    tar->offset += got;
    if (got < n)
        return fgio_fail(why, "byte %llu of the archive: it ends too early", (unsigned long long)tar->offset);
    return 0;
}

static int skip_bytes(fgio_tar *tar, uint64_t n, fgio_reason *why) {
    unsigned char scratch[SKIP];
    for (size_t piece; n > 0; n -= piece) {
        piece = n < SKIP ? (size_t)n : SKIP;
        if (read_bytes(tar, scratch, piece, why) != 0)
            return -1;
    }
    return 0;
}

/* A number in octal digits, with spaces before and after them, or from 8 GiB on in binary. Returns -1 if it is none. */
static int64_t parse_number(const unsigned char *field, size_t len) {
    uint64_t number = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        for (i = 1; i < len; i++) {
            if (number >> 54 != 0)
                return -1;
            number = number << 8 | field[i];
        }
        return field[0] == 0x80 ? (int64_t)number : -1;
    }
    while (i < len && field[i] == ' ')
        i++;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++)
        number = number << 3 | (uint64_t)(field[i] - '0');
    for (; i < len; i++)
        if (field[i] != ' ' && field[i] != '\0')
            return -1;
    return (int64_t)number;
}

static int is_zero(const unsigned char *block) {
    for (int i = 0; i < BLOCK; i++)
        if (block[i] != 0)
            return 0;
    return 1;
}

/* The sum of all bytes of a header, with spaces instead of the sum itself. */
static int sum_is_right(const unsigned char *block) {
    int64_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += i >= SUM && i < SUM + SUM_LEN ? ' ' : block[i];
    return parse_number(block + SUM, SUM_LEN) == sum;
}

static size_t field_length(const unsigned char *field, size_t cap) {
    const unsigned char *zero = memchr(field, 0, cap);
    return zero == NULL ? cap : (size_t)(zero - field);
}

/* The name in a header: "prefix/name", or the name alone. */
static void copy_name(fgio_tar *tar, const unsigned char *block) {
    size_t first = memcmp(block + MAGIC, "ustar\0", 6) == 0 ? field_length(block + PREFIX, PREFIX_LEN) : 0;
    size_t len = field_length(block + NAME, NAME_LEN);
    memcpy(tar->name, block + PREFIX, first);
    if (first > 0)
        tar->name[first++] = '/';
    memcpy(tar->name + first, block + NAME, len);
    tar->name[first + len] = '\0';
}

static int set_name(fgio_tar *tar, const char *name, size_t len, fgio_reason *why) {
    if (len == 0 || len > FGIO_TAR_NAME_MAX || memchr(name, 0, len) != NULL)
        return fgio_fail(why, "byte %llu of the archive: expected a name of 1 to %d bytes",
                         (unsigned long long)tar->offset, FGIO_TAR_NAME_MAX);
    memcpy(tar->name, name, len);
    tar->name[len] = '\0';
    return 1;
}

/* The records "LENGTH KEY=VALUE\n" of a pax header. Returns 1 if there is a path, 0 if not, -1 and why. */
static int parse_pax(fgio_tar *tar, const char *text, size_t len, fgio_reason *why) {
    int found = 0;
    for (size_t at = 0; at < len && found >= 0;) {
        size_t record = 0, digit = at;
        for (; digit < len && text[digit] >= '0' && text[digit] <= '9' && record <= len; digit++)
            record = 10 * record + (size_t)(text[digit] - '0');
        if (digit >= len || text[digit] != ' ' || record > len - at || record < digit - at + 2 ||
            text[at + record - 1] != '\n')
            return fgio_fail(why, "byte %llu of the archive: expected records of a pax header before it",
                             (unsigned long long)tar->offset);
        const char *key = text + digit + 1, *end = text + at + record - 1;
        if (end - key >= 5 && memcmp(key, "path=", 5) == 0)
            found = set_name(tar, key + 5, (size_t)(end - key - 5), why);
        at += record;
    }
    return found;
}

/* The content of an entry that names the next one. Returns 1 if it does, 0 if not, -1 and why. */
static int read_extension(fgio_tar *tar, char type, fgio_reason *why) {
    if (tar->size > EXTENSION_MAX)
        return fgio_fail(why, "byte %llu of the archive: a header of %llu bytes", (unsigned long long)tar->offset,
                         (unsigned long long)tar->size);
    char *text = malloc((size_t)tar->size + 1);
    int named = text == NULL ? fgio_fail(why, "not enough memory") : fgio_tar_content(tar, text, why);
    if (named == 0 && type == 'x')
        named = parse_pax(tar, text, (size_t)tar->size, why);
    else if (named == 0)
        named = set_name(tar, text, field_length((unsigned char *)text, (size_t)tar->size), why);
    free(text);
    return named;
}

/* Reads a header, after what is left of the entry before. Returns as fgio_tar_next(). */
static int read_header(fgio_tar *tar, unsigned char *block, fgio_reason *why) {
    if (skip_bytes(tar, tar->left + tar->padding, why) != 0)
        return -1;
    tar->left = tar->padding = 0;
    if (read_bytes(tar, block, BLOCK, why) != 0)
        return -1;
    if (is_zero(block))
        return 0;
    int64_t size = parse_number(block + SIZE, SIZE_LEN);
    if (!sum_is_right(block) || size < 0)
        return fgio_fail(why, "byte %llu of the archive: expected a header of tar",
                         (unsigned long long)(tar->offset - BLOCK));
    char type = (char)block[TYPE];
    tar->is_file = type == '0' || type == '\0' || type == '7';
    int has_content = !(type >= '1' && type <= '6'); /* links, devices, directories */
    tar->size = tar->left = has_content ? (uint64_t)size : 0;
    tar->padding = (BLOCK - tar->size % BLOCK) % BLOCK;
    return 1;
}

int fgio_tar_next(fgio_tar *tar, fgio_reason *why) {
    unsigned char block[BLOCK];
    int named = 0;
    for (;;) {
        int got = read_header(tar, block, why);
        if (got <= 0)
            return got;
        char type = (char)block[TYPE];
        if (type == 'L' || type == 'x') {
            int found = read_extension(tar, type, why);
            if (found < 0)
                return -1;
            named |= found;
        } else if (type != 'g' && type != 'K') {
            if (!named)
                copy_name(tar, block);
            return 1;
        }
    }
}

int fgio_tar_content(fgio_tar *tar, void *dst, fgio_reason *why) {
    size_t n = (size_t)tar->left;
    tar->left = 0;
    return read_bytes(tar, dst, n, why);
}
