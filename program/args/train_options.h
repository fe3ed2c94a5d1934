/*
 * train_options.h - rows of option tables that train and finetune share, in groups, so that the two say the same in the
 * same words.
 */
#ifndef FGP_TRAIN_OPTIONS_H
#define FGP_TRAIN_OPTIONS_H

#include "trainer/data/data_set.h"

#define FGP_OPTIONS_DATA                                                                                               \
    {"data", 'd', "DIR", "builtin",                                                                                    \
     "directory of the data set, or a text file; what is in it is found out. fashion-mnist: where Debian puts it; "    \
     "builtin: made up, as the model wants it"},                                                                       \
        {"tokens", 0, "WHAT", NULL,                                                                                    \
         "text: bytes, a directory with GPT-2's encoder.json and vocab.bpe, or a WordPiece vocabulary"},               \
    {                                                                                                                  \
        "subset", 0, "TASK", NULL, "sentences: which of " FGT_SENTENCE_TASKS " [by the directory's name]"              \
    }

#define FGP_OPTIONS_RUN                                                                                                \
    {"config", 'c', "FILE", NULL, "more options, one a line as `option = value`; the command line wins"},              \
        {"workers", 'w', "COUNT", "1", "workers, as threads; mpirun says how many where it starts them"},              \
        {"threads", 't', "COUNT", NULL, "threads of each worker [the cores, shared out]"},                             \
        {"timeout", 0, "SECONDS", "600", "end with an error when another worker has sent nothing for so long"},        \
        {"batch", 'b', "COUNT", NULL, "samples of each worker in a step [by the model]"},                              \
        {"accumulate", 0, "COUNT", NULL,                                                                               \
         "micro-batches that a batch is cut into, whose gradients are added up before the one exchange [as few as "    \
         "bring activations under half of the memory]"},                                                               \
        {"recompute", 0, NULL, NULL,                                                                                   \
         "keep only what flows between blocks of the model and compute the rest again in backward: less memory, more " \
         "time, the same bits"},                                                                                       \
        {"memory", 0, "BYTES", NULL,                                                                                   \
         "that all workers of this machine may take, as 8G; a run that would take more does not begin [what is "       \
         "free]"},                                                                                                     \
        {"epochs", 'e', "NUMBER", "1", "how often to go through the data"}, {                                          \
        "steps", 's', "COUNT", NULL, "how many steps to take, instead of --epochs"                                     \
    }

#define FGP_OPTIONS_RATE                                                                                               \
    {"schedule", 0, "TEXT", "cosine,warmup=10%",                                                                       \
     "of the learning rate: constant, cosine, linear or step:0.5,0.75:0.1, each with ,warmup=STEPS or "                \
     ",warmup=PERCENT%"},                                                                                              \
        {"clip", 0, "NORM", "auto", "limit of the norm of gradients; auto: twice its running mean; 0: no limit"}, {    \
        "seed", 0, "NUMBER", "1", "of everything random: the same seed, the same weights"                              \
    }

#define FGP_OPTIONS_PLACES                                                                                             \
    {"save", 0, "DIR", NULL, "directory for checkpoints [none are written]"},                                          \
        {"save-every", 0, "STEPS", NULL, "how often [at the end of every epoch]"},                                     \
        {"keep", 0, "COUNT", "3", "how many checkpoints stay"},                                                        \
        {"resume", 0, "[PATH]", NULL,                                                                                  \
         "continue from a checkpoint, or from the newest one in a directory [that of --save, from the beginning "      \
         "while it has none: one command for start and restart]; the other options must be those of the first run"},   \
        {"eval-every", 0, "STEPS", NULL, "how often to evaluate [at the end of every epoch]"},                         \
        {"eval-batches", 0, "COUNT", NULL, "batches of each worker to evaluate on at most [all]"},                     \
        {"no-eval", 0, NULL, NULL, "do not evaluate at all"},                                                          \
        {"metrics", 0, "FILE", NULL, "write every step and evaluation as a line of JSON"},                             \
        {"tensorboard", 0, "DIR", NULL, "write the same as event files of TensorBoard"},                               \
        {"bucket", 0, "BYTES", NULL, "gradients are handed over in buckets of so much, as 1M or 25M [by the model]"},  \
        {"samples", 0, "COUNT", NULL, "builtin data: how many to train on [some thousand]"},                           \
        {"hold-out", 0, "COUNT", NULL,                                                                                 \
         "judge by the last so many training samples, which are not trained on, instead of the test split: for "       \
         "choosing a rate"},                                                                                           \
        {"judge", 0, "SPLIT", "test",                                                                                  \
         "by which split a run is judged at its end: test, or valid, so that a rate is not chosen by the test split"}, \
        {"augment", 0, "WORD", "auto",                                                                                 \
         "how training images are changed: none, crop (shifted by up to 4 pixels; of an image folder: a random part, " \
         "resized), mirror (half of the time), crop+mirror, or auto: crop for gray idx files such as digits, which "   \
         "must not be mirrored, crop+mirror for all others"},                                                          \
        {"no-augment", 0, NULL, NULL, "the same as --augment none"},                                                   \
        {"no-overlap", 0, NULL, NULL, "exchange after backward, not while it goes on"},                                \
        {"alone", 0, NULL, NULL, "exchange nothing: what a step takes without it"},                                    \
        {"json", 'j', NULL, NULL, "print the summary as one JSON object"}, {                                           \
        "quiet", 'q', NULL, NULL, "show no progress"                                                                   \
    }

#endif
