/*
 * compare_tasks.c - the tasks of a comparison, by size.
 *
 * A middle rate is one at which dense training does well; every method's search begins there, since merged momentum
 * uses rates of the same magnitude. Language models are wide enough for all their matrices to be compressed (min_size).
 * Steps of sizes smoke and small are chosen for one core, on which a run takes one second and about 20. Size full is
 * for a GPU, and size paper has the published models there, ResNet-50, GPT-2 small and BERT-base; its rates, and those
 * of suite evidence, are customary ones, measured only where a comment says so.
 */
#include "lab/compare/compare.h"

#include <string.h>

const char *const fgl_size_names[] = {"smoke", "small", "full", "paper", NULL};

enum { FULL = 2, SIZES = 4, TUNED_SIZES = 3 };

static const fgl_compare_task tasks[SIZES][FGL_MAX_TASKS] = {
    {
        {.id = "mlp-stripes",
         .model = "mlp",
         .family = FGL_VISION,
         .schedule = "cosine,warmup=10",
         .samples = 2000,
         .batch = 16,
         .steps = 100,
         .evals = 2,
         .rate = 0.02,
         .sign_rate = 5e-3},
        {.id = "gpt2-rules",
         .model = "gpt2-nano:layers=2,width=64,heads=4,length=32,vocab=64",
         .family = FGL_LANGUAGE,
         .schedule = "cosine,warmup=5",
         .samples = 1000,
         .batch = 4,
         .steps = 40,
         .evals = 2,
         .eval_batches = 4,
         .rate = 5e-3,
         .sign_rate = 1e-2},
    },
    {
        {.id = "lenet-fashion",
         .model = "lenet",
         .family = FGL_VISION,
         .folder = "fashion-mnist",
         .elsewhere = "fashion-mnist",
         .schedule = "cosine,warmup=100",
         .batch = 32,
         .steps = 800,
         .evals = 4,
         .hold_out = 5000,
         .rate = 0.05,
         .sign_rate = 8e-3},
        {.id = "gpt2-wikitext2",
         .model = "gpt2-nano:layers=2,width=64,heads=4",
         .family = FGL_LANGUAGE,
         .folder = "wikitext-2",
         .test = "test.txt",
         .tokens = "bytes",
         .schedule = "cosine,warmup=40",
         .batch = 8,
         .steps = 400,
         .evals = 4,
         .eval_batches = 24,
         .rate = 5e-3,
         .sign_rate = 8e-3},
        {.id = "bert-sst2",
         .model = "bert-mini:layers=2,width=64,heads=2,length=32",
         .family = FGL_SENTENCES,
         .folder = "glue/SST-2",
         .test = "test_labeled.tsv",
         .tokens = "tokenizers/bert_base_uncased_vocab.txt",
         .schedule = "linear,warmup=30",
         .batch = 8,
         .steps = 300,
         .evals = 4,
         .rate = 1e-3,
         .sign_rate = 3e-3},
        {.id = "resnet20-cifar10",
         .model = "resnet20",
         .family = FGL_VISION,
         .folder = "cifar10",
         .schedule = "cosine,warmup=20",
         .batch = 8,
         .steps = 120,
         .evals = 1,
         .eval_batches = 64,
         .hold_out = 5000,
         .rate = 0.05,
         .sign_rate = 8e-3},
    },
    {
        {.id = "resnet18-cifar10",
         .model = "resnet18",
         .trainer = FGL_TORCH,
         .family = FGL_VISION,
         .folder = "cifar10",
         .test = "test_batch.bin",
         .schedule = "cosine,warmup=50",
         .batch = 128,
         .steps = 980,
         .evals = 4,
         .hold_out = 5000,
         .rate = 0.25,
         .sign_rate = 1e-3},
        {.id = "gpt2-wikitext2",
         .model = "gpt2-small:length=512,dropout=0",
         .trainer = FGL_TORCH,
         .family = FGL_LANGUAGE,
         .folder = "wikitext-2",
         .test = "test.gpt2bpe.u16",
         .schedule = "cosine,warmup=150",
         .batch = 8,
         .steps = 600,
         .evals = 4,
         .rate = 6e-4,
         .sign_rate = 6e-4},
        {.id = "bert-sst2",
         .model = "bert-small:length=64",
         .trainer = FGL_TORCH,
         .family = FGL_SENTENCES,
         .folder = "glue/SST-2",
         .test = "test_labeled.tsv",
         .tokens = "tokenizers/bert_base_uncased_vocab.txt",
         .schedule = "linear,warmup=50",
         .batch = 32,
         .steps = 1000,
         .evals = 4,
         .rate = 2e-4,
         .sign_rate = 2e-4},
    },
    {
        {.id = "resnet50-cifar10",
         .model = "resnet50",
         .trainer = FGL_TORCH,
         .family = FGL_VISION,
         .folder = "cifar10",
         .test = "test_batch.bin",
         .schedule = "cosine,warmup=100",
         .batch = 128,
         .steps = 1960,
         .evals = 4,
         .hold_out = 5000,
         .rate = 0.1,
         .sign_rate = 1e-3},
        {.id = "gpt2-wikitext2",
         .model = "gpt2-small:length=1024,dropout=0",
         .trainer = FGL_TORCH,
         .family = FGL_LANGUAGE,
         .folder = "wikitext-2",
         .test = "test.gpt2bpe.u16",
         .schedule = "cosine,warmup=150",
         .batch = 8,
         .steps = 600,
         .evals = 4,
         .rate = 6e-4,
         .sign_rate = 6e-4},
        {.id = "bert-base-sst2",
         .model = "bert-base:length=128",
         .trainer = FGL_TORCH,
         .family = FGL_SENTENCES,
         .folder = "glue/SST-2",
         .test = "test_labeled.tsv",
         .tokens = "tokenizers/bert_base_uncased_vocab.txt",
         .schedule = "linear,warmup=200",
         .batch = 32,
         .steps = 2000,
         .evals = 4,
         .rate = 1e-4,
         .sign_rate = 1e-4},
    },
};

/* Fine-tuning: tasks and rates of lab/bench/finetune_curves.py. A BERT with weights for 64 positions also works with
 * fewer.
 */
#define TUNED_BERT(places) "bert-mini:layers=4,width=128,heads=4,length=" places ",dropout=0"
#define TUNED_TASKS(count, plan)                                                                                       \
    {.id = "lm",                                                                                                       \
     .model = "gpt2:layers=4,width=128,heads=4,length=128,dropout=0",                                                  \
     .weights = "gpt2-bytes.safetensors",                                                                              \
     .family = FGL_LANGUAGE,                                                                                           \
     .folder = "glue/SST-2",                                                                                           \
     .text = true,                                                                                                     \
     .tokens = "bytes",                                                                                                \
     .schedule = plan,                                                                                                 \
     .batch = 2,                                                                                                       \
     .steps = count,                                                                                                   \
     .eval_batches = 64},                                                                                              \
        {.id = "sst-2",                                                                                                \
         .model = TUNED_BERT("32"),                                                                                    \
         .weights = "bert.safetensors",                                                                                \
         .family = FGL_SENTENCES,                                                                                      \
         .folder = "glue/SST-2",                                                                                       \
         .subset = "sst-2",                                                                                            \
         .tokens = "tokenizers/bert_base_uncased_vocab.txt",                                                           \
         .schedule = plan,                                                                                             \
         .batch = 4,                                                                                                   \
         .steps = count},                                                                                              \
    {                                                                                                                  \
        .id = "boolq", .model = TUNED_BERT("64"), .weights = "bert.safetensors", .family = FGL_SENTENCES,              \
        .folder = "boolq", .subset = "boolq", .tokens = "tokenizers/bert_base_uncased_vocab.txt", .schedule = plan,    \
        .batch = 2, .steps = count, .hold_out = 400                                                                    \
    }

static const fgl_compare_task tuned_tasks[TUNED_SIZES][FGL_MAX_TASKS] = {
    {
        {.id = "gpt2-rules",
         .model = "gpt2-nano:layers=2,width=64,heads=4,length=32,vocab=64",
         .before = "gpt2-nano:layers=2,width=64,heads=4,length=32,vocab=64",
         .family = FGL_LANGUAGE,
         .schedule = "linear,warmup=2",
         .samples = 1000,
         .batch = 2,
         .steps = 20,
         .eval_batches = 8},
        {.id = "bert-words",
         .model = "bert-mini:layers=2,width=64,heads=2,length=32",
         .before = "bert-mlm-mini:layers=2,width=64,heads=2,length=32",
         .family = FGL_SENTENCES,
         .schedule = "linear,warmup=2",
         .samples = 1000,
         .batch = 2,
         .steps = 20,
         .eval_batches = 8},
    },
    {TUNED_TASKS(300, "linear,warmup=20")},
    {TUNED_TASKS(2000, "linear,warmup=100")},
};

/* Suite evidence: models of real size, trained until dense is good, on data that anyone can get. One pass over
 * linux-text is 2,059 steps. gpt2-linux has the trainers' default warm-up, gpt2-linux-10 the shorter one with which the
 * rivals were recorded. The GPT of 27 M parameters, for which a run takes half a minute, reads less than half of the
 * text. Dense Muon has its best gain of 2, 3, 4 and 6. CoLA has no test split with labels: rates are searched on
 * held-out samples of training, and tests are on the development rows. */
#define MINILM(task, length)                                                                                           \
    .model = "minilm:length=" length, .weights = "minilm/model.safetensors", .trainer = FGL_TORCH,                     \
    .family = FGL_SENTENCES, .folder = "glue/" task, .tokens = "minilm/vocab.txt", .batch = 8, .evals = 3,             \
    .rate = 5e-5, .sign_rate = 5e-5

#define ON_LINUX_TEXT                                                                                                  \
    .trainer = FGL_TORCH, .family = FGL_LANGUAGE, .folder = "linux-text", .test = "test.u16", .passes = "compiled",    \
    .batch = 8, .evals = 4

#define GPT2_SMALL                                                                                                     \
    .model = "gpt2-small:length=512,dropout=0", .steps = 2050, .rate = 6e-4, .sign_rate = 6e-4, ON_LINUX_TEXT

static const fgl_compare_task evidence_tasks[FGL_MAX_TASKS] = {
    {.id = "gpt2-linux", .schedule = "cosine,warmup=30%", .muon = "gain=3,", GPT2_SMALL},
    {.id = "gpt2-linux-10", .schedule = "cosine,warmup=200", GPT2_SMALL},
    {.id = "gpt2-27m-linux",
     .model = "gpt2-small:layers=6,width=512,heads=8,length=512,dropout=0",
     .schedule = "cosine,warmup=80",
     .steps = 800,
     .rate = 1e-3,
     .sign_rate = 1e-3,
     ON_LINUX_TEXT},
    {.id = "resnet18-cifar10",
     .model = "resnet18",
     .trainer = FGL_TORCH,
     .family = FGL_VISION,
     .folder = "cifar10",
     .test = "test_batch.bin",
     .schedule = "cosine,warmup=500",
     .batch = 128,
     .steps = 6272, /* dense after 4,900: 93.9 % */
     .evals = 4,
     .hold_out = 5000,
     .rate = 1, /* dense after 2,940 steps: 92.2 % at 0.25, 92.9 % at 0.5, 93.2 % at 1; after 6,272 1 beats 2 */
     .sign_rate = 1e-3},
    {.id = "resnet50-cifar10",
     .model = "resnet50",
     .trainer = FGL_TORCH,
     .family = FGL_VISION,
     .folder = "cifar10",
     .test = "test_batch.bin",
     .schedule = "cosine,warmup=500",
     .batch = 128,
     .steps = 7840, /* dense after 2,940: 92.3 % */
     .evals = 4,
     .hold_out = 5000,
     .rate = 1, /* that of ResNet-18 */
     .sign_rate = 1e-3},
    {.id = "minilm-sst2",
     .test = "test_labeled.tsv",
     .schedule = "linear,warmup=200",
     .steps = 2100,
     MINILM("SST-2", "64")},
    {.id = "minilm-mrpc",
     .test = "msr_paraphrase_test.txt",
     .schedule = "linear,warmup=60",
     .steps = 570,
     MINILM("MRPC", "128")},
    {.id = "minilm-cola",
     .metric = "correlation",
     .test = "dev.tsv",
     .schedule = "linear,warmup=80",
     .steps = 800,
     .hold_out = 855,
     MINILM("CoLA", "64")},
};

int fgl_family_index(const fgl_compare_task *task) {
    return task->family == FGL_VISION ? 0 : task->family == FGL_LANGUAGE ? 1 : 2;
}

const char *fgl_task_family(const fgl_compare_task *task) {
    static const char *const names[] = {"vision", "language", "sentences"};
    return names[fgl_family_index(task)];
}

const char *fgl_task_metric(const fgl_compare_task *task) {
    if (task->metric != NULL)
        return task->metric;
    return task->family == FGL_LANGUAGE ? "perplexity" : "accuracy";
}

const fgl_compare_task *fgl_tasks_of(const char *suite, int size) {
    if (strcmp(suite, "evidence") == 0)
        return size == FULL ? evidence_tasks : NULL;
    if (strcmp(suite, "sgc") == 0)
        return size < TUNED_SIZES ? tuned_tasks[size] : NULL;
    return tasks[size];
}
