/* federated_print.h - lines of progress of a federated run, on stderr. */
#ifndef FGP_FEDERATED_PRINT_H
#define FGP_FEDERATED_PRINT_H

#include "federated/server.h"

#include <jansson.h>

#include <stdbool.h>
#include <stdint.h>

/** A line with the time of day. */
void fgp_print_log(void *ctx, const char *line);

/** A round of a client, and one of the server. */
void fgp_print_client_round(void *ctx, uint64_t round, uint64_t rounds, double loss, bool counted);
void fgp_print_server_round(const fgf_round_report *report);

/** From the JSON of a status: a count, 0 where it is missing or negative; and all that was refused of a client. */
unsigned long long fgp_status_count(const json_t *object, const char *key);
unsigned long long fgp_status_refused(const json_t *client);

/** The status of a run, from the JSON text of a file: a few lines on stdout, or the text as it is. Returns an exit
 * status, after an error message. */
int fgp_print_status(const char *path, const char *text, bool as_json);

#endif
