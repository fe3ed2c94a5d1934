/* client_loop.h - a client that trains with the trainer: for `frugrad join`, and as a thread of `frugrad serve`. */
#ifndef FGP_CLIENT_LOOP_H
#define FGP_CLIENT_LOOP_H

#include "federated/client.h"
#include "trainer/run/solo_training.h"

/** Options of a client. Texts are not owned. */
typedef struct fgp_client_options {
    fgf_client_options client;
    const char *data;
    fgt_data *opened;     /* those data, where this process has them already; or NULL */
    const char *tokens;   /* NULL: those of the job */
    uint64_t part, parts; /* the share of the training samples; parts 0: all */
    double alpha;         /* shares of classes by a Dirichlet distribution; 0: equal shares */
    uint64_t samples;     /* builtin data: how many */
    uint32_t threads;
    void (*progress)(void *ctx, uint64_t round, uint64_t rounds, double loss, bool counted); /* or NULL */
} fgp_client_options;

/** What a client has done. */
typedef struct fgp_client_report {
    uint64_t rounds, counted, refused; /* rounds that it trained in; updates */
    uint64_t bytes_sent, bytes_received;
    double loss; /* of the last round */
    bool stopped;
} fgp_client_report;

/** Takes part in a run until its end, or until fgt_job_interrupt(). Returns an exit status, after an error message. */
int fgp_client_run(const fgp_client_options *options, fgp_client_report *report);

/** Whether fgt_job_interrupt() was called; for callbacks. */
bool fgp_client_is_stopped(void *ctx);

#endif
