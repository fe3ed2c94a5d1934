/*
 * tensor_roles.c - roles of tensors, guessed from their names as PyTorch, Hugging Face and GPT-2 checkpoints spell
 * them.
 *
 * The first rule that matches wins:
 *
 *   one dimension or none   "bias" at the end: bias; "norm", "Norm", "ln", "bn", "downsample" inside: norm; else other
 *   three dimensions or more                                     conv
 *   "embed", "wte", "wpe" inside                                 embedding
 *   "query_key_value"                                            linear: kinds alternate from head to head there
 *   "c_attn", "in_proj", "qkv"                                   attn_qkv
 *   "q_proj", "query", "wq" / "k_proj", "key", "wk" / ...        attn_q / attn_k / attn_v
 *   "o_proj", "out_proj", "attn.c_proj", "attn.proj", "attention.output", "wo"   attn_o
 *   two dimensions                                               linear
 *
 * Attention matrices share a module when their names are equal up to the part that has "attn" or "attention" in it, or
 * else up to the last number. Names do not tell the number of heads: the command line does.
 */
#include "program/model/tensor_roles.h"

#include "program/args/args.h"
#include "io/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct role_rule {
    const char *part;
    frug_role role;
} role_rule;

static const role_rule matrix_rules[] = {
    {"embed", FRUG_ROLE_EMBEDDING},
    {"wte", FRUG_ROLE_EMBEDDING},
    {"wpe", FRUG_ROLE_EMBEDDING},
    {"query_key_value", FRUG_ROLE_LINEAR},
    {"c_attn", FRUG_ROLE_ATTN_QKV},
    {"in_proj", FRUG_ROLE_ATTN_QKV},
    {"qkv", FRUG_ROLE_ATTN_QKV},
    {"q_proj", FRUG_ROLE_ATTN_Q},
    {"query", FRUG_ROLE_ATTN_Q},
    {"wq", FRUG_ROLE_ATTN_Q},
    {"k_proj", FRUG_ROLE_ATTN_K},
    {"key", FRUG_ROLE_ATTN_K},
    {"wk", FRUG_ROLE_ATTN_K},
    {"v_proj", FRUG_ROLE_ATTN_V},
    {"value", FRUG_ROLE_ATTN_V},
    {"wv", FRUG_ROLE_ATTN_V},
    {"o_proj", FRUG_ROLE_ATTN_O},
    {"out_proj", FRUG_ROLE_ATTN_O},
    {"attention.output", FRUG_ROLE_ATTN_O},
    {"attn.c_proj", FRUG_ROLE_ATTN_O},
    {"attn.proj", FRUG_ROLE_ATTN_O},
    {"wo", FRUG_ROLE_ATTN_O},
};

static const role_rule vector_rules[] = {{"norm", FRUG_ROLE_NORM},
                                         {"Norm", FRUG_ROLE_NORM},
                                         {"ln", FRUG_ROLE_NORM},
                                         {"bn", FRUG_ROLE_NORM},
                                         {"downsample", FRUG_ROLE_NORM}};

static int is_letter(char c) {
    return isalpha((unsigned char)c);
}

/* Parts of two or three letters must be delimited ("wo" is not in "world"); longer ones may be anywhere. */
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

frug_role fgp_guess_role(const char *name, uint32_t ndim) {
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

frug_role fgp_role_of(const char *name) {
    const char *known;
    for (int role = 0; (known = frug_role_name((frug_role)role)) != NULL; role++)
        if (strcmp(known, name) == 0)
            return (frug_role)role;
    return FRUG_ROLE_OTHER;
}

/* ---- modules and memory order ---------------------------------------------------------- */

static int is_attention(const frug_tensor *t) {
    return t->role == FRUG_ROLE_ATTN_QKV || (t->role >= FRUG_ROLE_ATTN_Q && t->role <= FRUG_ROLE_ATTN_O);
}

/* GPT-2 stores its matrices (in, out), re-implementations (out, in): only the shape of the fused one tells. */
static int is_input_first(const frug_tensor *tensors, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (tensors[i].ndim == 2 && has_part(tensors[i].name, "c_attn"))
            return tensors[i].shape[1] > tensors[i].shape[0];
    return 0;
}

static int contains(const char *text, size_t length, const char *word) {
    size_t letters = strlen(word);
    for (size_t i = 0; i + letters <= length; i++)
        if (strncmp(text + i, word, letters) == 0)
            return 1;
    return 0;
}

/* Length of the part of a name that identifies its module. */
static size_t module_length(const char *name) {
    size_t last = 0;
    for (const char *part = name;;) {
        size_t length = strcspn(part, "."), end = (size_t)(part - name) + length;
        if (part[length] == '\0')
            return last;
        if (contains(part, length, "attn") || contains(part, length, "ttention")) /* Attention, too */
            return end;
        if (length > 0 && strspn(part, "0123456789") == length)
            last = end;
        part += length + 1;
    }
}

typedef struct member {
    frug_tensor *tensor;
    size_t length;
} member;

static int by_module(const void *a, const void *b) {
    const member *x = a, *y = b;
    int order = strncmp(x->tensor->name, y->tensor->name, x->length < y->length ? x->length : y->length);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

int fgp_guess_tensors(frug_tensor *tensors, size_t count, fgp_heads heads) {
    member *members = malloc((count + 1) * sizeof *members);
    size_t found = 0;
    uint32_t module = 0, input_first = (uint32_t)is_input_first(tensors, count);
    if (members == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        frug_tensor *t = &tensors[i];
        t->role = fgp_guess_role(t->name, t->ndim);
        if (t->ndim == 2 && (has_part(t->name, "c_attn") || has_part(t->name, "c_proj") || has_part(t->name, "c_fc")))
            t->input_first = input_first;
        if (is_attention(t))
            members[found++] = (member){t, module_length(t->name)};
    }
    qsort(members, found, sizeof *members, by_module);
    for (size_t i = 0; i < found; i++) {
        module += i == 0 || by_module(&members[i - 1], &members[i]) != 0;
        members[i].tensor->module = module;
        members[i].tensor->heads = heads.heads;
        members[i].tensor->kv_heads = heads.kv_heads;
    }
    free(members);
    return 0;
}

int fgp_heads_arg(const fgp_args *args, fgp_heads *heads) {
    const char *text = fgp_arg(args, "heads");
    unsigned long number[2] = {0, 0};
    char *end = NULL;
    *heads = (fgp_heads){0, 0};
    if (text == NULL)
        return FGIO_EXIT_OK;
    for (int i = 0; i < 2; i++, text = end + 1) {
        number[i] = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
        if (number[i] < 1 || number[i] > 65536 || (*end != '\0' && (*end != ':' || i == 1)))
            break;
        if (*end == '\0') {
            *heads = (fgp_heads){(uint32_t)number[0], (uint32_t)number[1]};
            return FGIO_EXIT_OK;
        }
    }
    return fgio_usage_error("%s: --heads: '%s' is not H or H:KV, whole numbers from 1 to 65536", args->command->name,
                            fgp_arg(args, "heads"));
}
