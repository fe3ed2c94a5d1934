/*
 * test_federated_server.c - a server in a thread and clients in the test: who is let in, what is refused, transfers
 * that break off, a full disk, slow peers, a server that starts again, and two on one directory.
 */
#define _GNU_SOURCE /* nftw */
#include "support/assertions.h"
#include "support/federated_wire.h"
#include "support/temp_tree.h"

#include "base/clock.h"
#include "codec/frame.h"
#include "federated/client.h"
#include "federated/server_internal.h"
#include "io/files.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define N      4000u
#define CONFIG "density=0.05,feedback=plain,residual=f32,min_size=1"
#define JOB    "{\"config\":\"" CONFIG "\"}"

/* Seconds that the clock is ahead: deadlines pass without waiting. */
static _Atomic double ahead;

static double read_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec + ahead;
}

static void pass_seconds(double seconds) {
    ahead = ahead + seconds;
    usleep(500000); /* the server looks at deadlines some times a second */
}

/** A server, its directory, and the keys of three clients, of which two are listed. */
typedef struct scene {
    char directory[64], clients[128], address[32];
    fgf_key *server_key, *key[3];
    frug_layout *layout;
    float weights[N];
    fgf_round_rule rule;
    fgf_server_options options;
    fgf_server *server;
    pthread_t thread;
} scene;

static void write_list(scene *s, int count) {
    char text[512] = "# clients\n", key[FGF_PUBLIC_TEXT];
    for (int i = 0; i < count; i++) {
        fgf_public_key public = fgf_key_public(s->key[i]);
        sprintf(text + strlen(text), "%s client-%d\n", fgf_public_text(&public, key), i);
    }
    assert_int_equal(fgio_file_write(s->clients, text, strlen(text)), 0);
}

static void *run_server(void *arg) {
    fgio_reason why;
    assert_int_equal(fgf_server_run(((scene *)arg)->server, &why), 0);
    return NULL;
}

static void start_server(scene *s) {
    fgio_reason why = {""};
    s->options = (fgf_server_options){.listen = "127.0.0.1:0",
                                      .key = s->server_key,
                                      .clients_file = s->clients,
                                      .state = {.directory = s->directory,
                                                .layout = s->layout,
                                                .weights = s->weights,
                                                .optimizer = "average",
                                                .config = CONFIG,
                                                .job = JOB,
                                                .rounds = 3,
                                                .sum = {.robust = FGF_ROBUST_CLIP}},
                                      .rule = s->rule,
                                      .threads = 2,
                                      .connections_max = 100,
                                      .linger = 0.1};
    if (fgf_server_create(&s->options, &s->server, &why) != 0)
        fail_msg("%s", why.text);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%u", fgf_server_port(s->server));
    assert_int_equal(pthread_create(&s->thread, NULL, run_server, s), 0);
}

static void stop_server(scene *s) {
    fgf_server_stop(s->server);
    pthread_join(s->thread, NULL);
    fgf_server_destroy(s->server);
    s->server = NULL;
}

static int open_scene(void **state) {
    scene *s = calloc(1, sizeof *s);
    strcpy(s->directory, "/tmp/frugrad-test-XXXXXX");
    assert_non_null(mkdtemp(s->directory));
    snprintf(s->clients, sizeof s->clients, "%s/clients.txt", s->directory);
    s->server_key = fgf_key_generate();
    for (int i = 0; i < 3; i++)
        s->key[i] = fgf_key_generate();
    assert_int_equal(frug_layout_flat(N, &s->layout), FRUG_OK);
    for (unsigned i = 0; i < N; i++)
        s->weights[i] = (float)i / N;
    write_list(s, 2);
    s->rule = (fgf_round_rule){.rounds = 3, .quorum = 2, .deadline = 1000, .stale_max = 0};
    start_server(s);
    *state = s;
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    if (s->server)
        stop_server(s);
    for (int i = 0; i < 3; i++)
        fgf_key_destroy(s->key[i]);
    fgf_key_destroy(s->server_key);
    frug_layout_destroy(s->layout);
    temp_tree_remove(s->directory);
    free(s);
    return 0;
}

/* ---- clients ---- */

static fgf_client_options client_options(scene *s, int i, char *directory) {
    sprintf(directory, "%s/client-%d", s->directory, i);
    return (fgf_client_options){.server = s->address,
                                .key = s->key[i],
                                .server_key = fgf_key_public(s->server_key),
                                .directory = directory,
                                .patience = 20};
}

/** One client as a thread: it changes weights by a rule of the round and its number. */
typedef struct trainee {
    scene *s;
    int number, rounds;
    bool leaves; /* after its rounds; otherwise it stays to the end of the run */
    float last[N];
} trainee;

static void change(float *w, int number, uint64_t round) {
    for (unsigned i = 0; i < N; i++)
        w[i] -= (float)((i * 7919u + (unsigned)number * 31u + (unsigned)round * 17u) % 101) * 1e-3f;
}

static void *train(void *arg) {
    trainee *t = arg;
    char directory[96];
    fgf_client_options options = client_options(t->s, t->number, directory);
    fgf_client *client = NULL;
    fgio_reason why = {""};
    uint64_t round;
    if (fgf_client_open(&options, &client, &why) != 0 || fgf_client_join(client, t->s->layout, 10, &why) != 0)
        fail_msg("%s", why.text);
    for (int done = 0; !(t->leaves && done == t->rounds); done++) {
        int more = fgf_client_pull(client, t->last, &round, &why);
        assert_true(more >= 0);
        if (more == 0)
            break;
        change(t->last, t->number, round);
        assert_int_equal(fgf_client_push(client, t->last, 1, &why), 1);
    }
    fgf_client_close(client);
    return NULL;
}

static void train_two(scene *s, int rounds, bool leaves, trainee *a, trainee *b) {
    pthread_t other;
    *a = (trainee){.s = s, .number = 0, .rounds = rounds, .leaves = leaves};
    *b = (trainee){.s = s, .number = 1, .rounds = rounds, .leaves = leaves};
    assert_int_equal(pthread_create(&other, NULL, train, b), 0);
    train(a);
    pthread_join(other, NULL);
}

static void two_clients_and_the_server_end_with_the_same_weights(void **state) {
    scene *s = *state;
    trainee *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    uint64_t round;
    train_two(s, 3, false, a, b);
    pthread_join(s->thread, NULL);
    const float *weights = fgf_server_weights(s->server, &round);
    assert_int_equal(round, 3);
    assert_true(fgf_server_is_done(s->server));
    assert_memory_equal(a->last, weights, sizeof a->last);
    assert_memory_equal(b->last, weights, sizeof b->last);
    assert_true(memcmp(weights, s->weights, sizeof s->weights) != 0);
    char *status = fgf_server_status(s->server);
    assert_non_null(strstr(status, "\"round\":3"));
    free(status);
    fgf_server_destroy(s->server);
    s->server = NULL;
    free(a);
    free(b);
}

/* The status has all rounds, in order, with their two updates. */
static void assert_rounds_of_status(fgf_server *server, size_t count) {
    json_t *status = NULL, *history = NULL;
    for (int i = 0; i < 500 && json_array_size(history) != count; i++) { /* the status is at most a second old */
        char *text = fgf_server_status(server);
        json_decref(status);
        status = json_loads(text, 0, NULL);
        history = json_object_get(status, "history");
        free(text);
        usleep(20000);
    }
    assert_int_equal(json_array_size(history), count);
    for (size_t i = 0; i < count; i++) {
        const json_t *round = json_array_get(history, i);
        assert_int_equal(json_integer_value(json_object_get(round, "round")), i);
        assert_int_equal(json_integer_value(json_object_get(round, "updates")), 2);
    }
    json_decref(status);
}

static void a_server_that_starts_again_gives_the_same_bits_and_has_its_history(void **state) {
    scene *s = *state, *other;
    trainee *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    float straight[N];
    uint64_t round;
    train_two(s, 3, false, a, b);
    memcpy(straight, a->last, sizeof straight);
    open_scene((void **)&other);
    for (int i = 0; i < 3; i++) { /* the same clients: sums are in the order of keys */
        fgf_key_destroy(other->key[i]);
        other->key[i] = s->key[i];
        s->key[i] = fgf_key_generate();
    }
    write_list(other, 2);
    stop_server(other);
    for (int i = 0; i < 3; i++) {
        start_server(other);
        train_two(other, 1, true, a, b);
        stop_server(other);
    }
    start_server(other);
    assert_rounds_of_status(other->server, 3);
    const float *weights = fgf_server_weights(other->server, &round);
    assert_int_equal(round, 3);
    assert_memory_equal(weights, straight, sizeof straight);
    pthread_join(other->thread, NULL);
    fgf_server_destroy(other->server);
    other->server = NULL;
    close_scene((void **)&other);
    pthread_join(s->thread, NULL);
    fgf_server_destroy(s->server);
    s->server = NULL;
    free(a);
    free(b);
}

static int open_as(scene *s, const fgf_key *key, fgf_public_key server, fgio_reason *why) {
    char directory[96];
    fgf_client *client = NULL;
    fgf_client_options options = client_options(s, 0, directory);
    options.key = key;
    options.server_key = server;
    options.patience = 20;
    int status = fgf_client_open(&options, &client, why);
    fgf_client_close(client);
    return status;
}

static void only_listed_keys_are_let_in_and_only_the_pinned_server_is_trusted(void **state) {
    scene *s = *state;
    fgio_reason why = {""};
    fgf_public_key server = fgf_key_public(s->server_key);
    assert_int_equal(open_as(s, s->key[0], server, &why), 0);
    assert_int_equal(open_as(s, s->key[2], server, &why), -1);
    assert_non_null(strstr(why.text, "ask its operator to add the line of your .pub file"));
    assert_int_equal(open_as(s, s->key[0], fgf_key_public(s->key[1]), &why), -1);
    assert_non_null(strstr(why.text, "another key than --server says"));
}

static void a_revoked_key_is_let_go_and_not_let_in_again(void **state) {
    scene *s = *state;
    char directory[96];
    fgf_client *client = NULL;
    fgf_client_options options = client_options(s, 1, directory);
    fgio_reason why = {""};
    float weights[N];
    uint64_t round;
    assert_int_equal(fgf_client_open(&options, &client, &why), 0);
    assert_int_equal(fgf_client_join(client, s->layout, 10, &why), 0);
    assert_int_equal(fgf_client_pull(client, weights, &round, &why), 1);
    write_list(s, 1);
    change(weights, 1, 0);
    int result = 1;
    for (int i = 0; i < 100 && result == 1; i++) { /* the list is read again some times a second */
        usleep(50000);
        result = open_as(s, s->key[1], fgf_key_public(s->server_key), &why) == 0 ? 1 : 0;
    }
    assert_int_equal(result, 0);
    assert_int_equal(fgf_client_push(client, weights, 1, &why), -1);
    assert_non_null(strstr(why.text, "does not accept this key"));
    fgf_client_close(client);
}

static void another_model_is_refused_with_what_to_do(void **state) {
    scene *s = *state;
    char directory[96];
    fgf_client *client = NULL;
    fgf_client_options options = client_options(s, 0, directory);
    frug_layout *other = NULL;
    fgio_reason why = {""};
    assert_int_equal(frug_layout_flat(N + 1, &other), FRUG_OK);
    assert_int_equal(fgf_client_open(&options, &client, &why), 0);
    assert_int_equal(fgf_client_join(client, other, 10, &why), -1);
    assert_non_null(strstr(why.text, "use the run's model"));
    fgf_client_close(client);
    frug_layout_destroy(other);
}

/* ---- a client by hand ---- */

static void say(wire *w, const fgf_message *m) {
    assert_true(wire_say(w, m));
}

static wire open_wire(scene *s, int client, bool joined) {
    wire w;
    assert_true(wire_open(&w, s->address, s->key[client]));
    assert_true(!joined || wire_join(&w));
    return w;
}

/** A valid update of a round, of a size that the run's config allows. */
static size_t make_frame(const scene *s, uint64_t round, const char *text, unsigned char **frame) {
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    float difference[N] = {0};
    size_t cap, len;
    change(difference, 1, 1);
    assert_int_equal(frug_config_create(text, &config), FRUG_OK);
    assert_int_equal(frug_compressor_create(config, s->layout, NULL, &c), FRUG_OK);
    assert_int_equal(frug_compressor_bound(c, (frug_range){0, N}, &cap), FRUG_OK);
    *frame = malloc(cap);
    assert_int_equal(frug_compress(c, round, (frug_range){0, N}, difference, *frame, cap, &len), FRUG_OK);
    frug_compressor_destroy(c);
    frug_config_destroy(config);
    return len;
}

static void expect_refusal(wire *w, const fgf_message *question, fgf_refusal code) {
    say(w, question);
    fgf_message m = wire_hear(w);
    assert_int_equal(m.type, FGF_REFUSE);
    assert_int_equal(m.code, code);
}

static void uploads_continue_where_they_broke_off_and_count_once(void **state) {
    scene *s = *state;
    wire w = open_wire(s, 0, true);
    unsigned char frame[700];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = (unsigned char)i;
    fgf_message question = wire_offer(&w, 0, 42, frame, sizeof frame);
    say(&w, &question);
    assert_int_equal(wire_hear(&w).offset, 0);
    say(&w, &(fgf_message){.type = FGF_CHUNK_DATA, .text = {frame, 300}});
    usleep(300000); /* so that the server has read it before the connection ends */
    wire_close(&w);
    w = open_wire(s, 0, true);
    say(&w, &question);
    fgf_message m = wire_hear(&w);
    assert_int_equal(m.type, FGF_SEND);
    assert_int_equal(m.offset, 300);
    wire_close(&w);
    stop_server(s); /* also after a restart of the server */
    start_server(s);
    w = open_wire(s, 0, true);
    say(&w, &question);
    assert_int_equal(wire_hear(&w).offset, 300);
    say(&w, &(fgf_message){.type = FGF_CHUNK_DATA, .offset = 300, .text = {frame + 300, 400}});
    m = wire_hear(&w); /* complete, and no frame: refused, and forgotten */
    assert_int_equal(m.code, FGF_REFUSE_INVALID);
    say(&w, &question);
    assert_int_equal(wire_hear(&w).offset, 0);
    wire_close(&w);
}

static void an_update_that_is_sent_again_is_confirmed_again_and_another_one_refused(void **state) {
    scene *s = *state;
    wire w = open_wire(s, 0, true);
    unsigned char *small;
    size_t len = make_frame(s, 0, CONFIG, &small);
    fgf_message question = wire_offer(&w, 0, 7, small, len);
    say(&w, &question);
    assert_int_equal(wire_hear(&w).type, FGF_SEND);
    say(&w, &(fgf_message){.type = FGF_CHUNK_DATA, .text = {small, len}});
    assert_int_equal(wire_hear(&w).type, FGF_CONFIRM);
    for (int i = 0; i < 3; i++) {
        say(&w, &question);
        assert_int_equal(wire_hear(&w).type, FGF_CONFIRM);
    }
    fgf_message other = question;
    other.upload = 8;
    expect_refusal(&w, &other, FGF_REFUSE_DOUBLE);
    wire_close(&w);
    stop_server(s);
    start_server(s);
    w = open_wire(s, 0, true);
    say(&w, &question);
    assert_int_equal(wire_hear(&w).type, FGF_CONFIRM);
    expect_refusal(&w, &other, FGF_REFUSE_DOUBLE);
    other.round = 1;
    expect_refusal(&w, &other, FGF_REFUSE_INVALID); /* that round has not begun */
    other = wire_offer(&w, 0, 9, small, len);
    other.bytes = UINT64_MAX;
    expect_refusal(&w, &other, FGF_REFUSE_SIZE);
    wire_close(&w);
    free(small);
}

static void what_does_not_belong_ends_the_connection(void **state) {
    scene *s = *state;
    wire w = open_wire(s, 0, true);
    fgf_message of_another_run = wire_offer(&w, 0, 1, (const unsigned char *)"x", 1);
    of_another_run.run.bytes[0] ^= 1;
    expect_refusal(&w, &of_another_run, FGF_REFUSE_RUN);
    assert_int_equal(wire_hear(&w).type, 0);
    wire_close(&w);
    w = open_wire(s, 0, false);
    expect_refusal(&w, &(fgf_message){.type = FGF_PULL}, FGF_REFUSE_PROTOCOL);
    wire_close(&w);
    w = open_wire(s, 0, false);
    expect_refusal(&w, &(fgf_message){.type = FGF_HELLO, .code = 99}, FGF_REFUSE_PROTOCOL);
    wire_close(&w);
    w = open_wire(s, 0, true); /* a chunk that nobody asked for */
    expect_refusal(&w, &(fgf_message){.type = FGF_CHUNK_DATA, .text = {(const unsigned char *)"x", 1}},
                   FGF_REFUSE_PROTOCOL);
    wire_close(&w);
    w = open_wire(s, 0, true);
    fgf_message double_offer = wire_offer(&w, 9, 1, (const unsigned char *)"x", 1), m = {0};
    for (int i = 0; i < 200 && m.code != FGF_REFUSE_RATE; i++) {
        say(&w, &double_offer);
        m = wire_hear(&w);
        assert_int_equal(m.type, FGF_REFUSE);
    }
    assert_int_equal(m.code, FGF_REFUSE_RATE);
    wire_close(&w);
}

/* ---- updates, whole ---- */

/* Offers an update and sends it; the last answer. */
static fgf_message send_update(wire *w, uint64_t round, uint64_t upload, const unsigned char *frame, size_t len) {
    fgf_message question = wire_offer(w, round, upload, frame, len);
    say(w, &question);
    fgf_message m = wire_hear(w);
    if (m.type != FGF_SEND)
        return m;
    say(w, &(fgf_message){.type = FGF_CHUNK_DATA, .text = {frame, len}});
    return wire_hear(w);
}

static void an_update_with_a_nan_is_refused_and_the_client_goes_on(void **state) {
    scene *s = *state;
    wire w = open_wire(s, 0, true);
    unsigned char *frame;
    size_t len = make_frame(s, 0, "density=0.02,feedback=none,value=f32,min_size=1", &frame);
    static const float bad[] = {NAN, INFINITY};
    float good;
    memcpy(&good, frame + len - 4, 4);
    for (uint64_t i = 0; i < 2; i++) {
        memcpy(frame + len - 4, &bad[i], 4);
        frugi_frame_seal(frame, len, 1);
        fgf_message m = send_update(&w, 0, i, frame, len);
        assert_int_equal(m.type, FGF_REFUSE);
        assert_int_equal(m.code, FGF_REFUSE_INVALID);
    }
    memcpy(frame + len - 4, &good, 4);
    frugi_frame_seal(frame, len, 1);
    assert_int_equal(send_update(&w, 0, 2, frame, len).type, FGF_CONFIRM);
    wire_close(&w);
    free(frame);
}

/* ---- a full disk: files cannot grow beyond a limit ---- */

static void limit_files(uint64_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Until the server has published a version: its round. */
static uint64_t pull_round(wire *w, uint64_t have) {
    fgf_message m;
    say(w, &(fgf_message){.type = FGF_PULL, .run = w->run, .have = have});
    do
        m = wire_hear(w);
    while (m.type == FGF_WAIT);
    assert_int_equal(m.type, FGF_WEIGHTS);
    return m.round;
}

static void a_full_disk_refuses_updates_for_now_and_delays_the_round(void **state) {
    scene *s = *state;
    wire a = open_wire(s, 0, true), b = open_wire(s, 1, true);
    unsigned char *frame;
    size_t len = make_frame(s, 0, CONFIG, &frame);
    limit_files(100); /* nothing fits */
    fgf_message m = send_update(&a, 0, 1, frame, len);
    assert_int_equal(m.type, FGF_REFUSE);
    assert_int_equal(m.code, FGF_REFUSE_RETRY);
    limit_files(FGF_UPDATE_HEADER + len / 2); /* the update breaks off */
    assert_int_equal(send_update(&a, 0, 1, frame, len).code, FGF_REFUSE_RETRY);
    limit_files(4 * N); /* updates fit, the state does not */
    fgf_message question = wire_offer(&a, 0, 1, frame, len);
    say(&a, &question);
    m = wire_hear(&a);
    assert_int_equal(m.type, FGF_SEND);
    say(&a, &(fgf_message){.type = FGF_CHUNK_DATA, .offset = m.offset, .text = {frame + m.offset, len - m.offset}});
    assert_int_equal(wire_hear(&a).type, FGF_CONFIRM);
    assert_int_equal(send_update(&b, 0, 1, frame, len).type, FGF_CONFIRM);
    pass_seconds(0);
    limit_files(0);
    ahead = ahead + 6; /* the round is closed again after some seconds */
    assert_int_equal(pull_round(&a, 0), 1);
    wire_close(&a);
    wire_close(&b);
    free(frame);
}

/* Round 0 closes without client 1; before its state is on disk, client 1 is confirmed for round 1, and the server dies.
 */
static void a_late_update_that_was_confirmed_while_a_round_closed_is_not_lost(void **state) {
    scene *s = *state;
    unsigned char *frame;
    size_t len = make_frame(s, 0, CONFIG, &frame);
    stop_server(s);
    s->rule = (fgf_round_rule){.rounds = 2, .quorum = 1, .deadline = 0.1, .stale_max = 1};
    start_server(s);
    wire a = open_wire(s, 0, true), b = open_wire(s, 1, true);
    limit_files(4 * N);
    assert_int_equal(send_update(&a, 0, 1, frame, len).type, FGF_CONFIRM);
    pass_seconds(1);
    assert_int_equal(send_update(&b, 0, 2, frame, len).type, FGF_CONFIRM);
    wire_close(&a);
    wire_close(&b);
    stop_server(s);
    limit_files(0);
    start_server(s);
    b = open_wire(s, 1, true);
    assert_int_equal(send_update(&b, 0, 2, frame, len).type, FGF_CONFIRM); /* known: it is not sent again */
    assert_int_equal(pull_round(&b, 0), 1);
    bool counted = false;
    for (int i = 0; i < 20 && !counted; i++) { /* the status is renewed every second */
        pass_seconds(2);
        char *status = fgf_server_status(s->server);
        const char *first = strstr(status, "\"counted\":1,");
        counted = first && strstr(first + 1, "\"counted\":1,");
        free(status);
    }
    assert_true(counted);
    wire_close(&b);
    free(frame);
}

/* ---- peers that are slow ---- */

static bool is_closed(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&wait, 1, 5000) > 0 && read(fd, &byte, 1) <= 0;
}

static void peers_that_drip_or_say_nothing_are_dropped_by_deadline(void **state) {
    scene *s = *state;
    fgio_reason why;
    wire drip = open_wire(s, 0, true), waits = open_wire(s, 1, true);
    int silent = fgf_tcp_connect(s->address, 5, &why), garbage = fgf_tcp_connect(s->address, 5, &why);
    assert_true(silent >= 0 && garbage >= 0);
    assert_int_equal(write(garbage, "\x16\x03\x01\x01", 4), 4); /* a handshake that never goes on */
    const unsigned char header[FGF_HEADER] = {'F', 'G', FGF_PROTOCOL, FGF_PULL, 36};
    for (int i = 0; i < 3; i++) { /* every byte is in time, the message is not */
        assert_int_equal(fgf_channel_write(drip.stream.channel, header + i, 1, &why), 1);
        pass_seconds(9);
    }
    pass_seconds(9);
    assert_true(is_closed(silent));
    assert_true(is_closed(garbage));
    assert_int_equal(wire_hear(&drip).type, 0);
    assert_int_equal(pull_round(&waits, FGF_NO_VERSION), 0); /* who is only quiet stays */
    close(silent);
    close(garbage);
    wire_close(&drip);
    wire_close(&waits);
}

static void clients_of_many_versions_get_weights_from_few_files(void **state) {
    scene *s = *state;
    unsigned char *frame;
    stop_server(s);
    s->rule = (fgf_round_rule){.rounds = 30, .quorum = 1, .deadline = 0.1, .stale_max = 0};
    start_server(s);
    wire w = open_wire(s, 0, true);
    for (uint64_t round = 0; round < 12; round++) {
        size_t len = make_frame(s, round, CONFIG, &frame);
        assert_int_equal(send_update(&w, round, 1, frame, len).type, FGF_CONFIRM);
        ahead = ahead + 1;
        assert_int_equal(pull_round(&w, round), round + 1);
        for (uint64_t left = UINT64_MAX; left > 0;) {
            fgf_message m = wire_hear(&w);
            assert_int_equal(m.type, FGF_CHUNK_DATA);
            left = m.text.len == FGF_CHUNK;
        }
        free(frame);
    }
    for (uint64_t have = 0; have < 11; have++) {
        say(&w, &(fgf_message){.type = FGF_PULL, .run = w.run, .have = have});
        fgf_message m = wire_hear(&w);
        assert_int_equal(m.type, FGF_WEIGHTS);
        if (have > FGF_BLOBS_MAX)
            assert_int_equal(m.bytes, 1 + 4 * N);
        assert_int_equal(wire_hear(&w).type, FGF_CHUNK_DATA);
    }
    wire_close(&w);
}

static void a_directory_is_of_one_server_until_that_is_closed(void **state) {
    scene *s = *state;
    fgf_server *second = NULL;
    fgio_reason why = {""};
    assert_int_equal(fgf_server_create(&s->options, &second, &why), -1);
    assert_null(second);
    assert_non_null(strstr(why.text, "is in use by another server"));
    pid_t child = fork(); /* has a copy of the descriptor, which does not hold the directory */
    if (child == 0) {
        sleep(30);
        _exit(0);
    }
    assert_true(child > 0);
    stop_server(s);
    start_server(s);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_clients_and_the_server_end_with_the_same_weights, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(a_server_that_starts_again_gives_the_same_bits_and_has_its_history, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(only_listed_keys_are_let_in_and_only_the_pinned_server_is_trusted, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(a_revoked_key_is_let_go_and_not_let_in_again, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(another_model_is_refused_with_what_to_do, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(uploads_continue_where_they_broke_off_and_count_once, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(an_update_that_is_sent_again_is_confirmed_again_and_another_one_refused,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(what_does_not_belong_ends_the_connection, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(an_update_with_a_nan_is_refused_and_the_client_goes_on, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(a_full_disk_refuses_updates_for_now_and_delays_the_round, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(a_late_update_that_was_confirmed_while_a_round_closed_is_not_lost, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(peers_that_drip_or_say_nothing_are_dropped_by_deadline, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(clients_of_many_versions_get_weights_from_few_files, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(a_directory_is_of_one_server_until_that_is_closed, open_scene, close_scene),
    };
    fgio_files_init();
    frugi_clock_source = read_clock;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
