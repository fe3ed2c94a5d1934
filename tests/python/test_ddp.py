"""The hook's results: the bits of dense averaging where everything is sent, the same from gather and split."""

import unittest
import warnings

import support
from ddp_helpers import WORLD, Scaler, batch, begin, dist, flat, mlp, nn, state_for, torch, train, wrap

import frugrad
import frugrad.torch
from frugrad.torch import DDPState

EVERYTHING = ["density=1,value=f32,feedback=none", "topk,density=1,feedback=none", "dense",
              "density=1,value=f32,feedback=none,reduce=split"]


def everything_is_sent():
    """Three steps with each config: weights equal those of DDP without a hook?"""
    begin()
    results = []
    for config in EVERYTHING:
        plain, hooked = mlp(), mlp()
        train(wrap(plain), range(3))
        train(wrap(hooked, state_for(hooked, config, start_iter=0)), range(3))
        results.append(torch.equal(flat(plain), flat(hooked)))
    return results


def long_bucket():
    """A bucket of 2.6 M entries, which is exchanged in chunks: the gradient of DDP without a hook?"""
    begin()
    torch.manual_seed(0)
    x = torch.randn(4, 1600, generator=torch.Generator().manual_seed(dist.get_rank()))
    weights = torch.randn(1600, 1600) * 0.01
    gradients = []
    for state in (None, state_for(config=EVERYTHING[0], start_iter=0)):
        model = nn.Linear(1600, 1600)
        with torch.no_grad():
            model.weight.copy_(weights)
            model.bias.zero_()
        ddp = wrap(model, state, bucket_cap_mb=25)
        for _ in range(2):
            model.zero_grad()
            ddp(x).pow(2).mean().backward()
        gradients.append(model.weight.grad.clone())
    return torch.equal(*gradients)


def mean_of_three():
    """One step of three ranks: gradients equal the sum in rank order times a third?"""
    begin()
    model = mlp()
    ddp = wrap(model, state_for(model, EVERYTHING[0], start_iter=0))
    x, y = batch(0)
    nn.functional.cross_entropy(ddp(x), y).backward()
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for rank in range(WORLD):
        other = mlp()
        x, y = batch(0, rank)
        nn.functional.cross_entropy(other(x), y).backward()
        sums = [s + p.grad for s, p in zip(sums, other.parameters())]
    third = torch.tensor(1.0 / 3.0)
    return all(torch.equal(s * third, p.grad) for s, p in zip(sums, model.parameters()))


def split_and_gather():
    """Weights after six steps of each, for methods by blocks and by units."""
    begin()
    results = []
    for config in ("value=f32,feedback=plain", "threshold,value=f32,feedback=plain",
                   "value=f32,schedule=frugrad:0.5:0.94:0.5"):
        weights = []
        for reduce in ("gather", "split"):
            model = mlp()
            train(wrap(model, state_for(model, f"{config},reduce={reduce}", start_iter=1, total_steps=6)), range(6))
            weights.append(flat(model))
        results.append(torch.equal(*weights))
    model = mlp()
    state = state_for(model, "reduce=split,down=2,residual=f32,value=f32,feedback=plain", start_iter=0)
    train(wrap(model, state), range(6))
    weights = [torch.zeros_like(flat(model)) for _ in range(WORLD)]
    dist.all_gather(weights, flat(model))
    return results + [all(torch.equal(w, weights[0]) for w in weights)]


def nothing_is_lost():
    """With down=2 and momentum-free SGD: did weights change by the mean of the gradients minus the residuals?"""
    begin()
    errors = []
    for config in ("value=f32,residual=f32,feedback=plain",
                   "value=f32,residual=f32,feedback=plain,reduce=split,down=2"):
        model = mlp()
        state = state_for(model, config, start_iter=1)
        ddp = wrap(model, state)
        start, seen = flat(model), torch.zeros_like(flat(model))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for step in range(8):
            x, y = batch(step)
            with ddp.no_sync():  # the rank's own gradient
                nn.functional.cross_entropy(ddp(x), y).mul(0.01).backward()
            own = torch.cat([p.grad.flatten() for p in model.parameters()])
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(x), y).mul(0.01).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += own
        left = state.residuals()
        unsent = torch.cat([left[name].flatten() for name, _ in model.named_parameters()])
        total = seen - unsent
        dist.all_reduce(total)
        errors.append((start - flat(model) - total / WORLD).abs().max().item())
    return errors


ALGORITHMS = ("gather", "split", "tree", "nodes,node=2", "shared,value=f32", "auto", "dense",
              "split,down=2,schedule=frugrad:0.5:0.94:0.5", "split,down=2,rule=random,segment=tensor")


def every_algorithm():
    """Six steps by each algorithm: have all ranks the same weights, which algorithm ran, how far is it from dense?"""
    begin()
    dense, results = mlp(), []
    train(wrap(dense), range(6))
    for config in ALGORITHMS:
        for more in ("feedback=plain", "density=1,value=f32,feedback=none"):
            if "down" in config and "density" in more:
                continue
            model = mlp()
            state = state_for(model, f"reduce={config},{more}", start_iter=1, total_steps=6)
            train(wrap(model, state), range(6))
            weights = [torch.zeros_like(flat(model)) for _ in range(WORLD)]
            dist.all_gather(weights, flat(model))
            name = state._engine.reducer.algorithm if state._engine else "dense"
            results.append([config, more, all(torch.equal(w, weights[0]) for w in weights), name,
                            (flat(model) - flat(dense)).abs().max().item(), state.stats()["ratio"]])
    return results


class Results(unittest.TestCase):
    def test_the_hook_runs_every_algorithm(self):
        results = support.values(support.torchrun(4, every_algorithm, timeout=120))
        for rank in results:
            for config, more, alike, name, error, ratio in rank:
                self.assertTrue(alike, config)
                self.assertTrue(config.startswith(name) or config == "auto", (config, name))
                self.assertLess(error, 1e-5 if "density=1" in more or name == "dense" else 0.1, (config, more))
                self.assertGreater(ratio, 0.2)
        self.assertEqual([row[3] for row in results[0]], [row[3] for row in results[1]])

    def test_everything_sent_is_dense_averaging_bit_for_bit(self):
        self.assertEqual(support.values(support.torchrun(2, everything_is_sent)), [[True] * len(EVERYTHING)] * 2)

    def test_a_long_bucket_is_exchanged_in_chunks(self):
        self.assertEqual(support.values(support.torchrun(2, long_bucket)), [True] * 2)

    def test_three_ranks_add_up_in_their_order(self):
        self.assertEqual(support.values(support.torchrun(3, mean_of_three)), [True] * 3)

    def test_split_gives_the_bits_of_gather(self):
        self.assertEqual(support.values(support.torchrun(3, split_and_gather)), [[True] * 4] * 3)

    def test_what_was_not_applied_is_in_the_residuals(self):
        for errors in support.values(support.torchrun(2, nothing_is_lost)):
            self.assertLess(max(errors), 2e-6)


class Configs(unittest.TestCase):
    def test_frugrad_depends_on_the_optimizer(self):
        model = mlp()
        params = list(model.parameters())
        for optimizer, same in ((torch.optim.SGD(params, lr=1), "frugrad-sgd,momentum=0"),
                                (frugrad.torch.optimizer(model, torch.optim.SGD(params, lr=1, momentum=0.9)), "frugrad-sgd"),
                                (frugrad.torch.optimizer(model, torch.optim.AdamW(params)), "frugrad-adam")):
            for more in ("", ",density=0.01"):
                state = DDPState(model, "frugrad" + more, optimizer)
                self.assertEqual(state.config.text, frugrad.Config(same + more).text)

    def test_without_an_optimizer_that_fits_a_feedback_must_be_named(self):
        params = list(mlp().parameters())
        for optimizer, why in ((None, "must know the optimizer"),
                               (torch.optim.SGD(params, lr=1, momentum=0.9), "SGD has one of its own"),
                               (torch.optim.AdamW(params), "AdamW has one of its own"),
                               (torch.optim.AdamW(params, betas=(0.0, 0.99)), "another rate"),
                               (torch.optim.RMSprop(params), "RMSprop is not one"),
                               (torch.optim.LBFGS(params), "LBFGS is not one"),
                               (type("Mine", (torch.optim.SGD,), {})(params, lr=1), "Mine is not one")):
            for config in ("frugrad", "frugrad,density=0.01", "anneal", "value=int8"):
                with self.assertRaisesRegex(ValueError, f"{why}.*frugrad,feedback=none"):
                    DDPState(config=config, optimizer=optimizer)
                self.assertEqual(DDPState(config=config + ",feedback=none", optimizer=optimizer).stats()["feedback"],
                                 "none")
        self.assertEqual(DDPState(config="topk").config.option("feedback"), "plain")
        self.assertEqual(DDPState(config="frugrad,reduce=dense").config.option("reduce"), "dense")

    def test_wrong_arguments_are_refused_with_a_sentence(self):
        model = mlp()
        sgd = torch.optim.SGD(model.parameters(), lr=1)
        scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1)
        for arguments, why in (((model.parameters(),), "not a generator"), (("frugrad",), "not the config"),
                               ((sgd,), "the first argument is the model"), ((model, sgd), "the config is a text"),
                               ((model, "frugrad", scheduler), "give the optimizer itself"),
                               ((model, "frugrad", 100), "an optimizer is wanted")):
            with self.assertRaisesRegex(TypeError, why):
                DDPState(*arguments)
        with self.assertRaisesRegex(TypeError, "takes a DDPState, not a function"):
            frugrad.torch.hook(frugrad.torch.hook, None)
        sharded = type("FullyShardedDataParallel", (torch.nn.Linear,), {})(2, 2)
        with self.assertRaisesRegex(TypeError, "sharded by FSDP"):
            DDPState(sharded, "frugrad", sgd)
        with self.assertRaisesRegex(TypeError, "a GradScaler is wanted, not a float"):
            DDPState(config="feedback=none", scaler=2.0)
        with self.assertRaisesRegex(ValueError, "feedback=dgc loses its momentum"):
            DDPState(config="dgc", scaler=Scaler())
        with self.assertRaisesRegex(ValueError, "give the model too"):
            DDPState(config="frugrad", optimizer=frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters())))

    def test_momentum_applied_twice_is_warned_of(self):
        model = mlp()
        for momentum, warned in ((0.9, 1), (0, 0)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=momentum)
                DDPState(config="feedback=merged", optimizer=optimizer)
            self.assertEqual(len([w for w in caught if "momentum" in str(w.message)]), warned)

    def test_unsupported_configs_are_refused_with_the_supported_ones(self):
        with self.assertRaisesRegex(ValueError, "reduce=gather, split, .*dense"):
            DDPState(config="reduce=gossip,feedback=none")
        with self.assertRaisesRegex(ValueError, "ef21"):
            DDPState(config="feedback=ef21")
        with self.assertRaises(frugrad.ConfigError):
            DDPState(config="frugrat")

    def test_what_is_no_state_is_refused(self):
        state = DDPState(config="feedback=plain")
        for wrong in (None, [], [None], {}, {"frugrad": 1}, dict(state.state_dict(), step=-1)):
            with self.assertRaisesRegex(ValueError, "no state of a frugrad.torch.DDPState"):
                state.load_state_dict(wrong)


if __name__ == "__main__":
    unittest.main()
