/* test_param_server.c - parameter servers and their workers, as threads: against the gather, and with workers that
 * fail. */
#include "reduce/server_group.h"

#include "comm/comm.h"
#include "reduce/param_message.h"

#include <math.h>

#define ROWS 16u

/* ---- the same as a gather ----------------------------------------------------------- */

typedef struct reference {
    service *t;
    float *weights[CREW_MOST];
} reference;

static frug_status gather(frug_comm *comm, void *shared) {
    reference *ref = shared;
    service *t = ref->t;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = crew_reducer(t->config, t->layout, 1, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = frug_reduce_apply(r, step, 0, t->n, t->grad[rank][step], RATE / (float)t->workers, DECAY,
                                   ref->weights[rank]);
    frug_reducer_destroy(r);
    return status;
}

static void check_against_gather(service *t) {
    reference ref = {.t = t};
    crew_member member[CREW_MOST];
    for (int i = 0; i < t->workers; i++)
        ref.weights[i] = zoo_gradient(t->layout, 999);
    crew(t->workers, gather, &ref, 20, member);
    for (int i = 0; i < t->workers; i++) {
        assert_int_equal(member[i].status, FRUG_OK);
        if (memcmp(ref.weights[i], t->weights[t->servers + i], t->n * sizeof(float)) != 0)
            fail_msg("%s, %d servers, %d workers: worker %d differs from a gather", t->config, t->servers, t->workers,
                     i);
        test_free(ref.weights[i]);
    }
}

/* Each server's own range is what the workers have there; elsewhere it has not been touched. */
static void check_ranges(const service *t) {
    frug_config *config = NULL;
    char text[256];
    snprintf(text, sizeof text, "%s,servers=%d", t->config, t->servers);
    OK(frug_config_create(text, &config));
    frug_compressor *c = make_compressor(text, t->layout, NULL);
    float *start = zoo_gradient(t->layout, 999);
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

static void in_step_servers_give_the_bits_of_a_gather(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "feedback=plain,residual=f32,value=f32,density=0.2",
                                          "segment=tensor,residual=f32,index=auto",
                                          "segment=tensor,unit=head,density=0.5,min_size=0"};
    static const int workers[] = {1, 2, 3, 5, 8}, servers[] = {1, 3};
    frug_layout *z = make_zoo(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t w = 0; w < COUNT(workers); w++)
            for (size_t s = 0; s < COUNT(servers); s++) {
                crew_member member[CREW_MOST];
                service t = make_service(configs[c], z, servers[s], workers[w]);
                run_service(&t, 20, -1, member);
                check_ranges(&t);
                check_against_gather(&t);
                end_service(&t);
            }
    frug_layout_destroy(z);
}

/* More servers than blocks: some own nothing. */
static void servers_without_a_range_do_no_harm(void **state) {
    (void)state;
    static const char *const configs[] = {"min_size=0", "min_size=0,segment=tensor", "frugrad"};
    frug_layout *small = NULL;
    OK(frug_layout_flat(300, &small));
    for (size_t c = 0; c < COUNT(configs); c++) {
        crew_member member[CREW_MOST];
        service t = make_service(configs[c], small, 4, 2);
        run_service(&t, 20, -1, member);
        check_ranges(&t);
        check_against_gather(&t);
        end_service(&t);
    }
    frug_layout_destroy(small);
}

/* Worker 0's rate counts. */
static void a_worker_with_another_rate_changes_nothing(void **state) {
    (void)state;
    frug_layout *z = make_zoo(ROWS);
    crew_member member[CREW_MOST];
    service t = make_service("frugrad", z, 2, 3);
    t.what = OTHER_RATE;
    run_service(&t, 20, -1, member);
    check_against_gather(&t);
    end_service(&t);
    frug_layout_destroy(z);
}

static void a_repeated_push_is_acknowledged_and_ignored(void **state) {
    (void)state;
    frug_layout *z = make_zoo(ROWS);
    crew_member member[CREW_MOST];
    service t = make_service("frugrad", z, 2, 3);
    t.what = PUSH_TWICE;
    run_service(&t, 20, -1, member);
    check_against_gather(&t);
    end_service(&t);
    frug_layout_destroy(z);
}

/* ---- out of step --------------------------------------------------------------------- */

/* Worker 0 is slow: others run ahead, but not by more than the bound; and no gradient is lost or counted twice. */
static void staleness_is_bounded_and_loses_nothing(void **state) {
    (void)state;
    frug_layout *z = make_zoo(ROWS);
    crew_member member[CREW_MOST];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    service t = make_service("staleness=2,feedback=plain,residual=f32", z, 2, 3);
    t.staleness = 2;
    t.all_pushed = &barrier;
    for (int i = 0; i < 3; i++)
        t.left[i] = test_calloc(t.n, sizeof(float));
    run_service(&t, 20, -1, member);
    assert_false(atomic_load(&t.too_far));
    assert_true(atomic_load(&t.lead) > 0);
    float *start = zoo_gradient(z, 999);
    frug_compressor *c = make_compressor("servers=2", z, NULL);
    uint64_t middle = frugi_server_begin(c, 1);
    /* Decay makes the result depend on the order, by at most 1 % of the steps each gradient goes through. */
    double most = 0;
    for (size_t k = 0; k < t.n; k++) {
        double sum = 0, size = 0;
        for (int i = 0; i < 3; i++) {
            for (size_t step = 0; step < STEPS; step++) {
                sum += (double)t.grad[i][step][k];
                size += fabs((double)t.grad[i][step][k]);
            }
            sum -= (double)t.left[i][k];
            size += fabs((double)t.left[i][k]);
        }
        double kept = pow(1 - (double)DECAY, 3 * STEPS), server = (double)t.weights[k < middle ? 0 : 1][k];
        double allowed = (1 - kept) * (double)RATE / 3 * size + 1e-4;
        most = fmax(most, fabs(server - (kept * (double)start[k] - (double)RATE / 3 * sum)) / allowed);
    }
    assert_true(most < 1);
    test_free(start);
    frug_compressor_destroy(c);
    end_service(&t);
    pthread_barrier_destroy(&barrier);
    frug_layout_destroy(z);
}

/* One worker alone has nobody to be out of step with. */
static void staleness_of_one_worker_changes_nothing(void **state) {
    (void)state;
    frug_layout *z = make_zoo(ROWS);
    crew_member member[CREW_MOST];
    service a = make_service("frugrad", z, 1, 1), b = make_service("staleness=3", z, 1, 1);
    run_service(&a, 20, -1, member);
    run_service(&b, 20, -1, member);
    assert_same_bits(a.weights[1], b.weights[1], a.n * sizeof(float));
    assert_same_bits(b.weights[0], b.weights[1], a.n * sizeof(float));
    end_service(&a);
    end_service(&b);
    frug_layout_destroy(z);
}

/* ---- failure ---------------------------------------------------------------------------- */

/* Whoever comes through has the bits of the servers. */
static void check_survivors(const service *t, int but) {
    for (int i = 1; i < t->workers; i++)
        if (i != but)
            assert_same_bits(t->weights[t->servers], t->weights[t->servers + i], t->n * sizeof(float));
    check_ranges(t);
}

static void others_go_on_without_the_one_that_fails(void **state) {
    (void)state;
    static const struct {
        odd_job what;
        frug_status odd;
    } cases[] = {{VANISH, FRUG_OK}, {COME_BACK_OLD, FRUG_ERR_REMOTE}, {OTHER_CONFIG, FRUG_ERR_REMOTE}};
    frug_layout *z = make_zoo(ROWS);
    for (size_t i = 0; i < COUNT(cases); i++) {
        crew_member member[CREW_MOST];
        service t = make_service("frugrad", z, 2, 3);
        t.what = cases[i].what;
        run_service(&t, t.what == VANISH ? 1.5 : 20, 2 + 1, member);
        assert_int_equal(member[3].status, cases[i].odd);
        if (cases[i].odd != FRUG_OK && !strstr(member[3].error, "refuses rank 3"))
            fail_msg("case %zu: '%s'", i, member[3].error);
        check_survivors(&t, 1);
        end_service(&t);
    }
    frug_layout_destroy(z);
}

static void a_worker_that_comes_back_gets_the_weights_and_goes_on(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "segment=tensor"};
    frug_layout *z = make_zoo(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (int servers = 1; servers <= 3; servers++) {
            crew_member member[CREW_MOST];
            service t = make_service(configs[c], z, servers, 3);
            t.what = COME_BACK;
            run_service(&t, 20, -1, member);
            check_survivors(&t, -1);
            end_service(&t);
        }
    frug_layout_destroy(z);
}

static frug_status stay_away(frug_comm *comm, void *shared) {
    service *t = shared;
    return frug_comm_rank(comm) < t->servers ? take_part(comm, shared) : FRUG_OK;
}

static frug_status nobody_serves(frug_comm *comm, void *shared) {
    service *t = shared;
    return frug_comm_rank(comm) < t->servers ? FRUG_OK : take_part(comm, shared);
}

static void silence_is_noticed_on_both_sides(void **state) {
    (void)state;
    frug_layout *z = make_zoo(ROWS);
    crew_member member[CREW_MOST];
    service t = make_service("frugrad", z, 1, 2);
    crew(3, stay_away, &t, 0.3, member);
    assert_int_equal(member[0].status, FRUG_ERR_COMM);
    crew(3, nobody_serves, &t, 0.3, member);
    assert_int_equal(member[1].status, FRUG_ERR_COMM);
    assert_int_equal(member[2].status, FRUG_ERR_COMM);
    end_service(&t);
    frug_layout_destroy(z);
}

/* ---- hostile letters ------------------------------------------------------------------------ */

/* Write a letter, or bytes that are none, and read the answer's kind; its epoch decides the tag. */
static frug_status ask(frug_comm *comm, unsigned char *letter, uint64_t epoch, uint32_t *kind) {
    unsigned char in[FRUGI_PARAM_MSG_BYTES];
    frugi_param_msg answer;
    frug_message m[2] = {
        {.peer = 0, .tag = frugi_param_tag(FRUGI_TAG_PARAM_REPLY, epoch), .data = in, .bytes = FRUGI_PARAM_MSG_BYTES},
        {.peer = 0, .tag = FRUGI_TAG_PARAM_REQUEST, .sending = 1, .data = letter, .bytes = FRUGI_PARAM_MSG_BYTES}};
    frug_status status = frugi_comm_exchange(comm, m, 2);
    if (status == FRUG_OK)
        status = frugi_param_msg_decode(in, &answer);
    *kind = status == FRUG_OK ? answer.kind : 0;
    return status;
}

/* A push or pull that is wrong in the i-th way, after a proper hello. */
static frug_status send_nonsense(service *t, frug_comm *comm, uint64_t i) {
    frug_client *client = NULL;
    unsigned char bytes[FRUGI_PARAM_MSG_BYTES], junk[100] = {7};
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
    frug_message frame = {
        .peer = 0, .tag = frugi_param_tag(FRUGI_TAG_PARAM_FRAME, i), .sending = 1, .data = junk, .bytes = sizeof junk};
    if (i == 1)
        status = frugi_comm_post(comm, &frame);
    if (status == FRUG_OK)
        status = ask(comm, bytes, i, &kind);
    if (i == 1)
        status = frugi_comm_wait(comm, &frame, 1);
    return status != FRUG_OK ? status : kind == FRUGI_PARAM_REFUSED ? FRUG_OK : FRUG_ERR_FORMAT;
}

/* Worker 1 is nothing but nonsense; worker 0 stays until it is done. */
static frug_status pester(frug_comm *comm, void *shared) {
    service *t = shared;
    frug_status status = FRUG_OK;
    if (frug_comm_rank(comm) != 2)
        return take_part(comm, shared);
    for (uint64_t i = 0; i < 7 && status == FRUG_OK; i++)
        status = send_nonsense(t, comm, i);
    pthread_barrier_wait(t->all_pushed);
    return status;
}

static void nonsense_is_refused_and_others_are_served(void **state) {
    (void)state;
    frug_layout *z = make_zoo(ROWS);
    crew_member member[CREW_MOST];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    service t = make_service("frugrad", z, 1, 2);
    t.all_pushed = &barrier;
    crew(3, pester, &t, 20, member);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < 3; i++)
        if (member[i].status != FRUG_OK)
            fail_msg("rank %d: %d %s", i, (int)member[i].status, member[i].error);
    check_ranges(&t);
    end_service(&t);
    frug_layout_destroy(z);
}

static void every_damaged_bit_of_a_letter_is_noticed(void **state) {
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
                 back;
    unsigned char bytes[FRUGI_PARAM_MSG_BYTES];
    frugi_param_msg_encode(&l, bytes);
    OK(frugi_param_msg_decode(bytes, &back));
    assert_true(back.kind == l.kind && back.status == l.status && back.epoch == l.epoch && back.step == l.step);
    assert_true(back.rank == l.rank && back.entries == l.entries && back.begin == l.begin && back.count == l.count);
    assert_true(back.bytes == l.bytes && back.hash == l.hash && back.rate == l.rate && back.decay == l.decay);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(frugi_param_msg_decode(bytes, &back), FRUG_OK);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

/* ---- the example, and misuse ------------------------------------------------------------------- */

static frug_status example(frug_comm *comm, void *shared) {
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

static void two_workers_halve_what_they_push(void **state) {
    (void)state;
    float weight[3] = {10, 0, 0};
    crew_member member[3];
    crew(3, example, weight, 20, member);
    for (int i = 0; i < 3; i++) {
        if (member[i].status != FRUG_OK)
            fail_msg("rank %d: %s", i, member[i].error);
        assert_true(weight[i] == 7);
    }
}

static void ranks_that_do_not_fit_are_refused(void **state) {
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
        OK(frug_comm_set_deadline(comm[cases[i].rank], 0.05));
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
        cmocka_unit_test(in_step_servers_give_the_bits_of_a_gather),
        cmocka_unit_test(servers_without_a_range_do_no_harm),
        cmocka_unit_test(a_repeated_push_is_acknowledged_and_ignored),
        cmocka_unit_test(a_worker_with_another_rate_changes_nothing),
        cmocka_unit_test(staleness_is_bounded_and_loses_nothing),
        cmocka_unit_test(staleness_of_one_worker_changes_nothing),
        cmocka_unit_test(others_go_on_without_the_one_that_fails),
        cmocka_unit_test(a_worker_that_comes_back_gets_the_weights_and_goes_on),
        cmocka_unit_test(silence_is_noticed_on_both_sides),
        cmocka_unit_test(nonsense_is_refused_and_others_are_served),
        cmocka_unit_test(every_damaged_bit_of_a_letter_is_noticed),
        cmocka_unit_test(two_workers_halve_what_they_push),
        cmocka_unit_test(ranks_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
