/* plan.h - what the parts of `frugrad plan` share. */
#ifndef FRUGI_PLAN_H
#define FRUGI_PLAN_H

#include "program/args/args.h"
#include "frugrad.h"

#define FRUGI_PLAN_DENSITIES 8
#define FRUGI_PLAN_FEW       (1.0 / 256) /* below this density blocks are 4096 long */

/** What one config costs on this machine and on the wire; times in seconds. */
typedef struct frugi_speed {
    char config[2304];
    double density;              /* entries over elements, as a frame says */
    double payload;              /* bytes of a frame, per element */
    double down_two, down_four;  /* the same with twice and four times the entries */
    double compress;             /* per element */
    double decode, decode_frame; /* per element: the pass, and every frame */
    double decode_entry;         /* per entry */
} frugi_speed;

/** Seconds per element to decode one frame. */
double frugi_speed_decode(const frugi_speed *speed);

typedef struct frugi_planned {
    frug_scene scene;
    frugi_speed speed[FRUGI_PLAN_DENSITIES];
    size_t speeds;
    const char *link; /* where latency and bandwidth come from */
    int json;
} frugi_planned;

/* ---- plan_measure.c ------------------------------------------------------------- */

/**
 * Compress and decode some two million elements and see what it costs and how many bytes it makes.
 *
 *   config    as given
 *   density   to use instead of the config's own; 0: its own
 *
 * Returns an exit status, after a line on stderr.
 */
int frugi_speed_measure(const char *config, double density, frugi_speed *speed);

/**
 * Latency and bandwidth of a group, by gathering small and large frames through the public interface.
 * Collective; every worker gets the numbers of its own clock. Returns a library status.
 */
frug_status frugi_link_measure(frug_comm *comm, double *latency, double *bandwidth);

/** The same between the workers of the team: as many threads as said, or the processes of the job. Returns an exit
 * status. */
int frugi_link_measure_team(int workers, double *latency, double *bandwidth);

/* ---- plan_print.c ---------------------------------------------------------------- */

/** The table or the JSON, and what to make of it. Returns an exit status. */
int frugi_plan_print(const frugi_planned *plan);

/* ---- plan_simulate.c, plan_supports.c, plan_svg.c ----------------------------------- */

/** Who sends which places: one bit per element and worker, blocks of 256. */
typedef struct frugi_supports {
    uint64_t params;   /* of the model that they are a part of */
    uint64_t elements; /* a multiple of 256 */
    uint32_t workers;
    uint64_t *bits; /* workers x elements / 64 */
} frugi_supports;

/**
 * Draw them: of the density's share of every block, the part `shared` is the same for all workers, and the rest is
 * each one's own, at random. Returns an exit status. Free the bits in either case.
 */
int frugi_supports_draw(frugi_supports *supports, uint64_t elements, uint32_t workers, double density, double shared);

/** Take the largest of every block of recorded gradients, one recording for each worker, as many as there are. */
int frugi_supports_record(frugi_supports *supports, const char *path, double density);

/** One algorithm with some number of workers: bytes that a worker receives, counted and predicted, per element. */
typedef struct frugi_tally {
    const char *algorithm;
    uint32_t workers;
    double counted, predicted;
} frugi_tally;

#define FRUGI_TALLY_ALGORITHMS 5

/**
 * Count what the first P workers of some supports send with each algorithm, for P a power of two.
 *
 *   payload, down   bytes of a frame per element, with the entries of one worker and with twice as many
 *   tally           FRUGI_TALLY_ALGORITHMS of them
 *
 * Returns an exit status.
 */
int frugi_tally_count(const frugi_supports *supports, uint32_t workers, double payload, double down,
                      frugi_tally *tally);

/** `frugrad plan --simulate`. */
int frugi_plan_simulate(const frugi_args *args, uint64_t params, const frugi_speed *speed);

/** A picture of bytes per worker over the number of workers. Returns an exit status. */
int frugi_plan_svg(const char *path, const frugi_tally *tally, size_t count);

#endif
