/*
 * delta_make.c - the records of a patch.
 *
 * A thread reads a contiguous range of chunks once: it compares and hashes a chunk, and encodes what differs while it
 * is in the cache. Its bodies are written to that part of the destination that could hold them in the worst case; when
 * all threads are done, the parts are moved together. So the bytes do not depend on the number of threads, and the only
 * memory beside the destination is the scratch of a chunk.
 */
#include "delta/delta_hash.h"
#include "delta/delta_record.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/struct_size.h"

typedef struct make_job {
    const frugi_delta_kernel *kernel;
    const unsigned char *before, *after;
    uint64_t count, chunks;
    uint32_t width;
    int threads;
    unsigned char *table, *bodies;
    uint64_t *hashes; /* two per chunk: of the base, of the result */
} make_job;

/* The chunks of a thread begin here. */
static uint64_t first_chunk(const make_job *job, int thread) {
    return job->chunks * (uint64_t)thread / (uint64_t)job->threads;
}

static size_t chunk_offset(const make_job *job, uint64_t chunk) {
    return (size_t)chunk * FRUGI_DELTA_CHUNK * job->width;
}

static void encode_chunk(const make_job *job, uint64_t i, frugi_delta_scratch *scratch, unsigned char *body,
                         frugi_delta_code *code) {
    uint32_t n = frugi_delta_chunk_length(job->count, i);
    size_t at = chunk_offset(job, i);
    frugi_put64(scratch->changed + n / 64 * 8, 0); /* bits behind the last element */
    frugi_delta_scan(job->kernel, job->before + at, job->after + at, n, job->width, scratch->changed,
                     job->hashes + 2 * i);
    job->kernel->chunk->encode(job->before + at, job->after + at, n, job->width, scratch, body, code);
    unsigned char *row = job->table + FRUGI_DELTA_CODE_BYTES * i;
    frugi_put32(row, code->bytes);
    frugi_put16(row + 4, code->entries);
    row[6] = code->index;
    row[7] = code->value;
}

/* Room for the bodies of the chunks before this one, and for what is written behind each. */
static size_t body_room(const make_job *job, uint64_t chunk) {
    return chunk_offset(job, chunk) + FRUGI_DELTA_SLACK * (size_t)chunk;
}

/* Encode the chunks of a thread; returns the bytes of their bodies. */
static size_t encode_range(const make_job *job, int thread, frugi_delta_scratch *scratch) {
    uint64_t first = first_chunk(job, thread), end = first_chunk(job, thread + 1);
    unsigned char *begin = job->bodies + body_room(job, first), *at = begin;
    for (uint64_t i = first; i < end; i++) {
        frugi_delta_code code;
        encode_chunk(job, i, scratch, at, &code);
        at += code.bytes;
    }
    return (size_t)(at - begin);
}

/* Encode all chunks; returns the bytes of their bodies. */
static size_t encode_chunks(const make_job *job, frugi_delta_scratch *scratch, size_t *part) {
    size_t bytes = 0;
#pragma omp parallel for num_threads(job->threads) schedule(static, 1)
    for (int t = 0; t < job->threads; t++)
        part[t] = encode_range(job, t, scratch + t);
    for (int t = 0; t < job->threads; t++) {
        memmove(job->bodies + bytes, job->bodies + body_room(job, first_chunk(job, t)), part[t]);
        bytes += part[t];
    }
    return bytes;
}

/* Hashes of both versions, and the changed elements. */
static void add_up(const make_job *job, frug_delta_info *info) {
    for (uint64_t i = 0; i < job->chunks; i++) {
        info->base = frugi_delta_hash_word(info->base, job->hashes[2 * i]);
        info->result = frugi_delta_hash_word(info->result, job->hashes[2 * i + 1]);
        const unsigned char *row = job->table + FRUGI_DELTA_CODE_BYTES * i;
        info->entries += frugi_get16(row + 4);
    }
}

static frug_status make_change(make_job *job, frug_delta_info *info) {
    frugi_delta_scratch *scratch = frugi_malloc((size_t)job->threads * sizeof *scratch);
    size_t *part = frugi_malloc((size_t)job->threads * sizeof *part);
    job->hashes = frugi_malloc(((size_t)job->chunks * 2 + 1) * sizeof *job->hashes);
    frug_status status = FRUG_OK;
    if (!scratch || !part || !job->hashes) {
        status = frugi_fail(FRUG_ERR_MEMORY, "delta: not enough memory for %d threads", job->threads);
    } else {
        info->body_len = FRUGI_DELTA_CODE_BYTES * job->chunks + encode_chunks(job, scratch, part);
        add_up(job, info);
    }
    frugi_free(job->hashes);
    frugi_free(part);
    frugi_free(scratch);
    return status;
}

/* The body of a tensor of one version: a copy, or nothing. */
static void make_whole(const make_job *job, frug_delta_info *info, unsigned char *body) {
    const unsigned char *data = job->before ? job->before : job->after;
    uint64_t *hash = job->before ? &info->base : &info->result;
    for (uint64_t i = 0; i < job->chunks; i++) {
        size_t at = chunk_offset(job, i), bytes = (size_t)frugi_delta_chunk_length(job->count, i) * job->width;
        uint64_t own = frugi_delta_copy(job->kernel, data + at, bytes, job->before ? NULL : body + at);
        *hash = frugi_delta_hash_word(*hash, own);
    }
    info->kind = job->before ? FRUG_DELTA_REMOVED : FRUG_DELTA_FULL;
    info->entries = job->before ? 0 : job->count;
    info->body_len = job->before ? 0 : job->count * job->width;
}

static frug_status read_tensor(const frug_delta_tensor *theirs, frug_delta_tensor *tensor, uint64_t *count) {
    FRUG_FAIL_IF(!frugi_struct_valid(theirs), FRUG_ERR_ARG, "delta: the tensor is NULL or its struct_size is not set");
    frugi_struct_read(tensor, theirs);
    return frugi_delta_check_tensor(tensor, count);
}

static size_t bound_of(const frug_delta_tensor *t, uint64_t count) {
    uint64_t body = count * t->width + frugi_delta_chunks(count) * (FRUGI_DELTA_CODE_BYTES + FRUGI_DELTA_SLACK);
    return frugi_delta_record_bytes(frugi_delta_body_offset(t->ndim, strlen(t->dtype), strlen(t->name)), body);
}

frug_status frug_delta_bound(const frug_delta_tensor *theirs, size_t *bytes) {
    frug_delta_tensor tensor = FRUG_DELTA_TENSOR_INIT;
    uint64_t count;
    FRUG_FAIL_IF(!bytes, FRUG_ERR_ARG, "frug_delta_bound: bytes is NULL");
    FRUG_TRY(read_tensor(theirs, &tensor, &count));
    *bytes = bound_of(&tensor, count);
    return FRUG_OK;
}

frug_status frug_delta_make(const frug_delta_tensor *theirs, int threads, void *dst, size_t cap, size_t *len) {
    frug_delta_tensor t = FRUG_DELTA_TENSOR_INIT;
    frug_delta_info info = {.kind = FRUG_DELTA_CHANGE};
    make_job job = {.kernel = NULL};
    FRUG_FAIL_IF(!dst || !len, FRUG_ERR_ARG, "frug_delta_make: dst or len is NULL");
    FRUG_TRY(read_tensor(theirs, &t, &job.count));
    FRUG_FAIL_IF(!t.before && !t.after, FRUG_ERR_ARG, "delta: tensor '%.80s' is in neither version", t.name);
    FRUG_FAIL_IF(cap < bound_of(&t, job.count), FRUG_ERR_SHORT_BUFFER,
                 "delta: %zu bytes for tensor '%.80s', which may need %zu", cap, t.name, bound_of(&t, job.count));
    FRUG_TRY(frugi_delta_kernel_chosen(&job.kernel));
    job.before = t.before;
    job.after = t.after;
    job.width = t.width;
    job.chunks = frugi_delta_chunks(job.count);
    job.threads = frugi_delta_threads(threads, job.chunks);
    job.table = (unsigned char *)dst + frugi_delta_body_offset(t.ndim, strlen(t.dtype), strlen(t.name));
    job.bodies = job.table + FRUGI_DELTA_CODE_BYTES * job.chunks;
    if (t.before && t.after)
        FRUG_TRY(make_change(&job, &info));
    else
        make_whole(&job, &info, job.table);
    *len = frugi_delta_seal(&t, &info, dst);
    return FRUG_OK;
}

frug_status frug_delta_header(const void *before, size_t before_len, const void *after, size_t after_len, void *dst,
                              size_t cap, size_t *len) {
    FRUG_FAIL_IF(!before || !after || !dst || !len, FRUG_ERR_ARG, "frug_delta_header: an argument is NULL");
    bool same = before_len == after_len && memcmp(before, after, after_len) == 0;
    frug_delta_info info = {.kind = FRUG_DELTA_HEADER,
                            .base = frugi_delta_hash_bytes(before, before_len),
                            .result = frugi_delta_hash_bytes(after, after_len),
                            .entries = !same,
                            .body_len = same ? 0 : after_len};
    size_t offset = frugi_delta_body_offset(0, 0, 0);
    FRUG_FAIL_IF(cap < frugi_delta_record_bytes(offset, info.body_len), FRUG_ERR_SHORT_BUFFER,
                 "delta: %zu bytes are too few for the header of a file", cap);
    memcpy((unsigned char *)dst + offset, after, (size_t)info.body_len);
    *len = frugi_delta_seal(NULL, &info, dst);
    return FRUG_OK;
}

frug_status frug_delta_end(const frug_delta_totals *totals, void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!totals || !dst || !len, FRUG_ERR_ARG, "frug_delta_end: an argument is NULL");
    FRUG_FAIL_IF(cap < FRUG_DELTA_START + FRUGI_DELTA_SLACK, FRUG_ERR_SHORT_BUFFER,
                 "delta: %zu bytes are too few for an end", cap);
    frug_delta_info info = {
        .kind = FRUG_DELTA_END, .base = totals->base, .result = totals->result, .entries = totals->records};
    *len = frugi_delta_seal(NULL, &info, dst);
    return FRUG_OK;
}
