/* param_server.h - a parameter server: what param_server.c, which talks, and param_server_log.c, which changes the
 * weights, share. */
#ifndef FRUGI_PARAM_SERVER_H
#define FRUGI_PARAM_SERVER_H

#include "reduce/param_message.h"
#include "reduce/reducer.h"

/** What a server does about a worker. */
typedef enum frugi_server_state {
    FRUGI_SERVER_RECEIVE_REQUEST, /* for a letter */
    FRUGI_SERVER_RECEIVE_FRAME,   /* a frame that was announced */
    FRUGI_SERVER_PULL_PENDING,    /* a pull that cannot be answered yet */
    FRUGI_SERVER_SEND_REPLY
} frugi_server_state;

/** What a server knows of a worker. */
typedef struct frugi_server_worker {
    int rank;
    bool live;    /* others wait for it; before it is greeted, too */
    bool greeted; /* has an epoch */
    bool owed;    /* has pushed and not pulled */
    bool pushed;  /* its frame waits to be summed: */
    uint64_t step;
    float rate, decay;
    frugi_buffer frame;
    size_t len;
    uint64_t epoch;
    uint64_t next; /* the first step that it has not pushed */
    uint64_t seen; /* entries of the log */
    frugi_server_state phase;
    double heard; /* when it last did something, or was kept waiting since */
    frugi_param_msg letter;
    unsigned char in[FRUGI_PARAM_MSG_BYTES], out[FRUGI_PARAM_MSG_BYTES];
    frug_message hear, take, answer[2];
    frugi_buffer parcel;
} frugi_server_worker;

/** An update: prefix and frame. */
typedef struct frugi_server_entry {
    frugi_buffer room;
    size_t bytes;
} frugi_server_entry;

typedef struct frugi_server {
    frug_comm *comm;
    frug_compressor *c;
    float *weights; /* element begin */
    uint64_t begin, count, hash, staleness;
    size_t bound; /* of a pushed frame */
    frugi_server_worker *worker;
    int workers, goodbyes;
    uint64_t step; /* the first one not applied (in step) */
    frugi_server_entry *log;
    size_t log_most;
    uint64_t entries; /* ever made */
    float *sum;
    uint32_t *list;
} frugi_server;

/** Whoever is dropped is not waited for any more; it may say hello again. */
void frugi_server_drop(frugi_server_worker *worker, const char *why);

/** In step: apply the earliest step that was pushed, once everyone who is live has come past it; and so on. */
frug_status frugi_server_apply_steps(frugi_server *server);

/** Out of step: apply a worker's frame as it came. */
frug_status frugi_server_apply_frame(frugi_server *server, const frugi_server_worker *worker);

#endif
