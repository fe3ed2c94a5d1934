/*
 * table_sheet.c - a table in three formats. Empty columns are omitted, so that one list of columns works for every
 * suite. Widths count characters and not bytes.
 */
#include "lab/report/table_sheet.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void fgl_sheet_row(fgl_sheet *sheet) {
    if (sheet->rows == sheet->cap) {
        size_t cap = 2 * sheet->cap + 8;
        void *word = realloc(sheet->word, cap * sheet->columns * sizeof *sheet->word);
        if (word == NULL) {
            sheet->failed = 1;
            return;
        }
        sheet->word = word;
        sheet->cap = cap;
    }
    memset(sheet->word + sheet->rows * sheet->columns, 0, sheet->columns * sizeof *sheet->word);
    sheet->rows++;
}

void fgl_sheet_set(fgl_sheet *sheet, size_t column, const char *format, ...) {
    va_list list;
    if (sheet->failed || sheet->rows == 0 || column >= sheet->columns)
        return;
    char *word = sheet->word[(sheet->rows - 1) * sheet->columns + column];
    va_start(list, format);
    int len = vsnprintf(word, FGL_SHEET_WORD, format, list);
    va_end(list);
    if (len >= FGL_SHEET_WORD) { /* drop an incomplete character at the end */
        size_t end = FGL_SHEET_WORD - 1;
        while (end > 0 && ((unsigned char)word[end - 1] & 0xc0) == 0x80)
            end--;
        word[end > 0 && ((unsigned char)word[end - 1] & 0x80) != 0 ? end - 1 : FGL_SHEET_WORD - 1] = '\0';
    }
}

static const char *word_at(const fgl_sheet *sheet, size_t row, size_t column) {
    return sheet->word[row * sheet->columns + column];
}

static bool has_words(const fgl_sheet *sheet, size_t column) {
    return column == 0 || (sheet->words >> column & 1u) != 0;
}

static size_t width_of(const fgl_sheet *sheet, size_t column) {
    size_t width = 0;
    for (size_t r = 0; r < sheet->rows; r++) {
        size_t columns = fgl_text_columns(word_at(sheet, r, column));
        width = columns > width ? columns : width;
    }
    size_t head = fgl_text_columns(sheet->head[column]);
    return width == 0 || width > head ? width : head;
}

static void put_padded(fgl_text *to, const char *word, size_t width, bool right) {
    size_t columns = fgl_text_columns(word);
    int gap = columns < width ? (int)(width - columns) : 0;
    if (right)
        fgl_put(to, "%*s%s", gap, "", word);
    else
        fgl_put(to, "%s%*s", word, gap, "");
}

/* Labels may contain control characters, which must not reach a terminal. */
static void put_line(const fgl_sheet *sheet, const size_t *width, long row, fgl_text *to) {
    for (size_t c = 0; c < sheet->columns; c++) {
        char clean[FGL_SHEET_WORD];
        if (width[c] == 0)
            continue;
        fgio_printable(row < 0 ? sheet->head[c] : word_at(sheet, (size_t)row, c), clean, sizeof clean);
        fgl_put_raw(to, c > 0 ? "  " : "");
        put_padded(to, clean, width[c], !has_words(sheet, c));
    }
    fgl_put_raw(to, "\n");
}

void fgl_put_plain(fgl_text *to, const char *words, bool markdown) {
    char clean[512];
    fgio_printable(words, clean, sizeof clean);
    for (const char *p = clean; *p != '\0'; p++)
        fgl_put(to, markdown && strchr("|<>`*_[]\\&", *p) != NULL ? "\\%c" : "%c", *p);
}

/* Labels may contain Markdown, which is escaped. */
static void put_markdown_row(const fgl_sheet *sheet, const size_t *width, long row, fgl_text *to) {
    for (size_t c = 0; c < sheet->columns; c++) {
        if (width[c] == 0)
            continue;
        fgl_put_raw(to, "| ");
        fgl_put_plain(to, row < 0 ? sheet->head[c] : word_at(sheet, (size_t)row, c), true);
        fgl_put_raw(to, " ");
    }
    fgl_put_raw(to, "|\n");
}

static void put_rule(const fgl_sheet *sheet, const size_t *width, fgl_text *to) {
    for (size_t c = 0; c < sheet->columns; c++)
        if (width[c] > 0)
            fgl_put(to, "%s", has_words(sheet, c) ? "|---" : "|---:");
    fgl_put_raw(to, "|\n");
}

static void put_html_row(const fgl_sheet *sheet, const size_t *width, long row, fgl_text *to) {
    fgl_put_raw(to, "<tr>");
    for (size_t c = 0; c < sheet->columns; c++) {
        const char *tag = row < 0 || c == 0 ? "th" : "td";
        if (width[c] == 0)
            continue;
        fgl_put(to, "<%s%s%s>", tag,
                row < 0  ? " scope=\"col\""
                : c == 0 ? " scope=\"row\""
                         : "",
                c > 0 && has_words(sheet, c) ? " class=\"w\"" : "");
        fgl_put_escaped(to, row < 0 ? sheet->head[c] : word_at(sheet, (size_t)row, c));
        fgl_put(to, "</%s>", tag);
    }
    fgl_put_raw(to, "</tr>\n");
}

void fgl_sheet_put(const fgl_sheet *sheet, fgl_table_style style, fgl_text *to) {
    size_t width[FGL_SHEET_COLUMNS] = {0};
    to->failed |= sheet->failed;
    for (size_t c = 0; c < sheet->columns && !sheet->failed; c++)
        width[c] = width_of(sheet, c);
    if (style == FGL_TABLE_HTML)
        fgl_put_raw(to, "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead>");
    for (long r = -1; r < (long)sheet->rows && !sheet->failed; r++) {
        if (style == FGL_TABLE_HTML)
            put_html_row(sheet, width, r, to);
        else if (style == FGL_TABLE_MARKDOWN)
            put_markdown_row(sheet, width, r, to);
        else
            put_line(sheet, width, r, to);
        if (r < 0 && style == FGL_TABLE_MARKDOWN)
            put_rule(sheet, width, to);
        else if (r < 0 && style == FGL_TABLE_HTML)
            fgl_put_raw(to, "</thead><tbody>\n");
    }
    fgl_put_raw(to, style == FGL_TABLE_HTML ? "</tbody></table></div>\n" : "");
}

void fgl_sheet_free(fgl_sheet *sheet) {
    free(sheet->word);
    *sheet = (fgl_sheet){0};
}
