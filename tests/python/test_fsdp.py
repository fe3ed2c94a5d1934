"""FSDP2: gradients of sharded models, exchanged between replicas or inside a shard group."""

import doctest
import os
import re
import tempfile
import unittest
import warnings

import support
from ddp_helpers import batch, mlp, wrap
from fsdp_helpers import (EVERYTHING, HOOK, RANK, SCATTER, begin, begin_mesh, dist, init_device_mesh, make_mesh,
                          message, narrow, nn, shard, torch, train, whole)

import frugrad.torch
from frugrad.torch import fsdp_device, fsdp_hook

EMULATED = os.environ.get("FRUGRAD_CUDA_EMULATED", "")


def everything_is_sent():
    """Three steps: the bits of PyTorch's own replicas, whatever the type of gradients and the shapes of shards?"""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    mesh, results = begin_mesh(2, 2), []
    bf16 = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)}
    for make, options in ((mlp, {}), (narrow, {}), (mlp, bf16)):
        plain, ours = shard(mesh, make(), **options), shard(mesh["shard"], make(), **options)
        frugrad.torch.fsdp(ours, EVERYTHING, replicate_group=mesh["replicate"])
        for model in (plain, ours):
            train(model, range(3), clip=0.5)
        results.append((whole(plain) - whole(ours)).abs().max().item())
    return results


def everything_is_scattered():
    """The same for the reduce-scatter of one replica, compared with FSDP's; the last layer has an empty shard."""
    mesh, results = begin_mesh(1, 4)["shard"], []
    for make in (mlp, narrow):
        plain, ours = shard(mesh, make()), shard(mesh, make())
        frugrad.torch.fsdp(ours, EVERYTHING)
        for model in (plain, ours):
            train(model, range(3))
        results.append((whole(plain) - whole(ours)).abs().max().item())
    return results


def blocks_model(seed=0):
    """All chunks of all matrices are whole blocks, so that shards are compressed like the whole."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 256, bias=False), nn.ReLU(), nn.Linear(256, 256, bias=False))


def equals_ddp():
    """A few percent sent, with residuals: the weights of the DDP hook, for four replicas and for four shards?"""
    mesh, config = begin_mesh(4, 1), "block=256,residual=f32,feedback=merged,warmup=0"
    reference = blocks_model()
    ddp = wrap(reference, frugrad.torch.DDPState(reference, config, start_iter=0))
    train(ddp, range(6))
    expected = torch.cat([p.detach().flatten() for p in reference.parameters()])
    four = shard(mesh["shard"], blocks_model())
    state = frugrad.torch.fsdp(four, config, replicate_group=mesh["replicate"].get_group())
    losses, weights = train(four, range(6)), [whole(four)]
    if SCATTER:
        scattered = shard(make_mesh(1, 4)["shard"], blocks_model())
        frugrad.torch.fsdp(scattered, config)
        train(scattered, range(6))
        weights.append(whole(scattered))
    stats = state.stats()
    return [torch.equal(expected, w) for w in weights], losses[-1] < losses[0], stats["ratio"], stats["step"]


def starts_as_ddp():
    """With the defaults of both, where the first steps are dense: how far are weights from those of the DDP hook?"""
    mesh, config = begin_mesh(4, 1), "block=256,residual=f32,feedback=merged"
    reference, ours = blocks_model(), shard(mesh["shard"], blocks_model())
    train(wrap(reference, frugrad.torch.DDPState(reference, config)), range(4))
    frugrad.torch.fsdp(ours, config, replicate_group=mesh["replicate"])
    train(ours, range(4))
    expected = torch.cat([p.detach().flatten() for p in reference.parameters()])
    return (expected - whole(ours)).abs().max().item()


def learns():
    """Replicas stay equal, the loss falls, and backward passes without synchronization are accumulated."""
    mesh = begin_mesh(2, 2)
    model = shard(mesh["shard"])
    optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    state = frugrad.torch.fsdp(model, "frugrad", optimizer, replicate_group=mesh["replicate"])
    losses = train(model, range(40), optimizer)
    model.set_requires_gradient_sync(False)
    nn.functional.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    model.set_requires_gradient_sync(True)
    train(model, range(1), optimizer)
    local = torch.cat([p.to_local().flatten() for p in model.parameters()]).detach()
    other = local.clone()
    dist.all_reduce(other, op=dist.ReduceOp.MAX, group=mesh["replicate"].get_group())
    shapes = {name: list(r.shape) for name, r in state.residuals().items()}
    stats = state.stats()
    return {"losses": losses, "equal": torch.equal(local, other), "step": state.step, "feedback": stats["feedback"],
            "ratio": stats["ratio"], "shapes": shapes, "seconds": sorted(stats["seconds"])}


def as_in_scripts(mesh):
    """From the meta device, with mixed precision and explicit prefetching; weights differ from replica to replica."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    with torch.device("meta"):
        model = mlp()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    shard(mesh["shard"], model, mp_policy=policy)
    model[0].set_modules_to_forward_prefetch([model[2], model[4]])
    model[4].set_modules_to_backward_prefetch([model[2]])
    model.to_empty(device="cpu")
    torch.manual_seed(dist.get_rank())
    for p in model.parameters():
        p.detach().to_local().normal_(std=0.1)
    optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    return model, optimizer, frugrad.torch.fsdp(model, "frugrad", optimizer, replicate_group=mesh["replicate"])


def accumulate(model, optimizer, steps):
    """Each step is of two backward passes, of which only the second is synchronized. Returns losses and norms."""
    rows = []
    for step in steps:
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            x, y = batch(2 * step + part)
            loss = nn.functional.cross_entropy(model(x).float(), y) / 2
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        rows.append((loss.item(), norm.full_tensor().item()))
    return rows


def trains_as_in_scripts(folder):
    """Do losses fall, and does a run that continues from a checkpoint end with the same bits, without warnings?"""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def objects(model, optimizer):
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))

    mesh = begin_mesh(2, 2)
    model, optimizer, state = as_in_scripts(mesh)
    rows = accumulate(model, optimizer, range(30))
    dcp.save({**objects(model, optimizer), "frugrad": state.state_dict()}, checkpoint_id=folder)
    accumulate(model, optimizer, range(30, 33))
    again, optimizer, its = as_in_scripts(mesh)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        saved = objects(again, optimizer)
        dcp.load(saved, checkpoint_id=folder)
        set_state_dict(again, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        its.load(folder)
        accumulate(again, optimizer, range(30, 33))
    return {"rows": rows, "equal": torch.equal(whole(model), whole(again)), "step": its.step,
            "warnings": [str(w.message) for w in shown if "the hook was not called" in str(w.message)]}


def device_and_host(device):
    """Two replicas: the same bits where gradients are compressed on a GPU (or its emulation) and on the host?"""
    os.environ["LOCAL_RANK"] = "0"  # both are on one GPU
    begin()
    mesh = init_device_mesh(device, (2, 1), mesh_dim_names=("replicate", "shard"))
    results = []
    for config in ("block=256,feedback=merged", "block=256,feedback=merged,reduce=split,value=int8"):
        weights = []
        for on_gpu in (True, False):
            model = shard(mesh["shard"], blocks_model().to(device))
            state = frugrad.torch.fsdp(model, config, replicate_group=mesh["replicate"], on_gpu=on_gpu)
            train(model, range(3))
            state.load_state_dict(state.state_dict())
            train(model, range(3, 5))
            weights.append(whole(model))
            results.append([type(state._engine).__name__, round(state.stats()["density"], 2)])
        results.append(torch.equal(*weights))
    return results


def on_a_gpu():
    """One process with NCCL: weights of FSDP without a hook, and does a compressed run learn and resume?"""
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    mesh = init_device_mesh("cuda", (1, 1), mesh_dim_names=("replicate", "shard"))
    plain, ours = (shard(mesh["shard"], mlp().cuda()) for _ in range(2))
    frugrad.torch.fsdp(ours, EVERYTHING, replicate_group=mesh["replicate"])
    for model in (plain, ours):
        train(model, range(3))
    model = shard(mesh["shard"], mlp().cuda())
    optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    state = frugrad.torch.fsdp(model, "frugrad", optimizer, replicate_group=mesh["replicate"])
    losses = train(model, range(40), optimizer)
    state.load_state_dict(state.state_dict())
    stats = state.stats()
    dist.destroy_process_group()
    return torch.equal(whole(plain), whole(ours)), losses, stats["device"], stats["density"]


def damaged(device):
    """A byte of a frame changes on its way to a rank: what do a checkpoint on all ranks and its statistics say?"""
    os.environ["LOCAL_RANK"] = "0"  # both are on one GPU
    begin()
    mesh = init_device_mesh(device, (2, 1), mesh_dim_names=("replicate", "shard"))
    model = shard(mesh["shard"], blocks_model().to(device))
    state = frugrad.torch.fsdp(model, "block=256,feedback=merged", replicate_group=mesh["replicate"])
    train(model, range(2))
    collective = state._units[0].exchange._bucket.first
    finish, errors = collective.finish, []

    def spoil():
        finish()
        collective.received[100] ^= 1
    for ask in (state.state_dict, state.stats):
        collective.finish = spoil if RANK == 1 or ask == state.stats else finish
        train(model, range(1))
        collective.finish = finish
        errors += [message(ask), message(ask), message(train, model, range(1))]
    saved, collective.finish = state.state_dict(), spoil
    train(model, range(1))
    collective.finish = finish
    state.load_state_dict(saved)
    return errors + [message(train, model, range(1))]


def one_fails(config, choice):
    """Frames go from device to device, as with NCCL; rank 0 fails at the last module of the third step: what raises?"""
    begin(seconds=15)
    make = fsdp_device.device_bucket
    fsdp_device.device_bucket = lambda *arguments: make(*arguments[:-1], True)
    model = blocks_model()
    state = attached(2, config, model, nonfinite=choice)
    floats, errors = state._floats, []

    def fail(unit, values):
        if unit is state._units[1]:
            raise MemoryError("no room on purpose")
        return floats(unit, values)
    for step in range(4):
        state._floats = fail if step == 2 and RANK == 0 else floats
        errors.append(message(train, model, [step]))
    return errors


def uncompressed():
    """Matrices of enough entries, but not their shards: which warnings are there, with one and with two shards?"""
    begin()
    shown = []
    for dims in ((2, 1), (1, 2)):
        mesh = make_mesh(*dims)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = shard(mesh["shard"], nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10)))
            frugrad.torch.fsdp(model, "feedback=none", replicate_group=mesh["replicate"])
        shown.append([str(w.message) for w in caught if "nothing is compressed" in str(w.message)])
    return shown


def attached(replicas, config, model, **options):
    """A model on two or four ranks with the hook: between replicas, or for the reduce-scatter of one."""
    mesh = make_mesh(replicas, dist.get_world_size() // replicas)
    shard(mesh["shard"], model)
    group = {"replicate_group": mesh["replicate"]} if replicas > 1 else {}
    return frugrad.torch.fsdp(model, config, **group, **options)


def spoiled(replicas, choice):
    """An infinite loss on rank 1 at the fourth step: which gradients are finite on each rank, and warnings."""
    begin()
    model, finite = narrow(), []
    state = attached(int(replicas), "feedback=plain", model, nonfinite=choice)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for step in range(5):
            x, y = batch(step)
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y % 3)
            (loss * (float("inf") if RANK == 1 and step == 3 else 1.0)).backward()
            gradients = [p.grad.full_tensor() for p in model.parameters()]
            finite.append(all(bool(torch.isfinite(g).all()) for g in gradients))
    return finite, [str(w.message) for w in shown if "NaN" in str(w.message)], type(state._engine).__name__


class Scale:
    """A GradScaler whose scale the test sets."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale


def scaled(replicas):
    """A scale that changes after three steps, or on loading: are gradients divided by it those of a constant one?"""
    begin()
    config, runs = "feedback=plain,residual=f32,value=f32", []
    for scale, load in ((1024.0, False), (256.0, False), (256.0, True), (1.0, True)):
        model, scaler, gradients = narrow(), Scale(1024.0), []
        state = attached(int(replicas), config, model, scaler=scaler)
        for step in range(6):
            if step == 3 and load:
                saved, model = state.state_dict(), narrow()
                state = attached(int(replicas), config, model, scaler=None if scale == 1.0 else scaler)
                state.load_state_dict(saved)
            scaler.scale = scale if step >= 3 else 1024.0
            x, y = batch(step)
            model.zero_grad()
            (nn.functional.cross_entropy(model(x), y % 3) * scaler.scale).backward()
            gradients.append(torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()]) / scaler.scale)
        runs.append(gradients)
    return [all(map(torch.equal, runs[0], run)) for run in runs]


def in_float16(replicas):
    """float16 with a GradScaler whose first scale overflows, and which grows soon: losses and scales."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    begin()
    mesh = make_mesh(int(replicas), 4 // int(replicas))
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
    model = shard(mesh["shard"], mlp(), mp_policy=policy)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 26, growth_interval=4)
    optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    group = {"replicate_group": mesh["replicate"]} if int(replicas) > 1 else {}
    frugrad.torch.fsdp(model, "frugrad", optimizer, scaler=scaler, **group)
    losses, scales = [], []
    for step in range(60):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales


@unittest.skipUnless(HOOK, "FSDPModule.set_all_reduce_hook is missing")
class Device(unittest.TestCase):
    def check(self, device, env):
        workers = support.torchrun(2, device_and_host, args=[device], env=env, fresh=device == "cuda")
        for rows in support.values(workers):
            expected = [["DeviceEngine", 0.44], ["ReducerEngine", 0.44], True]  # two steps of five are dense
            self.assertEqual(rows, expected + expected)

    @unittest.skipUnless(os.path.exists(EMULATED), "FRUGRAD_CUDA_EMULATED names no library")
    def test_emulated_kernels_give_the_bits_of_the_host(self):
        self.check("cpu", {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""})

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_a_gpu_gives_the_bits_of_the_host(self):
        self.check("cuda", {})

    @unittest.skipUnless(os.path.exists(EMULATED), "FRUGRAD_CUDA_EMULATED names no library")
    def test_a_damaged_frame_is_told_by_checkpoints_and_statistics(self):
        env = {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""}
        for errors in support.values(support.torchrun(2, damaged, args=["cpu"], env=env)):
            for i, step in ((0, 2), (3, 4)):
                self.assertRegex(errors[i], f"step {step}: .*damaged")
                self.assertEqual(errors[i + 1:i + 3], ["nothing"] * 2)  # told once, and training goes on
            self.assertEqual(errors[6], "nothing")  # after a state was loaded

    @unittest.skipUnless(os.path.exists(EMULATED), "FRUGRAD_CUDA_EMULATED names no library")
    def test_where_only_streams_wait_all_ranks_raise_at_the_next_step(self):
        env = {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""}
        for config in ("block=256,feedback=plain", "block=256,feedback=plain,reduce=split"):
            for choice in ("skip", "propagate"):
                for errors in support.values(support.torchrun(2, one_fails, args=[config, choice], env=env)):
                    self.assertEqual(errors[:3], ["nothing"] * 3)
                    self.assertEqual(errors[3], "RemoteError: rank 0 failed: MemoryError: no room on purpose")

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_gradients_of_a_gpu_over_nccl(self):
        (equal, losses, device, density), = support.values(support.torchrun(1, on_a_gpu, fresh=True))
        self.assertTrue(equal)
        self.assertLess(sum(losses[-5:]), 0.9 * sum(losses[:5]))
        self.assertEqual(device, "cuda:0")
        self.assertLess(density, 0.2)


@unittest.skipUnless(HOOK, "FSDPModule.set_all_reduce_hook is missing")
class Replicas(unittest.TestCase):
    @unittest.skipUnless(SCATTER, "hybrid sharding over gloo needs PyTorch 2.9")
    def test_everything_sent_gives_the_bits_of_hybrid_sharding(self):
        for rows in support.values(support.torchrun(4, everything_is_sent)):
            self.assertEqual(rows[:2], [0.0, 0.0])
            self.assertLess(rows[2], 1e-3)  # PyTorch rounds the sum of replicas to bf16 as well, in another order

    def test_weights_equal_those_of_the_ddp_hook(self):
        for equal, falls, ratio, step in support.values(support.torchrun(4, equals_ddp)):
            self.assertTrue(all(equal), equal)
            self.assertTrue(falls)
            self.assertGreater(ratio, 9)
            self.assertEqual(step, 6)

    def test_the_first_steps_are_dense_as_with_ddp(self):
        for distance in support.values(support.torchrun(4, starts_as_ddp)):
            self.assertLess(distance, 1e-6)  # dense gradients are added up in another order

    def test_replicas_stay_equal_and_learn(self):
        for row in support.values(support.torchrun(4, learns)):
            self.assertTrue(row["equal"])
            self.assertLess(sum(row["losses"][-5:]), 0.8 * sum(row["losses"][:5]))
            self.assertEqual([row["step"], row["feedback"]], [41, "merged"])
            self.assertGreater(row["ratio"], 7)
            self.assertEqual(row["shapes"]["0.weight"], [128, 64])
            self.assertEqual(row["seconds"], ["compress", "decode", "python", "wait"])

    def test_shards_below_min_size_are_warned_of(self):
        for whole_matrices, halves in support.values(support.torchrun(2, uncompressed)):
            self.assertEqual(whole_matrices, [])
            self.assertRegex(halves[0], r"nothing is compressed: .* fewer than 4096 entries .* largest .* has 3072")

    def test_the_steps_of_usual_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            for row in support.values(support.torchrun(4, trains_as_in_scripts, args=[folder])):
                losses = [loss for loss, _ in row["rows"]]
                self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))
                self.assertTrue(all(0 < norm < 100 for _, norm in row["rows"]))
                self.assertEqual([row["equal"], row["step"], row["warnings"]], [True, 33, []])

    def test_the_example_learns_and_continues(self):
        with tempfile.TemporaryDirectory() as folder:
            losses = []
            for replicas in ("2", "4"):  # with another mesh the second time
                workers = support.torchrun(4, support.SOURCE / "examples/torch_fsdp.py", args=[
                    "--replicas", replicas, "--steps", "50", "--width", "32", "--layers", "1", "--save", folder])
                support.values(workers)
                losses += re.findall(r"step 50, loss .* held-out text ([\d.]+), sent 1/", workers[0].output)
        self.assertLess(float(losses[1]), float(losses[0]) - 0.2)


@unittest.skipUnless(SCATTER, "hybrid sharding over gloo, and a reduce-scatter of one's own, need PyTorch 2.9")
class NotFinite(unittest.TestCase):
    def check(self, ranks, replicas, skipping, engine, env=None):
        for rank, row in enumerate(support.values(support.torchrun(ranks, spoiled, args=[replicas, "skip"], env=env))):
            finite, shown, name = row
            self.assertEqual([finite, len(shown), name], [[True] * 5, int(rank in skipping), engine])
            for text in shown:
                self.assertRegex(text, f"rank {rank}, step 3: the gradient of '0' and of 2 more modules was NaN")
        for row in support.values(support.torchrun(ranks, spoiled, args=[replicas, "propagate"], env=env)):
            self.assertEqual(row, [[True, True, True, False, True], [], engine])

    def test_infinities_are_warned_of_or_seen_by_all(self):
        self.check(4, 2, (0, 1), "ReducerEngine")  # the ranks of one replica
        self.check(4, 1, (1,), "Engine")

    @unittest.skipUnless(os.path.exists(EMULATED), "FRUGRAD_CUDA_EMULATED names no library")
    def test_also_on_emulated_kernels(self):
        env = {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""}
        self.check(2, 2, (1,), "DeviceEngine", env)

    def test_residuals_follow_the_scale_of_a_grad_scaler(self):
        for replicas in (2, 1):
            self.assertEqual(support.values(support.torchrun(2, scaled, args=[replicas])), [[True] * 4] * 2)

    def test_a_grad_scaler_sees_overflows_in_float16(self):
        for replicas in (2, 1):
            rows = support.values(support.torchrun(4, in_float16, args=[replicas]))
            for losses, scales in rows:
                self.assertEqual(scales, rows[0][1])
                self.assertLess(scales[0], 2.0 ** 26)
                self.assertTrue(any(after < before for before, after in zip(scales[25:], scales[26:])), scales)
                self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))


@unittest.skipUnless(SCATTER, "FSDPModule.set_custom_reduce_scatter is missing")
class ReduceScatter(unittest.TestCase):
    def test_everything_sent_gives_the_mean(self):
        for rows in support.values(support.torchrun(4, everything_is_scattered)):
            self.assertLess(max(rows), 1e-6)


def load_tests(loader, tests, pattern):
    if HOOK:
        tests.addTests(doctest.DocTestSuite(fsdp_hook))
    return tests


if __name__ == "__main__":
    unittest.main()
