/*
 * compressor_state.c - save and restore the state of a compressor: residual, momentum, controller, selection rule.
 *
 * A state is a header of 48 bytes and parts without gaps. Little-endian. Header:
 *    0  "FGS1"
 *    4  u8   version (2)
 *    5  u8   feedback
 *    6  u8   residual
 *    7  u8   rule
 *    8  u32  block
 *   12  u32  checksum of the state with this field zero
 *   16  u64  layout hash
 *   24  u64  blocks
 *   32  u64  length of the state in bytes
 *   40  u64  selection groups (0 for block sections)
 * Parts: elements and scales of the residual; the same of the momentum; the controller; then for each selection group
 * its threshold, an f32 (rule=threshold:track), or its scores, ages and mask (rule=learned); then one byte per block
 * (rule=hybrid with frequency=on).
 */
#include "compress/compressor.h"

#include "base/float_bits.h"
#include "base/crc32c.h"
#include "base/status.h"

#define HEADER_BYTES 48u
#define VERSION      2u
#define CRC_AT       12u

static bool has_thresholds(const frug_compressor *c) {
    return c->config.rule == FRUGI_RULE_THRESHOLD && c->config.threshold == FRUGI_THRESHOLD_TRACK;
}

static size_t select_group_bytes(const frug_compressor *c, size_t i) {
    return c->units.select_group[i].absent        ? 0
           : has_thresholds(c)                    ? 4
           : c->config.rule == FRUGI_RULE_LEARNED ? frugi_learned_bytes(&c->units.select_group[i].learned)
                                                  : 0;
}

static size_t frequency_bytes(const frug_compressor *c) {
    return c->units.hybrid_frequency && c->config.frequency ? c->partition.blocks : 0;
}

size_t frug_compressor_state_size(const frug_compressor *c) {
    if (!c)
        return 0;
    size_t size = HEADER_BYTES + frugi_store_bytes(&c->feedback.residual) + frugi_store_bytes(&c->feedback.momentum) +
                  frugi_control_bytes(c->control) + frequency_bytes(c);
    for (size_t i = 0; i < c->units.select_groups; i++)
        size += select_group_bytes(c, i);
    return size;
}

static void write_header(const frug_compressor *c, unsigned char *h) {
    memset(h, 0, HEADER_BYTES);
    memcpy(h, "FGS1", 4);
    h[4] = VERSION;
    h[5] = (unsigned char)c->config.feedback;
    h[6] = (unsigned char)c->config.residual;
    h[7] = (unsigned char)c->config.rule;
    frugi_put32(h + 8, c->config.block);
    frugi_put64(h + 16, c->layout_hash);
    frugi_put64(h + 24, c->partition.blocks);
    frugi_put64(h + 32, frug_compressor_state_size(c));
    frugi_put64(h + 40, c->units.select_groups);
}

static uint32_t state_crc(const unsigned char *state, size_t len) {
    unsigned char h[HEADER_BYTES];
    memcpy(h, state, HEADER_BYTES);
    frugi_put32(h + CRC_AT, 0);
    return frugi_crc32c(frugi_crc32c(0, h, HEADER_BYTES), state + HEADER_BYTES, len - HEADER_BYTES);
}

/* State of the selection rule. */
static void write_rule_state(const frug_compressor *c, unsigned char *at) {
    for (size_t i = 0; i < c->units.select_groups; at += select_group_bytes(c, i++)) {
        if (c->units.select_group[i].absent)
            continue;
        if (has_thresholds(c))
            frugi_put32(at, frugi_f32_bits(c->units.select_group[i].threshold));
        else if (c->config.rule == FRUGI_RULE_LEARNED)
            frugi_learned_export(&c->units.select_group[i].learned, at);
    }
    if (frequency_bytes(c))
        memcpy(at, c->units.hybrid_frequency, frequency_bytes(c));
}

static int rule_state_is_valid(const frug_compressor *c, const unsigned char *at) {
    int valid = 1;
    for (size_t i = 0; i < c->units.select_groups; at += select_group_bytes(c, i++)) {
        if (c->units.select_group[i].absent)
            continue;
        if (has_thresholds(c))
            valid &= frugi_get32(at) < FRUGI_INF_BITS; /* finite and not negative */
        else if (c->config.rule == FRUGI_RULE_LEARNED)
            valid &= frugi_learned_check(&c->units.select_group[i].learned, at);
    }
    for (size_t i = 0; i < frequency_bytes(c); i++)
        valid &= at[i] <= 15;
    return valid;
}

static void read_rule_state(frug_compressor *c, const unsigned char *at) {
    for (size_t i = 0; i < c->units.select_groups; at += select_group_bytes(c, i++)) {
        if (c->units.select_group[i].absent)
            continue;
        if (has_thresholds(c))
            c->units.select_group[i].threshold = frugi_bits_f32(frugi_get32(at));
        else if (c->config.rule == FRUGI_RULE_LEARNED)
            frugi_learned_import(&c->units.select_group[i].learned, at);
    }
    if (frequency_bytes(c))
        memcpy(c->units.hybrid_frequency, at, frequency_bytes(c));
}

frug_status frug_compressor_save(const frug_compressor *c, void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!c || !dst || !len, FRUG_ERR_ARG, "save: compressor, destination or length is NULL");
    size_t size = frug_compressor_state_size(c);
    FRUG_FAIL_IF(cap < size, FRUG_ERR_SHORT_BUFFER, "save: the buffer has %zu bytes, and the state needs %zu", cap,
                 size);
    unsigned char *out = dst;
    write_header(c, out);
    unsigned char *at = out + HEADER_BYTES;
    frugi_store_export(&c->feedback.residual, at);
    at += frugi_store_bytes(&c->feedback.residual);
    frugi_store_export(&c->feedback.momentum, at);
    at += frugi_store_bytes(&c->feedback.momentum);
    frugi_control_export(c->control, at);
    write_rule_state(c, at + frugi_control_bytes(c->control));
    frugi_put32(out + CRC_AT, state_crc(out, size));
    *len = size;
    return FRUG_OK;
}

/* Option value of a header byte; "?" for values that this version does not know. */
static const char *value_name(const char *const *names, size_t count, unsigned char value) {
    return value < count ? names[value] : "?";
}

/* Report the first difference between the headers of a state and of this compressor. */
static frug_status report_mismatch(const unsigned char *src, const unsigned char *want) {
    static const char *const feedbacks[] = {"merged", "plain", "dgc", "none", "ef21"};
    static const char *const residuals[] = {"int8", "int4", "bf16", "f32"};
    static const char *const rules[] = {"topk", "threshold", "random", "probabilistic", "hybrid", "learned"};
    static const struct {
        const char *option;
        size_t at, count;
        const char *const *names;
    } options[] = {{"feedback", 5, sizeof feedbacks / sizeof *feedbacks, feedbacks},
                   {"residual", 6, sizeof residuals / sizeof *residuals, residuals},
                   {"rule", 7, sizeof rules / sizeof *rules, rules}};
    FRUG_FAIL_IF(frugi_get64(src + 16) != frugi_get64(want + 16), FRUG_ERR_MISMATCH,
                 "state: it was made for tensors of layout %016llx, and these are %016llx",
                 (unsigned long long)frugi_get64(src + 16), (unsigned long long)frugi_get64(want + 16));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        FRUG_FAIL_IF(src[options[i].at] != want[options[i].at], FRUG_ERR_MISMATCH,
                     "state: it was made with %s=%s, and this config has %s", options[i].option,
                     value_name(options[i].names, options[i].count, src[options[i].at]),
                     value_name(options[i].names, options[i].count, want[options[i].at]));
    FRUG_FAIL_IF(frugi_get32(src + 8) != frugi_get32(want + 8), FRUG_ERR_MISMATCH,
                 "state: it was made with block=%u, and this config has %u", (unsigned)frugi_get32(src + 8),
                 (unsigned)frugi_get32(want + 8));
    return frugi_fail(
        FRUG_ERR_MISMATCH,
        "state: it has %llu blocks, %llu selection groups and %llu bytes, and this config needs %llu, %llu "
        "and %llu for the same tensors",
        (unsigned long long)frugi_get64(src + 24), (unsigned long long)frugi_get64(src + 40),
        (unsigned long long)frugi_get64(src + 32), (unsigned long long)frugi_get64(want + 24),
        (unsigned long long)frugi_get64(want + 40), (unsigned long long)frugi_get64(want + 32));
}

static frug_status check_state(const frug_compressor *c, const unsigned char *src, size_t len) {
    FRUG_FAIL_IF(len < HEADER_BYTES || memcmp(src, "FGS1", 4) != 0, FRUG_ERR_FORMAT, "state: bad magic, not FGS1");
    FRUG_FAIL_IF(src[4] != VERSION, FRUG_ERR_VERSION, "state: format version %u is not supported, only %u",
                 (unsigned)src[4], VERSION);
    FRUG_FAIL_IF(frugi_get64(src + 32) != len, FRUG_ERR_FORMAT,
                 "state: truncated or too long: its header gives %llu bytes, there are %zu",
                 (unsigned long long)frugi_get64(src + 32), len);
    FRUG_FAIL_IF(frugi_get32(src + CRC_AT) != state_crc(src, len), FRUG_ERR_CHECKSUM,
                 "state: checksum mismatch: the data are damaged");
    unsigned char want[HEADER_BYTES];
    write_header(c, want);
    frugi_put32(want + CRC_AT, frugi_get32(src + CRC_AT));
    if (memcmp(want, src, HEADER_BYTES) != 0)
        return report_mismatch(src, want);
    return FRUG_OK;
}

frug_status frug_compressor_restore(frug_compressor *c, const void *src, size_t len) {
    FRUG_FAIL_IF(!c || !src, FRUG_ERR_ARG, "restore: compressor or state is NULL");
    FRUG_TRY(check_state(c, src, len));
    const unsigned char *residual = (const unsigned char *)src + HEADER_BYTES;
    const unsigned char *momentum = residual + frugi_store_bytes(&c->feedback.residual);
    const unsigned char *control = momentum + frugi_store_bytes(&c->feedback.momentum);
    const unsigned char *rule = control + frugi_control_bytes(c->control);
    FRUG_FAIL_IF(!frugi_store_check(&c->feedback.residual, residual) ||
                     !frugi_store_check(&c->feedback.momentum, momentum),
                 FRUG_ERR_FORMAT, "state: the residual or momentum has a NaN or an infinity");
    FRUG_FAIL_IF(!frugi_control_check(c->control, control) || !rule_state_is_valid(c, rule), FRUG_ERR_FORMAT,
                 "state: invalid controller or selection state");
    frugi_store_import(&c->feedback.residual, residual);
    frugi_store_import(&c->feedback.momentum, momentum);
    frugi_control_import(c->control, control);
    read_rule_state(c, rule);
    return FRUG_OK;
}
