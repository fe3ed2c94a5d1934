/*
 * target_names.c - which tensors the options targets and others select: lists of keywords and name patterns, joined by
 * +.
 *
 * An item that matches no tensor is an error: it is a typing error, or the model has other tensor names, and an
 * experiment in which it silently did nothing would be misleading.
 */
#include "base/status.h"
#include "optim/target.h"

#include <string.h>

/* Match * (anything) and ? (one character), in time linear in pattern times name. */
static bool match_pattern(const char *pattern, const char *name) {
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

/* Whether a name has a component that says embedding or head. */
static bool is_named_table(const char *name) {
    static const char *const words[] = {"wte", "wpe", "lm_head"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = strstr(name, words[i]);
        size_t len = strlen(words[i]);
        if (at && (at == name || at[-1] == '.') && (at[len] == '.' || at[len] == '\0'))
            return true;
    }
    return strstr(name, "embed") != NULL;
}

/*
 * Embeddings and output heads are known by their role or name, or by their shape: what a matrix of the body puts out
 * goes into another, so a matrix whose number of outputs is no dimension of any other is a head, or an embedding.
 */
static bool is_body(const frug_layout *layout, const frug_tensor *tensor) {
    const bool vague = tensor->role == FRUG_ROLE_OTHER || tensor->role == FRUG_ROLE_LINEAR;
    const uint64_t outputs = tensor->shape[tensor->input_first ? 1 : 0];
    if (!vague)
        return tensor->role != FRUG_ROLE_EMBEDDING;
    if (is_named_table(tensor->name))
        return false;
    for (size_t i = 0; i < layout->count; i++) {
        const frug_tensor *t = &layout->tensor[i];
        if (t->ndim >= 2 && t != tensor && t->role != FRUG_ROLE_EMBEDDING &&
            (t->shape[0] == outputs || t->shape[1] == outputs))
            return true;
    }
    return false;
}

typedef bool match_fn(const char *item, const frug_layout *layout, const frug_tensor *tensor);

static bool matches_target(const char *item, const frug_layout *layout, const frug_tensor *tensor) {
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
    if (strcmp(item, "body") == 0)
        return is_body(layout, tensor);
    return strcmp(item, "all") == 0 || match_pattern(item, tensor->name);
}

static bool matches_other(const char *item, const frug_layout *layout, const frug_tensor *tensor) {
    (void)layout;
    return match_pattern(item, tensor->name);
}

/* The next item of a list; false at its end. */
static bool next_item(const char **rest, char item[FRUGI_OPTIM_NAMES]) {
    size_t len = strcspn(*rest, "+");
    memcpy(item, *rest, len);
    item[len] = '\0';
    *rest += len + ((*rest)[len] == '+');
    return len > 0;
}

static bool any_item_matches(const char *list, match_fn *matches, const frug_layout *layout,
                             const frug_tensor *tensor) {
    char item[FRUGI_OPTIM_NAMES];
    while (next_item(&list, item))
        if (matches(item, layout, tensor))
            return true;
    return false;
}

bool frugi_is_target(const frugi_optim_options *options, const frug_layout *layout, const frug_tensor *tensor) {
    return any_item_matches(options->targets, matches_target, layout, tensor);
}

static bool others_are_patterns(const frugi_optim_options *options) {
    return strcmp(options->others, "frozen") != 0 && strcmp(options->others, "adamw") != 0;
}

bool frugi_is_other(const frugi_optim_options *options, const frug_tensor *tensor) {
    return others_are_patterns(options) ? any_item_matches(options->others, matches_other, NULL, tensor)
                                        : strcmp(options->others, "adamw") == 0;
}

/* Whether an item matches a tensor with elements; for others, one that is not a target. */
static bool item_matches_layout(const char *item, match_fn *matches, const frugi_optim_options *options,
                                const frug_layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        const frug_tensor *t = &layout->tensor[i];
        if (frugi_tensor_elements(t) && matches(item, layout, t) &&
            (matches == matches_target || !frugi_is_target(options, layout, t)))
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
            !(frugi_is_muon(options) && strcmp(item, "body") == 0) &&
                !item_matches_layout(item, matches_target, options, layout),
            FRUG_ERR_CONFIG,
            "config: targets=%s matches no tensor of two dimensions in this layout; accepted: " FRUGI_TARGET_WORDS,
            item);
    for (const char *rest = options->others; others_are_patterns(options) && next_item(&rest, item);)
        FRUG_FAIL_IF(!item_matches_layout(item, matches_other, options, layout), FRUG_ERR_CONFIG,
                     "config: others=%s matches no tensor in this layout that is not a target; "
                     "accepted: " FRUGI_OTHER_WORDS,
                     item);
    return FRUG_OK;
}
