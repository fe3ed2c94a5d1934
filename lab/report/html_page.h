/* html_page.h - recorded runs as one HTML file that needs nothing else. */
#ifndef FRUGI_HTML_PAGE_H
#define FRUGI_HTML_PAGE_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

/** Write the page: what was compared and where, verdicts, tables, charts. Returns FRUGI_EXIT_OK, or FRUGI_EXIT_FAIL
 * after one line. */
int frugi_page(const frugi_findings *findings, frugi_text *to);

#endif
