/* table_sheet.h - a table before it is written: words in rows and columns. */
#ifndef FGL_TABLE_SHEET_H
#define FGL_TABLE_SHEET_H

#include "lab/report/run_tables.h"

enum { FGL_SHEET_COLUMNS = 16, FGL_SHEET_WORD = 96 };

typedef struct fgl_sheet {
    const char *head[FGL_SHEET_COLUMNS];
    unsigned words; /* a bit for each column but the first that has words and no numbers: aligned left */
    size_t columns, rows, cap;
    char (*word)[FGL_SHEET_WORD]; /* columns of them in each row */
    int failed;
} fgl_sheet;

/** Start a row; its words are empty. */
void fgl_sheet_row(fgl_sheet *sheet);

/** Set a word of the last row; a long end is cut between characters. */
void fgl_sheet_set(fgl_sheet *sheet, size_t column, const char *format, ...) FGIO_PRINTF(3, 4);

/** Write a sheet without those columns that are empty in every row. The first column is words, the others are
 * numbers, aligned right, unless `words` has them. */
void fgl_sheet_put(const fgl_sheet *sheet, fgl_table_style style, fgl_text *to);

/** Words out of files, without control characters; as Markdown with a backslash before what it would read. */
void fgl_put_words(fgl_text *to, const char *words, bool markdown);

void fgl_sheet_free(fgl_sheet *sheet);

#endif
