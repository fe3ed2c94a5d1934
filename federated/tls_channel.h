/*
 * tls_channel.h - a connection by TLS 1.3 whose both ends prove that they hold an Ed25519 key.
 *
 * Each end has a self-signed certificate of its key. Nothing in a certificate counts but the key: it is compared with
 * the pinned key of the server, or with the list of clients, in the handshake. There are no sessions to resume, so that
 * a revoked key has no way in. Sockets do not block: functions return FGF_AGAIN when they would.
 */
#ifndef FGF_TLS_CHANNEL_H
#define FGF_TLS_CHANNEL_H

#include "federated/identity_key.h"

#include <stdint.h>
#include <sys/types.h>

/** Whether a peer with this key may connect. */
typedef bool fgf_admit_fn(void *ctx, const fgf_public_key *key);

/** One side's key, and whom it admits; shared by all its channels. */
typedef struct fgf_tls fgf_tls;

int fgf_tls_create(const fgf_key *key, bool server, fgf_admit_fn *admit, void *ctx, fgf_tls **tls, fgio_reason *why);
void fgf_tls_destroy(fgf_tls *tls);

enum { FGF_AGAIN = 0, FGF_FAILED = -1 };

typedef struct fgf_channel fgf_channel;

/** A channel over a connected socket that does not block, which it owns from here on. NULL without memory: then the
 * socket is closed. */
fgf_channel *fgf_channel_create(fgf_tls *tls, int fd);

/** Ends the connection, with a notice to the peer where that needs no waiting. */
void fgf_channel_destroy(fgf_channel *channel);

int fgf_channel_fd(const fgf_channel *channel);

/** Continues the handshake: 1 when it is complete, FGF_AGAIN, or FGF_FAILED after setting the reason. */
int fgf_channel_handshake(fgf_channel *channel, fgio_reason *why);

/** The key of the peer, after the handshake. */
fgf_public_key fgf_channel_peer(const fgf_channel *channel);

/** Whether the connection failed because one side does not accept the other's key: trying again has no use. */
bool fgf_channel_was_refused(const fgf_channel *channel);

/** Reads or writes some bytes: how many, FGF_AGAIN, or FGF_FAILED after setting the reason. */
ssize_t fgf_channel_read(fgf_channel *channel, void *dst, size_t cap, fgio_reason *why);
ssize_t fgf_channel_write(fgf_channel *channel, const void *src, size_t len, fgio_reason *why);

/** Whether the last call that returned FGF_AGAIN waits until the socket can be written; otherwise, read. */
bool fgf_channel_wants_write(const fgf_channel *channel);

/** Connects to HOST:PORT within some seconds. Returns a socket that does not block, or -1 after setting the reason. */
int fgf_tcp_connect(const char *address, double seconds, fgio_reason *why);

/** Listens at HOST:PORT; port 0 is any free one. *port is the one in use. Returns a socket, or -1 after setting the
 * reason. */
int fgf_tcp_listen(const char *address, uint16_t *port, fgio_reason *why);

/** Small messages at once, and a peer that is gone is noticed. */
void fgf_tcp_tune(int fd);

#endif
