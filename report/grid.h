/* grid.h - a table before it is written: words in rows and columns. */
#ifndef FRUGI_REPORT_GRID_H
#define FRUGI_REPORT_GRID_H

#include "tables.h"

enum { FRUGI_GRID_COLUMNS = 14, FRUGI_GRID_WORD = 96 };

typedef struct frugi_grid {
    const char *head[FRUGI_GRID_COLUMNS];
    size_t columns, rows, cap;
    char (*word)[FRUGI_GRID_WORD]; /* columns of them in each row */
    int failed;
} frugi_grid;

/** Start a row; its words are empty. */
void frugi_grid_row(frugi_grid *grid);

/** Set a word of the last row; a long end is cut between characters. */
void frugi_grid_set(frugi_grid *grid, size_t column, const char *format, ...) FRUGI_SAY_PRINTF(3, 4);

/** Write a grid without those columns that are empty in every row. The first column is words, the others are numbers.
 */
void frugi_grid_put(const frugi_grid *grid, frugi_table_style style, frugi_text *to);

void frugi_grid_free(frugi_grid *grid);

#endif
