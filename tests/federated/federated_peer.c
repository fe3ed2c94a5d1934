/*
 * federated_peer.c - clients that 'frugrad join' is not: many at once, with damaged messages, with wrong updates. For
 * lab/bench/federated_hostile.py and federated_memory.py; not a test by itself.
 *
 *   federated_peer keys DIR COUNT                                   DIR/key-N, and their list, DIR/clients.txt
 *   federated_peer load ADDRESS DIR IDLE ACTIVE ROUNDS MODEL CONFIG joined clients, of which some send updates
 *   federated_peer fuzz ADDRESS DIR CLIENTS SECONDS SEED MODEL      mutated messages, with valid keys
 *   federated_peer poison ADDRESS KEY SERVER KIND I/N STATE         trains on builtin data as a client does, and sends
 *                                                                   its change "times1000" or "flipped"; or "nan"
 */
#include "support/federated_wire.h"

#include "codec/frame.h"
#include "federated/client.h"
#include "federated/update_layout.h"
#include "io/files.h"
#include "program/federated/federated_job.h"
#include "trainer/run/solo_training.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define PLAIN "density=0.004,feedback=none,value=f32,vectors=sparse,min_size=1"

static void check(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "federated_peer: %s\n", what);
        exit(1);
    }
}

static uint64_t draw(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static fgf_key *read_key(const char *dir, unsigned number) {
    char path[512];
    fgf_key *key = NULL;
    fgio_reason why = {""};
    snprintf(path, sizeof path, "%s/key-%u", dir, number);
    check(fgf_key_read(path, &key, &why) == 0, why.text);
    return key;
}

static void make_keys(const char *dir, unsigned count) {
    char path[512], text[FGF_PUBLIC_TEXT];
    snprintf(path, sizeof path, "%s/clients.txt", dir);
    FILE *list = fopen(path, "w");
    fgio_reason why = {""};
    check(list, "the list cannot be written");
    for (unsigned i = 0; i < count; i++) {
        fgf_key *key = fgf_key_generate();
        fgf_public_key public = fgf_key_public(key);
        snprintf(path, sizeof path, "%s/key-%u", dir, i);
        check(fgf_key_write(key, path, strrchr(path, '/') + 1, &why) == 0, why.text);
        fprintf(list, "%s key-%u\n", fgf_public_text(&public, text), i);
        fgf_key_destroy(key);
    }
    fclose(list);
}

/* ---- updates of no training: random numbers ---- */

/** Makes frames for a model; one at a time. */
typedef struct maker {
    fgt_solo *solo;
    frug_compressor *compressor;
    uint64_t count;
    float *difference;
    size_t cap;
    pthread_mutex_t lock;
} maker;

static void open_maker(maker *m, const char *model, const char *text) {
    frug_config *config = NULL;
    const fgt_solo_options options = {.model = model,
                                      .data = "builtin",
                                      .schedule = "constant",
                                      .rounds = 1,
                                      .steps = 1,
                                      .threads = 1,
                                      .evaluates = true};
    check(fgt_solo_open(&options, &m->solo) == 0, "no model");
    frug_layout *layout = NULL;
    check(fgf_update_layout(fgt_solo_layout(m->solo), text, &layout) == FRUG_OK, frug_last_error());
    m->count = frug_layout_elements(layout);
    check(frug_config_create(text, &config) == FRUG_OK &&
              frug_compressor_create(config, layout, NULL, &m->compressor) == FRUG_OK &&
              frug_compressor_bound(m->compressor, (frug_range){0, m->count}, &m->cap) == FRUG_OK,
          frug_last_error());
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    m->difference = malloc(m->count * sizeof *m->difference);
    pthread_mutex_init(&m->lock, NULL);
}

static unsigned char *make_update(maker *m, uint64_t round, uint64_t seed, size_t *len) {
    unsigned char *frame = malloc(m->cap);
    pthread_mutex_lock(&m->lock);
    for (uint64_t i = 0; i < m->count; i++)
        m->difference[i] = 1e-4f * (float)((int64_t)(draw(&seed) >> 40) - (1 << 23)) / (1 << 23);
    check(frug_compress(m->compressor, round, (frug_range){0, m->count}, m->difference, frame, m->cap, len) == FRUG_OK,
          frug_last_error());
    pthread_mutex_unlock(&m->lock);
    return frame;
}

/* Sends what the server asks for; the last answer. */
static fgf_message send_update(wire *w, uint64_t round, uint64_t upload, const unsigned char *frame, size_t len) {
    fgf_message question = wire_offer(w, round, upload, frame, len), m = {0};
    if (wire_say(w, &question))
        m = wire_hear(w);
    if (m.type != FGF_SEND)
        return m;
    for (size_t at = m.offset; at < len; at += FGF_CHUNK) {
        size_t part = len - at < FGF_CHUNK ? len - at : FGF_CHUNK;
        if (!wire_say(w, &(fgf_message){.type = FGF_CHUNK_DATA, .offset = at, .text = {frame + at, part}}))
            return (fgf_message){0};
    }
    return wire_hear(w);
}

/* Gets the weights of a new round, and forgets them: the round, or FGF_NO_VERSION at the end. */
static uint64_t pull(wire *w, uint64_t have) {
    fgf_message m = {.type = FGF_WAIT};
    check(wire_say(w, &(fgf_message){.type = FGF_PULL, .run = w->run, .have = have}), "PULL was not sent");
    while (m.type == FGF_WAIT)
        m = wire_hear(w);
    if (m.type == FGF_DONE)
        return FGF_NO_VERSION;
    check(m.type == FGF_WEIGHTS, "no weights");
    uint64_t round = m.round;
    for (uint64_t left = m.bytes; left > 0; left -= m.text.len) {
        m = wire_hear(w);
        check(m.type == FGF_CHUNK_DATA, "the weights break off");
    }
    return round;
}

/* ---- load ---- */

typedef struct active {
    wire w;
    maker *m;
    unsigned number, rounds;
    pthread_t thread;
} active;

static void *take_part(void *arg) {
    active *a = arg;
    uint64_t have = FGF_NO_VERSION;
    for (unsigned i = 0; i < a->rounds; i++) {
        size_t len;
        have = pull(&a->w, have);
        unsigned char *frame = make_update(a->m, have, (uint64_t)a->number << 32 | have, &len);
        fgf_message m = send_update(&a->w, have, have, frame, len);
        if (m.type != FGF_CONFIRM)
            fprintf(stderr, "round %llu: %s: %.*s\n", (unsigned long long)have, m.type ? fgf_message_name(m.type) : "-",
                    (int)m.text.len, (const char *)m.text.data);
        check(m.type == FGF_CONFIRM, "an update was not confirmed");
        free(frame);
    }
    return NULL;
}

static void load(const char *address, const char *dir, unsigned idle, unsigned count, unsigned rounds,
                 const char *model, const char *config) {
    struct rlimit files = {8192, 8192};
    wire *waiting = calloc(idle + 1, sizeof *waiting);
    active *working = calloc(count + 1, sizeof *working);
    maker m = {0};
    setrlimit(RLIMIT_NOFILE, &files);
    open_maker(&m, model, config);
    for (unsigned i = 0; i < idle + count; i++) {
        fgf_key *key = read_key(dir, i);
        wire *w = i < idle ? &waiting[i] : &working[i - idle].w;
        check(wire_open(w, address, key) && wire_join(w), "a client could not join");
        fgf_key_destroy(key);
    }
    printf("joined\n");
    fflush(stdout);
    check(getchar() != EOF, "nobody asks to go on"); /* memory of the server is read in between */
    for (unsigned i = 0; i < count; i++) {
        working[i].m = &m;
        working[i].number = i;
        working[i].rounds = rounds;
        check(pthread_create(&working[i].thread, NULL, take_part, &working[i]) == 0, "no thread");
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(working[i].thread, NULL);
    printf("sent\n");
    fflush(stdout);
    check(getchar() != EOF, "nobody asks to go on");
}

/* ---- mutated messages ---- */

/** What was sent in all. */
typedef struct tally {
    unsigned long long messages, mutated, uploads, connections, refused;
} tally;

/** One client of the fuzzer. */
typedef struct fuzzer {
    wire w;
    const fgf_key *key;
    const char *address;
    const unsigned char *frame;
    size_t len;
    uint64_t random;
    tally sum;
    bool open;
} fuzzer;

static fgf_message random_message(fuzzer *f) {
    static const fgf_message_type types[] = {FGF_HELLO, FGF_JOIN, FGF_PULL, FGF_OFFER, FGF_CHUNK_DATA, FGF_DONE};
    uint64_t small = draw(&f->random) % 3;
    return (fgf_message){.type = types[draw(&f->random) % 6],
                         .code = FGF_PROTOCOL,
                         .run = f->w.run,
                         .round = f->w.round + small,
                         .have = small ? FGF_NO_VERSION : 0,
                         .upload = small,
                         .bytes = draw(&f->random) % 2 ? f->len : draw(&f->random),
                         .offset = draw(&f->random) % 2 ? 0 : draw(&f->random),
                         .text = {f->frame, draw(&f->random) % 64}};
}

/* The bytes of a message with some of them changed, cut, or more; any length may be announced. */
static void say_mutated(fuzzer *f) {
    unsigned char bytes[512];
    fgio_reason why;
    fgf_message m = random_message(f);
    size_t len = fgf_message_size(&m);
    fgf_message_encode(&m, bytes);
    for (uint64_t changes = draw(&f->random) % 4; changes > 0; changes--)
        bytes[draw(&f->random) % len] ^= (unsigned char)draw(&f->random);
    if (draw(&f->random) % 4 == 0)
        len = 1 + draw(&f->random) % len;
    f->sum.messages++;
    f->sum.mutated++;
    f->open = fgf_channel_write(f->w.stream.channel, bytes, len, &why) > 0;
}

/* A frame with changed bytes, sealed again, in pieces of some bytes. What the server thinks of it is read. */
static void say_bad_update(fuzzer *f) {
    unsigned char *frame = malloc(f->len);
    memcpy(frame, f->frame, f->len);
    for (uint64_t changes = 1 + draw(&f->random) % 8; changes > 0; changes--)
        frame[draw(&f->random) % f->len] ^= (unsigned char)(1 + draw(&f->random) % 255);
    if (draw(&f->random) % 4)
        frugi_frame_seal(frame, f->len, 1);
    fgf_message question = wire_offer(&f->w, f->w.round, draw(&f->random), frame, f->len), m = {0};
    f->sum.messages++;
    f->sum.uploads++;
    if (wire_say(&f->w, &question))
        m = wire_hear(&f->w);
    f->open = m.type == FGF_SEND;
    for (size_t at = 0; f->open && at < f->len;) {
        size_t part = 1 + draw(&f->random) % 16;
        part = part < f->len - at ? part : f->len - at;
        f->sum.messages++;
        f->sum.mutated++;
        f->open = wire_say(&f->w, &(fgf_message){.type = FGF_CHUNK_DATA, .offset = at, .text = {frame + at, part}});
        at += part;
    }
    m = f->open ? wire_hear(&f->w) : m;
    f->sum.refused += m.type == FGF_REFUSE;
    f->open = f->open && (m.type == FGF_CONFIRM || m.code == FGF_REFUSE_INVALID);
    free(frame);
}

static void fuzz_once(fuzzer *f) {
    if (!f->open) {
        wire_close(&f->w);
        f->open = wire_open(&f->w, f->address, f->key) && (draw(&f->random) % 8 == 0 || wire_join(&f->w));
        f->sum.connections++;
    } else if (draw(&f->random) % 16 == 0) {
        say_mutated(f);
    } else {
        say_bad_update(f);
    }
}

/** Some clients of the fuzzer, on one thread. */
typedef struct fuzz_thread {
    fuzzer f;
    double end;
    pthread_t thread;
} fuzz_thread;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *fuzz_until(void *arg) {
    fuzz_thread *t = arg;
    while (seconds_now() < t->end)
        fuzz_once(&t->f);
    wire_close(&t->f.w);
    return NULL;
}

static void fuzz(const char *address, const char *dir, unsigned count, double seconds, uint64_t seed,
                 const char *model) {
    fuzz_thread *all = calloc(count, sizeof *all);
    maker m = {0};
    size_t len;
    tally sum = {0};
    open_maker(&m, model, PLAIN);
    unsigned char *frame = make_update(&m, 0, seed, &len);
    for (unsigned i = 0; i < count; i++) {
        all[i].f =
            (fuzzer){.key = read_key(dir, i), .address = address, .frame = frame, .len = len, .random = seed + i};
        all[i].end = seconds_now() + seconds;
        check(pthread_create(&all[i].thread, NULL, fuzz_until, &all[i]) == 0, "no thread");
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(all[i].thread, NULL);
        const tally *t = &all[i].f.sum;
        sum.messages += t->messages;
        sum.mutated += t->mutated;
        sum.uploads += t->uploads;
        sum.connections += t->connections;
        sum.refused += t->refused;
    }
    printf("{\"messages\": %llu, \"mutated\": %llu, \"uploads\": %llu, \"uploads_refused\": %llu, \"connections\": "
           "%llu}\n",
           sum.messages, sum.mutated, sum.uploads, sum.refused, sum.connections);
}

/* ---- wrong updates ---- */

static void send_nans(const char *address, const fgf_key *key, const char *model) {
    maker m = {0};
    wire w;
    size_t len;
    const float bad = NAN;
    open_maker(&m, model, PLAIN);
    check(wire_open(&w, address, key) && wire_join(&w), "could not join");
    for (uint64_t have = FGF_NO_VERSION, round; (round = pull(&w, have)) != FGF_NO_VERSION; have = round) {
        unsigned char *frame = make_update(&m, round, round, &len);
        memcpy(frame + len - 4, &bad, 4);
        frugi_frame_seal(frame, len, 1);
        fgf_message answer = send_update(&w, round, round, frame, len);
        printf("round %llu: %s\n", (unsigned long long)round, answer.code == FGF_REFUSE_INVALID ? "refused" : "?");
        free(frame);
    }
}

static void poison(const char *address, const fgf_key *key, const char *server, const char *kind, const char *share,
                   const char *state) {
    fgf_client_options options = {.server = address, .key = key, .directory = state, .patience = 60};
    fgp_federated_job job = {0};
    fgf_client *client = NULL;
    fgt_solo *solo = NULL;
    fgio_reason why = {""};
    unsigned long long part, parts;
    uint64_t round;
    double loss, factor = strcmp(kind, "flipped") == 0 ? -1 : 1000;
    bool stopped;
    check(fgf_public_find(server, &options.server_key, &why) == 0 && sscanf(share, "%llu/%llu", &part, &parts) == 2 &&
              fgf_client_open(&options, &client, &why) == 0 &&
              fgp_federated_job_parse(fgf_client_job(client), &job) == 0,
          why.text);
    job.training.data = "builtin";
    job.training.part = part - 1;
    job.training.parts = parts;
    job.training.worker = part;
    job.training.threads = 1;
    if (strcmp(kind, "nan") == 0) {
        fgf_client_close(client);
        send_nans(address, key, job.training.model);
        return;
    }
    check(fgt_solo_open(&job.training, &solo) == 0 &&
              fgf_client_join(client, fgt_solo_layout(solo), fgt_solo_examples(solo), &why) == 0,
          why.text);
    uint64_t count = frug_layout_elements(fgt_solo_layout(solo));
    float *before = malloc(count * sizeof *before), *after = malloc(count * sizeof *after);
    while (fgf_client_pull(client, before, &round, &why) == 1) {
        fgt_solo_set(solo, before);
        check(fgt_solo_train(solo, round, &loss, &stopped) == 0, "training failed");
        fgt_solo_get(solo, after);
        for (uint64_t i = 0; i < count; i++)
            after[i] = before[i] + (float)factor * (after[i] - before[i]);
        check(fgf_client_push(client, after, loss, &why) >= 0, why.text);
    }
}

static const char *const usage = "see the head of federated_peer.c";

int main(int argc, char **argv) {
    fgf_key *key = NULL;
    fgio_reason why = {""};
    fgio_files_init();
    check(argc >= 4, usage);
    if (strcmp(argv[1], "keys") == 0) {
        make_keys(argv[2], (unsigned)atoi(argv[3]));
    } else if (strcmp(argv[1], "load") == 0 && argc == 9) {
        load(argv[2], argv[3], (unsigned)atoi(argv[4]), (unsigned)atoi(argv[5]), (unsigned)atoi(argv[6]), argv[7],
             argv[8]);
    } else if (strcmp(argv[1], "fuzz") == 0 && argc == 8) {
        fuzz(argv[2], argv[3], (unsigned)atoi(argv[4]), atof(argv[5]), strtoull(argv[6], NULL, 10), argv[7]);
    } else if (strcmp(argv[1], "poison") == 0 && argc == 8) {
        check(fgf_key_read(argv[3], &key, &why) == 0, why.text);
        poison(argv[2], key, argv[4], argv[5], argv[6], argv[7]);
    } else {
        check(false, usage);
    }
    return 0;
}
