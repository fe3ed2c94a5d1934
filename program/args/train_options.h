/* train_options.h - rows of option tables that train and finetune share, in groups. */
#ifndef FGP_TRAIN_OPTIONS_H
#define FGP_TRAIN_OPTIONS_H

#include "trainer/data/data_set.h"

#define FGP_OPTIONS_DATA                                                                                               \
    {"data", 'd', "DIR", "builtin",                                                                                    \
     "directory of the data set, or a text file; the format is detected. fashion-mnist: Debian's package; "            \
     "builtin: generated for the model"},                                                                              \
        {"tokens", 0, "WHAT", NULL,                                                                                    \
         "text: bytes, a directory with GPT-2's encoder.json and vocab.bpe, or a WordPiece vocabulary"},               \
    {                                                                                                                  \
        "subset", 0, "TASK", NULL, "sentences: which of " FGT_SENTENCE_TASKS " [by the directory's name]"              \
    }

#define FGP_OPTIONS_RUN                                                                                                \
    {"config", 'c', "FILE", NULL, "more options, one per line as `option = value`; the command line wins"},            \
        {"workers", 'w', "COUNT", "1", "workers, as threads; under mpirun the number of its processes"},               \
        {"threads", 't', "COUNT", NULL, "threads of each worker [the cores, shared out]"},                             \
        {"timeout", 0, "SECONDS", "600", "end with an error after waiting so long for another worker"},                \
        {"batch", 'b', "COUNT", NULL, "samples of each worker in a step [by the model]"},                              \
        {"accumulate", 0, "COUNT", NULL,                                                                               \
         "micro-batches of a batch, whose gradients are accumulated before the exchange [as few as "                   \
         "bring activations under half of the memory]"},                                                               \
        {"recompute", 0, NULL, NULL,                                                                                   \
         "keep only activations between blocks of the model and recompute the others in backward: less memory, more "  \
         "time, the same bits"},                                                                                       \
        {"memory", 0, "BYTES", NULL,                                                                                   \
         "limit of all workers on this machine, as 8G; a run that would need more is refused [what is "                \
         "free]"},                                                                                                     \
        {"epochs", 'e', "NUMBER", "1", "passes over the training data"}, {                                             \
        "steps", 's', "COUNT", NULL, "number of steps, instead of --epochs"                                            \
    }

#define FGP_OPTIONS_RATE                                                                                               \
    {"schedule", 0, "TEXT", NULL,                                                                                      \
     "of the learning rate: constant, cosine, linear or step:0.5,0.75:0.1, each with ,warmup=STEPS or "                \
     ",warmup=PERCENT% [cosine,warmup=10%; language models without --weights cosine,warmup=30%]"},                     \
        {"clip", 0, "NORM", "auto", "limit of the norm of gradients; auto: twice its running mean; 0: no limit"}, {    \
        "seed", 0, "NUMBER", "1", "random seed: the same seed gives the same weights"                                  \
    }

#define FGP_OPTIONS_OUTPUT                                                                                             \
    {"save", 0, "DIR", NULL, "directory for checkpoints [none are written]"},                                          \
        {"save-every", 0, "STEPS", NULL, "how often [at the end of every epoch]"},                                     \
        {"keep", 0, "COUNT", "3", "number of checkpoints to keep"},                                                    \
        {"resume", 0, "[PATH]", NULL,                                                                                  \
         "continue from a checkpoint, or from the newest one in a directory [that of --save, from the beginning "      \
         "while it has none: one command for start and restart]; the other options must be those of the first run"},   \
        {"eval-every", 0, "STEPS", NULL, "how often to evaluate [at the end of every epoch]"},                         \
        {"eval-batches", 0, "COUNT", NULL, "batches of each worker to evaluate on at most [all]"},                     \
        {"no-eval", 0, NULL, NULL, "do not evaluate at all"},                                                          \
        {"metrics", 0, "FILE", NULL, "write every step and evaluation as a line of JSON"},                             \
        {"tensorboard", 0, "DIR", NULL, "write the same as event files of TensorBoard"},                               \
        {"bucket", 0, "BYTES", NULL,                                                                                   \
         "size of the buckets in which gradients are exchanged, as 1M or 25M [by the model]"},                         \
        {"samples", 0, "COUNT", NULL, "builtin data: how many to train on [some thousand]"},                           \
        {"hold-out", 0, "COUNT", NULL,                                                                                 \
         "evaluate on this many of the last training samples, which are then not trained on, instead of the test "     \
         "split: for "                                                                                                 \
         "choosing a rate"},                                                                                           \
        {"judge", 0, "SPLIT", "test",                                                                                  \
         "split for the final evaluation: test, or valid, so that a rate is not chosen by the test split"},            \
        {"augment", 0, "WORD", "auto",                                                                                 \
         "how training images are changed: none, crop (shifted by up to 4 pixels; of an image folder: a random part, " \
         "resized), mirror (half of the time), crop+mirror, or auto: crop for gray idx files such as digits, which "   \
         "must not be mirrored, crop+mirror for all others"},                                                          \
        {"no-augment", 0, NULL, NULL, "the same as --augment none"},                                                   \
        {"no-overlap", 0, NULL, NULL, "exchange after backward, not during it"},                                       \
        {"alone", 0, NULL, NULL, "exchange nothing, to measure a step without exchange"},                              \
        {"json", 'j', NULL, NULL, "print the summary as one JSON object"}, {                                           \
        "quiet", 'q', NULL, NULL, "show no progress"                                                                   \
    }

#endif
