/* param_message.c - encode and decode messages; ranges, limits and hash, which both sides compute. */
#include "reduce/param_message.h"

#include "base/float_bits.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/status.h"

#define MAGIC         0x4c475246u /* "FRGL" */
#define MAX_STALENESS 1024u

void frugi_param_msg_encode(const frugi_param_msg *m, unsigned char to[FRUGI_PARAM_MSG_BYTES]) {
    frugi_put32(to, MAGIC);
    frugi_put32(to + 4, m->kind);
    frugi_put64(to + 8, m->epoch);
    frugi_put64(to + 16, m->step);
    frugi_put32(to + 24, m->rank);
    frugi_put32(to + 28, (uint32_t)m->status);
    frugi_put64(to + 32, m->begin);
    frugi_put64(to + 40, m->count);
    frugi_put64(to + 48, m->bytes);
    frugi_put64(to + 56, m->hash);
    memcpy(to + 64, &m->rate, 4);
    memcpy(to + 68, &m->decay, 4);
    frugi_put32(to + 72, m->entries);
    frugi_put32(to + 76, frugi_crc32c(0, to, FRUGI_PARAM_MSG_BYTES - 4));
}

frug_status frugi_param_msg_decode(const unsigned char from[FRUGI_PARAM_MSG_BYTES], frugi_param_msg *msg) {
    FRUG_FAIL_IF(frugi_get32(from) != MAGIC, FRUG_ERR_FORMAT, "param server: bad message magic");
    FRUG_FAIL_IF(frugi_get32(from + 76) != frugi_crc32c(0, from, FRUGI_PARAM_MSG_BYTES - 4), FRUG_ERR_CHECKSUM,
                 "param server: bad message checksum");
    frugi_param_msg m = {.kind = frugi_get32(from + 4),
                         .epoch = frugi_get64(from + 8),
                         .step = frugi_get64(from + 16),
                         .rank = frugi_get32(from + 24),
                         .status = (int32_t)frugi_get32(from + 28),
                         .begin = frugi_get64(from + 32),
                         .count = frugi_get64(from + 40),
                         .bytes = frugi_get64(from + 48),
                         .hash = frugi_get64(from + 56),
                         .entries = frugi_get32(from + 72)};
    memcpy(&m.rate, from + 64, 4);
    memcpy(&m.decay, from + 68, 4);
    FRUG_FAIL_IF(m.kind < FRUGI_PARAM_HELLO || m.kind > FRUGI_PARAM_REFUSED, FRUG_ERR_FORMAT,
                 "param server: unknown message kind %u", m.kind);
    *msg = m;
    return FRUG_OK;
}

frug_status frugi_check_servers(const frug_config *config, const frug_comm *comm) {
    FRUG_FAIL_IF(config->servers < 1 || config->servers >= (uint64_t)comm->size, FRUG_ERR_CONFIG,
                 "param server: servers=%llu in a group of %d: at least one server and one worker are needed",
                 (unsigned long long)config->servers, comm->size);
    FRUG_FAIL_IF(config->staleness > MAX_STALENESS, FRUG_ERR_CONFIG, "param server: staleness must be at most %u",
                 MAX_STALENESS);
    return FRUG_OK;
}

/* Whether a selection group has tensors both before and from tensor i on. */
static bool group_spans(const frug_compressor *c, size_t i) {
    const frugi_tensor_view *view = frugi_compressor_partition(c)->view;
    for (size_t k = 0; k < i; k++)
        if (frugi_select_group_end(c, &view[k]) > view[i].begin)
            return true;
    return false;
}

uint64_t frugi_server_begin(const frug_compressor *c, uint64_t i) {
    const struct frug_config *config = frugi_compressor_config(c);
    const frugi_partition *tensors = frugi_compressor_partition(c);
    uint64_t n = tensors->elements, servers = config->servers;
    uint64_t wanted = n / servers * i + n % servers * i / servers;
    size_t p = frugi_view_at(tensors, wanted);
    bool by_units = frugi_compressor_by_units(c), inside = p < tensors->views && wanted > tensors->view[p].begin;
    if (i == 0)
        return 0;
    if (inside && !by_units)
        return tensors->view[p].begin + (wanted - tensors->view[p].begin) / config->block * config->block;
    if (inside)
        p++;
    while (by_units && p < tensors->views && group_spans(c, p))
        p++;
    return p < tensors->views ? tensors->view[p].begin : n;
}

uint64_t frugi_server_hash(const frug_compressor *c) {
    const uint64_t layout_hash = frugi_compressor_layout_hash(c), total_steps = frugi_compressor_options(c).total_steps;
    uint64_t hash = frugi_hash_text(FRUGI_HASH_INIT, frug_version());
    hash = frugi_hash_text(hash, frugi_compressor_config(c)->text);
    hash = frugi_hash_bytes(hash, &layout_hash, sizeof layout_hash);
    return frugi_hash_bytes(hash, &total_steps, sizeof total_steps);
}

/* Between two pulls of a worker every other worker can add `staleness` steps, and some more while it reconnects. */
size_t frugi_server_log_capacity(const frug_config *config, const frug_comm *comm) {
    size_t workers = (size_t)comm->size - (size_t)config->servers;
    return config->staleness ? workers * ((size_t)config->staleness + 3) : 4;
}
