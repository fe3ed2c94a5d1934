/* subgroup.c - a transport that forwards to the parent's, with ranks and tags translated. */
#include "comm/subgroup.h"

#include "base/alloc.h"
#include "base/status.h"

typedef struct subgroup {
    frug_comm *parent;
    int first, stride, tag;
} subgroup;

/* Rank and tag are not translated back: a transport may read them until the message completes. */
static frug_status post(void *ctx, frug_message *m) {
    const subgroup *v = ctx;
    m->peer = v->first + v->stride * m->peer;
    m->tag += v->tag;
    return v->parent->transport.post(v->parent->ctx, m);
}

static frug_status test(void *ctx, frug_message *m) {
    const subgroup *v = ctx;
    return v->parent->transport.test(v->parent->ctx, m);
}

static frug_status wait_event(void *ctx, double seconds) {
    const subgroup *v = ctx;
    return v->parent->transport.wait(v->parent->ctx, seconds);
}

static frug_status exchange(void *ctx, frug_message *messages, size_t n) {
    const subgroup *v = ctx;
    for (size_t i = 0; i < n; i++) {
        if (messages[i].handle) /* posted */
            continue;
        messages[i].peer = v->first + v->stride * messages[i].peer;
        messages[i].tag += v->tag;
    }
    return v->parent->transport.exchange(v->parent->ctx, messages, n);
}

static void abandon(void *ctx, frug_message *m) {
    const subgroup *v = ctx;
    v->parent->transport.abandon(v->parent->ctx, m);
}

frug_status frugi_subgroup_create(frug_comm *parent, int first, int stride, int size, int tag, frug_comm **comm) {
    int distance = parent->rank - first;
    FRUG_FAIL_IF(stride < 1 || distance < 0 || distance % stride || distance / stride >= size, FRUG_ERR_ARG,
                 "comm: rank %d is not in the subgroup of %d ranks from %d with stride %d", parent->rank, size, first,
                 stride);
    subgroup *v = frugi_malloc(sizeof *v);
    FRUG_FAIL_IF(!v, FRUG_ERR_MEMORY, "comm: out of memory");
    *v = (subgroup){.parent = parent, .first = first, .stride = stride, .tag = tag};
    frug_transport t = {.struct_size = sizeof t,
                        .name = parent->transport.name,
                        .post = parent->transport.post ? post : NULL,
                        .test = parent->transport.test ? test : NULL,
                        .wait = parent->transport.wait ? wait_event : NULL,
                        .abandon = parent->transport.abandon ? abandon : NULL,
                        .destroy = frugi_free,
                        .exchange = parent->transport.exchange ? exchange : NULL};
    frug_status status = frug_comm_create(&t, v, distance / stride, size, comm);
    if (status != FRUG_OK) {
        frugi_free(v);
        return status;
    }
    (*comm)->world_rank = parent->world_rank;
    (*comm)->poll_seconds = parent->poll_seconds;
    frugi_subgroup_update_deadline(*comm);
    return FRUG_OK;
}

void frugi_subgroup_update_deadline(frug_comm *comm) {
    comm->deadline = ((subgroup *)comm->ctx)->parent->deadline;
}
