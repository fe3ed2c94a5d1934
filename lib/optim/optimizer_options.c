/*
 * optimizer_options.c - parse and print the text of an optimizer: name[:option=value[,option=value]...].
 *
 * The table of kinds is public: its text of options lists those of a kind with their defaults, and is parsed like the
 * user's text, so the two cannot disagree. Options of the same name mean the same for all kinds, so there is one row
 * for each.
 */
#include "optim/target.h"

#include "config/number.h"
#include "config/config_token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TARGET_OPTIONS "beta1=0.9,beta2=0.999,eps=1e-08,decay=0,targets=qv,others=frozen,threads=1"

static const frug_optimizer_kind kinds[] = {
    {"sgd", "momentum=0.9,nesterov=0,coupled=0,decay=0,decay_all=0",
     "momentum as in PyTorch: u = momentum u + g, w -= rate u; coupled=1 adds decay w to g, as torch.optim.SGD does"},
    {"adamw", "beta1=0.9,beta2=0.999,eps=1e-08,decay=0.01,decay_all=0", "AdamW as in PyTorch, states in f32"},
    {"merged", "momentum=0.9,gain=auto,inertia=off,decay=0,decay_all=0",
     "the compressor's residual holds the momentum (feedback=merged): w -= rate gain g, gain = 1 / (1 - momentum); "
     "dense tensors have a momentum of their own"},
    {"adam-merged", "beta1=0.9,beta2=auto,eps=1e-08,gain=auto,state=int8,inertia=off,decay=0.01,decay_all=0",
     "the residual holds the momentum, the optimizer the root of the mean square, in about a byte; dense tensors "
     "use AdamW; beta2=auto: 1 - 0.16 density, from 0.99 to 0.999; gain=auto: with retention 1.25 (94 %) to 2 (99 %) "
     "at low rates, 0.5 at high ones; gain=finetune: likewise for trained weights"},
    {"microadam", "window=10,entries=16,state=bf16,beta1=0.9,beta2=0.999,eps=1e-08,decay=0,decay_all=0",
     "both means are computed from the entries of the last steps; dense tensors use AdamW"},
    {"sgc", "s=448,kappa=7,matrix=implicit,method=gomp4,scale=1," TARGET_OPTIONS,
     "both states of AdamW of the s largest entries as kappa s measurements each, recovered by matching pursuit"},
    {"mesgc", "s=448,kappa=7,c=64,adaptive=0,refresh=200,matrix=implicit,method=gomp4,scale=1," TARGET_OPTIONS,
     "sgc on c chunks of a tensor, each with s / c entries; adaptive=1 gives more of s to chunks with large gradients"},
    {"cesgc",
     "s=448,kappa=7,c=16,adaptive=0,rank=32,refresh=200,matrix=implicit,method=gomp4,scale=0.25," TARGET_OPTIONS,
     "mesgc on the gradient projected to its leading singular vectors"},
    {"table", "s=448,kappa=7,c=64,scale=1," TARGET_OPTIONS,
     "both states of AdamW of the entries that were among the s largest, as a table in the bytes of mesgc's states"},
    {"lora", "rank=8,alpha=16," TARGET_OPTIONS, "w = w0 + alpha / rank B A; A and B are trained by AdamW"},
    {"galore", "rank=32,refresh=200,scale=0.25," TARGET_OPTIONS,
     "AdamW on the gradient projected to its leading singular vectors"},
    {"apollo", "rank=32,refresh=200,per=channel,growth=1.01,scale=1," TARGET_OPTIONS,
     "the gradient, scaled by how AdamW would scale a random projection of it"},
    {"sign", "beta1=0.9,beta2=0.95,eps=1e-08,decay=0.01,decay_all=0",
     "the sign of the sum, as in DeMo: w -= rate sign(g), no state; dense tensors use AdamW"},
    {"muon", "momentum=0.95,gain=4,beta1=0.9,beta2=0.95,eps=1e-08,decay=0.1,decay_all=0,targets=body,threads=1",
     "matrices of the body move by their orthogonalized momentum; embeddings, heads and vectors use AdamW; the rate "
     "is AdamW's, times gain"},
    {"muon-merged",
     "momentum=0,gain=6,beta1=0.9,beta2=auto,eps=1e-08,state=int8,decay=0.1,decay_all=0,targets=body,threads=1",
     "muon on what was received, whose momentum is in the residual: no state for matrices of the body; embeddings and "
     "heads use adam-merged, dense tensors AdamW"},
};

typedef enum row_type { ROW_REAL, ROW_BETA2, ROW_COUNT, ROW_KEYWORD, ROW_GAIN, ROW_INERTIA, ROW_NAMES } row_type;

typedef struct option_row {
    const char *name;
    row_type type;
    size_t offset;
    double min, max;
    const char *accepted;
} option_row;

#define AT(field) offsetof(frugi_optim_options, field)

/* The largest momentum that differs from 1 as a float. */
static const option_row rows[] = {
    {"momentum", ROW_REAL, AT(momentum), 0, 0.999999, "0 to 0.999999"},
    {"beta1", ROW_REAL, AT(beta1), 0, 0.999999, "0 to 0.999999"},
    {"beta2", ROW_BETA2, AT(beta2), 0, 0.999999, "0 to 0.999999; adam-merged and muon-merged also auto"},
    {"eps", ROW_REAL, AT(eps), 1e-30, 1, "1e-30 to 1"},
    {"decay", ROW_REAL, AT(decay), 0, 1000, "0 to 1000"},
    {"gain", ROW_GAIN, AT(gain), 1e-6, 1e6, "auto, 1e-6 to 1e6; adam-merged also finetune"},
    {"inertia", ROW_INERTIA, AT(inertia), 0, 0.999999, "off, auto, or 0 to 0.999999"},
    {"nesterov", ROW_COUNT, AT(nesterov), 0, 1, "0 or 1"},
    {"coupled", ROW_COUNT, AT(coupled), 0, 1, "0 or 1"},
    {"decay_all", ROW_COUNT, AT(decay_all), 0, 1, "0 or 1"},
    {"window", ROW_COUNT, AT(window), 1, FRUGI_OPTIM_WINDOW, "1 to 64"},
    {"entries", ROW_COUNT, AT(entries), 1, 255, "1 to 255"},
    {"state", ROW_KEYWORD, AT(state), 0, 0, "f32|bf16|int8"},
    {"s", ROW_COUNT, AT(s), 1, 1 << 24, "1 to 16777216"},
    {"kappa", ROW_COUNT, AT(kappa), 2, 64, "2 to 64"},
    {"c", ROW_COUNT, AT(c), 1, 1 << 24, "1 to 16777216"},
    {"adaptive", ROW_COUNT, AT(adaptive), 0, 1, "0 or 1"},
    {"rank", ROW_COUNT, AT(rank), 1, 4096, "1 to 4096"},
    {"refresh", ROW_COUNT, AT(refresh), 1, 1e9, "1 to 1e9"},
    {"matrix", ROW_KEYWORD, AT(explicit_matrix), 0, 0, "implicit|explicit"},
    {"method", ROW_KEYWORD, AT(atoms4), 0, 0, "batch|gomp4"},
    {"per", ROW_KEYWORD, AT(per_tensor), 0, 0, "channel|tensor"},
    {"growth", ROW_REAL, AT(growth), 1, 1e9, "1 to 1e9"},
    {"scale", ROW_REAL, AT(scale), 1e-6, 1e6, "1e-6 to 1e6"},
    {"alpha", ROW_REAL, AT(alpha), 1e-6, 1e6, "1e-6 to 1e6"},
    {"targets", ROW_NAMES, AT(targets), 0, 0, FRUGI_TARGET_WORDS},
    {"others", ROW_NAMES, AT(others), 0, 0, FRUGI_OTHER_WORDS},
    {"threads", ROW_COUNT, AT(threads), 1, 64, "1 to 64"},
};

const frug_optimizer_kind *frug_optimizer_at(size_t i) {
    return i < sizeof kinds / sizeof *kinds ? &kinds[i] : NULL;
}

static const char *kind_name(const void *ctx, size_t i, size_t *len) {
    (void)ctx;
    const frug_optimizer_kind *kind = frug_optimizer_at(i);
    if (!kind)
        return NULL;
    *len = strlen(kind->name);
    return kind->name;
}

/* The i-th option of a kind, from its text. */
static const char *kind_option(const void *ctx, size_t i, size_t *len) {
    const char *at = ((const frug_optimizer_kind *)ctx)->options;
    for (; i > 0; i--) {
        at = strchr(at, ',');
        if (!at)
            return NULL;
        at++;
    }
    *len = strcspn(at, "=");
    return at;
}

static const char *row_name(const void *ctx, size_t i, size_t *len) {
    (void)ctx;
    if (i >= sizeof rows / sizeof *rows)
        return NULL;
    *len = strlen(rows[i].name);
    return rows[i].name;
}

static const option_row *find_row(frugi_token name) {
    size_t which = 0;
    return frugi_token_find(name, row_name, NULL, &which) ? &rows[which] : NULL;
}

/* ---- parse --------------------------------------------------------------- */

/* Of a list joined by +. */
static bool has_empty_item(frugi_token list) {
    bool empty = true;
    for (size_t i = 0; i < list.len; i++) {
        if (list.at[i] == '+' && empty)
            return true;
        empty = list.at[i] == '+';
    }
    return empty;
}

static bool read_value(const option_row *row, frugi_token value, void *field) {
    double real = 0;
    uint64_t count = 0;
    size_t which = 0;
    switch (row->type) {
    case ROW_BETA2:
    case ROW_GAIN:
    case ROW_INERTIA:
    case ROW_REAL:
        if (row->type == ROW_GAIN && (frugi_token_is(value, "auto") || frugi_token_is(value, "finetune")))
            real = frugi_token_is(value, "auto") ? 0 : -1;
        else if (row->type == ROW_BETA2 && frugi_token_is(value, "auto"))
            real = -1;
        else if (row->type == ROW_INERTIA && (frugi_token_is(value, "auto") || frugi_token_is(value, "off")))
            real = frugi_token_is(value, "auto") ? -1 : 0;
        else if (!frugi_read_double(value.at, value.len, &real) || real < row->min || real > row->max)
            return false;
        memcpy(field, &real, sizeof real);
        return true;
    case ROW_COUNT:
        if (!frugi_read_u64(value.at, value.len, &count) || (double)count < row->min || (double)count > row->max)
            return false;
        memcpy(field, &count, sizeof count);
        return true;
    case ROW_KEYWORD:
        if (!frugi_token_find(value, frugi_choice_of_text, row->accepted, &which))
            return false;
        count = which;
        memcpy(field, &count, sizeof count);
        return true;
    case ROW_NAMES:
        if (value.len >= FRUGI_OPTIM_NAMES || has_empty_item(value))
            return false;
        memset(field, 0, FRUGI_OPTIM_NAMES);
        memcpy(field, value.at, value.len);
        return true;
    }
    return false;
}

static frug_status parse_item(const frug_optimizer_kind *kind, frugi_token item, frugi_optim_options *options) {
    frugi_token value = item, name = frugi_token_split(&value, '=');
    char context[32];
    size_t which = 0;
    FRUG_FAIL_IF(item.len == 0, FRUG_ERR_CONFIG, "config: option=value expected at position %zu", item.position);
    snprintf(context, sizeof context, " of %s", kind->name);
    if (!frugi_token_find(name, kind_option, kind, &which))
        return frugi_token_unknown(name, "option", context, kind_option, kind);
    const option_row *row = find_row(name);
    FRUG_FAIL_IF(value.len == 0, FRUG_ERR_CONFIG, "config: option '%s' at position %zu needs a value; accepted: %s",
                 row->name, name.position, row->accepted);
    if (read_value(row, value, (char *)options + row->offset))
        return FRUG_OK;
    snprintf(context, sizeof context, " of %s", row->name);
    if (row->type == ROW_KEYWORD)
        return frugi_token_unknown(value, "value", context, frugi_choice_of_text, row->accepted);
    return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of %s at position %zu; accepted: %s",
                      frugi_token_shown(value), value.at, row->name, value.position, row->accepted);
}

/* A separator must be followed by an item, so "a=1," ends in an empty item, which is an error. */
static frug_status parse_items(const frug_optimizer_kind *kind, frugi_token rest, frugi_optim_options *options) {
    for (;;) {
        frugi_token item = frugi_token_split(&rest, ',');
        FRUG_TRY(parse_item(kind, item, options));
        if (item.at + item.len == rest.at)
            return FRUG_OK;
    }
}

/* Options without effect are refused, because they would make an experiment misleading. */
static frug_status validate_options(const frugi_optim_options *o) {
    FRUG_FAIL_IF(o->nesterov && o->momentum == 0, FRUG_ERR_CONFIG, "config: nesterov=1 needs a momentum");
    FRUG_FAIL_IF(o->inertia < 0 && (o->kind == FRUGI_OPTIM_MERGED ? o->momentum : o->beta1) == 0, FRUG_ERR_CONFIG,
                 "config: inertia=auto needs a momentum, and %s is 0",
                 o->kind == FRUGI_OPTIM_MERGED ? "momentum" : "beta1");
    FRUG_FAIL_IF(o->beta2 < 0 && o->kind != FRUGI_OPTIM_ADAM_MERGED && o->kind != FRUGI_OPTIM_MUON_MERGED,
                 FRUG_ERR_CONFIG,
                 "config: beta2=auto depends on the density and needs adam-merged or muon-merged; give a number");
    FRUG_FAIL_IF(o->coupled && o->decay == 0, FRUG_ERR_CONFIG, "config: coupled=1 does nothing without decay");
    FRUG_FAIL_IF(o->decay_all && o->decay == 0, FRUG_ERR_CONFIG, "config: decay_all=1 does nothing without decay");
    FRUG_FAIL_IF(o->kind == FRUGI_OPTIM_MICROADAM && o->state == FRUGI_STATE_INT8, FRUG_ERR_CONFIG,
                 "config: microadam has no state=int8; accepted: f32 bf16");
    FRUG_FAIL_IF(o->adaptive && o->c == 1, FRUG_ERR_CONFIG, "config: adaptive=1 needs more than one chunk");
    FRUG_FAIL_IF(o->adaptive && o->explicit_matrix, FRUG_ERR_CONFIG,
                 "config: adaptive=1 needs one matrix per share, and so matrix=implicit");
    FRUG_FAIL_IF(o->c && o->s % o->c != 0, FRUG_ERR_CONFIG,
                 "config: s=%" PRIu64 " entries are not divisible by c=%" PRIu64 " chunks", o->s, o->c);
    return FRUG_OK;
}

static frug_status check_characters(const char *text) {
    size_t len = strnlen(text, FRUGI_OPTIM_TEXT);
    FRUG_FAIL_IF(len >= FRUGI_OPTIM_TEXT, FRUG_ERR_CONFIG, "config: an optimizer of more than %u characters",
                 FRUGI_OPTIM_TEXT - 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        FRUG_FAIL_IF(c <= ' ' || c > '~', FRUG_ERR_CONFIG, "config: byte 0x%02x at position %zu is not allowed", c,
                     i + 1);
    }
    return FRUG_OK;
}

frug_status frugi_optim_parse(const char *text, frugi_optim_options *options) {
    FRUG_TRY(check_characters(text));
    frugi_token rest = {text, strlen(text), 1};
    frugi_token name = frugi_token_split(&rest, ':');
    size_t which = 0;
    if (!frugi_token_find(name, kind_name, NULL, &which))
        return frugi_token_unknown(name, "optimizer", "", kind_name, NULL);
    const frug_optimizer_kind *kind = &kinds[which];
    frugi_optim_options read = {.kind = (frugi_optim)which, .c = which == FRUGI_OPTIM_SGC};
    FRUG_TRY(parse_items(kind, (frugi_token){kind->options, strlen(kind->options), 1}, &read));
    if (name.at + name.len != rest.at)
        FRUG_TRY(parse_items(kind, rest, &read));
    FRUG_TRY(validate_options(&read));
    *options = read;
    return FRUG_OK;
}

#define VALUE_TEXT (FRUGI_OPTIM_NAMES > FRUGI_NUMBER_TEXT_MAX ? FRUGI_OPTIM_NAMES : FRUGI_NUMBER_TEXT_MAX)

/* ---- print --------------------------------------------------------------- */

static void print_value(const option_row *row, const frugi_optim_options *options, char text[VALUE_TEXT]) {
    const char *field = (const char *)options + row->offset;
    double real = 0;
    uint64_t count = 0;
    size_t len = 0;
    if (row->type == ROW_REAL || row->type == ROW_BETA2 || row->type == ROW_GAIN || row->type == ROW_INERTIA) {
        memcpy(&real, field, sizeof real);
        if (row->type == ROW_GAIN && real < 0)
            snprintf(text, VALUE_TEXT, "finetune");
        else if ((row->type == ROW_GAIN && real == 0) || real < 0)
            snprintf(text, VALUE_TEXT, "auto");
        else if (row->type == ROW_INERTIA && real == 0)
            snprintf(text, VALUE_TEXT, "off");
        else
            frugi_write_double(real, text);
        return;
    }
    if (row->type == ROW_NAMES) {
        snprintf(text, VALUE_TEXT, "%s", field);
        return;
    }
    memcpy(&count, field, sizeof count);
    if (row->type == ROW_COUNT) {
        snprintf(text, VALUE_TEXT, "%" PRIu64, count);
        return;
    }
    const char *word = frugi_choice_of_text(row->accepted, count, &len);
    snprintf(text, VALUE_TEXT, "%.*s", (int)len, word);
}

void frugi_optim_print(const frugi_optim_options *options, char text[FRUGI_OPTIM_TEXT]) {
    const frug_optimizer_kind *kind = &kinds[options->kind];
    size_t used = (size_t)snprintf(text, FRUGI_OPTIM_TEXT, "%s", kind->name), len = 0;
    const char *name;
    for (size_t i = 0; (name = kind_option(kind, i, &len)); i++) {
        char value[VALUE_TEXT];
        print_value(find_row((frugi_token){name, len, 1}), options, value);
        used +=
            (size_t)snprintf(text + used, FRUGI_OPTIM_TEXT - used, "%s%.*s=%s", i ? "," : ":", (int)len, name, value);
    }
}
