/* test_comm.c - bytes between workers by the public calls: pairs in order, everyone to everyone, and what is refused.
 */
#include "crew.h"

#define LONG 300000u

/* Rank r's byte i of message m. */
static unsigned char byte_of(int r, size_t m, size_t i) {
    return (unsigned char)((size_t)r * 31 + m * 7 + i * 13 + i / 251);
}

static size_t length_of(size_t m) {
    static const size_t lengths[] = {0, 1, 48, 4097, LONG, 2};
    return lengths[m];
}

#define MESSAGES 6u

/* Every worker sends its messages to the next one and hears those of the one before; even ranks send first. */
static frug_status pass_round(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm), next = (rank + 1) % size;
    int before = (rank + size - 1) % size;
    unsigned char *data = malloc(LONG);
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
    for (int size = 2; size <= 4; size += 2) { /* even: partners take turns */
        crew_member member[CREW_MOST];
        crew(size, pass_round, NULL, 20, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
    }
}

static frug_status meet(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm);
    double mine[3], all[3 * CREW_MOST];
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 3; k++)
            mine[k] = 100 * round + 10 * rank + k;
        frug_status status = frug_comm_gather(comm, mine, sizeof mine, all);
        if (status == FRUG_OK)
            status = frug_comm_gather(comm, NULL, 0, NULL); /* nothing to say: they only meet */
        if (status != FRUG_OK)
            return status;
        for (int i = 0; i < size; i++)
            for (int k = 0; k < 3; k++)
                if (all[3 * i + k] != 100 * round + 10 * i + k)
                    return FRUG_ERR_MISMATCH;
    }
    return FRUG_OK;
}

static void everyone_hears_everyone_in_rank_order(void **state) {
    (void)state;
    for (int size = 1; size <= 5; size++) {
        crew_member member[CREW_MOST];
        crew(size, meet, NULL, 20, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
    }
}

static void what_cannot_be_sent_is_refused(void **state) {
    (void)state;
    frug_comm *comm[2];
    char c = 0;
    OK(frug_comm_threads(2, comm));
    assert_int_equal(frug_comm_send(NULL, 1, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_send(comm[0], 0, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_send(comm[0], 2, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_receive(comm[0], -1, &c, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_receive(comm[0], 1, NULL, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_gather(comm[0], NULL, 1, &c), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_gather(comm[0], &c, SIZE_MAX / 2 + 1, &c), FRUG_ERR_ARG);
    OK(frug_comm_set_deadline(comm[0], 0.05));
    assert_int_equal(frug_comm_receive(comm[0], 1, &c, 1), FRUG_ERR_COMM); /* nobody sends */
    assert_non_null(strstr(frug_last_error(), "rank 1"));
    frug_comm_destroy(comm[0]);
    frug_comm_destroy(comm[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(everyone_hears_everyone_in_rank_order),
        cmocka_unit_test(what_cannot_be_sent_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
