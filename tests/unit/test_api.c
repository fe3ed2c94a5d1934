/*
 * test_api.c - what include/frugrad promises to callers compiled against another release: structs of another size,
 * options of a config one by one, decoders that know the layout only.
 */
#include "support/assertions.h"
#include "support/test_layouts.h"
#include "support/thread_group.h"

#include <stdbool.h>
#include <stdio.h>

enum { FILL = 0xA5, SPARE = 64, STEPS = 1000 };

#define ROWS 300u

/** A struct of a newer release: the same fields and more behind them. */
#define NEWER(type)                                                                                                    \
    struct {                                                                                                           \
        type now;                                                                                                      \
        unsigned char later[SPARE];                                                                                    \
    }

/* ---- structs that the library reads --------------------------------------------------------- */

/* The source and the length of training of a frame: both are behind `threads`. */
static void compress_with(const frug_compressor_options *options, unsigned char **frame, size_t *len) {
    frug_layout *layout = make_test_layout(ROWS);
    float *grad = make_test_gradient(layout, 3);
    frug_compressor *c = make_compressor("frugrad", layout, options);
    *frame = compress_range(c, 2, 0, frug_layout_elements(layout), grad, len);
    frug_compressor_destroy(c);
    test_free(grad);
    frug_layout_destroy(layout);
}

static bool same_frame(const frug_compressor_options *a, const frug_compressor_options *b) {
    unsigned char *x, *y;
    size_t n, m;
    compress_with(a, &x, &n);
    compress_with(b, &y, &m);
    bool same = n == m && memcmp(x, y, n) == 0;
    test_free(x);
    test_free(y);
    return same;
}

static void compressor_options_may_have_another_size(void **state) {
    (void)state;
    frug_compressor_options plain = FRUG_COMPRESSOR_OPTIONS_INIT, full = plain, shorter = plain;
    full.total_steps = shorter.total_steps = STEPS;
    full.source = shorter.source = 7;
    assert_false(same_frame(&full, &plain));
    shorter.struct_size = offsetof(frug_compressor_options, source);
    plain.total_steps = STEPS;
    assert_true(same_frame(&shorter, &plain));
    plain.total_steps = 0;
    shorter.struct_size = offsetof(frug_compressor_options, total_steps);
    assert_true(same_frame(&shorter, &plain));
    shorter.threads = -1; /* is not read either */
    shorter.struct_size = sizeof(size_t);
    assert_true(same_frame(&shorter, &plain));

    NEWER(frug_compressor_options) newer;
    memset(&newer, FILL, sizeof newer);
    newer.now = full;
    newer.now.struct_size = sizeof newer;
    assert_true(same_frame(&newer.now, &full));
}

static void compressor_options_without_a_size_are_an_error(void **state) {
    (void)state;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_compressor *c = NULL;
    OK(frug_config_create("frugrad", &config));
    OK(frug_layout_flat(1000, &layout));
    for (options.struct_size = 0; options.struct_size < sizeof(size_t); options.struct_size++)
        assert_int_equal(frug_compressor_create(config, layout, &options, &c), FRUG_ERR_ARG);
    assert_null(c);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
}

/** A tensor with every field set, that of the offset to a gap. */
static frug_tensor full_tensor(void) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = "q";
    t.role = FRUG_ROLE_ATTN_Q;
    t.ndim = 2;
    t.shape[0] = t.shape[1] = 64;
    t.offset = 100;
    t.heads = 8;
    t.kv_heads = 2;
    t.module = 5;
    t.input_first = 1;
    return t;
}

static frug_tensor added_as(const frug_tensor *tensor) {
    frug_layout *layout = NULL;
    frug_tensor back = FRUG_TENSOR_INIT;
    OK(frug_layout_create(&layout));
    OK(frug_layout_add(layout, tensor));
    OK(frug_layout_get(layout, 0, &back));
    assert_string_equal(back.name, tensor->name);
    frug_layout_destroy(layout);
    back.name = NULL;
    return back;
}

static void tensors_may_have_another_size(void **state) {
    (void)state;
    frug_tensor t = full_tensor(), back;
    t.struct_size = offsetof(frug_tensor, offset);
    back = added_as(&t);
    assert_int_equal(back.struct_size, sizeof back);
    assert_int_equal(back.offset, 0); /* appended */
    assert_int_equal(back.heads | back.kv_heads | back.module | back.input_first, 0);
    t.struct_size = offsetof(frug_tensor, kv_heads);
    back = added_as(&t);
    assert_int_equal(back.offset, 100);
    assert_int_equal(back.heads, 8);
    assert_int_equal(back.kv_heads | back.module | back.input_first, 0);

    NEWER(frug_tensor) newer;
    memset(&newer, FILL, sizeof newer);
    newer.now = full_tensor();
    newer.now.struct_size = sizeof newer;
    back = added_as(&newer.now);
    t = full_tensor();
    t.name = NULL;
    assert_same_bits(&back, &t, offsetof(frug_tensor, absent) + sizeof t.absent); /* padding may differ */
}

static void tensors_without_a_size_are_an_error(void **state) {
    (void)state;
    frug_tensor t = full_tensor();
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    for (t.struct_size = 0; t.struct_size <= offsetof(frug_tensor, name); t.struct_size++)
        assert_int_equal(frug_layout_add(layout, &t), FRUG_ERR_ARG); /* the last one has a size, but no name */
    assert_int_equal(frug_layout_count(layout), 0);
    frug_layout_destroy(layout);
}

enum { FLAT = 4096 };

static frug_reducer *make_reducer(frug_comm *comm) {
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *r = NULL;
    OK(frug_config_create("dense", &config));
    OK(frug_layout_flat(FLAT, &layout));
    OK(frug_reducer_create(config, layout, NULL, comm, &r));
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return r;
}

static void count_done(void *ctx, const frug_bucket *bucket, frug_status status) {
    (void)bucket;
    *(int *)ctx += status == FRUG_OK;
}

/* The bucket reaches as far as size says; `scaled` is what the sum is scaled by. */
static void submit_sized(frug_bucket *bucket, size_t size, float scaled, int calls) {
    frug_comm *comm = NULL;
    int done = 0;
    float *grad = bell_array(FLAT, 5), *before = bell_array(FLAT, 5);
    OK(frug_comm_self(&comm));
    frug_reducer *r = make_reducer(comm);
    *bucket = (frug_bucket){size, 0, {0, FLAT}, grad, NULL, 0, 0, 0.25, count_done, &done};
    OK(frug_reducer_submit(r, bucket));
    OK(frug_reducer_finish(r));
    for (size_t i = 0; i < FLAT; i++)
        if (grad[i] != scaled * before[i])
            fail_msg("element %zu is %g, not %g", i, (double)grad[i], (double)(scaled * before[i]));
    assert_int_equal(done, calls);
    bucket->struct_size = 0;
    assert_int_equal(frug_reducer_submit(r, bucket), FRUG_ERR_ARG);
    frug_reducer_destroy(r);
    frug_comm_destroy(comm);
    test_free(grad);
    test_free(before);
}

static void buckets_may_have_another_size(void **state) {
    (void)state;
    NEWER(frug_bucket) newer;
    frug_bucket bucket;
    submit_sized(&bucket, sizeof bucket, 0.25f, 1);
    submit_sized(&bucket, offsetof(frug_bucket, done), 0.25f, 0);
    submit_sized(&bucket, offsetof(frug_bucket, scale), 1.0f, 0);
    submit_sized(&bucket, offsetof(frug_bucket, weights), 1.0f, 0);
    memset(&newer, FILL, sizeof newer);
    submit_sized(&newer.now, sizeof newer, 0.25f, 1);
}

static void cost_inputs_may_have_another_size(void **state) {
    (void)state;
    frug_cost_inputs base = FRUG_COST_INPUTS_INIT, given = base;
    frug_cost_estimate a = {.struct_size = sizeof a}, b = a, c = a;
    base.params = given.params = 1000000;
    base.workers = given.workers = 8;
    given.latency = 1e-3;
    given.bandwidth = 1e9;
    given.density = 0.01;
    given.payload = 1e5;
    given.compute = 0.5;
    OK(frug_cost_predict("gather", &base, &a));
    OK(frug_cost_predict("gather", &given, &c));
    assert_memory_not_equal(&a, &c, sizeof a);
    given.struct_size = offsetof(frug_cost_inputs, latency);
    OK(frug_cost_predict("gather", &given, &b));
    assert_same_bits(&a, &b, sizeof a);

    NEWER(frug_cost_inputs) newer;
    memset(&newer, FILL, sizeof newer);
    newer.now = given;
    newer.now.struct_size = sizeof newer;
    OK(frug_cost_predict("gather", &newer.now, &b));
    assert_same_bits(&c, &b, sizeof b);
    given.struct_size = 0;
    assert_int_equal(frug_cost_predict("gather", &given, &b), FRUG_ERR_ARG);
}

static frug_status accept_message(void *ctx, frug_message *message) {
    (void)ctx;
    message->done = 1;
    return FRUG_OK;
}

static frug_status count_exchange(void *ctx, frug_message *messages, size_t n) {
    ++*(int *)ctx;
    for (size_t i = 0; i < n; i++)
        messages[i].done = 1;
    return FRUG_OK;
}

static void count_destroy(void *ctx) {
    *(int *)ctx += 100;
}

/* What is called when rank 0 of two sends a message and its comm is destroyed. */
static int calls_of(const frug_transport *table) {
    frug_comm *comm = NULL;
    int calls = 0;
    OK(frug_comm_create(table, &calls, 0, 2, &comm));
    assert_string_equal(frug_comm_transport(comm), "test");
    OK(frug_comm_send(comm, 1, "x", 1));
    frug_comm_destroy(comm);
    return calls;
}

static void transports_may_have_another_size(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    frug_transport table = {.struct_size = sizeof table, .name = "test", .any_thread = 1};
    table.destroy = count_destroy;
    table.exchange = count_exchange;
    assert_int_equal(calls_of(&table), 101);
    table.post = table.test = accept_message;
    table.struct_size = offsetof(frug_transport, exchange);
    assert_int_equal(calls_of(&table), 100);
    table.struct_size = offsetof(frug_transport, destroy);
    assert_int_equal(calls_of(&table), 0);
    table.struct_size = offsetof(frug_transport, wait);
    assert_int_equal(calls_of(&table), 0);
    table.struct_size = offsetof(frug_transport, test); /* now it lacks a function that it needs */
    assert_int_equal(frug_comm_create(&table, NULL, 0, 2, &comm), FRUG_ERR_ARG);
    table.struct_size = 0;
    assert_int_equal(frug_comm_create(&table, NULL, 0, 2, &comm), FRUG_ERR_ARG);
    assert_null(comm);

    NEWER(frug_transport) newer;
    memset(&newer, FILL, sizeof newer);
    newer.now = table;
    newer.now.post = newer.now.test = NULL;
    newer.now.struct_size = sizeof newer;
    assert_int_equal(calls_of(&newer.now), 101);
}

/* Two ranks with options of an older caller, which end before `source`: their frames still have the rank. */
static frug_status sum_with_short_options(frug_comm *comm, void *shared) {
    uint32_t *source = shared;
    frug_compressor_options shorter = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *r = NULL;
    unsigned char frame[4 * FLAT + 4096];
    float grad[FLAT] = {1};
    size_t len = 0;
    frug_frame_info info = {.struct_size = sizeof info};
    shorter.struct_size = offsetof(frug_compressor_options, total_steps);
    shorter.total_steps = (uint64_t)frug_comm_rank(comm); /* is not read: ranks would disagree */
    frug_status status = frug_config_create("dense", &config);
    if (status == FRUG_OK)
        status = frug_layout_flat(FLAT, &layout);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, &shorter, comm, &r);
    if (status == FRUG_OK)
        status = frug_compress(frug_reducer_compressor(r), 0, (frug_range){0, FLAT}, grad, frame, sizeof frame, &len);
    if (status == FRUG_OK)
        status = frug_frame_check(frame, len, &info);
    source[frug_comm_rank(comm)] = info.source;
    frug_reducer_destroy(r);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return status;
}

static void options_of_reducers_may_have_another_size(void **state) {
    (void)state;
    thread_worker member[2];
    uint32_t source[2] = {9, 9};
    run_workers(2, sum_with_short_options, source, 20, member);
    for (uint32_t i = 0; i < 2; i++) {
        if (member[i].status != FRUG_OK)
            fail_msg("rank %u: %s", i, member[i].error);
        assert_int_equal(source[i], i);
    }
}

/* ---- structs that the library writes -------------------------------------------------------- */

/** Objects whose state does not change between two questions. */
typedef struct subject {
    frug_layout *layout;
    frug_compressor *compressor;
    frug_comm *comm;
    frug_reducer *reducer;
    frug_optimizer *optimizer;
    unsigned char *frame;
    size_t len;
} subject;

typedef frug_status describe_fn(subject *s, void *dst);

static frug_status describe_stats(subject *s, void *dst) {
    return frug_compressor_stats(s->compressor, dst);
}

static frug_status describe_plan(subject *s, void *dst) {
    return frug_compressor_plan(s->compressor, 2, 0, dst);
}

static frug_status describe_tensor(subject *s, void *dst) {
    return frug_layout_get(s->layout, 3, dst);
}

static frug_status describe_frame(subject *s, void *dst) {
    return frug_frame_check(s->frame, s->len, dst);
}

static frug_status describe_section(subject *s, void *dst) {
    return frug_frame_section(s->frame, s->len, 0, dst);
}

static frug_status describe_reduce(subject *s, void *dst) {
    return frug_reducer_stats(s->reducer, dst);
}

static frug_status describe_bucket(subject *s, void *dst) {
    return frug_reducer_bucket(s->reducer, 0, dst);
}

static frug_status describe_cost(subject *s, void *dst) {
    (void)s;
    frug_cost_inputs inputs = FRUG_COST_INPUTS_INIT;
    inputs.params = 1000;
    inputs.workers = 4;
    inputs.payload = 400;
    return frug_cost_predict("gather", &inputs, dst);
}

static frug_status describe_times(subject *s, void *dst) {
    return frug_optimizer_time(s->optimizer, dst);
}

typedef struct output {
    const char *name;
    size_t size;
    size_t pad_begin, pad_end; /* padding, which has no defined bytes */
    describe_fn *describe;
} output;

static const output outputs[] = {
    {"frug_stats", sizeof(frug_stats), 0, 0, describe_stats},
    {"frug_tensor_plan", sizeof(frug_tensor_plan), offsetof(frug_tensor_plan, dense) + sizeof(int),
     offsetof(frug_tensor_plan, unit), describe_plan},
    {"frug_tensor", sizeof(frug_tensor), 0, 0, describe_tensor},
    {"frug_frame_info", sizeof(frug_frame_info), 0, 0, describe_frame},
    {"frug_section_info", sizeof(frug_section_info), 0, 0, describe_section},
    {"frug_reduce_stats", sizeof(frug_reduce_stats), 0, 0, describe_reduce},
    {"frug_bucket_stats", sizeof(frug_bucket_stats), 0, 0, describe_bucket},
    {"frug_cost_estimate", sizeof(frug_cost_estimate), 0, 0, describe_cost},
    {"frug_optimizer_times", sizeof(frug_optimizer_times), 0, 0, describe_times},
};

enum { LONGEST = 512 };

static frug_status describe_sized(const output *o, subject *s, size_t size, unsigned char *dst) {
    memset(dst, FILL, LONGEST);
    memcpy(dst, &size, sizeof size);
    return o->describe(s, dst);
}

/* With a struct of `size` bytes the first bytes are those of the full struct, and nothing else is written. */
static void check_output(const output *o, subject *s, const unsigned char *full, size_t size) {
    _Alignas(16) unsigned char got[LONGEST];
    size_t back, shared = size < o->size ? size : o->size;
    OK(describe_sized(o, s, size, got));
    memcpy(&back, got, sizeof back);
    if (back != size)
        fail_msg("%s: struct_size %zu became %zu", o->name, size, back);
    for (size_t i = sizeof back; i < LONGEST; i++)
        if (got[i] != (i < shared ? full[i] : FILL) && (i < o->pad_begin || i >= o->pad_end))
            fail_msg("%s: with struct_size %zu byte %zu is %u", o->name, size, i, got[i]);
}

static void open_subject(subject *s) {
    s->layout = make_test_layout(ROWS);
    uint64_t n = frug_layout_elements(s->layout);
    float *grad = make_test_gradient(s->layout, 3);
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    s->compressor = make_compressor("frugrad,min_size=0", s->layout, &options);
    s->frame = compress_range(s->compressor, 2, 0, n, grad, &s->len);
    OK(frug_comm_self(&s->comm));
    s->reducer = make_reducer(s->comm);
    OK(frug_reducer_sum(s->reducer, 0, (frug_range){0, FLAT}, grad, 1));
    OK(frug_optimizer_create("sgd", s->layout, s->compressor, &s->optimizer));
    test_free(grad);
}

static void close_subject(subject *s) {
    frug_optimizer_destroy(s->optimizer);
    frug_reducer_destroy(s->reducer);
    frug_comm_destroy(s->comm);
    frug_compressor_destroy(s->compressor);
    frug_layout_destroy(s->layout);
    test_free(s->frame);
}

static void outputs_are_written_as_far_as_they_reach(void **state) {
    (void)state;
    subject s = {0};
    open_subject(&s);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const output *o = &outputs[i];
        _Alignas(16) unsigned char full[LONGEST], got[LONGEST];
        assert_true(o->size + SPARE <= LONGEST);
        OK(describe_sized(o, &s, o->size, full));
        for (size_t size = sizeof(size_t); size <= o->size + SPARE; size++)
            check_output(o, &s, full, size);
        for (size_t size = 0; size < sizeof(size_t); size++)
            assert_int_equal(describe_sized(o, &s, size, got), FRUG_ERR_ARG);
        assert_int_equal(o->describe(&s, NULL), FRUG_ERR_ARG);
    }
    close_subject(&s);
}

/* ---- options one by one ---------------------------------------------------------------------- */

/* All options with a value, in the order of the table, are the text. */
static void check_options(const char *text) {
    frug_config *config = NULL;
    char joined[4096] = "";
    size_t used = 0;
    if (frug_config_create(text, &config) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    for (size_t i = 0; frug_option_at(i) != NULL; i++) {
        const char *name = frug_option_at(i)->name, *value = frug_config_get(config, name);
        if (value)
            used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s=%s", used ? "," : "", name, value);
        assert_true(used < sizeof joined);
    }
    assert_string_equal(joined, frug_config_text(config));
    assert_null(frug_config_get(config, "nonsense"));
    assert_null(frug_config_get(config, ""));
    assert_null(frug_config_get(config, NULL));
    assert_null(frug_config_get(NULL, "residual"));
    assert_null(frug_config_get(config, "residua"));
    assert_null(frug_config_get(config, "residual=f32"));
    assert_null(frug_config_get(config, frug_config_get(config, "residual"))); /* a value is not a name */
    frug_config_destroy(config);
}

static void every_option_is_in_the_text(void **state) {
    (void)state;
    for (size_t i = 0; frug_preset_at(i) != NULL; i++)
        check_options(frug_preset_at(i)->name);
    check_options("");
    check_options("frugrad,value=int8,residual=f32,reduce=split");
}

static void an_option_has_the_value_that_was_set(void **state) {
    (void)state;
    frug_config *config = NULL;
    OK(frug_config_create("frugrad,residual=int8,value=int4,value=int8", &config));
    assert_string_equal(frug_config_get(config, "residual"), "int8");
    assert_string_equal(frug_config_get(config, "value"), "int8");
    frug_config_destroy(config);
}

/* ---- decoders --------------------------------------------------------------------------------- */

enum { SENDERS = 3 };

static const char *const decoded_configs[] = {"frugrad",   "dense",   "topk",   "qsgd",   "onebit",
                                              "2:4",       "rows",    "heads",  "dgc",    "channels",
                                              "threshold", "randomk", "hybrid", "learned"};

/** The frames of several senders, of one config. */
typedef struct sent_frames {
    frug_compressor *compressor[SENDERS];
    unsigned char *frame[SENDERS];
    const void *frames[SENDERS];
    size_t lens[SENDERS];
} sent_frames;

static void send_frames(const char *config, const frug_layout *layout, sent_frames *s) {
    for (uint32_t i = 0; i < SENDERS; i++) {
        float *grad = make_test_gradient(layout, i + 1);
        frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
        options.source = i;
        s->compressor[i] = make_compressor(config, layout, &options);
        s->frame[i] = compress_range(s->compressor[i], 4, 0, frug_layout_elements(layout), grad, &s->lens[i]);
        s->frames[i] = s->frame[i];
        test_free(grad);
    }
}

static void free_frames(sent_frames *s) {
    for (int i = 0; i < SENDERS; i++) {
        frug_compressor_destroy(s->compressor[i]);
        test_free(s->frame[i]);
    }
}

static void a_decoder_needs_the_layout_only(void **state) {
    (void)state;
    frug_layout *layout = make_test_layout(ROWS);
    frug_range all = {0, frug_layout_elements(layout)};
    size_t bytes = all.count * sizeof(float);
    frug_decoder *alone[2] = {NULL};
    OK(frug_decoder_create(layout, 1, &alone[0]));
    OK(frug_decoder_create(layout, 3, &alone[1]));
    for (size_t k = 0; k < sizeof decoded_configs / sizeof *decoded_configs; k++) {
        sent_frames s;
        send_frames(decoded_configs[k], layout, &s);
        frug_decoder *own = frug_compressor_decoder(s.compressor[1]);
        float *added = bell_array(all.count, 9), *applied = bell_array(all.count, 9);
        OK(frug_decode_add(own, all, s.frames, s.lens, SENDERS, 0.3, added));
        OK(frug_decode_apply(own, all, s.frames, s.lens, SENDERS, 0.1, 0.01, applied));
        for (int d = 0; d < 2; d++) {
            float *x = bell_array(all.count, 9), *y = bell_array(all.count, 9);
            OK(frug_decode_add(alone[d], all, s.frames, s.lens, SENDERS, 0.3, x));
            OK(frug_decode_apply(alone[d], all, s.frames, s.lens, SENDERS, 0.1, 0.01, y));
            assert_same_bits(x, added, bytes);
            assert_same_bits(y, applied, bytes);
            test_free(x);
            test_free(y);
        }
        test_free(added);
        test_free(applied);
        free_frames(&s);
    }
    frug_decoder_destroy(alone[0]);
    frug_decoder_destroy(alone[1]);
    frug_layout_destroy(layout);
}

static void a_decoder_of_another_layout_rejects_the_frames(void **state) {
    (void)state;
    frug_layout *layout = make_test_layout(ROWS), *other = NULL;
    frug_range all = {0, frug_layout_elements(layout)};
    frug_decoder *decoder = NULL;
    OK(frug_layout_flat(all.count, &other)); /* as long, but of one tensor */
    OK(frug_decoder_create(other, 1, &decoder));
    for (size_t k = 0; k < sizeof decoded_configs / sizeof *decoded_configs; k++) {
        sent_frames s;
        send_frames(decoded_configs[k], layout, &s);
        float *x = bell_array(all.count, 9), *before = bell_array(all.count, 9);
        assert_int_equal(frug_decode_add(decoder, all, s.frames, s.lens, SENDERS, 1, x), FRUG_ERR_MISMATCH);
        assert_int_equal(frug_decode_apply(decoder, all, s.frames, s.lens, SENDERS, 1, 0.5, x), FRUG_ERR_MISMATCH);
        assert_same_bits(x, before, all.count * sizeof *x);
        test_free(x);
        test_free(before);
        free_frames(&s);
    }
    frug_decoder_destroy(decoder);
    frug_layout_destroy(other);
    frug_layout_destroy(layout);
}

static void a_decoder_needs_valid_arguments(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    frug_decoder *decoder = NULL;
    OK(frug_layout_flat(1000, &layout));
    assert_int_equal(frug_decoder_create(NULL, 1, &decoder), FRUG_ERR_ARG);
    assert_int_equal(frug_decoder_create(layout, -1, &decoder), FRUG_ERR_ARG);
    assert_int_equal(frug_decoder_create(layout, 1, NULL), FRUG_ERR_ARG);
    assert_null(decoder);
    frug_decoder_destroy(NULL);
    assert_null(frug_compressor_decoder(NULL));
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressor_options_may_have_another_size),
        cmocka_unit_test(compressor_options_without_a_size_are_an_error),
        cmocka_unit_test(tensors_may_have_another_size),
        cmocka_unit_test(tensors_without_a_size_are_an_error),
        cmocka_unit_test(buckets_may_have_another_size),
        cmocka_unit_test(cost_inputs_may_have_another_size),
        cmocka_unit_test(transports_may_have_another_size),
        cmocka_unit_test(options_of_reducers_may_have_another_size),
        cmocka_unit_test(outputs_are_written_as_far_as_they_reach),
        cmocka_unit_test(every_option_is_in_the_text),
        cmocka_unit_test(an_option_has_the_value_that_was_set),
        cmocka_unit_test(a_decoder_needs_the_layout_only),
        cmocka_unit_test(a_decoder_of_another_layout_rejects_the_frames),
        cmocka_unit_test(a_decoder_needs_valid_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
