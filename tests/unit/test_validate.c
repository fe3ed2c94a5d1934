/*
 * test_validate.c - option combinations: which are rejected and with which error text, and that no others are.
 */
#include "support/config_helpers.h"

static const struct {
    const char *text, *why;
} contradictions[] = {
    {"segment=3:2", "config: segment=3:2 at position 9 keeps 3 of every 2; N must be below M"},
    {"dense,segment=2:2", "config: segment=2:2 at position 15 keeps 2 of every 2; N must be below M"},
    {"rule=threshold", "config: rule=threshold selects from whole tensors, so it needs segment=tensor or segment=all"},
    {"rule=hybrid", "config: rule=hybrid selects from whole tensors, so it needs segment=tensor or segment=all"},
    {"rule=probabilistic,segment=2:4,feedback=none",
     "config: rule=probabilistic selects from whole tensors, so it needs segment=tensor or segment=all"},
    {"rule=learned", "config: rule=learned has one mask per tensor, so it needs segment=tensor"},
    {"rule=learned,segment=all", "config: rule=learned has one mask per tensor, so it needs segment=tensor"},
    {"rule=learned,segment=1:2", "config: rule=learned has one mask per tensor, so it needs segment=tensor"},
    {"rule=random,segment=2:4",
     "config: rule=random does not support groups of 4; choose segment=tensor, or rule=topk"},
    {"rule=hybrid,segment=all,unit=run:4",
     "config: rule=hybrid selects single entries, so it needs unit=element, not unit=run"},
    {"rule=probabilistic,segment=tensor,unit=row,feedback=none",
     "config: rule=probabilistic selects single entries, so it needs unit=element, not unit=row"},
    {"segment=all,unit=row",
     "config: a row differs in size from tensor to tensor, so unit=row needs segment=tensor, not segment=all"},
    {"segment=all,unit=head",
     "config: a head differs in size from tensor to tensor, so unit=head needs segment=tensor, not segment=all"},
    {"score=given", "config: score=given takes a number per attention head, so it needs unit=head"},
    {"rows,score=given", "config: score=given takes a number per attention head, so it needs unit=head"},
    {"hybrid,density=0.5", "config: rule=hybrid:64 sends at most 64 of a block of 256, less than the schedule asks "
                           "for; raise MOST or lower the density"},
    {"segment=all,layers=role", "config: segment=all lets tensors compete for one budget, so layers=role has "
                                "nothing to divide; choose layers=even or segment=tensor"},
    {"segment=all,reduce=split",
     "config: segment=all selects across all tensors, but a rank of reduce=split has only its shard; choose "
     "reduce=gather"},
    {"layers=budget,reduce=split",
     "config: layers=budget needs one threshold over all tensors, but a rank of reduce=split has only its shard; "
     "choose reduce=gather"},
    {"transform=cosine,block=128", "config: transform is of square blocks of elements, so it needs segment=block, "
                                   "unit=element and block=64, 256, "
                                   "1024 or 4096"},
    {"transform=hadamard,local=4", "config: local steps do not support transform; choose transform=off"},
    {"dense,transform=cosine",
     "config: transform is for compressed gradients; choose transform=off, or another reduce"},
    {"gsgd,local=4", "config: local exchanges differences to weights that all workers share, but with "
                     "reduce=gossip they share none; choose local=0 or another reduce"},
    {"local=4,feedback=ef21",
     "config: with local steps the momentum is in each worker's optimizer, so feedback=ef21 would count it twice; "
     "choose feedback=merged, plain or none"},
    {"reduce=gossip",
     "config: with reduce=gossip what is not sent is still in the weights, so there is no residual; choose "
     "feedback=none"},
    {"gsgd,rule=random",
     "config: rule=random sends scaled values, but reduce=gossip needs the values themselves, to track the weights "
     "of neighbors; choose another rule"},
    {"2:4,norm=follow", "config: segment=2:4 fixes what every tensor sends; choose layers=even and norm=off"},
    {"2:4,layers=budget", "config: segment=2:4 fixes what every tensor sends; choose layers=even and norm=off"},
    {"rule=threshold:absolute:1,segment=all,norm=follow",
     "config: rule=threshold:absolute sends all entries above the threshold, whatever the density; choose "
     "layers=even and norm=off, or threshold:track"},
    {"frequency=on", "config: frequency=on divides the budget among blocks, so it needs rule=hybrid"},
    {"learned,frequency=on", "config: frequency=on divides the budget among blocks, so it needs rule=hybrid"},
    {"strict=on", "config: strict=on has no effect with layers=even; choose strict=off or another value of layers"},
    {"strict=on,layers=role,norm=follow",
     "config: strict=on fixes the total density, so norm has no effect; choose strict=off or norm=off"},
    {"rule=probabilistic,segment=tensor",
     "config: rule=probabilistic is unbiased and does not work with a residual; choose feedback=none"},
    {"feedback=ef21,mask=on", "config: mask=on clears the momentum of sent entries, which feedback=ef21 needs; "
                              "choose mask=auto or mask=off"},
    {"feedback=plain,hold=0.5", "config: hold keeps a share of each sent entry in the buffer of feedback=merged, "
                                "which is not in use; choose hold=off"},
    {"reduce=shared,value=f32,hold=0.5",
     "config: reduce=shared sends selected entries completely, so it does not support hold; choose hold=off"},
    {"hold=1,beta=1", "config: with hold=1 and beta=1 the residual would never shrink; lower one of them"},
    {"value=qsgd",
     "config: value=qsgd encodes whole tensors, so it needs density=1, rule=topk, layers=even and norm=off"},
    {"value=onebit,schedule=piecewise:0:0:1:0",
     "config: value=onebit encodes whole tensors, so it needs density=1, rule=topk, layers=even and norm=off"},
    {"qsgd,layers=sensitivity",
     "config: value=qsgd encodes whole tensors, so it needs density=1, rule=topk, layers=even and norm=off"},
    {"qsgd,rule=random",
     "config: value=qsgd encodes whole tensors, so it needs density=1, rule=topk, layers=even and norm=off"},
    {"qsgd,segment=2:4",
     "config: value=qsgd encodes whole tensors, so it needs density=1, rule=topk, layers=even and norm=off"},
    {"randomk,index=coo", "config: rule=random sends no indices; choose index=fixed or index=auto"},
    {"unit=tile:1x1", "config: bad value 'tile:1x1' of unit at position 6; accepted: tile:HxW with sides from 1 to "
                      "1024 and at least two entries (one is unit=element)"},
};

static void options_that_contradict_each_other_are_rejected_with_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++)
        assert_refused(contradictions[i].text, contradictions[i].why);
}

static int count_words(const char *const *words) {
    int n = 0;
    while (words[n])
        n++;
    return n;
}

/*
 * Every rule in every segment with every unit, against these rules: threshold, probabilistic and hybrid need tensor or
 * all, learned needs tensor, random goes anywhere but in N:M groups, topk anywhere; probabilistic and hybrid select
 * single entries; units whose size depends on the shape of the tensor do not go with segment=all.
 */
static void every_valid_rule_segment_and_unit_is_accepted(void **state) {
    (void)state;
    static const char *const rules[] = {"topk",   "threshold:percentile", "threshold:track", "threshold:absolute:1",
                                        "random", "probabilistic",        "hybrid",          "learned",
                                        NULL};
    static const char *const segments[] = {"block", "tensor", "all", "2:4", NULL};
    static const char *const units[] = {"element", "run:8", "tile:4x4", "row", "column", "channel", "head", NULL};
    /* One digit per segment: 1 is valid. */
    static const char *const valid_segment[] = {"1111", "0110", "0110", "0110", "1110", "0110", "0110", "0100"};
    int accepted = 0;
    for (int r = 0; r < count_words(rules); r++) {
        for (int s = 0; s < count_words(segments); s++) {
            for (int u = 0; u < count_words(units); u++) {
                int single = strcmp(rules[r], "probabilistic") == 0 || strcmp(rules[r], "hybrid") == 0;
                int valid = valid_segment[r][s] == '1' && (!single || u == 0) && (s != 2 || u < 3);
                char text[128];
                frug_config *config = NULL;
                snprintf(text, sizeof text, "rule=%s,segment=%s,unit=%s,feedback=none", rules[r], segments[s],
                         units[u]);
                frug_status status = frug_config_create(text, &config);
                if ((status == FRUG_OK) != valid)
                    fail_msg("%s: %s", text, status == FRUG_OK ? "accepted" : frug_last_error());
                frug_config_destroy(config);
                accepted += valid;
            }
        }
    }
    assert_int_equal(accepted, 7 * 3 + 3 + 3 * 10 + 2 * 7 + 3 + 2 + 2 + 7);
}

static void options_that_go_together_are_accepted(void **state) {
    (void)state;
    static const char *const good[] = {
        "topk,layers=role,strict=on",
        "topk,layers=budget,strict=on",
        "topk,layers=sensitivity,norm=accordion",
        "layers=role,strict=on",
        "segment=all,norm=follow",
        "hybrid,frequency=on,norm=follow",
        "rule=hybrid:128,segment=tensor,density=0.5",
        "rule=hybrid,segment=tensor,layers=sensitivity,strict=on",
        "rule=threshold:absolute:1e-3,segment=all,unit=run:4",
        "rule=threshold,segment=tensor,unit=row,score=l1",
        "rule=threshold,segment=tensor,layers=budget",
        "rule=random,unit=row,segment=tensor,feedback=plain,index=auto",
        "randomk,feedback=ef21",
        "rule=probabilistic,segment=all,feedback=none,value=int8",
        "heads,score=given",
        "learned,unit=head,score=given",
        "learned,unit=element",
        "2:4,warmup=100,dense_every=500",
        "2:4,value=int4,index=bitmap",
        "segment=1:2,unit=row",
        "segment=255:256",
        "qsgd,levels=7,qnorm=max,bucket=128",
        "qsgd,feedback=plain,residual=f32",
        "onebit,warmup=10",
        "feedback=ef21,theta=1,mask=off,clip=1",
        "dgc,clip=0.5,schedule=relax",
        "index=rice,value=sign,bucket=32",
        "index=csr,value=two_bit,unit=tile:8x8,segment=all",
        "select=exact,segment=tensor",
        "select=hist,segment=all",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        frug_config_destroy(parse(good[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_contradict_each_other_are_rejected_with_a_reason),
        cmocka_unit_test(every_valid_rule_segment_and_unit_is_accepted),
        cmocka_unit_test(options_that_go_together_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
