/* identity_key.c - Ed25519 keys by OpenSSL: generating, files, and their text. */
#include "federated/identity_key.h"

#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX        "ed25519:"
#define BASE64_LENGTH 44 /* of 32 bytes */

struct fgf_key {
    EVP_PKEY *pkey;
};

static fgf_key *wrap_key(EVP_PKEY *pkey) {
    fgf_key *key = pkey ? malloc(sizeof *key) : NULL;
    if (key)
        key->pkey = pkey;
    else
        EVP_PKEY_free(pkey);
    return key;
}

fgf_key *fgf_key_generate(void) {
    return wrap_key(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"));
}

void fgf_key_destroy(fgf_key *key) {
    if (key)
        EVP_PKEY_free(key->pkey);
    free(key);
}

void *fgf_key_handle(const fgf_key *key) {
    return key->pkey;
}

fgf_public_key fgf_key_public(const fgf_key *key) {
    fgf_public_key public = {{0}};
    size_t length = sizeof public.bytes;
    EVP_PKEY_get_raw_public_key(key->pkey, public.bytes, &length);
    return public;
}

static int write_public(const fgf_key *key, const char *path, const char *name, fgio_reason *why) {
    char line[FGF_PUBLIC_TEXT + FGF_NAME_MAX + 2], text[FGF_PUBLIC_TEXT], *file = malloc(strlen(path) + 5);
    fgf_public_key public = fgf_key_public(key);
    if (!file)
        return fgio_fail(why, "not enough memory");
    sprintf(file, "%s.pub", path);
    int length = snprintf(line, sizeof line, "%s %s\n", fgf_public_text(&public, text), name);
    int status = fgio_file_write(file, line, (size_t)length);
    free(file);
    return status == FGIO_EXIT_OK ? 0 : fgio_fail(why, "%s.pub cannot be written", path);
}

int fgf_key_write(const fgf_key *key, const char *path, const char *name, fgio_reason *why) {
    if (strlen(name) >= FGF_NAME_MAX || strpbrk(name, "#\n\r\t "))
        return fgio_fail(why, "name '%s': expected one word of at most %d characters, without '#'", name,
                         FGF_NAME_MAX - 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0 && errno == EEXIST)
        return fgio_fail(why, "%s exists; a key is never replaced: name another file", path);
    if (fd < 0)
        return fgio_fail(why, "%s cannot be created: %s", path, strerror(errno));
    FILE *file = fdopen(fd, "w");
    int written = file && PEM_write_PrivateKey(file, key->pkey, NULL, NULL, 0, NULL, NULL) == 1;
    written = written && fflush(file) == 0 && fsync(fd) == 0;
    int error = errno; /* a key fits into the buffer of the file: if writing fails, fflush() or fsync() does */
    if (file)
        fclose(file);
    else
        close(fd);
    if (!written) {
        unlink(path);
        return fgio_fail(why, "%s cannot be written: %s", path, strerror(error));
    }
    return write_public(key, path, name, why);
}

int fgf_key_read(const char *path, fgf_key **key, fgio_reason *why) {
    struct stat info;
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT)
        return fgio_fail(why, "%s does not exist; 'frugrad keygen %s' makes a key", path, path);
    if (!file)
        return fgio_fail(why, "%s cannot be opened: %s", path, strerror(errno));
    if (fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXG | S_IRWXO))) {
        fclose(file);
        return fgio_fail(why, "%s: others may read this private key; 'chmod 600 %s'", path, path);
    }
    EVP_PKEY *pkey = PEM_read_PrivateKey(file, NULL, NULL, (void *)"");
    fclose(file);
    if (!pkey || EVP_PKEY_get_id(pkey) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(pkey);
        return fgio_fail(why, "%s: expected a private Ed25519 key in PEM; 'frugrad keygen FILE' makes one", path);
    }
    *key = wrap_key(pkey);
    return *key ? 0 : fgio_fail(why, "not enough memory");
}

int fgf_key_open_or_make(const char *path, const char *name, fgf_key **key, fgio_reason *why) {
    if (fgio_file_exists(path))
        return fgf_key_read(path, key, why);
    fgf_key *made = fgf_key_generate();
    if (!made)
        return fgio_fail(why, "a key cannot be generated");
    if (fgf_key_write(made, path, name, why) != 0) {
        fgf_key_destroy(made);
        return -1;
    }
    *key = made;
    return 0;
}

const char *fgf_public_text(const fgf_public_key *key, char *dst) {
    memcpy(dst, PREFIX, strlen(PREFIX));
    EVP_EncodeBlock((unsigned char *)dst + strlen(PREFIX), key->bytes, FGF_PUBLIC_BYTES);
    return dst;
}

int fgf_public_parse(const char *text, fgf_public_key *key, fgio_reason *why) {
    unsigned char bytes[BASE64_LENGTH], code[BASE64_LENGTH];
    size_t prefix = strlen(PREFIX), length = strcspn(text, " \t\r\n#");
    if (length != prefix + BASE64_LENGTH || strncmp(text, PREFIX, prefix) != 0)
        return fgio_fail(why, "expected a public key as 'ed25519:' and 44 characters, as in a .pub file of keygen");
    memcpy(code, text + prefix, BASE64_LENGTH);
    if (code[BASE64_LENGTH - 1] != '=' || EVP_DecodeBlock(bytes, code, BASE64_LENGTH) != FGF_PUBLIC_BYTES + 1)
        return fgio_fail(why, "the 44 characters after 'ed25519:' are not base64 of 32 bytes");
    memcpy(key->bytes, bytes, FGF_PUBLIC_BYTES);
    return 0;
}

int fgf_public_find(const char *what, fgf_public_key *key, fgio_reason *why) {
    fgio_bytes bytes = {0};
    fgf_allow_list list = {0};
    if (strncmp(what, PREFIX, strlen(PREFIX)) == 0)
        return fgf_public_parse(what, key, why);
    fgio_errors_mute(1);
    int status = fgio_file_read(what, &bytes);
    fgio_errors_mute(0);
    if (status != FGIO_EXIT_OK)
        return fgio_fail(why,
                         "'%s' is neither a public key ('ed25519:...') nor a file with one; serve writes "
                         "DIR/server.key.pub as it starts",
                         what);
    status = fgf_allow_list_parse((const char *)bytes.data, bytes.len, &list, why);
    fgio_bytes_free(&bytes);
    if (status == 0 && list.count != 1)
        status = fgio_fail(why, "%s: expected one public key, found %zu", what, list.count);
    if (status == 0)
        *key = list.client[0].key;
    fgf_allow_list_free(&list);
    return status;
}

bool fgf_public_equal(const fgf_public_key *a, const fgf_public_key *b) {
    return memcmp(a->bytes, b->bytes, FGF_PUBLIC_BYTES) == 0;
}
