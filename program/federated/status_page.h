/* status_page.h - the state of a federated run as a page and as metrics, from its JSON text. */
#ifndef FGP_STATUS_PAGE_H
#define FGP_STATUS_PAGE_H

/** A page without scripts that fetches nothing; for the caller to free. NULL without memory, or if the JSON is damaged.
 */
char *fgp_status_page(const char *json);

/** Metrics in Prometheus' text format, likewise. */
char *fgp_status_metrics(const char *json);

#endif
