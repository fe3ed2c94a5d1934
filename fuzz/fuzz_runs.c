/*
 * fuzz_runs.c - any bytes as recorded runs, and the page of what is accepted. Errors must name the line
 * and the reason; a page must be complete, and markup of a label must not be in it.
 */
#include "lab/report/html_page.h"
#include "lab/report/run_tables.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const fgl_runs *runs) {
    fgl_findings findings = {0};
    fgl_text page = {0}, table = {0};
    if (fgl_findings_make(runs, NULL, &findings) != 0 || fgl_page(&findings, &page) != 0)
        abort();
    fgl_tables_put(&findings, FGL_TABLE_MARKDOWN, &table);
    fgl_summary_put(&findings, FGL_TABLE_MARKDOWN, &table);
    fgl_losses_put(&findings, FGL_TABLE_PLAIN, &table);
    if (page.len < 8 || strcmp(page.data + page.len - 8, "</html>\n") != 0 || strlen(page.data) != page.len)
        abort();
    if (strstr(page.data, "<script") != NULL || strstr(page.data, "<img") != NULL)
        abort();
    fgl_text_free(&page);
    fgl_text_free(&table);
    fgl_findings_free(&findings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgl_runs runs = {0};
    fgio_reason why = {""};
    if (fgl_runs_parse(&runs, data, size, &why) == 0)
        check_accepted(&runs);
    else if (strncmp(why.text, "line ", 5) != 0)
        abort();
    fgl_runs_free(&runs);
    return 0;
}
