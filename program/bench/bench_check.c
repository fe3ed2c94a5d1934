/*
 * bench_check.c - an independent check of one compression step.
 *
 * The accumulator is computed again from the residual before the step, by one plain loop per kind of feedback, and
 * compared with the decoded frame and the residual after the step. Which elements were sent is found by decoding onto
 * -0: an element that is not in the frame keeps its bits, and a sum that starts from zero is never -0.
 */
#include "program/bench/bench_check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(fgp_check_result *result, const char *what, uint64_t at) {
    if (!result->why[0])
        snprintf(result->why, sizeof result->why, "%s (element %llu)", what, (unsigned long long)at);
    return -1;
}

/* ---- reading the config -------------------------------------------------- */

/* Returns 0, or -1 if there is no such option or the value does not fit. */
static int value_of(const frug_config *config, const char *name, char *dst, size_t cap) {
    const char *value = frug_config_get(config, name);
    return value && (size_t)snprintf(dst, cap, "%s", value) < cap ? 0 : -1;
}

static int choice_of(const frug_config *config, const char *name, const char *const *words, int *which) {
    char value[64];
    if (value_of(config, name, value, sizeof value) != 0)
        return -1;
    for (*which = 0; words[*which]; ++*which)
        if (strcmp(words[*which], value) == 0)
            return 0;
    return -1;
}

static int option_is(const frug_config *config, const char *name, const char *word) {
    char value[64];
    return value_of(config, name, value, sizeof value) == 0 && strcmp(value, word) == 0;
}

/* Options that decide what can be checked. */
static void read_method(const frug_config *config, fgp_check_rule *rule) {
    int twice = option_is(config, "rule", "probabilistic"),
        whole = option_is(config, "value", "qsgd") || option_is(config, "value", "onebit");
    rule->blocks = option_is(config, "rule", "topk") && option_is(config, "segment", "block") &&
                   option_is(config, "unit", "element") && option_is(config, "layers", "even") &&
                   option_is(config, "norm", "off") && option_is(config, "dense_every", "0") &&
                   option_is(config, "warmup", "0") && !whole;
    rule->exact = rule->exact && rule->blocks;
    rule->uncounted = twice || whole;
    rule->known = rule->keep != FGP_KEEP_EF21 && option_is(config, "clip", "0");
    rule->rounded = twice || whole || option_is(config, "value", "int4") || option_is(config, "value", "sign") ||
                    option_is(config, "value", "two_bit");
}

/* The sparsity at the end of training, which sets beta=auto. */
static double final_sparsity(const frug_config *config) {
    /* Its index among the numbers after the schedule's name; of piecewise the last. */
    static const struct {
        const char *name;
        int which;
    } final_number[] = {{"constant:", 1}, {"frugrad:", 2}, {"anneal:", 2},
                        {"dgc:", 1},      {"relax:", 4},   {"piecewise:", 16}};
    char value[512];
    int which = 0;
    if (value_of(config, "schedule", value, sizeof value) != 0)
        return 0;
    for (size_t i = 0; i < sizeof final_number / sizeof final_number[0]; i++)
        if (strncmp(value, final_number[i].name, strlen(final_number[i].name)) == 0)
            which = final_number[i].which;
    const char *number = value, *next;
    for (; which > 0 && (next = strchr(number, ':')); which--)
        number = next + 1;
    return atof(number);
}

int fgp_check_rule_of(const frug_config *config, fgp_check_rule *rule) {
    static const char *const selects[] = {"hist", "exact", NULL};
    static const char *const keeps[] = {"merged", "plain", "dgc", "none", "ef21", NULL};
    static const char *const stores[] = {"int8", "int4", "bf16", "f32", NULL};
    static const char *const masks[] = {"auto", "on", "off", NULL};
    char block[16], beta[32], momentum[32];
    int select = 0, keep = 0, store = 0, mask = 0;
    if (value_of(config, "block", block, sizeof block) || value_of(config, "beta", beta, sizeof beta) ||
        value_of(config, "momentum", momentum, sizeof momentum) || choice_of(config, "select", selects, &select) ||
        choice_of(config, "feedback", keeps, &keep) || choice_of(config, "residual", stores, &store) ||
        choice_of(config, "mask", masks, &mask))
        return -1;
    memset(rule, 0, sizeof *rule);
    rule->block = (uint32_t)strtoul(block, NULL, 10);
    rule->exact = select;
    rule->keep = (fgp_check_record)keep;
    rule->store = (fgp_store)store;
    rule->mask = (fgp_masked)mask;
    rule->beta = (float)(strcmp(beta, "auto") ? atof(beta) : final_sparsity(config) >= 0.98 ? 0.99 : 0.95);
    rule->momentum = (float)atof(momentum);
    read_method(config, rule);
    return rule->block ? 0 : -1;
}

double fgp_check_residual_bytes(const fgp_check_rule *rule) {
    static const double stored[] = {1.0, 0.5, 2.0, 4.0};
    double bytes = stored[rule->store];
    if (rule->store == FGP_STORE_INT8 || rule->store == FGP_STORE_INT4)
        bytes += 2.0 / rule->block;
    return rule->keep == FGP_KEEP_NONE ? 0 : rule->keep == FGP_KEEP_DGC ? 2 * bytes : bytes;
}

/* ---- the sampled chunks --------------------------------------------------- */

int fgp_check_open(fgp_check *check, const frug_config *config, uint64_t n) {
    memset(check, 0, sizeof *check);
    if (fgp_check_rule_of(config, &check->rule) != 0)
        return -1;
    uint64_t all = (n + FGP_CHECK_CHUNK - 1) / FGP_CHECK_CHUNK;
    check->n = n;
    check->momentum_known = 1;
    check->chunks = all < FGP_CHECK_CHUNKS ? (uint32_t)all : FGP_CHECK_CHUNKS;
    for (uint32_t i = 0; i < check->chunks; i++) {
        uint64_t index = check->chunks > 1 ? i * (all - 1) / (check->chunks - 1) : 0;
        check->begin[i] = index * FGP_CHECK_CHUNK;
        check->count[i] = n - check->begin[i] < FGP_CHECK_CHUNK ? n - check->begin[i] : FGP_CHECK_CHUNK;
    }
    size_t sample = (size_t)check->chunks * FGP_CHECK_CHUNK;
    check->before = malloc(sample * sizeof(float));
    check->momentum = calloc(sample, sizeof(float));
    check->decoded = malloc((size_t)n * sizeof(float));
    check->scratch = malloc(3 * FGP_CHECK_CHUNK * sizeof(float));
    return check->before && check->momentum && check->decoded && check->scratch ? 0 : -1;
}

void fgp_check_close(fgp_check *check) {
    free(check->before);
    free(check->momentum);
    free(check->decoded);
    free(check->scratch);
    memset(check, 0, sizeof *check);
}

frug_status fgp_check_before(fgp_check *check, const frug_compressor *compressor) {
    frug_status status = FRUG_OK;
    for (uint32_t i = 0; i < check->chunks && status == FRUG_OK; i++)
        status = frug_compressor_get_residual(compressor, (frug_range){check->begin[i], check->count[i]},
                                              check->before + (size_t)i * FGP_CHECK_CHUNK);
    return status;
}

void fgp_check_skipped(fgp_check *check) {
    check->momentum_known = 0;
}

/* ---- one block -------------------------------------------------------------- */

int fgp_was_sent(float decoded) {
    return !(decoded == 0.0f && signbit(decoded));
}

/* Quickselect: afterwards the `top` largest are at the end, in any order. */
static void move_largest_last(float *x, uint64_t len, uint64_t top) {
    uint64_t want = len - top, low = 0, high = len;
    while (high - low > 1 && want > low && want < high) {
        float pivot = x[low + (high - low) / 2];
        uint64_t i = low, j = high - 1;
        for (;;) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i >= j)
                break;
            float swapped = x[i];
            x[i++] = x[j];
            x[j--] = swapped;
        }
        /* x[low .. i - 1] <= pivot <= x[i .. high - 1] */
        if (want < i)
            high = i;
        else if (want > i)
            low = i;
        else
            return;
    }
}

/* Every sent entry is at least as large as every unsent one, and of equal entries the first are sent. */
static int check_largest(const float *acc, const float *decoded, uint64_t len, uint64_t at, fgp_check_result *result) {
    float least = INFINITY;
    uint64_t last_least = 0;
    for (uint64_t i = 0; i < len; i++)
        if (fgp_was_sent(decoded[i]) && fabsf(acc[i]) <= least) {
            least = fabsf(acc[i]);
            last_least = i;
        }
    for (uint64_t i = 0; i < len; i++) {
        if (fgp_was_sent(decoded[i]) || fabsf(acc[i]) < least)
            continue;
        if (fabsf(acc[i]) > least)
            return fail(result, "an unsent entry is larger than a sent one", at + i);
        if (i < last_least)
            return fail(result, "of two equal entries the later one was sent", at + i);
    }
    return 0;
}

typedef struct energy {
    double all, sent, best;
} energy;

static void add_energy(const float *acc, const float *decoded, uint64_t len, float *sizes, energy *sum) {
    uint64_t sent = 0;
    for (uint64_t i = 0; i < len; i++) {
        double square = (double)acc[i] * (double)acc[i];
        sum->all += square;
        sizes[i] = fabsf(acc[i]);
        if (fgp_was_sent(decoded[i])) {
            sum->sent += square;
            sent++;
        }
    }
    move_largest_last(sizes, len, sent);
    for (uint64_t i = len - sent; i < len; i++)
        sum->best += (double)sizes[i] * (double)sizes[i];
}

/* Allowed error of sent + residual against the accumulator: one step of the residual's format. */
static float residual_error(const fgp_check_rule *rule, float unsent, float largest) {
    switch (rule->store) {
    case FGP_STORE_INT8: return largest * (1.02f / 126.0f) + FLT_MIN;
    case FGP_STORE_INT4: return largest * (1.02f / 6.0f) + FLT_MIN;
    case FGP_STORE_BF16: return fabsf(unsent) * 0x1p-7f + FLT_MIN;
    default: return 0.0f;
    }
}

static int check_conservation(const fgp_check_rule *rule, const float *acc, const float *decoded, const float *after,
                              uint64_t len, uint64_t at, fgp_check_result *result) {
    float largest = 0.0f;
    for (uint64_t i = 0; i < len; i++)
        largest = fmaxf(largest, fabsf(acc[i] - decoded[i]));
    for (uint64_t i = 0; i < len; i++) {
        float whole = decoded[i] + after[i];
        float allowed = residual_error(rule, acc[i] - decoded[i], largest);
        if (rule->rounded)
            allowed += 0x1p-22f * (fabsf(acc[i]) + fabsf(decoded[i]));
        if (allowed > 0 ? !(fabsf(whole - acc[i]) <= allowed) : whole != acc[i])
            return fail(result, "sent + residual differs from the accumulator", at + i);
    }
    return 0;
}

/* ---- one chunk, then all ------------------------------------------------------ */

static void accumulate(const fgp_check_rule *rule, const float *before, float *momentum, const float *grad,
                       uint64_t len, float *acc) {
    for (uint64_t i = 0; i < len; i++) {
        switch (rule->keep) {
        case FGP_KEEP_MERGED: acc[i] = rule->beta * before[i] + grad[i]; break;
        case FGP_KEEP_PLAIN: acc[i] = before[i] + grad[i]; break;
        case FGP_KEEP_DGC:
            momentum[i] = rule->momentum * momentum[i] + grad[i];
            acc[i] = before[i] + momentum[i];
            break;
        default: acc[i] = grad[i];
        }
    }
}

static int check_chunk(fgp_check *check, uint32_t chunk, const float *grad, const float *after, energy *sum,
                       fgp_check_result *result) {
    const fgp_check_rule *rule = &check->rule;
    uint64_t begin = check->begin[chunk], count = check->count[chunk];
    float *acc = check->scratch, *sizes = acc + FGP_CHECK_CHUNK;
    float *momentum = check->momentum + (size_t)chunk * FGP_CHECK_CHUNK;
    const float *decoded = check->decoded + begin;
    int failed = 0;
    accumulate(rule, check->before + (size_t)chunk * FGP_CHECK_CHUNK, momentum, grad + begin, count, acc);
    for (uint64_t i = 0; i < count && !failed; i += rule->block) {
        uint64_t len = count - i < rule->block ? count - i : rule->block;
        add_energy(acc + i, decoded + i, len, sizes, sum);
        if (rule->exact)
            failed = check_largest(acc + i, decoded + i, len, begin + i, result);
        if (rule->keep != FGP_KEEP_NONE && !failed)
            failed = check_conservation(rule, acc + i, decoded + i, after + i, len, begin + i, result);
    }
    int masked = rule->mask == FGP_MASKED_ON || (rule->mask == FGP_MASKED_AUTO && result->density < 0.25);
    for (uint64_t i = 0; i < count; i++)
        if (masked && fgp_was_sent(decoded[i]))
            momentum[i] = 0.0f;
    return failed;
}

/* Other methods: the frame has as many entries as its header says. */
static int check_total(const fgp_check *check, fgp_check_result *result) {
    uint64_t sent = 0;
    for (uint64_t i = 0; i < check->n; i++)
        sent += (uint64_t)fgp_was_sent(check->decoded[i]);
    if (sent == result->entries || (check->rule.uncounted && sent < result->entries))
        return 0;
    return fail(result, "the number of entries in the header is wrong", sent);
}

/* The entries of every block match the density, rounded down or up; a short last block has its share. */
static int check_counts(const fgp_check *check, fgp_check_result *result) {
    uint64_t B = check->rule.block, entries = 0;
    double per_block = result->density * (double)B;
    uint64_t low = (uint64_t)floor(per_block + 1e-6), high = (uint64_t)ceil(per_block - 1e-6);
    low = low < 1 ? 1 : low;
    high = high < 1 ? 1 : high;
    for (uint64_t begin = 0; begin < check->n; begin += B) {
        uint64_t len = check->n - begin < B ? check->n - begin : B, sent = 0;
        for (uint64_t i = 0; i < len; i++)
            sent += (uint64_t)fgp_was_sent(check->decoded[begin + i]);
        uint64_t least = (low * len + B - 1) / B, most = (high * len + B - 1) / B;
        if (sent > most)
            return fail(result, "a block sent too many entries, or decoding changed one that was not sent", begin);
        if (sent < least)
            return fail(result, "a block sent too few entries", begin);
        entries += sent;
    }
    return entries == result->entries ? 0 : fail(result, "the number of entries in the header is wrong", entries);
}

static frug_status decode(fgp_check *check, frug_compressor *compressor, const void *frame, size_t len,
                          fgp_check_result *result) {
    frug_frame_info info = {.struct_size = sizeof info};
    frug_section_info section = {.struct_size = sizeof section};
    frug_status status = frug_frame_check(frame, len, &info);
    if (status == FRUG_OK)
        status = frug_frame_section(frame, len, 0, &section);
    if (status != FRUG_OK)
        return status;
    result->entries = info.entries;
    result->density = check->rule.blocks ? section.density : (double)info.entries / (double)check->n;
    if (info.skipped)
        fail(result, "a block of finite numbers was skipped", 0);
    for (uint64_t i = 0; i < check->n; i++)
        check->decoded[i] = -0.0f;
    return frug_decode_add(frug_compressor_decoder(compressor), (frug_range){0, check->n}, &frame, &len, 1, 1.0f,
                           check->decoded);
}

frug_status fgp_check_after(fgp_check *check, frug_compressor *compressor, const float *grad, const void *frame,
                            size_t len, fgp_check_result *result) {
    energy sum = {0, 0, 0};
    memset(result, 0, sizeof *result);
    frug_status status = decode(check, compressor, frame, len, result);
    if (status != FRUG_OK)
        return status;
    int failed = (check->rule.blocks ? check_counts : check_total)(check, result);
    int accumulator_known = check->rule.known && (check->rule.keep != FGP_KEEP_DGC || check->momentum_known);
    for (uint32_t i = 0; i < check->chunks && !failed && accumulator_known; i++) {
        float *after = check->scratch + 2 * FGP_CHECK_CHUNK;
        status = frug_compressor_get_residual(compressor, (frug_range){check->begin[i], check->count[i]}, after);
        if (status != FRUG_OK)
            return status;
        failed = check_chunk(check, i, grad, after, &sum, result);
    }
    if (!accumulator_known) {
        result->energy_kept = result->energy_vs_exact = -1;
        return FRUG_OK;
    }
    result->energy_kept = sum.all > 0 ? sum.sent / sum.all : 1;
    result->energy_vs_exact = sum.best > 0 ? sum.sent / sum.best : 1;
    if (!check->rule.blocks)
        result->energy_vs_exact = -1;
    else if (!failed && result->energy_vs_exact < 0.99)
        fail(result, "less than 99 % of the energy of the largest entries was sent", 0);
    return FRUG_OK;
}

void fgp_check_whole(const float *x, const float *decoded, uint64_t n, uint64_t k, char *why, size_t cap) {
    fgp_check_result result = {.entries = k};
    uint64_t sent = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!fgp_was_sent(decoded[i]))
            continue;
        sent++;
        if (decoded[i] != x[i])
            fail(&result, "a value was changed", i);
    }
    if (sent != k)
        fail(&result, "the number of entries in the header is wrong", sent);
    check_largest(x, decoded, n, 0, &result);
    snprintf(why, cap, "%s", result.why);
}
