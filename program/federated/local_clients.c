/* local_clients.c - clients as threads: the same client over the same connection, on this machine. */
#define _GNU_SOURCE /* nftw */
#include "program/federated/local_clients.h"

#include "federated/update_file.h"
#include "io/files.h"
#include "program/federated/client_loop.h"

#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** One client. */
typedef struct local_client {
    fgf_key *key;
    char name[FGF_NAME_MAX], directory[FGF_PATH_MAX];
    fgp_client_options options;
    fgp_client_report report;
    atomic_bool *failed; /* of all clients */
    pthread_t thread;
    int started, status;
} local_client;

struct fgp_local_clients {
    local_client *client;
    atomic_bool failed;
    uint64_t count;
    char address[32];
};

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void fgp_directory_remove(const char *path) {
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int open_client(local_client *c, const char *directory, uint64_t number, fgf_allow_list *list) {
    char path[FGF_PATH_MAX + 8];
    fgio_reason why;
    snprintf(c->name, sizeof c->name, "client-%llu", (unsigned long long)number);
    snprintf(c->directory, sizeof c->directory, "%s/%s", directory, c->name);
    snprintf(path, sizeof path, "%s/key", c->directory);
    int status = fgio_directory_make(c->directory);
    if (status == FGIO_EXIT_OK && fgf_key_open_or_make(path, c->name, &c->key, &why) != 0)
        status = fgio_error("%s", why.text);
    if (status == FGIO_EXIT_OK) {
        fgf_allowed *allowed = &list->client[list->count++];
        allowed->key = fgf_key_public(c->key);
        snprintf(allowed->name, sizeof allowed->name, "%s", c->name);
    }
    return status;
}

static int compare_allowed(const void *a, const void *b) {
    return memcmp(((const fgf_allowed *)a)->key.bytes, ((const fgf_allowed *)b)->key.bytes, FGF_PUBLIC_BYTES);
}

int fgp_local_clients_open(const char *directory, uint64_t count, fgt_data *data, double alpha, fgp_local_clients **out,
                           fgf_allow_list *list) {
    fgp_local_clients *l = calloc(1, sizeof *l);
    if (l)
        l->client = calloc(count, sizeof *l->client);
    list->client = calloc(count, sizeof *list->client);
    if (!l || !l->client || !list->client) {
        free(l);
        return fgio_error("not enough memory for the clients");
    }
    *out = l;
    l->count = count;
    for (uint64_t i = 0; i < count; i++) {
        local_client *c = &l->client[i];
        if (open_client(c, directory, i + 1, list) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        c->options = (fgp_client_options){
            .client = {.key = c->key, .directory = c->directory, .is_stopped = fgp_client_is_stopped, .patience = 30},
            .opened = data,
            .part = i,
            .parts = count,
            .alpha = alpha,
            .threads = 1};
    }
    qsort(list->client, list->count, sizeof *list->client, compare_allowed);
    return FGIO_EXIT_OK;
}

void fgp_local_clients_close(fgp_local_clients *l) {
    if (!l)
        return;
    for (uint64_t i = 0; i < l->count; i++)
        fgf_key_destroy(l->client[i].key);
    free(l->client);
    free(l);
}

static void *run_client(void *arg) {
    local_client *c = arg;
    c->status = fgp_client_run(&c->options, &c->report);
    if (c->status != FGIO_EXIT_OK)
        atomic_store(c->failed, true);
    return NULL;
}

bool fgp_local_clients_have_failed(fgp_local_clients *l) {
    return atomic_load(&l->failed);
}

int fgp_local_clients_start(fgp_local_clients *l, uint16_t port, fgf_public_key server) {
    snprintf(l->address, sizeof l->address, "127.0.0.1:%u", port);
    for (uint64_t i = 0; i < l->count; i++) {
        local_client *c = &l->client[i];
        c->options.client.server = l->address;
        c->options.client.server_key = server;
        c->failed = &l->failed;
        c->started = pthread_create(&c->thread, NULL, run_client, c) == 0;
        if (!c->started)
            return fgio_error("a thread for a client cannot be started");
    }
    return FGIO_EXIT_OK;
}

int fgp_local_clients_wait(fgp_local_clients *l) {
    int worst = FGIO_EXIT_OK;
    for (uint64_t i = 0; i < l->count; i++)
        if (l->client[i].started) {
            pthread_join(l->client[i].thread, NULL);
            worst = l->client[i].status > worst ? l->client[i].status : worst;
        }
    return worst;
}
