/*
 * unicode.c - UTF-8; classes by binary search over ranges; folding by binary search over code points. Letters and
 * digits of ASCII, which are nearly all text, need no search. The tables are generated from Python's unicodedata by
 * tools/make_unicode.py.
 */
#include "trainer/data/unicode.h"

typedef struct unicode_range {
    uint32_t first, last;
    fgt_char kind;
} unicode_range;

#include "trainer/data/unicode_tables.inc"

enum {
    HANGUL = 0xAC00,
    HANGUL_LAST = 0xD7A3,
    JAMO_L = 0x1100,
    JAMO_V = 0x1161,
    JAMO_T = 0x11A7,
    JAMO_VS = 21,
    JAMO_TS = 28
};

static int is_continuation(unsigned char byte) {
    return (byte & 0xC0) == 0x80;
}

size_t fgt_utf8_get(const unsigned char *text, size_t len, uint32_t *point) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = text[0];
    if (first < 0x80) {
        *point = first;
        return 1;
    }
    size_t width = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    uint32_t c = first & (0x7Fu >> width);
    *point = FGT_REPLACEMENT;
    if (first < 0xC2 || first > 0xF4 || width > len)
        return 1;
    for (size_t i = 1; i < width; i++) {
        if (!is_continuation(text[i]))
            return 1;
        c = c << 6 | (text[i] & 0x3Fu);
    }
    if (c < least[width] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 1;
    *point = c;
    return width;
}

size_t fgt_utf8_put(uint32_t point, unsigned char *dst) {
    if (point < 0x80) {
        dst[0] = (unsigned char)point;
        return 1;
    }
    size_t width = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = width - 1; i > 0; i--, point >>= 6)
        dst[i] = (unsigned char)(0x80 | (point & 0x3F));
    dst[0] = (unsigned char)((0xF00u >> width & 0xFF) | point);
    return width;
}

static fgt_char ascii_class(uint32_t point) {
    if ((point | 32) >= 'a' && (point | 32) <= 'z')
        return FGT_CHAR_LETTER;
    if (point >= '0' && point <= '9')
        return FGT_CHAR_NUMBER;
    return FGT_CHAR_OTHER;
}

fgt_char fgt_char_class(uint32_t point) {
    fgt_char quick = point < 0x80 ? ascii_class(point) : FGT_CHAR_OTHER;
    if (quick != FGT_CHAR_OTHER)
        return quick;
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof ranges / sizeof *ranges && point >= ranges[low].first ? ranges[low].kind : FGT_CHAR_OTHER;
}

static size_t fold_hangul(uint32_t point, uint32_t *dst) {
    uint32_t s = point - HANGUL, t = s % JAMO_TS;
    dst[0] = JAMO_L + s / (JAMO_VS * JAMO_TS);
    dst[1] = JAMO_V + s % (JAMO_VS * JAMO_TS) / JAMO_TS;
    dst[2] = JAMO_T + t;
    return t == 0 ? 2 : 3;
}

size_t fgt_char_fold(uint32_t point, uint32_t *dst) {
    if (point >= HANGUL && point <= HANGUL_LAST)
        return fold_hangul(point, dst);
    size_t low = 0, high = sizeof fold_from / sizeof *fold_from, count = high;
    dst[0] = point;
    if (point < 0x80) {
        dst[0] += point >= 'A' && point <= 'Z' ? 32u : 0u;
        return 1;
    }
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > fold_from[middle])
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count || fold_from[low] != point)
        return 1;
    size_t n = (size_t)(fold_at[low + 1] - fold_at[low]);
    for (size_t i = 0; i < n; i++)
        dst[i] = fold_to[fold_at[low] + i];
    return n;
}
