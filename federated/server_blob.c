/*
 * server_blob.c - weights on their way to clients, in files without a name: as many bytes as the model has, for several
 * versions that clients have, would be most of the server's memory. The files are gone when the process ends.
 */
#define _GNU_SOURCE /* O_TMPFILE */
#include "federated/server_internal.h"

#include "federated/weight_changes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Some file systems have no files without a name; there it loses its name at once. */
static int open_nameless(const char *dir) {
    char path[FGF_PATH_MAX];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "%s/incoming/weights-XXXXXX", dir);
    fd = mkstemp(path);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static int make_blob(fgf_server *s, uint64_t have, fgf_blob *b) {
    *b = (fgf_blob){.have = have, .round = s->round, .users = 1, .cached = true};
    b->fd = open_nameless(s->options.state.directory);
    if (b->fd < 0)
        return -1;
    int status = fgf_changes_write(s->state->weights, s->state->changed, s->count, have, b->fd, &b->len, &b->checksum);
    if (status != 0) {
        int reason = errno;
        close(b->fd);
        errno = reason;
    }
    return status;
}

/* The blob of a version for the open round, and how many there are. */
static fgf_blob *find_blob(const fgf_server *s, uint64_t have, unsigned *count) {
    fgf_blob *found = NULL;
    *count = 0;
    for (fgf_blob *b = s->blobs; b; b = b->next)
        if (b->round == s->round) {
            found = b->have == have ? b : found;
            ++*count;
        }
    return found;
}

fgf_blob *fgf_blob_get(fgf_server *s, uint64_t have) {
    unsigned count;
    fgf_blob *b = find_blob(s, have, &count);
    if (!b && count >= FGF_BLOBS_MAX)
        b = find_blob(s, have = FGF_NO_VERSION, &count);
    if (!b) {
        b = malloc(sizeof *b);
        if (!b || make_blob(s, have, b) != 0) {
            free(b);
            return NULL;
        }
        b->next = s->blobs;
        s->blobs = b;
    }
    b->users++;
    return b;
}

void fgf_blob_release(fgf_server *s, fgf_blob *b) {
    if (!b || --b->users > 0)
        return;
    for (fgf_blob **at = &s->blobs; *at; at = &(*at)->next)
        if (*at == b) {
            *at = b->next;
            break;
        }
    close(b->fd);
    free(b);
}

void fgf_blob_drop_old(fgf_server *s) {
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (!c->closed && c->blob && c->blob->round + 1 < s->round)
            c->closed = true;
    for (fgf_blob *b = s->blobs, *next; b; b = next) {
        next = b->next;
        if (b->cached && b->round < s->round) {
            b->cached = false;
            fgf_blob_release(s, b);
        }
    }
}
