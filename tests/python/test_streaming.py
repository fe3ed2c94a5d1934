"""frugrad.torch.StreamingOptimizer: gradients are compressed in backward one by one, with the library's result."""

import copy
import gc
import hashlib
import io
import unittest
import warnings
from datetime import timedelta
from unittest import mock

import support

torch = support.need("torch")
import torch.nn.functional as F  # noqa: E402

from frugrad import ConfigError, _core  # noqa: E402
from frugrad.torch import StreamingOptimizer, streaming  # noqa: E402

torch.set_num_threads(1)
KINDS = (("merged", 0.02), ("adam-merged", 1e-3), ("muon-merged", 1e-3))


class Net(torch.nn.Module):
    """Two ways through it, so that parameters may stay unused."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Linear(64, 160)
        self.left = torch.nn.Linear(160, 160)
        self.right = torch.nn.Linear(160, 160)
        self.last = torch.nn.Linear(160, 10)

    def forward(self, x, ways="lr"):
        x = torch.tanh(self.first(x))
        y = [torch.tanh(way(x)) for name, way in (("l", self.left), ("r", self.right)) if name in ways]
        return self.last(sum(y[1:], y[0]))


def loss_of(net, step, ways="lr"):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 64, generator=generator)
    return F.cross_entropy(net(x, ways), x[:, :10].argmax(1))


def train(net, opt, steps, ways="lr"):
    for step in steps:
        loss = loss_of(net, step, ways)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def bits(net):
    data = b"".join(_core.ctypes.string_at(p.data_ptr(), 4 * p.numel()) for p in net.parameters())
    return hashlib.sha256(data).hexdigest()


class Direct:
    """The same training by plain calls of the library, from whole gradients in p.grad."""

    def __init__(self, net, config="frugrad", text="merged"):
        self.params, self.count = list(net.named_parameters()), 0
        self.layout = _core.Layout(_core.Tensor(name, tuple(p.shape)) for name, p in self.params)
        self.compressor = _core.Compressor(_core.Config(config, text), self.layout)
        self.optimizer = _core.Optimizer(text, self.layout, self.compressor)

    def zero_grad(self):
        for _, p in self.params:
            p.grad = None

    def step(self, rate=0.02):
        for i, (_, p) in enumerate(self.params):
            begin, n = self.layout[i].offset, p.numel()
            grad = torch.zeros(n) if p.grad is None else p.grad.reshape(-1).clone()
            frame = torch.empty(self.compressor.bound(begin, n), dtype=torch.uint8)
            length = self.compressor.compress(self.count, begin, n, grad.data_ptr(), frame.data_ptr(), frame.numel())
            mean = torch.zeros(n)
            self.compressor.decode_add([frame.data_ptr()], [length], 1.0, begin, n, mean.data_ptr())
            self.optimizer.step(self.count, begin, n, mean.data_ptr(), rate, p.data_ptr())
        self.count += 1


class Parity(unittest.TestCase):
    def test_it_is_the_library_bit_for_bit(self):
        for config, text in (("frugrad", "merged"), ("frugrad", "adam-merged"), ("frugrad", "muon-merged"),
                             ("topk,density=0.1", "sgd"),
                             ("warmup=2,residual=f32", "merged")):
            ours, plain = Net(), Net()
            train(ours, StreamingOptimizer(ours.named_parameters(), lr=0.02, config=config, optimizer=text), range(6))
            decay = text + (":decay=0" if text in ("adam-merged", "muon-merged") else "")
            train(plain, Direct(plain, config, decay), range(6))
            self.assertEqual(bits(ours), bits(plain), (config, text))

    def test_tiles_do_not_change_a_bit(self):
        nets = [Net(), Net()]
        for net, tile in zip(nets, (1 << 20, 4096)):
            with mock.patch.object(streaming, "_TILE", tile):
                opt = StreamingOptimizer(net.named_parameters(), optimizer="adam-merged", lr=1e-3)
            train(net, opt, range(4))
        self.assertEqual([len(s.tiles) for s in opt._streamed], [3, 1, 7, 1, 7, 1, 1, 1])
        self.assertEqual(bits(nets[0]), bits(nets[1]))

    def test_accumulated_gradients_are_those_of_one_step(self):
        ours, plain = Net(), Net()
        opt, direct = StreamingOptimizer(ours.named_parameters(), lr=0.02), Direct(plain)
        for step in range(0, 9, 3):
            with opt.accumulate():
                loss_of(ours, step, "l").backward()
                loss_of(ours, step + 1).backward()
            self.assertIsNotNone(ours.left.weight.grad)
            loss_of(ours, step + 2, "r").backward()  # does not reach left
            opt.step()
            direct.zero_grad()
            for at, ways in enumerate(("l", "lr", "r")):
                loss_of(plain, step + at, ways).backward()
            direct.step()
            self.assertTrue(all(p.grad is None for p in ours.parameters()))
        self.assertEqual(bits(ours), bits(plain))


class Behaviour(unittest.TestCase):
    def test_it_learns_as_torch_does(self):
        for kind, rate in KINDS:
            net, dense = Net(), Net()
            opt = StreamingOptimizer(net.parameters(), lr=rate, optimizer=kind)
            theirs = (torch.optim.SGD(dense.parameters(), lr=rate, momentum=0.9) if kind == "merged"
                      else torch.optim.AdamW(dense.parameters(), lr=rate))
            start = loss_of(net, 0).item()
            ours, torchs = train(net, opt, range(100)), train(dense, theirs, range(100))
            self.assertLess(ours, 0.6 * start, kind)
            self.assertLess(ours, torchs + 0.35, f"{kind}: {ours} against {torchs}")
            stats = opt.stats()
            self.assertLess(stats["bytes_sent"], 0.1 * stats["bytes_dense"])

    def test_gradients_never_exist_all_at_once(self):
        torch.manual_seed(0)
        net = torch.nn.Sequential(*(torch.nn.Linear(96, 96) for _ in range(12)))
        opt = StreamingOptimizer(net.named_parameters())
        params, most = list(net.parameters()), [0]

        def look(grad):
            most[0] = max(most[0], grad.numel() + sum(p.grad.numel() for p in params if p.grad is not None))

        for p in params:
            p.register_hook(look)
        for _ in range(3):
            net(torch.randn(4, 96)).pow(2).mean().backward()
            self.assertTrue(all(p.grad is None for p in params))
            opt.step()
        self.assertLessEqual(most[0], 2 * 96 * 96)
        self.assertGreaterEqual(most[0], 96 * 96)

    def test_groups_schedules_decay_and_what_is_frozen(self):
        net = Net()
        net.left.bias.requires_grad_(False)
        still = [p.detach().clone() for p in (net.left.bias, net.right.weight)]
        opt = StreamingOptimizer([{"params": [net.first.weight], "weight_decay": 0.1},
                                  {"params": list(net.right.named_parameters()), "lr": 0.0},
                                  {"params": [net.left.bias]}], lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
        opt.add_param_group({"params": net.last.named_parameters()})
        before = net.first.weight.detach().norm().item()
        for step in range(4):
            train(net, opt, [step])
            schedule.step()
        self.assertAlmostEqual(opt.param_groups[0]["lr"], 0.05 / 16)
        self.assertTrue(torch.equal(still[0], net.left.bias) and torch.equal(still[1], net.right.weight.detach()))
        self.assertIsNotNone(net.left.weight.grad)  # of no group: not changed
        self.assertNotEqual(before, net.first.weight.detach().norm().item())

    def test_mistakes_raise(self):
        net = Net()
        opt = StreamingOptimizer(net.named_parameters())
        loss_of(net, 0).backward()
        with self.assertRaisesRegex(RuntimeError, "second gradient"):
            loss_of(net, 1).backward()
        for call in (opt.state_dict, lambda: opt.add_param_group({"params": []})):
            with self.assertRaisesRegex(RuntimeError, "between backward.*load_state_dict"):
                call()
        for wrong in (dict(config="frugard"), dict(optimizer="merge"), dict(config="topk")):
            with self.assertRaises(ConfigError):
                StreamingOptimizer(Net().parameters(), **wrong)
        other = Net()
        with self.assertRaisesRegex(TypeError, "use state_dict"):
            copy.deepcopy(opt)
        with self.assertRaisesRegex(ValueError, "not one of"):
            foreign = torch.optim.SGD(other.parameters(), 0.1).state_dict()
            StreamingOptimizer(other.parameters()).load_state_dict(foreign)
        table = torch.nn.Embedding(10, 4, sparse=True)
        keep = StreamingOptimizer(table.parameters())
        with self.assertRaisesRegex(RuntimeError, "sparse"):
            table(torch.tensor([1])).sum().backward()
        del keep

    def test_options_without_effect_are_refused(self):
        for config in ("reduce=dense", "dense", "reduce=split", "reduce=split,down=1", "reduce=tree", "layers=role",
                       "layers=budget", "hybrid"):
            with self.assertRaisesRegex(ValueError, "has no effect"):
                StreamingOptimizer(Net().parameters(), config=config, optimizer="sgd")
        for config, why in (("gamma=0.3", "do nothing"), ("layers=sensitivity", "needs a weight"),
                            ("transform=cosine", "leave it out"), ("reduce=gossip,feedback=none", "has no effect")):
            with self.assertRaisesRegex(ValueError, why):
                StreamingOptimizer(Net().parameters(), config=config, optimizer="sgd")

    def test_a_schedule_without_total_steps_gets_a_warning(self):
        for total, warned in ((0, [True]), (10, [])):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                StreamingOptimizer(Net().parameters(), config="frugrad-paper", total_steps=total)
            self.assertEqual(["needs total_steps=" in str(each.message) for each in caught], warned)
            self.assertEqual({each.filename for each in caught}, {__file__} if warned else set())

    def test_the_baseline_that_it_names_is_dense(self):
        ours, plain = Net(), Net()
        train(ours, StreamingOptimizer(ours.named_parameters(), lr=0.1, config="density=1,feedback=none,value=f32",
                                       optimizer="sgd"), range(4))
        train(plain, torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9), range(4))
        for p, q in zip(ours.parameters(), plain.parameters()):
            self.assertLess(float((p - q).detach().abs().max()), 1e-6)

    def test_a_closed_or_deleted_optimizer_does_not_take_gradients(self):
        for end in ("close", "gone"):
            net = Net()
            opt = StreamingOptimizer(net.parameters())
            if end == "close":
                opt.close()
            else:
                del opt
                gc.collect()
            loss_of(net, 0).backward()
            self.assertTrue(all(p.grad is not None for p in net.parameters()), end)

    def test_short_weights(self):
        net = [Net().to(torch.bfloat16), Net().to(torch.bfloat16).float()]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opts = [StreamingOptimizer(each.named_parameters(), lr=0.05) for each in net]
        self.assertEqual(["rounded" in str(each.message) for each in caught], [True])
        for p, q in zip(net[0].parameters(), net[1].parameters()):
            p.grad = torch.randn(p.shape).bfloat16()
            q.grad = p.grad.float()
        for opt in opts:
            opt.step()  # takes gradients that did not come by backward
        for p, q in zip(net[0].parameters(), net[1].parameters()):
            self.assertTrue(torch.equal(p.detach(), q.detach().bfloat16()))

    def test_resuming_is_bit_exact(self):
        for kind, rate in KINDS:
            ours, file = Net(), io.BytesIO()
            opt = StreamingOptimizer(ours.named_parameters(), lr=rate, optimizer=kind, weight_decay=0.01)
            train(ours, opt, range(5))
            torch.save([ours.state_dict(), opt.state_dict()], file)
            train(ours, opt, range(5, 9))
            file.seek(0)
            saved = torch.load(file)
            again = Net(1)
            again.load_state_dict(saved[0])
            resumed = StreamingOptimizer(again.named_parameters(), optimizer=kind)
            resumed.load_state_dict(saved[1])
            train(again, resumed, range(5, 9))
            self.assertEqual(bits(ours), bits(again), kind)


    def test_what_is_not_its_state_changes_nothing(self):
        nets = [Net(), Net()]
        opts = [StreamingOptimizer([{"params": list(net.first.named_parameters())},
                                    {"params": list(net.last.named_parameters())}], optimizer="adam-merged", lr=1e-3)
                for net in nets]
        for net, opt in zip(nets, opts):
            train(net, opt, range(3))
        damaged, later = opts[0].state_dict(), opts[0].state_dict()
        damaged["param_groups"][1]["frugrad"]["optimizer"][20] ^= 1
        damaged["param_groups"][0]["weight_decay"] = 0.5
        later["param_groups"][0]["frugrad"]["step"] = 100
        del later["param_groups"][1]["frugrad"]["residual"]
        for wrong in (damaged, later):
            with self.assertRaises((ValueError, KeyError)):
                opts[0].load_state_dict(wrong)
        for net, opt in zip(nets, opts):
            train(net, opt, range(3, 6))
        self.assertEqual(bits(nets[0]), bits(nets[1]))

    def test_a_loaded_state_recovers_from_an_exception_in_backward(self):
        nets = [Net(), Net()]
        opts = [StreamingOptimizer(net.named_parameters(), lr=0.02) for net in nets]
        for net, opt in zip(nets, opts):
            train(net, opt, range(3))
        state = opts[0].state_dict()

        def run_out_of_memory(_):
            raise MemoryError("out of memory")

        hook = nets[0].first.weight.register_hook(run_out_of_memory)
        with self.assertRaises(MemoryError):
            loss_of(nets[0], 7).backward()
        hook.remove()
        with self.assertRaisesRegex(RuntimeError, "second gradient.*load_state_dict"):
            loss_of(nets[0], 3).backward()
        self.assertTrue(any(p.grad is not None for p in nets[0].parameters()))  # of the hook that raised
        opts[0].load_state_dict(state)
        self.assertTrue(all(p.grad is None for p in nets[0].parameters()))
        for net, opt in zip(nets, opts):
            train(net, opt, range(3, 6))
        self.assertEqual(bits(nets[0]), bits(nets[1]))

    def test_states_of_other_processes_are_refused(self):
        opt = StreamingOptimizer(Net().named_parameters())
        state = opt.state_dict()
        for key, value in (("rank", 1), ("processes", 2)):
            saved = state["param_groups"][0]["frugrad"]
            with self.assertRaisesRegex(ValueError, "and this is rank 0 of 1"):
                opt.load_state_dict({"state": {}, "param_groups": [dict(state["param_groups"][0],
                                                                        frugrad=dict(saved, **{key: value}))]})
        for key in ("rank", "processes"):  # as earlier versions saved it
            del saved[key]
        opt.load_state_dict(state)


def train_together(kinds):
    """Processes begin with other weights; equal data first, then other data by other ways."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank, size, out = dist.get_rank(), dist.get_world_size(), {}
    for kind, rate in KINDS[:int(kinds)]:
        with mock.patch.object(streaming, "_BUCKET", 1 << 14):
            net, alone = Net(rank), Net(0)
            opt = StreamingOptimizer(net.named_parameters(), lr=rate, optimizer=kind)
            train(net, opt, range(3), "lr")
        train(alone, StreamingOptimizer(alone.named_parameters(), lr=rate, optimizer=kind), range(3), "lr")
        same = bits(net) == bits(alone)
        begin = 100 * (1 + rank)
        losses = [train(net, opt, range(begin + 10 * at, begin + 10 * at + 10), "lr" if rank else "rl"[at % 2])
                  for at in range(6)]
        saved, weights = opt.state_dict(), {name: value.clone() for name, value in net.state_dict().items()}
        train(net, opt, range(1000 + rank, 1005 + rank), "lr"[rank % 2])
        again = Net()
        again.load_state_dict(weights)
        resumed = StreamingOptimizer(again.named_parameters(), optimizer=kind)
        resumed.load_state_dict(saved)
        train(again, resumed, range(1000 + rank, 1005 + rank), "lr"[rank % 2])
        out[kind] = dict(same=same, bits=bits(net), resumed=bits(again) == bits(net), losses=losses,
                         buckets=len(opt._buckets), size=size)
    dist.destroy_process_group()
    return out


def train_differently():
    """Processes that do not train the same."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    net = Net()
    opt = StreamingOptimizer(net.named_parameters(), config=f"density={(1 + dist.get_rank()) / 16}")
    loss_of(net, 0).backward()
    try:
        opt.step()
    except RuntimeError as error:
        return str(error)
    return ""


def load_differently(when):
    """Only the first process loads a state, or each one of its own, at the first step or later."""
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank, errors = dist.get_rank(), {}
    for kind, rate in KINDS:
        for case in ("one", "content", "all", "total_steps", "weight_decay"):
            net = Net()
            opt = StreamingOptimizer(net.named_parameters(), lr=rate, optimizer=kind)
            train(net, opt, range(10 * rank, 10 * rank + 3))
            states = [opt.state_dict()]
            train(net, opt, range(10 * rank + 3, 10 * rank + 5))
            states.append(opt.state_dict())
            states[1]["param_groups"][0]["frugrad"]["step"] = 3
            options = {case: rank} if case in ("total_steps", "weight_decay") else {}
            again = StreamingOptimizer(net.named_parameters(), lr=rate, optimizer=kind, **options)
            opt.close()
            if when == "later" and not options:
                train(net, again, range(2))
            if case == "content" or case == "all" or case == "one" and rank == 0:
                again.load_state_dict(states[rank if case == "content" else 0])
            try:
                train(net, again, range(1))
                errors[f"{kind} {case}"] = ""
            except RuntimeError as error:
                errors[f"{kind} {case}"] = str(error)
            again.close()
    dist.destroy_process_group()
    return errors


def use_other_parameters():
    """A rank does not reach a parameter in backward, and the script has a collective before step()."""
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    net, rank, gathered = Net(), dist.get_rank(), []
    with mock.patch.object(streaming, "_BUCKET", 1):
        opt = StreamingOptimizer(net.named_parameters(), lr=0.02)
    for step in range(4):
        loss_of(net, step, "lr" if step == 0 or rank == 0 else "l").backward()
        losses = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]  # as long as a message of lengths was
        dist.all_gather(losses, torch.tensor([100 * step + rank]))
        gathered.append([int(each) for each in losses])
        opt.step()
    dist.destroy_process_group()
    return gathered, bits(net)


def add_group():
    """Weights of a group that is added later differ at first."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    net = Net(dist.get_rank())
    params = list(net.parameters())
    opt = StreamingOptimizer(params[:2])
    train(net, opt, range(2))
    opt.add_param_group({"params": params[2:]})
    train(net, opt, range(2))
    dist.destroy_process_group()
    return bits(net)


def broadcast_types():
    """Parameters that differ at first, of types and strides of all kinds."""
    import torch.distributed as dist
    from frugrad.torch._group import Group
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    values = torch.randn(8, 4, 3, 3)
    given = [values.to(kind) for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64)]
    given += [values.to(memory_format=torch.channels_last), values[0, 0, 0, 0].clone(), torch.empty(0), values > 0]
    with torch.no_grad():
        Group().broadcast(given)
        StreamingOptimizer([torch.nn.Parameter(given[0])])
    dist.destroy_process_group()
    return [each.double().flatten().tolist() for each in given]


class Together(unittest.TestCase):
    def check(self, size, kinds):
        every = support.values(support.torchrun(size, train_together, args=[kinds]))
        for kind, _ in KINDS[:kinds]:
            self.assertEqual(len({each[kind]["bits"] for each in every}), 1, kind)
            for each in every:
                self.assertTrue(size != 2 or each[kind]["same"], f"{kind}: equal data train as one process does")
                self.assertTrue(each[kind]["resumed"], kind)
                self.assertGreater(each[kind]["buckets"], 2)
                self.assertLess(each[kind]["losses"][-1], each[kind]["losses"][0])

    def test_two_processes(self):
        self.check(2, 2)

    def test_three_processes(self):
        self.check(3, 1)

    def test_a_group_that_is_added_later_is_the_same_on_all(self):
        self.assertEqual(len(set(support.values(support.torchrun(2, add_group)))), 1)

    def test_a_collective_of_the_script_is_not_mixed_up_with_those_of_the_optimizer(self):
        every = support.values(support.torchrun(2, use_other_parameters))
        for gathered, weights in every:
            self.assertEqual(gathered, [[100 * step, 100 * step + 1] for step in range(4)])
            self.assertEqual(weights, every[0][1])

    def test_processes_with_different_states_all_raise(self):
        for when in ("first", "later"):
            first, second = support.values(support.torchrun(2, load_differently, args=[when]))
            self.assertEqual(first, second)
            for kind, _ in KINDS:
                other = 0 if when == "first" else 2
                self.assertIn(f"ranks differ in the step: rank 0 has [3], rank 1 has [{other}]", first[f"{kind} one"])
                self.assertEqual(first[f"{kind} all"], "")
                for case in ("total_steps", "weight_decay"):
                    self.assertIn(f"ranks differ in {case}", first[f"{kind} {case}"])
            self.assertIn("ranks differ in the optimizer's loaded state", first["adam-merged content"])

    def test_parameters_of_all_types_are_those_of_the_first_process(self):
        first, second = support.values(support.torchrun(2, broadcast_types))
        torch.manual_seed(0)
        self.assertEqual(first[2], torch.randn(8, 4, 3, 3).double().flatten().tolist())
        self.assertEqual(first, second)

    def test_different_processes_all_raise(self):
        for text in support.values(support.torchrun(2, train_differently)):
            self.assertIn("ranks differ in", text)


if __name__ == "__main__":
    unittest.main()
