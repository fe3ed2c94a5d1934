/* memory_fit.c - micro-batches from the memory of a worker, or an error message with suggestions. */
#include "trainer/run/memory_fit.h"

#include "trainer/checkpoint/checkpoint_parts.h"
#include "trainer/base/free_memory.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Workers or stages of this machine. */
static uint64_t local_workers(const fgt_run *run) {
    return (uint64_t)fgt_group_local_size((int)(run->job->stages ? run->job->stages : run->job->workers));
}

/* How many times an estimate is needed here: that of stages is of all together. */
static uint64_t estimates_here(const fgt_run *run) {
    return run->job->stages ? 1 : local_workers(run);
}

/* Of all stages of this machine. */
static uint64_t samples_sum(const fgt_run *run, const fgt_memory_need *need) {
    return local_workers(run) * need->samples;
}

/* Of all workers of this machine. */
static uint64_t machine_sum(const fgt_run *run, const fgt_memory_need *need) {
    return estimates_here(run) * fgt_memory_need_sum(need) + samples_sum(run, need);
}

/* For all workers of this machine; workers of an MPI job each have a process limit too. */
static uint64_t available_memory(uint64_t workers) {
    uint64_t shared = fgt_free_memory_machine(), own = fgt_free_memory_process();
    if (own != UINT64_MAX && fgt_group_is_joined())
        own = own < UINT64_MAX / workers ? own * workers : UINT64_MAX;
    return own < shared ? own : shared;
}

/* ---- of a checkpoint ---- */

static bool find_newest(const char *path, char *file, size_t cap) {
    struct stat st;
    fgt_checkpoint_entry *entry = NULL;
    size_t count = 0, first = 0;
    if (stat(path, &st) != 0)
        return false;
    if (!S_ISDIR(st.st_mode))
        return snprintf(file, cap, "%s", path) < (int)cap;
    bool found = fgt_checkpoint_list(path, &entry, &count) == FGIO_EXIT_OK;
    while (found && first < count && !entry[first].readable)
        first++;
    found = found && first < count && fgt_checkpoint_name(path, entry[first].step, file, cap);
    free(entry);
    return found;
}

/* Only the first process needs the file; its errors are reported when it is opened for use. */
void fgt_memory_recall_accumulate(fgt_run *run) {
    char path[PATH_MAX];
    fgio_tensor_file file;
    if (!run->job->resume || run->job->accumulate || run->quality || fgt_group_rank() != 0)
        return;
    fgio_errors_defer();
    if (find_newest(run->job->resume, path, sizeof path) && fgio_tensor_file_open(path, &file) == FGIO_EXIT_OK) {
        const char *text = json_string_value(json_object_get(file.head.metadata, "accumulate"));
        unsigned long number =
            text ? strtoul(text, NULL, 10) : 1; /* older ones have no such key, and had one micro-batch */
        run->report->accumulate_from = FGT_ACCUMULATE_RESUMED;
        run->accumulate = number >= 1 && number <= run->batch ? (uint32_t)number : 1;
        fgio_tensor_file_close(&file);
    }
    fgio_errors_flush(0);
}

/* ---- choosing ---- */

int fgt_memory_choose_accumulate(fgt_run *run) {
    fgt_report *r = run->report;
    fgt_keep keep = fgt_run_keep(run);
    uint64_t workers = local_workers(run);
    fgt_memory_need need = {0};
    /* The choice must not depend on the number of threads, because it changes the bits: estimate for one thread. */
    fgt_job one_thread_job = *run->job;
    one_thread_job.threads = 1;
    fgt_run one_thread_run = *run;
    one_thread_run.job = &one_thread_job;
    r->memory_free = run->job->memory_bytes ? run->job->memory_bytes : available_memory(workers);
    int status = fgt_memory_estimate(&one_thread_run, 1, keep, &need);
    r->activation_uncut = need.activations * estimates_here(run) / workers;
    if (status == FGIO_EXIT_OK && run->job->recompute && need.blocks == 0)
        return fgio_usage_error("--recompute: %s has no blocks to recompute; only transformers and residual networks "
                                "have them",
                                run->model.text);
    if (status != FGIO_EXIT_OK || r->accumulate_from == FGT_ACCUMULATE_RESUMED)
        return status;
    if (run->job->accumulate > run->batch)
        return fgio_usage_error(
            "--accumulate %u: a batch of %u samples cannot be split into more than %u micro-batches",
            run->job->accumulate, run->batch, run->batch);
    if (run->job->accumulate) {
        r->accumulate_from = FGT_ACCUMULATE_ASKED;
        run->accumulate = run->job->accumulate;
        return FGIO_EXIT_OK;
    }
    uint32_t first = run->job->stages ? 2 * run->job->stages : 1; /* stages wait for each other a third of the time */
    for (uint32_t n = first < run->batch ? first : run->batch; n <= run->batch && status == FGIO_EXIT_OK; n++) {
        if (run->batch % n && n != first)
            continue;
        status = fgt_memory_estimate(&one_thread_run, n, keep, &need);
        run->accumulate = n;
        if (estimates_here(run) * need.activations <= r->memory_free / 2 &&
            machine_sum(&one_thread_run, &need) <= r->memory_free)
            break;
    }
    r->accumulate_from = run->accumulate > first ? FGT_ACCUMULATE_CHOSEN
                         : first > 1             ? FGT_ACCUMULATE_ASKED
                                                 : FGT_ACCUMULATE_ONE;
    return status;
}

/* ---- refusing ---- */

static const char *size_text(uint64_t bytes, char dst[32]) {
    return fgio_bytes_text(bytes, dst, 32);
}

/* Suggests options with their memory, each with the smallest micro-batches. samples: for --stage-feedback. */
static void suggest_fixes(const fgt_run *run, uint64_t workers, uint64_t samples, uint64_t all) {
    const bool elsewhere = workers < run->job->stages; /* there are stages on other machines */
    const char *smaller = elsewhere          ? "more --stages on other machines or a smaller model take less"
                          : workers == 1     ? "a smaller model takes less"
                          : run->job->stages ? "fewer --stages or a smaller model take less"
                                             : "fewer --workers or a smaller model take less";
    char a[32], b[32];
    fgt_memory_need few = {0}, most = {0};
    fgt_keep keep = fgt_run_keep(run);
    bool blocks = keep == FGT_KEEP_ALL && fgt_memory_estimate(run, run->batch, FGT_KEEP_BLOCKS, &few) == FGIO_EXIT_OK;
    if (samples > all / 2)
        fgio_hint("without --stage-feedback it would take about %s", size_text(all - samples, a));
    else if (fgt_memory_estimate(run, run->batch, keep, &most) == FGIO_EXIT_OK && machine_sum(run, &most) < all)
        fgio_hint("--accumulate %u would take about %s%s%s; %s", run->batch, size_text(machine_sum(run, &most), a),
                  blocks ? ", with --recompute " : "", blocks ? size_text(machine_sum(run, &few), b) : "", smaller);
    else if (blocks && fgt_memory_need_sum(&few) < fgt_memory_need_sum(&most))
        fgio_hint("--recompute would take about %s; %s", size_text(machine_sum(run, &few), a), smaller);
    else
        fgio_hint("%s", smaller);
    fgio_hint("--memory %lluM starts the run anyway", (unsigned long long)(all / 1000000 + 1));
}

/* Who takes the memory that is listed after it. */
static const char *owners_text(const fgt_run *run, uint64_t workers, char dst[64]) {
    if (workers < run->job->stages)
        snprintf(dst, 64, "%llu of %u stages take at most", (unsigned long long)workers, run->job->stages);
    else if (run->job->stages)
        snprintf(dst, 64, "%u stages together take", run->job->stages);
    else
        snprintf(dst, 64, "each of %llu worker%s here takes", (unsigned long long)workers, workers == 1 ? "" : "s");
    return dst;
}

static int does_not_fit(const fgt_run *run, const fgt_memory_need *n, uint64_t workers, uint64_t all) {
    char owners[64], need[32], have[32], weights[32], gradients[32], library[32], activations[32], batch[32],
        samples[32];
    fgio_error("%s would take about %s of memory, but %s %s: %s weights %s, gradients %s, "
               "optimizer, residual and exchange %s, activations %s (micro-batches of %u), batch and program %s%s%s",
               run->model.text, size_text(all, need), size_text(run->report->memory_free, have),
               run->job->memory_bytes ? "is what --memory allows" : "is free", owners_text(run, workers, owners),
               size_text(n->weights, weights), size_text(n->gradients, gradients), size_text(n->library, library),
               size_text(n->activations, activations), (run->batch + run->accumulate - 1) / run->accumulate,
               size_text(n->batch, batch), n->samples ? ", and each stage for --stage-feedback " : "",
               n->samples ? size_text(n->samples, samples) : "");
    suggest_fixes(run, workers, samples_sum(run, n), all);
    return FGIO_EXIT_FAIL;
}

int fgt_memory_agree_accumulate(fgt_run *run) {
    int size = fgt_group_size(1);
    uint64_t mine[2] = {run->accumulate, (uint64_t)run->report->accumulate_from}, workers = local_workers(run);
    uint64_t(*all)[2] = calloc((size_t)size, sizeof *all);
    if (!all || fgt_group_gather(mine, sizeof mine, all) != FGIO_EXIT_OK) {
        free(all);
        return fgio_error("the workers cannot agree on --accumulate");
    }
    for (int i = 0; i < size && all[0][1] != FGT_ACCUMULATE_RESUMED; i++)
        run->accumulate = all[i][0] > run->accumulate ? (uint32_t)all[i][0] : run->accumulate;
    if (all[0][1] == FGT_ACCUMULATE_RESUMED)
        run->accumulate = (uint32_t)all[0][0];
    run->report->accumulate_from = (fgt_accumulate_from)all[0][1];
    if (run->accumulate > 1 && run->report->accumulate_from == FGT_ACCUMULATE_ONE)
        run->report->accumulate_from = FGT_ACCUMULATE_CHOSEN; /* by a process with less memory */
    free(all);
    fgt_memory_need need;
    int status = fgt_memory_estimate(run, run->accumulate, fgt_run_keep(run), &need);
    uint64_t sum = machine_sum(run, &need);
    return status == FGIO_EXIT_OK && sum > run->report->memory_free ? does_not_fit(run, &need, workers, sum) : status;
}

int fgt_memory_check_forward(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                             uint64_t memory) {
    fgt_model_size size;
    char need[32], have[32], weights[32], activations[32];
    int status = fgt_model_measure(model, info, options, &size);
    uint64_t sum = size.weights + size.activations, most = memory ? memory : available_memory(1);
    if (status != FGIO_EXIT_OK || sum <= most)
        return status;
    fgio_error("%s would take about %s of memory, but %s is %s: weights %s, activations %s", model->text,
               size_text(sum, need), size_text(most, have), memory ? "what --memory allows" : "free",
               size_text(size.weights, weights), size_text(size.activations, activations));
    fgio_hint("a smaller model takes less; --memory %lluM starts anyway", (unsigned long long)(sum / 1000000 + 1));
    return FGIO_EXIT_FAIL;
}
