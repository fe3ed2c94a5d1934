/*
 * server_internal.h - shared by the files of the server: server.c (the loop), server_connection.c (the protocol of one
 * client), server_blob.c (weights for clients), server_round.c (checking updates, closing rounds), server_status.c.
 */
#ifndef FGF_SERVER_INTERNAL_H
#define FGF_SERVER_INTERNAL_H

#include "federated/message_stream.h"
#include "federated/round_history.h"
#include "federated/server.h"
#include "federated/worker_pool.h"
#include "io/metrics.h"

#include <pthread.h>
#include <stdatomic.h>

#define FGF_HANDSHAKE_SECONDS 10.0
#define FGF_MESSAGE_SECONDS   30.0   /* from the first byte of a message to its last; to read what is sent */
#define FGF_IDLE_SECONDS      3600.0 /* between messages: a client trains meanwhile */
#define FGF_WAIT_SECONDS      15.0   /* between signs of life to a client that waits */
#define FGF_HANDSHAKES_MAX    512u
#define FGF_REQUESTS_BURST    60.0 /* messages other than chunks */
#define FGF_REQUESTS_RATE     20.0 /* per second */
#define FGF_REFUSAL_LINES     50u  /* in the log, in FGF_REFUSAL_SECONDS */
#define FGF_REFUSAL_SECONDS   10.0
#define FGF_BLOBS_MAX         8u  /* versions that a round's weights are encoded for; all others get all weights */
#define FGF_RETRY_SECONDS     5.0 /* before a round is closed again after a failure */

/** Bytes that take clients from one version to another; shared by the connections that send them. */
typedef struct fgf_blob {
    uint64_t have, round;
    int fd; /* of the file that has the bytes */
    uint64_t len;
    uint32_t checksum;
    unsigned users; /* connections, and the server while it is cached */
    bool cached;    /* of the open round: other clients get it, too */
    struct fgf_blob *next;
} fgf_blob;

typedef enum fgf_stage {
    FGF_STAGE_HANDSHAKE,
    FGF_STAGE_HELLO, /* HELLO is expected */
    FGF_STAGE_JOIN,
    FGF_STAGE_READY,    /* PULL or OFFER is expected */
    FGF_STAGE_WAITING,  /* for weights */
    FGF_STAGE_SENDING,  /* weights */
    FGF_STAGE_UPLOAD,   /* chunks of an update are expected */
    FGF_STAGE_CHECKING, /* the update is checked and stored */
    FGF_STAGE_LEAVING   /* what is queued is sent, then the connection ends */
} fgf_stage;

typedef struct fgf_connection {
    struct fgf_server *server;
    fgf_stream stream;
    fgf_stage stage;
    char name[FGF_NAME_MAX]; /* of the client; its address before the handshake is complete */
    fgf_public_key key;
    double began;    /* the stage */
    double progress; /* last byte sent or received; the message that arrives began */
    double waited;   /* the last sign of life to it */
    double budget;   /* of requests */
    double budget_at;
    uint64_t have; /* version that it waits with */
    uint64_t resume;
    uint32_t resume_checksum;
    fgf_blob *blob;
    uint64_t blob_at;
    fgf_update update; /* that arrives */
    int update_fd;     /* or -1 */
    uint64_t update_at;
    bool closed, again; /* to be removed; has more to read */
    uint32_t events;
    struct fgf_connection *next;
} fgf_connection;

/** An update that is checked: a copy, so that it is independent of its connection. */
typedef struct fgf_check {
    fgf_pool_job job;
    struct fgf_server *server;
    fgf_update update;
    int fd;
    uint64_t round; /* in which it is to be counted */
    int status;
    fgf_refusal code;
    fgio_reason why;
    struct fgf_check *next;
} fgf_check;

/** A round that is closed. */
typedef struct fgf_closing {
    fgf_pool_job job;
    struct fgf_server *server;
    fgf_update *updates;
    size_t count;
    fgf_book book; /* copy that is saved */
    fgf_round_report report;
    int status;
    fgio_reason why;
} fgf_closing;

struct fgf_server {
    fgf_server_options options;
    fgf_state *state; /* while `closing`, of that thread */
    fgf_run_id run;
    fgf_book book;
    fgf_allow_list allowed;
    int64_t allowed_time; /* of the file */
    fgf_tls *tls;
    int listener, epoll;
    int stop_event, pool_event, closer_event;
    uint16_t port;
    fgf_pool *pool, *closer;
    float **scratch; /* one for each thread of the pool; the first two are work space of the state */
    frug_decoder **decoder;
    fgf_connection *connections;
    size_t connection_count, handshakes;
    uint64_t upload_max;
    uint64_t layout_hash, count;
    /* the open round */
    uint64_t round;
    fgf_update *updates;
    size_t update_count, update_capacity;
    fgf_check *checks; /* in the pool, or, while a round is summed, waiting for it */
    bool summing;
    double opened, retry_at;
    bool closing, published; /* the state is of the open round, and can be read */
    double finished_at;      /* the last round has closed; 0: it has not */
    atomic_bool stop;
    fgf_closing close;
    fgf_blob *blobs;
    /* status */
    double refusals_since; /* lines about refusals: when counting began, how many */
    uint64_t refusals;
    uint64_t bytes_up, bytes_down, accepted_connections, refused_connections, dropped, closing_failures;
    fgf_history history;
    double started;
    pthread_mutex_t status_lock;
    char *status;
    double status_at;
    fgio_metrics *rounds_file;
};

/** Writes a line to the log. */
void fgf_server_log(fgf_server *s, const char *format, ...) FGIO_PRINTF(2, 3);

/* server_connection.c */

/** A new connection from an accepted socket. */
void fgf_connection_accept(fgf_server *s, int fd, const char *address);

/** Reads and answers what has arrived, and sends what is queued. */
void fgf_connection_serve(fgf_connection *c);

/** Ends connections whose deadline has passed, and keeps waiting clients informed. */
void fgf_connection_sweep(fgf_connection *c, double now);

/** Sends weights to a client that waits for them, if there are new ones for it. */
void fgf_connection_try_weights(fgf_connection *c);

/** Answers an update that was checked. */
void fgf_connection_checked(fgf_connection *c, const fgf_check *check);

/** Ends the connection and frees it. */
void fgf_connection_free(fgf_connection *c);

/* server_blob.c */

/** The bytes that take a client from a version to the open round's; NULL when they
 * cannot be stored. One more user. */
fgf_blob *fgf_blob_get(fgf_server *s, uint64_t have);
void fgf_blob_release(fgf_server *s, fgf_blob *blob);

/** Lets go of those of older versions; connections that are two versions behind end, and ask again. */
void fgf_blob_drop_old(fgf_server *s);

/* server_round.c */

/** Checks a complete update in the pool. */
int fgf_round_check_update(fgf_connection *c);

/** Whether an update of a client is being checked. */
bool fgf_round_is_checking(const fgf_server *s, const fgf_public_key *client);

/** The updates that are on disk for the open round, after a restart. */
int fgf_round_recover(fgf_server *s, fgio_reason *why);

/** Closes the open round if it is time. */
void fgf_round_close_if_due(fgf_server *s, double now);

/* server_status.c */

/** Renews the status text and its file, at most once a second. */
void fgf_status_refresh(fgf_server *s, double now, bool at_once);

/** Notes a round that has closed. */
void fgf_status_round(fgf_server *s, const fgf_round_report *report);

#endif
