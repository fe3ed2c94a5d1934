/* frame_info.c - look into a frame from outside: what a receiver, or a person, wants to know of it. */
#include "codec/frame.h"
#include "common/status.h"

frug_status frug_frame_check(const void *frame, size_t len, frug_frame_info *info) {
    FRUG_FAIL_IF(!frame || !info || info->struct_size < sizeof *info, FRUG_ERR_ARG,
                 "frame: no bytes, no place for the result or its struct_size unset");
    frugi_frame open;
    FRUG_TRY(frugi_frame_open(frame, len, &open));
    frug_status verdict = frugi_frame_verify(frame, &open);
    FRUG_FAIL_IF(verdict == FRUG_ERR_CHECKSUM, verdict, "frame: the checksum does not match; it was damaged");
    FRUG_FAIL_IF(verdict != FRUG_OK, verdict, "frame: it holds an invalid index or value");
    frug_frame_info made = {.struct_size = sizeof made,
                            .version = FRUGI_FRAME_VERSION,
                            .source = open.source,
                            .step = open.step,
                            .layout_hash = open.layout_hash,
                            .bytes = open.bytes,
                            .sections = open.sections,
                            .held = open.held};
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0, end = 0;
    while (frugi_frame_next(frame, &open, &at, &s, &payload)) {
        made.begin = end ? made.begin : s.begin;
        end = s.begin + s.count;
        made.entries += s.entries;
    }
    made.count = end - made.begin;
    *info = made;
    return FRUG_OK;
}

frug_status frug_frame_section(const void *frame, size_t len, uint32_t i, frug_section_info *info) {
    FRUG_FAIL_IF(!frame || !info || info->struct_size < sizeof *info, FRUG_ERR_ARG,
                 "frame: no bytes, no place for the result or its struct_size unset");
    frugi_frame open;
    FRUG_TRY(frugi_frame_open(frame, len, &open));
    FRUG_FAIL_IF(i >= open.sections, FRUG_ERR_ARG, "frame: no section %u, there are %u", (unsigned)i,
                 (unsigned)open.sections);
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0;
    for (uint32_t n = 0; n <= i; n++)
        frugi_frame_next(frame, &open, &at, &s, &payload);
    *info = (frug_section_info){.struct_size = sizeof *info,
                                .index = frugi_index_name(s.index),
                                .value = frugi_value_name(s.value),
                                .block = s.block,
                                .tensor = s.tensor,
                                .begin = s.begin,
                                .count = s.count,
                                .entries = s.entries,
                                .bytes = s.bytes + FRUGI_SECTION_HEADER,
                                .density = (double)s.kappa / ((double)s.block * 4294967296.0)};
    return FRUG_OK;
}
