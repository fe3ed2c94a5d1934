/*
 * client_session.h - a client's connection to the server, which is made again where it ends: a request is repeated
 * until it is answered, and transfers continue where they broke off.
 *
 * Functions return -1 after setting the reason.
 */
#ifndef FGF_CLIENT_SESSION_H
#define FGF_CLIENT_SESSION_H

#include "federated/client.h"
#include "federated/update_file.h"

typedef struct fgf_session fgf_session;

int fgf_session_open(const fgf_client_options *options, fgf_session **session, fgio_reason *why);
void fgf_session_close(fgf_session *session);

const char *fgf_session_job(const fgf_session *session);
uint64_t fgf_session_rounds(const fgf_session *session);
const fgf_run_id *fgf_session_run(const fgf_session *session);
void fgf_session_traffic(const fgf_session *session, uint64_t *sent, uint64_t *received);

int fgf_session_join(fgf_session *session, uint64_t layout_hash, uint64_t elements, uint64_t examples,
                     fgio_reason *why);

/** Waits for weights newer than *version: 1 with bytes for fgf_changes_apply(), for the caller to free, and their
 * *version; 0 at the end of the run, when there are none. */
int fgf_session_download(fgf_session *session, uint64_t *version, uint64_t most, unsigned char **bytes, size_t *len,
                         fgio_reason *why);

/** Sends an update: 1 when it is confirmed, 0 when it is refused. */
int fgf_session_upload(fgf_session *session, const fgf_update *update, const void *frame, fgio_reason *why);

#endif
