/*
 * server.h - the server of a federated run: clients connect, get weights, and send updates; rounds close by rule.
 *
 * One thread has all connections (epoll); a pool checks updates, and one thread closes rounds. Functions that can fail
 * return -1 after setting the reason. What clients send is untrusted: it is checked, counted and limited per client.
 */
#ifndef FGF_SERVER_H
#define FGF_SERVER_H

#include "federated/identity_key.h"
#include "federated/server_state.h"

/** A round that has closed. */
typedef struct fgf_round_report {
    uint64_t round, rounds; /* that has closed, from 0; in all */
    size_t updates;
    uint64_t bytes_up; /* of its updates */
    uint64_t changes;  /* weights that have changed */
    double loss;       /* mean of the clients, as they say */
    double seconds;    /* that it was open */
    /* filled in by the callback; NAN: not evaluated */
    double eval_loss, eval_accuracy;
} fgf_round_report;

typedef struct fgf_server_options {
    const char *listen; /* HOST:PORT */
    const fgf_key *key;
    const char *clients_file;      /* list of clients, read again when it changes; NULL: `clients` */
    const fgf_allow_list *clients; /* copied */
    fgf_state_options state;
    fgf_round_rule rule;
    int threads; /* of the pool */
    size_t connections_max;
    double linger; /* seconds after the last round in which clients may get the last weights */
    void *ctx;     /* of the callbacks; any may be NULL */
    void (*log)(void *ctx, const char *line);
    bool (*is_stopped)(void *ctx); /* asked some times a second: whether to end */
    void (*round)(void *ctx, fgf_round_report *report, const float *weights, uint64_t count); /* on another thread */
} fgf_server_options;

typedef struct fgf_server fgf_server;

/** How many connections the process may have, by its limit of open files. */
size_t fgf_connections_max(void);

/** Opens the state, and listens. */
int fgf_server_create(const fgf_server_options *options, fgf_server **server, fgio_reason *why);
void fgf_server_destroy(fgf_server *server);

/** The port in use. */
uint16_t fgf_server_port(const fgf_server *server);

/** Serves until the last round has closed and clients have its weights, or fgf_server_stop(). */
int fgf_server_run(fgf_server *server, fgio_reason *why);

/** Ends fgf_server_run() soon, after a round that is being closed; any thread, and safe in signal handlers. */
void fgf_server_stop(fgf_server *server);

/** Whether all rounds have closed. */
bool fgf_server_is_done(const fgf_server *server);

/** The weights; valid after fgf_server_run(). */
const float *fgf_server_weights(const fgf_server *server, uint64_t *round);

/** State of the run as JSON text, for the caller to free; at most a second old. Any thread. NULL without memory. Also
 * in DIR/status.json. */
char *fgf_server_status(fgf_server *server);

#endif
