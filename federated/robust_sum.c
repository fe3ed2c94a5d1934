/*
 * robust_sum.c - the weighted mean of updates, with limits.
 *
 * The trimmed mean needs all values of an index at once. Each update becomes a list of indices and values, and the
 * lists are merged in windows of indices. When all entries are too many for the memory that the rule allows, this is
 * done for one range of indices after the other; every range decodes all updates again.
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

/** The entries of one update in a range of indices. */
typedef struct entry_list {
    uint32_t *index;
    float *value;
    uint64_t count, at;
} entry_list;

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

/** What the trimmed mean is made from. */
typedef struct trimming {
    const fgf_sum_rule *rule;
    const fgf_update *updates;
    const fgf_share *shares;
    size_t clients;
    frug_decoder *decoder;
    fgf_load_fn *load;
    void *ctx;
    uint64_t count, windows;
    float *dense;      /* one update */
    uint32_t *entries; /* of all updates, in each window */
    entry_list *lists; /* one for each client */
    vote *votes;       /* clients for each index of a window */
} trimming;

static int decode_update(const trimming *t, size_t c, fgio_reason *why) {
    void *frame = t->load(t->ctx, &t->updates[c], why);
    memset(t->dense, 0, t->count * sizeof *t->dense);
    int status = frame ? add_update(t->decoder, frame, t->updates[c].bytes, 1, t->count, t->dense, why) : -1;
    free(frame);
    return status;
}

static uint64_t count_nonzero(const float *dense, uint64_t begin, uint64_t end) {
    uint64_t count = 0;
    for (uint64_t i = begin; i < end; i++)
        count += dense[i] != 0;
    return count;
}

static uint64_t window_begin(const trimming *t, uint64_t window) {
    return window * WINDOW < t->count ? window * WINDOW : t->count;
}

static int count_entries(const trimming *t, fgio_reason *why) {
    for (size_t c = 0; c < t->clients; c++) {
        if (decode_update(t, c, why) != 0)
            return -1;
        for (uint64_t w = 0; w < t->windows; w++)
            t->entries[w] += (uint32_t)count_nonzero(t->dense, window_begin(t, w), window_begin(t, w + 1));
    }
    return 0;
}

/* The end of the windows from `first` on whose entries are in memory together: at least one window. */
static uint64_t last_window(const trimming *t, uint64_t first) {
    uint64_t end = first + 1, sum = t->entries[first];
    while (end < t->windows && sum + t->entries[end] <= t->rule->entries_max)
        sum += t->entries[end++];
    return end;
}

static void free_lists(const trimming *t) {
    for (size_t c = 0; c < t->clients; c++) {
        free(t->lists[c].index);
        free(t->lists[c].value);
        t->lists[c] = (entry_list){0};
    }
}

static int make_list(const trimming *t, uint64_t begin, uint64_t end, entry_list *list) {
    uint64_t entries = count_nonzero(t->dense, begin, end);
    *list = (entry_list){.index = malloc((entries + 1) * sizeof *list->index),
                         .value = malloc((entries + 1) * sizeof *list->value)};
    if (!list->index || !list->value)
        return -1;
    for (uint64_t i = begin; i < end; i++)
        if (t->dense[i] != 0) {
            list->index[list->count] = (uint32_t)i;
            list->value[list->count++] = t->dense[i];
        }
    return 0;
}

static int make_lists(const trimming *t, uint64_t begin, uint64_t end, fgio_reason *why) {
    for (size_t c = 0; c < t->clients; c++) {
        if (decode_update(t, c, why) != 0)
            return -1;
        if (make_list(t, begin, end, &t->lists[c]) != 0)
            return fgio_fail(why, "not enough memory");
    }
    return 0;
}

/* Merges the lists in one window of indices. */
static void trim_window(const trimming *t, uint64_t begin, float *mean) {
    uint32_t sent[WINDOW] = {0};
    for (size_t c = 0; c < t->clients; c++) {
        entry_list *l = &t->lists[c];
        for (; l->at < l->count && l->index[l->at] < begin + WINDOW; l->at++) {
            uint32_t i = (uint32_t)(l->index[l->at] - begin);
            t->votes[(size_t)i * t->clients + sent[i]++] =
                (vote){(double)l->value[l->at] * t->shares[c].limit, t->shares[c].weight};
        }
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        if (sent[i])
            mean[begin + i] = trimmed_mean(t->rule, &t->votes[(size_t)i * t->clients], sent[i]);
}

static int trim_ranges(const trimming *t, float *mean, fgio_reason *why) {
    uint64_t all = 0;
    int status = 0;
    for (size_t c = 0; c < t->clients; c++)
        all += t->updates[c].entries;
    if (all > t->rule->entries_max)
        status = count_entries(t, why);
    for (uint64_t first = 0, end; status == 0 && first < t->windows; first = end) {
        end = last_window(t, first);
        status = make_lists(t, window_begin(t, first), window_begin(t, end), why);
        for (uint64_t w = first; status == 0 && w < end; w++)
            trim_window(t, w * WINDOW, mean);
        free_lists(t);
    }
    return status;
}

static int sum_trimmed(trimming *t, float *mean, fgio_reason *why) {
    t->windows = (t->count + WINDOW - 1) / WINDOW;
    t->entries = calloc(t->windows + 1, sizeof *t->entries);
    t->lists = calloc(t->clients + 1, sizeof *t->lists);
    t->votes = calloc((size_t)WINDOW * t->clients + 1, sizeof *t->votes);
    int status = t->entries && t->lists && t->votes && t->count <= UINT32_MAX
                     ? trim_ranges(t, mean, why)
                     : fgio_fail(why, "not enough memory, or more than 2^32 parameters");
    free(t->entries);
    free(t->lists);
    free(t->votes);
    return status;
}

int fgf_sum_updates(const fgf_sum_rule *rule, uint64_t round, const fgf_update *updates, size_t updates_count,
                    frug_decoder *decoder, fgf_load_fn *load, void *ctx, uint64_t count, float *scratch, float *mean,
                    fgio_reason *why) {
    fgf_share *shares = calloc(updates_count + 1, sizeof *shares);
    int status = shares && fgf_sum_shares(rule, round, updates, updates_count, shares) == 0
                     ? 0
                     : fgio_fail(why, "not enough memory");
    memset(mean, 0, count * sizeof *mean);
    if (status == 0 && rule->robust == FGF_ROBUST_TRIM)
        status = sum_trimmed(&(trimming){.rule = rule,
                                         .updates = updates,
                                         .shares = shares,
                                         .clients = updates_count,
                                         .decoder = decoder,
                                         .load = load,
                                         .ctx = ctx,
                                         .count = count,
                                         .dense = scratch},
                             mean, why);
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
