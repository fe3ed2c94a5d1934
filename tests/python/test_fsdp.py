"""FSDP2: gradients of sharded models, exchanged between replicas or inside a shard group."""

import doctest
import os
import re
import tempfile
import unittest
import warnings

import support
from ddp_helpers import batch, mlp, wrap
from fsdp_helpers import (EVERYTHING, HOOK, SCATTER, begin, begin_mesh, dist, init_device_mesh, make_mesh, narrow, nn,
                          shard, torch, train, whole)

import frugrad.torch
from frugrad.torch import fsdp_hook

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
