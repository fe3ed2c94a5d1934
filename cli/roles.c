/*
 * What a tensor is for, guessed from its name as PyTorch, Hugging Face and GPT-2
 * checkpoints spell it. The first rule that fits wins:
 *
 *   one dimension or none   "bias" at the end: bias; "norm", "Norm", "ln", "bn" inside: norm; else other
 *   three dimensions or more                                     conv
 *   "embed", "wte", "wpe" inside                                 embedding
 *   "q_proj", "query", "wq" / "k_proj", "key", "wk" / ...        attn_q / attn_k / attn_v
 *   "o_proj", "out_proj", "attention.output", "wo"               attn_o
 *   two dimensions                                               linear
 *
 * A wrong guess costs nothing today: roles steer later, layer-wise methods.
 */
#include "tensors.h"

#include <ctype.h>
#include <string.h>

typedef struct role_rule {
    const char *part;
    frug_role role;
} role_rule;

static const role_rule matrix_rules[] = {
    {"embed", FRUG_ROLE_EMBEDDING}, {"wte", FRUG_ROLE_EMBEDDING},   {"wpe", FRUG_ROLE_EMBEDDING},
    {"q_proj", FRUG_ROLE_ATTN_Q},   {"query", FRUG_ROLE_ATTN_Q},    {"wq", FRUG_ROLE_ATTN_Q},
    {"k_proj", FRUG_ROLE_ATTN_K},   {"key", FRUG_ROLE_ATTN_K},      {"wk", FRUG_ROLE_ATTN_K},
    {"v_proj", FRUG_ROLE_ATTN_V},   {"value", FRUG_ROLE_ATTN_V},    {"wv", FRUG_ROLE_ATTN_V},
    {"o_proj", FRUG_ROLE_ATTN_O},   {"out_proj", FRUG_ROLE_ATTN_O}, {"attention.output", FRUG_ROLE_ATTN_O},
    {"wo", FRUG_ROLE_ATTN_O},
};

static const role_rule vector_rules[] = {
    {"norm", FRUG_ROLE_NORM}, {"Norm", FRUG_ROLE_NORM}, {"ln", FRUG_ROLE_NORM}, {"bn", FRUG_ROLE_NORM}};

static int is_letter(char c) {
    return isalpha((unsigned char)c);
}

/* Parts of two or three letters must stand alone ("wo" is not in "world"); longer ones may be anywhere. */
static int has_part(const char *name, const char *part) {
    size_t length = strlen(part);
    for (const char *at = strstr(name, part); at != NULL; at = strstr(at + 1, part))
        if (length > 3 || ((at == name || !is_letter(at[-1])) && !is_letter(at[length])))
            return 1;
    return 0;
}

static frug_role match(const role_rule *rules, size_t count, const char *name, frug_role otherwise) {
    for (size_t i = 0; i < count; i++)
        if (has_part(name, rules[i].part))
            return rules[i].role;
    return otherwise;
}

frug_role frugi_guess_role(const char *name, uint32_t ndim) {
    size_t length = strlen(name);
    if (ndim <= 1) {
        if (length >= 4 && strcmp(name + length - 4, "bias") == 0)
            return FRUG_ROLE_BIAS;
        return match(vector_rules, sizeof vector_rules / sizeof *vector_rules, name, FRUG_ROLE_OTHER);
    }
    if (ndim >= 3)
        return FRUG_ROLE_CONV;
    return match(matrix_rules, sizeof matrix_rules / sizeof *matrix_rules, name, FRUG_ROLE_LINEAR);
}

frug_role frugi_role_of(const char *name) {
    const char *known;
    for (int role = 0; (known = frug_role_name((frug_role)role)) != NULL; role++)
        if (strcmp(known, name) == 0)
            return (frug_role)role;
    return FRUG_ROLE_OTHER;
}
