"""Compressed exchange of gradients for models of ``fully_shard`` (FSDP2): between replicas, or inside a shard group.

    mesh = init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
    state = frugrad.torch.fsdp(model, "frugrad", optimizer, replicate_group=mesh["replicate"])
"""

import contextlib
import warnings
from time import perf_counter
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .._core import Config, Tensor
from ._floats import bytes_tensor, warn_once
from .checks import check_scaler, refuse_deepspeed, refuse_other_parameters, require_model
from .config import check, hook_config, with_dense_start
from .convert import ConvertedOptimizer
from .ddp import listed
from .device import DeviceEngine, device_engine
from .engine import Engine, Range, ReducerBucket, ReducerEngine, compressed_parameters
from .exchange import Exchange, config_items, layout_items
from .fsdp_checkpoint import CheckpointReader, Plan, read_plan, residual_key, restore
from .fsdp_device import DeviceBucket
from .fsdp_nonfinite import ModuleWatch
from .fsdp_scatter import CompressedReduceScatter, ScatterBucket
from .fsdp_units import Chunk, Unit, find_mesh, find_units
from .nonfinite import CHOICES
from .pipeline import Times
from .roles import uncompiled
from .transport import Comm, host_group


def fsdp(model: torch.nn.Module, config: str = "frugrad",
         optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer], None] = None, *,
         replicate_group: Any = None, total_steps: int = 0, threads: int = 1, on_gpu: bool = True,
         nonfinite: str = "skip", scaler: Any = None) -> "FSDPState":
    """Compress the exchange of gradients of a model that ``fully_shard`` has sharded over one mesh dimension.

    model            after all calls of fully_shard
    config           how to compress. The first two steps are dense, as with ``DDPState``, unless it has warmup=; and
    optimizer        what ``frugrad.torch.optimizer(model, ...)`` returned, or others: as for ``DDPState``
    replicate_group  the ranks that hold the same shard of other replicas, as a group or a mesh of one dimension: what
                     these exchange is compressed, and the reduce-scatter inside a replica stays as it is. None:
                     there is one replica, and its reduce-scatter is compressed
    total_steps      the length of training in optimizer steps, for schedules; 0: schedules are at their end
    threads          threads of the compressor
    on_gpu           between replicas, compress gradients of a GPU there, if libfrugrad_cuda is found and has kernels
                     for the config, as ``DDPState`` does. False: on the host, with the same bits
    nonfinite        "skip": a block with a NaN or an infinity is left out, with a warning on its rank. "propagate":
                     the module's gradient becomes NaN on all ranks that exchange it; costs an exchange of one number
                     for each module
    scaler           the GradScaler, if there is one: always give it, as to ``DDPState``. It then sees overflows
                     (``nonfinite="propagate"``), and when its scale changes, so do the residuals

    Collective: all ranks call it, with the same arguments. Replicas get the weights of the first one, as from DDP.
    Gradients become the mean over all ranks, as without it. The residual of a rank belongs to what it compresses: to
    its own shard between replicas, and to the whole gradient in a reduce-scatter, where it takes a byte a parameter.
    All-gathers of weights are not compressed. In a reduce-scatter, gradients on a GPU are copied to the host and back.

    Returns the state, for checkpoints and statistics. Between replicas this takes PyTorch 2.7, and inside a shard group
    2.9.

    One process, which is a replica of one shard; torchrun starts several, and there the mesh is (replicas, shards):

    >>> import torch, torch.distributed as dist, frugrad.torch
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from torch.distributed.fsdp import fully_shard
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    >>> model = fully_shard(torch.nn.Linear(100, 100), mesh=mesh["shard"])
    >>> optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
    >>> state = frugrad.torch.fsdp(model, "frugrad", optimizer, replicate_group=mesh["replicate"])
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(1, 100)).sum().backward()
    ...     _ = optimizer.step()
    >>> state.stats()["step"], state.stats()["feedback"], sorted(state.residuals())
    (4, 'merged', ['bias', 'weight'])
    >>> dist.destroy_process_group()
    """
    model = uncompiled(require_model(model, "frugrad.torch.fsdp()"))
    _refuse(model, "set_custom_reduce_scatter" if replicate_group is None else "set_all_reduce_hook")
    return FSDPState(model, config, replicate_group, optimizer, total_steps, threads, on_gpu, nonfinite, scaler)


class FSDPState:
    """One rank's side of the exchange, made by ``frugrad.torch.fsdp()``, which has an example."""

    def __init__(self, model: torch.nn.Module, config: str, replicate_group: Any, optimizer: Any, total_steps: int,
                 threads: int, on_gpu: bool, nonfinite: str, scaler: Any):
        if nonfinite not in CHOICES:
            raise ValueError(f"nonfinite is 'skip' or 'propagate', not {nonfinite!r}")
        if total_steps < 0:
            raise ValueError(f"total_steps ({total_steps}) must not be negative")
        optimizers = listed(optimizer, "frugrad.torch.fsdp()")
        self.config = with_dense_start(config, hook_config(config, optimizers))
        check(self.config, config, optimizers, total_steps)
        check_scaler(scaler, self.config.option("feedback"), "frugrad.torch.fsdp()")
        between = replicate_group is not None
        _check_options(self.config, between)
        mesh = find_mesh(model)
        self._device = _device(mesh.device_type if between and on_gpu else "cpu")  # where gradients are compressed
        self._model, self._shards = model, Exchange(mesh.get_group())
        self._peers = Exchange(_group(replicate_group)) if between else self._shards
        if between:
            _check_groups(self._peers, self._shards)
        self._units = find_units(model)
        self._plan = Plan(self.config.text, total_steps, between, self._peers.size, self._shards.size,
                          tuple(tuple(unit.trained()) for unit in self._units))
        self._piece = self._shards.rank if between else 0
        self.nonfinite = "propagate" if scaler is not None else nonfinite
        self._scaler, self._scale = scaler, 0.0  # the scale of the residuals; 0: none is known
        self._agree()
        if between:
            self._share_weights()
        self._engine = self._make_engine(threads, on_gpu)
        self._checked_weights = not between
        self._warmup = int(self.config.option("warmup"))
        self._bind(optimizers)
        self._watch_units()
        for unit in self._units:
            self._register(unit)

    def _agree(self) -> None:
        """Check that all ranks were given the same."""
        plan = self._plan
        items = {**config_items(self.config), "total_steps": plan.total_steps, "what is compressed": plan.mesh(),
                 "nonfinite": self.nonfinite,
                 **layout_items(Tensor(p.name, p.shape) for unit in plan.units for p in unit)}
        self._peers.together(lambda: self._shards.agree(items))
        self._shards.together(lambda: self._peers.agree(items))

    def _share_weights(self) -> None:
        """Give all replicas the weights of the first one, as DistributedDataParallel does."""
        for p in self._model.parameters():
            local = p.detach().to_local() if hasattr(p, "to_local") else p.detach()
            if local.numel():
                self._peers.broadcast(local)

    def _make_engine(self, threads: int, on_gpu: bool) -> Engine:
        tensors, rank = [chunk.tensor() for chunk in self._plan.chunks(self._piece)], self._peers.rank
        if not self._plan.between:
            return Engine(self.config, tensors, self._plan.total_steps, threads, rank)
        engine = device_engine(self._device, self._peers, self.config, tensors, self._plan.total_steps,
                               threads) if on_gpu else None
        self._peers.agree({"whether they compress on a GPU": engine is not None})
        if engine is not None:
            return engine
        self._device = torch.device("cpu")
        return self._reducer_engine(tensors, threads)

    def _reducer_engine(self, tensors: Sequence[Tensor], threads: int) -> ReducerEngine:
        """An engine whose exchanges are the library's, over host memory. Collective."""
        comm = Comm(host_group(self._peers.group, self._peers.device), self._peers.rank, self._peers.size)
        return ReducerEngine(comm, self.config, tensors, self._plan.total_steps, threads, self._peers.rank)

    def _bind(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Tell optimizers that frugrad.torch.optimizer() made which parameters are compressed, and when."""
        tensors = {chunk.parameter.name: chunk.tensor() for chunk in self._plan.chunks(self._piece)}
        compressed = compressed_parameters(tensors, self.config, self._plan.total_steps)
        named = [(name, p) for unit in self._units for name, p in unit.parameters()]
        refuse_other_parameters(optimizers, (p for _, p in named),
                                "make it after fully_shard(), and after to_empty(), which replace parameters")
        if not compressed and self.config.option("reduce") != "dense":
            largest = max((t.elements for t in tensors.values() if len(t.shape) > 1), default=0)
            warnings.warn("nothing is compressed: all shards are vectors or have fewer than"
                          f" {self.config.option('min_size')} entries (min_size), which are sent whole; the largest"
                          f" shard of a matrix has {largest}", stacklevel=4)
        ids = {id(p) for name, p in named if name in compressed}
        for each in optimizers:
            if isinstance(each, ConvertedOptimizer):
                each.bind(self, self.config, self._plan.total_steps, ids)

    def _watch_units(self) -> None:
        for unit in self._units:
            unit.watch = ModuleWatch(self._engine, self._peers, self.nonfinite == "propagate")

    @property
    def compressing(self) -> bool:
        """Whether a gradient has been compressed by now."""
        return self.step > self._warmup

    def _register(self, unit: Unit) -> None:
        if self._plan.between:
            unit.module.set_all_reduce_hook(lambda output: self._reduce(unit, output))
        else:
            unit.module.set_custom_reduce_scatter(CompressedReduceScatter(
                lambda output, values, scale: self._scatter(unit, output, values, scale)))

    # ---- the exchange

    def _reduce(self, unit: Unit, output: torch.Tensor) -> None:
        """The hook: make a module's shard of the gradient the mean over replicas."""
        begun = perf_counter()
        if not self._checked_weights:
            self._check_weights()
        if unit.exchange is None:
            unit.exchange = self._bucket(unit)
        if unit.step == self.step:
            self._begin_step()
        try:
            floats = self._floats(unit, output)
            unit.watch.begin(floats)
        except Exception as error:
            unit.exchange.fail(unit.step, error)
            floats = output.zero_()  # with NCCL: all ranks continue, and raise at the next step
        else:
            unit.exchange.run(unit.step, floats, unit.times)
        unit.watch.end(floats)
        if floats is not output:
            output.copy_(floats)
        unit.count(output.numel(), begun)

    def _bucket(self, unit: Unit) -> Union[ReducerBucket, DeviceBucket]:
        ranges = self._rows(unit)[0]
        if isinstance(self._engine, ReducerEngine):
            return ReducerBucket(self._engine, ranges)
        assert isinstance(self._engine, DeviceEngine)
        sizes = [Chunk(p, self._piece, self._plan.shards).elements for p in unit.trained()]
        return DeviceBucket(self._engine, self._peers, ranges, sizes)

    def _begin_step(self) -> None:
        """At the first module of a step."""
        self._raise_device_error()
        self._warn_of_skipped()
        self._rescale()
        if isinstance(self._engine, DeviceEngine):
            self._engine.count(self.step)

    def _raise_device_error(self) -> None:
        """On a GPU: wait, and raise the errors of frames of the step before."""
        if not isinstance(self._engine, DeviceEngine):
            return
        try:
            self._engine.check_frames()
        except ValueError as error:
            for unit in self._units:
                if unit.exchange is not None:
                    unit.exchange.raise_rank_error()
            raise type(error)(f"step {self.step - 1}: {error}") from None

    def _warn_of_skipped(self) -> None:
        """Warn of NaN and infinities of the step before that nobody was told of."""
        names = [unit.name for unit in self._units if unit.watch.found()]
        if names:
            more = f" and of {len(names) - 1} more modules" if len(names) > 1 else ""
            warnings.warn(f"rank {dist.get_rank()}, step {self.step - 1}: the gradient of '{names[0]}'{more} was NaN or"
                          " infinite, and skipped: that part of it was not sent. frugrad.torch.fsdp(...,"
                          " nonfinite='propagate') has all ranks see it, as without compression; with a GradScaler give"
                          " scaler=...", stacklevel=4)

    def _rescale(self) -> None:
        """Bring the residuals to the scale of the gradients."""
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        if self._scale not in (0.0, scale):
            self._engine.scale_residuals(scale / self._scale)
        self._scale = scale if self._scaler is not None else 0.0

    def _scatter(self, unit: Unit, output: torch.Tensor, values: torch.Tensor, scale: float) -> None:
        """The reduce-scatter: make this rank's shard of the gradient the sum over ranks, times ``scale``."""
        begun = perf_counter()
        if unit.exchange is None:
            unit.exchange = ScatterBucket(self._engine, self._peers, self._rows(unit))
        if unit.step == self.step:
            self._begin_step()
        on_host = output.dtype == torch.float32 and output.device.type == "cpu"
        result = output if on_host else torch.empty(output.numel())
        unit.watch.begin(values)
        unit.exchange.run(unit.step, lambda: self._floats(unit, values), result, scale, unit.times)
        unit.watch.end(result)
        if result is not output:
            output.copy_(result)
        unit.count(output.numel(), begun)

    def _rows(self, unit: Unit) -> List[List[Range]]:
        """For each rank whose shard is compressed, the ranges of the layout in the order of FSDP's buffer."""
        rows, offset = [], 0
        for index in [self._piece] if self._plan.between else range(self._plan.shards):
            names = [Chunk(p, index, self._plan.shards).name for p in unit.trained()]
            ranges = self._engine.ranges(names)
            rows.append([r._replace(offset=r.offset + offset) for r in ranges])
            offset += sum(r.count for r in ranges)
        unit.entries = offset
        return rows

    def _floats(self, unit: Unit, values: torch.Tensor) -> torch.Tensor:
        """A module's gradients as float32 to compress, if they are those of all of its trained parameters."""
        if values.numel() != unit.entries:
            raise RuntimeError(f"FSDP reduces {values.numel()} gradient entries of '{unit.name}', whose trained"
                               f" parameters have {unit.entries}: a parameter had no gradient in this backward pass"
                               " (set_reduce_scatter_unused_params(True) of newer PyTorch helps), or requires_grad was"
                               " changed (call frugrad.torch.fsdp() again)")
        if values.is_cuda and self._device.type == "cpu":
            warn_once("frugrad.torch.fsdp compresses on the host: gradients are copied from the GPU and back")
        return unit.floats(values, self._device)

    def _check_weights(self) -> None:
        """Before the first exchange: replicas that were given different weights since would never be equal."""
        sums = {f"the weights of '{name}' (checksum)": int(local.view(-1).view(torch.uint8).sum())
                for unit in self._units for name, local in unit.weights()}
        self._shards.together(lambda: self._peers.agree(sums))
        self._checked_weights = True

    # ---- checkpoints

    @property
    def step(self) -> int:
        """Exchanges so far."""
        return max(unit.step for unit in self._units)

    def state_dict(self) -> dict:
        """This rank's state, for ``torch.distributed.checkpoint.save``, which writes those of all ranks.

        It has a text and a tensor of bytes, whose name is different on each rank. Not during a backward pass. Where
        gradients are compressed on a GPU it is collective, and raises on all ranks if a frame of the last step was damaged
        on one: replicas then have different weights.
        """
        if isinstance(self._engine, DeviceEngine):
            self._shards.together(lambda: self._peers.together(self._raise_device_error))
        return {"plan": self._plan.text(self.step, self._scale),
                residual_key(self._peers.rank, self._piece): bytes_tensor(self._engine.save())}

    def load_state_dict(self, state: dict) -> None:
        """Restore what ``state_dict()`` of this rank returned, on the same mesh and with the same model and config.

        Collective; training continues bit for bit, also where an exchange has failed since. ``load()`` takes what another
        mesh has saved.
        """
        self._restore(state.get("plan") if isinstance(state, dict) else None, lambda key: _saved_bytes(state, key))

    def load(self, checkpoint_id: Any = None, *, storage_reader: Any = None, key: str = "frugrad") -> None:
        """Restore from a checkpoint that ``torch.distributed.checkpoint.save({key: state.state_dict(), ...})`` wrote.

        Collective. With the same mesh, model and config training continues bit for bit. Another number of shards
        divides residuals as it divides parameters. With another number of replicas each gets the mean of the old
        residuals, so that the mean over replicas, which is what changes the weights, stays the same; likewise in a
        reduce-scatter with another number of ranks. Residuals are then rounded to their format once more.
        """
        reader = CheckpointReader(checkpoint_id, storage_reader, key)
        self._restore(reader.text, reader.tensor)

    def _restore(self, text: Union[Any, Callable[[], Any]], tensor: Callable[[str], torch.Tensor]) -> None:
        """Restore from saved texts and tensors, or raise on all ranks."""
        self._renew_engine()
        step, self._scale = self._shards.together(
            lambda: self._peers.together(lambda: self._restore_mine(text, tensor)))
        for unit in self._units:
            unit.step = step

    def _renew_engine(self) -> None:
        """Make an engine that exchanges again where one has failed, on any rank: it would raise its error for ever."""
        engine = self._engine
        if not isinstance(engine, ReducerEngine):
            return
        if any(row[0] for row in self._peers.gather_numbers([int(engine.error is not None)])):
            self._engine = self._reducer_engine(engine.tensors, engine.threads)
            self._watch_units()
            for unit in self._units:
                unit.exchange = None

    def _restore_mine(self, text: Union[Any, Callable[[], Any]],
                      tensor: Callable[[str], torch.Tensor]) -> Tuple[int, float]:
        """Restore this rank's residuals; returns the step and their scale."""
        if isinstance(self._engine, DeviceEngine):
            with contextlib.suppress(ValueError):  # of a damaged frame before
                self._engine.check_frames()
        saved, step, scale = read_plan(text() if callable(text) else text)
        restore(self._engine, self._plan, self._peers.rank, self._piece, saved,
                lambda peer, piece: tensor(residual_key(peer, piece)))
        return step, scale

    def residuals(self) -> Dict[str, torch.Tensor]:
        """This rank's residuals by parameter, as float32: of its shards, or of whole parameters in a reduce-scatter."""
        parts: Dict[str, List[torch.Tensor]] = {}
        stored = self._engine.residuals()
        for chunk in self._plan.chunks(self._piece):
            values = stored[chunk.name].view(chunk.padded).narrow(chunk.parameter.dim, 0, chunk.length)
            parts.setdefault(chunk.parameter.name, []).append(values)
        dims = {name: p.dim for name, p in self._plan.parameters().items()}
        return {name: torch.cat(chunks, dims[name]) for name, chunks in parts.items()}

    # ---- accounting

    def stats(self) -> dict:
        """Totals since this state was made, with the keys of ``DDPState.stats()``; "modules" instead of "buckets".

        bytes_sent and bytes_dense are those to each other rank, on average: of this rank's shard between replicas, of
        the other rank's in a reduce-scatter.
        """
        self._raise_device_error()
        self._warn_of_skipped()
        rows = [dict(unit.times.as_dict(), module=unit.name) for unit in self._units]
        total = {key: sum(row[key] for row in rows) for key in Times.__slots__}
        inner = self._engine.stats()
        return {"step": self.step, "bytes_sent": total["bytes_sent"], "bytes_dense": total["bytes_dense"],
                "ratio": total["bytes_dense"] / total["bytes_sent"] if total["bytes_sent"] else 1.0,
                "density": inner["density_mean"], "energy": inner["energy_sent_mean"],
                "blocks_skipped": inner["blocks_skipped"], "device": str(self._device),
                "feedback": self.config.option("feedback"),
                "seconds": {key: total[key] for key in ("compress", "wait", "decode", "python")}, "modules": rows}


def _device(kind: str) -> torch.device:
    return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device("cpu")


def _saved_bytes(state: dict, key: str) -> torch.Tensor:
    if key not in state:
        raise ValueError(f"the state has no '{key}': load_state_dict() takes what this rank has saved; load() reads a"
                         " checkpoint of another mesh")
    return state[key]


def _group(given: Any) -> Any:
    """A process group, or that of a mesh of one dimension."""
    if isinstance(given, dist.ProcessGroup):
        return given
    if not hasattr(given, "get_group"):
        raise TypeError("replicate_group is a process group, or a mesh of one dimension as mesh[\"replicate\"], not a"
                        f" {type(given).__name__}")
    if given.ndim != 1:
        raise ValueError(f"replicate_group is a mesh of {given.ndim} dimensions: give the one of the replicas, as"
                         " mesh[\"replicate\"]")
    return given.get_group()


def _check_groups(peers: Exchange, shards: Exchange) -> None:
    common = set(dist.get_process_group_ranks(peers.group)) & set(dist.get_process_group_ranks(shards.group))
    if common != {dist.get_rank()}:
        raise ValueError(f"replicate_group has ranks {sorted(common)} of this rank's own shard group: it is the group"
                         " of the ranks with the same shard in other replicas, as mesh[\"replicate\"]")


def _check_options(config: Config, between: bool) -> None:
    if config.option("unit") == "head":
        raise ValueError("unit=head needs whole attention matrices, and fully_shard divides them; choose another unit")
    if not between and config.option("reduce") != "gather":
        raise ValueError(f"reduce={config.option('reduce')} has no effect: without replicate_group the exchange is a"
                         " reduce-scatter; leave it out")


def _refuse(model: torch.nn.Module, needed: str) -> None:
    """Say of other ways to shard what to do instead."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError("this model is a DistributedDataParallel: register frugrad.torch.hook with a DDPState on it")
    refuse_deepspeed(model)
    if any(type(m).__name__ == "FullyShardedDataParallel" for m in model.modules()):
        raise TypeError("this model is FSDP1 (FullyShardedDataParallel), whose flat parameters frugrad does not take:"
                        " use fully_shard (FSDP2)")
    try:
        from torch.distributed.fsdp import FSDPModule
    except Exception:  # PyTorch 1.13 raises a ValueError under Python 3.11
        FSDPModule = None
    if not hasattr(FSDPModule, needed):
        version = "2.7" if needed == "set_all_reduce_hook" else "2.9"
        raise RuntimeError(f"frugrad.torch.fsdp needs FSDPModule.{needed}() of PyTorch {version} or later; this is"
                           f" {torch.__version__}")
    if not any(isinstance(m, FSDPModule) for m in model.modules()):
        raise TypeError("no module of this model is sharded: call fully_shard() first, or use DistributedDataParallel"
                        " and frugrad.torch.hook")
