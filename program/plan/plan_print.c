/*
 * plan_print.c - the predictions as a table or as JSON, with a recommendation.
 *
 * The recommendation may be not to compress: if the dense exchange is hidden behind computing, or short compared with
 * it, compression only costs accuracy.
 */
#include "io/json.h"
#include "program/plan/plan.h"
#include "io/error.h"

#include <stdio.h>
#include <string.h>

#define WORTH 1.05 /* a smaller speed-up is within the error of the model */

/** One line: an algorithm with the share it returns, at one density. */
typedef struct line {
    char name[24];
    const char *algorithm;
    double down;
    const fgp_speed *speed;
    frug_cost_estimate forecast;
} line;

static const struct {
    const char *name, *algorithm;
    double down;
} rows[] = {{"gather", "gather", 0}, {"split:1", "split", 1},     {"split:2", "split", 2},
            {"split:4", "split", 4}, {"split:union", "split", 0}, {"tree", "tree", 0},
            {"nodes", "nodes", 0},   {"server:2", "server", 2},   {"server:union", "server", 0}};

#define ROWS  (sizeof rows / sizeof *rows)
#define LINES (1 + ROWS * FGP_PLAN_DENSITIES)

static int predict(const fgp_plan *plan, const fgp_speed *speed, const char *name, const char *algorithm, double down,
                   line *l) {
    frug_cost_inputs s = plan->scene;
    double n = (double)s.params;
    *l = (line){.algorithm = algorithm, .down = down, .speed = speed};
    snprintf(l->name, sizeof l->name, "%s", name);
    s.density = speed->density;
    s.payload = speed->payload * n;
    s.down = down;
    s.payload_down = n * (down > 3 ? speed->down_four : down > 1 ? speed->down_two : speed->payload);
    s.compress = speed->compress;
    s.decode = speed->decode;
    s.decode_frame = speed->decode_frame;
    s.decode_entry = speed->decode_entry;
    l->forecast.struct_size = sizeof l->forecast;
    return frug_cost_predict(algorithm, &s, &l->forecast) == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error("plan");
}

static int predict_all(const fgp_plan *plan, line *lines, size_t *count) {
    int status = predict(plan, &plan->speed[0], "dense", "dense", 0, &lines[0]);
    *count = 1;
    for (size_t i = 0; i < plan->speeds; i++)
        for (size_t k = 0; k < ROWS && status == FGIO_EXIT_OK; k++)
            if (strcmp(rows[k].algorithm, "nodes") != 0 || plan->scene.per_node > 1)
                status =
                    predict(plan, &plan->speed[i], rows[k].name, rows[k].algorithm, rows[k].down, &lines[(*count)++]);
    /* The library's speed-up is over a dense step with the same speed of decoding, which was measured for every
     * density; the table has one dense step, and all speed-ups are over that one. */
    double dense = lines[0].forecast.seconds_step;
    for (size_t i = 0; i < *count && status == FGIO_EXIT_OK; i++)
        lines[i].forecast.speedup = lines[i].forecast.seconds_step > 0 ? dense / lines[i].forecast.seconds_step : 1;
    return status;
}

static const line *fastest_line(const line *lines, size_t count) {
    const line *best = &lines[0];
    for (size_t i = 1; i < count; i++)
        if (lines[i].forecast.seconds_step < best->forecast.seconds_step)
            best = &lines[i];
    return best;
}

/* ---- the table ------------------------------------------------------------------------ */

static const char *time_text(double seconds, char *dst, size_t cap) {
    if (seconds >= 10)
        snprintf(dst, cap, "%.1f s", seconds);
    else if (seconds >= 1e-3 || !(seconds > 0))
        snprintf(dst, cap, "%.1f ms", 1e3 * seconds);
    else
        snprintf(dst, cap, "%.1f us", 1e6 * seconds);
    return dst;
}

static const char *bandwidth_text(double bytes, char *dst, size_t cap) {
    double bits = 8 * bytes;
    const char *unit = bits >= 1e9 ? "Gbit/s" : bits >= 1e6 ? "Mbit/s" : "kbit/s";
    snprintf(dst, cap, "%.4g %s", bits / (bits >= 1e9 ? 1e9 : bits >= 1e6 ? 1e6 : 1e3), unit);
    return dst;
}

static void print_head(const fgp_plan *plan) {
    char a[24], b[24], c[24];
    const frug_cost_inputs *s = &plan->scene;
    printf("\n%llu parameters, %u workers", (unsigned long long)s->params, s->workers);
    if (s->per_node > 1)
        printf(" in nodes of %u", s->per_node);
    printf(", %s and %s per message (%s), %s of computing a step%s\n", bandwidth_text(s->bandwidth, a, sizeof a),
           time_text(s->latency, b, sizeof b), plan->link, time_text(s->compute, c, sizeof c),
           s->overlap ? ", overlapped" : "");
    for (size_t i = 0; i < plan->speeds; i++) {
        const fgp_speed *v = &plan->speed[i];
        printf("  density %.3g %%: %.4g bytes a parameter; compress %.0f, decode %.0f million a second\n",
               100 * v->density, v->payload, 1e-6 / v->compress, 1e-6 / fgp_speed_decode(v));
    }
    printf("\n  %-13s %8s  %11s %11s %10s %10s %10s %11s  %8s\n", "algorithm", "density", "sent", "received",
           "compress", "wire", "decode", "step", "speed-up");
}

static void print_line(const line *l) {
    char a[24], b[24], c[24], d[24], e[24], f[24], density[24] = "";
    const frug_cost_estimate *p = &l->forecast;
    if (strcmp(l->algorithm, "dense") != 0)
        snprintf(density, sizeof density, "%.3g %%", 100 * l->speed->density);
    printf("  %-13s %8s  %11s %11s %10s %10s %10s %11s  %7.2fx\n", l->name, density,
           fgio_bytes_text((uint64_t)p->bytes_sent, a, sizeof a),
           fgio_bytes_text((uint64_t)p->bytes_received, b, sizeof b), time_text(p->seconds_compress, c, sizeof c),
           time_text(p->seconds_wire, d, sizeof d), time_text(p->seconds_decode, e, sizeof e),
           time_text(p->seconds_step, f, sizeof f), p->speedup);
}

static void recommend(const fgp_plan *plan, const line *lines, size_t count, char *text, size_t cap) {
    char a[24], b[24], c[24];
    const line *best = fastest_line(lines, count);
    const frug_cost_estimate *dense = &lines[0].forecast;
    const char *exposed = time_text(dense->seconds_exposed, a, sizeof a), *step = time_text(dense->seconds_step, b, 24);
    if (best == lines || best->forecast.speedup < WORTH)
        snprintf(text, cap,
                 "at %s a dense step of %s waits %s for the wire, and nothing saves 5 %%: do not compress for speed",
                 bandwidth_text(plan->scene.bandwidth, c, sizeof c), step, exposed);
    else
        snprintf(
            text, cap,
            "a dense step of %s waits %s for the wire; %s at %.3g %% makes it %.2f times faster, if training bears it",
            step, exposed, best->name, 100 * best->speed->density, best->forecast.speedup);
}

static int print_table(const fgp_plan *plan, const line *lines, size_t count) {
    char text[256];
    print_head(plan);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && lines[i].speed != lines[i - 1].speed)
            printf("\n");
        print_line(&lines[i]);
    }
    recommend(plan, lines, count, text, sizeof text);
    printf("\nverdict: %s\n", text);
    return FGIO_EXIT_OK;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static json_t *json_line(const line *l) {
    const frug_cost_estimate *p = &l->forecast;
    int dense = strcmp(l->algorithm, "dense") == 0;
    return json_pack("{s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "name", l->name, "algorithm",
                     l->algorithm, "density", dense ? json_null() : json_real(l->speed->density), "bytes_sent",
                     p->bytes_sent, "bytes_received", p->bytes_received, "bytes_busiest", p->bytes_busiest, "rounds",
                     p->rounds, "seconds_compress", p->seconds_compress, "seconds_wire", p->seconds_wire,
                     "seconds_decode", p->seconds_decode, "seconds_exposed", p->seconds_exposed, "seconds_step",
                     p->seconds_step, "speedup", p->speedup);
}

static json_t *json_speed(const fgp_speed *v) {
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "config", v->config, "density", v->density,
                     "payload_per_param", v->payload, "compress_seconds_per_param", v->compress,
                     "decode_seconds_per_param", v->decode, "decode_seconds_per_param_and_frame", v->decode_frame,
                     "decode_seconds_per_entry", v->decode_entry);
}

static int print_json(const fgp_plan *plan, const line *lines, size_t count) {
    char text[256];
    const frug_cost_inputs *s = &plan->scene;
    const line *best = fastest_line(lines, count);
    json_t *all = json_array(), *speeds = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(all, json_line(&lines[i]));
    for (size_t i = 0; i < plan->speeds; i++)
        json_array_append_new(speeds, json_speed(&plan->speed[i]));
    recommend(plan, lines, count, text, sizeof text);
    json_t *whole =
        json_pack("{s:I, s:I, s:I, s:f, s:f, s:s, s:f, s:b, s:o, s:o, s:s, s:o, s:f, s:b, s:s}", "params",
                  (json_int_t)s->params, "workers", (json_int_t)s->workers, "per_node", (json_int_t)s->per_node,
                  "latency", s->latency, "bandwidth_bytes", s->bandwidth, "link", plan->link, "compute", s->compute,
                  "overlap", s->overlap, "speeds", speeds, "predictions", all, "best", best->name, "best_density",
                  best == lines ? json_null() : json_real(best->speed->density), "best_speedup", best->forecast.speedup,
                  "compress", best->forecast.speedup >= WORTH, "verdict", text);
    return fgio_json_print(whole, JSON_INDENT(2), stdout);
}

int fgp_plan_print(const fgp_plan *plan) {
    static line lines[LINES];
    size_t count = 0;
    int status = predict_all(plan, lines, &count);
    if (status != FGIO_EXIT_OK)
        return status;
    return plan->json ? print_json(plan, lines, count) : print_table(plan, lines, count);
}
