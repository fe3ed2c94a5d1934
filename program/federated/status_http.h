/*
 * status_http.h - the state of a federated run for browsers and Prometheus, on a port of the loopback interface.
 *
 *   /             a page, renewed by the browser
 *   /metrics      Prometheus' text format
 *   /status.json  what --status --json prints
 *
 * HTTP/1.1, GET only, one request per connection. Requests are untrusted: sizes, times and connections are limited,
 * and a request that names another host than this machine is refused, so that no page of the web can read it.
 */
#ifndef FGP_STATUS_HTTP_H
#define FGP_STATUS_HTTP_H

#include "io/error.h"

#include <stdint.h>

typedef struct fgp_status_http fgp_status_http;

/** The state as JSON text, for the caller to free; NULL without memory. Called on another thread. */
typedef char *fgp_status_fn(void *ctx);

/** Listens at 127.0.0.1 and starts a thread; port 0 is any free one. Returns -1 after setting the reason. */
int fgp_status_http_open(uint16_t port, fgp_status_fn *status, void *ctx, fgp_status_http **http, fgio_reason *why);
void fgp_status_http_close(fgp_status_http *http);

/** The port in use. */
uint16_t fgp_status_http_port(const fgp_status_http *http);

/** An answer. */
typedef struct fgp_http_answer {
    int code; /* 200, or an error */
    const char *type;
    char *body; /* owned */
} fgp_http_answer;

/** Answers a request: its head, which ends with an empty line. body NULL: without memory. */
fgp_http_answer fgp_http_respond(const char *head, fgp_status_fn *status, void *ctx);

#endif
