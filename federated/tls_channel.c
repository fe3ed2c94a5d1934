/* tls_channel.c - TLS 1.3 by OpenSSL with self-signed certificates and pinned keys. */
#include "federated/tls_channel.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fgf_tls {
    SSL_CTX *ctx;
    bool server;
    fgf_admit_fn *admit;
    void *admit_ctx;
};

struct fgf_channel {
    SSL *ssl;
    int fd;
    bool server, wants_write, done, refused;
    fgf_public_key peer;
};

static bool certificate_key(X509 *certificate, fgf_public_key *key) {
    size_t length = sizeof key->bytes;
    EVP_PKEY *pkey = certificate ? X509_get0_pubkey(certificate) : NULL;
    return pkey && EVP_PKEY_get_id(pkey) == EVP_PKEY_ED25519 &&
           EVP_PKEY_get_raw_public_key(pkey, key->bytes, &length) == 1 && length == sizeof key->bytes;
}

/* Replaces the verification of chains and names: the handshake proves that the peer holds the key. */
static int admit_peer(X509_STORE_CTX *store, void *ctx) {
    fgf_tls *tls = ctx;
    fgf_public_key key;
    if (certificate_key(X509_STORE_CTX_get0_cert(store), &key) && tls->admit(tls->admit_ctx, &key))
        return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
    return 0;
}

/* Dates are those of RFC 5280 for certificates without an end: nobody looks at them. */
static X509 *make_certificate(EVP_PKEY *pkey) {
    X509 *c = X509_new();
    X509_NAME *name = c ? X509_get_subject_name(c) : NULL;
    bool made = name && X509_set_version(c, 2) && ASN1_INTEGER_set(X509_get_serialNumber(c), 1) &&
                ASN1_TIME_set_string(X509_getm_notBefore(c), "20000101000000Z") &&
                ASN1_TIME_set_string(X509_getm_notAfter(c), "99991231235959Z") &&
                X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"frugrad", -1, -1, 0) &&
                X509_set_issuer_name(c, name) && X509_set_pubkey(c, pkey) && X509_sign(c, pkey, NULL) > 0;
    if (made)
        return c;
    X509_free(c);
    return NULL;
}

static bool set_up(fgf_tls *tls, EVP_PKEY *pkey) {
    X509 *certificate = make_certificate(pkey);
    bool made = certificate && tls->ctx && SSL_CTX_set_min_proto_version(tls->ctx, TLS1_3_VERSION) &&
                SSL_CTX_use_certificate(tls->ctx, certificate) && SSL_CTX_use_PrivateKey(tls->ctx, pkey) &&
                SSL_CTX_set_num_tickets(tls->ctx, 0) && SSL_CTX_set1_sigalgs_list(tls->ctx, "ed25519");
    X509_free(certificate);
    if (!made)
        return false;
    SSL_CTX_set_options(tls->ctx, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(tls->ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(tls->ctx, admit_peer, tls);
    SSL_CTX_set_max_cert_list(tls->ctx, 4096);
    SSL_CTX_set_mode(tls->ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    return true;
}

int fgf_tls_create(const fgf_key *key, bool server, fgf_admit_fn *admit, void *ctx, fgf_tls **out, fgio_reason *why) {
    fgf_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return fgio_fail(why, "not enough memory");
    *tls = (fgf_tls){.ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method()),
                     .server = server,
                     .admit = admit,
                     .admit_ctx = ctx};
    if (!set_up(tls, fgf_key_handle(key))) {
        fgf_tls_destroy(tls);
        return fgio_fail(why, "TLS cannot be set up: %s", ERR_reason_error_string(ERR_get_error()));
    }
    *out = tls;
    return 0;
}

void fgf_tls_destroy(fgf_tls *tls) {
    if (tls)
        SSL_CTX_free(tls->ctx);
    free(tls);
}

fgf_channel *fgf_channel_create(fgf_tls *tls, int fd) {
    fgf_channel *channel = calloc(1, sizeof *channel);
    SSL *ssl = channel ? SSL_new(tls->ctx) : NULL;
    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        free(channel);
        close(fd);
        return NULL;
    }
    *channel = (fgf_channel){.ssl = ssl, .fd = fd, .server = tls->server};
    if (tls->server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return channel;
}

void fgf_channel_destroy(fgf_channel *channel) {
    if (!channel)
        return;
    if (channel->done)
        SSL_shutdown(channel->ssl);
    ERR_clear_error();
    SSL_free(channel->ssl);
    close(channel->fd);
    free(channel);
}

int fgf_channel_fd(const fgf_channel *channel) {
    return channel->fd;
}

bool fgf_channel_wants_write(const fgf_channel *channel) {
    return channel->wants_write;
}

bool fgf_channel_was_refused(const fgf_channel *channel) {
    return channel->refused;
}

fgf_public_key fgf_channel_peer(const fgf_channel *channel) {
    return channel->peer;
}

/* The reason of a failure, in the words of the side that is told. */
static int explain(fgf_channel *channel, fgio_reason *why) {
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    ERR_clear_error();
    if (error == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return fgio_fail(why, "the connection ended");
    channel->refused = reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || reason == SSL_R_CERTIFICATE_VERIFY_FAILED ||
                       reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED;
    if (reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED)
        return fgio_fail(why, channel->server ? "the client does not accept the server's key"
                                              : "the server does not accept this key: ask its operator to add the line "
                                                "of your .pub file to the list of clients");
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return fgio_fail(why, channel->server ? "its key is not in the list of clients"
                                              : "the server has another key than --server says: ask its operator for "
                                                "the line of its .pub file");
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return fgio_fail(why, "it has no key");
    return fgio_fail(why, "TLS: %s", ERR_reason_error_string(error));
}

/* FGF_AGAIN, or FGF_FAILED after setting the reason. */
static int interpret(fgf_channel *channel, int result, fgio_reason *why) {
    int error = SSL_get_error(channel->ssl, result);
    channel->wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return FGF_AGAIN;
    channel->done = false; /* after an error there is no orderly end */
    return explain(channel, why);
}

int fgf_channel_handshake(fgf_channel *channel, fgio_reason *why) {
    ERR_clear_error();
    int result = SSL_do_handshake(channel->ssl);
    if (result != 1)
        return interpret(channel, result, why);
    X509 *certificate = SSL_get0_peer_certificate(channel->ssl);
    if (!certificate_key(certificate, &channel->peer))
        return fgio_fail(why, "the peer has no key");
    channel->done = true;
    return 1;
}

ssize_t fgf_channel_read(fgf_channel *channel, void *dst, size_t cap, fgio_reason *why) {
    size_t got = 0;
    ERR_clear_error();
    int result = SSL_read_ex(channel->ssl, dst, cap, &got);
    return result == 1 ? (ssize_t)got : interpret(channel, result, why);
}

/* A peer that does not accept this key says so and closes; when the next write meets the closed end, what it said is
 * still to be read. */
static void read_farewell(fgf_channel *channel, fgio_reason *why) {
    unsigned char byte;
    size_t got;
    fgio_reason last;
    ERR_clear_error();
    if (SSL_read_ex(channel->ssl, &byte, 1, &got) != 1 && explain(channel, &last) != 0 && channel->refused)
        *why = last;
}

ssize_t fgf_channel_write(fgf_channel *channel, const void *src, size_t len, fgio_reason *why) {
    size_t put = 0;
    ERR_clear_error();
    int result = SSL_write_ex(channel->ssl, src, len, &put);
    if (result == 1)
        return (ssize_t)put;
    int status = interpret(channel, result, why);
    if (status == FGF_FAILED && !channel->refused)
        read_farewell(channel, why);
    return status;
}
