/* compressor_stats.c - statistics of a compressor. */
#include "compress/compressor.h"

#include "base/status.h"
#include "base/struct_size.h"

void frugi_stats_count(frug_compressor *c, uint64_t bytes, uint64_t entries, uint64_t elements) {
    frug_stats *s = &c->stats;
    s->calls++;
    s->bytes_sent += bytes;
    s->bytes_dense += sizeof(float) * elements;
    s->entries_sent += entries;
    s->entries_seen += elements;
    s->density_now = elements ? (double)entries / (double)elements : 0;
    s->density_mean = s->entries_seen ? (double)s->entries_sent / (double)s->entries_seen : 0;
}

void frugi_stats_add_tallies(frug_compressor *c) {
    frug_stats *s = &c->stats;
    double seen = 0, left = 0;
    for (int i = 0; i < c->threads; i++) {
        const frugi_tally *t = &c->workspace[i].tally;
        seen += t->energy_seen;
        left += t->energy_left;
        s->seconds_feedback += t->feedback;
        s->seconds_select += t->select;
        s->seconds_encode += t->encode;
        s->seconds_store += t->store;
        s->blocks_skipped += t->skipped;
    }
    c->energy_seen += seen;
    c->energy_left += left;
    s->energy_sent_now = seen > 0 ? 1 - left / seen : 0;
    s->energy_sent_mean = c->energy_seen > 0 ? 1 - c->energy_left / c->energy_seen : 0;
}

frug_status frug_compressor_stats(const frug_compressor *c, frug_stats *stats) {
    FRUG_FAIL_IF(!c || !stats, FRUG_ERR_ARG, "stats: compressor or stats is NULL");
    FRUG_FAIL_IF(!frugi_struct_valid(stats), FRUG_ERR_ARG, "stats: set struct_size to sizeof(frug_stats)");
    frug_stats all = c->stats;
    all.seconds_decode = c->decoder.seconds;
    frugi_struct_write(stats, &all);
    return FRUG_OK;
}
