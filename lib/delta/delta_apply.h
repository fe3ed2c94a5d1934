/* delta_apply.h - apply one record in memory that was reserved before, so that it can be taken back without any. */
#ifndef FRUGI_DELTA_APPLY_H
#define FRUGI_DELTA_APPLY_H

#include "delta/delta_record.h"

#define FRUGI_DELTA_ERROR_TEXT 512

/** Working memory of all threads. */
typedef struct frugi_delta_room {
    int threads;
    frugi_delta_scratch *scratch; /* one per thread */
    const unsigned char **bodies; /* of each chunk */
    uint64_t *hashes;             /* two per chunk: before, after */
} frugi_delta_room;

/** Reserve memory for records of up to that many chunks. */
frug_status frugi_delta_room_create(int threads, uint64_t chunks, frugi_delta_room *room);
void frugi_delta_room_free(frugi_delta_room *room);

/** frug_delta_apply() for a record that was read. Allocates: never. */
frug_status frugi_delta_apply(const frug_delta_info *info, int back, const frugi_delta_room *room, const void *from,
                              void *to);

/** Copy the error text of this thread, which calls that follow would replace. */
void frugi_delta_keep_error(char *text);

#endif
