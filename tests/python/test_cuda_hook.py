"""The hook with frames made on a GPU: the bits of the hook on the CPU, on every way that frames can take.

Where there is no GPU the kernels are emulated on the CPU (tests/cuda/emulator), over gloo: both the way over the host,
and the one of NCCL, where work is only put onto streams. Where there is one: gloo with two processes on the first GPU,
and NCCL with one process a GPU. Gradients are fixed numbers, so that nothing depends on how a GPU computes a model.
"""

import functools
import gc
import itertools
import os
import time
import unittest
import warnings
import weakref
from datetime import timedelta

import support
from ddp_helpers import RANK, WORLD, atexit, dist, nn, state_for, torch

from frugrad import _cuda
from frugrad.torch import device, exchange, hook, ranges

EMULATED = os.environ.get("FRUGRAD_CUDA_EMULATED", "")
SHAPES = ((80, 70), (513,), (64, 3, 3, 3), (300, 41), (5,), (129, 32), (2, 3))
ALIKE = ("feedback=merged", "feedback=plain,value=int8", "feedback=none,value=f32", "schedule=constant:0.99",
         "schedule=constant:0.999,feedback=plain", "feedback=plain,residual=f32,index=bitmap",
         "warmup=2,feedback=plain", "feedback=plain,residual=int4,select=exact", "frugrad-paper",
         "reduce=split,feedback=plain,value=f32",
         "reduce=split,feedback=plain,schedule=constant:0.99", "reduce=split,schedule=frugrad:0.5:0.94:0.5",
         "reduce=split,warmup=2", "feedback=merged,hold=auto,beta=0.9", "reduce=split,feedback=merged,hold=adam",
         "block=64,residual=int4", "block=128,index=bitmap,schedule=constant:0.8", "block=64,reduce=split,feedback=plain",
         "block=1024,residual=int8", "block=4096,reduce=split,feedback=plain,schedule=constant:0.999")
KEPT = ("reduce=split,down=2,feedback=merged,hold=0.5,residual=f32,value=f32",
        "reduce=split,down=2,feedback=plain,residual=f32,value=f32", "reduce=split,down=1,feedback=plain,residual=f32")


class Fixed(nn.Module):
    """A model whose gradient is what it is called with."""

    def __init__(self, dtype, device):
        super().__init__()
        made = torch.Generator().manual_seed(5)
        self.w = nn.ParameterList([nn.Parameter(torch.randn(shape, generator=made).to(device, dtype))
                                   for shape in SHAPES])

    def forward(self, gradients):
        return sum((w * g).sum() for w, g in zip(self.w, gradients))


class Run:
    """A DDP with the hook, and how it is fed."""

    def __init__(self, config, kind, on_host=False, dtype=torch.float32, **options):
        self.device = torch.device("cpu")
        group = dist.new_group(backend="gloo") if on_host and kind == "nccl" else None
        if kind in ("gloo", "nccl") and not on_host:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.dtype, self.model = dtype, Fixed(dtype, self.device)
        options.setdefault("start_iter", 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # momentum is not the question here
            self.state = state_for(self.model, config, total_steps=8, process_group=group, **options)
        if on_host:
            self.state._device_engine = lambda tensors, _: None
        elif kind == "streams":
            self.state._direct = True
        self.wrap(group)

    def wrap(self, group=None, cap=0.015, **options):
        self.ddp = nn.parallel.DistributedDataParallel(self.model, bucket_cap_mb=cap, process_group=group, **options)
        self.ddp.register_comm_hook(self.state, hook)

    def step(self, step, spoil=None):
        """Gradients of all parameters that are not frozen after one backward, on the host."""
        self.model.zero_grad(set_to_none=True)
        self.ddp([g.to(self.device, self.dtype) for g in given(step, RANK, spoil)]).backward()
        trained = [w for w in self.model.w if w.requires_grad]
        missing = [tuple(w.shape) for w in trained if w.grad is None]
        if missing:
            raise AssertionError(f"backward left no gradient for parameters of shape {missing}")
        return [w.grad.cpu() for w in trained]

    def where(self):
        return self.state.stats()["device"] != "cpu" or type(self.state._engine).__name__ == "DeviceEngine"


def given(step, rank, spoil=None):
    made = torch.Generator().manual_seed(1000 * step + rank)
    gradients = [torch.randn(shape, generator=made) for shape in SHAPES]
    if spoil:
        gradients[0].view(-1)[3000] = float(spoil)
        gradients[3].view(-1)[-1] = float(spoil)
    return gradients


def begin(kind, seconds=60):
    torch.set_num_threads(1)
    exchange._EXIT_DELAY = 0  # of each DDPState; once, at exit, is enough
    atexit.register(time.sleep, 0.1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 6000
    if kind == "nccl":
        torch.cuda.set_device(RANK)
    dist.init_process_group("nccl" if kind == "nccl" else "gloo", timeout=timedelta(seconds=seconds))
    atexit.register(dist.destroy_process_group)


def equal(one, other):
    """Whether two lists of tensors have the same bits; an error if they are empty or of different lengths."""
    if not one or len(one) != len(other):
        raise AssertionError(f"nothing to compare: {len(one)} tensors and {len(other)}")
    return all(torch.equal(a, b) for a, b in zip(one, other))


def same_bits(kind):
    """Four steps with each config on the device and on the host: gradients and states."""
    begin(kind)
    results = []
    configs = ALIKE + KEPT
    for config in configs[1::3] if kind == "streams" else configs:
        there, here = Run(config, kind), Run(config, kind, on_host=True)
        same = [equal(there.step(i), here.step(i)) for i in range(4)]
        states = [run.state.state_dict()["ranks"][RANK] for run in (there, here)]
        results.append([config, there.where() and not here.where(), same, torch.equal(*states),
                        there.state.stats()["bytes_sent"] > 0])
    return results


def large_buckets(kind):
    """Frames of a bucket that is cut into ranges, as one of gigabytes is: the bits of those of whole ones."""
    begin(kind)
    results, most = [], ranges._MOST
    for config in ("feedback=plain,schedule=constant:0.97", "reduce=split,feedback=plain,schedule=constant:0.97"):
        there, here = Run(config, kind), Run(config, kind, on_host=True)
        for i in range(3):
            ranges._MOST = 2700
            cut = there.step(i)
            ranges._MOST = most
            results.append(equal(cut, here.step(i)))
        results.append(max(len(plan.exchange.ranges) for plan in there.state._plans.values()) > 4 and there.where())
    return results


def grown(kind):
    """Wrapped again with other buckets and a tensor that was frozen before: residuals are kept."""
    begin(kind)
    results, runs = [], []
    for on_host in (False, True):
        run = Run("feedback=plain,residual=f32", kind, on_host, start_iter=0)
        group = run.ddp.process_group
        for i in range(4):
            run.model.w[3].requires_grad_(i > 1)
            if i in (0, 2):
                run.wrap(group, cap=0.015 * (i + 1))
            run.step(i)
        runs.append(run)
    left = [run.state.residuals() for run in runs]
    results.append(sorted(left[0]) == sorted(left[1]))
    results += [torch.equal(left[0][name], left[1][name]) and bool(left[0]["w.3"].any()) for name in left[0]]
    return results


def mixed(kind):
    """The first rank on the device, the other one on the host: what do both raise?"""
    begin(kind)
    run = Run("feedback=plain", kind, on_host=RANK > 0, start_iter=0)
    try:
        run.step(0)
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return "nothing"


def other_types(kind):
    """Gradients in bf16, f16 and float64."""
    begin(kind)
    results = []
    new = int(torch.__version__.split(".")[0]) >= 2  # before that DDP could not hand out bfloat16 over gloo
    for dtype in (torch.bfloat16,) * new + (torch.float16, torch.float64):
        there = Run("feedback=plain", kind, dtype=dtype, start_iter=0)
        here = Run("feedback=plain", kind, on_host=True, dtype=dtype, start_iter=0)
        results.append([str(dtype), all(equal(there.step(i), here.step(i)) for i in range(3)) and there.where()])
    return results


def not_finite(kind):
    """Blocks with a NaN or an infinity on one rank, in the middle of two steps."""
    begin(kind)
    results = []
    for config in ("feedback=plain", "feedback=none,value=f32", "reduce=split,feedback=plain"):
        there, here = Run(config, kind, start_iter=0), Run(config, kind, on_host=True, start_iter=0)
        for i, spoil in enumerate((None, "nan", "inf", None)):
            spoil = spoil if RANK == 0 else None
            results.append(equal(there.step(i, spoil), here.step(i, spoil)) and there.where())
    return results


def shown_to_all(kind):
    """With nonfinite="propagate" a gradient that is not finite on one rank is not finite on any, and nothing else changes."""
    begin(kind)
    results = []
    for config in ("feedback=plain", "reduce=split,feedback=plain"):
        runs = [Run(config, kind, nonfinite="propagate"), Run(config, kind)]
        for i, spoil in enumerate((None, None, "inf", None)):
            seen, skipped = [run.step(i, spoil if RANK == 0 else None) for run in runs]
            finite = all(bool(torch.isfinite(g).all()) for g in seen)
            results.append(equal(seen, skipped) if spoil is None else not finite)
    return results


def everything(kind):
    """Density 1: the mean in the order of ranks."""
    begin(kind)
    results = []
    for config in ("density=1,value=f32,feedback=none", "density=1,value=f32,feedback=none,reduce=split"):
        run = Run(config, kind, start_iter=0)
        for i in range(2):
            sums = [torch.zeros(shape) for shape in SHAPES]
            for rank in range(WORLD):
                sums = [s + g for s, g in zip(sums, given(i, rank))]
            results.append(equal(run.step(i), [s * torch.tensor(1.0 / WORLD) for s in sums]) and run.where())
            results.append(not any(w.grad.requires_grad for w in run.model.w))
    return results


def checkpoints(kind):
    """Device, host, device, two steps each, with other buckets: the bits of six steps in one go."""
    begin(kind)
    results = []
    for config in ("feedback=plain,residual=int8", "feedback=merged,residual=f32", "feedback=none"):
        whole = Run(config, kind, start_iter=0)
        want = [whole.step(i) for i in range(6)]
        state, same = None, []
        for turn in range(3):
            run = Run(config, kind, on_host=turn == 1, start_iter=0)
            if state is not None:
                run.state.load_state_dict(state)
            same += [equal(run.step(i), want[i]) for i in range(2 * turn, 2 * turn + 2)]
            state = run.state.state_dict(all_ranks=True)
        residuals = run.state.residuals()
        results.append([all(same), all(torch.equal(residuals[name], left)
                                       for name, left in whole.state.residuals().items())])
    return results


def fallback(kind):
    """A config that kernels do not take: one note, with the reason, and the host's bits."""
    begin(kind)
    results = []
    for config, reason in (("norm=follow", "length"), ("threshold", "length"), ("feedback=dgc", "feedback")):
        there, here = Run(config, kind), Run(config, kind, on_host=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same = all(equal(there.step(i), here.step(i)) for i in range(3))
        notes = [str(w.message) for w in caught if "on the host" in str(w.message)]
        results.append([config, same, len(notes), reason in "".join(notes), there.where()])
    return results


def one_fails(kind):
    """The last rank's compressor fails in the second bucket of a step, or the copy before it. What do all say, and when?"""
    begin(kind, seconds=20)
    errors = []
    for config, copies in itertools.product(("feedback=plain", "reduce=split,feedback=plain"), (False, True)):
        run = Run(config, kind, dtype=torch.float16 if copies else torch.float32, start_iter=0, nonfinite="propagate")
        for i in range(2):  # DDP rebuilds its buckets after the first
            run.step(i)
        if RANK == WORLD - 1:
            def fail(*_):
                raise MemoryError("no room on purpose")
            plan = run.state._plans[1]
            if copies:
                plan.floats = fail
            else:
                plan.exchange.compress = fail
        for i in range(2, 4):
            try:
                run.step(i)
            except Exception as error:
                errors.append([i, str(error).split("\n")[0]])
                break
        dist.barrier()  # no collective is left over
    return errors


def damaged(kind):
    """A byte of a frame changes on its way to every rank: the step after it raises, and the next one works again."""
    begin(kind)
    run = Run("feedback=plain", kind, start_iter=0)
    for i in range(2):
        run.step(i)
    collective = run.state._plans[1].exchange.first
    finish = collective.finish

    def spoil():
        finish()
        collective.received[100] ^= 1
    collective.finish = spoil
    before = run.step(2)
    collective.finish = finish
    try:
        run.step(3)
        errors = "nothing"
    except Exception as error:
        errors = str(error).split("\n")[0]
    run.wrap()  # DDP itself needs that after an error
    return [any(not g.any() for g in before), errors, all(bool(g.any()) for g in run.step(4))]


def raised_until_loaded(kind):
    """After a rank has failed every backward raises on all, until a state is loaded."""
    begin(kind, seconds=10)
    errors = []
    run = Run("feedback=plain", kind, start_iter=0)
    for i in range(2):
        run.step(i)
    saved = run.state.state_dict()
    if RANK == WORLD - 1:
        def fail(*_):
            raise MemoryError("no room on purpose")
        run.state._plans[1].exchange.compress = fail
    for i in range(2, 6):
        try:
            run.step(i)
            errors.append("nothing")
        except Exception as error:
            errors.append(str(error).split("\n")[0])
            run.wrap()  # DDP itself needs that after an error
    run.state.load_state_dict(saved)
    return [errors, all(bool(g.any()) for g in run.step(2))]


def damaged_early(kind):
    """The same in the first bucket of all, before the other buckets' parameters are known."""
    begin(kind)
    finish, calls = device.Collective.finish, []

    def spoil(collective):
        finish(collective)
        calls.append(collective)
        if len(calls) == 1:
            collective.received[100] ^= 1
    run = Run("feedback=plain", kind, start_iter=0)
    run.wrap(find_unused_parameters=True)  # else all is one bucket at first
    device.Collective.finish = spoil
    run.step(0)
    try:
        run.step(1)
    except Exception as error:
        return str(error).split("\n")[0]
    return f"nothing, {len(calls)} buckets"


def damaged_twice(kind):
    """The same in both collectives of reduce=split in one step: it is raised once."""
    begin(kind)
    run = Run("reduce=split,feedback=plain", kind, start_iter=0)
    for i in range(2):
        run.step(i)
    collectives = [getattr(run.state._plans[1].exchange, way) for way in ("first", "second")]

    def spoil(collective, finish):
        finish()
        collective.received[100] ^= 1
    for collective in collectives:
        collective.finish = functools.partial(spoil, collective, collective.finish)
    run.step(2)
    for collective in collectives:
        del collective.finish
    errors = []
    for i in range(3, 6):
        try:
            errors.append("nothing" if all(bool(g.any()) for g in run.step(i)) else "zeros")
        except Exception as error:
            errors.append(str(error).split("\n")[0])
            run.wrap()
    return errors


def damaged_sums(kind):
    """A frame with sums of the first bucket is damaged: the residuals of other buckets do not change."""
    begin(kind)
    left = []
    for spoiled in (False, True):
        run = Run("reduce=split,down=1,feedback=plain,residual=f32", kind, start_iter=0)
        for i in range(2):
            run.step(i)
        collective = run.state._plans[0].exchange.second

        def spoil(collective=collective, finish=collective.finish):
            finish()
            collective.received[100] ^= spoiled
        collective.finish = spoil
        run.step(2)
        left.append(run.state.residuals())
    return [torch.equal(left[0][name], left[1][name]) for name in left[0]]


def freed_on_load(kind):
    """Memory of the device is freed as soon as a state is loaded."""
    begin(kind)
    run = Run("feedback=plain", kind, start_iter=0)
    for i in range(2):
        run.step(i)
    gc.collect()
    gc.disable()
    engine = weakref.ref(run.state._engine)
    run.state.load_state_dict(run.state.state_dict())
    return engine() is None


def died(kind):
    """A rank dies between two steps: the other's backward ends with an error."""
    begin(kind, seconds=5)
    run = Run("frugrad", kind, start_iter=0)
    run.step(0)
    if RANK == 1:
        os._exit(0)
    try:
        run.step(1)
    except Exception as error:
        return type(error).__name__
    return "nothing"


class Cases:
    """What is asked on every way."""

    kind, ranks, env = "", 2, {}

    def run_all(self, function, timeout=240):
        return support.values(support.torchrun(self.ranks, function, args=[self.kind], env=self.env, timeout=timeout))

    def test_the_bits_of_the_cpu(self):
        for results in self.run_all(same_bits):
            for config, there, same, states, sent in results:
                self.assertEqual([there, same, states, sent], [True, [True] * 4, True, True], config)

    def test_large_buckets(self):
        for results in self.run_all(large_buckets):
            self.assertEqual(results, [True] * 8)

    def test_what_was_left_behind_moves_on(self):
        for results in self.run_all(grown):
            self.assertEqual(results, [True] * (1 + len(SHAPES)))

    def test_ranks_with_and_without_a_gpu_are_refused(self):
        if self.kind != "emulated":
            self.skipTest("one device for all")
        for errors in self.run_all(mixed):
            self.assertIn("ranks differ in whether they compress on a GPU", errors)

    def test_other_types(self):
        for results in self.run_all(other_types):
            for dtype, same in results:
                self.assertTrue(same, dtype)

    def test_nan_and_infinity(self):
        for results in self.run_all(not_finite):
            self.assertEqual(results, [True] * 12)

    def test_a_number_that_is_not_finite_can_be_shown_to_all_ranks(self):
        for results in self.run_all(shown_to_all):
            self.assertEqual(results, [True] * 8)

    def test_everything_sent_is_the_mean(self):
        for results in self.run_all(everything):
            self.assertEqual(results, [True] * 8)

    def test_checkpoints_go_to_the_host_and_back(self):
        for results in self.run_all(checkpoints):
            self.assertEqual(results, [[True, True]] * 3)

    def test_what_kernels_do_not_take_goes_over_the_host(self):
        for results in self.run_all(fallback):
            for config, same, notes, reason, there in results:
                self.assertEqual([same, notes, reason, there], [True, 1, True, False], config)

    def test_a_rank_that_fails_tells_the_others(self):
        late = self.kind in ("streams", "nccl")
        for rank, errors in enumerate(self.run_all(one_fails)):
            self.assertEqual(len(errors), 4)
            for step, text in errors:
                self.assertIn("no room on purpose", text)
                self.assertEqual(step, 3 if late else 2)
                self.assertEqual("failed:" in text, rank != self.ranks - 1)

    def test_a_damaged_frame_is_told_one_step_later(self):
        for zeros, errors, on in self.run_all(damaged):
            self.assertTrue(zeros and on)
            self.assertRegex(errors, "step 2: .*damaged")

    def test_all_raise_until_a_state_is_loaded(self):
        late = self.kind in ("streams", "nccl")
        for errors, on in self.run_all(raised_until_loaded):
            self.assertEqual(["no room on purpose" in text for text in errors], [not late, True, True, True], errors)
            self.assertTrue(on)

    def test_damage_is_told_though_parameters_follow(self):
        for errors in self.run_all(damaged_early):
            self.assertRegex(errors, "step 0: .*damaged")

    def test_damage_on_both_ways_is_told_once(self):
        for errors in self.run_all(damaged_twice):
            self.assertRegex(errors[0], "step 2: .*damaged")
            self.assertEqual(errors[1:], ["nothing"] * 2)

    def test_damage_leaves_residuals_alone(self):
        for same in self.run_all(damaged_sums):
            self.assertEqual(same, [True] * len(SHAPES))

    def test_a_loaded_state_lets_go_of_the_old_one(self):
        self.assertEqual(self.run_all(freed_on_load), [True] * self.ranks)

    def test_a_rank_that_dies_is_noticed(self):
        if self.ranks == 1 or self.kind == "nccl":
            self.skipTest("NCCL's watchdog ends the process")
        workers = support.torchrun(2, died, args=[self.kind], env=self.env, timeout=60)
        self.assertNotIn(workers[0].value, (None, "nothing"))


def _kinds():
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if os.path.exists(EMULATED):
        yield "emulated", 2, {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""}
        yield "streams", 2, {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""}
    try:
        there = bool(gpus) and _cuda.library() is not None
    except ImportError:
        there = False
    if there:
        yield "gloo", 2, {}
        yield "nccl", gpus, {}


# Where streams are emulated, what has nothing to do with the order of things is not asked again.
_ASKED = {name: None for name in ("test_large_buckets", "test_what_was_left_behind_moves_on", "test_other_types",
                                  "test_nan_and_infinity", "test_everything_sent_is_the_mean",
                                  "test_a_loaded_state_lets_go_of_the_old_one",
                                  "test_what_kernels_do_not_take_goes_over_the_host")}

for _kind, _ranks, _env in _kinds():
    globals()[_kind.capitalize()] = type(_kind.capitalize(), (Cases, unittest.TestCase),
                                         dict(_ASKED if _kind == "streams" else {}, kind=_kind, ranks=_ranks, env=_env,
                                              __module__=__name__))


class ThereIsADevice(unittest.TestCase):
    def test_one(self):
        if not list(_kinds()):
            self.skipTest("neither a GPU with libfrugrad_cuda nor the emulator (FRUGRAD_CUDA_EMULATED)")


if __name__ == "__main__":
    unittest.main()
