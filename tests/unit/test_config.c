/*
 * test_config.c - the config string: what is accepted, what it means, and the errors of what is rejected.
 *
 * Accepted words are drawn from the option table itself, so a new option is covered by being there.
 */
#include "support/config_helpers.h"

#define DEFAULTS                                                                                                       \
    "rule=topk,segment=block,block=256,unit=element,score=l2,select=hist,schedule=constant:0.9375,layers=even,"        \
    "norm=off,frequency=off,strict=off,warmup=0,dense_every=0,transform=off,feedback=merged,beta=auto,hold=off,"       \
    "momentum=0.9,theta="                                                                                              \
    "0.1,"                                                                                                             \
    "mask=auto,clip=0,residual=int8,index=fixed,value=bf16,bucket=auto,levels=127,qnorm=l2,reduce=gather,down=union,"  \
    "node=0,topology=ring,gamma=0.2,average_every=0,local=0,outer=1,outer_momentum=0,mean=all,min_size=4096,"          \
    "vectors=dense,seed=0,stats=sample"

static void empty_string_means_the_defaults(void **state) {
    (void)state;
    frug_config *config = parse("");
    assert_string_equal(frug_config_text(config), DEFAULTS);
    assert_int_equal(config->rule, FRUGI_RULE_TOPK);
    assert_int_equal(config->segment, FRUGI_SEGMENT_BLOCK);
    assert_int_equal(config->unit, FRUGI_UNIT_ELEMENT);
    assert_true(config->unit_h == 1 && config->unit_w == 1);
    assert_int_equal(config->bucket, 64);
    assert_int_equal(config->block, 256);
    assert_int_equal(config->select, FRUGI_SELECT_HIST);
    assert_int_equal(config->schedule.kind, FRUGI_SCHEDULE_CONSTANT);
    assert_true(config->schedule.arg[0] == 0.9375);
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_MERGED);
    assert_true(config->beta == 0.95 && config->beta_choice == FRUGI_CHOICE_AUTO && config->momentum == 0.9);
    assert_int_equal(config->mask, FRUGI_MASK_AUTO);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_INT8);
    assert_int_equal(config->index, FRUGI_INDEX_FIXED);
    assert_int_equal(config->value, FRUGI_VALUE_BF16);
    assert_int_equal(config->min_size, 4096);
    assert_int_equal(config->vectors_dense, 1);
    assert_int_equal(config->seed, 0);
    assert_int_equal(config->stats, FRUGI_STATS_SAMPLE);
    frug_config_destroy(config);
}

static void words_set_their_enumerators(void **state) {
    (void)state;
    frug_config *config = parse("block=4096,select=exact,feedback=none,mask=off,residual=f32,index=bitmap,value=int8,"
                                "vectors=sparse,stats=full,min_size=1,seed=18446744073709551615");
    assert_int_equal(config->block, 4096);
    assert_int_equal(config->select, FRUGI_SELECT_EXACT);
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_NONE);
    assert_int_equal(config->mask, FRUGI_MASK_OFF);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_F32);
    assert_int_equal(config->index, FRUGI_INDEX_BITMAP);
    assert_int_equal(config->value, FRUGI_VALUE_INT8);
    assert_int_equal(config->vectors_dense, 0);
    assert_int_equal(config->stats, FRUGI_STATS_FULL);
    assert_int_equal(config->min_size, 1);
    assert_true(config->seed == UINT64_MAX);
    frug_config_destroy(config);

    config = parse("block=64,feedback=dgc,mask=on,residual=bf16,index=local,value=f16");
    assert_int_equal(config->block, 64);
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_DGC);
    assert_int_equal(config->mask, FRUGI_MASK_ON);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_BF16);
    assert_int_equal(config->index, FRUGI_INDEX_LOCAL);
    assert_int_equal(config->value, FRUGI_VALUE_F16);
    frug_config_destroy(config);

    config = parse("feedback=plain,residual=int4,value=f32");
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_PLAIN);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_INT4);
    assert_int_equal(config->value, FRUGI_VALUE_F32);
    frug_config_destroy(config);
}

static void rules_set_their_numbers(void **state) {
    (void)state;
    frug_config *config = parse("rule=threshold:absolute:0.125,segment=all");
    assert_int_equal(config->rule, FRUGI_RULE_THRESHOLD);
    assert_int_equal(config->threshold, FRUGI_THRESHOLD_ABSOLUTE);
    assert_true(config->threshold_at == 0.125);
    frug_config_destroy(config);
    config = parse("rule=hybrid,segment=all,frequency=on");
    assert_true(config->rule == FRUGI_RULE_HYBRID && config->hybrid_most == 64 && config->frequency == 1);
    frug_config_destroy(config);
    config = parse("rule=learned,segment=tensor");
    assert_true(config->refresh == 200 && config->age == 2000 && config->rate == 0.01);
    frug_config_destroy(config);
    config = parse("rule=learned:7:8:0.5,segment=tensor");
    assert_true(config->refresh == 7 && config->age == 8 && config->rate == 0.5);
    frug_config_destroy(config);
    assert_same("rule=threshold,segment=tensor", "rule=threshold:track,segment=tensor");
    assert_same("rule=hybrid:9,rule=hybrid,segment=all", "rule=hybrid:64,segment=all");
}

static void segments_and_units_set_their_numbers(void **state) {
    (void)state;
    frug_config *config = parse("segment=1:4,unit=tile:8x4,schedule=frugrad");
    assert_int_equal(config->segment, FRUGI_SEGMENT_GROUP);
    assert_true(config->group_keep == 1 && config->group_of == 4);
    assert_true(config->unit == FRUGI_UNIT_TILE && config->unit_h == 8 && config->unit_w == 4);
    assert_true(config->schedule.kind == FRUGI_SCHEDULE_CONSTANT && config->schedule.arg[0] == 0.75);
    frug_config_destroy(config);
    config = parse("segment=1:4,segment=tensor,unit=run:65536");
    assert_true(config->group_keep == 0 && config->group_of == 0);
    assert_true(config->unit == FRUGI_UNIT_RUN && config->unit_h == 1 && config->unit_w == 65536);
    frug_config_destroy(config);
    config = parse("segment=tensor,unit=tile:8x4,unit=head,score=given");
    assert_true(config->unit == FRUGI_UNIT_HEAD && config->unit_h == 0 && config->unit_w == 0);
    frug_config_destroy(config);
}

static void auto_bucket_depends_on_the_value_code(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t bucket;
    } cases[] = {{"value=int4", 64},
                 {"density=1,value=qsgd", 512},
                 {"density=1,value=onebit", 512},
                 {"value=int4,bucket=8", 8},
                 {"density=1,value=qsgd,bucket=65536", 65536}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        frug_config *config = parse(cases[i].text);
        assert_int_equal(config->bucket, cases[i].bucket);
        frug_config_destroy(config);
    }
}

/* The options that an item requires to be valid. */
static const char *required_options(const char *item) {
    static const struct {
        const char *item, *required;
    } pairs[] = {{"value=qsgd", "density=1,"},    {"value=onebit", "density=1,"},
                 {"score=given", "unit=head,"},   {"frequency=on", "rule=hybrid,segment=all,"},
                 {"strict=on", "layers=role,"},   {"reduce=nodes", "node=2,"},
                 {"reduce=shared", "value=f32,"}, {"reduce=gossip", "feedback=none,"},
                 {"score=l1", "unit=row,"},       {"score=max", "unit=row,"},
                 {"mask=on", "feedback=dgc,"},    {"qnorm=max", "density=1,value=qsgd,"},
                 {"down=1", "reduce=split,"},     {"down=2", "reduce=split,"},
                 {"down=4", "reduce=split,"},     {"mean=senders", "local=4,"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(pairs[i].item, item) == 0)
            return pairs[i].required;
    }
    return "";
}

/* Every word of every row, and every fallback, is accepted and shows up in the canonical text. */
static void every_option_accepts_its_documented_values(void **state) {
    (void)state;
    const frug_option *option;
    size_t tried = 0;
    for (size_t i = 0; (option = frug_option_at(i)); i++) {
        char item[256], text[300];
        snprintf(item, sizeof item, "%s=%s", option->name, option->fallback);
        assert_same(item, "");
        assert_true(strlen(option->help) > 0);
        if (!strchr(option->values, '|') || strchr(option->values, ':'))
            continue;
        char words[128];
        snprintf(words, sizeof words, "%s", option->values);
        for (char *word = strtok(words, "|"); word; word = strtok(NULL, "|"), tried++) {
            snprintf(item, sizeof item, "%s=%s", option->name, word);
            snprintf(text, sizeof text, "%s%s", required_options(item), item);
            frug_config *config = parse(text);
            if (strcmp(item, "block=auto") != 0 && strcmp(item, "block=sgd") != 0) /* their text is their value */
                assert_non_null(strstr(frug_config_text(config), item));
            frug_config_destroy(config);
        }
    }
    assert_true(tried > 50);
}

static void presets_expand_to_their_options(void **state) {
    (void)state;
    assert_same("frugrad", "");
    assert_same("dense", "schedule=constant:0,feedback=none,value=f32,reduce=dense");
    assert_same("frugrad-paper", "schedule=frugrad:0.5:0.94:0.5,select=hist,feedback=merged,residual=f32,value=f32");
    assert_same("topk", "segment=tensor,density=0.3,feedback=plain,residual=f32,index=coo,value=f32");
    assert_same("dgc",
                "segment=tensor,schedule=dgc:0.999:5:0.1,feedback=dgc,mask=on,residual=f32,value=f32,index=auto");
    assert_same("2:4", "segment=2:4,schedule=constant:0.5");
    assert_same("anneal", "schedule=anneal:0.99:0.9");
    assert_same("demo", "block=4096,schedule=constant:0.9921875,transform=cosine,beta=0.995,hold=0.8,residual=f32,"
                        "value=f32");
    assert_same("sparseloco", "local=30,mean=senders,block=4096,schedule=constant:0.984375,beta=0.95,value=two_bit");
    assert_same("gsgd", "reduce=gossip,segment=tensor,schedule=constant:0.6,feedback=none,index=auto,value=f32");
    assert_same("frugrad-sgd", "beta=0.95,hold=auto");
    assert_same("frugrad-sgd,density=0.006", "beta=0.95,hold=auto,density=0.006");
    assert_same("frugrad-sgd,density=0.005", "block=4096,beta=0.998,hold=auto,density=0.005");
    assert_same("frugrad-sgd,density=0.01,hold=off", "beta=0.95,density=0.01");
    assert_same("frugrad-sgd,density=0.001,segment=tensor", "segment=tensor,beta=0.998,hold=auto,density=0.001");
    assert_same("frugrad-sgd,density=0.001,block=64,beta=auto", "block=64,hold=auto,density=0.001");
    assert_same("frugrad-adam", "block=64,hold=adam");
    assert_same("frugrad-muon", "block=64,hold=adam");
    assert_same("frugrad-adam,density=0.01", "block=256,hold=adam,schedule=constant:0.99");
    assert_same("frugrad-muon,density=0.001", "block=4096,hold=adam,schedule=constant:0.999");
    assert_same("frugrad-adam,density=0.01,block=64", "block=64,hold=adam,schedule=constant:0.99");
    static const char *const wanted[] = {
        "dense", "frugrad", "frugrad-paper", "topk",         "randomk",      "dgc",       "qsgd",      "onebit",
        "2:4",   "rows",    "channels",      "heads",        "hybrid",       "learned",   "threshold", "anneal",
        "gsgd",  "demo",    "frugrad-sgd",   "frugrad-adam", "frugrad-muon", "sparseloco"};
    size_t count = 0;
    const frug_preset *preset;
    for (; (preset = frug_preset_at(count)); count++)
        assert_same(preset->name, preset->text);
    assert_int_equal(count, sizeof wanted / sizeof wanted[0]);
    for (size_t i = 0; i < count; i++)
        frug_config_destroy(parse(wanted[i]));
}

static void assert_same_for(const char *text, const char *optimizer, const char *same) {
    frug_config *config = NULL, *expected = parse(same);
    assert_int_equal(frug_config_create_for(text, optimizer, &config), FRUG_OK);
    assert_string_equal(frug_config_text(config), frug_config_text(expected));
    frug_config_destroy(config);
    frug_config_destroy(expected);
}

static void preset_frugrad_depends_on_the_optimizer(void **state) {
    (void)state;
    frug_config *config = NULL;
    static const char *const same[] = {
        "", "block=256", "dgc", "frugrad-paper", "frugrad-sgd", "frugrad-adam", "frugrad-muon"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_same_for(same[i], "merged", same[i]);
        assert_same_for(same[i], "adam-merged", same[i]);
    }
    assert_same_for("frugrad", "merged:momentum=0.9", "frugrad-sgd");
    assert_same_for("frugrad", "sgd", "frugrad-sgd");
    assert_same_for("frugrad", "adam-merged:beta2=0.95", "frugrad-adam");
    assert_same_for("frugrad", "muon-merged", "frugrad-muon");
    assert_same_for("frugrad,density=0.01", "muon", "hold=adam,density=0.01");
    assert_same_for("frugrad:density=0.01,block=128", "adamw", "block=128,hold=adam,density=0.01");
    assert_same_for("frugrad,hold=off", "merged", "beta=0.95");
    assert_int_equal(frug_config_create_for("frugrad,sede=1", "adamw", &config), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "at position 9"));
    assert_int_equal(frug_config_create_for("frugrad", NULL, &config), FRUG_ERR_ARG);
}

/* Unused options that only a preset sets are reset to their defaults; those of the user are rejected. */
static void unused_options_are_reset_in_presets_and_rejected_from_users(void **state) {
    (void)state;
    assert_same("frugrad-sgd,feedback=none", "feedback=none");
    assert_same("frugrad-adam,feedback=plain", "block=64,feedback=plain");
    assert_same("frugrad-adam,reduce=shared,value=f32", "block=64,reduce=shared,value=f32");
    assert_same("dgc,feedback=merged", "segment=tensor,schedule=dgc,residual=f32,index=auto,value=f32");
    assert_same("feedback=none,beta=auto,hold=off,momentum=0.9", "feedback=none"); /* defaults may always be spelled */
    static const char *const refused[] = {"hold=0.5,feedback=none",
                                          "hold=0.5,reduce=shared,value=f32",
                                          "hold=auto,reduce=shared,value=f32",
                                          "hold=adam,reduce=shared,value=f32",
                                          "hold=adam,momentum=0.8",
                                          "beta=0.9,feedback=none",
                                          "momentum=0.8",
                                          "theta=0.5",
                                          "mask=on",
                                          "score=l1",
                                          "levels=7",
                                          "qnorm=max",
                                          "down=2",
                                          "node=4",
                                          "outer=2",
                                          "outer_momentum=0.9",
                                          "mean=senders",
                                          "local=4,mean=senders,reduce=tree",
                                          "local=4,mean=senders,segment=tensor,unit=row",
                                          "feedback=ef21,reduce=auto",
                                          "dense,clip=1",
                                          "clip=1,reduce=nodes,node=2"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_refused_somehow(refused[i]);
    assert_refused("theta=0.5", "config: theta=0.5 does nothing here, it is for feedback=ef21; leave it out");
}

static void preset_accepts_options_after_comma_or_colon(void **state) {
    (void)state;
    assert_same("dgc,value=int8", "dgc:value=int8");
    assert_same("frugrad:density=0.3,block=64", "density=0.3,block=64");
    assert_same("dense:schedule=frugrad:0.1:0.2:0.3", "dense,schedule=frugrad:0.1:0.2:0.3");
    assert_same("2:4,residual=f32", "segment=2:4,residual=f32");
    assert_same("2:4:residual=f32", "segment=2:4,residual=f32");
    assert_refused("2:4:", "config: option=value expected at position 5");
    assert_refused("2:4,", "config: option=value expected at position 5");
    assert_refused("2:5", "config: unknown preset '2:5' at position 1; did you mean '2:4'?");
    assert_refused("dgx:value=int8", "config: unknown preset 'dgx' at position 1; did you mean 'dgc'?");
}

static void later_options_replace_earlier_ones(void **state) {
    (void)state;
    assert_same("value=f32,value=f16", "value=f16");
    assert_same("density=0.5,schedule=constant:0.75", "schedule=constant:0.75");
    assert_same("schedule=frugrad,density=0.25", "schedule=constant:0.75");
    assert_same("beta=0.5,beta=auto", "");
    assert_same("dgc,feedback=merged,segment=block,density=0.0625,mask=auto,residual=int8,index=fixed,value=bf16", "");
    assert_same("rule=hybrid:7,segment=2:4,unit=tile:2x2,rule=topk,segment=block,unit=element", "");
    assert_same("segment=2:4,segment=tensor,density=0.25", "density=0.25,segment=tensor");
}

static void auto_beta_depends_on_the_final_sparsity(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double beta;
    } cases[] = {{"schedule=constant:0.97999", 0.95},
                 {"schedule=constant:0.98", 0.99},
                 {"beta=auto,schedule=constant:0.99", 0.99},
                 {"schedule=frugrad", 0.95},
                 {"schedule=frugrad:0.5:0.99:0.5", 0.99},
                 {"schedule=anneal", 0.95},
                 {"schedule=anneal:0.999:0.98", 0.99},
                 {"schedule=dgc", 0.99},
                 {"schedule=relax:0.5:0.99:0.5:0.9:0.1", 0.95},
                 {"schedule=piecewise:0:0.5:1:0.99", 0.99},
                 {"segment=2:4,schedule=dgc", 0.95},
                 {"schedule=constant:0.99,beta=0.5", 0.5},
                 {"schedule=constant:0.99,hold=0.5", 0.98},
                 {"schedule=constant:0.99,hold=auto", 0.99},
                 {"schedule=constant:0.99,hold=adam", 0.98},
                 {"schedule=constant:0.995,hold=adam", 0.99},
                 {"schedule=constant:0.999,hold=adam", 0.99},
                 {"hold=0.5", 0.95},
                 {"beta=1", 1},
                 {"beta=0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        frug_config *config = parse(cases[i].text);
        if (config->beta != cases[i].beta)
            fail_msg("%s: beta is %g", cases[i].text, config->beta);
        frug_config_destroy(config);
    }
}

static void errors_name_word_position_and_nearest_word(void **state) {
    (void)state;
    assert_refused("frugrad,shedule=constant:0.9",
                   "config: unknown option 'shedule' at position 9; did you mean 'schedule'?");
    assert_refused("select=hsit", "config: unknown value 'hsit' of select at position 8; did you mean 'hist'?");
    assert_refused("value=f32,value=fp16", "config: unknown value 'fp16' of value at position 17; did you mean 'f16'?");
    assert_refused("value=fb16", "config: unknown value 'fb16' of value at position 7; did you mean 'bf16'?");
    assert_refused("block=255", "config: unknown value '255' of block at position 7; did you mean '256'?");
    assert_refused("frugrd", "config: unknown preset 'frugrd' at position 1; did you mean 'frugrad'?");
    assert_refused("schedule=constnat:0.9",
                   "config: unknown value 'constnat' of schedule at position 10; did you mean 'constant'?");
    assert_refused("schedule=0.99",
                   "config: bad value '0.99' of schedule at position 10; accepted: constant:S with 0 <= S < 1");
    assert_refused("frugrad,sparsity=0.99",
                   "config: unknown option 'sparsity' at position 9; a sparsity of 0.99 is density=0.01");
}

static void errors_list_the_accepted_values_if_none_is_near(void **state) {
    (void)state;
    assert_refused(
        "zzzzzz",
        "config: unknown preset 'zzzzzz' at position 1; accepted: frugrad frugrad-sgd frugrad-adam frugrad-muon dense "
        "frugrad-paper topk randomk dgc threshold qsgd onebit 2:4 rows channels heads learned hybrid anneal demo "
        "sparseloco gsgd");
    assert_refused("mask=perhaps", "config: unknown value 'perhaps' of mask at position 6; accepted: auto on off");
    assert_refused("dense,momentum=1", "config: bad value '1' of momentum at position 16; accepted: 0 to below 1");
    assert_refused("levels=128", "config: bad value '128' of levels at position 8; accepted: 1 to 127");
    assert_refused("min_size=-1", "config: bad value '-1' of min_size at position 10; accepted: a whole number");
    assert_refused("schedule=constant:1",
                   "config: bad value 'constant:1' of schedule at position 10; accepted: constant:S with 0 <= S < 1");
}

static void errors_explain_misplaced_items(void **state) {
    (void)state;
    assert_refused("value", "config: option 'value' at position 1 needs a value; accepted: "
                            "f32|bf16|f16|int8|int4|sign|two_bit|qsgd|onebit");
    assert_refused("dgc,value=", "config: option 'value' at position 5 needs a value; accepted: "
                                 "f32|bf16|f16|int8|int4|sign|two_bit|qsgd|onebit");
    assert_refused("value=f32,dgc", "config: preset 'dgc' at position 11 must come first");
    assert_refused("dgc,", "config: option=value expected at position 5");
    assert_refused("value=f32,", "config: option=value expected at position 11");
    assert_refused("dgc:", "config: option=value expected at position 5");
    assert_refused(",dgc", "config: option=value expected at position 1");
    assert_refused("value=f32,,seed=1", "config: option=value expected at position 11");
    assert_refused("dgc, value=f32", "config: blank at position 5; items are separated by ',' alone");
    assert_refused("dgc\n", "config: byte 0x0a at position 4 is not allowed");
    assert_refused("caf\xc3\xa9", "config: byte 0xc3 at position 4 is not allowed");
}

static const char *const bad_numbers[] = {"density=0",
                                          "density=-0.5",
                                          "density=1.0001",
                                          "density=nan",
                                          "density=inf",
                                          "density=1e999",
                                          "density=0x1",
                                          "density=0.5x",
                                          "density=+0.5",
                                          "density=.",
                                          "density=1e",
                                          "density=0,5",
                                          "density=1e-300",
                                          "density=0.5:1",
                                          "beta=1.5",
                                          "beta=-1",
                                          "beta=autos",
                                          "beta=e5",
                                          "momentum=1",
                                          "seed=18446744073709551616",
                                          "seed=1.0",
                                          "seed=1e3",
                                          "min_size=0x10",
                                          "schedule=constant",
                                          "schedule=constant:",
                                          "schedule=constant:0.5:0.5",
                                          "schedule=frugrad:",
                                          "schedule=frugrad:0.5",
                                          "schedule=frugrad:0.5:0.9",
                                          "schedule=frugrad:0.9:0.5:0.5",
                                          "schedule=frugrad:0.5:0.9:0",
                                          "schedule=frugrad:0.5:0.9:1.1",
                                          "schedule=frugrad:0.5:1:0.5",
                                          "schedule=frugrad:0.5:0.9:0.5:",
                                          "schedule=frugrad:0.5:0.9:0.5:1",
                                          "schedule=frugrad:::",
                                          "schedule=anneal:0.9",
                                          "schedule=anneal:0.9:0.99",
                                          "schedule=anneal:1:0.9",
                                          "schedule=dgc:0.9",
                                          "schedule=dgc:0.9:0:0.1",
                                          "schedule=dgc:0.9:2.5:0.1",
                                          "schedule=dgc:0.9:101:0.1",
                                          "schedule=dgc:0.9:5:0",
                                          "schedule=relax:0.5:0.94:0.5",
                                          "schedule=relax:0.5:0.94:0.95:0.9:0.1",
                                          "schedule=relax:0.5:0.94:0.5:0.95:0.1",
                                          "schedule=relax:0.5:0.94:0.5:0.9:0",
                                          "schedule=piecewise",
                                          "schedule=piecewise:0:0.5",
                                          "schedule=piecewise:0:0.5:1",
                                          "schedule=piecewise:0.5:0.5:0.5:0.6",
                                          "schedule=piecewise:0.5:0.5:0.4:0.6",
                                          "schedule=piecewise:0:0.5:1.1:0.6",
                                          "schedule=piecewise:0:0.5:1:1",
                                          "schedule=piecewise:0:0:.1:0:.2:0:.3:0:.4:0:.5:0:.6:0:.7:0:.8:0",
                                          "rule=topk:1",
                                          "rule=threshold:absolute,segment=all",
                                          "rule=threshold:absolute:0,segment=all",
                                          "rule=threshold:absolute:-1,segment=all",
                                          "rule=threshold:absolute:inf,segment=all",
                                          "rule=threshold:track:1,segment=all",
                                          "rule=threshold:,segment=all",
                                          "rule=hybrid:0,segment=all",
                                          "rule=hybrid:4097,segment=all",
                                          "rule=hybrid:,segment=all",
                                          "rule=learned:200,segment=tensor",
                                          "rule=learned:0:1:0.5,segment=tensor",
                                          "rule=learned:1:0:0.5,segment=tensor",
                                          "rule=learned:1:1:0,segment=tensor",
                                          "rule=learned:1:1:0.5:1,segment=tensor",
                                          "rule=random:1",
                                          "segment=0:4",
                                          "segment=4",
                                          "segment=2:257",
                                          "segment=2:",
                                          "segment=:4",
                                          "segment=2:4:8",
                                          "segment=N:M",
                                          "segment=block:4",
                                          "unit=run",
                                          "unit=run:1",
                                          "unit=run:65537",
                                          "unit=tile:1x1",
                                          "unit=tile:8",
                                          "unit=tile:8x",
                                          "unit=tile:0x8",
                                          "unit=tile:8x1025",
                                          "unit=tile:8x8x8",
                                          "unit=row:2",
                                          "unit=element:",
                                          "theta=0",
                                          "theta=1.1",
                                          "clip=-1",
                                          "levels=0",
                                          "bucket=0",
                                          "bucket=12",
                                          "bucket=65544",
                                          "warmup=-1",
                                          "schedule=:"};

static void numbers_out_of_range_or_malformed_are_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_numbers / sizeof bad_numbers[0]; i++)
        assert_refused_somehow(bad_numbers[i]);
    assert_same("density=1.", "density=1");
    assert_same("density=.5", "density=5e-1");
    assert_same("schedule=constant:-0", "schedule=constant:0");
}

static void overlong_text_is_rejected(void **state) {
    (void)state;
    char text[2200];
    memset(text, 'a', sizeof text);
    text[2048] = '\0';
    assert_refused_somehow(text); /* one word of the longest length allowed: unknown, but read */
    text[2048] = 'a';
    text[2199] = '\0';
    assert_refused(text, "config: more than 2048 characters");
    assert_int_equal(frug_config_create(NULL, (frug_config **)&text), FRUG_ERR_ARG);
    assert_int_equal(frug_config_create("", NULL), FRUG_ERR_ARG);
}

static void count_warnings(void *ctx, frug_log_level level, const char *message) {
    if (level == FRUG_LOG_WARN && strstr(message, "density"))
        ++*(int *)ctx;
}

static void density_below_one_entry_in_all_phases_is_warned_about(void **state) {
    (void)state;
    int warnings = 0;
    frug_set_log(count_warnings, &warnings);
    frug_config_destroy(parse("density=0.00025"));
    frug_config_destroy(parse("dgc"));
    assert_int_equal(warnings, 0);
    frug_config_destroy(parse("density=0.0002"));
    frug_set_log(NULL, NULL);
    assert_int_equal(warnings, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_string_means_the_defaults),
        cmocka_unit_test(words_set_their_enumerators),
        cmocka_unit_test(rules_set_their_numbers),
        cmocka_unit_test(segments_and_units_set_their_numbers),
        cmocka_unit_test(auto_bucket_depends_on_the_value_code),
        cmocka_unit_test(every_option_accepts_its_documented_values),
        cmocka_unit_test(presets_expand_to_their_options),
        cmocka_unit_test(preset_frugrad_depends_on_the_optimizer),
        cmocka_unit_test(unused_options_are_reset_in_presets_and_rejected_from_users),
        cmocka_unit_test(preset_accepts_options_after_comma_or_colon),
        cmocka_unit_test(later_options_replace_earlier_ones),
        cmocka_unit_test(auto_beta_depends_on_the_final_sparsity),
        cmocka_unit_test(errors_name_word_position_and_nearest_word),
        cmocka_unit_test(errors_list_the_accepted_values_if_none_is_near),
        cmocka_unit_test(errors_explain_misplaced_items),
        cmocka_unit_test(numbers_out_of_range_or_malformed_are_rejected),
        cmocka_unit_test(overlong_text_is_rejected),
        cmocka_unit_test(density_below_one_entry_in_all_phases_is_warned_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
