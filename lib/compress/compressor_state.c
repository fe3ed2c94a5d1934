/*
 * compressor_state.c - save and restore what a compressor has left behind and what it has learned.
 *
 * A state is a header of 48 bytes and parts without gaps. Little-endian.
 *   0  "FGS1"   4 version u8 (2)   5 feedback u8   6 residual u8   7 rule u8   8 block u32   12 checksum u32 (this
 * field zero) 16 layout hash u64   24 blocks u64   32 length u64   40 contests u64 (0 where sections go by blocks)
 * Parts: the residual's elements and scales; the momentum's; the controller's; then for each contest its threshold, an
 * f32 (rule=threshold:track), or its scores, waits and mask (rule=learned); then a byte per block (rule=hybrid with
 * frequency=on).
 */
#include "compress/compressor.h"

#include "base/float_bits.h"
#include "base/crc32c.h"
#include "base/status.h"

#define HEADER  48u
#define VERSION 2u
#define CRC_AT  12u

static bool has_levels(const frug_compressor *c) {
    return c->config.rule == FRUGI_RULE_THRESHOLD && c->config.threshold == FRUGI_THRESHOLD_TRACK;
}

static size_t contest_bytes(const frug_compressor *c, size_t i) {
    return has_levels(c) ? 4 : c->config.rule == FRUGI_RULE_LEARNED ? frugi_learned_bytes(&c->contest[i].learned) : 0;
}

static size_t often_bytes(const frug_compressor *c) {
    return c->often && c->config.frequency ? c->blocks : 0;
}

size_t frug_compressor_state_size(const frug_compressor *c) {
    if (!c)
        return 0;
    size_t size = HEADER + frugi_store_bytes(&c->residual) + frugi_store_bytes(&c->momentum) +
                  frugi_control_bytes(c->control) + often_bytes(c);
    for (size_t i = 0; i < c->contests; i++)
        size += contest_bytes(c, i);
    return size;
}

static void write_header(const frug_compressor *c, unsigned char *h) {
    memset(h, 0, HEADER);
    memcpy(h, "FGS1", 4);
    h[4] = VERSION;
    h[5] = (unsigned char)c->config.feedback;
    h[6] = (unsigned char)c->config.residual;
    h[7] = (unsigned char)c->config.rule;
    frugi_put32(h + 8, c->config.block);
    frugi_put64(h + 16, c->layout_hash);
    frugi_put64(h + 24, c->blocks);
    frugi_put64(h + 32, frug_compressor_state_size(c));
    frugi_put64(h + 40, c->contests);
}

static uint32_t state_crc(const unsigned char *state, size_t len) {
    unsigned char h[HEADER];
    memcpy(h, state, HEADER);
    frugi_put32(h + CRC_AT, 0);
    return frugi_crc32c(frugi_crc32c(0, h, HEADER), state + HEADER, len - HEADER);
}

/* What the rule remembers. */
static void write_learned(const frug_compressor *c, unsigned char *at) {
    for (size_t i = 0; i < c->contests; at += contest_bytes(c, i++)) {
        if (has_levels(c))
            frugi_put32(at, frugi_f32_bits(c->contest[i].level));
        else if (c->config.rule == FRUGI_RULE_LEARNED)
            frugi_learned_export(&c->contest[i].learned, at);
    }
    if (often_bytes(c))
        memcpy(at, c->often, often_bytes(c));
}

static int learned_is_sound(const frug_compressor *c, const unsigned char *at) {
    int good = 1;
    for (size_t i = 0; i < c->contests; at += contest_bytes(c, i++)) {
        if (has_levels(c))
            good &= frugi_get32(at) < FRUGI_INF_BITS; /* finite and not negative */
        else if (c->config.rule == FRUGI_RULE_LEARNED)
            good &= frugi_learned_check(&c->contest[i].learned, at);
    }
    for (size_t i = 0; i < often_bytes(c); i++)
        good &= at[i] <= 15;
    return good;
}

static void read_learned(frug_compressor *c, const unsigned char *at) {
    for (size_t i = 0; i < c->contests; at += contest_bytes(c, i++)) {
        if (has_levels(c))
            c->contest[i].level = frugi_bits_f32(frugi_get32(at));
        else if (c->config.rule == FRUGI_RULE_LEARNED)
            frugi_learned_import(&c->contest[i].learned, at);
    }
    if (often_bytes(c))
        memcpy(c->often, at, often_bytes(c));
}

frug_status frug_compressor_save(const frug_compressor *c, void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!c || !dst || !len, FRUG_ERR_ARG, "save: no compressor, destination or place for the length");
    size_t size = frug_compressor_state_size(c);
    FRUG_FAIL_IF(cap < size, FRUG_ERR_SHORT_BUFFER, "save: %zu bytes to write, room for %zu", size, cap);
    unsigned char *out = dst;
    write_header(c, out);
    unsigned char *at = out + HEADER;
    frugi_store_export(&c->residual, at);
    at += frugi_store_bytes(&c->residual);
    frugi_store_export(&c->momentum, at);
    at += frugi_store_bytes(&c->momentum);
    frugi_control_export(c->control, at);
    write_learned(c, at + frugi_control_bytes(c->control));
    frugi_put32(out + CRC_AT, state_crc(out, size));
    *len = size;
    return FRUG_OK;
}

/* What one byte of the header stands for; a sound state of a later version may know more. */
static const char *word(const char *const *words, size_t count, unsigned char which) {
    return which < count ? words[which] : "?";
}

/* Say in what a state differs from what this compressor would write. */
static frug_status refuse_other(const unsigned char *src, const unsigned char *want) {
    static const char *const feedbacks[] = {"merged", "plain", "dgc", "none", "ef21"};
    static const char *const residuals[] = {"int8", "int4", "bf16", "f32"};
    static const char *const rules[] = {"topk", "threshold", "random", "probabilistic", "hybrid", "learned"};
    static const struct {
        const char *option;
        size_t at, count;
        const char *const *words;
    } options[] = {{"feedback", 5, sizeof feedbacks / sizeof *feedbacks, feedbacks},
                   {"residual", 6, sizeof residuals / sizeof *residuals, residuals},
                   {"rule", 7, sizeof rules / sizeof *rules, rules}};
    FRUG_FAIL_IF(frugi_get64(src + 16) != frugi_get64(want + 16), FRUG_ERR_MISMATCH,
                 "state: it was made for tensors of layout %016llx, and these are %016llx",
                 (unsigned long long)frugi_get64(src + 16), (unsigned long long)frugi_get64(want + 16));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        FRUG_FAIL_IF(src[options[i].at] != want[options[i].at], FRUG_ERR_MISMATCH,
                     "state: it was made with %s=%s, and this config has %s", options[i].option,
                     word(options[i].words, options[i].count, src[options[i].at]),
                     word(options[i].words, options[i].count, want[options[i].at]));
    FRUG_FAIL_IF(frugi_get32(src + 8) != frugi_get32(want + 8), FRUG_ERR_MISMATCH,
                 "state: it was made with block=%u, and this config has %u", (unsigned)frugi_get32(src + 8),
                 (unsigned)frugi_get32(want + 8));
    return frugi_fail(FRUG_ERR_MISMATCH,
                      "state: it has %llu blocks, %llu contests and %llu bytes, and this config makes %llu, %llu and "
                      "%llu of the same tensors",
                      (unsigned long long)frugi_get64(src + 24), (unsigned long long)frugi_get64(src + 40),
                      (unsigned long long)frugi_get64(src + 32), (unsigned long long)frugi_get64(want + 24),
                      (unsigned long long)frugi_get64(want + 40), (unsigned long long)frugi_get64(want + 32));
}

static frug_status check_state(const frug_compressor *c, const unsigned char *src, size_t len) {
    FRUG_FAIL_IF(len < HEADER || memcmp(src, "FGS1", 4) != 0, FRUG_ERR_FORMAT, "state: it does not begin with FGS1");
    FRUG_FAIL_IF(src[4] != VERSION, FRUG_ERR_VERSION, "state: format version %u, this library knows %u",
                 (unsigned)src[4], VERSION);
    FRUG_FAIL_IF(frugi_get64(src + 32) != len, FRUG_ERR_FORMAT, "state: its header says %llu bytes, there are %zu",
                 (unsigned long long)frugi_get64(src + 32), len);
    FRUG_FAIL_IF(frugi_get32(src + CRC_AT) != state_crc(src, len), FRUG_ERR_CHECKSUM,
                 "state: the checksum does not match; it was damaged");
    unsigned char want[HEADER];
    write_header(c, want);
    frugi_put32(want + CRC_AT, frugi_get32(src + CRC_AT));
    if (memcmp(want, src, HEADER) != 0)
        return refuse_other(src, want);
    return FRUG_OK;
}

frug_status frug_compressor_restore(frug_compressor *c, const void *src, size_t len) {
    FRUG_FAIL_IF(!c || !src, FRUG_ERR_ARG, "restore: no compressor or no state");
    FRUG_TRY(check_state(c, src, len));
    const unsigned char *residual = (const unsigned char *)src + HEADER;
    const unsigned char *momentum = residual + frugi_store_bytes(&c->residual);
    const unsigned char *control = momentum + frugi_store_bytes(&c->momentum);
    const unsigned char *learned = control + frugi_control_bytes(c->control);
    FRUG_FAIL_IF(!frugi_store_check(&c->residual, residual) || !frugi_store_check(&c->momentum, momentum),
                 FRUG_ERR_FORMAT, "state: it holds a NaN or an infinity");
    FRUG_FAIL_IF(!frugi_control_check(c->control, control) || !learned_is_sound(c, learned), FRUG_ERR_FORMAT,
                 "state: what was learned makes no sense");
    frugi_store_import(&c->residual, residual);
    frugi_store_import(&c->momentum, momentum);
    frugi_control_import(c->control, control);
    read_learned(c, learned);
    return FRUG_OK;
}
