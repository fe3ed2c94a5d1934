/* html_page.h - recorded runs as one self-contained HTML file. */
#ifndef FGL_HTML_PAGE_H
#define FGL_HTML_PAGE_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

/** Write the page: what was compared and where, conclusions, tables, charts. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL
 * after an error message. */
int fgl_page(const fgl_findings *findings, fgl_text *to);

#endif
