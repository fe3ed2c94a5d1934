/* test_mpi_comm.c - the MPI transport: invalid communicators, and single messages. */
#include "mpi/mpi_fixture.h"

#include <unistd.h>

#define TAG 20

static frug_status before_init;

static void invalid_communicators_are_refused(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    MPI_Comm pair, inter;
    int rank = job_rank();
    assert_on_all_ranks(before_init == FRUG_ERR_ARG, "before MPI_Init(): %s", frug_status_text(before_init));
    assert_on_all_ranks(frug_comm_mpi(MPI_COMM_NULL, &comm) == FRUG_ERR_ARG && !comm, "MPI_COMM_NULL was accepted");
    assert_on_all_ranks(strstr(frug_last_error(), "MPI_COMM_NULL"), "error message '%s'", frug_last_error());
    assert_on_all_ranks(frug_comm_mpi(MPI_COMM_WORLD, NULL) == FRUG_ERR_ARG, "a NULL result was accepted");
    if (job_size() < 2)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &pair);
    MPI_Intercomm_create(pair, 0, MPI_COMM_WORLD, rank == 0, 7, &inter);
    assert_on_all_ranks(frug_comm_mpi(inter, &comm) == FRUG_ERR_ARG && !comm, "an inter-communicator was accepted");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&pair);
}

static void a_group_has_the_ranks_of_its_communicator(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    MPI_Comm backwards;
    int rank = job_rank(), size = job_size();
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &backwards);
    frug_status status = frug_comm_mpi(backwards, &comm);
    MPI_Comm_free(&backwards); /* the group has a duplicate */
    assert_on_all_ranks(status == FRUG_OK, "%s", frug_last_error());
    assert_on_all_ranks(frug_comm_rank(comm) == size - 1 - rank && frug_comm_size(comm) == size, "rank %d of %d",
                        frug_comm_rank(comm), frug_comm_size(comm));
    assert_on_all_ranks(strcmp(frug_comm_transport(comm), "mpi") == 0, "transport %s", frug_comm_transport(comm));
    int mine = frug_comm_rank(comm), all[64] = {0}, wrong = 0;
    frug_message messages[2 * 64];
    status = frugi_comm_allgather(comm, &mine, sizeof mine, all, messages);
    for (int i = 0; i < size; i++)
        wrong += all[i] != i;
    assert_on_all_ranks(status == FRUG_OK && !wrong, "%d wrong: %s", wrong, frug_last_error());
    frug_comm_destroy(comm);
}

static void ranks_of_a_host_share_its_cores(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    assert_on_all_ranks(status == FRUG_OK, "%s", frug_last_error());
    int threads = comm->transport.threads, sum = 0, size = job_size();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Allreduce(&threads, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    assert_on_all_ranks(threads >= 1 && sum <= (cores > size ? cores : size), "%d threads, together %d", threads, sum);
    frug_comm_destroy(comm);
}

/* Fill a buffer with a pattern that depends on the seed, or check it; returns the number of wrong bytes. */
static size_t fill_or_check(unsigned char *data, size_t bytes, int seed, bool check) {
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char want = (unsigned char)((i * 131 + i / 997 + (size_t)seed * 17) & 255);
        wrong += check && data[i] != want;
        data[i] = want;
    }
    return wrong;
}

static void messages_of_all_lengths_arrive_in_order(void **state) {
    (void)state;
    static const size_t bytes[] = {0, 1, 48, 999, 1000, 1001, 3000, 70000, 5000000};
    enum { N = sizeof bytes / sizeof *bytes };
    frug_comm *comm = NULL;
    frug_message m[2 * N];
    int rank = job_rank(), size = job_size(), next = (rank + 1) % size, before = (rank + size - 1) % size;
    int ours = rank, theirs = -1;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    assert_on_all_ranks(status == FRUG_OK, "%s", frug_last_error());
    MPI_Request own;
    MPI_Irecv(&theirs, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
              &own); /* must not match a message of the group */
    for (size_t i = 0; i < N; i++) {
        m[i] = (frug_message){.peer = before, .tag = TAG, .data = test_malloc(bytes[i] + 1), .bytes = bytes[i]};
        m[N + i] = (frug_message){
            .peer = next, .tag = TAG, .sending = 1, .data = test_malloc(bytes[i] + 1), .bytes = bytes[i]};
        fill_or_check(m[i].data, bytes[i], -1, false);
        fill_or_check(m[N + i].data, bytes[i], rank + (int)i, false);
    }
    status = frugi_comm_exchange(comm, m, 2 * N);
    size_t wrong = 0;
    for (size_t i = 0; i < N; i++) {
        wrong += fill_or_check(m[i].data, bytes[i], before + (int)i, true);
        test_free(m[i].data);
        test_free(m[N + i].data);
    }
    MPI_Send(&ours, 1, MPI_INT, next, TAG, MPI_COMM_WORLD);
    MPI_Wait(&own, MPI_STATUS_IGNORE);
    frug_comm_destroy(comm);
    assert_on_all_ranks(status == FRUG_OK && !wrong && theirs == before, "%zu bytes wrong, %d from rank %d: %s", wrong,
                        theirs, before, frug_last_error());
}

/* Rank 0 sends `sent` bytes to rank 1, which expects `expected`. */
static frug_status exchange_lengths(size_t sent, size_t expected) {
    static unsigned char data[4000];
    frug_comm *comm = NULL;
    if (frug_comm_mpi(MPI_COMM_WORLD, &comm) != FRUG_OK)
        return FRUG_ERR_ARG;
    frug_message m = {.peer = 1 - job_rank(), .tag = TAG, .sending = job_rank() == 0, .data = data};
    m.bytes = m.sending ? sent : expected;
    frug_status status = job_rank() < 2 ? frugi_comm_exchange(comm, &m, 1) : FRUG_OK;
    MPI_Barrier(MPI_COMM_WORLD);
    frug_comm_destroy(comm);
    return status;
}

/* MPICH reports a message that is too long by the error handler of MPI_COMM_WORLD. */
static void a_message_of_unexpected_length_is_an_error(void **state) {
    (void)state;
    static const size_t lengths[][2] = {{100, 101}, {100, 99}, {0, 1}, {1, 0}, {2500, 2400}};
    if (job_size() < 2)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        frug_status status = exchange_lengths(lengths[i][0], lengths[i][1]);
        frug_status want = job_rank() == 1 ? FRUG_ERR_COMM : FRUG_OK;
        assert_on_all_ranks(status == want, "%zu bytes for %zu: %s", lengths[i][0], lengths[i][1],
                            frug_status_text(status));
    }
}

/* A receive that has timed out does not write to its buffer when the message arrives later. */
static void an_abandoned_receive_does_not_write(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    unsigned char data[48];
    int rank = job_rank();
    if (job_size() < 2)
        return;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    assert_on_all_ranks(status == FRUG_OK, "%s", frug_last_error());
    frug_message m = {.peer = 1 - rank, .tag = TAG, .sending = rank == 0, .data = data, .bytes = sizeof data};
    frug_comm_set_timeout(comm, 0.05);
    memset(data, rank == 0 ? 1 : 2, sizeof data);
    if (rank == 1)
        status = frugi_comm_exchange(comm, &m, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        status = frugi_comm_exchange(comm, &m, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    frug_comm_destroy(comm);
    assert_on_all_ranks(status == (rank == 1 ? FRUG_ERR_COMM : FRUG_OK), "%s", frug_status_text(status));
    assert_on_all_ranks(rank != 1 || (data[0] == 2 && data[47] == 2), "the buffer was written to");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_communicators_are_refused),
        cmocka_unit_test(a_group_has_the_ranks_of_its_communicator),
        cmocka_unit_test(ranks_of_a_host_share_its_cores),
        cmocka_unit_test(messages_of_all_lengths_arrive_in_order),
        cmocka_unit_test(a_message_of_unexpected_length_is_an_error),
        cmocka_unit_test(an_abandoned_receive_does_not_write),
    };
    frug_comm *comm = NULL;
    before_init = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    MPI_Init(&argc, &argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed || frug_comm_mpi(MPI_COMM_WORLD, &comm) != FRUG_ERR_ARG;
}
