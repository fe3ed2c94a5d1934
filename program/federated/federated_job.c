/* federated_job.c - the job of a federated run as JSON; in what another run differs from it. */
#include "program/federated/federated_job.h"

#include "io/error.h"
#include "io/files.h"
#include "io/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Real numbers have nine digits in status.json. */
#define VALUE_FLAGS (JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9))

char *fgp_federated_job_text(const fgt_solo_options *o, const char *data_name, const char *config) {
    json_t *job = json_pack("{s:s, s:o, s:o, s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I}", "model", o->model, "data",
                            fgio_json_text(data_name), "tokens", fgio_json_text(o->tokens ? o->tokens : ""), "config",
                            config, "optimizer", o->optimizer, "schedule", o->schedule, "rate", o->rate, "rounds",
                            (json_int_t)o->rounds, "local_steps", (json_int_t)o->steps, "batch", (json_int_t)o->batch,
                            "classes", (json_int_t)o->classes, "seed", (json_int_t)o->seed);
    char *text = job ? fgio_json_dump(job, JSON_COMPACT) : NULL;
    json_decref(job);
    return text;
}

int fgp_federated_job_parse(const char *text, fgp_federated_job *job) {
    json_int_t rounds = 0, steps = 0, batch = 0, classes = 0, seed = 0;
    fgt_solo_options *o = &job->training;
    *job = (fgp_federated_job){.json = json_loads(text, 0, NULL)};
    const char *model = json_string_value(json_object_get(job->json, "model"));
    if (model && strcmp(model, "python") == 0)
        return fgio_error("the server trains a model of its own: join with frugrad.federated.Client in Python, and "
                          "with that model");
    if (!job->json ||
        json_unpack(job->json, "{s:s, s:s, s:s, s:s, s:s, s:s, s:F, s:I, s:I, s:I, s:I, s:I}", "model", &o->model,
                    "data", &job->data_name, "tokens", &o->tokens, "config", &job->config, "optimizer", &o->optimizer,
                    "schedule", &o->schedule, "rate", &o->rate, "rounds", &rounds, "local_steps", &steps, "batch",
                    &batch, "classes", &classes, "seed", &seed) != 0)
        return fgio_error("the server's job is not one of 'frugrad serve': install the same release on both sides");
    if (rounds < 1 || rounds > UINT32_MAX || steps < 1 || steps > 1000000000 || batch < 1 || batch > 1 << 20 ||
        classes < 0 || classes > 1 << 16 || seed < 0 || !(o->rate > 0 && o->rate < 1e6))
        return fgio_error("the server's job has numbers out of range");
    o->rounds = (uint64_t)rounds;
    o->steps = (uint64_t)steps;
    o->batch = (uint32_t)batch;
    o->classes = (uint32_t)classes;
    o->seed = (uint64_t)seed;
    o->tokens = o->tokens[0] ? o->tokens : NULL;
    return FGIO_EXIT_OK;
}

void fgp_federated_job_close(fgp_federated_job *job) {
    json_decref(job->json);
    *job = (fgp_federated_job){0};
}

/* Whether a value differs, after a hint that says so. */
static bool differs(const char *directory, const char *key, const json_t *theirs, const json_t *ours) {
    char name[32];
    char *before = theirs ? fgio_json_dump(theirs, VALUE_FLAGS) : NULL, *now = fgio_json_dump(ours, VALUE_FLAGS);
    bool different = before && now && strcmp(before, now) != 0;
    snprintf(name, sizeof name, "%s", key);
    for (char *at = name; (at = strchr(at, '_')) != NULL;)
        *at = '-';
    if (different)
        fgio_hint("the run in %s has %s %s, not %s", directory, name, before, now);
    free(before);
    free(now);
    return different;
}

void fgp_federated_job_hint(const char *directory, const char *job) {
    char path[PATH_MAX];
    const char *key;
    json_t *value, *ours = json_loads(job, 0, NULL);
    bool different = false;
    snprintf(path, sizeof path, "%s/status.json", directory);
    json_t *status = json_load_file(path, 0, NULL), *theirs = json_object_get(status, "job");
    json_object_foreach(ours, key, value) different |= differs(directory, key, json_object_get(theirs, key), value);
    snprintf(path, sizeof path, "%s/weights.safetensors", directory);
    if (different && json_is_true(json_object_get(status, "done")) && fgio_file_exists(path))
        fgio_hint("that run has ended; to go on from its weights: --weights %s --save OTHER", path);
    json_decref(status);
    json_decref(ours);
}
