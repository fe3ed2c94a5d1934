/*
 * fuzz_runs.c - any bytes as recorded runs, and the page of what is accepted. What is refused must say in which line
 * and why; a page must be whole, and markup of a label must not be in it.
 */
#include "lab/report/html_page.h"
#include "lab/report/run_tables.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const frugi_runs *runs) {
    frugi_findings findings = {0};
    frugi_text page = {0}, table = {0};
    if (frugi_findings_make(runs, NULL, &findings) != 0 || frugi_page(&findings, &page) != 0)
        abort();
    frugi_tables_put(&findings, FRUGI_TABLE_MARKDOWN, &table);
    frugi_summary_put(&findings, FRUGI_TABLE_MARKDOWN, &table);
    frugi_losses_put(&findings, FRUGI_TABLE_PLAIN, &table);
    if (page.len < 8 || strcmp(page.data + page.len - 8, "</html>\n") != 0 || strlen(page.data) != page.len)
        abort();
    if (strstr(page.data, "<script") != NULL || strstr(page.data, "<img") != NULL)
        abort();
    frugi_text_free(&page);
    frugi_text_free(&table);
    frugi_findings_free(&findings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    frugi_runs runs = {0};
    frugi_why why = {""};
    if (frugi_runs_parse(&runs, data, size, &why) == 0)
        check_accepted(&runs);
    else if (strncmp(why.text, "line ", 5) != 0)
        abort();
    frugi_runs_free(&runs);
    return 0;
}
