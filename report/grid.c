/*
 * A table in three forms. Columns that have nothing to say are left out, so that one list of columns serves every
 * suite. Widths count characters and not bytes.
 */
#include "grid.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void frugi_grid_row(frugi_grid *grid) {
    if (grid->rows == grid->cap) {
        size_t cap = 2 * grid->cap + 8;
        void *word = realloc(grid->word, cap * grid->columns * sizeof *grid->word);
        if (word == NULL) {
            grid->failed = 1;
            return;
        }
        grid->word = word;
        grid->cap = cap;
    }
    memset(grid->word + grid->rows * grid->columns, 0, grid->columns * sizeof *grid->word);
    grid->rows++;
}

void frugi_grid_set(frugi_grid *grid, size_t column, const char *format, ...) {
    va_list list;
    if (grid->failed || grid->rows == 0 || column >= grid->columns)
        return;
    char *word = grid->word[(grid->rows - 1) * grid->columns + column];
    va_start(list, format);
    int len = vsnprintf(word, FRUGI_GRID_WORD, format, list);
    va_end(list);
    if (len >= FRUGI_GRID_WORD) { /* drop what is left of a character that was cut */
        size_t end = FRUGI_GRID_WORD - 1;
        while (end > 0 && ((unsigned char)word[end - 1] & 0xc0) == 0x80)
            end--;
        word[end > 0 && ((unsigned char)word[end - 1] & 0x80) != 0 ? end - 1 : FRUGI_GRID_WORD - 1] = '\0';
    }
}

static const char *word_at(const frugi_grid *grid, size_t row, size_t column) {
    return grid->word[row * grid->columns + column];
}

static size_t width_of(const frugi_grid *grid, size_t column) {
    size_t width = 0;
    for (size_t r = 0; r < grid->rows; r++) {
        size_t columns = frugi_text_columns(word_at(grid, r, column));
        width = columns > width ? columns : width;
    }
    size_t head = frugi_text_columns(grid->head[column]);
    return width == 0 || width > head ? width : head;
}

static void put_padded(frugi_text *to, const char *word, size_t width, bool right) {
    size_t columns = frugi_text_columns(word);
    int gap = columns < width ? (int)(width - columns) : 0;
    if (right)
        frugi_put(to, "%*s%s", gap, "", word);
    else
        frugi_put(to, "%s%*s", word, gap, "");
}

/* Terminals must not be driven by labels. */
static void put_line(const frugi_grid *grid, const size_t *width, long row, frugi_text *to) {
    for (size_t c = 0; c < grid->columns; c++) {
        char clean[FRUGI_GRID_WORD];
        if (width[c] == 0)
            continue;
        frugi_printable(row < 0 ? grid->head[c] : word_at(grid, (size_t)row, c), clean, sizeof clean);
        frugi_put_raw(to, c > 0 ? "  " : "");
        put_padded(to, clean, width[c], c > 0);
    }
    frugi_put_raw(to, "\n");
}

/* Nor is a label markup: what Markdown or the HTML in it would read gets a backslash. */
static void put_markdown_row(const frugi_grid *grid, const size_t *width, long row, frugi_text *to) {
    for (size_t c = 0; c < grid->columns; c++) {
        char clean[FRUGI_GRID_WORD];
        if (width[c] == 0)
            continue;
        frugi_printable(row < 0 ? grid->head[c] : word_at(grid, (size_t)row, c), clean, sizeof clean);
        frugi_put_raw(to, "| ");
        for (const char *p = clean; *p != '\0'; p++)
            frugi_put(to, strchr("|<>`*_[]\\&", *p) != NULL ? "\\%c" : "%c", *p);
        frugi_put_raw(to, " ");
    }
    frugi_put_raw(to, "|\n");
}

static void put_rule(const frugi_grid *grid, const size_t *width, frugi_text *to) {
    for (size_t c = 0; c < grid->columns; c++)
        if (width[c] > 0)
            frugi_put(to, "%s", c == 0 ? "|---" : "|---:");
    frugi_put_raw(to, "|\n");
}

static void put_html_row(const frugi_grid *grid, const size_t *width, long row, frugi_text *to) {
    frugi_put_raw(to, "<tr>");
    for (size_t c = 0; c < grid->columns; c++) {
        const char *tag = row < 0 || c == 0 ? "th" : "td";
        if (width[c] == 0)
            continue;
        frugi_put(to, row < 0 ? "<%s scope=\"col\">" : c == 0 ? "<%s scope=\"row\">" : "<%s>", tag);
        frugi_put_escaped(to, row < 0 ? grid->head[c] : word_at(grid, (size_t)row, c));
        frugi_put(to, "</%s>", tag);
    }
    frugi_put_raw(to, "</tr>\n");
}

void frugi_grid_put(const frugi_grid *grid, frugi_table_style style, frugi_text *to) {
    size_t width[FRUGI_GRID_COLUMNS] = {0};
    to->failed |= grid->failed;
    for (size_t c = 0; c < grid->columns && !grid->failed; c++)
        width[c] = width_of(grid, c);
    if (style == FRUGI_TABLE_HTML)
        frugi_put_raw(to, "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead>");
    for (long r = -1; r < (long)grid->rows && !grid->failed; r++) {
        if (style == FRUGI_TABLE_HTML)
            put_html_row(grid, width, r, to);
        else if (style == FRUGI_TABLE_MARKDOWN)
            put_markdown_row(grid, width, r, to);
        else
            put_line(grid, width, r, to);
        if (r < 0 && style == FRUGI_TABLE_MARKDOWN)
            put_rule(grid, width, to);
        else if (r < 0 && style == FRUGI_TABLE_HTML)
            frugi_put_raw(to, "</thead><tbody>\n");
    }
    frugi_put_raw(to, style == FRUGI_TABLE_HTML ? "</tbody></table></div>\n" : "");
}

void frugi_grid_free(frugi_grid *grid) {
    free(grid->word);
    *grid = (frugi_grid){0};
}
