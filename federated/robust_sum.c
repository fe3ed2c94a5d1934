/*
 * robust_sum.c - the weighted mean of updates, with limits.
 *
 * The trimmed mean needs all values of an index at once. Each update becomes a list of indices and values, and the
 * lists are merged in windows of indices, so that memory grows with the entries sent and not with the model.
 */
#include "federated/robust_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 1024u

const char *const fgf_robust_names[] = {"mean", "clip", "trim", NULL};

static int compare_doubles(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The lower one of the two in the middle, so that half of the clients cannot raise it. Sorts the numbers. */
static double median_of(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_doubles);
    return numbers[(count - 1) / 2];
}

static double examples_of(const fgf_update *update) {
    return update->examples ? (double)update->examples : 1;
}

int fgf_sum_shares(const fgf_sum_rule *rule, uint64_t round, const fgf_update *updates, size_t count,
                   fgf_share *shares) {
    double *numbers = malloc((count + 1) * sizeof *numbers);
    double most = (double)INFINITY, norm = (double)INFINITY, sum = 0;
    if (!numbers)
        return -1;
    if (count > 2) { /* of two, neither can be told to be wrong */
        for (size_t i = 0; i < count; i++)
            numbers[i] = examples_of(&updates[i]);
        most = FGF_EXAMPLES_LIMIT * median_of(numbers, count);
        for (size_t i = 0; i < count; i++)
            numbers[i] = updates[i].norm;
        norm = rule->robust == FGF_ROBUST_MEAN ? norm : median_of(numbers, count);
    }
    for (size_t i = 0; i < count; i++) {
        double stale = (double)(round - updates[i].base);
        shares[i].weight = fmin(examples_of(&updates[i]), most) * pow(1 + stale, -rule->stale_power);
        shares[i].limit = updates[i].norm > norm ? norm / updates[i].norm : 1;
        sum += shares[i].weight;
    }
    for (size_t i = 0; i < count; i++)
        shares[i].weight /= sum;
    free(numbers);
    return 0;
}

int fgf_sum_check(frug_decoder *decoder, const void *frame, size_t len, uint64_t step, uint64_t count, float *scratch,
                  double *norm, uint64_t *entries, fgio_reason *why) {
    frug_frame_info info = {.struct_size = sizeof info};
    double sum = 0;
    if (frug_frame_check(frame, len, &info) != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    if (info.step != step)
        return fgio_fail(why, "the frame is of step %llu, and the update of round %llu", (unsigned long long)info.step,
                         (unsigned long long)step);
    memset(scratch, 0, count * sizeof *scratch);
    if (frug_decode_add(decoder, (frug_range){0, count}, &frame, &len, 1, 1, scratch) != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    *entries = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += (double)scratch[i] * (double)scratch[i];
        *entries += scratch[i] != 0;
    }
    *norm = sqrt(sum);
    return isfinite(sum) ? 0 : fgio_fail(why, "it has values that are not finite");
}

static int add_update(frug_decoder *decoder, const void *frame, size_t len, double scale, uint64_t count, float *sum,
                      fgio_reason *why) {
    frug_status status = frug_decode_add(decoder, (frug_range){0, count}, &frame, &len, 1, scale, sum);
    return status == FRUG_OK ? 0 : fgio_fail(why, "%s", frug_last_error());
}

/** The entries of one update. */
typedef struct entry_list {
    uint32_t *index;
    float *value;
    uint64_t count, at;
} entry_list;

static int list_entries(const float *dense, uint64_t count, uint64_t entries, entry_list *list) {
    *list = (entry_list){.index = malloc((entries + 1) * sizeof *list->index),
                         .value = malloc((entries + 1) * sizeof *list->value)};
    if (!list->index || !list->value)
        return -1;
    for (uint64_t i = 0; i < count && list->count < entries; i++)
        if (dense[i] != 0) {
            list->index[list->count] = (uint32_t)i;
            list->value[list->count++] = dense[i];
        }
    return 0;
}

/** One client's value of an index. */
typedef struct vote {
    double value, weight;
} vote;

static int compare_votes(const void *x, const void *y) {
    const vote *a = x, *b = y;
    return (a->value > b->value) - (a->value < b->value);
}

static float trimmed_mean(const fgf_sum_rule *rule, vote *votes, size_t count) {
    double all = 0, kept = 0, sum = 0;
    size_t drop = (size_t)(rule->trim * (double)count);
    for (size_t i = 0; i < count; i++)
        all += votes[i].weight;
    qsort(votes, count, sizeof *votes, compare_votes);
    for (size_t i = drop; i < count - drop; i++) {
        kept += votes[i].weight;
        sum += votes[i].weight * votes[i].value;
    }
    return kept > 0 ? (float)(sum / kept * all) : 0;
}

/* Merges the lists in one window of indices. */
static void trim_window(const fgf_sum_rule *rule, entry_list *lists, const fgf_share *shares, size_t clients,
                        uint64_t begin, vote *votes, float *mean) {
    uint32_t sent[WINDOW] = {0};
    for (size_t c = 0; c < clients; c++) {
        entry_list *l = &lists[c];
        for (; l->at < l->count && l->index[l->at] < begin + WINDOW; l->at++) {
            uint32_t i = (uint32_t)(l->index[l->at] - begin);
            votes[(size_t)i * clients + sent[i]++] =
                (vote){(double)l->value[l->at] * shares[c].limit, shares[c].weight};
        }
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        if (sent[i])
            mean[begin + i] = trimmed_mean(rule, &votes[(size_t)i * clients], sent[i]);
}

static int load_lists(const fgf_update *updates, size_t clients, frug_decoder *decoder, fgf_load_fn *load, void *ctx,
                      uint64_t count, float *dense, entry_list *lists, fgio_reason *why) {
    for (size_t c = 0; c < clients; c++) {
        void *frame = load(ctx, &updates[c], why);
        memset(dense, 0, count * sizeof *dense);
        int status = frame ? add_update(decoder, frame, updates[c].bytes, 1, count, dense, why) : -1;
        free(frame);
        if (status == 0 && list_entries(dense, count, updates[c].entries, &lists[c]) != 0)
            status = fgio_fail(why, "not enough memory");
        if (status != 0)
            return -1;
    }
    return 0;
}

static int sum_trimmed(const fgf_sum_rule *rule, const fgf_update *updates, const fgf_share *shares, size_t clients,
                       frug_decoder *decoder, fgf_load_fn *load, void *ctx, uint64_t count, float *mean,
                       fgio_reason *why) {
    entry_list *lists = calloc(clients, sizeof *lists);
    vote *votes = calloc((size_t)WINDOW * clients, sizeof *votes);
    float *dense = malloc(count * sizeof *dense);
    int status = lists && votes && dense && count <= UINT32_MAX
                     ? load_lists(updates, clients, decoder, load, ctx, count, dense, lists, why)
                     : fgio_fail(why, "not enough memory, or more than 2^32 parameters");
    for (uint64_t begin = 0; status == 0 && begin < count; begin += WINDOW)
        trim_window(rule, lists, shares, clients, begin, votes, mean);
    for (size_t c = 0; lists && c < clients; c++) {
        free(lists[c].index);
        free(lists[c].value);
    }
    free(lists);
    free(votes);
    free(dense);
    return status;
}

int fgf_sum_updates(const fgf_sum_rule *rule, uint64_t round, const fgf_update *updates, size_t updates_count,
                    frug_decoder *decoder, fgf_load_fn *load, void *ctx, uint64_t count, float *mean,
                    fgio_reason *why) {
    fgf_share *shares = calloc(updates_count + 1, sizeof *shares);
    int status = shares && fgf_sum_shares(rule, round, updates, updates_count, shares) == 0
                     ? 0
                     : fgio_fail(why, "not enough memory");
    memset(mean, 0, count * sizeof *mean);
    if (status == 0 && rule->robust == FGF_ROBUST_TRIM)
        status = sum_trimmed(rule, updates, shares, updates_count, decoder, load, ctx, count, mean, why);
    for (size_t i = 0; status == 0 && rule->robust != FGF_ROBUST_TRIM && i < updates_count; i++) {
        void *frame = load(ctx, &updates[i], why);
        status =
            frame ? add_update(decoder, frame, updates[i].bytes, shares[i].weight * shares[i].limit, count, mean, why)
                  : -1;
        free(frame);
    }
    free(shares);
    return status;
}
