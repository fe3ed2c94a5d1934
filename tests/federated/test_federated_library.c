/*
 * test_federated_library.c - the public interface of federated training: a run with one client, and what is refused,
 * without a word on stderr and without leaks.
 */
#define _GNU_SOURCE /* nftw */
#include "support/assertions.h"
#include "support/stderr_capture.h"
#include "support/temp_tree.h"

#include "frugrad/federated.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N   3000u
#define JOB "{\"config\":\"density=0.1,feedback=plain,min_size=1\"}"

/** A directory with the key and the list of one client, and options for both sides. */
typedef struct scene {
    char directory[64], key[80], list[80], state[80], run[80], address[32];
    frug_layout *layout;
    float weights[N];
    frug_federated_server_options server;
    frug_federated_client_options client;
    int rounds, lines;
} scene;

static void count_line(void *ctx, const char *line) {
    (void)line;
    ((scene *)ctx)->lines++;
}

static void evaluate(void *ctx, frug_federated_round *round, const float *weights, uint64_t count) {
    scene *s = ctx;
    assert_int_equal(round->round, s->rounds);
    assert_int_equal(round->updates, 1);
    assert_int_equal(count, N);
    assert_true(isfinite(weights[0]));
    round->eval_loss = round->eval_accuracy = 0.5;
    s->rounds++;
}

static int open_scene(void **state) {
    scene *s = calloc(1, sizeof *s);
    strcpy(s->directory, "/tmp/frugrad-test-XXXXXX");
    assert_non_null(mkdtemp(s->directory));
    snprintf(s->key, sizeof s->key, "%s/key", s->directory);
    snprintf(s->list, sizeof s->list, "%s/key.pub", s->directory); /* its line is a list of one */
    snprintf(s->state, sizeof s->state, "%s/state", s->directory);
    snprintf(s->run, sizeof s->run, "%s/run", s->directory);
    assert_int_equal(frug_federated_keygen(s->key, "alice"), FRUG_OK);
    assert_int_equal(frug_layout_flat(N, &s->layout), FRUG_OK);
    s->server = (frug_federated_server_options)FRUG_FEDERATED_SERVER_OPTIONS_INIT;
    s->server.listen = "127.0.0.1:0";
    s->server.clients = s->list;
    s->server.directory = s->run;
    s->server.layout = s->layout;
    s->server.weights = s->weights;
    s->server.job = JOB;
    s->server.rounds = 2;
    s->server.linger = 5;
    s->server.ctx = s;
    s->server.log = count_line;
    s->server.round = evaluate;
    s->client = (frug_federated_client_options)FRUG_FEDERATED_CLIENT_OPTIONS_INIT;
    s->client.key = s->key;
    s->client.directory = s->state;
    s->client.patience = 20;
    *state = s;
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    temp_tree_remove(s->directory);
    frug_layout_destroy(s->layout);
    free(s);
    return 0;
}

static void *run_server(void *server) {
    assert_int_equal(frug_federated_server_run(server), FRUG_OK);
    return NULL;
}

static void train(scene *s, frug_federated_client *client) {
    uint64_t round = 0;
    int more = 1, counted;
    assert_int_equal(frug_federated_client_join(client, s->layout, 10), FRUG_OK);
    for (unsigned i = 0; more; i++) {
        assert_int_equal(frug_federated_client_pull(client, s->weights, &round, &more), FRUG_OK);
        assert_int_equal(round, i);
        for (unsigned k = 0; k < N && more; k++)
            s->weights[k] += 1;
        if (more)
            assert_int_equal(frug_federated_client_push(client, s->weights, 0.25, &counted), FRUG_OK);
        assert_int_equal(counted, 1);
    }
}

static void one_client_runs_to_the_end(void **state) {
    scene *s = *state;
    frug_federated_server *server;
    frug_federated_client *client;
    pthread_t thread;
    float result[N];
    uint64_t round, sent, received;
    assert_int_equal(frug_federated_server_create(&s->server, &server), FRUG_OK);
    assert_int_equal(pthread_create(&thread, NULL, run_server, server), 0);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%d", frug_federated_server_port(server));
    s->client.server = s->address;
    s->client.server_key = frug_federated_server_key(server);
    assert_int_equal(frug_federated_client_open(&s->client, &client), FRUG_OK);
    assert_string_equal(frug_federated_client_job(client), JOB);
    assert_int_equal(frug_federated_client_rounds(client), 2);
    train(s, client);
    frug_federated_client_traffic(client, &sent, &received);
    assert_true(sent > 0 && received > 4 * N);
    frug_federated_client_close(client);
    pthread_join(thread, NULL);
    assert_true(frug_federated_server_is_done(server));
    frug_federated_server_weights(server, result, &round);
    assert_int_equal(round, 2);
    assert_memory_equal(result, s->weights, sizeof result);
    assert_int_equal(s->rounds, 2);
    assert_true(s->lines > 0);
    frug_federated_server_destroy(server);
}

static void assert_server_refused(const frug_federated_server_options *options, const char *text) {
    frug_federated_server *server;
    assert_int_equal(frug_federated_server_create(options, &server), FRUG_ERR_ARG);
    if (!strstr(frug_last_error(), text))
        fail_msg("'%s' is not in '%s'", text, frug_last_error());
}

static void wrong_options_are_refused(void **state) {
    scene *s = *state;
    stderr_capture capture;
    frug_federated_server_options o = s->server;
    stderr_capture_begin(&capture);
    o.robust = "magic";
    assert_server_refused(&o, "expected mean, clip or trim");
    o = s->server;
    o.job = "{}";
    assert_server_refused(&o, "no JSON object with a \"config\"");
    o.job = NULL;
    assert_server_refused(&o, "the option job is missing");
    o = (frug_federated_server_options)FRUG_FEDERATED_SERVER_OPTIONS_INIT;
    assert_server_refused(&o, "the option clients is missing");
    assert_server_refused(NULL, "options: NULL");
    o = s->server;
    o.rounds = 0;
    assert_server_refused(&o, "rounds: expected 1 to");
    o = s->server;
    o.clients = "/nowhere";
    assert_server_refused(&o, "cannot be read");
    o = s->server;
    o.directory = "/dev/null/run";
    assert_server_refused(&o, "cannot be made");
    assert_string_equal(stderr_capture_end(&capture), "");
}

static int is_stopped(void *ctx) {
    (void)ctx;
    return 1;
}

static void clients_without_a_server_give_up(void **state) {
    scene *s = *state;
    frug_federated_client *client;
    s->client.server = "127.0.0.1:1";
    s->client.server_key = s->list;
    s->client.is_stopped = is_stopped;
    assert_int_equal(frug_federated_client_open(&s->client, &client), FRUG_ERR_COMM);
    assert_string_equal(frug_last_error(), "stopped");
    s->client.key = "/nowhere";
    assert_int_equal(frug_federated_client_open(&s->client, &client), FRUG_ERR_ARG);
    s->client.key = NULL;
    assert_int_equal(frug_federated_client_open(&s->client, &client), FRUG_ERR_ARG);
    assert_string_equal(frug_last_error(), "the option key is missing");
    assert_int_equal(frug_federated_keygen(s->key, "alice"), FRUG_ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_client_runs_to_the_end, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(wrong_options_are_refused, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(clients_without_a_server_give_up, open_scene, close_scene),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
