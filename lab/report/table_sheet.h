/* table_sheet.h - a table before it is written: words in rows and columns. */
#ifndef FRUGI_TABLE_SHEET_H
#define FRUGI_TABLE_SHEET_H

#include "lab/report/run_tables.h"

enum { FRUGI_SHEET_COLUMNS = 16, FRUGI_SHEET_WORD = 96 };

typedef struct frugi_sheet {
    const char *head[FRUGI_SHEET_COLUMNS];
    unsigned words; /* a bit for each column but the first that has words and no numbers: aligned left */
    size_t columns, rows, cap;
    char (*word)[FRUGI_SHEET_WORD]; /* columns of them in each row */
    int failed;
} frugi_sheet;

/** Start a row; its words are empty. */
void frugi_sheet_row(frugi_sheet *sheet);

/** Set a word of the last row; a long end is cut between characters. */
void frugi_sheet_set(frugi_sheet *sheet, size_t column, const char *format, ...) FRUGI_SAY_PRINTF(3, 4);

/** Write a sheet without those columns that are empty in every row. The first column is words, the others are
 * numbers, aligned right, unless `words` has them. */
void frugi_sheet_put(const frugi_sheet *sheet, frugi_table_style style, frugi_text *to);

/** Words out of files, without control characters; as Markdown with a backslash before what it would read. */
void frugi_put_words(frugi_text *to, const char *words, bool markdown);

void frugi_sheet_free(frugi_sheet *sheet);

#endif
