/*
 * reducer.h - what the reduce algorithms share.
 *
 * An algorithm is a table of functions: create, run one exchange, destroy. It exchanges frames over a group with any
 * transport. Every exchange begins with a sync round, an all-gather of one record per rank: its step and range, the
 * bytes of its payload and its status. So no rank waits for one that has failed. It ends with another one in which all
 * ranks confirm that the received data are valid and the same.
 */
#ifndef FRUGI_REDUCER_H
#define FRUGI_REDUCER_H

#include "base/clock.h"
#include "comm/comm.h"
#include "compress/compressor_access.h"

/** What a rank sends in a sync round. */
typedef struct frugi_sync_record {
    int32_t status; /* a frug_status */
    uint32_t phase; /* number of the sync round in this exchange */
    uint64_t step, begin, count;
    uint64_t bytes; /* of the payload that follows */
    uint64_t hash;  /* of data that must be the same on all ranks; some rounds send another number here */
} frugi_sync_record;

/** One exchange. */
typedef struct frugi_exchange {
    uint64_t step, begin, count;
    const float *grad; /* read before its range of the target is written: the target may be grad (keep is 0 then) */
    frugi_target target;
} frugi_exchange;

#define FRUGI_FAILURE_TEXT 192u /* bytes of the error text that a failed rank sends */
#define FRUGI_ERROR_TEXT   512u /* bytes of frug_last_error() */

#define FRUGI_QUEUE_MAX 4u /* submitted buckets that wait to be reduced */

typedef struct frugi_async frugi_async;

/** Memory that grows on demand and is reused. */
typedef struct frugi_buffer {
    unsigned char *data;
    size_t bytes;
} frugi_buffer;

typedef struct frugi_algorithm {
    const char *name;
    frug_status (*create)(frug_reducer *r);  /* or NULL */
    frug_status (*resolve)(frug_reducer *r); /* collective, after create: replace r->algorithm (reduce=auto); or NULL */
    frug_status (*run)(frug_reducer *r, const frugi_exchange *exchange);
    void (*destroy)(frug_reducer *r); /* or NULL */
} frugi_algorithm;

struct frug_reducer {
    frug_comm *comm;
    frug_compressor *compressor;
    const frugi_algorithm *algorithm;
    frugi_sync_record *record;       /* of each rank in the last sync round */
    unsigned char *record_bytes;     /* the same, encoded */
    frug_message *message;           /* scratch for 4 * size + 4 */
    const void **frame;              /* one per rank */
    size_t *len;                     /* one per rank */
    char *failure;                   /* FRUGI_FAILURE_TEXT bytes per rank: error texts after a rank has failed */
    frugi_buffer send_buf, recv_buf; /* payloads */
    uint32_t phase;
    void *state;            /* of the algorithm */
    frugi_async *async;     /* NULL until the first bucket is submitted */
    double seconds_blocked; /* of the thread that submits buckets */
    frug_reduce_stats stats;
    frug_bucket_stats bucket[FRUG_BUCKETS_KNOWN]; /* exchange i at i modulo FRUG_BUCKETS_KNOWN */
};

extern const frugi_algorithm frugi_reduce_dense, frugi_reduce_gather, frugi_reduce_split, frugi_reduce_tree,
    frugi_reduce_nodes, frugi_reduce_shared, frugi_reduce_auto;

/** FRUG_ERR_ARG if buckets were submitted since the last frug_reducer_finish(), unless this is the thread that reduces
 * them. The same on all ranks, whatever has been reduced already. */
frug_status frugi_async_check_idle(frugi_async *async);

/** Reduce the buckets that are still queued, and end the thread. */
void frugi_async_destroy(frugi_async *async);

/** The algorithm of that name, or NULL. */
const frugi_algorithm *frugi_algorithm_find(const char *name);

/** Make a buffer at least `bytes` long. The content is lost when it grows. */
frug_status frugi_buffer_reserve(frugi_buffer *buffer, size_t bytes);

/**
 * A sync round. r->record gets the records of all ranks.
 *
 *   status   of this rank so far: if it is an error, every rank gets an error
 *
 * Returns status itself where it is an error, FRUG_ERR_REMOTE where another rank has one or calls do not match.
 */
frug_status frugi_sync(frug_reducer *r, const frugi_exchange *exchange, frug_status status, uint64_t bytes,
                       uint64_t hash);

/**
 * Reserve `bytes` of r->recv_buf for the payloads that the other ranks have announced in the last sync round, whose
 * hash was the room that each rank has in that buffer. If it is too small on any rank, there is another round in which
 * ranks report whether they have found memory, because nobody may wait for one that has not.
 *
 *   bytes   at most what the other ranks have announced
 */
frug_status frugi_reserve_payloads(frug_reducer *r, const frugi_exchange *exchange, size_t bytes);

/** The last sync round of an exchange: fails if hashes differ. */
frug_status frugi_confirm(frug_reducer *r, const frugi_exchange *exchange, frug_status status, uint64_t hash);

/** A hash of the lengths and checksums of frames, in order. */
uint64_t frugi_frames_hash(const void *const *frames, const size_t *lens, size_t count);

/** Add the seconds since *clock to *total, unless total is NULL, and restart the clock. */
static inline void frugi_time_phase(double *clock, double *total) {
    double now = frugi_clock();
    if (total)
        *total += now - *clock;
    *clock = now;
}

#endif
