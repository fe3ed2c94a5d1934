/*
 * client.h - one client of a federated run, for any training loop:
 *
 *   fgf_client_open(&options, &client, &why);
 *   ... fgf_client_job(client): make the model that it asks for ...
 *   fgf_client_join(client, layout, examples, &why);
 *   while (fgf_client_pull(client, weights, &round, &why) == 1) {
 *       ... some steps of training, from these weights ...
 *       fgf_client_push(client, weights, loss, &why);
 *   }
 *
 * The client connects outwards only, and connects again where a connection ends. It keeps its residual and the update
 * in flight in a directory (client_state.h), so that it may be killed at any moment: the next one with this directory
 * continues with the same bits. Functions return -1 after setting the reason, one line that says what to do.
 */
#ifndef FGF_CLIENT_H
#define FGF_CLIENT_H

#include "federated/identity_key.h"
#include "frugrad.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fgf_client_options {
    const char *server; /* HOST:PORT */
    const fgf_key *key;
    fgf_public_key server_key;
    const char *directory; /* for its state */
    double patience;       /* seconds to try to reach the server; 0: ten minutes */
    void *ctx;             /* of the callbacks; either may be NULL */
    void (*log)(void *ctx, const char *line);
    bool (*is_stopped)(void *ctx); /* asked often while waiting: whether to give up */
} fgf_client_options;

typedef struct fgf_client fgf_client;

/** Connects. */
int fgf_client_open(const fgf_client_options *options, fgf_client **client, fgio_reason *why);
void fgf_client_close(fgf_client *client);

/** What the server asks for, as JSON; rounds of the run. Owned by the client. */
const char *fgf_client_job(const fgf_client *client);
uint64_t fgf_client_rounds(const fgf_client *client);

/** Joins with a model, whose layout must be that of the run, and reads the state of the directory; sends an update that
 * was not confirmed. The config of the updates is in the job. */
int fgf_client_join(fgf_client *client, const frug_layout *layout, uint64_t examples, fgio_reason *why);

/** Waits for work, and gets the weights. Returns 1; or 0 at the end of the run, with its last weights. */
int fgf_client_pull(fgf_client *client, float *weights, uint64_t *round, fgio_reason *why);

/**
 * Sends what has changed since fgf_client_pull(): the difference of the weights is added to the residual and
 * compressed.
 *
 *   loss   mean over the steps, for display
 *
 * Returns 1 when the server has confirmed, or 0 when it has refused the update: then the residual is as before, and
 * the log says why.
 */
int fgf_client_push(fgf_client *client, const float *weights, double loss, fgio_reason *why);

/** Bytes of messages so far. */
void fgf_client_traffic(const fgf_client *client, uint64_t *sent, uint64_t *received);

#endif
