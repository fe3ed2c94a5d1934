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
    for (size_t k = 0; k < c->select_groups; k++) {
        bool before = false, after = false;
        for (size_t m = 0; m < c->select_group[k].views; m++) {
            before |= c->member[c->select_group[k].first + m] < i;
            after |= c->member[c->select_group[k].first + m] >= i;
        }
        if (before && after)
            return true;
    }
    return false;
}

uint64_t frugi_server_begin(const frug_compressor *c, uint64_t i) {
    uint64_t n = frug_layout_elements(c->layout), servers = c->config.servers;
    uint64_t wanted = n / servers * i + n % servers * i / servers;
    size_t p = frugi_view_at(&c->partition, wanted);
    if (i == 0)
        return 0;
    if (p < c->partition.views && wanted > c->partition.view[p].begin && !c->by_units)
        return c->partition.view[p].begin + (wanted - c->partition.view[p].begin) / c->config.block * c->config.block;
    if (p < c->partition.views && wanted > c->partition.view[p].begin)
        p++;
    while (c->by_units && p < c->partition.views && group_spans(c, p))
        p++;
    return p < c->partition.views ? c->partition.view[p].begin : n;
}

uint64_t frugi_server_hash(const frug_compressor *c) {
    uint64_t hash = frugi_hash_text(FRUGI_HASH_INIT, frug_version());
    hash = frugi_hash_text(hash, c->config.text);
    hash = frugi_hash_bytes(hash, &c->layout_hash, sizeof c->layout_hash);
    return frugi_hash_bytes(hash, &c->total_steps, sizeof c->total_steps);
}

/* Between two pulls of a worker every other worker can add `staleness` steps, and some more while it reconnects. */
size_t frugi_server_log_capacity(const frug_config *config, const frug_comm *comm) {
    size_t workers = (size_t)comm->size - (size_t)config->servers;
    return config->staleness ? workers * ((size_t)config->staleness + 3) : 4;
}
