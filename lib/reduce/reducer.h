/*
 * reducer.h - what the algorithms of an exchange share.
 *
 * An algorithm is a row of a table: how to prepare, how to run one exchange, how to end. It works on frames, which
 * describe themselves, over a group of workers of any kind. Every exchange begins with a round of marks: each worker
 * says where it is, how many bytes follow and whether it is well, so that nobody waits for one who has failed; and it
 * ends with another, in which all confirm that what they received is sound and the same.
 */
#ifndef FRUGI_REDUCER_H
#define FRUGI_REDUCER_H

#include "comm/comm.h"
#include "compress/compressor.h"

/** What a worker says of itself in a round of marks. */
typedef struct frugi_mark {
    int32_t status; /* a frug_status */
    uint32_t phase; /* which round of the exchange this is */
    uint64_t step, begin, count;
    uint64_t bytes; /* of the payload that follows */
    uint64_t hash;  /* of what must be the same everywhere */
} frugi_mark;

/** One exchange. */
typedef struct frugi_exchange {
    uint64_t step, begin, count;
    const float *grad; /* read before anything of its range is written: the target may be the same (keep is 0 then) */
    frugi_target target;
} frugi_exchange;

#define FRUGI_BUCKETS 4u /* the most that wait to be reduced */

typedef struct frugi_async frugi_async;

/** Memory that grows and is kept. */
typedef struct frugi_room {
    unsigned char *data;
    size_t bytes;
} frugi_room;

typedef struct frugi_algorithm {
    const char *name;
    frug_status (*create)(frug_reducer *r); /* or NULL */
    frug_status (*settle)(frug_reducer *r); /* collective, once all agree: make another algorithm of it; or NULL */
    frug_status (*run)(frug_reducer *r, const frugi_exchange *exchange);
    void (*destroy)(frug_reducer *r); /* or NULL */
} frugi_algorithm;

struct frug_reducer {
    frug_comm *comm;
    frug_compressor *compressor;
    const frugi_algorithm *algorithm;
    frugi_mark *mark;          /* one per rank: the last round's */
    unsigned char *wire_marks; /* the same as bytes */
    frug_message *message;     /* room for 4 * size + 4 */
    const void **frame;        /* one per rank */
    size_t *len;               /* likewise */
    frugi_room mine, theirs;   /* payloads */
    uint32_t phase;
    void *own;              /* the algorithm's */
    frugi_async *async;     /* NULL until a bucket is handed over */
    double seconds_blocked; /* of the thread that hands over */
    frug_reduce_stats stats;
    frug_bucket_stats bucket[FRUG_BUCKETS_KNOWN]; /* of exchange number i at i modulo that */
};

extern const frugi_algorithm frugi_reduce_dense, frugi_reduce_gather, frugi_reduce_split, frugi_reduce_tree,
    frugi_reduce_nodes, frugi_reduce_shared, frugi_reduce_auto;

/** Let the thread of async.c do what is left, and end it. */
void frugi_async_end(frugi_async *async);

/** The algorithm of that name, or NULL. */
const frugi_algorithm *frugi_algorithm_named(const char *name);

/** See that there are so many bytes; what was there is lost when it grows. */
frug_status frugi_room_for(frugi_room *room, size_t bytes);

/**
 * A round of marks. r->mark gets everyone's.
 *
 *   status   how this worker fares: on an error everyone, this worker included, gets an error
 *
 * Returns status itself where it is an error, FRUG_ERR_REMOTE where another worker has one or stands elsewhere.
 */
frug_status frugi_marks(frug_reducer *r, const frugi_exchange *exchange, frug_status status, uint64_t bytes,
                        uint64_t hash);

/** A round of marks whose hashes must all be the same: the end of an exchange. */
frug_status frugi_confirm(frug_reducer *r, const frugi_exchange *exchange, frug_status status, uint64_t hash);

/** A hash of frames by their checksums, in order. */
uint64_t frugi_frames_hash(const void *const *frames, const size_t *lens, size_t count);

#endif
