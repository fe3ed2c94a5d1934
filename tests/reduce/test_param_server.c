/* test_param_server.c - parameter servers and their workers as threads: compared with reduce=gather, and with faults.
 */
#include "frugrad/experimental.h"
#include "reduce/server_group.h"

#include "comm/comm.h"
#include "reduce/param_message.h"

#include <math.h>

#define ROWS 16u

/* ---- compared with reduce=gather ----------------------------------------------------- */

typedef struct reference {
    server_fixture *t;
    float *weights[THREAD_WORKERS_MAX];
} reference;

static frug_status run_gather(frug_comm *comm, void *shared) {
    reference *ref = shared;
    server_fixture *t = ref->t;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(t->config, t->layout, 1, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = frug_reducer_apply(r, step, (frug_range){0, t->n}, t->grad[rank][step], RATE / (float)t->workers,
                                    DECAY, ref->weights[rank]);
    frug_reducer_destroy(r);
    return status;
}

static void check_against_gather(server_fixture *t) {
    reference ref = {.t = t};
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < t->workers; i++)
        ref.weights[i] = make_test_gradient(t->layout, 999);
    run_workers(t->workers, run_gather, &ref, 20, member);
    for (int i = 0; i < t->workers; i++) {
        assert_int_equal(member[i].status, FRUG_OK);
        if (memcmp(ref.weights[i], t->weights[t->servers + i], t->n * sizeof(float)) != 0)
            fail_msg("%s, %d servers, %d workers: worker %d differs from a gather", t->config, t->servers, t->workers,
                     i);
        test_free(ref.weights[i]);
    }
}

/* In its range a server has the weights of the workers; elsewhere its weights have not changed. */
static void check_ranges(const server_fixture *t) {
    frug_config *config = NULL;
    char text[256];
    snprintf(text, sizeof text, "%s,servers=%d", t->config, t->servers);
    OK(frug_config_create(text, &config));
    frug_compressor *c = make_compressor(text, t->layout, NULL);
    float *start = make_test_gradient(t->layout, 999);
    assert_true(frugi_server_begin(c, 0) == 0 && frugi_server_begin(c, (uint64_t)t->servers) == t->n);
    for (int i = 0; i < t->servers; i++) {
        uint64_t begin = frugi_server_begin(c, (uint64_t)i), end = frugi_server_begin(c, (uint64_t)i + 1);
        assert_true(begin <= end);
        assert_same_bits(t->weights[i] + begin, t->weights[t->servers] + begin, (end - begin) * sizeof(float));
        assert_same_bits(t->weights[i], start, begin * sizeof(float));
        assert_same_bits(t->weights[i] + end, start + end, (t->n - end) * sizeof(float));
    }
    test_free(start);
    frug_compressor_destroy(c);
    frug_config_destroy(config);
}

static void synchronous_servers_give_the_bits_of_a_gather(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "feedback=plain,residual=f32,value=f32,density=0.2",
                                          "segment=tensor,residual=f32,index=auto",
                                          "segment=tensor,unit=head,density=0.5,min_size=0"};
    static const int workers[] = {1, 2, 3, 5, 8}, servers[] = {1, 3};
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t w = 0; w < COUNT(workers); w++)
            for (size_t s = 0; s < COUNT(servers); s++) {
                thread_worker member[THREAD_WORKERS_MAX];
                server_fixture t = create_fixture(configs[c], z, servers[s], workers[w]);
                run_fixture(&t, 20, -1, member);
                check_ranges(&t);
                check_against_gather(&t);
                free_fixture(&t);
            }
    frug_layout_destroy(z);
}

/* More servers than blocks: some ranges are empty. */
static void servers_may_have_an_empty_range(void **state) {
    (void)state;
    static const char *const configs[] = {"min_size=0", "min_size=0,segment=tensor", "frugrad"};
    frug_layout *small = NULL;
    OK(frug_layout_flat(300, &small));
    for (size_t c = 0; c < COUNT(configs); c++) {
        thread_worker member[THREAD_WORKERS_MAX];
        server_fixture t = create_fixture(configs[c], small, 4, 2);
        run_fixture(&t, 20, -1, member);
        check_ranges(&t);
        check_against_gather(&t);
        free_fixture(&t);
    }
    frug_layout_destroy(small);
}

static void the_rate_of_the_first_worker_is_used(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    thread_worker member[THREAD_WORKERS_MAX];
    server_fixture t = create_fixture("frugrad", z, 2, 3);
    t.fault = OTHER_RATE;
    run_fixture(&t, 20, -1, member);
    check_against_gather(&t);
    free_fixture(&t);
    frug_layout_destroy(z);
}

static void a_repeated_push_is_acknowledged_and_ignored(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    thread_worker member[THREAD_WORKERS_MAX];
    server_fixture t = create_fixture("frugrad", z, 2, 3);
    t.fault = PUSH_TWICE;
    run_fixture(&t, 20, -1, member);
    check_against_gather(&t);
    free_fixture(&t);
    frug_layout_destroy(z);
}

/* ---- asynchronous --------------------------------------------------------------------- */

/* Worker 0 is slow: others are ahead, but not by more than the staleness; no gradient is lost or counted twice. */
static void staleness_is_bounded_and_loses_nothing(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    thread_worker member[THREAD_WORKERS_MAX];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    server_fixture t = create_fixture("staleness=2,feedback=plain,residual=f32", z, 2, 3);
    t.staleness = 2;
    t.all_pushed = &barrier;
    for (int i = 0; i < 3; i++)
        t.residual[i] = test_calloc(t.n, sizeof(float));
    run_fixture(&t, 20, -1, member);
    assert_false(atomic_load(&t.staleness_exceeded));
    assert_true(atomic_load(&t.lead) > 0);
    float *start = make_test_gradient(z, 999);
    frug_compressor *c = make_compressor("servers=2", z, NULL);
    uint64_t middle = frugi_server_begin(c, 1);
    /* Because of the decay the result depends on the order: by at most 1 % per step that follows a gradient. */
    double most = 0;
    for (size_t k = 0; k < t.n; k++) {
        double sum = 0, size = 0;
        for (int i = 0; i < 3; i++) {
            for (size_t step = 0; step < STEPS; step++) {
                sum += (double)t.grad[i][step][k];
                size += fabs((double)t.grad[i][step][k]);
            }
            sum -= (double)t.residual[i][k];
            size += fabs((double)t.residual[i][k]);
        }
        double kept = pow(1 - (double)DECAY, 3 * STEPS), server = (double)t.weights[k < middle ? 0 : 1][k];
        double allowed = (1 - kept) * (double)RATE / 3 * size + 1e-4;
        most = fmax(most, fabs(server - (kept * (double)start[k] - (double)RATE / 3 * sum)) / allowed);
    }
    assert_true(most < 1);
    test_free(start);
    frug_compressor_destroy(c);
    free_fixture(&t);
    pthread_barrier_destroy(&barrier);
    frug_layout_destroy(z);
}

/* With one worker, asynchronous is the same as synchronous. */
static void staleness_of_one_worker_changes_nothing(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    thread_worker member[THREAD_WORKERS_MAX];
    server_fixture a = create_fixture("frugrad", z, 1, 1), b = create_fixture("staleness=3", z, 1, 1);
    run_fixture(&a, 20, -1, member);
    run_fixture(&b, 20, -1, member);
    assert_same_bits(a.weights[1], b.weights[1], a.n * sizeof(float));
    assert_same_bits(b.weights[0], b.weights[1], a.n * sizeof(float));
    free_fixture(&a);
    free_fixture(&b);
    frug_layout_destroy(z);
}

/* ---- faults ----------------------------------------------------------------------------- */

/* The other workers have the bits of the servers. */
static void check_survivors(const server_fixture *t, int except) {
    for (int i = 1; i < t->workers; i++)
        if (i != except)
            assert_same_bits(t->weights[t->servers], t->weights[t->servers + i], t->n * sizeof(float));
    check_ranges(t);
}

static void others_continue_when_a_worker_fails(void **state) {
    (void)state;
    static const struct {
        fault fault;
        frug_status faulty_status;
    } cases[] = {{STOP_SILENTLY, FRUG_OK}, {REJOIN_OLD_EPOCH, FRUG_ERR_REMOTE}, {OTHER_CONFIG, FRUG_ERR_REMOTE}};
    frug_layout *z = make_test_layout(ROWS);
    for (size_t i = 0; i < COUNT(cases); i++) {
        thread_worker member[THREAD_WORKERS_MAX];
        server_fixture t = create_fixture("frugrad", z, 2, 3);
        t.fault = cases[i].fault;
        if (t.fault == STOP_SILENTLY)
            use_turned_clock();
        run_fixture(&t, DEADLINE, 2 + 1, member);
        restore_clock();
        assert_int_equal(member[3].status, cases[i].faulty_status);
        if (cases[i].faulty_status != FRUG_OK && !strstr(member[3].error, "refuses rank 3"))
            fail_msg("case %zu: '%s'", i, member[3].error);
        check_survivors(&t, 1);
        free_fixture(&t);
    }
    frug_layout_destroy(z);
}

static void a_worker_that_rejoins_gets_the_weights(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "segment=tensor"};
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (int servers = 1; servers <= 3; servers++) {
            thread_worker member[THREAD_WORKERS_MAX];
            server_fixture t = create_fixture(configs[c], z, servers, 3);
            t.fault = REJOIN;
            run_fixture(&t, 20, -1, member);
            check_survivors(&t, -1);
            free_fixture(&t);
        }
    frug_layout_destroy(z);
}

static frug_status only_servers_run(frug_comm *comm, void *shared) {
    server_fixture *t = shared;
    return frug_comm_rank(comm) < t->servers ? run_rank(comm, shared) : FRUG_OK;
}

static frug_status only_workers_run(frug_comm *comm, void *shared) {
    server_fixture *t = shared;
    return frug_comm_rank(comm) < t->servers ? FRUG_OK : run_rank(comm, shared);
}

static void both_sides_time_out(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    thread_worker member[THREAD_WORKERS_MAX];
    server_fixture t = create_fixture("frugrad", z, 1, 2);
    run_workers(3, only_servers_run, &t, 0.3, member);
    assert_int_equal(member[0].status, FRUG_ERR_COMM);
    run_workers(3, only_workers_run, &t, 0.3, member);
    assert_int_equal(member[1].status, FRUG_ERR_COMM);
    assert_int_equal(member[2].status, FRUG_ERR_COMM);
    free_fixture(&t);
    frug_layout_destroy(z);
}

/* ---- malformed messages --------------------------------------------------------------------- */

/* Send a request, or invalid bytes, and return the kind of the reply. The tag of the reply depends on the epoch. */
static frug_status send_request(frug_comm *comm, unsigned char *request, uint64_t epoch, uint32_t *kind) {
    unsigned char in[FRUGI_PARAM_MSG_BYTES];
    frugi_param_msg reply;
    frug_message m[2] = {
        {.peer = 0, .tag = frugi_param_tag(FRUGI_TAG_PARAM_REPLY, epoch), .data = in, .bytes = FRUGI_PARAM_MSG_BYTES},
        {.peer = 0, .tag = FRUGI_TAG_PARAM_REQUEST, .sending = 1, .data = request, .bytes = FRUGI_PARAM_MSG_BYTES}};
    frug_status status = frugi_comm_exchange(comm, m, 2);
    if (status == FRUG_OK)
        status = frugi_param_msg_decode(in, &reply);
    *kind = status == FRUG_OK ? reply.kind : 0;
    return status;
}

/* A push or pull with the i-th kind of error, after a valid HELLO. */
static frug_status send_malformed(server_fixture *t, frug_comm *comm, uint64_t i) {
    frug_client *client = NULL;
    unsigned char bytes[FRUGI_PARAM_MSG_BYTES], garbage[100] = {7};
    frugi_param_msg l = {.kind = FRUGI_PARAM_PUSH, .epoch = i, .rank = 2, .count = t->n, .rate = 1};
    uint32_t kind = 0;
    frug_status status = make_client(t, comm, i, &client);
    l.step = frug_client_start(client);
    frug_client_destroy(client);
    if (status != FRUG_OK)
        return status;
    l.bytes = i == 0 ? UINT64_MAX : i == 1 ? 100 : 0;
    l.count = i == 2 ? t->n + 1 : t->n;
    l.kind = i == 3 ? FRUGI_PARAM_PULL : i == 4 ? FRUGI_PARAM_RETRY : FRUGI_PARAM_PUSH;
    l.rate = i == 5 ? NAN : 1;
    frugi_param_msg_encode(&l, bytes);
    if (i == 6)
        bytes[40] ^= 1;
    frug_message frame = {.peer = 0,
                          .tag = frugi_param_tag(FRUGI_TAG_PARAM_FRAME, i),
                          .sending = 1,
                          .data = garbage,
                          .bytes = sizeof garbage};
    if (i == 1)
        status = frugi_comm_post(comm, &frame);
    if (status == FRUG_OK)
        status = send_request(comm, bytes, i, &kind);
    if (i == 1)
        status = frugi_comm_wait(comm, &frame, 1);
    return status != FRUG_OK ? status : kind == FRUGI_PARAM_REFUSED ? FRUG_OK : FRUG_ERR_FORMAT;
}

/* Worker 1 sends only malformed requests; worker 0 leaves after that. */
static frug_status run_malformed(frug_comm *comm, void *shared) {
    server_fixture *t = shared;
    frug_status status = FRUG_OK;
    if (frug_comm_rank(comm) != 2)
        return run_rank(comm, shared);
    for (uint64_t i = 0; i < 7 && status == FRUG_OK; i++)
        status = send_malformed(t, comm, i);
    pthread_barrier_wait(t->all_pushed);
    return status;
}

static void malformed_requests_are_refused_and_others_are_served(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    thread_worker member[THREAD_WORKERS_MAX];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    server_fixture t = create_fixture("frugrad", z, 1, 2);
    t.all_pushed = &barrier;
    run_workers(3, run_malformed, &t, 20, member);
    pthread_barrier_destroy(&barrier);
    assert_workers_ok("workers", member, 3);
    check_ranges(&t);
    free_fixture(&t);
    frug_layout_destroy(z);
}

static void every_flipped_bit_of_a_message_is_detected(void **state) {
    (void)state;
    frugi_param_msg l = {.kind = FRUGI_PARAM_PUSH,
                         .status = -3,
                         .epoch = 5,
                         .step = 1u << 20,
                         .rank = 3,
                         .entries = 9,
                         .begin = 77,
                         .count = 1u << 30,
                         .bytes = 4711,
                         .hash = 42,
                         .rate = 0.5f,
                         .decay = 0.25f},
                    decoded;
    unsigned char bytes[FRUGI_PARAM_MSG_BYTES];
    frugi_param_msg_encode(&l, bytes);
    OK(frugi_param_msg_decode(bytes, &decoded));
    assert_true(decoded.kind == l.kind && decoded.status == l.status && decoded.epoch == l.epoch &&
                decoded.step == l.step);
    assert_true(decoded.rank == l.rank && decoded.entries == l.entries && decoded.begin == l.begin &&
                decoded.count == l.count);
    assert_true(decoded.bytes == l.bytes && decoded.hash == l.hash && decoded.rate == l.rate &&
                decoded.decay == l.decay);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(frugi_param_msg_decode(bytes, &decoded), FRUG_OK);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

/* ---- worked example, invalid use ---------------------------------------------------------------- */

static frug_status run_example(frug_comm *comm, void *shared) {
    float *weight = (float *)shared + frug_comm_rank(comm), grad = frug_comm_rank(comm) == 1 ? 2 : 4;
    frug_layout *one = NULL;
    frug_config *config = NULL;
    frug_client *client = NULL;
    frug_status status = frug_layout_flat(1, &one);
    if (status == FRUG_OK)
        status = frug_config_create("frugrad", &config);
    if (status == FRUG_OK && frug_comm_rank(comm) == 0)
        status = frug_server_run(config, one, NULL, comm, weight);
    else if (status == FRUG_OK) {
        status = frug_client_create(config, one, NULL, comm, 0, weight, &client);
        if (status == FRUG_OK)
            status = frug_client_push(client, 0, &grad, 1, 0);
        if (status == FRUG_OK && frug_client_push(client, 1, &grad, 1, 0) != FRUG_ERR_ARG)
            status = FRUG_ERR_FORMAT; /* a pull must come first */
        if (status == FRUG_OK)
            status = frug_client_pull(client, weight);
        if (status == FRUG_OK && frug_client_pull(client, weight) != FRUG_ERR_ARG)
            status = FRUG_ERR_FORMAT; /* and a push before that */
        if (status == FRUG_OK)
            status = frug_client_leave(client);
        if (status == FRUG_OK && frug_client_leave(client) != FRUG_ERR_REMOTE)
            status = FRUG_ERR_FORMAT;
    }
    frug_client_destroy(client);
    frug_config_destroy(config);
    frug_layout_destroy(one);
    return status;
}

static void the_worked_example_holds(void **state) {
    (void)state;
    float weight[3] = {10, 0, 0};
    thread_worker member[3];
    run_workers(3, run_example, weight, 20, member);
    for (int i = 0; i < 3; i++) {
        if (member[i].status != FRUG_OK)
            fail_msg("rank %d: %s", i, member[i].error);
        assert_true(weight[i] == 7);
    }
}

static void invalid_ranks_and_options_are_refused(void **state) {
    (void)state;
    frug_layout *one = NULL;
    frug_config *config = NULL;
    frug_comm *comm[3];
    frug_client *client = NULL;
    float weight = 0;
    static const struct {
        const char *text;
        int rank;
        frug_status server, client;
    } cases[] = {{"servers=3", 0, FRUG_ERR_CONFIG, FRUG_ERR_CONFIG},
                 {"servers=0", 0, FRUG_ERR_CONFIG, FRUG_ERR_CONFIG},
                 {"staleness=99999999", 0, FRUG_ERR_CONFIG, FRUG_ERR_CONFIG},
                 {"servers=2", 2, FRUG_ERR_ARG, FRUG_ERR_COMM},
                 {"servers=2", 1, FRUG_ERR_COMM, FRUG_ERR_ARG}};
    OK(frug_layout_flat(1, &one));
    OK(frug_comm_threads(3, comm));
    for (size_t i = 0; i < COUNT(cases); i++) {
        OK(frug_config_create(cases[i].text, &config));
        OK(frug_comm_set_timeout(comm[cases[i].rank], 0.05));
        assert_int_equal(frug_server_run(config, one, NULL, comm[cases[i].rank], &weight), cases[i].server);
        assert_int_equal(frug_client_create(config, one, NULL, comm[cases[i].rank], 0, &weight, &client),
                         cases[i].client);
        frug_config_destroy(config);
    }
    for (int i = 0; i < 3; i++)
        frug_comm_destroy(comm[i]);
    frug_layout_destroy(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronous_servers_give_the_bits_of_a_gather),
        cmocka_unit_test(servers_may_have_an_empty_range),
        cmocka_unit_test(a_repeated_push_is_acknowledged_and_ignored),
        cmocka_unit_test(the_rate_of_the_first_worker_is_used),
        cmocka_unit_test(staleness_is_bounded_and_loses_nothing),
        cmocka_unit_test(staleness_of_one_worker_changes_nothing),
        cmocka_unit_test(others_continue_when_a_worker_fails),
        cmocka_unit_test(a_worker_that_rejoins_gets_the_weights),
        cmocka_unit_test(both_sides_time_out),
        cmocka_unit_test(malformed_requests_are_refused_and_others_are_served),
        cmocka_unit_test(every_flipped_bit_of_a_message_is_detected),
        cmocka_unit_test(the_worked_example_holds),
        cmocka_unit_test(invalid_ranks_and_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
