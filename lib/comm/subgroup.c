/* subgroup.c - a transport that hands everything on to another one, with ranks and tags translated. */
#include "comm/subgroup.h"

#include "base/alloc.h"
#include "base/status.h"

typedef struct view {
    frug_comm *parent;
    int first, stride, tag;
} view;

/* Rank and tag stay translated: a transport may look at them until the message is done. */
static frug_status post(void *ctx, frug_message *m) {
    const view *v = ctx;
    m->peer = v->first + v->stride * m->peer;
    m->tag += v->tag;
    return v->parent->transport.post(v->parent->ctx, m);
}

static frug_status test(void *ctx, frug_message *m) {
    const view *v = ctx;
    return v->parent->transport.test(v->parent->ctx, m);
}

static frug_status wait_for_news(void *ctx, double seconds) {
    const view *v = ctx;
    return v->parent->transport.wait(v->parent->ctx, seconds);
}

static void abandon(void *ctx, frug_message *m) {
    const view *v = ctx;
    v->parent->transport.abandon(v->parent->ctx, m);
}

frug_status frugi_comm_part(frug_comm *parent, int first, int stride, int size, int tag, frug_comm **comm) {
    int away = parent->rank - first;
    FRUG_FAIL_IF(stride < 1 || away < 0 || away % stride || away / stride >= size, FRUG_ERR_ARG,
                 "comm: rank %d is not one of %d from %d on in steps of %d", parent->rank, size, first, stride);
    view *v = frugi_malloc(sizeof *v);
    FRUG_FAIL_IF(!v, FRUG_ERR_MEMORY, "comm: out of memory");
    *v = (view){.parent = parent, .first = first, .stride = stride, .tag = tag};
    frug_transport t = {.struct_size = sizeof t,
                        .name = parent->transport.name,
                        .post = post,
                        .test = test,
                        .wait = parent->transport.wait ? wait_for_news : NULL,
                        .abandon = parent->transport.abandon ? abandon : NULL,
                        .destroy = frugi_free};
    frug_status status = frug_comm_create(&t, v, away / stride, size, comm);
    if (status != FRUG_OK) {
        frugi_free(v);
        return status;
    }
    (*comm)->known_as = parent->known_as;
    (*comm)->eager = parent->eager;
    frugi_comm_part_refresh(*comm);
    return FRUG_OK;
}

void frugi_comm_part_refresh(frug_comm *part) {
    part->deadline = ((view *)part->ctx)->parent->deadline;
}
