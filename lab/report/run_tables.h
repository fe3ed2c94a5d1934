/* run_tables.h - recorded runs as tables: aligned text, Markdown, or the rows of a page. */
#ifndef FRUGI_RUN_TABLES_H
#define FRUGI_RUN_TABLES_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

#include <stdbool.h>
#include <stdio.h>

/**
 * Read DIR/runs.jsonl (or a file) and print one table for each suite and task of those runs that are wanted (NULL:
 * all), and one of speeds where there are any. Returns FRUGI_EXIT_OK, or FRUGI_EXIT_FAIL after one line on stderr.
 */
int frugi_report_tables(const char *dir, frugi_wanted *wanted, const void *user, FILE *out);

typedef enum { FRUGI_TABLE_PLAIN, FRUGI_TABLE_MARKDOWN, FRUGI_TABLE_HTML } frugi_table_style;

/** The tables of findings that are there already, with their titles. */
void frugi_tables_put(const frugi_findings *findings, frugi_table_style style, frugi_text *to);

/** One table for each suite and size: methods, and quality relative to dense on every task. HTML is not made. */
void frugi_summary_put(const frugi_findings *findings, frugi_table_style style, frugi_text *to);

/** The sentences in which FruGrad comes off worse, panel by panel. */
void frugi_losses_put(const frugi_findings *findings, frugi_table_style style, frugi_text *to);

/** One panel's table alone. */
void frugi_table_panel(const frugi_panel *panel, frugi_table_style style, frugi_text *to);

/** The table of speeds of a suite (NULL: of all); nothing where there are none. Returns whether there were. */
bool frugi_table_speeds(const frugi_runs *runs, const char *suite, frugi_table_style style, frugi_text *to);

/** A panel's name: "paper (small): resnet20-cifar10". */
void frugi_panel_name(const frugi_panel *panel, frugi_text *to);

/** The metric of a cell as people read it: 91.23 %, 24.51. */
const char *frugi_metric_text(const char *metric, double value, char *dst, size_t cap);

/** A share as people read it: 6.2 %, 0.13 %. */
const char *frugi_share_text(double share, char *dst, size_t cap);

#endif
