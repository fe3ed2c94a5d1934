/*
 * federated.h - take part in federated training, or serve it, from any training loop.
 *
 *   frug_federated_client_open(&options, &client);
 *   frug_federated_client_join(client, layout, examples);
 *   while (frug_federated_client_pull(client, weights, &round, &more) == FRUG_OK && more) {
 *       ... some steps of training, from these weights ...
 *       frug_federated_client_push(client, weights, loss, &counted);
 *   }
 *   frug_federated_client_close(client);
 *
 * Connections are TLS 1.3 with pinned Ed25519 keys; protocol and guarantees are those of `frugrad serve` and `frugrad
 * join`, see docs/federated.md. Clients and the server may be killed at any time: with the same directory they
 * continue, and no update is lost or counted twice.
 *
 * Texts and layouts of options are not copied: they must stay valid until the object is closed. An object is used by
 * one thread at a time, but for the functions that say otherwise. After a failure frug_last_error() is one line that
 * says what to do. Failures to reach the other side, and refusals, are FRUG_ERR_COMM; wrong options FRUG_ERR_ARG. The
 * process should ignore SIGPIPE, as Python does. The state of a run is in DIR/status.json, at most a second old.
 *
 * Link with libfrugrad_federated, which needs OpenSSL and jansson. SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_FEDERATED_H
#define FRUGRAD_FEDERATED_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes a new private key to a file, which must not exist, and the line for lists, with the name, to FILE.pub. */
FRUG_CHECK frug_status frug_federated_keygen(const char *path, const char *name);

/** The config of updates where nobody asks for another. */
FRUG_API const char *frug_federated_default_config(void);

/* ---- client ---- */

typedef struct frug_federated_client_options {
    size_t struct_size;
    const char *server;     /* HOST:PORT */
    const char *key;        /* file of the private key */
    const char *server_key; /* "ed25519:BASE64", or a file with that line */
    const char *directory;  /* for the residual and an update in flight; made if missing */
    double patience;        /* seconds to try to reach the server; 0: ten minutes */
    void *ctx;              /* of the callbacks, either of which may be NULL */
    void (*log)(void *ctx, const char *line);
    int (*is_stopped)(void *ctx); /* asked several times a second while a call waits: whether it is to give up */
} frug_federated_client_options;

#define FRUG_FEDERATED_CLIENT_OPTIONS_INIT                                                                             \
    { sizeof(frug_federated_client_options), NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL }

typedef struct frug_federated_client frug_federated_client;

/** Connects. */
FRUG_CHECK frug_status frug_federated_client_open(const frug_federated_client_options *options,
                                                  frug_federated_client **client);
FRUG_API void frug_federated_client_close(frug_federated_client *client);

/** The job of the server: a JSON object, untrusted; rounds of the run. Valid until the client is closed. */
FRUG_API const char *frug_federated_client_job(const frug_federated_client *client);
FRUG_API uint64_t frug_federated_client_rounds(const frug_federated_client *client);

/** Joins with a layout, which must be that of the run. An update that an earlier process could not finish is sent. */
FRUG_CHECK frug_status frug_federated_client_join(frug_federated_client *client, const frug_layout *layout,
                                                  uint64_t examples);

/** Waits for a round to take part in, and gets its weights. *more is 0 at the end of the run: the weights are then its
 * result. */
FRUG_CHECK frug_status frug_federated_client_pull(frug_federated_client *client, float *weights, uint64_t *round,
                                                  int *more);

/** Sends what has changed since frug_federated_client_pull(). *counted is 0 when the server has refused the update: it
 * came too late, and its residual is as before. */
FRUG_CHECK frug_status frug_federated_client_push(frug_federated_client *client, const float *weights, double loss,
                                                  int *counted);

/** Bytes of messages so far. */
FRUG_API void frug_federated_client_traffic(const frug_federated_client *client, uint64_t *sent, uint64_t *received);

/* ---- server ---- */

/** A round that has closed. */
typedef struct frug_federated_round {
    size_t struct_size;
    uint64_t round, rounds; /* that has closed, from 0; in all */
    uint64_t updates, bytes_up;
    uint64_t changes;                /* weights that have changed */
    double loss;                     /* mean of the clients, as they say */
    double seconds;                  /* that it was open */
    double eval_loss, eval_accuracy; /* for the callback to fill in; NAN: not evaluated */
} frug_federated_round;

typedef struct frug_federated_server_options {
    size_t struct_size;
    const char *listen;    /* HOST:PORT, or a port */
    const char *key;       /* file of the private key; NULL: DIR/server.key, made if missing */
    const char *clients;   /* file with the lines of the clients' .pub files, read again when it changes */
    const char *directory; /* of the run; with a run in it, that run continues */
    const frug_layout *layout;
    const float *weights;  /* at the beginning; not needed after creation */
    const char *job;       /* for the clients: a JSON object with at least "config", that of their updates */
    const char *optimizer; /* average, momentum, adam, muon, or a text of the library */
    const char *down;      /* config of the server's step, for less to download; NULL: not compressed */
    const char *robust;    /* mean, clip or trim */
    double rate;           /* of the optimizer; 0: its default */
    double deadline;       /* seconds after which a round closes with a quorum */
    double stale_power;    /* an update s rounds late has the weight (1 + s) to the power of minus this */
    double trim;           /* robust=trim: the share that does not count at each end */
    double linger;         /* seconds after the last round in which clients may get its weights */
    uint64_t rounds;
    uint64_t quorum;                          /* updates without which a round does not close; 0: half of the clients */
    uint64_t stale;                           /* the most rounds that an update may be late */
    int threads;                              /* that check updates */
    void *ctx;                                /* of the callbacks, either of which may be NULL */
    void (*log)(void *ctx, const char *line); /* on any thread */
    void (*round)(void *ctx, frug_federated_round *round, const float *weights, uint64_t count); /* on another thread */
} frug_federated_server_options;

#define FRUG_FEDERATED_SERVER_OPTIONS_INIT                                                                             \
    {                                                                                                                  \
        sizeof(frug_federated_server_options), "7700", NULL, NULL, NULL, NULL, NULL, NULL, "average", NULL, "clip", 0, \
            600, 0.5, 0.1, 30, 10, 0, 1, 2, NULL, NULL, NULL                                                           \
    }

typedef struct frug_federated_server frug_federated_server;

/** Reads or begins the run, and listens. */
FRUG_CHECK frug_status frug_federated_server_create(const frug_federated_server_options *options,
                                                    frug_federated_server **server);
FRUG_API void frug_federated_server_destroy(frug_federated_server *server);

/** The port in use; the server's public key, which clients need. */
FRUG_API int frug_federated_server_port(const frug_federated_server *server);
FRUG_API const char *frug_federated_server_key(const frug_federated_server *server);

/** Serves until the last round has closed and clients have its weights, or until frug_federated_server_stop(), which
 * any thread may call. */
FRUG_CHECK frug_status frug_federated_server_run(frug_federated_server *server);
FRUG_API void frug_federated_server_stop(frug_federated_server *server);

/** Whether all rounds have closed; the weights and their round. Not while frug_federated_server_run() runs. */
FRUG_API int frug_federated_server_is_done(const frug_federated_server *server);
FRUG_API void frug_federated_server_weights(const frug_federated_server *server, float *weights, uint64_t *round);

#ifdef __cplusplus
}
#endif

#endif
