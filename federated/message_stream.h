/*
 * message_stream.h - messages over a channel: collects what arrives until a message is complete, and queues what is to
 * be sent. Memory is bounded: one incoming message of the size its header says, FGF_STREAM_QUEUE outgoing bytes; none
 * while nothing is in flight.
 */
#ifndef FGF_MESSAGE_STREAM_H
#define FGF_MESSAGE_STREAM_H

#include "federated/message.h"
#include "federated/tls_channel.h"

#define FGF_STREAM_QUEUE (2u * FGF_PAYLOAD_MAX)

typedef struct fgf_stream {
    fgf_channel *channel; /* owned */
    unsigned char header[FGF_HEADER];
    unsigned char *in; /* the message that arrives, or that was returned last */
    size_t in_len, in_need;
    unsigned char *out;
    size_t out_at, out_len;
    uint64_t bytes_in, bytes_out; /* of messages, in all */
    bool returned;                /* the message in `in` was returned */
} fgf_stream;

void fgf_stream_open(fgf_stream *stream, fgf_channel *channel);
void fgf_stream_close(fgf_stream *stream);

/** The next message: 1, FGF_AGAIN, or FGF_FAILED after setting the reason. It is valid until the next call. */
int fgf_stream_receive(fgf_stream *stream, fgf_message *message, fgio_reason *why);

/** After FGF_FAILED: whether it was a message that is none, of another version for example, and not the connection. */
bool fgf_stream_is_damaged(const fgf_stream *stream);

/** Whether a message has begun to arrive and is not complete. */
bool fgf_stream_is_receiving(const fgf_stream *stream);

/** Queues a message. -1 without memory, or when the queue is full. */
int fgf_stream_send(fgf_stream *stream, const fgf_message *message, fgio_reason *why);

/** Whether a chunk fits into the queue. */
bool fgf_stream_has_room(const fgf_stream *stream);

/** Sends what is queued: 1 when all is sent, FGF_AGAIN, or FGF_FAILED after setting the reason. */
int fgf_stream_flush(fgf_stream *stream, fgio_reason *why);

#endif
