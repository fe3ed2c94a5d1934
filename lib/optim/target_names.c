/*
 * target_names.c - which tensors the options targets and others mean: lists of words and of patterns of names, joined
 * by +.
 *
 * An item that means no tensor is refused by name. It is a typing error, or the model calls its tensors otherwise; an
 * experiment in which it silently did nothing would lie.
 */
#include "base/status.h"
#include "optim/target.h"

#include <string.h>

/* A pattern with * (anything) and ? (one character), in time linear in pattern times name. */
static bool matches(const char *pattern, const char *name) {
    const char *star = NULL, *resume = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

typedef bool meaning_fn(const char *item, const frug_tensor *tensor);

static bool means_target(const char *item, const frug_tensor *tensor) {
    const frug_role role = tensor->role;
    const bool qv = role == FRUG_ROLE_ATTN_Q || role == FRUG_ROLE_ATTN_V || role == FRUG_ROLE_ATTN_QKV;
    const bool attention = qv || role == FRUG_ROLE_ATTN_K || role == FRUG_ROLE_ATTN_O;
    if (tensor->ndim < 2)
        return false;
    if (strcmp(item, "qv") == 0)
        return qv;
    if (strcmp(item, "attention") == 0)
        return attention;
    if (strcmp(item, "linear") == 0)
        return attention || role == FRUG_ROLE_LINEAR;
    return strcmp(item, "all") == 0 || matches(item, tensor->name);
}

static bool means_other(const char *item, const frug_tensor *tensor) {
    return matches(item, tensor->name);
}

/* The next item of a list; false past the end. */
static bool next_item(const char **rest, char item[FRUGI_OPTIM_NAMES]) {
    size_t len = strcspn(*rest, "+");
    memcpy(item, *rest, len);
    item[len] = '\0';
    *rest += len + ((*rest)[len] == '+');
    return len > 0;
}

static bool any_means(const char *list, meaning_fn *means, const frug_tensor *tensor) {
    char item[FRUGI_OPTIM_NAMES];
    while (next_item(&list, item))
        if (means(item, tensor))
            return true;
    return false;
}

bool frugi_is_target(const frugi_optim_options *options, const frug_tensor *tensor) {
    return any_means(options->targets, means_target, tensor);
}

static bool others_are_named(const frugi_optim_options *options) {
    return strcmp(options->others, "frozen") != 0 && strcmp(options->others, "adamw") != 0;
}

bool frugi_is_other(const frugi_optim_options *options, const frug_tensor *tensor) {
    return others_are_named(options) ? any_means(options->others, means_other, tensor)
                                     : strcmp(options->others, "adamw") == 0;
}

/* Whether an item means a tensor with elements; of others, one that is not a target. */
static bool is_met(const char *item, meaning_fn *means, const frugi_optim_options *options, const frug_layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        const frug_tensor *t = &layout->tensor[i];
        if (frugi_tensor_elements(t) && means(item, t) && (means == means_target || !frugi_is_target(options, t)))
            return true;
    }
    return false;
}

frug_status frugi_names_check(const frugi_optim_options *options, const frug_layout *layout) {
    char item[FRUGI_OPTIM_NAMES];
    if (!frugi_has_targets(options))
        return FRUG_OK;
    for (const char *rest = options->targets; next_item(&rest, item);)
        FRUG_FAIL_IF(
            !is_met(item, means_target, options, layout), FRUG_ERR_CONFIG,
            "config: targets=%s: no tensor of two dimensions in this layout is one; accepted: " FRUGI_TARGET_WORDS,
            item);
    for (const char *rest = options->others; others_are_named(options) && next_item(&rest, item);)
        FRUG_FAIL_IF(!is_met(item, means_other, options, layout), FRUG_ERR_CONFIG,
                     "config: others=%s: no tensor in this layout is called that, or it is a target; "
                     "accepted: " FRUGI_OTHER_WORDS,
                     item);
    return FRUG_OK;
}
