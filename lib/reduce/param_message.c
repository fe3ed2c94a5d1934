/* param_message.c - letters as bytes, and what both ends work out alike: ranges, limits, agreement. */
#include "reduce/param_message.h"

#include "base/float_bits.h"
#include "base/crc32c.h"
#include "base/status.h"

#define MAGIC          0x4c475246u /* "FRGL" */
#define STALENESS_MOST 1024u

void frugi_param_msg_encode(const frugi_param_msg *l, unsigned char to[FRUGI_PARAM_MSG_BYTES]) {
    frugi_put32(to, MAGIC);
    frugi_put32(to + 4, l->kind);
    frugi_put64(to + 8, l->epoch);
    frugi_put64(to + 16, l->step);
    frugi_put32(to + 24, l->rank);
    frugi_put32(to + 28, (uint32_t)l->status);
    frugi_put64(to + 32, l->begin);
    frugi_put64(to + 40, l->count);
    frugi_put64(to + 48, l->bytes);
    frugi_put64(to + 56, l->hash);
    memcpy(to + 64, &l->rate, 4);
    memcpy(to + 68, &l->decay, 4);
    frugi_put32(to + 72, l->entries);
    frugi_put32(to + 76, frugi_crc32c(0, to, FRUGI_PARAM_MSG_BYTES - 4));
}

frug_status frugi_param_msg_decode(const unsigned char from[FRUGI_PARAM_MSG_BYTES], frugi_param_msg *letter) {
    FRUG_FAIL_IF(frugi_get32(from) != MAGIC, FRUG_ERR_FORMAT, "letter: it is none");
    FRUG_FAIL_IF(frugi_get32(from + 76) != frugi_crc32c(0, from, FRUGI_PARAM_MSG_BYTES - 4), FRUG_ERR_CHECKSUM,
                 "letter: damaged on the way");
    frugi_param_msg l = {.kind = frugi_get32(from + 4),
                         .epoch = frugi_get64(from + 8),
                         .step = frugi_get64(from + 16),
                         .rank = frugi_get32(from + 24),
                         .status = (int32_t)frugi_get32(from + 28),
                         .begin = frugi_get64(from + 32),
                         .count = frugi_get64(from + 40),
                         .bytes = frugi_get64(from + 48),
                         .hash = frugi_get64(from + 56),
                         .entries = frugi_get32(from + 72)};
    memcpy(&l.rate, from + 64, 4);
    memcpy(&l.decay, from + 68, 4);
    FRUG_FAIL_IF(l.kind < FRUGI_PARAM_HELLO || l.kind > FRUGI_PARAM_REFUSED, FRUG_ERR_FORMAT,
                 "letter: of an unknown kind, %u", l.kind);
    *letter = l;
    return FRUG_OK;
}

frug_status frugi_check_servers(const frug_config *config, const frug_comm *comm) {
    FRUG_FAIL_IF(config->servers < 1 || config->servers >= (uint64_t)comm->size, FRUG_ERR_CONFIG,
                 "server: %llu servers in a group of %d leave no server or no worker",
                 (unsigned long long)config->servers, comm->size);
    FRUG_FAIL_IF(config->staleness > STALENESS_MOST, FRUG_ERR_CONFIG, "server: staleness is at most %u",
                 STALENESS_MOST);
    return FRUG_OK;
}

/* Whether tensors on both sides of piece i's first element compete with each other. */
static bool competes_across(const frug_compressor *c, size_t i) {
    for (size_t k = 0; k < c->contests; k++) {
        bool before = false, after = false;
        for (size_t m = 0; m < c->contest[k].pieces; m++) {
            before |= c->member[c->contest[k].first + m] < i;
            after |= c->member[c->contest[k].first + m] >= i;
        }
        if (before && after)
            return true;
    }
    return false;
}

uint64_t frugi_server_begin(const frug_compressor *c, uint64_t i) {
    uint64_t n = frug_layout_elements(c->layout), servers = c->config.servers;
    uint64_t wanted = n / servers * i + n % servers * i / servers;
    size_t p = frugi_piece_at(c, wanted);
    if (i == 0)
        return 0;
    if (p < c->pieces && wanted > c->piece[p].begin && !c->by_units)
        return c->piece[p].begin + (wanted - c->piece[p].begin) / c->config.block * c->config.block;
    if (p < c->pieces && wanted > c->piece[p].begin)
        p++;
    while (c->by_units && p < c->pieces && competes_across(c, p))
        p++;
    return p < c->pieces ? c->piece[p].begin : n;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

uint64_t frugi_server_hash(const frug_compressor *c) {
    uint64_t hash = mix(0xcbf29ce484222325u, frug_version(), strlen(frug_version()));
    hash = mix(hash, c->config.text, strlen(c->config.text));
    hash = mix(hash, &c->layout_hash, sizeof c->layout_hash);
    return mix(hash, &c->total_steps, sizeof c->total_steps);
}

/* Between two pulls of one worker every other one can be ahead by so many steps; one more of each while it comes back.
 */
size_t frugi_server_log_capacity(const frug_config *config, const frug_comm *comm) {
    size_t workers = (size_t)comm->size - (size_t)config->servers;
    return config->staleness ? workers * ((size_t)config->staleness + 3) : 4;
}
