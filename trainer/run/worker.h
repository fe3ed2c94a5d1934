/*
 * worker.h - one worker of a job: its model, its end of the exchange, its place in the data. What the files of the
 * trainer's loop share: worker.c (making one), train_loop.c (steps), evaluate.c, resume.c (checkpoints).
 */
#ifndef FGT_WORKER_H
#define FGT_WORKER_H

#include "trainer/exchange/buckets.h"
#include "trainer/exchange/clip_norm.h"
#include "trainer/run/job.h"
#include "trainer/model/model.h"
#include "trainer/run/rate_schedule.h"
#include "trainer/exchange/gradient_record.h"

/** What all workers of a process share; read-only while they work, but for what worker 0 writes. */
typedef struct fgt_run {
    const fgt_job *job;
    const fgt_watch *callbacks;
    fgt_report *report;
    fgt_model model;
    fgt_data *data;
    fgt_rate rate;
    double base_rate;
    uint32_t batch;
    uint32_t accumulate;               /* micro-batches of a batch; 0: one */
    char optimizer[FGT_FINETUNE_TEXT]; /* fine-tuning: made by each worker, from its model */
    /* of an evaluation without training */
    fgt_split split;
    fgt_quality *quality;
} fgt_run;

/** Seconds of the parts of all steps. */
typedef struct fgt_times {
    double data, forward, backward, total;
} fgt_times;

typedef struct fgt_worker {
    fgt_run *run;
    frug_comm *comm;
    int rank, size;
    fgt_graph *graph;
    frug_config *config;
    frug_layout *layout;
    frug_reducer *reducer; /* NULL: --alone, or gossip */
    frug_gossip *gossip;   /* workers step by themselves, and their weights differ until the end: gossip.c */
    frug_optimizer *optimizer;
    fgt_buckets *buckets;
    /* Fine-tuning: */
    char optimizer_text[FGT_FINETUNE_TEXT];
    fgt_tuning tuning;
    /* Where the exchange has room for measurements, for how many, and those of a target. */
    uint64_t measured_at, measured, measured_each;
    fgt_record *record;
    fgt_batch batch;
    uint32_t accumulate;  /* micro-batches of a batch, at least one */
    float *saved_buffers; /* running statistics that will be put back */
    fgt_clip clip;
    double *message, *messages; /* what a step tells the other workers, and what all tell */
    size_t message_count;
    double norm;                     /* of the last step's gradient, for methods that follow it; below 0: not known */
    uint64_t step, steps, per_epoch; /* done, in all, of an epoch */
    uint64_t bytes_before, dense_before; /* sent by the run that this one goes on */
    double entries_before, seen_before;  /* likewise */
    fgt_times times;
    float *step_seconds;               /* of the last steps, a ring of FGT_STEP_TIMES_MAX */
    uint64_t steps_here;               /* of this run */
    double loss_tail, loss_tail_count; /* the last tenth */
    bool interrupted;
    bool resuming;       /* from a checkpoint, which is there */
    uint64_t generation; /* of the checkpoints that it writes; worker 0's */
} fgt_worker;

#define FGT_STEP_TIMES_MAX 4096u
#define FGT_STEP_DOUBLES   6u /* that workers tell each other after a step (train_loop.c), beside norms to limit */

/** Which values the graphs of a crew keep. */
fgt_keep fgt_run_keep(const fgt_run *run);

/** Everything a worker needs, from the job. Collective. Returns an exit status; close it in either case. */
int fgt_worker_open(fgt_worker *w, fgt_run *run, frug_comm *comm, bool training);
void fgt_worker_close(fgt_worker *w);

/** Let all workers do a part and hear whether all are well: the worst status, known to all, said once. Collective. */
int fgt_worker_collective(fgt_worker *w, int (*part)(fgt_worker *w));

/** Report a failure of the library: once, by the worker that noticed, or for those who were told by worker 0. */
int fgt_worker_error(const fgt_worker *w, const char *what, frug_status status);

/** See that all workers hold the same weights. Collective. */
int fgt_worker_check_weights(fgt_worker *w);

/** All steps that are left. Collective. */
int fgt_worker_train(fgt_worker *w);

/** What fgt_job_interrupt() asked for was done: the next job is not meant. */
void fgt_worker_clear_interrupt(void);

/** Parameters that move. */
uint64_t fgt_worker_trainable(const fgt_worker *w);

/** Have the mean over all workers as weights, and as running statistics. Collective. */
frug_status fgt_worker_average(fgt_worker *w);

/** How good the model is on a split; every worker gets the answer. Of workers that gossip, the mean is judged.
 * Collective. */
int fgt_worker_evaluate(fgt_worker *w, fgt_split split, fgt_quality *quality);

/** Add what a batch came to. */
void fgt_score_add(fgt_score *sum, const fgt_score *s);

/** The split that quality is judged by: during training, and at the end. */
fgt_split fgt_worker_eval_split(const fgt_worker *w, bool at_end);

/** Write a checkpoint into the job's directory. Collective. */
int fgt_worker_save(fgt_worker *w);

/** Find out whether the run starts or continues from a checkpoint: w->resuming. Collective. */
int fgt_worker_find_checkpoint(fgt_worker *w);

/** Continue from a checkpoint, where there is one to continue from. Collective. */
int fgt_worker_resume(fgt_worker *w);

/** Take the weights of a checkpoint and nothing else. Collective. */
int fgt_worker_load_weights(fgt_worker *w);

/** Note the running statistics, and have them back as they were: for passes that must leave no trace. */
void fgt_worker_save_buffers(fgt_worker *w);
void fgt_worker_restore_buffers(fgt_worker *w);

/** Methods that follow the norm of the gradient are told that of the last step; others have no use for it. */
void fgt_worker_set_norm(fgt_worker *w, double norm);

/** Bytes sent and what dense gradients would have taken, entries sent and seen; with the run before. */
typedef struct fgt_traffic {
    uint64_t bytes, dense;
    double entries, seen;
} fgt_traffic;

/** What the exchange sent and where its time went; stays as it is where there is none. */
void fgt_worker_exchange_stats(const fgt_worker *w, frug_reduce_stats *stats);

fgt_traffic fgt_worker_traffic(const fgt_worker *w);

#endif
