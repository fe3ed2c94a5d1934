/*
 * cmd_prune.c - `frugrad prune`: set the least important weights of a trained model to zero, in one shot.
 *
 * Importance is the magnitude, or, as in Wanda (Sun et al. 2023), the magnitude times the norm of the weight's input
 * over some batches of data, for which the model is run once. Weights are compared within a tensor, a row (an output)
 * or the whole model; N:M compares groups of M inputs of an output.
 */
#include "program/args/commands.h"
#include "program/args/job_args.h"
#include "program/deploy/model_weights.h"
#include "program/deploy/prune_units.h"

#include "io/json.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/model/model.h"
#include "trainer/sparse/mask_select.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCOPE_TENSOR, SCOPE_ROW, SCOPE_GLOBAL };
enum { UNITS_WEIGHTS, UNITS_CHANNELS, UNITS_HEADS, UNITS_ZEROS };

static const char *const scopes[] = {"tensor", "row", "global", NULL};

static const fgp_opt options[] = {
    {"output", 'o', "FILE", NULL, "safetensors file to write; the zeros are kept in it"},
    {"sparsity", 's', "SHARE", NULL, "share of the weights to set to zero, as 0.8"},
    {"pattern", 'p', "N:M", NULL, "keep N of every M inputs of an output instead, as 2:4 or 4:8"},
    {"by", 0, "WORD", "magnitude", "importance: magnitude, or wanda, which needs --model and --data"},
    {"scope", 0, "WORD", NULL,
     "compare the weights of a tensor, a row or the whole model (global) [global; wanda: row]"},
    {"units", 'u', "WORD", "weights",
     "weights; or channels (inner ones of blocks, neurons) or heads, which are removed; or zeros, those of both that "
     "training with --sparse channels or heads has pruned"},
    {"keep-shapes", 0, NULL, NULL, "set removed units to zero instead, for programs that need the usual shapes"},
    {"embeddings", 0, NULL, NULL, "prune embeddings as well, with the output layer that has the same weights"},
    {"skip", 0, "TEXT", NULL, "leave tensors with this text in their names as they are"},
    {"model", 'm', "MODEL", NULL, "wanda, heads: what the weights are of [heads: that of the checkpoint]"},
    {"data", 'd', "DIR", NULL, "wanda: directory of the data set, fashion-mnist or builtin"},
    {"tokens", 0, "WHAT", NULL, "wanda: as in frugrad eval"},
    {"subset", 0, "TASK", NULL, "wanda: as in frugrad eval"},
    {"batch", 'b', "COUNT", NULL, "wanda: samples at a time [by the model]"},
    {"eval-batches", 0, "COUNT", "8", "wanda: batches of the training split to run"},
    {"threads", 't', "COUNT", NULL, "wanda: threads to use [the cores]"},
    {"seed", 0, "NUMBER", "1", "wanda: of builtin data"},
    {"samples", 0, "COUNT", NULL, "wanda: builtin data: how many there were to train on [some thousand]"},
    {"json", 'j', NULL, NULL, "print the summary as JSON"},
    {NULL, 0, NULL, NULL, NULL},
};

typedef struct prune_job {
    const fgp_args *args;
    const char *out, *skip;
    double sparsity;
    uint32_t n, m; /* pattern; m is 0 without one */
    int wanda, scope, units;
    fgp_unit_totals removed;
    fgp_weights weights;
    float **norm;        /* wanda: of each tensor's inputs, or NULL */
    float *score;        /* of all tensors that are pruned, row by row */
    uint8_t *mask, *row; /* which of them stay; scratch of a row */
    uint64_t pruned, total;
} prune_job;

/* ---- the command line --------------------------------------------------------------------------- */

static int read_pattern(prune_job *job) {
    const char *text = fgp_arg(job->args, "pattern");
    if (text == NULL)
        return FGIO_EXIT_OK;
    int used = 0;
    if (sscanf(text, "%2" SCNu32 ":%2" SCNu32 "%n", &job->n, &job->m, &used) != 2 || text[used] != '\0' || job->n < 1 ||
        job->n >= job->m || job->m > 64)
        return fgio_usage_error("--pattern: '%s' is not N:M with 1 <= N < M <= 64, as 2:4", text);
    return FGIO_EXIT_OK;
}

static int read_units(prune_job *job) {
    static const char *const words[] = {"weights", "channels", "heads", "zeros", NULL};
    static const char *const others[] = {"pattern", "scope", "by", "embeddings"};
    int code = fgp_arg_word(job->args, "units", words, &job->units);
    bool shares = job->units == UNITS_CHANNELS || job->units == UNITS_HEADS;
    if (code == FGIO_EXIT_OK && !shares && fgp_arg_given(job->args, "keep-shapes"))
        code = fgio_usage_error("prune: --keep-shapes is for --units channels and heads");
    if (code == FGIO_EXIT_OK && job->units == UNITS_ZEROS && fgp_arg_given(job->args, "sparsity"))
        code = fgio_usage_error("prune: --units zeros removes what is pruned already; omit --sparsity");
    for (size_t i = 0; i < sizeof others / sizeof *others && code == FGIO_EXIT_OK && job->units != UNITS_WEIGHTS; i++)
        if (fgp_arg_given(job->args, others[i]))
            code = fgio_usage_error("prune: --%s is not for --units %s", others[i], words[job->units]);
    return code;
}

static int read_options(prune_job *job) {
    static const char *const methods[] = {"magnitude", "wanda", NULL};
    const fgp_args *args = job->args;
    job->out = fgp_arg(args, "output");
    job->skip = fgp_arg(args, "skip");
    if (job->out == NULL || strcmp(job->out, "-") == 0)
        return fgio_usage_error("prune: name the file with -o");
    int code = read_units(job);
    if (code == FGIO_EXIT_OK && job->units != UNITS_ZEROS &&
        fgp_arg_given(args, "sparsity") == fgp_arg_given(args, "pattern"))
        code = fgio_usage_error("prune: give either --sparsity SHARE or --pattern N:M");
    if (code == FGIO_EXIT_OK)
        code = fgp_arg_word(args, "by", methods, &job->wanda);
    job->scope = job->wanda ? SCOPE_ROW : SCOPE_GLOBAL;
    if (code == FGIO_EXIT_OK && fgp_arg_given(args, "scope"))
        code = fgp_arg_word(args, "scope", scopes, &job->scope);
    if (code == FGIO_EXIT_OK && fgp_arg_given(args, "pattern") && fgp_arg_given(args, "scope"))
        code = fgio_usage_error("prune: --pattern compares groups of M; --scope is for --sparsity");
    if (code == FGIO_EXIT_OK && fgp_arg_given(args, "sparsity"))
        code = fgp_arg_double(args, "sparsity", 0, 1, &job->sparsity);
    if (code == FGIO_EXIT_OK && job->wanda && (!fgp_arg_given(args, "model") || !fgp_arg_given(args, "data")))
        code = fgio_usage_error("prune: --by wanda needs --model and --data, to measure the inputs of the weights");
    if (code == FGIO_EXIT_OK && job->wanda && fgp_arg_given(args, "embeddings"))
        code = fgio_usage_error(
            "prune: --embeddings compares magnitudes; inputs of embeddings have no norm for --by wanda");
    return code == FGIO_EXIT_OK ? read_pattern(job) : code;
}

/* ---- inputs ------------------------------------------------------------------------------------- */

/* Copies the norms of the inputs of every linear layer. */
static void copy_norms(void *ctx, const fgt_graph *graph) {
    prune_job *job = ctx;
    for (size_t i = 0; i < job->weights.count; i++) {
        const fgt_param *p = fgt_weights_find(graph, job->weights.tensor[i].name);
        if (p == NULL || p->input_squares == NULL)
            continue;
        size_t cols = fgp_weights_view(&job->weights.tensor[i]).cols,
               inputs = p->tensor.input_first ? p->rows : p->cols;
        if (cols != inputs || (job->norm[i] = malloc(cols * sizeof(float))) == NULL)
            continue; /* reported by check_norms() */
        for (size_t c = 0; c < cols; c++)
            job->norm[i][c] = (float)sqrt(p->input_squares[c]);
    }
}

static int check_norms(const prune_job *job) {
    for (size_t i = 0; i < job->weights.count; i++)
        if (job->weights.tensor[i].ndim == 2 && fgp_weights_is_matrix(&job->weights.tensor[i]) && job->norm[i] == NULL)
            return fgio_error("the inputs of tensor '%s' could not be measured", job->weights.tensor[i].name);
    return FGIO_EXIT_OK;
}

static int measure_inputs(prune_job *job) {
    fgp_request request;
    fgt_eval_result quality = {0};
    fgt_report report = {0};
    job->norm = calloc(job->weights.count, sizeof *job->norm);
    if (job->norm == NULL)
        return fgio_error("not enough memory");
    int code = fgp_request_open(job->args, &request);
    if (code == FGIO_EXIT_OK) {
        request.job.weights = job->weights.path;
        request.job.workers = 1;
        request.job.inspect = copy_norms;
        request.job.inspect_ctx = job;
        code = fgt_job_eval(&request.job, FGT_TRAIN, &quality, &report);
    }
    fgp_request_close(&request);
    return code == FGIO_EXIT_OK ? check_norms(job) : code;
}

/* ---- prune -------------------------------------------------------------------------------------- */

static bool is_pruned(const prune_job *job, size_t i) {
    const frug_tensor *tensor = &job->weights.tensor[i];
    bool embedding = tensor->role == FRUG_ROLE_EMBEDDING && fgp_arg_given(job->args, "embeddings");
    return (fgp_weights_is_matrix(tensor) || embedding) &&
           (job->skip == NULL || strstr(tensor->name, job->skip) == NULL);
}

/* The scores of a tensor, row by row. Without norms (convolutions) they are magnitudes. */
static void score_tensor(const prune_job *job, size_t i, float *score) {
    fgp_matrix_view view = fgp_weights_view(&job->weights.tensor[i]);
    const float *norm = job->norm ? job->norm[i] : NULL;
    for (size_t r = 0; r < view.rows; r++)
        for (size_t c = 0; c < view.cols; c++) {
            float w = job->weights.data[i][r * view.row_stride + c * view.column_stride];
            *score++ = fabsf(w) * (norm ? norm[c] : 1.0f);
        }
}

static size_t kept(const prune_job *job, size_t n) {
    return (size_t)llround((1.0 - job->sparsity) * (double)n);
}

/* The largest scores of each row. */
static void select_in_rows(const prune_job *job, size_t rows, size_t cols, const float *score, uint8_t *selected) {
    for (size_t r = 0; r < rows; r++) {
        memset(job->row, 0, cols / 8 + 1);
        fgt_candidates row = {.score = score + r * cols, .count = cols, .selected = job->row};
        fgt_select_largest(&row, 1, kept(job, cols));
        for (size_t c = 0; c < cols; c++)
            if (fgt_mask_bit(job->row, c))
                fgt_mask_set(selected, r * cols + c);
    }
}

static void select_in_tensor(const prune_job *job, size_t i, const fgt_candidates *all) {
    fgp_matrix_view view = fgp_weights_view(&job->weights.tensor[i]);
    const fgt_group_rows rows = {view.rows, view.cols, view.cols, 1};
    if (job->m > 0)
        fgt_select_n_of_m(&rows, all->score, job->n, job->m, all->selected);
    else if (job->scope == SCOPE_TENSOR)
        fgt_select_largest(all, 1, kept(job, all->count));
    else if (job->scope == SCOPE_ROW)
        select_in_rows(job, view.rows, view.cols, all->score, all->selected);
}

static void set_zeros(prune_job *job, size_t i, const uint8_t *selected) {
    fgp_matrix_view view = fgp_weights_view(&job->weights.tensor[i]);
    for (size_t r = 0; r < view.rows; r++)
        for (size_t c = 0; c < view.cols; c++)
            if (!fgt_mask_bit(selected, r * view.cols + c)) {
                job->weights.data[i][r * view.row_stride + c * view.column_stride] = 0.0f;
                job->pruned++;
            }
}

/* Lists the tensors that are pruned, with their scores; the masks of what stays are zero yet. */
static size_t list_candidates(prune_job *job, fgt_candidates *set) {
    size_t sets = 0;
    float *score = job->score;
    uint8_t *mask = job->mask;
    for (size_t i = 0; i < job->weights.count; i++) {
        if (!is_pruned(job, i))
            continue;
        size_t size = fgp_weights_size(&job->weights.tensor[i]);
        score_tensor(job, i, score);
        set[sets++] = (fgt_candidates){.score = score, .count = size, .selected = mask};
        score += size;
        mask += size / 8 + 1;
    }
    return sets;
}

static void prune_candidates(prune_job *job, fgt_candidates *set) {
    size_t sets = list_candidates(job, set), number = 0;
    if (job->m == 0 && job->scope == SCOPE_GLOBAL)
        fgt_select_largest(set, sets, kept(job, (size_t)job->total));
    for (size_t i = 0; i < job->weights.count; i++) {
        if (!is_pruned(job, i))
            continue;
        select_in_tensor(job, i, &set[number]);
        set_zeros(job, i, set[number++].selected);
    }
}

static int prune(prune_job *job) {
    for (size_t i = 0; i < job->weights.count; i++)
        job->total += is_pruned(job, i) ? fgp_weights_size(&job->weights.tensor[i]) : 0;
    if (job->total == 0)
        return fgio_error("%s: has no matrix to prune", job->args->operand[0]);
    fgt_candidates *set = calloc(job->weights.count, sizeof *set);
    job->score = malloc((size_t)job->total * sizeof *job->score);
    job->mask = calloc((size_t)job->total / 8 + job->weights.count, 1);
    job->row = malloc((size_t)job->total / 8 + 1);
    bool room = set && job->score && job->mask && job->row;
    if (room)
        prune_candidates(job, set);
    free(set);
    return room ? FGIO_EXIT_OK : fgio_error("not enough memory for the scores of %" PRIu64 " weights", job->total);
}

/* The checkpoint says what it is of; another --model would cut heads into pieces. */
static int check_model(const prune_job *job, const fgt_model *given) {
    fgt_model saved;
    if (job->weights.model[0] == '\0')
        return FGIO_EXIT_OK;
    int code = fgt_model_parse(job->weights.model, &saved);
    if (code == FGIO_EXIT_OK &&
        (strcmp(saved.name, given->name) != 0 || fgt_model_head_length(&saved) != fgt_model_head_length(given)))
        code = fgio_usage_error("--model %s: the checkpoint is of %s; omit --model", given->text, saved.text);
    return code;
}

/* The length of a head, which only the model's name says. */
static int find_head_length(const prune_job *job, fgt_unit_kinds *kinds) {
    const bool given = fgp_arg_given(job->args, "model");
    const char *text = given ? fgp_arg(job->args, "model") : job->weights.model;
    fgt_model model;
    if (*text == '\0')
        return fgio_usage_error("prune: name the --model, which says how long an attention head is");
    int code = fgt_model_parse(text, &model);
    if (code == FGIO_EXIT_OK && given)
        code = check_model(job, &model);
    if (code == FGIO_EXIT_OK)
        kinds->head_length = fgt_model_head_length(&model);
    if (code == FGIO_EXIT_OK && kinds->head_length == 0 && job->units == UNITS_HEADS)
        code = fgio_usage_error("%s%s has no attention heads", given ? "--model: " : "", model.name);
    return code;
}

static bool has_attention(const fgp_weights *weights) {
    for (size_t i = 0; i < weights->count; i++)
        if (strstr(weights->tensor[i].name, "attn") != NULL || strstr(weights->tensor[i].name, "attention") != NULL)
            return true;
    return false;
}

static int remove_units(prune_job *job) {
    fgp_unit_options how = {
        .kinds = {.channels = job->units != UNITS_HEADS,
                  .heads = job->units == UNITS_HEADS || (job->units == UNITS_ZEROS && has_attention(&job->weights))},
        .share = job->sparsity,
        .zeros = job->units == UNITS_ZEROS,
        .keep_shapes = fgp_arg_given(job->args, "keep-shapes"),
        .skip = job->skip};
    bool named = how.kinds.heads || fgp_arg_given(job->args, "model");
    int code = named ? find_head_length(job, &how.kinds) : FGIO_EXIT_OK;
    return code == FGIO_EXIT_OK ? fgp_prune_units(&job->weights, &how, &job->removed) : code;
}

/* Options that name tensors, but none of this model, are mistakes. */
static int check_names(const prune_job *job) {
    bool skips = job->skip == NULL, embeds = !fgp_arg_given(job->args, "embeddings");
    for (size_t i = 0; i < job->weights.count; i++) {
        skips |= job->skip != NULL && strstr(job->weights.tensor[i].name, job->skip) != NULL;
        embeds |= job->weights.tensor[i].role == FRUG_ROLE_EMBEDDING;
    }
    if (!skips)
        return fgio_error("--skip: no tensor of %s has '%s' in its name", job->args->operand[0], job->skip);
    return embeds ? FGIO_EXIT_OK : fgio_error("--embeddings: %s has none", job->args->operand[0]);
}

static int check_finite(const prune_job *job) {
    for (size_t i = 0; i < job->weights.count; i++)
        for (size_t j = 0; j < fgp_weights_size(&job->weights.tensor[i]); j++)
            if (!isfinite(job->weights.data[i][j]))
                return fgio_error("%s: tensor '%s' has a NaN or an infinity", job->args->operand[0],
                                  job->weights.tensor[i].name);
    return FGIO_EXIT_OK;
}

static int print_units(const prune_job *job, uint64_t weights) {
    static const char *const names[] = {
        [UNITS_CHANNELS] = "channels", [UNITS_HEADS] = "heads", [UNITS_ZEROS] = "units"};
    if (fgp_arg_given(job->args, "json"))
        return fgio_json_print(json_pack("{s:o, s:I, s:I, s:I}", "output", fgio_json_text(job->out), "weights",
                                         (json_int_t)weights, "units", (json_int_t)job->removed.units, "removed",
                                         (json_int_t)job->removed.removed),
                               0, stdout);
    printf("%s: %" PRIu64 " of %" PRIu64 " %s %s; the model has %" PRIu64 " weights\n", job->out, job->removed.removed,
           job->removed.units, names[job->units], fgp_arg_given(job->args, "keep-shapes") ? "set to zero" : "removed",
           weights);
    return FGIO_EXIT_OK;
}

static int print_summary(const prune_job *job) {
    uint64_t all = 0;
    for (size_t i = 0; i < job->weights.count; i++)
        all += fgp_weights_size(&job->weights.tensor[i]);
    if (job->units != UNITS_WEIGHTS)
        return print_units(job, all);
    if (fgp_arg_given(job->args, "json"))
        return fgio_json_print(json_pack("{s:o, s:I, s:I, s:I}", "output", fgio_json_text(job->out), "weights",
                                         (json_int_t)all, "matrices", (json_int_t)job->total, "pruned",
                                         (json_int_t)job->pruned),
                               0, stdout);
    printf("%s: %" PRIu64 " of %" PRIu64 " weights of the matrices set to zero, %.1f %%; the model has %" PRIu64 "\n",
           job->out, job->pruned, job->total, 100.0 * (double)job->pruned / (double)job->total, all);
    return FGIO_EXIT_OK;
}

static int run(const fgp_args *args) {
    prune_job job = {.args = args};
    int code = read_options(&job);
    if (code != FGIO_EXIT_OK)
        return code;
    code = fgp_weights_read(args->operand[0], &job.weights);
    if (code == FGIO_EXIT_OK)
        code = fgp_weights_check_output(&job.weights, job.out);
    if (code == FGIO_EXIT_OK)
        code = check_names(&job);
    if (code == FGIO_EXIT_OK)
        code = check_finite(&job);
    if (code == FGIO_EXIT_OK && job.wanda)
        code = measure_inputs(&job);
    if (code == FGIO_EXIT_OK)
        code = job.units == UNITS_WEIGHTS ? prune(&job) : remove_units(&job);
    if (code == FGIO_EXIT_OK)
        code = fgp_weights_write_safetensors(&job.weights, job.out);
    if (code == FGIO_EXIT_OK)
        code = print_summary(&job);
    for (size_t i = 0; job.norm != NULL && i < job.weights.count; i++)
        free(job.norm[i]);
    free(job.norm);
    free(job.score);
    free(job.mask);
    free(job.row);
    fgp_weights_free(&job.weights);
    return code;
}

const fgp_command fgp_command_prune = {
    .name = "prune",
    .summary = "set the least important weights of a trained model to zero",
    .operands = "CHECKPOINT",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "CHECKPOINT is a safetensors file, or a directory of checkpoints, of which the newest is used. Matrices\n"
        "and convolutions are pruned, embeddings with --embeddings; biases and norms are not. Of convolutions,\n"
        "wanda takes the magnitude. frugrad export then writes a file without the zeros. Channels and heads are\n"
        "removed: frugrad eval, sample and train take their sizes from the file. With --units zeros, that changes\n"
        "no result.\n"
        "\n"
        "  frugrad prune runs/a --sparsity 0.8 -o pruned.safetensors\n"
        "  frugrad prune runs/a --sparsity 0.25 --units heads --model gpt2-nano -o pruned.safetensors\n"
        "  frugrad prune runs/a --units zeros -o small.safetensors\n"
        "  frugrad prune runs/a --pattern 2:4 --by wanda --model gpt2-nano --data text/ -o pruned.safetensors",
    .options = options,
    .run = run,
};
