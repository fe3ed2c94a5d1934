/*
 * test_threads.c - the result of training does not depend on the number of threads: matrix products, the gradients of
 * convolutions, and the weights and losses of whole jobs, with 1, 2, 3 and 5 threads.
 *
 * BLAS kernels round differently for other sizes, each in its own way, so this has to hold for every core type of
 * OpenBLAS; tests/trainer/blas_cores.sh runs this program with those that the CPU supports.
 */
#include "trainer/gradcheck.h"
#include "trainer/model/model.h"
#include "trainer/nn/gemm.h"

#include "trainer/job_helpers.h"

#include <cblas.h>

static const int thread_counts[] = {1, 2, 3, 5};
enum { COUNTS = sizeof thread_counts / sizeof *thread_counts };

/* ---- comparing ------------------------------------------------------------------------------------ */

static void same_floats(const char *what, const char *tensor, int threads, const float *want, const float *got,
                        size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(&want[i], &got[i], sizeof *want) != 0)
            fail_msg("%s, OpenBLAS core %s: %s[%zu] is %.9g with 1 thread and %.9g with %d threads", what,
                     openblas_get_corename(), tensor, i, (double)want[i], (double)got[i], threads);
}

static void same_number(const char *what, const char *name, int threads, double want, double got) {
    if (memcmp(&want, &got, sizeof want) != 0)
        fail_msg("%s, OpenBLAS core %s: %s is %.17g with 1 thread and %.17g with %d threads", what,
                 openblas_get_corename(), name, want, got, threads);
}

/* ---- products ------------------------------------------------------------------------------------- */

enum { SIDE = 300, DEPTH = 70, SHIFT = 16 };

typedef struct product {
    size_t m, n, k;
    bool a_turned, b_turned, add;
} product;

/* Sides from 1 up, half of them just below or above a multiple of 32, where tiles begin. */
static size_t side_at(uint64_t *random, size_t most) {
    size_t any = (size_t)(next_random(random) % most) + 1, near = any / 32 * 32 + (size_t)(next_random(random) % 3);
    return next_random(random) % 2 && near > 1 ? near - 1 : any;
}

static product product_at(uint64_t *random) {
    uint64_t bits = next_random(random);
    return (product){
        side_at(random, SIDE), side_at(random, SIDE), side_at(random, DEPTH), bits & 1, bits & 2, bits & 4};
}

/* The operands begin `shift` floats after a cache line. */
static void multiply(const product *p, int threads, size_t shift, const float *numbers, float *room, float *c) {
    size_t a_count = p->m * p->k, b_count = p->k * p->n, b_at = (a_count + 2 * SHIFT) / SHIFT * SHIFT;
    memcpy(room + shift, numbers, a_count * sizeof *room);
    memcpy(room + b_at + shift, numbers + a_count, b_count * sizeof *room);
    memcpy(c, numbers, p->m * p->n * sizeof *c);
    fgt_gemm(threads, p->m, p->n, p->k, 0.75f, (fgt_matrix){room + shift, p->a_turned ? p->m : p->k, p->a_turned},
             (fgt_matrix){room + b_at + shift, p->b_turned ? p->k : p->n, p->b_turned}, p->add ? 1.0f : 0.0f, c, p->n);
}

static void matrix_products_do_not_depend_on_threads(void **state) {
    (void)state;
    uint64_t random = 20;
    size_t most = (SIDE + 2) * (SIDE + 2) + 2 * (SIDE + 2) * (DEPTH + 2);
    float *numbers = bell_array(most, 1), *room = aligned_alloc(64, (most + 6 * SHIFT) / 16 * 64);
    float *want = test_malloc(most * sizeof *want), *got = test_malloc(most * sizeof *got);
    assert_non_null(room);
    for (size_t i = 0; i < 120; i++) {
        product p = product_at(&random);
        char what[120];
        snprintf(what, sizeof what, "product %zu x %zu x %zu%s%s%s", p.m, p.n, p.k, p.a_turned ? ", a turned" : "",
                 p.b_turned ? ", b turned" : "", p.add ? ", added" : "");
        multiply(&p, 1, 0, numbers, room, want);
        for (size_t t = 1; t < COUNTS; t++) {
            multiply(&p, thread_counts[t], i % SHIFT, numbers, room, got);
            same_floats(what, "c", thread_counts[t], want, got, p.m * p.n);
        }
    }
    free(room);
    test_free(numbers);
    test_free(want);
    test_free(got);
}

/* ---- convolutions --------------------------------------------------------------------------------- */

typedef struct conv_case {
    uint32_t C, H, W, O, k, stride, pad, n;
} conv_case;

static void open_conv(const conv_case *k, int threads, gradcheck *c) {
    fgt_graph *g = fgt_graph_create(k->n, threads);
    fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){k->C, k->H, k->W}, true);
    fgt_conv_shape shape = {.channels = k->O, .kernel = k->k, .stride = k->stride, .pad = k->pad, .bias = true};
    gradcheck_open(c, g, fgt_op_conv(g, "conv", x, shape), 1);
}

static void convolutions_do_not_depend_on_threads(void **state) {
    (void)state;
    static const conv_case cases[] = {
        {3, 9, 10, 7, 3, 1, 1, 7},     /* the direct kernels where the machine has them */
        {20, 6, 5, 18, 3, 1, 1, 5},    /* so too: channels shared by threads */
        {6, 14, 14, 16, 5, 1, 0, 17},  /* several images a product */
        {1, 28, 28, 6, 5, 1, 2, 6},    /* an image in several products */
        {16, 9, 9, 33, 3, 2, 1, 11},   /* stride */
        {40, 5, 5, 65, 1, 1, 0, 9},    /* 1 x 1 */
        {60, 5, 6, 125, 3, 2, 1, 5},   /* many weights: threads compute a product together */
        {260, 20, 2, 256, 1, 1, 0, 3}, /* so too, 1 x 1 */
        {32, 9, 10, 64, 3, 1, 1, 9},   /* oneDNN where there is one: Winograd's algorithm, */
        {96, 5, 5, 96, 3, 1, 1, 6},    /* with many weights, */
        {3, 15, 16, 32, 7, 2, 3, 10}   /* and few input channels */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const conv_case *k = &cases[i];
        gradcheck one, c;
        open_conv(k, 1, &one);
        char what[120];
        snprintf(what, sizeof what, "conv %u x %u x %u to %u, kernel %u, stride %u, batch %u", k->C, k->H, k->W, k->O,
                 k->k, k->stride, k->n);
        for (size_t t = 1; t < COUNTS; t++)
            for (size_t tile = 0; tile <= 10; tile += 10) {
                open_conv(k, thread_counts[t], &c);
                gradcheck_backward(&one, k->n, tile);
                gradcheck_backward(&c, k->n, tile);
                const fgt_value *y = one.g->last->in[0], *y2 = c.g->last->in[0];
                same_floats(what, "output", thread_counts[t], y->data, y2->data, k->n * y->sample_size);
                same_floats(what, "input gradient", thread_counts[t], one.given[0]->grad, c.given[0]->grad,
                            k->n * one.given[0]->sample_size);
                for (const fgt_param *p = one.g->params; p; p = p->next)
                    same_floats(what, p->tensor.name, thread_counts[t], one.grads + p->tensor.offset,
                                c.grads + p->tensor.offset, p->rows * p->cols);
                gradcheck_close(&c);
            }
        gradcheck_close(&one);
    }
}

/* ---- jobs ----------------------------------------------------------------------------------------- */

static int set_up(void **state) {
    openblas_set_num_threads(1);
    print_message("OpenBLAS core type: %s\n", openblas_get_corename());
    return make_job_folder(state);
}

typedef struct job_case {
    const char *model, *method, *tune; /* tune NULL: train */
    uint32_t workers, batch, steps;
} job_case;

static const job_case jobs[] = {
    {"mlp", "frugrad", NULL, 2, 37, 2},
    {"lenet", "frugrad", NULL, 2, 9, 3},
    {"resnet20", "dense", NULL, 1, 2, 1},
    {"gpt2-nano:length=24", "frugrad", NULL, 2, 5, 3},
    {"bert-mini:layers=1,width=80,heads=2,length=24", "dense", NULL, 1, 6, 3},
    {"bert-mlm-mini:layers=1,width=48,heads=2,length=24", "frugrad", NULL, 2, 5, 3},
    {"bert-mini:layers=2,width=32,heads=2,length=16", "dense", "cesgc", 2, 4, 5},
    {"bert-mini:layers=1,width=72,heads=2,length=16", "dense", "lora", 1, 5, 3},
    {"gpt2-nano:layers=1,length=20", "dense", "galore", 2, 4, 3},
    {"gpt2-nano:layers=1,length=20", "dense", "table", 1, 4, 3},
};

/* Trains, and loads the weights into a new graph. */
static fgt_graph *train(const job_case *k, int threads, fgt_report *report) {
    static int number;
    fgt_finetune_options tune = {.kind = k->tune, .targets = "qv", .head = "auto", .states = 2000};
    char name[20];
    snprintf(name, sizeof name, "%d", number++);
    fgt_job job = small_job(k->model, k->method, k->workers);
    job.clip = 0.5;
    job.steps = k->steps;
    job.threads = (uint32_t)threads;
    job.batch = k->batch;
    job.samples = 80;
    job.save = path_under(name);
    job.eval_batches = 1;
    job.keep = 1;
    job.tune = k->tune ? &tune : NULL;
    *report = train_job(&job, NULL);
    fgt_model model;
    fgt_data *data;
    fgt_graph *g;
    assert_int_equal(fgt_model_parse(k->model, &model), FGIO_EXIT_OK);
    fgt_data_options want = {.task = model.task,
                             .path = "builtin",
                             .length = model.length,
                             .channels = model.channels,
                             .height = model.height,
                             .width = model.width,
                             .classes = model.classes,
                             .vocab = model.vocab,
                             .samples = 80,
                             .seed = 1};
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    assert_int_equal(fgt_model_build(&model, fgt_data_get_info(data), 1, 1, &g), FGIO_EXIT_OK);
    assert_int_equal(fgt_weights_load(report->checkpoint, g, NULL), FGIO_EXIT_OK);
    fgt_data_close(data);
    return g;
}

static void training_does_not_depend_on_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char what[200];
        fgt_report want, got;
        snprintf(what, sizeof what, "%s, %s %s, %u workers", jobs[i].model, jobs[i].tune ? "finetune" : "train",
                 jobs[i].tune ? jobs[i].tune : jobs[i].method, jobs[i].workers);
        fgt_graph *one = train(&jobs[i], 1, &want);
        for (size_t t = 1; t < COUNTS; t++) {
            fgt_graph *many = train(&jobs[i], thread_counts[t], &got);
            const fgt_param *q = many->params;
            for (const fgt_param *p = one->params; p; p = p->next, q = q->next)
                same_floats(what, p->tensor.name, thread_counts[t], p->w, q->w, p->rows * p->cols);
            const fgt_buffer *c = many->buffers;
            for (const fgt_buffer *b = one->buffers; b; b = b->next, c = c->next)
                same_floats(what, b->name, thread_counts[t], b->data, c->data, b->count);
            same_number(what, "the training loss", thread_counts[t], want.train_loss, got.train_loss);
            same_number(what, "the loss", thread_counts[t], want.quality.loss, got.quality.loss);
            fgt_graph_destroy(many);
        }
        fgt_graph_destroy(one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrix_products_do_not_depend_on_threads),
        cmocka_unit_test(convolutions_do_not_depend_on_threads),
        cmocka_unit_test(training_does_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, set_up, remove_job_folder);
}
