/*
 * cmd_sample.c - `frugrad sample`: continue a text with a language model.
 *
 * Tokens are written as they are sampled; BPE tokens may end inside a character, which the next ones complete.
 */
#include "trainer/run/text_sample.h"
#include "trainer/base/blas.h"
#include "trainer/nn/input_cutoff.h"
#include "trainer/checkpoint/checkpoint.h"
#include "program/args/commands.h"
#include "trainer/data/tokenizer.h"
#include "trainer/run/memory_fit.h"
#include "program/args/job_args.h"
#include "io/progress.h"
#include "io/unpack_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LENGTH = 1 << 20, MAX_TOP_K = 1 << 24, CALIBRATION_BYTES = 1 << 24 };

static const fgp_opt options[] = {
    {"model", 'm', "MODEL", NULL, "a language model, gpt2 of some size; listed below"},
    {"weights", 0, "FILE", NULL, "safetensors or compact file with the names of Hugging Face or the trainer"},
    {"resume", 0, "PATH", NULL, "a checkpoint of the trainer or a directory of them, instead of --weights"},
    {"tokens", 0, "WHAT", "bytes",
     "what the model was trained on: bytes, or a directory with GPT-2's encoder.json and vocab.bpe"},
    {"activations", 0, "SHARE", NULL,
     "share of the inputs of linear layers that count as zero and cost no time; needs --calibration"},
    {"calibration", 0, "FILE", NULL, "a text that thresholds of activations are chosen by"},
    {"prompt", 'p', "TEXT", "", "the text to continue"},
    {"length", 'n', "COUNT", "200", "how many tokens to add"},
    {"temperature", 0, "NUMBER", "0.8",
     "1: the model's probabilities; lower: more weight on likely tokens; 0: always the likeliest"},
    {"top-k", 'k', "COUNT", "40", "sample from this number of the likeliest tokens; 0: from all"},
    {"seed", 0, "NUMBER", "1", "random seed: the same seed gives the same text"},
    {"threads", 't', "COUNT", NULL, "threads to use [the cores]"},
    {"memory", 0, "BYTES", NULL, "memory limit, as 8G [what is free]"},
    {NULL, 0, NULL, NULL, NULL},
};

/** State of a run of the command. */
typedef struct sampler {
    fgp_request request;
    fgt_sampling how;
    uint64_t more;
    fgt_tokenizer *tokens;
    fgt_ids ids;
    int32_t *text; /* the prompt's tokens */
    size_t count;
    fgt_graph *graph;
} sampler;

static int read_options(const fgp_args *args, sampler *s) {
    uint64_t top = 0;
    int status = fgp_request_open(args, &s->request);
    if (status == FGIO_EXIT_OK && s->request.model.task != FGT_TASK_LANGUAGE)
        status = fgio_usage_error("sample: %s is not a language model; use a gpt2", s->request.job.model);
    if (status == FGIO_EXIT_OK && s->request.job.weights == NULL && s->request.job.resume == NULL) {
        status = fgio_usage_error("sample: --weights FILE or --resume PATH missing");
        fgio_hint("frugrad train --model %s --data TEXT --save DIR writes checkpoints; then --resume DIR",
                  s->request.job.model);
    }
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(args, "length", 1, MAX_LENGTH, &s->more);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(args, "top-k", 0, MAX_TOP_K, &top);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_double(args, "temperature", 0, 1000, &s->how.temperature);
    if (status == FGIO_EXIT_OK && (fgp_arg(args, "calibration") != NULL) != (s->request.job.activations > 0))
        status = fgio_usage_error("sample: --activations and --calibration go together");
    s->how.top_k = (uint32_t)top;
    s->how.seed = s->request.job.seed;
    return status;
}

/* An empty prompt is the token that begins texts: end of text, or a newline. */
static int read_prompt(sampler *s) {
    const char *prompt = fgp_arg(&s->request.args, "prompt");
    int status = fgt_tokenizer_open(s->request.job.tokens, &s->tokens);
    if (status != FGIO_EXIT_OK)
        return status;
    int32_t end = fgt_tokenizer_end(s->tokens);
    s->ids.wide = fgt_tokenizer_vocab(s->tokens) > 65536;
    if (prompt[0] != '\0')
        status = fgt_tokenizer_encode(s->tokens, prompt, strlen(prompt), &s->ids);
    if (status != FGIO_EXIT_OK)
        return status;
    s->count = s->ids.len > 0 ? s->ids.len : 1;
    s->text = calloc(s->count, sizeof *s->text);
    if (s->text == NULL)
        return fgio_error("no memory for %zu tokens", s->count);
    s->text[0] = end >= 0 ? end : '\n';
    for (size_t i = 0; i < s->ids.len; i++)
        s->text[i] = fgt_ids_at(&s->ids, i);
    return FGIO_EXIT_OK;
}

/* Token by token, unless the window has to move; then built for no more tokens than needed, as each new one costs a
 * pass over all. */
static int build_graph(sampler *s) {
    const fgt_job *job = &s->request.job;
    fgt_model *model = &s->request.model;
    size_t length = s->count + (size_t)s->more;
    fgt_data_info info = {.name = "the prompt",
                          .task = FGT_TASK_LANGUAGE,
                          .vocab = fgt_tokenizer_vocab(s->tokens),
                          .length = length <= model->length ? 1 : model->length};
    fgt_build_options how = {.batch = 1, .threads = (int)job->threads, .keep = FGT_KEEP_NONE};
    if (length <= model->length)
        how.past_most = (uint32_t)length;
    char path[PATH_MAX];
    uint32_t fresh = 0;
    int status = fgt_blas_init(job->threads);
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_newest(job->weights != NULL ? job->weights : job->resume, path, sizeof path);
    if (status == FGIO_EXIT_OK)
        status = fgt_model_read_units(path, model);
    if (status == FGIO_EXIT_OK)
        status = fgt_memory_check_forward(model, &info, &how, job->memory_bytes);
    if (status == FGIO_EXIT_OK)
        status = fgt_model_build_with(model, &info, &how, &s->graph);
    fgio_progress *meter = fgio_progress_begin(0, "loading weights of %s", job->model);
    if (status == FGIO_EXIT_OK)
        status = fgt_weights_load(path, s->graph, &fresh);
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK)
        fgt_weights_compare_model(path, model->text);
    return status;
}

/* Tokens of the calibration text, as many as the model was built for, one after the other. */
static int pass_calibration(sampler *s, const fgt_ids *ids) {
    fgt_graph *g = s->graph;
    int32_t token = 0, target = -1;
    fgt_batch batch = {.n = 1, .tokens = &token, .targets = &target};
    if (!fgt_cutoffs_measure(g))
        return fgio_error("not enough memory for the counts of inputs");
    for (g->past = 0; g->past < g->past_most && g->past < ids->len; g->past++) {
        token = fgt_ids_at(ids, g->past);
        fgt_graph_forward(g, &batch, false);
    }
    fgt_cutoffs_set(g, s->request.job.activations);
    return fgt_cutoffs_pack(g);
}

static int calibrate(sampler *s) {
    const char *path = fgp_arg(&s->request.args, "calibration");
    fgio_bytes text = {0};
    fgt_ids ids = {.wide = s->ids.wide};
    if (s->graph->past_most == 0)
        return fgio_usage_error("sample: with --activations, prompt and text must fit the model's length");
    int status = fgio_unpack_file(path, CALIBRATION_BYTES, &text);
    if (status == FGIO_EXIT_OK)
        status = fgt_tokenizer_encode(s->tokens, text.data, text.len, &ids);
    if (status == FGIO_EXIT_OK && ids.len == 0)
        status = fgio_error("%s: no text", path);
    if (status == FGIO_EXIT_OK)
        status = pass_calibration(s, &ids);
    fgt_ids_free(&ids);
    fgio_bytes_free(&text);
    return status;
}

static bool write_token(void *ctx, int32_t token) {
    const sampler *s = ctx;
    size_t len = 0;
    const unsigned char *piece = fgt_tokenizer_piece(s->tokens, token, &len);
    return token != fgt_tokenizer_end(s->tokens) && fwrite(piece, 1, len, stdout) == len && fflush(stdout) == 0;
}

static int run(const fgp_args *args) {
    sampler s = {0};
    int status = read_options(args, &s);
    if (status == FGIO_EXIT_OK)
        status = read_prompt(&s);
    if (status == FGIO_EXIT_OK)
        status = build_graph(&s);
    if (status == FGIO_EXIT_OK && s.request.job.activations > 0)
        status = calibrate(&s);
    if (status == FGIO_EXIT_OK) {
        printf("%s", fgp_arg(args, "prompt"));
        status = fgt_sample(s.graph, &s.how, s.text, s.count, (size_t)s.more, write_token, &s);
        printf("\n");
    }
    fgt_graph_destroy(s.graph);
    fgt_ids_free(&s.ids);
    free(s.text);
    fgt_tokenizer_close(s.tokens);
    fgp_request_close(&s.request);
    return status;
}

const fgp_command fgp_command_sample = {
    .name = "sample",
    .summary = "continue a text with a language model",
    .operands = "",
    .about = "Writes the prompt and its continuation, token by token.\n"
             "\n"
             "  frugrad sample --model gpt2 --weights gpt2.safetensors --tokens gpt2/ --prompt \"The sea was\"\n"
             "  frugrad sample --model gpt2-nano --resume runs/a/step-000001000.safetensors --length 500",
    .options = options,
    .more = fgp_help_models,
    .run = run,
};
