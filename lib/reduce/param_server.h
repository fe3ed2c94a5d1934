/* param_server.h - state of a parameter server: param_server.c handles requests, param_server_log.c updates weights. */
#ifndef FRUGI_PARAM_SERVER_H
#define FRUGI_PARAM_SERVER_H

#include "reduce/param_message.h"
#include "reduce/reducer.h"

/** What a server waits for, per worker. */
typedef enum frugi_server_state {
    FRUGI_SERVER_RECEIVE_REQUEST, /* a request */
    FRUGI_SERVER_RECEIVE_FRAME,   /* the frame of a push */
    FRUGI_SERVER_PULL_PENDING,    /* until a pull can be answered */
    FRUGI_SERVER_SEND_REPLY       /* the completion of a reply */
} frugi_server_state;

/** A worker, on the server. */
typedef struct frugi_server_worker {
    int rank;
    bool active;        /* others wait for it; also before it has joined */
    bool joined;        /* has an epoch */
    bool pull_due;      /* has pushed and not pulled */
    bool frame_pending; /* its frame is not summed yet; that push was: */
    uint64_t step;
    float rate, decay;
    frugi_buffer frame;
    size_t len;
    uint64_t epoch;
    uint64_t next_step;      /* the first step that it has not pushed */
    uint64_t entries_pulled; /* of the log */
    frugi_server_state state;
    double last_active; /* when its state last changed */
    frugi_param_msg request;
    unsigned char in[FRUGI_PARAM_MSG_BYTES], out[FRUGI_PARAM_MSG_BYTES];
    frug_message request_recv, frame_recv, reply_send[2];
    frugi_buffer payload;
} frugi_server_worker;

/** An update: header and frame. */
typedef struct frugi_server_entry {
    frugi_buffer buffer;
    size_t bytes;
} frugi_server_entry;

typedef struct frugi_server {
    frug_comm *comm;
    frug_compressor *c;
    float *weights; /* of the range: weights[0] is element begin */
    uint64_t begin, count, hash, staleness;
    size_t bound; /* of a pushed frame */
    frugi_server_worker *worker;
    int workers, left; /* left: how often a worker has left */
    uint64_t step;     /* the first one that is not applied (synchronous) */
    frugi_server_entry *log;
    size_t log_capacity;
    uint64_t entries; /* total, including overwritten ones */
    float *sum;
    uint32_t *list;
} frugi_server;

/** Stop waiting for a worker. It may join again. */
void frugi_server_drop(frugi_server_worker *worker, const char *why);

/** Synchronous: apply all steps, from the earliest pushed one on, that every active worker has pushed or passed. */
frug_status frugi_server_apply_steps(frugi_server *server);

/** Asynchronous: apply the frame of one worker. */
frug_status frugi_server_apply_frame(frugi_server *server, const frugi_server_worker *worker);

#endif
