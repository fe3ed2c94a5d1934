/*
 * npy.c - the .npy format of NumPy.
 *
 * A magic string, a version, a header length and a Python dictionary literal with the keys 'descr', 'fortran_order' and
 * 'shape', then the elements. The literal is parsed by a small scanner for what NumPy writes: nothing is evaluated,
 * every step is bounded by the header's end, and sizes are compared with the bytes in the file. Source: NumPy
 * enhancement proposal 1 and numpy.lib.format.
 */
#include "program/compress/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct scanner {
    const unsigned char *at, *end;
    fgio_reason *why;
} scanner;

enum { KEY_DESCR = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

int fgp_npy_is(const unsigned char *bytes, size_t len) {
    return len >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

static void skip_space(scanner *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

/* Consume a character, after any space; 0 if the next one is another. */
static int accept_char(scanner *s, char c) {
    skip_space(s);
    if (s->at == s->end || *s->at != (unsigned char)c)
        return 0;
    s->at++;
    return 1;
}

static int expect_char(scanner *s, char c) {
    return accept_char(s, c) ? 0 : fgio_fail(s->why, "npy header: '%c' is missing", c);
}

static int accept_word(scanner *s, const char *word) {
    size_t length = strlen(word);
    skip_space(s);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return 0;
    s->at += length;
    return 1;
}

/* A string without escapes, in either kind of quotes, copied with a zero byte. */
static int read_string(scanner *s, char *dst, size_t cap) {
    size_t length = 0;
    char quote = accept_char(s, '\'') ? '\'' : '"';
    if (quote == '"' && !accept_char(s, '"'))
        return fgio_fail(s->why, "npy header: a quoted string is missing");
    for (; s->at < s->end && *s->at != (unsigned char)quote; s->at++) {
        if (length + 1 >= cap || *s->at == '\\' || *s->at < 0x20)
            return fgio_fail(s->why, "npy header: a string is too long or has unexpected characters");
        dst[length++] = (char)*s->at;
    }
    dst[length] = '\0';
    return expect_char(s, quote);
}

static int read_number(scanner *s, uint64_t *number) {
    uint64_t value = 0;
    skip_space(s);
    const unsigned char *start = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (value > (UINT64_MAX - 9) / 10)
            return fgio_fail(s->why, "npy header: a dimension is too large");
        value = value * 10 + (uint64_t)(*s->at - '0');
    }
    if (s->at == start)
        return fgio_fail(s->why, "npy header: the shape holds something that is not a whole number");
    accept_char(s, 'L'); /* as Python 2 wrote them */
    *number = value;
    return 0;
}

static int read_shape(scanner *s, fgio_tensor *item) {
    int comma = 1;
    if (expect_char(s, '(') != 0)
        return -1;
    for (item->ndim = 0; !accept_char(s, ')'); item->ndim++) {
        if (!comma)
            return fgio_fail(s->why, "npy header: ',' is missing in the shape");
        if (item->ndim == FRUG_MAX_DIMS)
            return fgio_fail(s->why, "has more than %d dimensions", FRUG_MAX_DIMS);
        if (read_number(s, &item->shape[item->ndim]) != 0)
            return -1;
        comma = accept_char(s, ',');
    }
    if (item->ndim == 1 && !comma)
        return fgio_fail(s->why, "npy header: the shape is not a tuple");
    return 0;
}

static int read_descr(scanner *s, fgio_tensor *item) {
    char descr[32];
    skip_space(s);
    if (s->at < s->end && *s->at == '[')
        return fgio_fail(s->why, "holds records, not plain numbers");
    if (read_string(s, descr, sizeof descr) != 0)
        return -1;
    item->big_endian = descr[0] == '>';
    if (descr[0] != '<' && descr[0] != '>')
        item->dtype = FGIO_OTHER8;
    else if (strcmp(descr + 1, "f4") == 0)
        item->dtype = FGIO_F32;
    else if (strcmp(descr + 1, "f8") == 0)
        item->dtype = FGIO_F64;
    else if (strcmp(descr + 1, "f2") == 0)
        item->dtype = FGIO_F16;
    else
        item->dtype = FGIO_OTHER8;
    if (!fgio_tensor_is_float(item))
        return fgio_fail(s->why, "holds elements of type '%s'; only f2, f4 and f8 can be read", descr);
    return 0;
}

static int read_order(scanner *s, fgio_tensor *item) {
    if (accept_word(s, "True"))
        item->fortran = 1;
    else if (accept_word(s, "False"))
        item->fortran = 0;
    else
        return fgio_fail(s->why, "npy header: fortran_order is neither True nor False");
    return 0;
}

/* One 'key': value pair; *seen collects the keys. */
static int read_pair(scanner *s, fgio_tensor *item, unsigned *seen) {
    char key[32];
    if (read_string(s, key, sizeof key) != 0 || expect_char(s, ':') != 0)
        return -1;
    unsigned bit = strcmp(key, "descr") == 0           ? KEY_DESCR
                   : strcmp(key, "fortran_order") == 0 ? KEY_ORDER
                   : strcmp(key, "shape") == 0         ? KEY_SHAPE
                                                       : 0;
    if (bit == 0)
        return fgio_fail(s->why, "npy header: unknown key '%s'", key);
    if (*seen & bit)
        return fgio_fail(s->why, "npy header: duplicate key '%s'", key);
    *seen |= bit;
    return bit == KEY_DESCR ? read_descr(s, item) : bit == KEY_ORDER ? read_order(s, item) : read_shape(s, item);
}

static int read_dictionary(scanner *s, fgio_tensor *item) {
    unsigned seen = 0;
    int comma = 1;
    if (expect_char(s, '{') != 0)
        return -1;
    while (!accept_char(s, '}')) {
        if (!comma)
            return fgio_fail(s->why, "npy header: ',' is missing between keys");
        if (read_pair(s, item, &seen) != 0)
            return -1;
        comma = accept_char(s, ',');
    }
    skip_space(s);
    if (seen != KEY_ALL || s->at != s->end)
        return fgio_fail(s->why,
                         seen != KEY_ALL ? "npy header: a key is missing" : "npy header: unexpected text at the end");
    return 0;
}

/* The range of the dictionary, from the fixed part of the header. */
static int find_header(const unsigned char *bytes, size_t len, size_t *begin, size_t *end, fgio_reason *why) {
    if (!fgp_npy_is(bytes, len))
        return fgio_fail(why, "is not a .npy file");
    if (len < 8)
        return fgio_fail(why, "ends inside the npy header");
    if (bytes[6] < 1 || bytes[6] > 3)
        return fgio_fail(why, "has npy version %d.%d, which is unknown", bytes[6], bytes[7]);
    size_t width = bytes[6] == 1 ? 2 : 4, header = 0;
    if (len < 8 + width)
        return fgio_fail(why, "ends inside the npy header");
    for (size_t i = 0; i < width; i++)
        header |= (size_t)bytes[8 + i] << 8 * i;
    if (header > len - 8 - width)
        return fgio_fail(why, "ends inside the npy header");
    *begin = 8 + width;
    *end = *begin + header;
    return 0;
}

int fgp_npy_parse(const unsigned char *bytes, size_t len, fgio_tensor *item, fgio_reason *why) {
    fgio_tensor parsed = {.name = NULL};
    size_t begin = 0, end = 0;
    if (find_header(bytes, len, &begin, &end, why) != 0)
        return -1;
    scanner s = {bytes + begin, bytes + end, why};
    if (read_dictionary(&s, &parsed) != 0 || fgio_tensor_set_count(&parsed, why) != 0)
        return -1;
    uint64_t need = parsed.count * fgio_dtype_size(parsed.dtype);
    if (need != len - end)
        return fgio_fail(why, "the shape needs %" PRIu64 " bytes of data, the file has %zu", need, len - end);
    parsed.data = bytes + end;
    *item = parsed;
    return 0;
}

size_t fgp_npy_header(uint32_t ndim, const uint64_t *shape, unsigned char dst[FGP_NPY_HEADER_MAX]) {
    char text[FGP_NPY_HEADER_MAX];
    size_t used = (size_t)snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (uint32_t d = 0; d < ndim; d++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64, d == 0 ? "" : ", ", shape[d]);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s), }", ndim == 1 ? "," : "");

    size_t total = (10 + used + 1 + 63) / 64 * 64; /* NumPy aligns the data to 64 bytes with spaces and a line end */
    memcpy(dst, magic, sizeof magic);
    dst[6] = 1;
    dst[7] = 0;
    dst[8] = (unsigned char)(total - 10);
    dst[9] = (unsigned char)((total - 10) >> 8);
    memcpy(dst + 10, text, used);
    memset(dst + 10 + used, ' ', total - 10 - used);
    dst[total - 1] = '\n';
    return total;
}
