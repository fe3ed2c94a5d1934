/*
 * message.h - the messages between a client and the server of a federated run: to bytes and back.
 *
 * A message is a header of 8 bytes ("FG", the version of the protocol, the type, the length of the payload as u32) and
 * a payload of at most FGF_PAYLOAD_MAX bytes. Numbers are little-endian. Payloads are fields without padding, in the
 * order of the structs below; a text or bytes field is the last one and fills the payload.
 *
 *   client              server
 *   HELLO          ->   WELCOME   the job, as JSON
 *   JOIN           ->   JOINED    model and data of the client fit
 *   PULL           ->   WEIGHTS, CHUNK ...   when there is work;  WAIT meanwhile, DONE at the end of the run
 *   OFFER          ->   SEND      the position at which to begin or continue
 *   CHUNK ...      ->   CONFIRM   the update is on disk and will be counted once
 *   anything       ->   REFUSE    why, and whether to try again
 */
#ifndef FGF_MESSAGE_H
#define FGF_MESSAGE_H

#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

#define FGF_PROTOCOL    1u
#define FGF_HEADER      8u
#define FGF_CHUNK       (64u << 10) /* bytes of data in a CHUNK, at most */
#define FGF_PAYLOAD_MAX (FGF_CHUNK + 8u)
#define FGF_RUN_ID      16
#define FGF_NO_VERSION  UINT64_MAX

typedef enum fgf_message_type {
    FGF_HELLO = 1,
    FGF_WELCOME,
    FGF_JOIN,
    FGF_JOINED,
    FGF_PULL,
    FGF_WEIGHTS,
    FGF_CHUNK_DATA,
    FGF_OFFER,
    FGF_SEND,
    FGF_CONFIRM,
    FGF_REFUSE,
    FGF_WAIT,
    FGF_DONE,
    FGF_MESSAGE_TYPES
} fgf_message_type;

/** Why a server refuses something. */
typedef enum fgf_refusal {
    FGF_REFUSE_PROTOCOL = 1, /* a message that is not expected here, or another version: the connection ends */
    FGF_REFUSE_MODEL,        /* another model, or data with other sizes: the connection ends */
    FGF_REFUSE_RUN,          /* of another run */
    FGF_REFUSE_STALE,        /* the update comes too late: it is not counted */
    FGF_REFUSE_DOUBLE,       /* another update of this client for this round is counted already */
    FGF_REFUSE_INVALID,      /* the update is damaged or has values that are not finite */
    FGF_REFUSE_SIZE,         /* the update is larger than any of this run can be */
    FGF_REFUSE_RETRY,        /* the server cannot store it now: try again later */
    FGF_REFUSE_RATE,         /* too many messages: the connection ends */
    FGF_REFUSALS
} fgf_refusal;

typedef struct fgf_run_id {
    unsigned char bytes[FGF_RUN_ID];
} fgf_run_id;

/** Bytes inside a message; they belong to the buffer that it was parsed from. */
typedef struct fgf_span {
    const unsigned char *data;
    size_t len;
} fgf_span;

typedef struct fgf_message {
    fgf_message_type type;
    fgf_run_id run;       /* WELCOME, JOIN, PULL, OFFER */
    uint64_t layout_hash; /* WELCOME, JOIN: of the model */
    uint64_t elements;    /* WELCOME, JOIN: of its flat buffer */
    uint64_t round;       /* WELCOME: now; WEIGHTS, OFFER, CONFIRM: the base, the round whose weights these are */
    uint64_t rounds;      /* WELCOME, DONE: in all */
    uint64_t have;        /* PULL, WEIGHTS: the version that the client has and that the bytes change; or none */
    uint64_t upload;      /* OFFER, SEND, CONFIRM: a number that the client draws for each update */
    uint64_t offset;      /* PULL, WEIGHTS, CHUNK, SEND: the position in the bytes */
    uint64_t bytes;       /* WELCOME: the most of an update; WEIGHTS, OFFER: in all */
    uint64_t examples;    /* JOIN, OFFER: of the client: the weight of its update */
    uint32_t checksum;    /* WEIGHTS, OFFER: CRC-32C of the bytes; PULL: of the bytes that are continued */
    uint32_t code;        /* REFUSE: fgf_refusal; HELLO: version of the protocol */
    double loss;          /* OFFER: mean of the client's steps */
    fgf_span text;        /* HELLO: version of the software; WELCOME: the job; REFUSE: one line; CHUNK: data */
} fgf_message;

/** Name of a type ("HELLO", ...), or NULL. */
const char *fgf_message_name(unsigned type);

/** Bytes of a message with its header. */
size_t fgf_message_size(const fgf_message *message);

/** Writes a message: fgf_message_size() bytes. */
void fgf_message_encode(const fgf_message *message, unsigned char *dst);

/**
 * Checks a header: FGF_HEADER untrusted bytes.
 *
 *   *payload   bytes that follow
 *
 * Returns 0, or -1 after setting the reason: also for a payload that is longer than its type allows.
 */
int fgf_message_header(const unsigned char *bytes, fgf_message_type *type, size_t *payload, fgio_reason *why);

/** Parses header and payload, untrusted. Texts of the message point into the bytes. Returns 0, or -1 after setting the
 * reason. */
int fgf_message_parse(const unsigned char *bytes, size_t len, fgf_message *message, fgio_reason *why);

#endif
