/* plan.h - types and functions that the files of `frugrad plan` share. */
#ifndef FGP_PLAN_H
#define FGP_PLAN_H

#include "program/args/args.h"
#include "frugrad.h"

#define FGP_PLAN_DENSITIES         8
#define FGP_PLAN_LONG_BLOCKS_BELOW (1.0 / 256) /* below this density blocks are 4096 long */

/** Costs of one config on this machine and on the wire; times in seconds. */
typedef struct fgp_speed {
    char config[2304];
    double density;              /* entries / elements, from a frame */
    double payload;              /* bytes of a frame, per element */
    double down_two, down_four;  /* the same with twice and four times the entries */
    double compress;             /* per element */
    double decode, decode_frame; /* per element: the pass, and every frame */
    double decode_entry;         /* per entry */
} fgp_speed;

/** Seconds per element to decode one frame. */
double fgp_speed_decode(const fgp_speed *speed);

typedef struct fgp_plan {
    frug_cost_inputs scene;
    fgp_speed speed[FGP_PLAN_DENSITIES];
    size_t speeds;
    const char *link; /* where latency and bandwidth come from: given, default or measured */
    int json;
} fgp_plan;

/* ---- plan_measure.c ------------------------------------------------------------- */

/**
 * Measure time and bytes of compressing and decoding some two million elements.
 *
 *   config    as given
 *   density   to use instead of the config's own; 0: its own
 *
 * Returns an exit status, after a line on stderr.
 */
int fgp_speed_measure(const char *config, double density, fgp_speed *speed);

/**
 * Measure latency and bandwidth of a group, by gathering small and large frames through the public interface.
 * Collective; every worker gets its own results. Returns a library status.
 */
frug_status fgp_link_measure(frug_comm *comm, double *latency, double *bandwidth);

/** The same between all workers: a number of threads, or the processes of the job. Returns an exit
 * status. */
int fgp_link_measure_team(int workers, double *latency, double *bandwidth);

/* ---- plan_print.c ---------------------------------------------------------------- */

/** Print the table or the JSON, with a recommendation. Returns an exit code. */
int fgp_plan_print(const fgp_plan *plan);

/* ---- plan_simulate.c, plan_supports.c, plan_svg.c ----------------------------------- */

/** The supports: which worker sends which indices, one bit per element and worker, blocks of 256. */
typedef struct fgp_supports {
    uint64_t params;   /* of the model that they are a part of */
    uint64_t elements; /* a multiple of 256 */
    uint32_t workers;
    uint64_t *bits; /* workers x elements / 64 */
} fgp_supports;

/**
 * Draw random supports: of the selected entries of every block, the share `shared` is the same for all workers, and the
 * rest is drawn per worker. Returns an exit code. Free the bits in either case.
 */
int fgp_supports_draw(fgp_supports *supports, uint64_t elements, uint32_t workers, double density, double shared);

/** Select the largest of every block of recorded gradients, one recorded step per worker. */
int fgp_supports_record(fgp_supports *supports, const char *path, double density);

/** One algorithm with some number of workers: bytes that a worker receives, counted and predicted, per element. */
typedef struct fgp_byte_count {
    const char *algorithm;
    uint32_t workers;
    double counted, predicted;
} fgp_byte_count;

#define FGP_COUNTED_ALGORITHMS 5

/**
 * Count the bytes that the first P workers of the supports send with each algorithm, P a power of two.
 *
 *   payload, down   bytes of a frame per element, with the entries of one worker and with twice as many
 *   tally           FGP_COUNTED_ALGORITHMS of them
 *
 * Returns an exit status.
 */
int fgp_count_bytes(const fgp_supports *supports, uint32_t workers, double payload, double down, fgp_byte_count *tally);

/** `frugrad plan --simulate`. */
int fgp_plan_simulate(const fgp_args *args, uint64_t params, const fgp_speed *speed);

/** Write a chart of bytes per worker over the number of workers. Returns an exit code. */
int fgp_plan_svg(const char *path, const fgp_byte_count *tally, size_t count);

#endif
