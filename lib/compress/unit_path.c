/*
 * unit_path.c - compress by units: accumulate the whole range, select, then encode.
 *
 * Rules that compare more than one block need all accumulators before they can select, and the sizes of unit sections
 * are known only after the selection. Dense tensors have block sections, as in block_path.c.
 */
#include "compress/compress_path.h"

#include "base/clock.h"
#include "base/status.h"

/* Accumulate, select, then make the sections, whose sizes are known now. */
static void select_units(const frugi_compress_call *call, frugi_frame_size *size) {
    frug_compressor *c = call->c;
    frugi_tally *tally = &c->workspace[0].tally;
    size_t first, end;
    double t0 = frugi_clock();
    frugi_select_groups_in(c, call->begin, call->count, &first, &end);
    frugi_accumulate_range(call, first, end);
    double t1 = frugi_clock();
    frugi_select_units(call, first, end);
    double t2 = frugi_clock();
    frugi_make_sections(c, (frug_range){call->begin, call->count}, call->step, FRUGI_SECTIONS_STEP, c->section, size);
    tally->feedback += t1 - t0;
    tally->select += t2 - t1;
    tally->encode += frugi_clock() - t2;
}

static void encode_units(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
    frugi_tally *tally = &c->workspace[0].tally;
    double t0 = frugi_clock();
    for (size_t i = 0; i < size->sections; i++)
        if (!c->section[i].section.block)
            frugi_encode_unit_section(call, &c->section[i]);
    double t1 = frugi_clock();
    frugi_store_residual(call);
    tally->encode += t1 - t0;
    tally->store += frugi_clock() - t1;
}

static frug_status bound(const frug_compressor *c, frug_range range, uint64_t *bytes) {
    frugi_frame_size dense;
    uint64_t units;
    FRUG_TRY(frugi_make_sections(c, range, 0, FRUGI_SECTIONS_BOUND, NULL, &dense));
    FRUG_TRY(frugi_unit_sections_bound(c, range.begin, range.count, &units));
    *bytes = dense.bytes + units;
    return FRUG_OK;
}

/* The sections are made after the selection; this checks that the range can be compressed. */
static frug_status make_sections(const frugi_compress_call *call, frugi_frame_size *size, uint64_t *bytes) {
    *size = (frugi_frame_size){0};
    return bound(call->c, (frug_range){call->begin, call->count}, bytes);
}

static void encode(const frugi_compress_call *call, frugi_frame_size *size) {
    select_units(call, size);
    frugi_encode_blocks(call, size);
    encode_units(call, size);
}

const frugi_compress_path frugi_unit_path = {
    .by_units = true,
    .add_sections = frugi_add_unit_sections,
    .bound = bound,
    .make_sections = make_sections,
    .encode = encode,
    .plan = frugi_plan_units,
};
