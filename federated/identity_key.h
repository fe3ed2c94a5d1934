/*
 * identity_key.h - Ed25519 keys: who a client or a server is, and the list of clients that are allowed.
 *
 * A key file is a private key in PEM (PKCS #8), readable by its owner only; beside it FILE.pub has one line
 * "ed25519:BASE64 NAME". A list of clients has such lines; what follows '#' is a comment.
 *
 * Functions that can fail return -1 after setting the reason.
 */
#ifndef FGF_IDENTITY_KEY_H
#define FGF_IDENTITY_KEY_H

#include "io/error.h"

#include <stdbool.h>
#include <stddef.h>

#define FGF_PUBLIC_BYTES 32
#define FGF_PUBLIC_TEXT  64 /* "ed25519:" and 44 characters of base64, and a zero */
#define FGF_NAME_MAX     64

typedef struct fgf_public_key {
    unsigned char bytes[FGF_PUBLIC_BYTES];
} fgf_public_key;

/** A private key. */
typedef struct fgf_key fgf_key;

/** A new key in memory; NULL without memory or random numbers. */
fgf_key *fgf_key_generate(void);
void fgf_key_destroy(fgf_key *key);

/** Writes FILE, which must not exist, and FILE.pub. */
int fgf_key_write(const fgf_key *key, const char *path, const char *name, fgio_reason *why);
int fgf_key_read(const char *path, fgf_key **key, fgio_reason *why);

/** Reads a key, or makes one where there is no file. */
int fgf_key_open_or_make(const char *path, const char *name, fgf_key **key, fgio_reason *why);

fgf_public_key fgf_key_public(const fgf_key *key);

/** OpenSSL's form of the key, an EVP_PKEY; owned by the key. */
void *fgf_key_handle(const fgf_key *key);

/** "ed25519:BASE64". Returns dst, FGF_PUBLIC_TEXT characters. */
const char *fgf_public_text(const fgf_public_key *key, char *dst);

/** Reads such a text; a name may follow. */
int fgf_public_parse(const char *text, fgf_public_key *key, fgio_reason *why);

/** The same, or the name of a file with such a line. */
int fgf_public_find(const char *text_or_file, fgf_public_key *key, fgio_reason *why);

bool fgf_public_equal(const fgf_public_key *a, const fgf_public_key *b);

/** One client that is allowed. */
typedef struct fgf_allowed {
    fgf_public_key key;
    char name[FGF_NAME_MAX];
} fgf_allowed;

/** Clients that are allowed, in the order of their keys, each once. */
typedef struct fgf_allow_list {
    fgf_allowed *client;
    size_t count;
} fgf_allow_list;

#define FGF_ALLOWED_MAX 100000u

int fgf_allow_list_parse(const char *text, size_t len, fgf_allow_list *list, fgio_reason *why);
int fgf_allow_list_read(const char *path, fgf_allow_list *list, fgio_reason *why);
void fgf_allow_list_free(fgf_allow_list *list);

/** The entry of a key, or NULL. */
const fgf_allowed *fgf_allow_list_find(const fgf_allow_list *list, const fgf_public_key *key);

#endif
