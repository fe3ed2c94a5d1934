/*
 * update_file.h - updates of clients on the server's disk, from the first byte that arrives until they are counted.
 *
 *   DIR/incoming/KEY.part       an update that arrives: where it breaks off, it continues after a reconnect or a
 * restart DIR/round-N/KEY-BASE.update complete, checked and confirmed: it is counted when round N closes
 *
 * KEY is the client's public key in hexadecimal. A file has a header of FGF_UPDATE_HEADER bytes with a checksum, and
 * then the frame.
 */
#ifndef FGF_UPDATE_FILE_H
#define FGF_UPDATE_FILE_H

#include "federated/identity_key.h"
#include "federated/message.h"

#define FGF_UPDATE_HEADER 160u
#define FGF_PATH_MAX      4096

/** What is known of an update. */
typedef struct fgf_update {
    fgf_run_id run;
    fgf_public_key client;
    uint64_t base;     /* the round whose weights the client started from */
    uint64_t upload;   /* drawn by the client: the same when it sends the update again */
    uint64_t examples; /* as the client says */
    uint64_t bytes;    /* of the frame */
    uint64_t entries;  /* of the frame; known when it is complete */
    uint32_t checksum; /* CRC-32C of the frame */
    double loss;       /* as the client says */
    double norm;       /* of the decoded frame; known when it is complete */
} fgf_update;

void fgf_update_encode(const fgf_update *update, unsigned char header[FGF_UPDATE_HEADER]);

/** Parses a header, untrusted. Returns -1 after setting the reason. */
int fgf_update_parse(const unsigned char *header, size_t len, fgf_update *update, fgio_reason *why);

/** Opens the file in which an update arrives, and begins it anew unless the same update has begun to arrive. *have:
 * bytes of the frame that are there. Returns a file descriptor, or -1 after setting the reason. */
int fgf_update_begin(const char *dir, const fgf_update *update, uint64_t *have, fgio_reason *why);

/** Writes bytes of the frame. Returns -1 after setting the reason. */
int fgf_update_write(int fd, uint64_t offset, const void *data, size_t len, fgio_reason *why);

/** Reads the frame of an open file: update->bytes bytes at dst. Returns -1 after setting the reason. */
int fgf_update_read(int fd, const fgf_update *update, void *dst, fgio_reason *why);

/** Writes the complete header, and moves the file to the directory of a round: when this returns, it is on disk. */
int fgf_update_finish(const char *dir, int fd, const fgf_update *update, uint64_t round, fgio_reason *why);

/** Removes the file in which an update of a client arrives. */
void fgf_update_abandon(const char *dir, const fgf_public_key *client);

/** Opens a complete update. Returns a file descriptor, or -1 after setting the reason. */
int fgf_update_open(const char *dir, uint64_t round, const fgf_update *update, fgio_reason *why);

/** Moves updates that were stored for the round after this one to this one: it was being closed when the server was
 * killed, and is open again. Returns -1 after setting the reason. */
int fgf_update_take_back(const char *dir, uint64_t round, fgio_reason *why);

/** The updates that are on disk for a round, by client and base; *list is for the caller to free. Files that are
 * damaged are removed. Returns -1 after setting the reason. */
int fgf_update_list(const char *dir, uint64_t round, const fgf_run_id *run, fgf_update **list, size_t *count,
                    fgio_reason *why);

/** Removes the directories of all rounds below one. */
void fgf_update_remove_before(const char *dir, uint64_t round);

#endif
