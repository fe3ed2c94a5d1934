/*
 * param_message.h - what workers and parameter servers say to each other.
 *
 * A worker sends a letter of fixed size, which may announce a frame; the server answers with a letter, which may
 * announce a parcel; then the worker may write again. Letters are checked whole: kind, length and checksum.
 */
#ifndef FRUGI_PARAM_MESSAGE_H
#define FRUGI_PARAM_MESSAGE_H

#include "comm/comm.h"
#include "compress/compressor.h"

#define FRUGI_PARAM_MSG_BYTES 80u
#define FRUGI_UPDATE_HEADER   16u /* before each frame of a parcel: its bytes, gain and keep */

typedef enum frugi_param_kind {
    FRUGI_PARAM_HELLO = 1,
    FRUGI_PARAM_PUSH,
    FRUGI_PARAM_PULL,
    FRUGI_PARAM_LEAVE,
    /* Answers. */
    FRUGI_PARAM_DONE,
    FRUGI_PARAM_RETRY, /* a pull that has to be asked again, so that a wait is not taken for an end */
    FRUGI_PARAM_REFUSED
} frugi_param_kind;

typedef struct frugi_param_msg {
    uint32_t kind;
    int32_t status; /* a frug_status: why something was refused */
    uint64_t epoch, step;
    uint32_t rank;
    uint32_t entries; /* frames in the parcel */
    uint64_t begin, count;
    uint64_t bytes; /* that follow */
    uint64_t hash;  /* hello: of config, layout and steps; answers: checksum of the parcel */
    float rate, decay;
} frugi_param_msg;

void frugi_param_msg_encode(const frugi_param_msg *letter, unsigned char to[FRUGI_PARAM_MSG_BYTES]);

/** Returns FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM. */
frug_status frugi_param_msg_decode(const unsigned char from[FRUGI_PARAM_MSG_BYTES], frugi_param_msg *letter);

/* Tags. Those that go with an epoch differ from the last one's, whose messages may still be under way. */
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

/** Whether there are as many servers as the config says, and at least one worker. Returns FRUG_ERR_CONFIG. */
frug_status frugi_check_servers(const frug_config *config, const frug_comm *comm);

/** Where server i's range begins; i == servers: where the last one ends. A range never cuts what competes. */
uint64_t frugi_server_begin(const frug_compressor *c, uint64_t i);

/** A hash of all that servers and workers must have alike. */
uint64_t frugi_server_hash(const frug_compressor *c);

/** The most updates that a server keeps for those who have not seen them. */
size_t frugi_server_log_capacity(const frug_config *config, const frug_comm *comm);

#endif
