/* html_page.h - recorded runs as one HTML file that needs nothing else. */
#ifndef FGL_HTML_PAGE_H
#define FGL_HTML_PAGE_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

/** Write the page: what was compared and where, verdicts, tables, charts. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL
 * after one line. */
int fgl_page(const fgl_findings *findings, fgl_text *to);

#endif
