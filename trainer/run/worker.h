/*
 * worker.h - one worker of a job: its model, its end of the exchange, its place in the data. What the files of the
 * trainer's loop share: worker.c (making one), train_loop.c (steps), evaluate.c, resume.c (checkpoints).
 */
#ifndef FRUGI_WORKER_H
#define FRUGI_WORKER_H

#include "trainer/exchange/buckets.h"
#include "trainer/run/clip_norm.h"
#include "trainer/run/job.h"
#include "trainer/model/model.h"
#include "trainer/run/rate_schedule.h"
#include "trainer/run/gradient_record.h"

/** What all workers of a process share; read-only while they work, but for what worker 0 writes. */
typedef struct frugi_crew {
    const frugi_job *job;
    const frugi_watch *watch;
    frugi_report *report;
    frugi_model model;
    frugi_data *data;
    frugi_rate rate;
    double base_rate;
    uint32_t batch;
    uint32_t accumulate;             /* micro-batches of a batch; 0: one */
    char optimizer[FRUGI_TUNE_TEXT]; /* fine-tuning: made by each worker, from its model */
    /* of an evaluation without training */
    frugi_split split;
    frugi_quality *quality;
} frugi_crew;

/** Seconds of the parts of all steps. */
typedef struct frugi_times {
    double data, forward, backward, total;
} frugi_times;

typedef struct frugi_worker {
    frugi_crew *crew;
    frug_comm *comm;
    int rank, size;
    frugi_graph *graph;
    frug_config *config;
    frug_layout *layout;
    frug_reducer *reducer; /* NULL: --alone, or gossip */
    frug_gossip *gossip;   /* workers step by themselves, and their weights differ until the end: gossip.c */
    frug_optimizer *optimizer;
    frugi_buckets *buckets;
    /* Fine-tuning: */
    char optimizer_text[FRUGI_TUNE_TEXT];
    frugi_tuning tuning;
    /* Where the exchange has room for measurements, for how many, and those of a target. */
    uint64_t measured_at, measured, measured_each;
    frugi_record *record;
    frugi_batch batch;
    uint32_t accumulate; /* micro-batches of a batch, at least one */
    float *aside;        /* running statistics that will be put back */
    frugi_clip clip;
    double *message, *messages; /* what a step tells the other workers, and what all tell */
    size_t message_count;
    double norm;                     /* of the last step's gradient, for methods that follow it; below 0: not known */
    uint64_t step, steps, per_epoch; /* done, in all, of an epoch */
    uint64_t bytes_before, dense_before; /* sent by the run that this one goes on */
    double entries_before, seen_before;  /* likewise */
    frugi_times times;
    float *step_seconds;               /* of the last steps, a ring of FRUGI_STEPS_KNOWN */
    uint64_t steps_here;               /* of this run */
    double loss_tail, loss_tail_count; /* the last tenth */
    bool interrupted;
    bool resuming;       /* from a checkpoint, which is there */
    uint64_t generation; /* of the checkpoints that it writes; worker 0's */
} frugi_worker;

#define FRUGI_STEPS_KNOWN  4096u
#define FRUGI_STEP_NUMBERS 6u /* that workers tell each other after a step (train_loop.c), beside norms to limit */

/** Which values the graphs of a crew keep. */
frugi_keep frugi_crew_keep(const frugi_crew *crew);

/** Everything a worker needs, from the job. Collective. Returns an exit status; close it in either case. */
int frugi_worker_begin(frugi_worker *w, frugi_crew *crew, frug_comm *comm, bool training);
void frugi_worker_end(frugi_worker *w);

/** Let all workers do a part and hear whether all are well: the worst status, known to all, said once. Collective. */
int frugi_worker_together(frugi_worker *w, int (*part)(frugi_worker *w));

/** Report a failure of the library: once, by the worker that noticed, or for those who were told by worker 0. */
int frugi_worker_error(const frugi_worker *w, const char *what, frug_status status);

/** See that all workers hold the same weights. Collective. */
int frugi_worker_same_weights(frugi_worker *w);

/** All steps that are left. Collective. */
int frugi_worker_train(frugi_worker *w);

/** What frugi_job_interrupt() asked for was done: the next job is not meant. */
void frugi_worker_forget_interrupt(void);

/** Parameters that move. */
uint64_t frugi_worker_moving(const frugi_worker *w);

/** Have the mean over all workers as weights, and as running statistics. Collective. */
frug_status frugi_worker_mean(frugi_worker *w);

/** How good the model is on a split; every worker gets the answer. Of workers that gossip, the mean is judged.
 * Collective. */
int frugi_worker_evaluate(frugi_worker *w, frugi_split split, frugi_quality *quality);

/** Add what a batch came to. */
void frugi_score_add(frugi_score *sum, const frugi_score *s);

/** The split that quality is judged by: during training, and at the end. */
frugi_split frugi_worker_split(const frugi_worker *w, bool at_end);

/** Write a checkpoint into the job's directory. Collective. */
int frugi_worker_save(frugi_worker *w);

/** Find out whether the run starts or continues from a checkpoint: w->resuming. Collective. */
int frugi_worker_find_start(frugi_worker *w);

/** Continue from a checkpoint, where there is one to continue from. Collective. */
int frugi_worker_resume(frugi_worker *w);

/** Take the weights of a checkpoint and nothing else. Collective. */
int frugi_worker_load(frugi_worker *w);

/** Note the running statistics, and have them back as they were: for passes that must leave no trace. */
void frugi_worker_put_aside(frugi_worker *w);
void frugi_worker_put_back(frugi_worker *w);

/** Methods that follow the norm of the gradient are told that of the last step; others have no use for it. */
void frugi_worker_tell_norm(frugi_worker *w, double norm);

/** Bytes sent and what dense gradients would have taken, entries sent and seen; with the run before. */
typedef struct frugi_traffic {
    uint64_t bytes, dense;
    double entries, seen;
} frugi_traffic;

/** What the exchange sent and where its time went; stays as it is where there is none. */
void frugi_worker_exchanged(const frugi_worker *w, frug_reduce_stats *stats);

frugi_traffic frugi_worker_traffic(const frugi_worker *w);

#endif
