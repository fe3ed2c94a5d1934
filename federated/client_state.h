/*
 * client_state.h - a client's residual and its update in flight, on disk.
 *
 *   DIR/pending    an update that the server has not confirmed, and the residual after it
 *   DIR/confirmed  the same of the last update that it has confirmed
 *   DIR/weights    the weights of the last round: a client that starts again downloads only what has changed since
 *
 * The first two are written whole: an update header (update_file.h), the frame, and the state of the compressor. When
 * the server confirms, pending is renamed to confirmed; when it refuses, pending is removed, and the residual is the
 * one before. So the residual forgets what was sent only when the server has it, whenever the client is killed.
 */
#ifndef FGF_CLIENT_STATE_H
#define FGF_CLIENT_STATE_H

#include "federated/update_file.h"
#include "io/files.h"

/** An update and the residual after it. */
typedef struct fgf_client_file {
    fgf_update update;
    fgio_bytes bytes; /* of the whole file */
    fgf_span frame, residual;
} fgf_client_file;

void fgf_client_file_free(fgf_client_file *file);

/** Reads DIR/NAME of a run. Returns 1, 0 if there is none of this run, or -1 after setting the reason: it is damaged.
 */
int fgf_client_file_read(const char *dir, const char *name, const fgf_run_id *run, fgf_client_file *file,
                         fgio_reason *why);

/** Writes DIR/pending; it is on disk when this returns 0. */
int fgf_client_pending_write(const char *dir, const fgf_update *update, const void *frame, const void *residual,
                             size_t residual_len, fgio_reason *why);

/** Reads DIR/weights of a run: *version, and count floats. Returns false where there are none that fit: then all are
 * downloaded. */
bool fgf_client_weights_read(const char *dir, const fgf_run_id *run, uint64_t count, uint64_t *version, float *weights);

/** Writes DIR/weights. Nothing is lost where that fails. */
void fgf_client_weights_write(const char *dir, const fgf_run_id *run, uint64_t count, uint64_t version,
                              const float *weights);

/** The server has confirmed or refused the pending update. */
int fgf_client_pending_confirm(const char *dir, fgio_reason *why);
int fgf_client_pending_drop(const char *dir, fgio_reason *why);

#endif
