/*
 * round_book.h - what the server knows of each client, and the rules by which an update is counted, once.
 *
 * A client works on one base round after the other, so the highest base that was confirmed is enough to recognize an
 * update that is sent again, and one that must not count twice.
 */
#ifndef FGF_ROUND_BOOK_H
#define FGF_ROUND_BOOK_H

#include "federated/update_file.h"

/** One client. Every field has eight bytes, or a multiple: this is also its form on disk. */
typedef struct fgf_client_record {
    fgf_public_key key;
    uint64_t base;   /* of the last update that was confirmed; FGF_NO_VERSION: none */
    uint64_t upload; /* its number */
    uint64_t counted, late;
    uint64_t limited;               /* updates whose norm was limited */
    uint64_t refused[FGF_REFUSALS]; /* by reason */
    uint64_t bytes_up, bytes_down;
    uint64_t examples;
    uint64_t connections;
    double loss; /* of the last update */
} fgf_client_record;

/** Clients in the order of their keys. */
typedef struct fgf_book {
    fgf_client_record *client;
    size_t count, capacity;
} fgf_book;

void fgf_book_free(fgf_book *book);

/** The record of a client, or NULL. */
fgf_client_record *fgf_book_find(const fgf_book *book, const fgf_public_key *key);

/** The record of a client, a new one if there is none; NULL without memory. Other records may move. */
fgf_client_record *fgf_book_add(fgf_book *book, const fgf_public_key *key);

/** Copies all records. Returns -1 without memory. */
int fgf_book_copy(const fgf_book *from, fgf_book *to);

/** Rules of the rounds of a run. */
typedef struct fgf_round_rule {
    uint64_t rounds;
    uint64_t quorum;    /* updates without which a round does not close; 0: half of the clients */
    double deadline;    /* seconds after which a round closes with a quorum */
    uint64_t stale_max; /* the most rounds that an update may be late */
} fgf_round_rule;

typedef enum fgf_verdict {
    FGF_VERDICT_ACCEPT,    /* new, and in time */
    FGF_VERDICT_CONFIRMED, /* the same update was confirmed before: say so again, count it once */
    FGF_VERDICT_STALE,     /* too late, or all rounds have closed */
    FGF_VERDICT_DOUBLE,
    FGF_VERDICT_FUTURE /* of a round that has not begun */
} fgf_verdict;

/** Decides about an update that a client offers while updates for `round` are collected. */
fgf_verdict fgf_round_judge(const fgf_round_rule *rule, const fgf_client_record *client, uint64_t round, uint64_t base,
                            uint64_t upload);

/** Whether a round closes: all allowed clients have sent an update, or the deadline has passed and there is a quorum.
 */
bool fgf_round_closes(const fgf_round_rule *rule, size_t allowed, size_t updates, double seconds_open);

#endif
