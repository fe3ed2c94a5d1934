/*
 * param_message.h - the protocol between workers and parameter servers.
 *
 * A worker sends a request of fixed size, which may be followed by a frame. The server replies with a message of the
 * same size, which may be followed by a payload. Then the worker may send the next request. Messages have a magic
 * number and a checksum.
 */
#ifndef FRUGI_PARAM_MESSAGE_H
#define FRUGI_PARAM_MESSAGE_H

#include "comm/comm.h"
#include "compress/compressor_access.h"

#define FRUGI_PARAM_MSG_BYTES 80u
#define FRUGI_UPDATE_HEADER   16u /* before each frame of a payload of updates: its bytes, gain and keep */

typedef enum frugi_param_kind {
    FRUGI_PARAM_HELLO = 1,
    FRUGI_PARAM_PUSH,
    FRUGI_PARAM_PULL,
    FRUGI_PARAM_LEAVE,
    /* Replies. */
    FRUGI_PARAM_DONE,
    FRUGI_PARAM_RETRY, /* pull again: sent before the worker's timeout while the update is not ready */
    FRUGI_PARAM_REFUSED
} frugi_param_kind;

typedef struct frugi_param_msg {
    uint32_t kind;
    int32_t status; /* a frug_status: why a request was refused */
    uint64_t epoch, step;
    uint32_t rank;
    uint32_t entries; /* frames in the payload */
    uint64_t begin, count;
    uint64_t bytes; /* of the frame or payload that follows */
    uint64_t hash;  /* HELLO: frugi_server_hash(); replies: checksum of the payload */
    float rate, decay;
} frugi_param_msg;

void frugi_param_msg_encode(const frugi_param_msg *msg, unsigned char to[FRUGI_PARAM_MSG_BYTES]);

/** Returns FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM. */
frug_status frugi_param_msg_decode(const unsigned char from[FRUGI_PARAM_MSG_BYTES], frugi_param_msg *msg);

/* Tags. All but that of requests depend on the epoch, because messages of the previous epoch may still arrive. */
#define FRUGI_TAG_PARAM_REQUEST (FRUGI_TAG_FIRST + 2)
typedef enum frugi_param_tag_use {
    FRUGI_TAG_PARAM_REPLY,
    FRUGI_TAG_PARAM_PAYLOAD,
    FRUGI_TAG_PARAM_FRAME,
    FRUGI_TAG_PARAM_USES
} frugi_param_tag_use;
static inline int frugi_param_tag(frugi_param_tag_use use, uint64_t epoch) {
    return FRUGI_TAG_FIRST + 16 + (int)(epoch % 1024) * FRUGI_TAG_PARAM_USES + (int)use;
}

/** Check that the group has the configured servers and at least one worker. Returns FRUG_ERR_CONFIG. */
frug_status frugi_check_servers(const frug_config *config, const frug_comm *comm);

/** Begin of the range of server i; for i == servers the end of the last. Ranges do not divide selection groups. */
uint64_t frugi_server_begin(const frug_compressor *c, uint64_t i);

/** A hash of version, config, layout and number of steps, which must be the same on servers and workers. */
uint64_t frugi_server_hash(const frug_compressor *c);

/** Number of updates that a server keeps for workers that have not pulled them. */
size_t frugi_server_log_capacity(const frug_config *config, const frug_comm *comm);

#endif
