/*
 * federated_wire.h - a connection to the server of a federated run on which a test speaks for itself. Functions return
 * false, and messages have type 0, when the connection has ended.
 */
#ifndef FRUG_TEST_FEDERATED_WIRE_H
#define FRUG_TEST_FEDERATED_WIRE_H

#include "base/crc32c.h"
#include "federated/message_stream.h"

#include <poll.h>

typedef struct wire {
    fgf_tls *tls;
    fgf_stream stream;
    fgf_run_id run;
    uint64_t round;   /* that was open when it joined */
    uint64_t largest; /* update that the server takes */
} wire;

static inline bool admit_any_server(void *ctx, const fgf_public_key *key) {
    (void)ctx;
    (void)key;
    return true;
}

static inline bool wire_wait(wire *w) {
    struct pollfd wait = {.fd = fgf_channel_fd(w->stream.channel), .events = POLLIN};
    if (fgf_channel_wants_write(w->stream.channel))
        wait.events = POLLOUT;
    return poll(&wait, 1, 60000) > 0;
}

static inline bool wire_say(wire *w, const fgf_message *m) {
    fgio_reason why;
    int result = fgf_stream_send(&w->stream, m, &why) == 0 ? FGF_AGAIN : FGF_FAILED;
    while (result == FGF_AGAIN && (result = fgf_stream_flush(&w->stream, &why)) == FGF_AGAIN)
        if (!wire_wait(w))
            return false;
    return result == 1;
}

static inline fgf_message wire_hear(wire *w) {
    fgf_message m = {0};
    fgio_reason why;
    int result;
    while ((result = fgf_stream_receive(&w->stream, &m, &why)) == FGF_AGAIN)
        if (!wire_wait(w))
            break;
    return result == 1 ? m : (fgf_message){0};
}

static inline void wire_close(wire *w) {
    fgf_stream_close(&w->stream);
    fgf_tls_destroy(w->tls);
    *w = (wire){0};
}

/** Connects, and shows a key. To be closed in either case. */
static inline bool wire_open(wire *w, const char *address, const fgf_key *key) {
    fgio_reason why;
    int result = FGF_FAILED, fd = fgf_tcp_connect(address, 20, &why);
    *w = (wire){0};
    if (fd < 0 || fgf_tls_create(key, false, admit_any_server, NULL, &w->tls, &why) != 0)
        return false;
    fgf_stream_open(&w->stream, fgf_channel_create(w->tls, fd));
    while (w->stream.channel && (result = fgf_channel_handshake(w->stream.channel, &why)) == FGF_AGAIN)
        if (!wire_wait(w))
            return false;
    return result == 1;
}

static inline bool wire_join(wire *w) {
    if (!wire_say(w, &(fgf_message){.type = FGF_HELLO, .code = FGF_PROTOCOL}))
        return false;
    fgf_message m = wire_hear(w);
    if (m.type != FGF_WELCOME)
        return false;
    w->run = m.run;
    w->round = m.round;
    w->largest = m.bytes;
    return wire_say(
               w,
               &(fgf_message){.type = FGF_JOIN, .run = m.run, .layout_hash = m.layout_hash, .elements = m.elements}) &&
           wire_hear(w).type == FGF_JOINED;
}

static inline fgf_message wire_offer(const wire *w, uint64_t round, uint64_t upload, const unsigned char *frame,
                                     size_t len) {
    return (fgf_message){.type = FGF_OFFER,
                         .run = w->run,
                         .round = round,
                         .upload = upload,
                         .examples = 1,
                         .bytes = len,
                         .checksum = frugi_crc32c(0, frame, len),
                         .loss = 1};
}

#endif
