"""frugrad.torch.LocalSteps: processes train by themselves, and have the same weights after every exchange."""

import copy
import unittest
import warnings

import support

torch = support.need("torch")
import torch.nn.functional as F  # noqa: E402

import frugrad.torch  # noqa: E402
from frugrad import ConfigError, RemoteError  # noqa: E402
from frugrad.torch import LocalSteps  # noqa: E402

torch.set_num_threads(1)


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 160), torch.nn.Tanh(), torch.nn.Linear(160, 10))


def train(model, local, steps, rank=0):
    for step in steps:
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(100 * step + rank))
        local.optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(next(model.parameters()).dtype)), x[:, :10].argmax(1))
        loss.backward()
        local.step()
    return loss.item()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


class Alone(unittest.TestCase):
    def test_everything_sent_is_the_optimizer_alone(self):
        ours, plain = net(), net()
        local = LocalSteps(ours, adam(ours), "density=1,feedback=none,value=f32", every=4)
        alone = adam(plain)
        for step in range(10):
            train(ours, local, [step])
            x = torch.randn(32, 64, generator=torch.Generator().manual_seed(100 * step))
            alone.zero_grad()
            F.cross_entropy(plain(x), x[:, :10].argmax(1)).backward()
            alone.step()
        self.assertEqual((local.rounds, local.count, local.shared), (2, 2, False))
        self.assertLess((flat(ours) - flat(plain)).abs().max(), 1e-5)  # w - (w - x) is rounded

    def test_what_is_not_sent_stays_in_the_residual(self):
        model = net()
        before = flat(model)
        local = LocalSteps(model, adam(model), "density=0.0625,residual=f32,value=f32,vectors=sparse,min_size=0", every=3)
        train(model, local, range(2))
        changed = flat(model) - before
        self.assertTrue((changed != 0).float().mean() > 0.9)
        local.exchange()
        kept = torch.cat([r.flatten() for r in local._engine.residuals().values()])
        sent = flat(model) - before
        self.assertLess((sent != 0).float().mean(), 0.1)
        self.assertLess((sent - kept - changed).abs().max(), 1e-6)
        self.assertTrue(local.shared)

    def test_the_outer_rate_scales_the_change(self):
        ends = []
        for outer in (1.0, 0.5):
            model = net()
            before = flat(model)
            train(model, LocalSteps(model, adam(model), every=5, outer=outer), range(5))
            ends.append(flat(model) - before)
        self.assertLess((0.5 * ends[0] - ends[1]).abs().max(), 1e-6)

    def test_outer_momentum_is_that_of_nesterov(self):
        method = "density=1,feedback=none,value=f32,outer_momentum=0.9,outer=0.7"
        ours, reference = net(), net(1)
        local = LocalSteps(ours, torch.optim.SGD(ours.parameters(), lr=0.1), method, every=2)
        sgd = torch.optim.SGD(reference.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        reference.load_state_dict(ours.state_dict())
        for step in range(3):
            inner = copy.deepcopy(reference)
            train(ours, local, [2 * step, 2 * step + 1])
            alone = LocalSteps(inner, torch.optim.SGD(inner.parameters(), lr=0.1), "density=1,feedback=none,value=f32",
                               every=2)
            train(inner, alone, [2 * step, 2 * step + 1])
            for p, q in zip(reference.parameters(), inner.parameters()):
                p.grad = (p - q).detach()
            sgd.step()
        self.assertLess((flat(ours) - flat(reference)).abs().max(), 1e-5)

    def test_a_saved_state_continues_bit_for_bit(self):
        for config in ("frugrad,residual=int8", "frugrad,outer_momentum=0.9"):
            self.check_a_saved_state(config)

    def check_a_saved_state(self, config):
        ours, again = net(), net(1)
        local = LocalSteps(ours, adam(ours), config, every=4)
        train(ours, local, range(6))
        saved = copy.deepcopy([part.state_dict() for part in (ours, local.optimizer, local)])
        train(ours, local, range(6, 12))
        resumed = LocalSteps(again, adam(again), config, every=4)
        for part, state in zip((again, resumed.optimizer, resumed), saved):
            part.load_state_dict(state)
        train(again, resumed, range(6, 12))
        self.assertTrue(torch.equal(flat(ours), flat(again)))
        with self.assertRaisesRegex(ValueError, "with this config"):
            LocalSteps(again, adam(again), every=4).load_state_dict(saved[2])

    def test_configs_that_do_not_fit_are_refused(self):
        model = net()
        for config, options, text in (("frugrad", {}, "give every=H"), ("dgc", {"every": 2}, "count it twice"),
                                      ("gsgd", {"every": 2}, "share none"), ("frugrad", {"every": -1}, "local")):
            with self.assertRaisesRegex((ValueError, ConfigError), text):
                LocalSteps(model, adam(model), config, **options)
        with self.assertRaisesRegex(TypeError, "leaves the momentum to a compressor"):
            LocalSteps(model, frugrad.torch.optimizer(model, adam(model)), every=2)
        with self.assertRaisesRegex(ValueError, "LocalSteps"):
            frugrad.torch.DDPState(model, "frugrad,local=4")
        with self.assertRaisesRegex(ValueError, "LocalSteps"):
            frugrad.torch.StreamingOptimizer(model.parameters(), config="frugrad,local=4")


def train_together(config):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = net(rank)
    local = LocalSteps(model, adam(model), config, every=5, total_steps=40)
    first = train(model, local, range(1), rank)
    last = train(model, local, range(1, 40), rank)
    stats = local.stats()
    dist.destroy_process_group()
    return dict(sum=flat(model).double().sum().item(), first=first, last=last, **stats)


def errors_of_two():
    """The errors of a wrapped model, and of another process's state."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model, found = net(), []
    local = LocalSteps(model, adam(model), every=2)
    states: list = [None, None]
    dist.all_gather_object(states, local.state_dict())
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    for call in (lambda: LocalSteps(wrapped, adam(model), every=2),
                 lambda: local.load_state_dict(states[1 - dist.get_rank()]),
                 lambda: local.load_state_dict(states[dist.get_rank()])):
        try:
            call()
            found.append("")
        except (TypeError, ValueError) as error:
            found.append(str(error))
    dist.destroy_process_group()
    return found


def resumed(order):
    """Of runs that continue from a state between two exchanges: whether they end as one that was not interrupted does."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank, dtype = dist.get_rank(), torch.float64 if order == "in float64" else torch.float32
    model, again = net().to(dtype), net(1).to(dtype)
    local = LocalSteps(model, adam(model), every=4)
    train(model, local, range(6), rank)
    saved = copy.deepcopy([part.state_dict() for part in (model, local.optimizer, local)])
    train(model, local, range(6, 12), rank)
    optimizer = adam(again)
    if order != "model last":
        again.load_state_dict(saved[0])
    continued = LocalSteps(again, optimizer, every=4)
    continued.load_state_dict(saved[2])
    if order == "model last":
        again.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    train(again, continued, range(6, 12), rank)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        continued.load_state_dict({key: value for key, value in saved[2].items() if key != "weights"})
    dist.destroy_process_group()
    return torch.equal(flat(model), flat(again)), [str(w.message) for w in shown]


def small_means():
    """20 exchanges of a unit in the last place of float16 weights, by rank 0 of three alone: weights and shared weights."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model = torch.nn.Linear(64, 64, bias=False).half()
    torch.nn.init.constant_(model.weight, 1.5)
    local = LocalSteps(model, torch.optim.SGD(model.parameters(), lr=1.0), "dense", every=1)
    for _ in range(20):
        model.weight.grad = torch.full_like(model.weight, 2.0 ** -10 if dist.get_rank() == 0 else 0.0)
        local.step()
    dist.destroy_process_group()
    return model.weight[3, 5].item(), local._shared[77].item()


def one_fails():
    """The errors of six steps with an exchange at every second, where rank 1 fails in that of the fourth."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model, errors = net(), []
    local = LocalSteps(model, adam(model), every=2)
    for step in range(6):
        if dist.get_rank() == 1 and step == 3:
            local._engine.reducer.fail(local.rounds, 0, local._shared.numel(), MemoryError("no room on purpose"))
        try:
            train(model, local, [step])
            errors.append("nothing")
        except (MemoryError, RemoteError) as error:
            errors.append(str(error))
    dist.destroy_process_group()
    return errors


class Together(unittest.TestCase):
    def test_a_run_continues_between_two_exchanges_bit_for_bit(self):
        for order in ("model first", "model last", "in float64"):
            for equal, shown in support.values(support.torchrun(2, resumed, args=[order])):
                self.assertTrue(equal, order)
                self.assertRegex(shown[0], "load the model's weights after LocalSteps was made")

    def test_means_below_the_last_place_of_16_bit_weights_add_up(self):
        ulp = 2.0 ** -10
        for weight, shared in support.values(support.torchrun(3, small_means)):
            expected = 1.5 - 20 / 3 * ulp
            self.assertLessEqual(abs(weight - expected), 0.51 * ulp)  # rounded to nearest
            self.assertLess(abs(shared - expected), 20 * 2.0 ** -23)  # float32, rounded 20 times

    def test_after_an_exchange_has_failed_each_step_raises(self):
        for errors in support.values(support.torchrun(2, one_fails)):
            self.assertEqual(["no room on purpose" in text for text in errors], [False] * 3 + [True] * 3, errors)

    def test_what_would_not_train_as_meant_is_refused(self):
        for rank, (model, other, own) in enumerate(support.values(support.torchrun(2, errors_of_two))):
            self.assertIn("this model is a DistributedDataParallel", model)
            self.assertIn(f"that of rank {1 - rank} of 2, and this is rank {rank} of 2", other)
            self.assertEqual(own, "")

    def test_processes_share_weights_and_learn(self):
        for config in ("sparseloco,vectors=sparse,min_size=0", "density=1,feedback=none,value=f32,reduce=dense"):
            every = support.values(support.torchrun(2, train_together, args=[config]))
            self.assertEqual(len({each["sum"] for each in every}), 1, config)
            for each in every:
                self.assertLess(each["last"], each["first"])
                self.assertEqual(each["rounds"], 8)
        self.assertGreater(each["bytes_sent"], 0)


if __name__ == "__main__":
    unittest.main()
