/*
 * rate_schedule.c - learning-rate schedules: a small parser and four formulas. The cosine is computed here, because the
 * last bit of the C library's differs between machines, and workers on two of them would diverge.
 */
#include "trainer/run/rate_schedule.h"

#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX   256
#define WARMUP_MAX 1e15 /* exact as a double */

static const char *const kinds[] = {"constant", "cosine", "linear", "step", NULL};

/* ---- reading ------------------------------------------------------------- */

/* All of text as a decimal number within [least, most]. */
static int read_number(const char *text, double min, double max, double *number) {
    char *end = NULL;
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return 0;
    *number = strtod(text, &end);
    return *end == '\0' && isfinite(*number) && *number >= min && *number <= max;
}

/* "0.5,0.75:0.1" */
static int parse_marks(char *text, fgt_rate *rate) {
    char *factor = strchr(text, ':');
    if (!factor)
        return fgio_usage_error("rate schedule: step needs marks and a factor, as in step:0.5,0.75:0.1");
    *factor++ = '\0';
    if (!read_number(factor, 1e-9, 1, &rate->factor))
        return fgio_usage_error("rate schedule: '%s' is not a factor above 0, up to 1", factor);
    for (char *at = text, *next; at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        double after = rate->marks ? rate->mark[rate->marks - 1] : 0, mark = 0;
        if (!read_number(at, 0, 1, &mark) || mark <= after || mark >= 1)
            return fgio_usage_error(
                "rate schedule: '%s' is not a mark between %g and 1; marks are increasing shares of training", at,
                after);
        if (rate->marks == FGT_RATE_MARKS)
            return fgio_usage_error("rate schedule: more than %d marks", FGT_RATE_MARKS);
        rate->mark[rate->marks++] = mark;
    }
    return FGIO_EXIT_OK;
}

static int parse_kind(const char *name, fgt_rate *rate) {
    for (int i = 0; kinds[i]; i++) {
        if (strcmp(kinds[i], name) == 0) {
            rate->kind = (fgt_rate_kind)i;
            return FGIO_EXIT_OK;
        }
    }
    const char *near = fgio_nearest_word(name, kinds);
    if (near)
        return fgio_usage_error("rate schedule: unknown schedule '%s'; did you mean '%s'?", name, near);
    return fgio_usage_error("rate schedule: unknown schedule '%s'; accepted: constant cosine linear step", name);
}

/* Cuts an option off the end: the text after the last ',' if it has a '='. */
static int parse_option(char *text, fgt_rate *rate) {
    char *option = strrchr(text, ',');
    double steps = 0;
    if (!option || !strchr(option, '='))
        return FGIO_EXIT_OK;
    *option++ = '\0';
    if (strncmp(option, "warmup=", 7) != 0)
        return fgio_usage_error("rate schedule: unknown option '%s'; there is warmup=STEPS and warmup=PERCENT%%",
                                option);
    char *percent = option + strlen(option) - 1;
    if (*percent == '%') {
        *percent = '\0';
        if (!read_number(option + 7, 0, 100, &rate->warmup_share))
            return fgio_usage_error("rate schedule: warmup: '%s%%' is not between 0%% and 100%%", option + 7);
        rate->warmup_share /= 100;
        return FGIO_EXIT_OK;
    }
    if (!read_number(option + 7, 0, WARMUP_MAX, &steps) || steps != floor(steps))
        return fgio_usage_error("rate schedule: warmup: '%s' is neither a whole number of steps nor a percentage",
                                option + 7);
    rate->warmup = (uint64_t)steps;
    return FGIO_EXIT_OK;
}

int fgt_rate_parse(const char *text, fgt_rate *rate) {
    fgt_rate read = {0};
    char copy[TEXT_MAX];
    if (strlen(text) >= sizeof copy)
        return fgio_usage_error("rate schedule: more than %d characters", TEXT_MAX - 1);
    fgio_printable(text, copy, sizeof copy);
    int status = parse_option(copy, &read);
    if (status != FGIO_EXIT_OK)
        return status;
    char *marks = strchr(copy, ':');
    if (marks)
        *marks++ = '\0';
    status = parse_kind(copy, &read);
    if (status != FGIO_EXIT_OK)
        return status;
    if (marks && read.kind != FGT_RATE_STEP)
        return fgio_usage_error("rate schedule: %s has no argument, but got ':%s'", copy, marks);
    if (read.kind == FGT_RATE_STEP)
        status = parse_marks(marks ? marks : copy + strlen(copy), &read);
    if (status == FGIO_EXIT_OK)
        *rate = read;
    return status;
}

/* ---- the formulas --------------------------------------------------------- */

/* cos(pi x) for x in [0, 1/2]: Taylor's series, whose next term is below 1e-17. */
static double cos_pi(double x) {
    const double square = (M_PI * x) * (M_PI * x);
    double sum = 1;
    for (int k = 22; k > 0; k -= 2)
        sum = 1 - square / (double)(k * (k - 1)) * sum;
    return sum;
}

static double cosine_decay(double x) {
    return x <= 0.5 ? 0.5 + 0.5 * cos_pi(x) : 0.5 - 0.5 * cos_pi(1 - x);
}

static uint64_t warmup_steps(const fgt_rate *rate, uint64_t total) {
    return rate->warmup_share > 0 ? (uint64_t)(rate->warmup_share * (double)total + 0.5) : rate->warmup;
}

/* Share of the steps after the warm-up that are done. */
static double progress(uint64_t warmup, uint64_t step, uint64_t total) {
    if (total <= warmup)
        return 0;
    return step >= total ? 1 : (double)(step - warmup) / (double)(total - warmup);
}

double fgt_rate_at(const fgt_rate *rate, uint64_t step, uint64_t total) {
    uint64_t warmup = warmup_steps(rate, total);
    if (step < warmup)
        return (double)(step + 1) / (double)warmup;
    double share = 1;
    switch (rate->kind) {
    case FGT_RATE_CONSTANT: break;
    case FGT_RATE_COSINE: return cosine_decay(progress(warmup, step, total));
    case FGT_RATE_LINEAR: return 1 - progress(warmup, step, total);
    case FGT_RATE_STEP:
        for (int i = 0; total && i < rate->marks; i++)
            if ((double)step >= rate->mark[i] * (double)total)
                share *= rate->factor;
        break;
    }
    return share;
}
