/*
 * step_options.c - options of one call that depend on the step: dense steps, momentum mask, retention, clipping.
 */
#include "compress/compress_path.h"

#include "base/status.h"
#include "schedule/density.h"

frugi_feedback_step frugi_step_feedback(const struct frug_config *f, uint64_t step, uint64_t total_steps) {
    return frugi_feedback_at(f, frugi_schedule_density(&f->schedule, step, total_steps),
                             frugi_control_sends_all(f, step) != 0);
}

frug_status frugi_call_init(frugi_compress_call *call) {
    FRUG_TRY(frugi_check_range(&call->c->partition, call->begin, call->count));
    call->send_all = frugi_control_sends_all(&call->c->config, call->step);
    call->path = call->send_all ? &frugi_block_path : call->c->path;
    call->feedback = frugi_step_feedback(&call->c->config, call->step, call->c->total_steps);
    call->threads = frugi_threads_for(call->c->threads, call->count);
    call->grad_scale = 1.0f;
    frugi_apply_norm(call);
    return FRUG_OK;
}
