"""A communication hook for DistributedDataParallel that sends a few percent of the gradient.

    ddp = DistributedDataParallel(model)
    optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
    state = frugrad.torch.DDPState(model, "frugrad", optimizer=optimizer)
    ddp.register_comm_hook(state, frugrad.torch.hook)
"""

import functools
import operator
import warnings
from time import perf_counter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .._core import Tensor
from .._lib import MAX_DIMS, CommError
from . import checkpoint
from ._floats import warn_once
from .checks import check_scaler, refuse_other_parameters, refuse_sharded, require_model, require_optimizer
from .config import DENSE_START, check, hook_config
from .convert import ConvertedOptimizer, bare
from .device import DeviceEngine, device_engine
from .device_exchange import DeviceGather, DeviceSplit, device_bucket
from .engine import ReducerBucket, ReducerEngine, compressed_parameters
from .exchange import Exchange, config_items, layout_items
from .nonfinite import CHOICES, DeviceWatch, HostWatch
from .pipeline import Clock, ExchangeThread, RemoteError, Times
from .roles import bare_model, describe
from .sparsify import Sparsify, check_sparse, require_sparsify
from .transport import Comm, host_group


_UNSTEPPED = 20  # exchanges without a step by which a script is known to step another optimizer
_OnDevice = Union[DeviceGather, DeviceSplit]  # the exchange of a bucket on a GPU


class _Plan:
    """The state of one bucket between steps."""

    def __init__(self, params: List[torch.Tensor], buffer: torch.Tensor, times: Times):
        self.params, self.times = params, times
        self.address, self.numel, self.dtype = buffer.data_ptr(), buffer.numel(), buffer.dtype
        self.bytes = 4 * buffer.numel()
        self.device = buffer.device
        self.exchange: Union[ReducerBucket, _OnDevice, None] = None
        self.stage: Optional[torch.Tensor] = None
        self.kept: Optional[torch.Tensor] = None  # positions of weights that are not pruned; None: all

    def fits(self, params: List[torch.Tensor], buffer: torch.Tensor) -> bool:
        return (buffer.data_ptr() == self.address and buffer.numel() == self.numel and buffer.dtype == self.dtype
                and len(params) == len(self.params) and all(map(operator.is_, params, self.params)))

    def floats(self, buffer: torch.Tensor, device: torch.device = torch.device("cpu")) -> torch.Tensor:
        """The bucket as float32 on the host or another device: itself, or a copy that is made again at every step.

        Without pruned weights, where there are any.
        """
        if buffer.dtype == torch.float32 and buffer.device == device and self.kept is None:
            return buffer
        values = buffer if self.kept is None else buffer.index_select(0, self.kept)
        if self.stage is None or self.stage.device != device or len(self.stage) != len(values):
            self.stage = torch.empty(len(values), dtype=torch.float32, device=device,
                                     pin_memory=buffer.is_cuda and device.type == "cpu")
        self.stage.copy_(values)
        return self.stage

    def put(self, floats: torch.Tensor, buffer: torch.Tensor) -> None:
        """Write to the bucket what ``floats()`` returned, changed; pruned weights have a gradient of zero."""
        if floats is buffer:
            return
        if self.kept is None:
            buffer.copy_(floats, non_blocking=True)
        else:
            buffer.zero_().index_copy_(0, self.kept, floats.to(buffer.device, buffer.dtype, non_blocking=True))

    def written(self, floats: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        """The bucket, after ``put()``."""
        self.put(floats, buffer)
        return buffer


class Snapshot(NamedTuple):
    """What ``DDPState.snapshot()`` returns."""

    step: int
    dense_left: int
    compressing: bool
    scale: float
    residuals: Optional[bytes]  # None: nothing has been compressed since a state was loaded, or ever
    loaded: Optional[dict]


class DDPState:
    """The state of one rank's hook: for ``ddp.register_comm_hook(state, frugrad.torch.hook)``.

    model          the model (or the DDP around it). With it, parameters have names and roles, and a run that is resumed
                   from a checkpoint is bit exact. Without it they are numbered in the order of DDP's buckets
    config         how to compress, see docs/methods.md: ``[preset][,option=value]...``; ``reduce`` may be anything but
                   gossip. ``frugrad`` is frugrad-sgd, frugrad-adam or frugrad-muon, whichever goes with the optimizer
    optimizer      what ``frugrad.torch.optimizer(model, ...)`` returned; or torch.optim.SGD or Muon without momentum;
                   or a list of such (Muon, and AdamW for the rest). A text that names no feedback needs it
    total_steps    the length of training in optimizer steps, for schedules; 0: schedules are at their end
    process_group  that of the DDP; None: the default group
    start_iter     number of dense iterations at the start, since DDP rebuilds its buckets after the first
    threads        threads of the compressor
    nonfinite      "skip": a block with a NaN or an infinity is left out, with a warning on its rank. "propagate": all
                   ranks get a NaN in the step's last bucket, as from DDP; costs an exchange of one number a step
    scaler         the GradScaler, if there is one: always give it, since the hook cannot see that a gradient is scaled.
                   The scaler then sees overflows (``nonfinite="propagate"``), and when its scale changes, so do the
                   residuals. Without it, residuals keep the old scale, without a warning
    sparsify       the ``Sparsify`` that prunes the model's weights, if there is one: then nothing is sent or stored of
                   pruned weights, and ``min_size`` is 0 unless the config has one

    Momentum. An optimizer's momentum and a residual both accumulate old gradients, and together they overshoot. So the
    residual is the momentum (``feedback=merged``), and ``frugrad.torch.optimizer()`` takes it out of the optimizer, at
    the learning rate that it has. To keep the optimizer as it is, write ``"frugrad,feedback=none"``: the largest
    entries are sent, and the others are dropped. docs/ddp-feedback.md has the numbers.

    One state serves one DDP; a model that is wrapped again may keep it. The hook returns the mean over all ranks, in
    the bucket's dtype; gradients in other types than float32 (bf16, f16, float64) are compressed as float32. Gradients
    on a GPU are compressed there if libfrugrad_cuda is found and has kernels for the config, and otherwise on the host,
    with one warning. Accumulation under ``no_sync()`` does not call the hook. With ``find_unused_parameters`` DDP
    ignores the hook's result for a parameter that no rank has used: what is sent of its residual in that step is lost.
    Methods that compare tensors (segment=all, layers=budget) and ``clip`` work bucket by bucket; unit=head needs all of
    an attention module in one bucket, so raise DDP's bucket_cap_mb there.

    When a rank fails, backward() raises on all ranks, with that rank's error text, and so does every later backward()
    until a state is loaded. With NCCL the next backward() raises, so that no step waits for the GPU; likewise on a GPU
    when a frame was damaged, on the ranks that received it. The gradient of such a step is zero from that bucket on.

    One process, which sends nothing; torchrun starts several, and there init_process_group("gloo") is enough:

    >>> import torch, torch.distributed as dist, frugrad.torch
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Linear(100, 100)
    >>> ddp = torch.nn.parallel.DistributedDataParallel(model)
    >>> optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
    >>> state = frugrad.torch.DDPState(model, "frugrad", optimizer)
    >>> ddp.register_comm_hook(state, frugrad.torch.hook)
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     ddp(torch.ones(1, 100)).sum().backward()
    ...     _ = optimizer.step()
    >>> state.stats()["step"], state.stats()["feedback"], sorted(state.residuals())
    (4, 'merged', ['bias', 'weight'])
    >>> dist.destroy_process_group()
    """

    def __init__(self, model: Optional[torch.nn.Module] = None, config: str = "frugrad",
                 optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer], None] = None, *,
                 total_steps: int = 0, process_group: Any = None, start_iter: int = DENSE_START, threads: int = 1,
                 nonfinite: str = "skip", scaler: Any = None, sparsify: Optional[Sparsify] = None):
        if model is not None:
            refuse_sharded(require_model(model, "DDPState"), "DDPState")
        if nonfinite not in CHOICES:
            raise ValueError(f"nonfinite is 'skip' or 'propagate', not {nonfinite!r}")
        optimizers = listed(optimizer, "DDPState")
        if start_iter < 0 or total_steps < 0:
            raise ValueError(f"start_iter ({start_iter}) and total_steps ({total_steps}) must not be negative")
        self._sparsify = require_sparsify(sparsify, model)
        if sparsify is not None and isinstance(config, str) and "min_size=" not in config:
            config += ",min_size=0"
        self.config = hook_config(config, optimizers)
        check(self.config, config, optimizers, total_steps)
        check_scaler(scaler, self.config.option("feedback"), "DDPState")
        if sparsify is not None:
            check_sparse(self.config)
        self.total_steps, self.start_iter, self.threads = total_steps, start_iter, threads
        self.step = 0  # iterations so far, dense ones included
        self._group = process_group
        self._channel: Optional[Exchange] = None
        self._model = None if model is None else bare_model(model)
        self._known: Dict[int, Tensor] = {} if self._model is None else describe(self._model)
        self._named: Dict[int, torch.Tensor] = {}  # parameters seen without a model; referenced so that ids stay unique
        self._reduce = self.config.option("reduce")
        self._dense_left = start_iter
        self._plans: Dict[int, _Plan] = {}
        self._times: Dict[int, Times] = {}
        self._engine: Union[ReducerEngine, DeviceEngine, None] = None
        self._comm: Optional[Comm] = None
        self._loaded: Optional[dict] = None
        self._jobs: Optional[ExchangeThread] = None
        self._checked = False  # whether all ranks are known to have the same options
        self._first_half: Optional[Tuple[_OnDevice, Times, Callable[[], None]]] = None
        self._error: Optional[BaseException] = None
        self._direct: Optional[bool] = None  # whether frames go from device to device; None: not known yet
        self._begins = True  # the next bucket is the first of a step
        self.nonfinite = "propagate" if scaler is not None else nonfinite
        self._watch: Union[HostWatch, DeviceWatch, None] = None
        self._scaler, self._scale = scaler, 0.0  # the scale of the residuals; 0: none is known
        self._warmup = int(self.config.option("warmup"))
        self.compressing = False  # whether a gradient has been compressed by now
        self._bind(optimizers)
        if sparsify is not None:
            sparsify.bind(self._masks_changed)

    def __deepcopy__(self, _: dict) -> "DDPState":
        """Itself: a copy of a module that has the state, such as one of averaged weights, exchanges nothing."""
        return self

    def _bind(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Tell optimizers that frugrad.torch.optimizer() made which parameters are compressed, and when."""
        converted = [o for o in optimizers if isinstance(o, ConvertedOptimizer)]
        if converted and self._model is None:
            raise ValueError("DDPState: with an optimizer of frugrad.torch.optimizer() give the model too:"
                             " DDPState(model, config, optimizer=optimizer)")
        if self._model is not None:
            refuse_other_parameters(optimizers, self._model.parameters(),
                                    "make it from model.parameters(), after all that replaces them")
        compressed = compressed_parameters(self._known, self.config, self.total_steps) if converted else set()
        if converted and not compressed and self._reduce != "dense":
            warnings.warn("nothing is compressed: all parameters of the model are vectors or have fewer than"
                          f" {self.config.option('min_size')} elements (min_size), which are sent whole", stacklevel=3)
        for each in converted:
            each.bind(self, self.config, self.total_steps, compressed)
        self._converted = converted

    @property
    def _exchange(self) -> Exchange:
        """The process group, which must be there when it is used first."""
        if self._channel is None:
            self._channel = Exchange(self._group)
        return self._channel

    @property
    def _thread(self) -> ExchangeThread:
        if self._jobs is None:
            self._jobs = ExchangeThread()
        return self._jobs

    # ---- checkpoints

    def state_dict(self, all_ranks: bool = False) -> dict:
        """State for a checkpoint: this rank's residuals, the step and the config; tensors and plain values only.

        Every rank saves its own, or with ``all_ranks=True`` (collective: all ranks call it) each gets all of them, so
        that one rank can write one file. Not while a backward pass is under way.
        """
        self._wait_all()
        self._raise_device_error()
        world = self._channel.size if self._channel else 1
        if self._engine is None:
            if self._loaded is not None:
                return dict(self._loaded, step=self.step, ranks=self._loaded_ranks(self._loaded, all_ranks))
            return checkpoint.pack(self.config.text, self.step, self.total_steps, self._next_layout(), {}, world,
                                   self._scale)
        mine = checkpoint.state_tensor(self._engine)
        if all_ranks:
            ranks = dict(enumerate(self._gather_states(mine)))
        else:
            ranks = {self._exchange.rank: mine}
        return checkpoint.pack(self.config.text, self.step, self.total_steps, self._engine.tensors, ranks, world,
                               self._scale)

    def _next_layout(self) -> List[Tensor]:
        """The parameters in the order that the engine of the next step will have, which DDP has after a restart only when it
        has rebuilt its buckets; empty where they are not rebuilt yet."""
        if self._model is None or self._dense_left or self.start_iter < DENSE_START:
            return []
        return [t._replace(offset=None) for t in self._seen() if t.elements]

    def _gather_states(self, mine: torch.Tensor) -> List[torch.Tensor]:
        """The states of all ranks."""
        try:
            return self._exchange.gather_bytes(mine)
        except RuntimeError as error:  # of torch.distributed
            raise RuntimeError("state_dict(all_ranks=True): not every rank answered. All ranks must call it; then one of them"
                               f" can save what it returns ({error})") from error

    def _loaded_ranks(self, loaded: dict, all_ranks: bool) -> dict:
        """The states that were loaded and are not restored yet; each rank may have loaded its own only."""
        ranks = loaded["ranks"]
        if not all_ranks or not ranks or len(ranks) == loaded["world"]:
            return ranks
        rows = self._exchange.gather_numbers([min(ranks)])
        return dict(zip((row[0] for row in rows), self._gather_states(ranks[min(ranks)])))

    def load_state_dict(self, state: Union[dict, Sequence[dict]]) -> None:
        """Restore what ``state_dict()`` returned: this rank's, one with all ranks, or a list of all ranks' states.

        With as many ranks as before, the same config and the model given, training continues bit for bit, compressed
        from the first iteration. Buckets may differ. With another number of ranks every new rank gets the mean of the
        old residuals: the mean over ranks, which is what changes the weights, stays the same up to the rounding of the
        residual's format. Parameters are matched by name.

        Collective where torch.distributed is initialized: all ranks call it, and where one cannot load, all raise.
        """
        self._wait_all()
        whole = self._together(lambda: self._merged(state))
        self.step, self._loaded, self._scale = whole["step"], whole, float(whole.get("scale", 0.0))
        self._engine, self._first_half, self._error = None, None, None
        self._plans.clear()
        self.compressing = False  # until the next gradient is
        if self._model is None:
            self._dense_left = self.start_iter
        else:
            self._dense_left = 0 if whole["ranks"] else max(0, self.start_iter - self.step)

    def _merged(self, state: Union[dict, Sequence[dict]]) -> dict:
        whole = checkpoint.merge(state)
        if self._model is not None:
            checkpoint.require_same_model(whole, map(self._sent, self._known.values()))
        return whole

    def _together(self, work: Callable[[], Any]) -> Any:
        """Do something that may fail on some ranks; then all raise."""
        if not torch.distributed.is_initialized():
            return work()
        return self._exchange.together(work)

    def snapshot(self) -> "Snapshot":
        """What this rank has not sent yet, and the step, for ``rollback()``. A copy in memory; not while backward runs."""
        self._wait_all()
        self._raise_device_error()
        saved = self._engine.save() if self._engine is not None else None
        return Snapshot(self.step, self._dense_left, self.compressing, self._scale, saved, self._loaded)

    def rollback(self, snapshot: "Snapshot") -> None:
        """Go back to a snapshot, when the step since then is not to count: its gradient was not applied.

        Collective, also after a step in which a rank failed: all ranks do it, and can continue.
        """
        self._wait_all()
        failed, self._error, self._first_half, self._begins = self._failed(), None, None, True
        self.step, self._dense_left, self.compressing = snapshot.step, snapshot.dense_left, snapshot.compressing
        self._scale = snapshot.scale
        if self._engine is None:
            return
        if snapshot.loaded is not None:
            self._forget_engine(failed)
            self._loaded = snapshot.loaded
            return
        if failed or snapshot.residuals is None:
            self._engine = self._renewed(self._engine, failed)
            for plan in self._plans.values():
                plan.exchange = None
        if snapshot.residuals is not None:
            self._together(functools.partial(self._engine.restore, snapshot.residuals))

    def _forget_engine(self, failed: Optional[BaseException]) -> None:
        """The next bucket makes an engine, from the state that was loaded."""
        self._engine = None
        if isinstance(failed, CommError):
            self._comm = None
        for plan in self._plans.values():
            plan.exchange = None

    def _renewed(self, engine: Union[ReducerEngine, DeviceEngine],
                 failed: Optional[BaseException]) -> Union[ReducerEngine, DeviceEngine]:
        """An engine without residuals in place of one that may have failed. Collective."""
        if isinstance(failed, CommError):
            self._comm = None
            engine = self._host_engine(engine.tensors)
        else:
            engine = engine.renewed()
        if isinstance(engine, ReducerEngine):
            self._watch = HostWatch(engine.comm, self.nonfinite == "propagate")
        return engine

    def _failed(self) -> Optional[BaseException]:
        """The error because of which this state exchanges nothing any more."""
        return self._engine.error if isinstance(self._engine, ReducerEngine) else self._error

    def residuals(self) -> Dict[str, torch.Tensor]:
        """This rank's residuals by parameter, as float32; empty while everything is sent dense."""
        self._wait_all()
        if self._engine is None:
            return {}
        return self._engine.residuals()

    # ---- accounting

    def stats(self) -> dict:
        """Totals since this state was made.

        bytes_sent, bytes_dense   payload sent to each other rank, on average, and float32 gradients in its place
        ratio                     the second over the first
        feedback                  what happens to entries that are not sent: with "none" they are dropped
        density, energy           share of the entries that were sent, and of the energy (squares); of compressed steps
        device                    where frames are encoded: "cpu", or a GPU
        seconds                   compress, wait (for messages) and decode, on a thread beside backward; python (of the
                                  hook, in backward)
        buckets                   the same for each bucket

        On a GPU energy and blocks_skipped are None, since kernels do not count them, and seconds are those of the host,
        which does not wait for what it puts onto streams.
        """
        self._wait_all()
        self._raise_device_error()
        if self._watch is not None:
            self._watch.warn()
        rows = [dict(self._times[i].as_dict(), bucket=i) for i in sorted(self._times)]
        total = {key: sum(row[key] for row in rows) for key in Times.__slots__}
        inner = self._engine.stats() if self._engine else {}
        return {"step": self.step, "bytes_sent": total["bytes_sent"], "bytes_dense": total["bytes_dense"],
                "ratio": total["bytes_dense"] / total["bytes_sent"] if total["bytes_sent"] else 1.0,
                "density": inner.get("density_mean", 1.0), "energy": inner.get("energy_sent_mean", 1.0),
                "blocks_skipped": inner.get("blocks_skipped", 0),
                "device": str(self._engine.streams.device) if isinstance(self._engine, DeviceEngine) else "cpu",
                "feedback": self.config.option("feedback"),
                "seconds": {key: total[key] for key in ("compress", "wait", "decode", "python")}, "buckets": rows}

    # ---- the hook

    def reduce(self, bucket: torch.distributed.GradBucket) -> torch.futures.Future:
        """Exchange one bucket: what ``frugrad.torch.hook`` calls."""
        begun = perf_counter()
        if not self._checked:
            self._check_ranks()
        if self._begins:
            self._begin_step()
        buffer, index = bucket.buffer(), bucket.index()
        params, plan = bucket.parameters(), self._plans.get(index)
        if plan is None or not plan.fits(params, buffer):
            plan = self._plans[index] = self._new_plan(index, params, buffer)
        if self._sparsify is not None:
            self._sparsify.see_gradients(params, buffer)
        times = plan.times
        times.calls += 1
        times.bytes_dense += plan.bytes
        device = isinstance(self._engine, DeviceEngine)  # else all but Python happens on another thread
        inside = times.compress + times.wait if device else 0.0
        if self._dense_left > 0 or self._reduce == "dense":
            future = self._dense(plan, buffer)
        else:
            future = self._compressed(plan, buffer, bucket.is_last())
        if bucket.is_last():
            self.step += 1
            self._begins = True
            self._dense_left = max(0, self._dense_left - 1)
        times.python += perf_counter() - begun - (times.compress + times.wait - inside if device else 0.0)
        return future

    def _begin_step(self) -> None:
        """At the first bucket of a step. After an error the next backward begins a step again, and raises again."""
        self._raise_device_error()
        self._begins = False
        if self.step == _UNSTEPPED and self._converted and not any(each.stepped for each in self._converted):
            warn_once(f"gradients were exchanged {_UNSTEPPED} times, and the optimizer of DDPState was never stepped: call"
                      " step() of the one that frugrad.torch.optimizer() returned")
        if self._watch is not None:
            self._watch.warn()
        self._rescale()

    def _rescale(self) -> None:
        """Bring the residuals to the scale of the gradients."""
        if self._engine is None:
            return
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        if self._scale not in (0.0, scale):
            self._engine.scale_residuals(scale / self._scale)
        self._scale = scale if self._scaler is not None else 0.0

    def _check_ranks(self) -> None:
        """At the first bucket: check that all ranks have the same options."""
        self._exchange.agree({**config_items(self.config), "total_steps": self.total_steps, "the step": self.step,
                              "start_iter": self._dense_left, "whether a model was given": self._model is not None,
                              "whether a state was loaded": self._loaded is not None, "nonfinite": self.nonfinite})
        self._checked = True

    def _new_plan(self, index: int, params: List[torch.Tensor], buffer: torch.Tensor) -> _Plan:
        if buffer.layout != torch.strided:
            raise TypeError("the hook takes no sparse gradients: make embeddings with sparse=False")
        plan = _Plan(params, buffer, self._times.setdefault(index, Times()))
        plan.kept = self._sparsify.kept_index(params) if self._sparsify is not None else None
        return plan

    def _dense(self, plan: _Plan, buffer: torch.Tensor) -> torch.futures.Future:
        """The mean as DDP computes it; types that gloo cannot sum are sent as float32."""
        kept = buffer if plan.kept is None else buffer.index_select(0, plan.kept)
        plan.times.bytes_sent += kept.numel() * kept.element_size()
        if self._exchange.device.type != "cpu":
            kept.div_(self._exchange.size)
            return self._exchange.sum(kept).get_future().then(lambda _: plan.written(kept, buffer))
        native = not buffer.is_cuda and buffer.dtype in (torch.float32, torch.float64)
        values = (kept if native else plan.floats(buffer)).div_(self._exchange.size)
        work = self._exchange.sum(values)

        def end() -> None:  # not on a thread of gloo's, which must not run Python when the interpreter ends
            with Clock(plan.times, "wait"):
                work.wait()

        return self._thread.submit(lambda: self._finish(end, plan, buffer, values), buffer)

    def _compressed(self, plan: _Plan, buffer: torch.Tensor, last: bool) -> torch.futures.Future:
        if plan.exchange is None:
            plan.exchange = self._exchange_of(plan)
        self.compressing = self.compressing or self.step >= self._warmup
        step, times, exchange = self.step, plan.times, plan.exchange
        if not isinstance(exchange, ReducerBucket):
            return self._on_device(exchange, plan, buffer, last)
        try:
            floats = plan.floats(buffer)
        except Exception as error:  # sent to the other ranks, which would wait otherwise
            return self._thread.submit(functools.partial(exchange.fail, step, error), buffer)

        watch = self._watch if last and isinstance(self._watch, HostWatch) else None
        end = functools.partial(self._exchange_on_host, exchange, step, floats, times, watch)
        return self._thread.submit(lambda: self._finish(end, plan, buffer, floats), buffer)

    @staticmethod
    def _exchange_on_host(exchange: ReducerBucket, step: int, floats: torch.Tensor, times: Times,
                          watch: Optional[HostWatch]) -> None:
        exchange.run(step, floats, times)
        if watch is not None:
            watch.end_step(step, exchange.engine, floats)

    def _on_device(self, exchange: _OnDevice, plan: _Plan, buffer: torch.Tensor, last: bool) -> torch.futures.Future:
        """The same with frames encoded on the GPU. Where the host sends them, that is done at the next bucket."""
        streams, times, watch = exchange.streams, plan.times, self._watch
        assert isinstance(watch, DeviceWatch)
        with streams.compress_stream():
            floats: Optional[torch.Tensor] = None
            try:
                floats = plan.floats(buffer, streams.device)
            except Exception as error:  # sent to the other ranks, which would wait otherwise
                self._error = self._error or error
            source = buffer if floats is None else floats
            watch.see(self.step, source, last)
            exchange.begin(self.step, source, times, self._error)
        self._error = exchange.error
        self._start_second()
        exchange.send()
        finish = functools.partial(self._finish_on_device, exchange, plan, buffer, floats, watch if last else None)
        future, release = self._thread.prepare(finish, buffer, streams.sum_stream, bool(self._direct))
        self._first_half = (exchange, times, release)
        if last or (self._direct and self._reduce == "gather"):
            self._start_second()
        if last:
            exchange.engine.count(self.step)
        return future

    @staticmethod
    def _finish_on_device(exchange: _OnDevice, plan: _Plan, buffer: torch.Tensor, floats: Optional[torch.Tensor],
                          watch: Optional[DeviceWatch]) -> None:
        if floats is None and exchange.direct:  # this rank has failed, and raises at the next step
            buffer.zero_()
            return
        target = buffer if floats is None else floats
        exchange.end(target, plan.times)
        if watch is not None:
            watch.end_step(target)
        plan.put(target, buffer)

    def _raise_device_error(self) -> None:
        """On a device: raise the errors of frames of the previous step, whose gradient was zero. Where a rank failed with
        NCCL all ranks raise here, so that none waits."""
        if not isinstance(self._engine, DeviceEngine):
            return
        if self._direct and self._error is not None:
            raise self._error
        try:
            self._engine.check_frames()
        except ValueError as error:
            try:
                for plan in self._plans.values():
                    if isinstance(plan.exchange, (DeviceGather, DeviceSplit)):
                        plan.exchange.raise_rank_error()
            except RemoteError as failed:  # the rank that failed raises until a state is loaded, and so does this one
                self._error = failed
                raise
            raise type(error)(f"step {self.step - 1}: {error}") from None

    def _start_second(self) -> None:
        """Begin the second half of the bucket before this one (reduce=split)."""
        if self._first_half is not None:
            (exchange, times, release), self._first_half = self._first_half, None
            exchange.start_second(times)
            if self._direct and self._error is None:
                self._error = exchange.error
            release()

    @staticmethod
    def _finish(end: Callable[[], None], plan: _Plan, buffer: torch.Tensor, floats: torch.Tensor) -> None:
        end()
        if floats is not buffer:
            plan.put(floats, buffer)
            _wait_for_copy(buffer)

    # ---- parameters

    def _exchange_of(self, plan: _Plan) -> Union[ReducerBucket, _OnDevice]:
        tensors = [self._describe(p) for p in plan.params]
        engine = self._learn(tensors, plan.device)
        ranges = engine.ranges([t.name for t in tensors if t.elements])
        sizes = [t.elements for t in tensors if t.elements]
        if isinstance(engine, ReducerEngine):
            return ReducerBucket(engine, ranges)
        if self._direct is None:
            self._direct = self._exchange.device.type == "cuda"
        return device_bucket(engine, self._exchange, ranges, sizes, self._direct)

    def _describe(self, parameter: torch.Tensor) -> Tensor:
        found = self._known.get(id(parameter))
        if found is None:
            if self._model is not None:
                raise ValueError(f"DDP has a parameter of shape {tuple(parameter.shape)} that the model given to"
                                 " DDPState does not have")
            found = Tensor(str(len(self._named)), tuple(parameter.shape))
            self._known[id(parameter)], self._named[id(parameter)] = found, parameter
        return self._sent(found)

    def _sent(self, tensor: Tensor) -> Tensor:
        """A parameter as the engine knows it: without pruned weights, and with few enough dimensions."""
        return _flattened(tensor if self._sparsify is None else self._sparsify.packed(tensor))

    def _masks_changed(self, before: Dict[str, torch.Tensor]) -> None:
        """Move the residuals of weights that stay to an engine for those that the masks leave now. Collective."""
        self._wait_all()
        assert self._sparsify is not None
        for plan in self._plans.values():
            plan.exchange, plan.kept = None, self._sparsify.kept_index(plan.params)
        if self._engine is None:
            return
        after = self._sparsify.masks
        sources = {name: torch.where(mask, mask.cumsum(0) - 1, -1)[after[name]] for name, mask in before.items()}
        known = {tensor.name: tensor for tensor in self._known.values()}
        tensors = [self._sent(known[tensor.name])._replace(offset=None) for tensor in self._engine.tensors]
        self._agree_on(tensors)
        self._engine = self._engine.remapped(tensors, sources)

    def _learn(self, tensors: Sequence[Tensor],
               device: torch.device = torch.device("cpu")) -> Union[ReducerEngine, DeviceEngine]:
        """Make or extend the engine so that it knows these parameters; all ranks must know the same ones."""
        engine = self._engine
        if engine is None:
            self._engine = engine = self._first_engine(tensors, device)
            self._rescale()
        new = [t for t in tensors if t.elements and t.name not in engine.tensor_ranges]
        if new:
            self._start_second()
            self._thread.wait_all()
            self._agree_on(engine.tensors + new)
            self._engine = engine = engine.extended(new)
            for plan in self._plans.values():
                plan.exchange = None
        return engine

    def _agree_on(self, tensors: Sequence[Tensor]) -> None:
        self._exchange.agree(layout_items(tensors))

    def _first_engine(self, tensors: Sequence[Tensor], device: torch.device) -> Union[ReducerEngine, DeviceEngine]:
        """An engine for all that was seen in dense iterations, or in a checkpoint."""
        seen = self._seen()
        names = {t.name for t in seen} | {t.name for t in tensors}
        if self._loaded is not None:
            saved = checkpoint.tensors_of(self._loaded)
            known_shapes = map(self._sent, self._known.values()) if self._model is not None else seen
            present = {t.name: t.shape for t in known_shapes}
            known = [t for t in saved if present.get(t.name) == t.shape]
            seen = known + [t for t in seen if t.name not in {k.name for k in known}]
            names |= {t.name for t in known}
        seen += [t for t in tensors if t.name not in {s.name for s in seen}]
        seen = [t._replace(offset=None) for t in seen if t.elements and t.name in names]
        self._agree_on(seen)
        on_device = self._device_engine(seen, device)
        self._exchange.agree({"whether they compress on a GPU": on_device is not None})
        engine, propagate = on_device or self._host_engine(seen), self.nonfinite == "propagate"
        if isinstance(engine, ReducerEngine):
            self._watch = HostWatch(engine.comm, propagate)
        else:
            self._watch = DeviceWatch(self._exchange, engine.streams, propagate)
        if self._loaded is not None:
            rank, size = self._exchange.rank, self._exchange.size
            self._exchange.together(functools.partial(checkpoint.restore_rank, engine, self._loaded, rank, size))
            self._loaded = None
        return engine

    def _seen(self) -> List[Tensor]:
        """The parameters of all buckets so far."""
        return [self._describe(p) for i in sorted(self._plans) for p in self._plans[i].params]

    def _host_engine(self, tensors: Sequence[Tensor]) -> ReducerEngine:
        """An engine whose exchanges are the library's, over host memory. Collective."""
        if self._comm is None:
            group = host_group(self._exchange.group, self._exchange.device)
            self._comm = Comm(group, self._exchange.rank, self._exchange.size)
        return ReducerEngine(self._comm, self.config, tensors, self.total_steps, self.threads, self._exchange.rank)

    def _device_engine(self, tensors: Sequence[Tensor], device: torch.device) -> Optional[DeviceEngine]:
        return device_engine(device, self._exchange, self.config, tensors, self.total_steps, self.threads)

    def _wait_all(self) -> None:
        if self._jobs is not None:
            self._jobs.wait_all()


def hook(state: DDPState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For ``ddp.register_comm_hook(state, frugrad.torch.hook)``: the mean of what all ranks send of a bucket.

    ``DDPState`` has an example.
    """
    if not isinstance(state, DDPState):
        raise TypeError(f"register_comm_hook(state, frugrad.torch.hook) takes a DDPState, not a {type(state).__name__}")
    return state.reduce(bucket)


def listed(optimizer: Any, where: str) -> List[torch.optim.Optimizer]:
    """The optimizers that were given, without wrappers."""
    given = [] if optimizer is None else optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    return [bare(require_optimizer(each, f"{where}, optimizer=")) for each in given]


def _flattened(tensor: Tensor) -> Tensor:
    """A tensor with at most as many dimensions as the library takes."""
    if len(tensor.shape) <= MAX_DIMS:
        return tensor
    return tensor._replace(shape=(tensor.shape[0], tensor.elements // tensor.shape[0]))


def _wait_for_copy(buffer: torch.Tensor) -> None:
    """Wait for a copy to a GPU before the future is completed."""
    if buffer.is_cuda:
        torch.cuda.current_stream(buffer.device).synchronize()
