/* plan.h - what the parts of `frugrad plan` share. */
#ifndef FGP_PLAN_H
#define FGP_PLAN_H

#include "program/args/args.h"
#include "frugrad.h"

#define FGP_PLAN_DENSITIES         8
#define FGP_PLAN_LONG_BLOCKS_BELOW (1.0 / 256) /* below this density blocks are 4096 long */

/** What one config costs on this machine and on the wire; times in seconds. */
typedef struct fgp_speed {
    char config[2304];
    double density;              /* entries over elements, as a frame says */
    double payload;              /* bytes of a frame, per element */
    double down_two, down_four;  /* the same with twice and four times the entries */
    double compress;             /* per element */
    double decode, decode_frame; /* per element: the pass, and every frame */
    double decode_entry;         /* per entry */
} fgp_speed;

/** Seconds per element to decode one frame. */
double fgp_speed_decode(const fgp_speed *speed);

typedef struct fgp_plan {
    frug_scene scene;
    fgp_speed speed[FGP_PLAN_DENSITIES];
    size_t speeds;
    const char *link; /* where latency and bandwidth come from */
    int json;
} fgp_plan;

/* ---- plan_measure.c ------------------------------------------------------------- */

/**
 * Compress and decode some two million elements and see what it costs and how many bytes it makes.
 *
 *   config    as given
 *   density   to use instead of the config's own; 0: its own
 *
 * Returns an exit status, after a line on stderr.
 */
int fgp_speed_measure(const char *config, double density, fgp_speed *speed);

/**
 * Latency and bandwidth of a group, by gathering small and large frames through the public interface.
 * Collective; every worker gets the numbers of its own clock. Returns a library status.
 */
frug_status fgp_link_measure(frug_comm *comm, double *latency, double *bandwidth);

/** The same between the workers of the team: as many threads as said, or the processes of the job. Returns an exit
 * status. */
int fgp_link_measure_team(int workers, double *latency, double *bandwidth);

/* ---- plan_print.c ---------------------------------------------------------------- */

/** The table or the JSON, and what to make of it. Returns an exit status. */
int fgp_plan_print(const fgp_plan *plan);

/* ---- plan_simulate.c, plan_supports.c, plan_svg.c ----------------------------------- */

/** Who sends which places: one bit per element and worker, blocks of 256. */
typedef struct fgp_supports {
    uint64_t params;   /* of the model that they are a part of */
    uint64_t elements; /* a multiple of 256 */
    uint32_t workers;
    uint64_t *bits; /* workers x elements / 64 */
} fgp_supports;

/**
 * Draw them: of the density's share of every block, the part `shared` is the same for all workers, and the rest is
 * each one's own, at random. Returns an exit status. Free the bits in either case.
 */
int fgp_supports_draw(fgp_supports *supports, uint64_t elements, uint32_t workers, double density, double shared);

/** Take the largest of every block of recorded gradients, one recording for each worker, as many as there are. */
int fgp_supports_record(fgp_supports *supports, const char *path, double density);

/** One algorithm with some number of workers: bytes that a worker receives, counted and predicted, per element. */
typedef struct fgp_byte_count {
    const char *algorithm;
    uint32_t workers;
    double counted, predicted;
} fgp_byte_count;

#define FGP_COUNTED_ALGORITHMS 5

/**
 * Count what the first P workers of some supports send with each algorithm, for P a power of two.
 *
 *   payload, down   bytes of a frame per element, with the entries of one worker and with twice as many
 *   tally           FGP_COUNTED_ALGORITHMS of them
 *
 * Returns an exit status.
 */
int fgp_count_bytes(const fgp_supports *supports, uint32_t workers, double payload, double down, fgp_byte_count *tally);

/** `frugrad plan --simulate`. */
int fgp_plan_simulate(const fgp_args *args, uint64_t params, const fgp_speed *speed);

/** A picture of bytes per worker over the number of workers. Returns an exit status. */
int fgp_plan_svg(const char *path, const fgp_byte_count *tally, size_t count);

#endif
