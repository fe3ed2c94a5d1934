"""frugrad.torch.SGC: the library's optimizers behave as a torch optimizer, and are the same bit for bit."""

import hashlib
import io
import math
import subprocess
import sys
import unittest
import warnings
from datetime import timedelta
from unittest import mock

import support

torch = support.need("torch")
from frugrad import FrugradError, _core  # noqa: E402
from frugrad.torch import SGC  # noqa: E402

torch.set_num_threads(1)
VARIANTS = ("table", "mesgc", "cesgc", "sgc", "lora", "galore", "apollo", "adamw")


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64))


def batch(step, n=16):
    return torch.randn(n, 64, generator=torch.Generator().manual_seed(step))


def train(net, opt, steps, each=None):
    """Learn to reproduce the input's first half in reverse; returns the last loss."""
    for step in steps:
        x = batch(step)
        opt.zero_grad()
        loss = (net(x) - x.flip(1)).pow(2).mean()
        loss.backward()
        opt.step()
        if each:
            each()
    return loss.item()


class _HostScaler(torch.cuda.amp.GradScaler):
    """The GradScaler of PyTorch before 2.3, which is for GPUs, with what it does there done on the host."""

    def __init__(self, **options):
        with mock.patch.object(torch.cuda.amp.grad_scaler, "amp_definitely_not_available", return_value=False):
            super().__init__(**options)

    def scale(self, loss):
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(loss.device)
        return loss * self._scale

    def _unscale_grads_(self, optimizer, factor, found, allow_fp16):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for grad in grads:
            found.add_(float(not torch.isfinite(grad).all()))
            grad.mul_(factor)
        return {found.device: found} if grads else {}

    def update(self):
        for state in self._per_optimizer_states.values():
            self._scale *= 0.5 if sum(map(float, state["found_inf_per_device"].values())) else 1.0
        self._per_optimizer_states.clear()


def scaler_of(**options):
    """A GradScaler for the host."""
    if hasattr(getattr(torch, "amp", None), "GradScaler"):
        return torch.amp.GradScaler("cpu", growth_interval=1000, **options)
    return _HostScaler(**options)


def bits(net):
    data = b"".join(_core.ctypes.string_at(p.data_ptr(), 4 * p.numel()) for p in net.parameters())
    return hashlib.sha256(data).hexdigest()


class Parity(unittest.TestCase):
    def test_table_is_the_library_bit_for_bit(self):
        torch.manual_seed(1)
        p = torch.nn.Parameter(torch.randn(96, 80))
        mine = p.detach().clone()
        opt = SGC([p], lr=0.01, s=128, kappa=5, chunks=32, betas=(0.8, 0.9), weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        c = _core.Optimizer("table:targets=all,s=128,kappa=5,c=32,beta1=0.8,beta2=0.9,decay=0.1",
                            _core.Layout([_core.Tensor("w", (96, 80))]))
        for step in range(20):
            p.grad = torch.randn(96, 80)
            rate = opt.param_groups[0]["lr"]
            c.step(step, 0, p.numel(), p.grad.data_ptr(), rate, mine.data_ptr())
            opt.step()
            schedule.step()
        self.assertTrue(torch.equal(p.detach(), mine))
        self.assertLess(rate, 0.01 * 0.9 ** 18.5)
        self.assertEqual(opt.states, c.states)

    def test_adamw_group_is_torch_adamw(self):
        ours, theirs = model(), model()
        mine = SGC(ours.parameters(), lr=3e-3, variant="adamw", weight_decay=0.05, betas=(0.85, 0.98))
        adamw = torch.optim.AdamW(theirs.parameters(), lr=3e-3, weight_decay=0.05, betas=(0.85, 0.98))
        train(ours, mine, range(20))
        train(theirs, adamw, range(20))
        for a, b in zip(ours.parameters(), theirs.parameters()):
            self.assertLess(float((a - b).detach().abs().max()), 1e-6)

    def test_vectors_and_small_matrices_get_adamw(self):
        torch.manual_seed(3)
        shapes = ((64,), (8, 16), ())
        mine = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        other = [torch.nn.Parameter(p.detach().clone()) for p in mine]
        a, b = SGC(mine, lr=0.01), torch.optim.AdamW(other, lr=0.01, weight_decay=0)
        for _ in range(5):
            for p, q in zip(mine, other):
                p.grad = torch.randn(p.shape)
                q.grad = p.grad.clone()
            a.step()
            b.step()
        self.assertEqual(a.states, 2 * sum(p.numel() for p in mine))
        for p, q in zip(mine, other):
            self.assertLess(float((p - q).detach().abs().max()), 1e-6)


class Behaviour(unittest.TestCase):
    def test_every_variant_learns(self):
        start = train(model(), torch.optim.SGD(model().parameters(), lr=0.0), range(1))
        for variant in VARIANTS:
            net = model()
            opt = SGC(net.parameters(), lr=5e-3, variant=variant)
            self.assertLess(train(net, opt, range(8)), start, variant)
            self.assertGreater(opt.states, 0)
            self.assertGreaterEqual(opt.state_bytes, 4 * opt.states)
            self.assertTrue(all(value >= 0 for value in opt.times().values()), variant)

    def test_groups_go_their_own_ways(self):
        net = model()
        still = net[2].bias.detach().clone()
        opt = SGC([{"params": net[0].parameters(), "variant": "mesgc", "kappa": 5},
                   {"params": [net[2].bias], "lr": 0.0}], lr=1e-3, s=64, chunks=16)
        before = opt.states
        opt.add_param_group({"params": [net[2].weight], "variant": "adamw", "lr": 1e-2})
        self.assertEqual(opt.states, before + 2 * net[2].weight.numel())
        train(net, opt, range(3))
        self.assertTrue(torch.equal(net[2].bias.detach(), still))
        self.assertEqual([g["variant"] for g in opt.param_groups], ["mesgc", "table", "adamw"])
        self.assertIn("lr: 0.01", repr(opt))

    def test_what_does_not_fit_is_refused(self):
        weight = model()[0].weight
        for words, wrong in (("no rank", dict(rank=4)), ("unknown", dict(variant="tabel")),
                             ("not sparse", dict(s=64 * 64 * 64)), ("foo", dict(options="foo=1")),
                             ("beta1", dict(betas=(1.5, 0.9))), ("negative", dict(lr=-1.0)),
                             ("negative", dict(lr=math.nan))):
            with self.assertRaises(ValueError) as caught:
                SGC([weight], **wrong)
            self.assertIn(words, str(caught.exception))
        opt = SGC([weight])
        with self.assertRaises(ValueError):
            opt.add_param_group({"params": [model()[2].weight], "variant": "adamw", "s": 5})
        self.assertEqual(len(opt.param_groups), 1)
        with self.assertRaises(TypeError):
            SGC([torch.zeros(3, dtype=torch.int64)])

    def test_gradients_that_are_missing_sparse_or_not_finite(self):
        net = model()
        opt = SGC(net.parameters(), lr=0.1)
        before = [p.detach().clone() for p in net.parameters()]
        opt.step()  # no gradient at all
        net[0].weight.grad = torch.full((128, 64), float("nan"))
        opt.step()
        self.assertTrue(all(torch.equal(a, b.detach()) for a, b in zip(before, net.parameters())))
        net[0].weight.grad = torch.ones(128, 64).to_sparse()
        with self.assertRaisesRegex(RuntimeError, "sparse"):
            opt.step()

    def test_closure_and_autograd_notice(self):
        net = model()
        opt = SGC(net.parameters(), lr=1e-3)
        x = batch(0)

        def closure():
            opt.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward(retain_graph=True)
            return loss

        loss = opt.step(closure)
        self.assertGreater(loss.item(), 0)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_other_strides_and_types_move_alike(self):
        torch.manual_seed(5)
        plain = torch.nn.Parameter(torch.randn(32, 16, 3, 3).bfloat16().float())
        strided = torch.nn.Parameter(plain.detach().clone().to(memory_format=torch.channels_last))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            short = torch.nn.Parameter(plain.detach().bfloat16())
            opts = [SGC([p], lr=0.01) for p in (plain, strided, short)]
        grad = torch.randn(32, 16, 3, 3)
        for p, g in ((plain, grad), (strided, grad.to(memory_format=torch.channels_last)), (short, grad.bfloat16())):
            p.grad = g
        plain_short = torch.nn.Parameter(plain.detach().clone())
        plain_short.grad = grad.bfloat16().float()
        for opt in opts + [SGC([plain_short], lr=0.01)]:
            opt.step()
        self.assertFalse(strided.is_contiguous())
        self.assertTrue(torch.equal(plain.detach(), strided.detach()))
        self.assertTrue(torch.equal(plain_short.detach().bfloat16(), short.detach()))

    def test_grad_scaler(self):
        for parallel, unscaled in ((False, False), (True, False), (True, True)):
            nets = [model(), model()]
            opts = [SGC(net.parameters(), lr=1e-3, data_parallel=parallel) for net in nets]
            scaler = scaler_of(init_scale=2.0 ** 10)
            for step in range(5):
                for net, opt, scaled in zip(nets, opts, (True, False)):
                    opt.zero_grad()
                    loss = net(batch(step)).pow(2).mean()
                    (scaler.scale(loss) if scaled else loss).backward()
                    if scaled and unscaled:
                        scaler.unscale_(opt)
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        scaler.step(opt) if scaled else opt.step()
                scaler.update()
            self.assertEqual(bits(nets[0]), bits(nets[1]), (parallel, unscaled))
            before = bits(nets[0])
            nets[0][0].weight.grad.fill_(math.inf)
            scaler.step(opts[0])
            scaler.update()
            self.assertEqual(bits(nets[0]), before)
            self.assertEqual(scaler.get_scale(), 2.0 ** 9)

    def test_unknown_arguments_of_a_step_are_refused(self):
        for parallel, named in ((True, "scaler"), (False, "grad_scaler")):
            with self.assertRaisesRegex(TypeError, f"argument '?{named}"):
                SGC(model().parameters(), data_parallel=parallel).step(**{named: None})

    def test_a_step_makes_one_library_call_and_few_python_calls_a_parameter(self):
        """Counts, not times: whatever step() does for a parameter it does in at most 25 calls, C functions included."""
        params = [torch.nn.Parameter(torch.randn(4)) for _ in range(100)]
        for p in params:
            p.grad = torch.randn(4)
        opt, calls, steps = SGC(params), [], []
        opt.step()
        part = opt._parts[0][0]
        part.optimizer.step, move = lambda *arguments: (steps.append(1), move(*arguments)), part.optimizer.step
        sys.setprofile(lambda frame, event, argument: calls.append(event) if "call" in event else None)
        try:
            opt.step()
        finally:
            sys.setprofile(None)
        self.assertEqual(len(steps), len(params))
        self.assertLess(len(calls) / len(params), 25)


class States(unittest.TestCase):
    def test_resuming_is_bit_exact(self):
        for variant in ("table", "mesgc", "cesgc", "lora", "galore", "apollo"):
            more = {"refresh": 3} if variant in ("cesgc", "galore") else {}
            ours, file = model(), io.BytesIO()
            opt = SGC(ours.parameters(), lr=2e-3, variant=variant, weight_decay=0.01, **more)
            train(ours, opt, range(5))
            torch.save({"model": ours.state_dict(), "opt": opt.state_dict()}, file)
            train(ours, opt, range(5, 9))
            file.seek(0)
            saved = torch.load(file, map_location="cpu")
            again = model(9)
            again.load_state_dict(saved["model"])
            resumed = SGC(again.parameters(), variant=variant, **more)
            resumed.load_state_dict(saved["opt"])
            self.assertEqual(resumed.param_groups[0]["weight_decay"], 0.01)
            train(again, resumed, range(5, 9))
            self.assertEqual(bits(ours), bits(again), variant)

    def test_what_is_not_its_state_changes_nothing(self):
        ours, same = model(), model()
        opt, twin = (SGC(net.parameters(), lr=1e-3) for net in (ours, same))
        train(ours, opt, range(3))
        train(same, twin, range(3))
        other = SGC(model().parameters(), variant="mesgc").state_dict()
        adamw = torch.optim.AdamW(model().parameters()).state_dict()
        damaged = opt.state_dict()
        damaged["param_groups"][0]["frugrad"]["table"][100] ^= 1
        for wrong in (other, adamw, damaged):
            with self.assertRaises(ValueError):
                opt.load_state_dict(wrong)
        train(ours, opt, range(3, 6))
        train(same, twin, range(3, 6))
        self.assertEqual(bits(ours), bits(same))

    def test_options_may_change_between_steps(self):
        nets = [model() for _ in range(3)]
        opts = [SGC(net.parameters(), lr=1e-2) for net in nets]
        opts[2].param_groups[0]["weight_decay"] = 0.5
        for net, opt in zip(nets, opts):
            train(net, opt, range(2))
        self.assertEqual(bits(nets[0]), bits(nets[1]))
        self.assertLess(float(nets[2][0].weight.detach().norm()), float(nets[1][0].weight.detach().norm()))
        opts[1].param_groups[0]["s"] = 64
        with self.assertRaises(FrugradError):
            opts[1].step()

    def test_threads_do_not_change_a_bit(self):
        nets = [model() for _ in range(2)]
        for net, threads in zip(nets, (1, 3)):
            train(net, SGC(net.parameters(), variant="mesgc", threads=threads), range(2))
        self.assertEqual(bits(nets[0]), bits(nets[1]))

    def test_copies_are_refused(self):
        import copy
        with self.assertRaisesRegex(TypeError, "state_dict"):
            copy.deepcopy(SGC(model().parameters()))


def in_two(net, **options):
    """An optimizer that got its second group later."""
    params = list(net.parameters())
    opt = SGC(params[:2], lr=1e-3, **options)
    opt.add_param_group({"params": params[2:]})
    return opt


def together():
    """Two processes that have the same data, then other data, then one of them has no gradient."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank, out = dist.get_rank(), {}
    for variant in ("mesgc", "cesgc", "table"):
        net, alone = model(rank), model(0)
        opt = in_two(net, variant=variant, data_parallel=True)
        train(net, opt, range(4))
        train(alone, in_two(alone, variant=variant), range(4))
        same = bits(net) == bits(alone)
        traffic = opt.traffic()
        train(net, opt, range(10 + 10 * rank, 15 + 10 * rank))
        net[0].weight.grad = None if rank else net[0].weight.grad
        opt.step()
        for p in net.parameters():
            p.grad = None
        still = bits(net)
        opt.step()
        scaler = scaler_of()
        scaler.scale(torch.zeros(()))
        net[0].weight.grad = torch.full((128, 64), math.inf if rank else 1.0)
        scaler.step(opt)
        out[variant] = dict(traffic, same=same, bits=bits(net), still=still == bits(net))
    dist.destroy_process_group()
    return out


def train_differently(case):
    """Processes with other options, or of which one has loaded a state: before the first step, or later."""
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank, net, trained = dist.get_rank(), model(), model()
    wrong = {"variant": ("table", "cesgc")[rank], "s": 64 * (1 + rank), "min_size": 4096 * (1 + 2 * rank)}
    options = dict({"variant": "cesgc", "refresh": None if case == "variant" else 3},
                   **{name: value for name, value in wrong.items() if name == case})
    opt, other = SGC(net.parameters(), data_parallel=True, **options), SGC(trained.parameters(), **options)
    train(trained, other, range(3))  # at the next step, messages have another length
    try:
        if "later" in case:
            train(net, opt, range(2))
        if "load" in case and (rank == 0 or "all" in case):
            opt.load_state_dict(other.state_dict())
        train(net, opt, range(2))
        return ""
    except RuntimeError as error:
        return str(error)
    finally:
        dist.destroy_process_group()


class Together(unittest.TestCase):
    def test_two_processes_exchange_measurements(self):
        first, second = support.values(support.torchrun(2, together))
        for variant in first:
            self.assertTrue(first[variant]["same"], f"{variant}: equal gradients move as one process does")
            self.assertTrue(first[variant]["still"], f"{variant}: no gradient or an overflow anywhere moves nothing")
            self.assertEqual(first[variant]["bits"], second[variant]["bits"], variant)
            self.assertEqual(first[variant]["bytes_dense"], 4 * 4 * (2 * 64 * 128 + 64 + 128))
        matrices, vectors, flags = 2 * 2 * 7 * 448, 64 + 128, 4 + 1
        self.assertEqual(first["mesgc"]["bytes_sent"], 4 * 4 * (matrices + vectors + flags))
        self.assertEqual(first["table"]["bytes_sent"], first["table"]["bytes_dense"] + 4 * 4 * flags)


    def test_different_processes_all_raise(self):
        step = "ranks differ in the step (of parameter 0): rank 0 has 3, rank 1 has "
        for case, words in (("variant", "ranks differ in variant of group 0: rank 0 has table, rank 1 has cesgc"),
                            ("s", "ranks differ in s of group 0: rank 0 has 64, rank 1 has 128"),
                            ("min_size", "ranks differ in optimizer, shape or order of parameters"),
                            ("load", step + "0"), ("load later", step + "2")):
            for text in support.values(support.torchrun(2, train_differently, args=[case])):
                self.assertIn(words, text, case)

    def test_processes_that_load_one_state_continue(self):
        for case in ("load all", "load all later"):
            self.assertEqual(support.values(support.torchrun(2, train_differently, args=[case])), ["", ""], case)


class Example(unittest.TestCase):
    def test_fine_tuning_runs_as_documented(self):
        script = support.SOURCE / "examples" / "torch_finetune_sgc.py"
        options = "--steps 12 --width 64 --s 128 --variants table cesgc".split()
        done = subprocess.run([sys.executable, str(script), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        head, *rows = done.stdout.decode().splitlines()
        before = float(head.split()[-1])
        states = {}
        for row in rows:
            kind, count, _, _, loss = row.split()
            states[kind] = int(count)
            self.assertLess(float(loss), before, kind)
        self.assertEqual(list(states), ["adamw", "table", "cesgc"])
        self.assertLess(10 * states["table"], states["adamw"])


if __name__ == "__main__":
    unittest.main()
