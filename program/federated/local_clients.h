/* local_clients.h - clients of a federated run as threads of the server's process, each on a share of the data. */
#ifndef FGP_LOCAL_CLIENTS_H
#define FGP_LOCAL_CLIENTS_H

#include "federated/identity_key.h"
#include "trainer/data/data_set.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fgp_local_clients fgp_local_clients;

/** Removes a directory of a run with everything in it. */
void fgp_directory_remove(const char *path);

/** Keys and directories DIR/client-1 ... for `count` clients, which share the data, and the list of them. Returns an
 * exit status, after an error message. */
int fgp_local_clients_open(const char *directory, uint64_t count, fgt_data *data, double alpha,
                           fgp_local_clients **clients, fgf_allow_list *list);
void fgp_local_clients_close(fgp_local_clients *clients);

/** Starts the threads; they connect to a port of this machine. Returns an exit status. */
int fgp_local_clients_start(fgp_local_clients *clients, uint16_t port, fgf_public_key server);

/** Whether a client has ended with an error: the run would wait for it forever. Any thread. */
bool fgp_local_clients_have_failed(fgp_local_clients *clients);

/** Waits for their end. Returns the worst exit status. */
int fgp_local_clients_wait(fgp_local_clients *clients);

#endif
