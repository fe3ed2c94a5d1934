"""FSDP2: residuals in checkpoints of torch.distributed.checkpoint, also on another mesh; and errors."""

import os
import tempfile
import time
import unittest
import warnings

import support
from fsdp_helpers import (HOOK, RANK, SCATTER, begin, begin_mesh, dist, make_mesh, message, mlp, narrow, nn, shard,
                          torch, train, whole)

import frugrad.torch

F32 = "feedback=merged,residual=f32,min_size=1"  # a residual without rounding, also of small shards
SHAPES = {"0.weight": (130, 64), "2.weight": (10, 130), "4.weight": (3, 10)}


def attach(mesh, config="feedback=merged", model=None):
    model = shard(mesh["shard"], narrow() if model is None else model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model, frugrad.torch.fsdp(model, config, replicate_group=mesh["replicate"])


def whole_residuals(mesh, state):
    """For every replica, the residuals of whole parameters."""
    rows = [None] * dist.get_world_size()
    mine = (mesh["replicate"].get_local_rank(), mesh["shard"].get_local_rank(), state.residuals())
    dist.all_gather_object(rows, mine)
    found = {}
    for replica, _, residuals in sorted(rows, key=lambda row: row[:2]):
        for name, values in residuals.items():
            found.setdefault(replica, {}).setdefault(name, []).append(values)
    return [{name: torch.cat(parts) for name, parts in found[replica].items()} for replica in sorted(found)]


def save(folder):
    """Train on 2 x 2 and save, then continue; continue from the checkpoint as well, and load it on other meshes."""
    import torch.distributed.checkpoint as dcp

    mesh = begin_mesh(2, 2)
    model, state = attach(mesh, F32)
    train(model, range(5))
    saved = whole_residuals(mesh, state)
    dcp.save({"model": model.state_dict(), "frugrad": state.state_dict()}, checkpoint_id=folder)
    if RANK == 0:
        torch.save([{name: r for name, r in row.items()} for row in saved], f"{folder}/expected.pt")
    results = {}
    for dims in ((1, 4), (4, 1)):
        other = make_mesh(*dims)
        _, there = attach(other, F32)
        there.load(folder)
        mean = {name: (saved[0][name] + saved[1][name]) / 2 for name in saved[0]}
        rows = whole_residuals(other, there)
        results[str(dims)] = all(torch.equal(row[name], mean[name]) for row in rows for name in SHAPES)
    return results


def load_with_two(folder):
    """The same number of replicas, of one shard each: residuals as they were, put together?"""
    mesh = begin_mesh(2, 1)
    _, state = attach(mesh, F32)
    state.load(folder)
    expected = torch.load(f"{folder}/expected.pt")[mesh["replicate"].get_local_rank()]
    return state.step, all(torch.equal(state.residuals()[name], expected[name]) for name in SHAPES)


def resume(folder):
    """The default residual, int8: do runs that continue from a checkpoint end with the same bits?"""
    import torch.distributed.checkpoint as dcp

    mesh = begin_mesh(2, 2)
    model, state = attach(mesh)
    train(model, range(4))
    weights, mine = {"model": model.state_dict(), "frugrad": state}, state.state_dict()
    dcp.save(weights, checkpoint_id=folder)
    train(model, range(4, 8))
    results = []
    for how in ("load", "dcp.load", "load_state_dict"):
        again, its = attach(mesh)
        target = {"model": again.state_dict(), **({"frugrad": its} if how == "dcp.load" else {})}
        dcp.load(target, checkpoint_id=folder)
        if how == "load":
            its.load(folder)
        elif how == "load_state_dict":
            its.load_state_dict(mine)
        train(again, range(4, 8))
        results.append(torch.equal(whole(model), whole(again)))
    return results


def scatter_resume(folder):
    """A reduce-scatter's residuals: the same bits on the same mesh, and the mean for two ranks instead of four."""
    import torch.distributed.checkpoint as dcp

    mesh = begin_mesh(1, 4)["shard"]
    model = shard(mesh, narrow())
    state = frugrad.torch.fsdp(model, F32)
    train(model, range(4))
    dcp.save({"model": model.state_dict(), "frugrad": state.state_dict()}, checkpoint_id=folder)
    rows = [None] * 4
    dist.all_gather_object(rows, state.residuals())
    mean = {name: sum(row[name] for row in rows) / 4 for name in SHAPES}
    if RANK == 0:
        torch.save(mean, f"{folder}/expected.pt")
    train(model, range(4, 6))
    again = shard(mesh, narrow())
    its = frugrad.torch.fsdp(again, F32)
    dcp.load({"model": again.state_dict()}, checkpoint_id=folder)
    its.load(folder)
    train(again, range(4, 6))
    return torch.equal(whole(model), whole(again)), {name: list(r.shape) for name, r in state.residuals().items()}


def scatter_with_two(folder):
    mesh = begin_mesh(1, 2)["shard"]
    state = frugrad.torch.fsdp(shard(mesh, narrow()), F32)
    state.load(folder)
    expected = torch.load(f"{folder}/expected.pt")
    return max((state.residuals()[name] - expected[name]).abs().max().item() for name in SHAPES)


class Unused(nn.Linear):
    """One parameter gets no gradient."""

    def __init__(self):
        super().__init__(64, 32)

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


def refused(folder):
    """The errors of wrong arguments, wrong models and wrong states."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullyShardedDataParallel

    mesh = begin_mesh(2, 2)
    warnings.simplefilter("ignore")
    replicas = mesh["replicate"]

    def fsdp(model, config="feedback=none", **options):
        return frugrad.torch.fsdp(model, config, **options)

    errors = {"optimizer": message(fsdp, shard(mesh["shard"]), "frugrad", replicate_group=replicas),
              "plain": message(fsdp, mlp(), replicate_group=replicas),
              "ddp": message(fsdp, nn.parallel.DistributedDataParallel(mlp()), replicate_group=replicas),
              "hybrid": message(fsdp, shard(mesh), replicate_group=replicas),
              "mesh": message(fsdp, shard(mesh["shard"]), replicate_group=mesh),
              "group": message(fsdp, shard(mesh["shard"]), replicate_group=mesh["shard"]),
              "config": message(fsdp, shard(mesh["shard"]), "density=2,feedback=none", replicate_group=replicas),
              "head": message(fsdp, shard(mesh["shard"]), "unit=head,feedback=none", replicate_group=replicas),
              "differ": message(fsdp, shard(mesh["shard"]), "density=0.05,feedback=none" if RANK == 3
                                else "density=0.1,feedback=none", replicate_group=replicas)}
    errors["text"] = message(fsdp, shard(mesh["shard"]), torch.optim.SGD(mlp().parameters()), replicate_group=replicas)
    errors["nonfinite"] = message(fsdp, shard(mesh["shard"]), nonfinite="pass", replicate_group=replicas)
    errors["scaler"] = message(fsdp, shard(mesh["shard"]), scaler=1024.0, replicate_group=replicas)
    errors["name"] = message(fsdp, shard(mesh["shard"]), replicate_group="replicate")
    early = mlp()
    sgd = torch.optim.SGD(early.parameters(), lr=0.1)
    errors["early"] = message(fsdp, shard(mesh["shard"], early), optimizer=sgd, replicate_group=replicas)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10))
    fully = shard(mesh["shard"], nn.Sequential(model[1]))
    errors["part"] = message(fsdp, nn.Sequential(model[0], fully), replicate_group=replicas)
    if SCATTER:
        errors["reduce"] = message(fsdp, shard(mesh["shard"]), "reduce=split,feedback=none")
    older = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"))
    errors["fsdp1"] = message(fsdp, older, replicate_group=replicas)
    with torch.device("meta"):
        errors["meta"] = message(attach, mesh, model=mlp())
    unequal, _ = attach(mesh, model=mlp())
    unequal.load_state_dict(shard(mesh["shard"], mlp(seed=RANK // 2)).state_dict())
    errors["weights"] = message(train, unequal, range(1))
    model, state = attach(mesh, model=mlp())
    dcp.save({"frugrad": state.state_dict()}, checkpoint_id=folder)
    errors["key"] = message(state.load, folder, key="other")
    errors["no state"] = message(state.load_state_dict, {"step": 3})
    errors["another model"] = message(attach(mesh)[1].load, folder)
    if SCATTER:
        errors["another exchange"] = message(fsdp(shard(mesh["shard"])).load, folder)
    errors["unused"] = message(train, attach(mesh, model=nn.Sequential(Unused()))[0], range(1))
    return errors


def loaded_after_an_error(choice):
    """One replica fails at the fourth step: what do this step and the next say, and does a run continue from a state?"""
    mesh, weights = begin_mesh(2, 2), []
    for fails in (False, True):
        model = shard(mesh["shard"], mlp())
        state = frugrad.torch.fsdp(model, F32, replicate_group=mesh["replicate"], nonfinite=choice)
        train(model, range(3))
        if fails:
            saved, floats, errors = state.state_dict(), state._floats, []
            if RANK < 2:
                state._floats = lambda *_: 1 / 0
            for _ in range(2):
                errors.append(message(train, model, [3]))
                model._get_fsdp_state()._root_post_backward_final_callback()  # FSDP needs that after an error
                state._floats = floats
            state.load_state_dict(saved)
        train(model, range(3, 6))
        weights.append(whole(model))
    return errors, torch.equal(*weights)


def killed():
    """One of four ranks ends between two steps; the others must raise before the timeout of the group."""
    begin(seconds=10)
    mesh = make_mesh(2, 2)
    model, _ = attach(mesh)
    train(model, range(2))
    if RANK == 3:
        os._exit(0)
    start = time.monotonic()
    error = message(train, model, range(2, 4))
    return [error, time.monotonic() - start]


@unittest.skipUnless(HOOK, "FSDPModule.set_all_reduce_hook is missing")
class Checkpoints(unittest.TestCase):
    def test_another_number_of_shards_divides_residuals_and_of_replicas_averages_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for row in support.values(support.torchrun(4, save, args=[folder])):
                self.assertEqual(row, {"(1, 4)": True, "(4, 1)": True})
            for step, equal in support.values(support.torchrun(2, load_with_two, args=[folder])):
                self.assertEqual([step, equal], [5, True])

    def test_a_resumed_run_ends_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for row in support.values(support.torchrun(4, resume, args=[folder])):
                self.assertEqual(row, [True, True, True])

    @unittest.skipUnless(SCATTER, "FSDPModule.set_custom_reduce_scatter is missing")
    def test_the_residual_of_a_reduce_scatter(self):
        with tempfile.TemporaryDirectory() as folder:
            for equal, shapes in support.values(support.torchrun(4, scatter_resume, args=[folder])):
                self.assertTrue(equal)
                self.assertEqual(shapes["2.weight"], [10, 130])
            for difference in support.values(support.torchrun(2, scatter_with_two, args=[folder])):
                self.assertLess(difference, 1e-6)


EXPECTED = {
    "optimizer": "ValueError: 'frugrad' keeps the momentum in the residual, so it must know the optimizer",
    "plain": "TypeError: no module of this model is sharded",
    "ddp": "TypeError: this model is a DistributedDataParallel: register",
    "fsdp1": r"TypeError: this model is FSDP1 .*use fully_shard",
    "hybrid": r"ValueError: '0.weight' is on a mesh with replicas.*mesh=mesh\[\"shard\"\]",
    "mesh": "ValueError: replicate_group is a mesh of 2 dimensions",
    "group": r"ValueError: replicate_group has ranks \[., .\] of this rank's own shard group",
    "config": "ConfigError: .*density",
    "head": "ValueError: unit=head needs whole attention matrices",
    "differ": r"ranks differ in the config's schedule: rank . has constant:0.9, rank 3 has constant:0.95",
    "text": "TypeError: the config is a text, such as 'frugrad', not a SGD",
    "nonfinite": "ValueError: nonfinite is 'skip' or 'propagate', not 'pass'",
    "scaler": r"TypeError: frugrad.torch.fsdp\(\), scaler=: a GradScaler is wanted, not a float",
    "name": "TypeError: replicate_group is a process group, or a mesh of one dimension .*, not a str",
    "early": r"ValueError: the optimizer has no parameter of this model: make it after fully_shard\(\)",
    "part": "ValueError: '0.weight' is not sharded",
    "reduce": "ValueError: reduce=split has no effect",
    "weights": r"RuntimeError: ranks differ in the weights of '0.weight' \(checksum\): rank . has \d+, rank . has \d+",
    "meta": r"ValueError: '0.weight' is on the meta device: call to_empty\(\)",
    "key": "ValueError: the checkpoint .* has no 'other.plan'",
    "no state": "ValueError: this is no state of frugrad.torch.fsdp",
    "another model": r"ValueError: the state is of another model: '0.weight' has shape \(256, 64\) there and \(130",
    "another exchange": "ValueError: the state was saved by 2 replicas of 2 shards, and this is one replica of 2",
    "unused": "FSDP reduces 1024 gradient entries of '0', whose trained parameters have 1040: a parameter had no",
}


class Errors(unittest.TestCase):
    @unittest.skipIf(HOOK, "this PyTorch has the hook")
    def test_an_old_pytorch_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "needs FSDPModule.set_all_reduce_hook.. of PyTorch 2.7 or later"):
            frugrad.torch.fsdp(mlp(), replicate_group=object())

    @unittest.skipUnless(HOOK, "FSDPModule.set_all_reduce_hook is missing")
    def test_sentences(self):
        with tempfile.TemporaryDirectory() as folder:
            for errors in support.values(support.torchrun(4, refused, args=[folder], timeout=120)):
                for name, found in errors.items():
                    self.assertRegex(found, EXPECTED[name], name)

    @unittest.skipUnless(HOOK, "FSDPModule.set_all_reduce_hook is missing")
    def test_a_loaded_state_ends_the_errors_of_a_failed_exchange(self):
        for choice in ("skip", "propagate"):
            for errors, equal in support.values(support.torchrun(4, loaded_after_an_error, args=[choice])):
                self.assertEqual(["division by zero" in text for text in errors], [True, True], errors)
                self.assertTrue(equal)

    @unittest.skipUnless(HOOK, "FSDPModule.set_all_reduce_hook is missing")
    def test_a_rank_that_ends_is_an_error_on_the_others(self):
        workers = support.torchrun(4, killed, timeout=40)
        for worker in workers[:3]:
            error, seconds = worker.value
            self.assertNotEqual(error, "nothing")
            self.assertLess(seconds, 15)


if __name__ == "__main__":
    unittest.main()
