/*
 * tsv.c - tab-separated tables. GLUE's files have no quoting, so a quotation mark is an ordinary character; the last
 * line may have no line end, lines may end in CR LF, and some files begin with a byte order mark.
 */
#include "trainer/data/tsv.h"

#include <string.h>
#include <strings.h>

void fgt_tsv_open(fgt_tsv *tsv, const unsigned char *text, size_t len) {
    *tsv = (fgt_tsv){.text = text, .len = len};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        tsv->at = 3;
}

int fgt_tsv_next(fgt_tsv *tsv, fgio_reason *why) {
    if (tsv->at >= tsv->len)
        return 0;
    const unsigned char *begin = tsv->text + tsv->at, *found = memchr(begin, '\n', tsv->len - tsv->at);
    size_t width = found == NULL ? tsv->len - tsv->at : (size_t)(found - begin);
    tsv->from = tsv->at;
    tsv->at += width + (found != NULL);
    tsv->row++;
    tsv->columns = 0;
    width -= width > 0 && begin[width - 1] == '\r';
    for (size_t i = 0; i <= width;) {
        const unsigned char *tab = i == width ? NULL : memchr(begin + i, '\t', width - i);
        size_t len = tab == NULL ? width - i : (size_t)(tab - begin) - i;
        if (tsv->columns == FGT_TSV_COLUMNS)
            return fgio_fail(why, "row %zu, byte %zu: expected at most %d columns", tsv->row, tsv->from + i,
                             FGT_TSV_COLUMNS);
        tsv->fields[tsv->columns++] = (fgt_tsv_field){begin + i, len};
        i += len + 1;
    }
    return 1;
}

int fgt_tsv_column(const fgt_tsv *tsv, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i < tsv->columns; i++)
        if (tsv->fields[i].len == len && strncasecmp((const char *)tsv->fields[i].text, name, len) == 0)
            return (int)i;
    return -1;
}

/* Digits with at most one decimal point; not strtod(), which depends on the locale. */
int fgt_tsv_number(const fgt_tsv_field *field, double *number) {
    double value = 0, scale = 1;
    size_t digits = 0, points = 0, begin = field->len > 0 && field->text[0] == '-';
    for (size_t i = begin; i < field->len; i++) {
        unsigned char c = field->text[i];
        if (c == '.' && points++ == 0)
            continue;
        if (c < '0' || c > '9' || ++digits > 15)
            return -1;
        value = value * 10 + (c - '0');
        scale *= points > 0 ? 10 : 1;
    }
    if (digits == 0)
        return -1;
    *number = (begin ? -value : value) / scale;
    return 0;
}
