/*
 * validate.c - check that options go together.
 *
 * Each value has been accepted on its own; this file checks the config as a whole, after auto has been resolved.
 * Combinations that are impossible or have no effect are errors, and the error text gives the reason and the
 * alternative: an option that is silently ignored falsifies an experiment. Options that the configured method does not
 * use at all are handled in unused_options.c.
 */
#include "config/option_table.h"

static const char *const layers_words[] = {"even", "role", "budget", "sensitivity"};
static const char *const value_words[] = {"f32", "bf16", "f16", "int8", "int4", "sign", "two_bit", "qsgd", "onebit"};

static frug_status check_segment(const frug_config *c) {
    int whole = c->segment == FRUGI_SEGMENT_TENSOR || c->segment == FRUGI_SEGMENT_ALL;
    int needs_whole =
        c->rule == FRUGI_RULE_THRESHOLD || c->rule == FRUGI_RULE_PROBABILISTIC || c->rule == FRUGI_RULE_HYBRID;
    FRUG_FAIL_IF(needs_whole && !whole, FRUG_ERR_CONFIG,
                 "config: rule=%s selects from whole tensors, so it needs segment=tensor or segment=all",
                 frugi_rule_word(c->rule));
    FRUG_FAIL_IF(c->rule == FRUGI_RULE_LEARNED && c->segment != FRUGI_SEGMENT_TENSOR, FRUG_ERR_CONFIG,
                 "config: rule=learned has one mask per tensor, so it needs segment=tensor");
    FRUG_FAIL_IF(c->rule == FRUGI_RULE_RANDOM && c->segment == FRUGI_SEGMENT_GROUP, FRUG_ERR_CONFIG,
                 "config: rule=random does not support groups of %u; choose segment=tensor, or rule=topk", c->group_of);
    return FRUG_OK;
}

static frug_status check_unit(const frug_config *c) {
    int single = c->rule == FRUGI_RULE_PROBABILISTIC || c->rule == FRUGI_RULE_HYBRID;
    FRUG_FAIL_IF(single && c->unit != FRUGI_UNIT_ELEMENT, FRUG_ERR_CONFIG,
                 "config: rule=%s selects single entries, so it needs unit=element, not unit=%s",
                 frugi_rule_word(c->rule), frugi_unit_word(c->unit));
    FRUG_FAIL_IF(c->segment == FRUGI_SEGMENT_ALL && c->unit >= FRUGI_UNIT_ROW, FRUG_ERR_CONFIG,
                 "config: a %s differs in size from tensor to tensor, so unit=%s needs segment=tensor, not segment=all",
                 frugi_unit_word(c->unit), frugi_unit_word(c->unit));
    FRUG_FAIL_IF(c->score == FRUGI_SCORE_GIVEN && c->unit != FRUGI_UNIT_HEAD, FRUG_ERR_CONFIG,
                 "config: score=given takes a number per attention head, so it needs unit=head");
    return FRUG_OK;
}

/* Whether the method can reach the densities that are asked for. */
static frug_status check_density(const frug_config *c) {
    double density = 1.0 - frugi_final_sparsity(&c->schedule);
    int varied = c->layers != FRUGI_LAYERS_EVEN || c->norm != FRUGI_NORM_OFF;
    FRUG_FAIL_IF(
        c->rule == FRUGI_RULE_HYBRID && density * c->block > c->hybrid_most, FRUG_ERR_CONFIG,
        "config: rule=hybrid:%u sends at most %u of a block of %u, less than the schedule asks for; raise MOST or "
        "lower the density",
        c->hybrid_most, c->hybrid_most, c->block);
    FRUG_FAIL_IF(c->segment == FRUGI_SEGMENT_ALL && c->layers != FRUGI_LAYERS_EVEN, FRUG_ERR_CONFIG,
                 "config: segment=all lets tensors compete for one budget, so layers=%s has nothing to divide; choose "
                 "layers=even or segment=tensor",
                 layers_words[c->layers]);
    FRUG_FAIL_IF(varied && c->segment == FRUGI_SEGMENT_GROUP, FRUG_ERR_CONFIG,
                 "config: segment=%u:%u fixes what every tensor sends; choose layers=even and norm=off", c->group_keep,
                 c->group_of);
    FRUG_FAIL_IF(varied && c->rule == FRUGI_RULE_THRESHOLD && c->threshold == FRUGI_THRESHOLD_ABSOLUTE, FRUG_ERR_CONFIG,
                 "config: rule=threshold:absolute sends all entries above the threshold, whatever the density; choose "
                 "layers=even and norm=off, or threshold:track");
    FRUG_FAIL_IF(c->frequency && c->rule != FRUGI_RULE_HYBRID, FRUG_ERR_CONFIG,
                 "config: frequency=on divides the budget among blocks, so it needs rule=hybrid");
    return FRUG_OK;
}

static frug_status check_strict(const frug_config *c) {
    FRUG_FAIL_IF(c->strict && c->norm != FRUGI_NORM_OFF, FRUG_ERR_CONFIG,
                 "config: strict=on fixes the total density, so norm has no effect; choose strict=off or norm=off");
    FRUG_FAIL_IF(c->strict && c->layers == FRUGI_LAYERS_EVEN, FRUG_ERR_CONFIG,
                 "config: strict=on has no effect with layers=even; choose strict=off or another value of layers");
    return FRUG_OK;
}

/*
 * Unbiased sampling sends more than the value of an entry, so the residual changes sign and grows. In a trial with
 * normally distributed gradients at density 1/16 the residual grew about tenfold every 50 steps; with a decay of 0.95
 * it leveled off near a thousand times the gradient.
 */
static frug_status check_feedback(const frug_config *c) {
    FRUG_FAIL_IF(c->rule == FRUGI_RULE_PROBABILISTIC && c->feedback != FRUGI_FEEDBACK_NONE, FRUG_ERR_CONFIG,
                 "config: rule=probabilistic is unbiased and does not work with a residual; choose feedback=none");
    FRUG_FAIL_IF(c->feedback == FRUGI_FEEDBACK_EF21 && c->mask == FRUGI_MASK_ON, FRUG_ERR_CONFIG,
                 "config: mask=on clears the momentum of sent entries, which feedback=ef21 needs; choose mask=auto or "
                 "mask=off");
    FRUG_FAIL_IF(c->hold > 0 && c->feedback != FRUGI_FEEDBACK_MERGED, FRUG_ERR_CONFIG,
                 "config: hold keeps a share of each sent entry in the buffer of feedback=merged, which is not in use; "
                 "choose hold=off");
    FRUG_FAIL_IF(c->hold > 0 && c->reduce == FRUGI_REDUCE_SHARED, FRUG_ERR_CONFIG,
                 "config: reduce=shared sends selected entries completely, so it does not support hold; choose "
                 "hold=off");
    FRUG_FAIL_IF(c->hold * c->beta >= 1, FRUG_ERR_CONFIG,
                 "config: with hold=1 and beta=1 the residual would never shrink; lower one of them");
    return FRUG_OK;
}

static int sends_everything(const frug_config *c) {
    return c->rule == FRUGI_RULE_TOPK && c->schedule.kind == FRUGI_SCHEDULE_CONSTANT && c->schedule.arg[0] == 0 &&
           c->layers == FRUGI_LAYERS_EVEN && c->norm == FRUGI_NORM_OFF;
}

static frug_status check_codes(const frug_config *c) {
    int dense_code = c->value == FRUGI_VALUE_QSGD || c->value == FRUGI_VALUE_ONEBIT;
    FRUG_FAIL_IF(dense_code && !sends_everything(c), FRUG_ERR_CONFIG,
                 "config: value=%s encodes whole tensors, so it needs density=1, rule=topk, layers=even and norm=off",
                 value_words[c->value]);
    FRUG_FAIL_IF(c->rule == FRUGI_RULE_RANDOM && c->index != FRUGI_INDEX_FIXED && c->index != FRUGI_INDEX_AUTO,
                 FRUG_ERR_CONFIG, "config: rule=random sends no indices; choose index=fixed or index=auto");
    return FRUG_OK;
}

static frug_status check_reduce(const frug_config *c) {
    int split = c->reduce == FRUGI_REDUCE_SPLIT;
    FRUG_FAIL_IF(
        split && c->segment == FRUGI_SEGMENT_ALL, FRUG_ERR_CONFIG,
        "config: segment=all selects across all tensors, but a rank of reduce=split has only its shard; choose "
        "reduce=gather");
    FRUG_FAIL_IF(split && c->layers == FRUGI_LAYERS_BUDGET, FRUG_ERR_CONFIG,
                 "config: layers=budget needs one threshold over all tensors, but a rank of reduce=split has only its "
                 "shard; choose reduce=gather");
    FRUG_FAIL_IF(
        c->reduce == FRUGI_REDUCE_AUTO && c->feedback == FRUGI_FEEDBACK_EF21, FRUG_ERR_CONFIG,
        "config: reduce=auto may choose dense, which sums gradients, but feedback=ef21 sends differences; choose "
        "reduce=gather");
    FRUG_FAIL_IF(c->clip > 0 && c->reduce == FRUGI_REDUCE_DENSE, FRUG_ERR_CONFIG,
                 "config: clip limits what a worker compresses, but reduce=dense sums gradients as they are; limit the "
                 "gradient before the exchange");
    FRUG_FAIL_IF(c->clip > 0 && c->reduce == FRUGI_REDUCE_NODES, FRUG_ERR_CONFIG,
                 "config: clip limits a worker's gradient, but with reduce=nodes a worker compresses a shard of its "
                 "node's sum, and shards would shrink by different factors; limit the gradient before the exchange");
    FRUG_FAIL_IF(c->reduce == FRUGI_REDUCE_NODES && c->node == 0, FRUG_ERR_CONFIG,
                 "config: reduce=nodes needs the number of workers per node; set node=N");
    FRUG_FAIL_IF(c->reduce == FRUGI_REDUCE_SHARED && c->value != FRUGI_VALUE_F32, FRUG_ERR_CONFIG,
                 "config: reduce=shared sums values in transit as floats, so it needs value=f32, not value=%s",
                 value_words[c->value]);
    FRUG_FAIL_IF(c->reduce == FRUGI_REDUCE_SHARED &&
                     (c->rule == FRUGI_RULE_PROBABILISTIC || c->rule == FRUGI_RULE_LEARNED),
                 FRUG_ERR_CONFIG,
                 "config: with reduce=shared a worker sends the indices that another one selected, which rule=%s does "
                 "not support; choose rule=topk, threshold, hybrid or random",
                 frugi_rule_word(c->rule));
    FRUG_FAIL_IF(c->reduce == FRUGI_REDUCE_GOSSIP && c->feedback != FRUGI_FEEDBACK_NONE, FRUG_ERR_CONFIG,
                 "config: with reduce=gossip what is not sent is still in the weights, so there is no residual; choose "
                 "feedback=none");
    FRUG_FAIL_IF(c->reduce == FRUGI_REDUCE_GOSSIP &&
                     (c->rule == FRUGI_RULE_RANDOM || c->rule == FRUGI_RULE_PROBABILISTIC),
                 FRUG_ERR_CONFIG,
                 "config: rule=%s sends scaled values, but reduce=gossip needs the values themselves, to track the "
                 "weights of neighbors; choose another rule",
                 frugi_rule_word(c->rule));
    return FRUG_OK;
}

static frug_status check_transform(const frug_config *c) {
    if (c->transform == FRUGI_TRANSFORM_OFF)
        return FRUG_OK;
    FRUG_FAIL_IF(c->segment != FRUGI_SEGMENT_BLOCK || c->unit != FRUGI_UNIT_ELEMENT || c->block == 128, FRUG_ERR_CONFIG,
                 "config: transform is of square blocks of elements, so it needs segment=block, unit=element and "
                 "block=64, 256, 1024 or 4096");
    FRUG_FAIL_IF(c->local > 0, FRUG_ERR_CONFIG, "config: local steps do not support transform; choose transform=off");
    FRUG_FAIL_IF(c->reduce == FRUGI_REDUCE_DENSE || c->reduce == FRUGI_REDUCE_GOSSIP, FRUG_ERR_CONFIG,
                 "config: transform is for compressed gradients; choose transform=off, or another reduce");
    return FRUG_OK;
}

static frug_status check_local(const frug_config *c) {
    FRUG_FAIL_IF(c->local > 0 && c->reduce == FRUGI_REDUCE_GOSSIP, FRUG_ERR_CONFIG,
                 "config: local exchanges differences to weights that all workers share, but with reduce=gossip they "
                 "share none; choose local=0 or another reduce");
    FRUG_FAIL_IF(c->local > 0 && (c->feedback == FRUGI_FEEDBACK_DGC || c->feedback == FRUGI_FEEDBACK_EF21),
                 FRUG_ERR_CONFIG,
                 "config: with local steps the momentum is in each worker's optimizer, so feedback=%s would count it "
                 "twice; choose feedback=merged, plain or none",
                 c->feedback == FRUGI_FEEDBACK_DGC ? "dgc" : "ef21");
    return FRUG_OK;
}

frug_status frugi_config_validate(const frug_config *config) {
    FRUG_TRY(check_segment(config));
    FRUG_TRY(check_unit(config));
    FRUG_TRY(check_density(config));
    FRUG_TRY(check_strict(config));
    FRUG_TRY(check_feedback(config));
    FRUG_TRY(check_codes(config));
    FRUG_TRY(check_local(config));
    FRUG_TRY(check_transform(config));
    return check_reduce(config);
}
