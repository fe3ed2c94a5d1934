/* test_comm.c - the public calls of a group: messages in order, all-gather, timeouts, and invalid arguments. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/status.h"
#include "comm/comm.h"
#include "support/test_clock.h"
#include "support/thread_group.h"

#include <stdio.h>

#define LONG_BYTES 300000u

/* Rank r's byte i of message m. */
static unsigned char byte_of(int r, size_t m, size_t i) {
    return (unsigned char)((size_t)r * 31 + m * 7 + i * 13 + i / 251);
}

static size_t length_of(size_t m) {
    static const size_t lengths[] = {0, 1, 48, 4097, LONG_BYTES, 2};
    return lengths[m];
}

#define MESSAGES 6u

/* Every rank sends its messages to the next one and receives those of the previous one; even ranks send first. */
static frug_status exchange_in_ring(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm), next = (rank + 1) % size;
    int before = (rank + size - 1) % size;
    unsigned char *data = malloc(LONG_BYTES);
    frug_status status = data ? FRUG_OK : FRUG_ERR_MEMORY;
    for (int turn = 0; turn < 2; turn++)
        for (size_t m = 0; m < MESSAGES && status == FRUG_OK; m++) {
            size_t n = length_of(m);
            int sending = turn == rank % 2;
            for (size_t i = 0; i < n; i++)
                data[i] = sending ? byte_of(rank, m, i) : 0;
            status = sending ? frug_comm_send(comm, next, data, n) : frug_comm_receive(comm, before, data, n);
            for (size_t i = 0; i < n && !sending && status == FRUG_OK; i++)
                if (data[i] != byte_of(before, m, i))
                    status = FRUG_ERR_MISMATCH;
        }
    free(data);
    return status;
}

static void messages_arrive_whole_and_in_order(void **state) {
    (void)state;
    for (int size = 2; size <= 4; size += 2) { /* even sizes: of two partners one sends first */
        thread_worker member[THREAD_WORKERS_MAX];
        run_workers(size, exchange_in_ring, NULL, 20, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
    }
}

/* Messages in both directions and with two tags, posted before any of them is waited for; one tag's are received
 * first. */
static frug_status post_both_ways(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), peer = 1 - rank;
    unsigned char sent[4][64], got[4][64];
    frug_message m[8];
    for (int i = 0; i < 4; i++) {
        memset(sent[i], 10 * rank + i, sizeof sent[i]);
        m[i] = (frug_message){.peer = peer, .tag = i / 2, .sending = 1, .data = sent[i], .bytes = sizeof sent[i]};
        FRUG_TRY(frug_comm_post(comm, &m[i]));
    }
    for (int i = 0; i < 4; i++) {
        int from = (i + 2) % 4; /* tag 1 before tag 0 */
        m[4 + i] = (frug_message){.peer = peer, .tag = from / 2, .data = got[from], .bytes = sizeof got[from]};
        FRUG_TRY(frug_comm_post(comm, &m[4 + i]));
    }
    FRUG_TRY(frug_comm_wait(comm, m, 8));
    for (int i = 0; i < 4; i++)
        if (got[i][0] != 10 * peer + i || got[i][63] != 10 * peer + i)
            return FRUG_ERR_MISMATCH;
    return FRUG_OK;
}

static void posted_messages_of_a_tag_are_in_order(void **state) {
    (void)state;
    thread_worker member[THREAD_WORKERS_MAX];
    run_workers(2, post_both_ways, NULL, 20, member);
    for (int i = 0; i < 2; i++)
        assert_int_equal(member[i].status, FRUG_OK);
}

static frug_status gather_rounds(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm);
    double mine[3], all[3 * THREAD_WORKERS_MAX];
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 3; k++)
            mine[k] = 100 * round + 10 * rank + k;
        frug_status status = frug_comm_allgather(comm, mine, sizeof mine, all);
        if (status == FRUG_OK)
            status = frug_comm_allgather(comm, NULL, 0, NULL); /* 0 bytes: a barrier */
        if (status != FRUG_OK)
            return status;
        for (int i = 0; i < size; i++)
            for (int k = 0; k < 3; k++)
                if (all[3 * i + k] != 100 * round + 10 * i + k)
                    return FRUG_ERR_MISMATCH;
    }
    return FRUG_OK;
}

static void gathers_are_in_rank_order(void **state) {
    (void)state;
    for (int size = 1; size <= 5; size++) {
        thread_worker member[THREAD_WORKERS_MAX];
        run_workers(size, gather_rounds, NULL, 20, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
    }
}

/* ---- many ranks ---- */

#define MANY 200

/* What a run does: all-gathers, and a frame from every rank to every other. */
static frug_status gather_and_exchange(frug_comm *comm, void *shared) {
    (void)shared;
    enum { BYTES = 300 };
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm), all[MANY];
    size_t n = 0;
    frug_message *m = calloc(2 * MANY, sizeof *m);
    unsigned char *in = calloc(MANY, BYTES), out[BYTES];
    frug_status status = m && in ? FRUG_OK : FRUG_ERR_MEMORY;
    for (int round = 0; round < 20 && status == FRUG_OK; round++) {
        int mine = 1000 * round + rank;
        status = frug_comm_allgather(comm, &mine, sizeof mine, all);
        for (int i = 0; i < size && status == FRUG_OK; i++)
            status = all[i] == 1000 * round + i ? FRUG_OK : FRUG_ERR_MISMATCH;
    }
    for (size_t i = 0; i < BYTES; i++)
        out[i] = byte_of(rank, 3, i);
    for (int i = 1; i < size && status == FRUG_OK; i++) {
        int peer = (rank + i) % size;
        m[n++] = (frug_message){.peer = peer, .tag = 20, .data = in + (size_t)peer * BYTES, .bytes = BYTES};
        m[n++] = (frug_message){.peer = peer, .tag = 20, .sending = 1, .data = out, .bytes = BYTES};
    }
    if (status == FRUG_OK)
        status = frugi_comm_exchange(comm, m, n);
    for (int p = 0; p < size && status == FRUG_OK; p++)
        for (size_t i = 0; i < BYTES && p != rank; i++)
            if (in[(size_t)p * BYTES + i] != byte_of(p, 3, i))
                status = FRUG_ERR_MISMATCH;
    free(m);
    free(in);
    return status;
}

/* With one lock and a linear search through all messages this took minutes; it takes a fraction of a second. It fails
 * by CTest's timeout. */
static void many_ranks_gather_and_exchange(void **state) {
    (void)state;
    thread_worker *member = test_calloc(MANY, sizeof *member);
    frug_comm *comm[MANY];
    OK(frug_comm_threads(MANY, comm));
    for (int i = 0; i < MANY; i++) {
        member[i] = (thread_worker){.comm = comm[i], .work = gather_and_exchange};
        assert_int_equal(pthread_create(&member[i].thread, NULL, worker_thread_main, &member[i]), 0);
    }
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_join(member[i].thread, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        if (member[i].status != FRUG_OK)
            fail_msg("rank %d: %s", i, member[i].error);
        frug_comm_destroy(comm[i]);
    }
    test_free(member);
}

/* ---- a missing rank ---- */

static frug_status all_but_rank_2(frug_comm *comm, void *shared) {
    int mine = 0, all[THREAD_WORKERS_MAX];
    (void)shared;
    if (frug_comm_rank(comm) != 2)
        return frug_comm_allgather(comm, &mine, sizeof mine, all);
    turned_clock_await(4);
    turned_clock_turn(0.01); /* they no longer poll */
    turned_clock_await(4);   /* and each has begun to wait */
    turned_clock_turn(1.5);
    return FRUG_OK;
}

/* All time out when the clock is turned once: a rank that times out does not restart the deadline of the others, or
 * they would wait for ever. */
static void a_missing_rank_is_named(void **state) {
    (void)state;
    thread_worker member[THREAD_WORKERS_MAX];
    use_turned_clock();
    run_workers(5, all_but_rank_2, NULL, 1, member);
    restore_clock();
    for (int i = 0; i < 5; i++) {
        char want[64];
        snprintf(want, sizeof want, "rank %d received nothing from rank 2 for 1 seconds", i);
        assert_int_equal(member[i].status, i == 2 ? FRUG_OK : FRUG_ERR_COMM);
        if (i != 2 && !strstr(member[i].error, want))
            fail_msg("rank %d: '%s' lacks '%s'", i, member[i].error, want);
    }
}

static frug_status gather_different_lengths(frug_comm *comm, void *shared) {
    char mine[8] = "", all[8 * THREAD_WORKERS_MAX];
    (void)shared;
    return frug_comm_allgather(comm, mine, frug_comm_rank(comm) == 1 ? 8 : 4, all);
}

static void gathers_of_different_lengths_fail(void **state) {
    (void)state;
    thread_worker member[THREAD_WORKERS_MAX];
    run_workers(3, gather_different_lengths, NULL, 20, member);
    for (int i = 0; i < 3; i++)
        assert_int_equal(member[i].status, FRUG_ERR_COMM);
}

static void invalid_arguments_are_refused(void **state) {
    (void)state;
    frug_comm *comm[2];
    char c = 0;
    OK(frug_comm_threads(2, comm));
    assert_int_equal(frug_comm_send(NULL, 1, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_send(comm[0], 0, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_send(comm[0], 2, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_receive(comm[0], -1, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_receive(comm[0], 1, NULL, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_allgather(comm[0], NULL, 1, &c), FRUG_ERR_ARG);
    frug_message bad_peer = {.peer = 2, .data = &c, .bytes = 1},
                 bad_tag = {.peer = 1, .tag = 8, .data = &c, .bytes = 1};
    assert_int_equal(frug_comm_post(comm[0], &bad_peer), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_post(comm[0], &bad_tag), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_wait(NULL, NULL, 0), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_allgather(comm[0], &c, SIZE_MAX / 2 + 1, &c), FRUG_ERR_ARG);
    OK(frug_comm_set_timeout(comm[0], 0.05));
    assert_int_equal(frug_comm_receive(comm[0], 1, &c, 1), FRUG_ERR_COMM); /* no message: timeout */
    assert_non_null(strstr(frug_last_error(), "rank 1"));
    frug_comm_destroy(comm[0]);
    frug_comm_destroy(comm[1]);
}

/* ---- a transport that fails -------------------------------------------------------------- */

static frug_status post_nothing(void *ctx, frug_message *m) {
    (void)m;
    return ctx ? FRUG_ERR_MEMORY : FRUG_OK;
}

static frug_status test_nothing(void *ctx, frug_message *m) {
    (void)ctx;
    (void)m;
    return FRUG_OK;
}

static frug_status wait_fails(void *ctx, double seconds) {
    (void)ctx;
    (void)seconds;
    return frug_set_last_error(FRUG_ERR_DEVICE, "link 7 is down");
}

static void errors_of_a_transport_end_a_wait_and_keep_their_status(void **state) {
    (void)state;
    frug_transport t = {
        .struct_size = sizeof t, .name = "broken", .post = post_nothing, .test = test_nothing, .wait = wait_fails};
    frug_comm *comm = NULL;
    char c = 0;
    double start = frugi_clock();
    OK(frug_comm_create(&t, NULL, 0, 2, &comm)); /* the timeout is 60 seconds */
    assert_int_equal(frug_comm_receive(comm, 1, &c, 1), FRUG_ERR_DEVICE);
    assert_string_equal(frug_last_error(), "link 7 is down");
    frug_comm_destroy(comm);
    OK(frug_comm_create(&t, &c, 0, 2, &comm));
    assert_int_equal(frug_comm_receive(comm, 1, &c, 1), FRUG_ERR_MEMORY);
    assert_non_null(strstr(frug_last_error(), "receive from rank 1 over broken: out of memory"));
    frug_comm_destroy(comm);
    assert_true(frugi_clock() - start < 30);
}

static void threads_of_a_process_share_its_cores(void **state) {
    (void)state;
    enum { RANKS_MAX = 4096 };
    frug_comm *alone = NULL, *member[RANKS_MAX];
    OK(frug_comm_self(&alone));
    OK(frug_comm_threads(RANKS_MAX, member));
    assert_int_equal(alone->transport.threads, frugi_cpu_cores());
    assert_int_equal(member[RANKS_MAX - 1]->transport.threads, 1);
    frug_comm_destroy(alone);
    for (int i = 0; i < RANKS_MAX; i++)
        frug_comm_destroy(member[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posted_messages_of_a_tag_are_in_order),
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(gathers_are_in_rank_order),
        cmocka_unit_test(many_ranks_gather_and_exchange),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(gathers_of_different_lengths_fail),
        cmocka_unit_test(invalid_arguments_are_refused),
        cmocka_unit_test(threads_of_a_process_share_its_cores),
        cmocka_unit_test(errors_of_a_transport_end_a_wait_and_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
