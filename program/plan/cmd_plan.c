/*
 * cmd_plan.c - `frugrad plan`: predicted step time of each algorithm and density, before machines are rented.
 *
 * The formulas are the library's (frug_cost_predict()); the numbers in them are given or measured.
 */
#include "program/plan/plan.h"

#include "program/args/commands.h"
#include "io/progress.h"
#include "program/args/quantity.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <stdio.h>
#include <string.h>

static const fgp_opt options[] = {
    {"params", 'n', "COUNT", "124M", "parameters of the model: 25.6M, 7G, ..."},
    {"workers", 'p', "COUNT", "8", "workers; with --simulate the most of them, 1024 unless given"},
    {"per-node", 0, "COUNT", "1", "workers that share a node, for the algorithm nodes"},
    {"servers", 0, "COUNT", "1", "workers that are servers, for the algorithm server"},
    {"bandwidth", 'b', "RATE", "1Gbit", "of one worker each way: 100Mbit, 1Gbit, 25Gbit, ..."},
    {"latency", 'l', "TIME", "50us", "of one message: 5us, 1ms, ..."},
    {"node-bandwidth", 0, "RATE", "100Gbit", "the same inside a node"},
    {"node-latency", 0, "TIME", "5us", "the same inside a node"},
    {"compute", 't', "TIME", "300ms", "of a step without any exchange"},
    {"density", 'd', "LIST", NULL, "shares to send, at most 8 [6.25%,1%,0.1%, or that of --config]"},
    {"config", 'c', "STRING", "frugrad", "config string of the compressor"},
    {"overlap", 0, NULL, NULL, "buckets are exchanged during the backward pass"},
    {"compress-speed", 0, "COUNT", NULL, "parameters compressed a second, instead of measuring: 800M, ..."},
    {"decode-speed", 0, "COUNT", NULL, "parameters decoded a second from one frame, likewise"},
    {"measure", 'm', NULL, NULL,
     "measure latency and bandwidth on this machine: threads, or under mpirun (frugrad-mpi) processes"},
    {"simulate", 's', NULL, NULL, "count bytes for up to 1024 workers, to check the formulas"},
    {"grad", 'g', "FILE", NULL, "with --simulate: recorded gradients, each step as a worker"},
    {"shared", 0, "SHARE", "0", "with --simulate: share of the entries that all workers have in common"},
    {"svg", 0, "FILE", NULL, "with --simulate: draw a picture"},
    {"json", 'j', NULL, NULL, "print JSON"},
    {NULL, 0, NULL, NULL, NULL},
};

/* ---- the command line --------------------------------------------------------------------- */

static int read_densities(const fgp_args *args, double *density, size_t *count) {
    const char *text = fgp_arg(args, "density");
    *count = 0;
    if (!text && fgp_arg_given(args, "config")) { /* the density of the config */
        density[(*count)++] = 0;
        return FGIO_EXIT_OK;
    }
    for (text = text ? text : "6.25%,1%,0.1%";; text++) {
        char item[32];
        size_t length = strcspn(text, ",");
        if (*count == FGP_PLAN_DENSITIES)
            return fgio_usage_error("plan: --density: more than %d shares", FGP_PLAN_DENSITIES);
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1), text);
        int status = fgp_quantity("plan: --density", item, FGP_MEASURE_SHARE, 1e-6, 1, &density[(*count)++]);
        text += length;
        if (status != FGIO_EXIT_OK || *text == '\0')
            return status;
    }
}

static int read_count(const fgp_args *args, const char *name, uint32_t *count) {
    uint64_t number = 0;
    int status = fgp_arg_u64(args, name, 1, 1u << 20, &number);
    *count = (uint32_t)number;
    return status;
}

static int read_scene(const fgp_args *args, frug_cost_inputs *s) {
    int status;
    if ((status = read_count(args, "workers", &s->workers)) || (status = read_count(args, "per-node", &s->per_node)) ||
        (status = read_count(args, "servers", &s->servers)) ||
        (status = fgp_arg_quantity(args, "bandwidth", FGP_MEASURE_BANDWIDTH, 1, 1e15, &s->bandwidth)) ||
        (status = fgp_arg_quantity(args, "latency", FGP_MEASURE_TIME, 0, 60, &s->latency)) ||
        (status = fgp_arg_quantity(args, "node-bandwidth", FGP_MEASURE_BANDWIDTH, 1, 1e15, &s->node_bandwidth)) ||
        (status = fgp_arg_quantity(args, "node-latency", FGP_MEASURE_TIME, 0, 60, &s->node_latency)) ||
        (status = fgp_arg_quantity(args, "compute", FGP_MEASURE_TIME, 0, 1e6, &s->compute)))
        return status;
    s->overlap = fgp_arg_given(args, "overlap");
    if (s->workers < 2)
        return fgio_usage_error("plan: --workers: one worker exchanges nothing");
    if (s->workers % s->per_node != 0)
        return fgio_usage_error("plan: --per-node: %u workers do not fill nodes of %u", s->workers, s->per_node);
    if (s->servers > s->workers)
        return fgio_usage_error("plan: --servers: %u of %u workers", s->servers, s->workers);
    return FGIO_EXIT_OK;
}

/* Given speeds replace measured ones; the parts of decoding keep their proportions. */
static int given_speeds(const fgp_args *args, fgp_plan *plan) {
    double compress = 0, decode = 0;
    int status = FGIO_EXIT_OK;
    if (fgp_arg_given(args, "compress-speed"))
        status = fgp_arg_quantity(args, "compress-speed", FGP_MEASURE_COUNT, 1, 1e15, &compress);
    if (status == FGIO_EXIT_OK && fgp_arg_given(args, "decode-speed"))
        status = fgp_arg_quantity(args, "decode-speed", FGP_MEASURE_COUNT, 1, 1e15, &decode);
    for (size_t i = 0; i < plan->speeds && status == FGIO_EXIT_OK; i++) {
        fgp_speed *v = &plan->speed[i];
        v->compress = compress > 0 ? 1 / compress : v->compress;
        if (decode > 0) {
            double factor = 1 / decode / fgp_speed_decode(v);
            v->decode *= factor;
            v->decode_frame *= factor;
            v->decode_entry *= factor;
        }
    }
    return status;
}

/* Options of the simulation need --simulate. */
static int check_simulation(const fgp_args *args) {
    static const char *const only[] = {"grad", "shared", "svg"};
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (fgp_arg_given(args, only[i]) && !fgp_arg_given(args, "simulate"))
            return fgio_usage_error("plan: --%s needs --simulate", only[i]);
    if (fgp_arg_given(args, "measure") && fgp_arg_given(args, "simulate"))
        return fgio_usage_error("plan: --simulate and --measure exclude each other");
    return FGIO_EXIT_OK;
}

static int measure_link(const fgp_args *args, fgp_plan *plan) {
    if (!fgp_arg_given(args, "measure"))
        return FGIO_EXIT_OK;
    if (fgp_arg_given(args, "bandwidth") || fgp_arg_given(args, "latency"))
        return fgio_usage_error("plan: --measure excludes --bandwidth and --latency");
    if (plan->scene.workers > 256)
        return fgio_usage_error("plan: --measure: %u workers are too many threads; 256 at most", plan->scene.workers);
    plan->scene.workers = (uint32_t)fgt_group_size((int)plan->scene.workers);
    plan->link =
        fgt_group_is_joined() ? "measured between the processes of this job" : "measured: threads of this machine";
    fgio_progress *meter = fgio_progress_begin(0, "measuring latency and bandwidth");
    int status = fgp_link_measure_team((int)plan->scene.workers, &plan->scene.latency, &plan->scene.bandwidth);
    fgio_progress_end(meter);
    return status;
}

static int plan_run(const fgp_args *args) {
    static fgp_plan plan;
    double density[FGP_PLAN_DENSITIES];
    size_t count = 0;
    int simulate = fgp_arg_given(args, "simulate");
    const char *link = fgp_arg_given(args, "bandwidth") || fgp_arg_given(args, "latency") ? "given" : "default";
    plan = (fgp_plan){.scene = FRUG_COST_INPUTS_INIT, .link = link, .json = fgp_arg_given(args, "json")};
    double params = 0;
    int status = check_simulation(args);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_quantity(args, "params", FGP_MEASURE_COUNT, 1, 1e14, &params);
    plan.scene.params = (uint64_t)(params + 0.5);
    if (status == FGIO_EXIT_OK && !simulate)
        status = read_scene(args, &plan.scene);
    if (status == FGIO_EXIT_OK)
        status = read_densities(args, density, &count);
    if (status == FGIO_EXIT_OK)
        status = measure_link(args, &plan);
    count = simulate ? 1 : count;
    fgio_progress *meter = fgio_progress_begin(count, "measuring the speed of compressing and decoding");
    for (plan.speeds = 0; plan.speeds < count && status == FGIO_EXIT_OK; plan.speeds++) {
        fgio_progress_update(meter, plan.speeds);
        status = fgp_speed_measure(fgp_arg(args, "config"), density[plan.speeds], &plan.speed[plan.speeds]);
    }
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK)
        status = given_speeds(args, &plan);
    if (status != FGIO_EXIT_OK)
        return status;
    return simulate ? fgp_plan_simulate(args, plan.scene.params, &plan.speed[0]) : fgp_plan_print(&plan);
}

const fgp_command fgp_command_plan = {
    .name = "plan",
    .summary = "predict the step time of every algorithm and density, or that none is needed",
    .operands = "",
    .about = "Speeds of compressing and decoding, and the bytes of a frame, are measured on this machine first.\n"
             "sent and received are bytes per worker and step, on average; wire is the time of all messages, and a\n"
             "step is computing, compressing, decoding, and as much of the wire as is not hidden by --overlap.\n"
             "split:2 returns twice as many entries as a worker sends, split:union all of them. docs/scaling.md has\n"
             "the formulas, and results of --simulate.",
    .options = options,
    .run = plan_run,
};
