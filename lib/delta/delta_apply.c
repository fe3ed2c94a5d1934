/*
 * delta_apply.c - apply the record of one tensor.
 *
 * A chunk is hashed while it is copied, changed in the cache, and hashed again. Differences are added, so that they can
 * be subtracted again: in place, chunks are changed before it is known whether the base is the right one, and if it is
 * not, all are changed back. One pass over the weights is enough for that.
 */
#include "delta/delta_apply.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "delta/delta_hash.h"

typedef struct apply_job {
    const frug_delta_info *info;
    const frugi_delta_kernel *kernel;
    const unsigned char *from;
    unsigned char *to;
    uint64_t chunks;
    int threads, back;
    const frugi_delta_room *room;
} apply_job;

static frugi_delta_code code_of(const frug_delta_info *info, uint64_t i) {
    const unsigned char *row = (const unsigned char *)info->body + FRUGI_DELTA_CODE_BYTES * i;
    return (frugi_delta_code){frugi_get32(row), frugi_get16(row + 4), row[6], row[7]};
}

/* Find the bodies of all chunks. */
static frug_status find_bodies(const frug_delta_info *info, uint64_t chunks, const unsigned char **bodies) {
    uint64_t at = FRUGI_DELTA_CODE_BYTES * chunks, entries = 0;
    for (uint64_t i = 0; i < chunks; i++) {
        frugi_delta_code code = code_of(info, i);
        bodies[i] = (const unsigned char *)info->body + at;
        at += code.bytes;
        entries += code.entries;
        FRUG_FAIL_IF(at > info->body_len, FRUG_ERR_FORMAT, "delta: the chunks of tensor '%.*s' exceed their record",
                     (int)(info->name_len < 80 ? info->name_len : 80), info->name);
    }
    FRUG_FAIL_IF(at != info->body_len || entries != info->entries, FRUG_ERR_FORMAT,
                 "delta: the chunks of tensor '%.*s' do not add up to their record",
                 (int)(info->name_len < 80 ? info->name_len : 80), info->name);
    return FRUG_OK;
}

static frug_status apply_chunk(const apply_job *job, uint64_t i, frugi_delta_scratch *scratch) {
    uint32_t n = frugi_delta_chunk_length(job->info->count, i), width = job->info->width;
    size_t at = (size_t)i * FRUGI_DELTA_CHUNK * width, bytes = (size_t)n * width;
    frugi_delta_code code = code_of(job->info, i);
    FRUG_TRY(job->kernel->chunk->decode(job->room->bodies[i], &code, n, width, scratch));
    const unsigned char *from = job->from + at;
    unsigned char *to = job->to + at;
    uint64_t *hashes = job->room->hashes + 2 * i;
    hashes[0] = hashes[1] = frugi_delta_copy(job->kernel, from, bytes, from == to ? NULL : to);
    if (code.entries > 0) {
        job->kernel->chunk->apply(scratch, code.entries, width, job->back, to);
        hashes[1] = frugi_delta_copy(job->kernel, to, bytes, NULL);
    }
    return FRUG_OK;
}

/* Apply all chunks that are valid; the status of the first that is not. */
static frug_status apply_chunks(const apply_job *job) {
    uint64_t bad = job->chunks;
#pragma omp parallel for num_threads(job->threads) schedule(static, 1) reduction(min : bad)
    for (int t = 0; t < job->threads; t++) {
        uint64_t end = job->chunks * (uint64_t)(t + 1) / (uint64_t)job->threads;
        for (uint64_t i = job->chunks * (uint64_t)t / (uint64_t)job->threads; i < end; i++)
            if (apply_chunk(job, i, job->room->scratch + t) != FRUG_OK && i < bad)
                bad = i;
    }
    if (bad == job->chunks)
        return FRUG_OK;
    frugi_delta_code code = code_of(job->info, bad); /* once more, for the error text of this thread */
    return job->kernel->chunk->decode(job->room->bodies[bad], &code, frugi_delta_chunk_length(job->info->count, bad),
                                      job->info->width, job->room->scratch);
}

/* Whether the weights were, and have become, what the record says. */
static frug_status compare_hashes(const apply_job *job) {
    const frug_delta_info *info = job->info;
    uint64_t before = 0, after = 0, wanted = job->back ? info->result : info->base;
    int name = (int)(info->name_len < 80 ? info->name_len : 80);
    for (uint64_t i = 0; i < job->chunks; i++) {
        before = frugi_delta_hash_word(before, job->room->hashes[2 * i]);
        after = frugi_delta_hash_word(after, job->room->hashes[2 * i + 1]);
    }
    FRUG_FAIL_IF(before != wanted && before == (job->back ? info->base : info->result), FRUG_ERR_MISMATCH,
                 "delta: tensor '%.*s' is %s already", name, info->name, job->back ? "the base" : "the result");
    FRUG_FAIL_IF(before != wanted, FRUG_ERR_MISMATCH,
                 "delta: tensor '%.*s' is not the version that the patch %s: its hash is %016llx, not %016llx", name,
                 info->name, job->back ? "leads to" : "was made from", (unsigned long long)before,
                 (unsigned long long)wanted);
    FRUG_FAIL_IF(after != (job->back ? info->base : info->result), FRUG_ERR_FORMAT,
                 "delta: what the patch makes of tensor '%.*s' has another hash than the patch says", name, info->name);
    return FRUG_OK;
}

frug_status frugi_delta_room_create(int threads, uint64_t chunks, frugi_delta_room *room) {
    room->threads = frugi_delta_threads(threads, chunks);
    room->scratch = frugi_malloc((size_t)room->threads * sizeof *room->scratch);
    room->bodies = frugi_malloc(((size_t)chunks + 1) * sizeof *room->bodies);
    room->hashes = frugi_malloc(((size_t)chunks * 2 + 1) * sizeof *room->hashes);
    if (room->scratch && room->bodies && room->hashes)
        return FRUG_OK;
    frugi_delta_room_free(room);
    return frugi_fail(FRUG_ERR_MEMORY, "delta: not enough memory for %d threads", room->threads);
}

void frugi_delta_room_free(frugi_delta_room *room) {
    frugi_free(room->hashes);
    frugi_free(room->bodies);
    frugi_free(room->scratch);
}

frug_status frugi_delta_apply(const frug_delta_info *info, int back, const frugi_delta_room *room, const void *from,
                              void *to) {
    apply_job job = {.info = info, .room = room, .from = from, .to = to, .back = back};
    char text[FRUGI_DELTA_ERROR_TEXT];
    FRUG_TRY(frugi_delta_kernel_chosen(&job.kernel));
    job.chunks = frugi_delta_chunks(info->count);
    job.threads = frugi_delta_threads(room->threads, job.chunks);
    FRUG_TRY(find_bodies(info, job.chunks, room->bodies));
    frug_status status = apply_chunks(&job);
    if (status == FRUG_OK)
        status = compare_hashes(&job);
    if (status == FRUG_OK || from != to)
        return status;
    frugi_delta_keep_error(text); /* chunks that are invalid, and were not changed, fail again */
    job.back = !back;
    (void)!apply_chunks(&job);
    return frug_set_last_error(status, text);
}

void frugi_delta_keep_error(char *text) {
    strncpy(text, frug_last_error(), FRUGI_DELTA_ERROR_TEXT - 1);
    text[FRUGI_DELTA_ERROR_TEXT - 1] = 0;
}

frug_status frug_delta_apply(const void *record, size_t len, frug_delta_direction direction, int threads,
                             const void *from, size_t bytes, void *to) {
    frug_delta_info info = {.struct_size = sizeof info};
    FRUG_TRY(frug_delta_read(record, len, &info));
    FRUG_FAIL_IF(info.kind != FRUG_DELTA_CHANGE, FRUG_ERR_ARG,
                 "frug_delta_apply: the record is not a change of a tensor");
    FRUG_FAIL_IF(info.count > 0 && (!from || !to), FRUG_ERR_ARG, "frug_delta_apply: from or to is NULL");
    FRUG_FAIL_IF(info.count * info.width != bytes, FRUG_ERR_MISMATCH,
                 "delta: the record is of a tensor of %llu bytes, and this one has %zu",
                 (unsigned long long)(info.count * info.width), bytes);
    frugi_delta_room room;
    FRUG_TRY(frugi_delta_room_create(threads, frugi_delta_chunks(info.count), &room));
    frug_status status = frugi_delta_apply(&info, direction == FRUG_DELTA_BACK, &room, from, to);
    frugi_delta_room_free(&room);
    return status;
}

frug_status frug_delta_indices(const void *record, size_t len, uint64_t *indices) {
    frug_delta_info info = {.struct_size = sizeof info};
    FRUG_TRY(frug_delta_read(record, len, &info));
    FRUG_FAIL_IF(info.kind != FRUG_DELTA_CHANGE || (!indices && info.entries), FRUG_ERR_ARG,
                 "frug_delta_indices: the record is not a change of a tensor, or indices is NULL");
    uint64_t chunks = frugi_delta_chunks(info.count), done = 0;
    frugi_delta_scratch *scratch = frugi_malloc(sizeof *scratch);
    const unsigned char **bodies = frugi_malloc(((size_t)chunks + 1) * sizeof *bodies);
    frug_status status = scratch && bodies ? find_bodies(&info, chunks, bodies)
                                           : frugi_fail(FRUG_ERR_MEMORY, "delta: not enough memory");
    for (uint64_t i = 0; i < chunks && status == FRUG_OK; i++) {
        frugi_delta_code code = code_of(&info, i);
        status = frugi_delta_chunk_code_plain.decode(bodies[i], &code, frugi_delta_chunk_length(info.count, i),
                                                     info.width, scratch);
        for (uint32_t j = 0; j < code.entries && status == FRUG_OK; j++)
            indices[done++] = i * FRUGI_DELTA_CHUNK + scratch->index[j];
    }
    frugi_free(bodies);
    frugi_free(scratch);
    return status;
}
