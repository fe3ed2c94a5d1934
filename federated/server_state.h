/*
 * server_state.h - the state of a federated run on the server: weights, round, optimizer, book of clients; in memory
 * and as the file DIR/state, which is replaced as a whole when a round closes.
 *
 * Together with the confirmed updates of the open round (update_file.h) the file has everything: a server that was
 * killed at any moment continues with the same bits. Functions that can fail return -1 after setting the reason.
 */
#ifndef FGF_SERVER_STATE_H
#define FGF_SERVER_STATE_H

#include "federated/robust_sum.h"
#include "federated/round_book.h"

/** Options of the run that its state depends on. Texts are not owned. */
typedef struct fgf_state_options {
    const char *directory;
    const frug_layout *layout;
    const float *weights;  /* at the beginning */
    const char *optimizer; /* "average", "momentum", "adam", "muon", or a text of the library */
    double rate;           /* of the optimizer; 0: its default */
    const char *config;    /* of the updates */
    const char *down;      /* config string: the server's step is compressed as well; NULL or "": it is not */
    const char *job;       /* text for the clients; part of the run's identity */
    uint64_t rounds;
    fgf_sum_rule sum;
} fgf_state_options;

typedef struct fgf_state {
    fgf_state_options options; /* directory and job are copies */
    fgf_run_id run;
    uint64_t round; /* that is open: the version of the weights */
    uint64_t count; /* parameters */
    frug_layout *update_layout;
    float *weights;
    uint32_t *changed;  /* version at which each weight last changed: weight_changes.h */
    float *mean, *next; /* work space */
    frug_decoder *decoder;
    frug_optimizer *optimizer;
    double rate;
    frug_compressor *down; /* or NULL */
    unsigned char *frame;  /* of the server's step */
    size_t frame_cap;
    int lock; /* descriptor of DIR/lock, which is locked while the state is open; or -1 */
} fgf_state;

/** Creates the state, from DIR/state if there is one: *resumed. A state of another model or job is an error, and so is
 * a directory whose state is open, here or in another process. *book is for the caller to free. */
int fgf_state_open(const fgf_state_options *options, fgf_state **state, fgf_book *book, bool *resumed,
                   fgio_reason *why);
void fgf_state_close(fgf_state *state);

/** Writes DIR/state: when this returns 0, it is on disk; otherwise the file is as it was. */
int fgf_state_save(const fgf_state *state, const fgf_book *book, fgio_reason *why);

/** Reads DIR/state again. *book, where it is not NULL, is replaced. */
int fgf_state_reload(fgf_state *state, fgf_book *book, fgio_reason *why);

/**
 * Closes the open round: sums the updates, which are on disk, takes a step of the optimizer, and saves the state of the
 * next round. On failure the state is that of the file, so that the round can be closed again.
 *
 *   book       with the updates entered: what is saved
 *   *changes   weights that have changed
 */
int fgf_state_close_round(fgf_state *state, const fgf_update *updates, size_t count, const fgf_book *book,
                          uint64_t *changes, fgio_reason *why);

/** A config of updates. Options of gradients, of the trainer's exchange, are refused: they have no effect here. */
int fgf_config_create(const char *text, frug_config **config, fgio_reason *why);

/** The most bytes that an update can have. */
int fgf_state_upload_max(const fgf_state *state, uint64_t *bytes, fgio_reason *why);

#endif
