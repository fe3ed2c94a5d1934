/* run_tables.h - recorded runs as tables: aligned text, Markdown, or the rows of a page. */
#ifndef FGL_RUN_TABLES_H
#define FGL_RUN_TABLES_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

#include <stdbool.h>
#include <stdio.h>

/**
 * Read DIR/runs.jsonl (or a file) and print one table for each suite and task of those runs that are wanted (NULL:
 * all), and one of speeds where there are any. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after one line on stderr.
 */
int fgl_report_tables(const char *dir, fgl_run_filter *wanted, const void *user, FILE *out);

typedef enum { FGL_TABLE_PLAIN, FGL_TABLE_MARKDOWN, FGL_TABLE_HTML } fgl_table_style;

/** Write the tables of findings, with their titles. */
void fgl_tables_put(const fgl_findings *findings, fgl_table_style style, fgl_text *to);

/** One table for each suite and size: methods, and quality relative to dense on every task. Not for HTML. */
void fgl_summary_put(const fgl_findings *findings, fgl_table_style style, fgl_text *to);

/** The sentences in which FruGrad is worse, by panel. */
void fgl_losses_put(const fgl_findings *findings, fgl_table_style style, fgl_text *to);

/** One panel's table alone. */
void fgl_table_panel(const fgl_panel *panel, fgl_table_style style, fgl_text *to);

/** The table of speeds of a suite (NULL: of all); nothing where there are none. Returns whether there were. */
bool fgl_table_speeds(const fgl_runs *runs, const char *suite, fgl_table_style style, fgl_text *to);

/** A panel's name: "paper (small): resnet20-cifar10". */
void fgl_panel_name(const fgl_panel *panel, fgl_text *to);

/** The metric of a cell as text: 91.23 %, 24.51. */
const char *fgl_metric_text(const char *metric, double value, char *dst, size_t cap);

/** A share as text: 6.2 %, 0.13 %. */
const char *fgl_share_text(double share, char *dst, size_t cap);

#endif
