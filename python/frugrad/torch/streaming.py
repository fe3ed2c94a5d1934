"""Training without a whole gradient: each parameter's is compressed and freed in backward as soon as it is there.

It becomes a frame of some percent, which is sent in step(), and the residual, a byte for each entry, which is momentum
too (docs/optimizers.md: merged). A param group is one compressor and one optimizer of the library; parameters are
ranges of theirs, large ones cut into tiles, so that no buffer is as large as a layer.

Nothing is sent before step(). Ranks may reach different parameters in backward, so collectives that start there come
before a collective of the script on one rank, and after it on another: on one group they would be mixed up; on a group
of their own a rank would wait for one while its peer waits for the other, and so would the kernels of two communicators
of NCCL. In step() all ranks start the same ones in the same order, on whatever group.
"""

import contextlib
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from .. import _core
from .._lib import FrugradError, lib
from ._floats import as_floats, bytes_tensor, check_gradient, check_parameter, put_back, tensor_bytes
from ._group import AllGather, Group, digest
from .config import unsupported_option, warn_of_no_length
from .exchange import Exchange, config_items, layout_items

_STATE = "frugrad"  # where a group's state is in a state_dict
_TILE = 1 << 20  # entries compressed at a time; a multiple of every block length
_RECOVER = "After an exception in backward(), call load_state_dict() with a saved state on all processes"
_BUCKET = 1 << 20  # entries whose frames are sent together, or one parameter


class _Part:
    """A param group: its compressor, its optimizer and its parameters."""

    def __init__(self, group: Dict[str, Any], names: List[str], own: "StreamingOptimizer"):
        params = [p for p in group["params"] if p.requires_grad and p.numel()]
        self.layout = _core.Layout(_core.Tensor(names[i], tuple(p.shape)) for i, p in enumerate(params))
        self.compressor = _core.Compressor(own.config, self.layout, own.total_steps, own.threads, own.group.rank)
        self.step = 0
        self.kind = own.optimizer
        if self.kind.startswith("muon") and "threads=" not in self.kind:
            self.kind += (":" if ":" not in self.kind else ",") + f"threads={min(64, own.threads)}"
        self.decay = float(group["weight_decay"])
        self.optimizer = self._made(self.decay)
        self.params = [_Streamed(p, self, i) for i, p in enumerate(params)]

    def apply_options(self, group: Dict[str, Any]) -> None:
        """Apply the group's decay as it is now; states are kept."""
        decay = float(group["weight_decay"])
        if decay != self.decay:
            made = self._made(decay)
            made.restore(self.optimizer.save())
            self.decay, self.optimizer = decay, made

    def save(self) -> Dict[str, Any]:
        """For a state_dict."""
        return {"step": self.step, "residual": bytes_tensor(self.compressor.save()),
                "optimizer": bytes_tensor(self.optimizer.save())}

    def restore(self, saved: Dict[str, Any], group: Dict[str, Any]) -> None:
        """Restore what save() returned, with the group's decay."""
        self.apply_options(group)
        self.compressor.restore(tensor_bytes(saved["residual"]))
        self.optimizer.restore(tensor_bytes(saved["optimizer"]))
        self.step = int(saved["step"])

    def _made(self, decay: float) -> _core.Optimizer:
        text = self.kind + (":" if ":" not in self.kind else ",") + f"decay={decay}" + (",decay_all=1" if decay else "")
        return _core.Optimizer(text, self.layout, self.compressor)


class _Streamed:
    """A parameter: its range in the group, its tiles, and the frames of its gradient."""

    def __init__(self, p: torch.Tensor, part: _Part, i: int):
        self.p, self.part, self.name = p, part, part.layout[i].name
        begin, count = part.layout[i].begin, p.numel()
        tile = _TILE if part.optimizer.can_split(i) else count
        self.tiles = [(begin + at, min(tile, count - at)) for at in range(0, count, tile)]
        try:
            part.compressor.bound(*self.tiles[0])
        except FrugradError:  # methods that compare whole tensors
            self.tiles = [(begin, count)]
        self.bound = max(part.compressor.bound(*tile) for tile in self.tiles)
        self.frames: Optional[List[torch.Tensor]] = None  # one per tile, once the gradient is compressed

    def compress(self, grad: Optional[torch.Tensor], scratch: torch.Tensor) -> None:
        """Turn a gradient, None for zeros, into frames."""
        flat = None if grad is None else grad.detach().reshape(-1)
        first, frames = self.tiles[0][0], []
        for begin, count in self.tiles:
            piece = torch.zeros(count) if flat is None else as_floats(flat[begin - first:begin - first + count])
            n = self.part.compressor.compress(self.part.step, begin, count, piece.data_ptr(), scratch.data_ptr(),
                                              scratch.numel())
            frames.append(scratch[:n].clone())
        self.frames = frames

    def update(self, frames: List[List[torch.Tensor]], rate: float, mean: torch.Tensor) -> None:
        """Update the weights by the mean of all processes' frames: for each tile, a frame of each."""
        weights = as_floats(self.p)
        first, part = self.tiles[0][0], self.part
        for (begin, count), own in zip(self.tiles, frames):
            mean[:count].zero_()
            part.compressor.decode_add([f.data_ptr() for f in own], [f.numel() for f in own], 1 / len(own), begin,
                                           count, mean.data_ptr())
            part.optimizer.step(part.step, begin, count, mean.data_ptr(), rate,
                                weights.data_ptr() + 4 * (begin - first))
        put_back(self.p, weights)


class StreamingOptimizer(torch.optim.Optimizer):
    """An optimizer that compresses and frees each gradient during backward, so that they never exist all at once::

        opt = frugrad.torch.StreamingOptimizer(model.named_parameters(), lr=0.1)
        for x, y in data:
            loss(model(x), y).backward()     # gradients are compressed and freed here
            opt.step()                       # frames are sent and weights change here

    params        parameters, named parameters, or param groups of either with their own lr and weight_decay. Those with
                  requires_grad=False when the optimizer is made are not changed
    config        how to compress, as for the hook, with reduce=gather; feedback=merged (the default) fits "merged" and
                  "adam-merged". Options that compare tensors, or need their roles, are refused
    optimizer     "merged": SGD with momentum 0.9, which is in the residual; rates are those of torch.optim.SGD.
                  "adam-merged": Adam with one byte more a parameter. "muon-merged": Muon without a state for
                  matrices, at rates of AdamW; it needs named parameters to tell embeddings and heads from the body, and
                  weight_decay, as 0.1. Or any of docs/optimizers.md, with options
    weight_decay  decoupled, of every parameter in the group
    total_steps   length of training, for configs with a schedule
    process_group trains data-parallel over it; None: over the default group where torch.distributed is initialized.
                  Do not wrap the model in DistributedDataParallel as well. The first process's weights are broadcast
                  to all; buffers (as of BatchNorm) are not. Every process runs as many steps

    Memory besides weights and activations, with the defaults: 1 byte a parameter (2 with adam-merged), frames of 0.19
    bytes a parameter, and of two buckets of every other process, one layer's gradient.

    ``p.grad`` is None after backward, so gradients cannot be clipped or scaled (GradScaler) by the usual tools; the
    config has clip= for the norm of each tensor (each million entries of a large one), and autocast to bfloat16 needs
    no scaler. To add up several backward passes, put all but the last into ``with opt.accumulate():``. A parameter that
    backward does not reach counts as a gradient of zero, so its residual is still sent. Weights that
    are not float32, contiguous and on the host are copied there and back, and rounded where they are shorter.

    >>> import torch, frugrad.torch
    >>> model = torch.nn.Linear(100, 100)
    >>> opt = frugrad.torch.StreamingOptimizer(model.named_parameters(), lr=0.1)
    >>> model(torch.ones(1, 100)).sum().backward()
    >>> model.weight.grad is None
    True
    >>> opt.step()
    >>> opt.stats()["bytes_dense"]
    40400
    """

    param_groups: List[Dict[str, Any]]
    state: Any

    def __init__(self, params: Iterable, lr: float = 0.1, config: str = "frugrad", optimizer: str = "merged",
                 weight_decay: float = 0.0, total_steps: int = 0, threads: Optional[int] = None,
                 process_group: Optional[Any] = None):
        self.config, self.optimizer, self.total_steps = _core.Config(config, optimizer), optimizer, total_steps
        _check_options(self.config, total_steps)
        self.group, self.threads = Group(process_group), threads or torch.get_num_threads()
        self._parts: List[_Part] = []
        self._hooks: List[Any] = []
        self._names: Dict[torch.Tensor, str] = {}
        self._accumulating = False
        self._loaded, self._loaded_digest = False, "none"
        self._reset_plan()
        groups = list(params)
        if groups and not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        super().__init__([self._unnamed(group) for group in groups], dict(lr=lr, weight_decay=weight_decay))

    def _unnamed(self, group: Dict[str, Any]) -> Dict[str, Any]:
        """Keep names apart: torch before 2.6 does not take them."""
        params = group["params"]
        given = [params] if isinstance(params, torch.Tensor) else list(params)
        for item in given:
            if isinstance(item, tuple):
                self._names[item[1]] = str(item[0])
        return dict(group, params=[item[1] if isinstance(item, tuple) else item for item in given])

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Between steps only, and on all processes."""
        self._refuse_midway("add_param_group()")
        super().add_param_group(self._unnamed(param_group))
        group, number = self.param_groups[-1], len(self.param_groups) - 1
        try:
            moving = [p for p in group["params"] if p.requires_grad and p.numel()]
            names = [self._names.get(p, f"group{number}.{i}") for i, p in enumerate(moving)]
            for p, name in zip(moving, names):
                check_parameter(p, name)
            part = _Part(group, names, self)
        except Exception:
            self.param_groups.pop()
            raise
        with torch.no_grad():
            self.group.broadcast(group["params"])
        self._parts.append(part)
        self._hooks += [_on_gradient(s.p, _Hook(self, s)) for s in part.params]
        self._reset_plan()

    # ---- backward

    def _reset_plan(self) -> None:
        self._streamed = [s for part in self._parts for s in part.params]
        self._scratch = torch.empty(max((s.bound for s in self._streamed), default=0), dtype=torch.uint8)
        self._buckets = _buckets(self._streamed)
        self._agreed = False

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Backward passes in here add up in p.grad as usual; the next one outside takes the sums."""
        self._accumulating, before = True, self._accumulating
        try:
            yield
        finally:
            self._accumulating = before

    def _gradient(self, s: _Streamed) -> None:
        """Backward has finished a parameter's gradient."""
        if self._accumulating or s.p.grad is None:
            return
        if s.frames is not None:
            raise RuntimeError(f"{s.name} has got a second gradient before step(): call step() after each backward(),"
                               " put all backwards of a step but the last into accumulate(), and use checkpoints with"
                               f" use_reentrant=False. {_RECOVER}")
        check_gradient(s.p.grad, s.name)
        with torch.no_grad():
            self._compress(s)

    def _compress(self, s: _Streamed) -> None:
        s.compress(s.p.grad, self._scratch)
        s.p.grad = None

    # ---- step

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Change the weights by what all processes have sent. All of them call it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for s in self._streamed:
                if s.frames is None:
                    self._compress(s)
            self._move_all()
        for part in self._parts:
            part.step += 1
        return loss

    def _move_all(self) -> None:
        rates = {}
        for group, part in zip(self.param_groups, self._parts):
            part.apply_options(group)
            rates[part] = float(group["lr"])
        mean = torch.empty(max((tile[1] for s in self._streamed for tile in s.tiles), default=0))
        for s, frames in self._gathered():
            s.update(frames, rates[s.part], mean)
            s.frames = None

    def _gathered(self) -> Iterator[Tuple[_Streamed, List[List[torch.Tensor]]]]:
        """Each parameter, and of each of its tiles the frames of all processes; the next bucket is sent meanwhile."""
        exchange = self.group.exchange
        if exchange is None or self.group.size == 1:
            yield from ((s, [[frame] for frame in s.frames or ()]) for s in self._streamed)
            return
        lengths = self._frame_lengths(exchange)
        sent: List[Tuple[List[_Streamed], AllGather]] = []
        for bucket in self._buckets:
            mine = [frame for s in bucket for frame in s.frames or ()]
            sent.append((bucket, AllGather(exchange, mine, [[next(row) for _ in mine] for row in lengths])))
            if len(sent) == 2:
                yield from _received(*sent.pop(0))
        for last in sent:
            yield from _received(*last)

    def _frame_lengths(self, exchange: Exchange) -> List[Iterator[int]]:
        """The lengths of all frames, of every process. Where one has loaded a state, all compare what they have."""
        if not self._agreed:
            self._agree(exchange)
        mine = [frame.numel() for s in self._streamed for frame in s.frames or ()]
        rows = exchange.gather_numbers([int(self._loaded), *mine])
        if any(row[0] for row in rows):
            self._agree(exchange)
        return [iter(row[1:]) for row in rows]

    def _agree(self, exchange: Exchange) -> None:
        """Check that all processes train the same, from the same state. Rates are not compared."""
        exchange.agree({"the number of parameters": len(self._streamed), "the optimizer": self.optimizer,
                        **config_items(self.config), **layout_items(t for part in self._parts for t in part.layout),
                        "total_steps": self.total_steps, "weight_decay": [part.decay for part in self._parts],
                        "the step": [part.step for part in self._parts],
                        "the optimizer's loaded state": self._loaded_digest})
        self._agreed, self._loaded = True, False

    # ---- state

    def stats(self) -> Dict[str, float]:
        """Totals of this process since it began: what was sent, and what whole gradients would have been."""
        each = [part.compressor.stats() for part in self._parts]
        names = ("bytes_sent", "bytes_dense", "entries_sent", "entries_seen", "blocks_skipped", "seconds_compress",
                 "seconds_decode")
        return {name: sum(stats[name] for stats in each) for name in names}

    @property
    def state_bytes(self) -> int:
        """Bytes of the state."""
        return sum(lib.frug_compressor_state_size(part.compressor.handle)
                   + lib.frug_optimizer_state_size(part.optimizer.handle) for part in self._parts)

    def _refuse_midway(self, what: str) -> None:
        if any(s.frames is not None for s in self._streamed):
            raise RuntimeError(f"{what} between backward() and step(): gradients are compressed and not sent yet."
                               f" {_RECOVER}")

    def state_dict(self) -> Dict[str, Any]:
        """torch's form, with a group's states as byte tensors. Residuals are this process's own: each saves its own."""
        self._refuse_midway("state_dict()")
        state = super().state_dict()
        for group, part in zip(state["param_groups"], self._parts):
            group[_STATE] = dict(part.save(), rank=self.group.rank, processes=self.group.size)
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restore this process's state_dict() and continue bit for bit: same groups, config and optimizer.

        On an error nothing has changed. Gradients that were compressed and not sent are dropped: so it recovers from an
        exception in backward(), on all processes.
        """
        self._check_state(state_dict)
        before = self.param_groups, self.state, [part.save() for part in self._parts]
        super().load_state_dict(state_dict)
        try:
            self._restore([group.pop(_STATE) for group in self.param_groups])
        except Exception:
            self.param_groups, self.state = before[:2]
            self._restore(before[2])
            raise
        self._loaded = True
        self._loaded_digest = digest(group[_STATE]["optimizer"] for group in state_dict["param_groups"])
        for s in self._streamed:
            s.frames = s.p.grad = None

    def _check_state(self, state_dict: Dict[str, Any]) -> None:
        """Refuse states of other optimizers and of other processes."""
        mine = self.group.rank, self.group.size
        for group in state_dict["param_groups"]:
            if _STATE not in group:
                raise ValueError("the state is not one of StreamingOptimizer")
            saved = group[_STATE]
            of = int(saved.get("rank", mine[0])), int(saved.get("processes", mine[1]))  # early states have neither
            if of != mine:
                raise ValueError(f"the state is that of rank {of[0]} of {of[1]}, and this is rank {mine[0]} of"
                                 f" {mine[1]}: residuals differ, so every process saves and loads its own state_dict()")

    def _restore(self, saved: List[Dict[str, Any]]) -> None:
        for group, part, each in zip(self.param_groups, self._parts, saved):
            part.restore(each, group)

    def close(self) -> None:
        """Leave gradients in p.grad from now on."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError("StreamingOptimizer holds memory of the library and cannot be copied or pickled; use"
                        " state_dict()")


def _check_options(config: _core.Config, total_steps: int) -> None:
    """Refuse options that would have no effect; warn of a schedule without an end."""
    if config.option("transform") != "off":
        raise ValueError("transform is done by the trainers; StreamingOptimizer does not have it: leave it out")
    if config.option("local") != "0":
        raise ValueError("StreamingOptimizer exchanges gradients at every step; LocalSteps has local steps")
    if unsupported_option(config):
        raise ValueError(unsupported_option(config))
    if config.option("reduce") != "gather":
        raise ValueError(f"reduce={config.option('reduce')} has no effect: StreamingOptimizer gathers the frames of all"
                         " processes; leave it out. Its baseline is density=1,feedback=none,value=f32 with"
                         " optimizer='sgd'")
    for name, value in (("layers", "role"), ("layers", "budget"), ("segment", "all")):
        if config.option(name) == value:
            raise ValueError(f"{name}={value} has no effect: StreamingOptimizer compresses tensors one by one, without"
                             " their roles; choose layers=even, and segment=tensor or block")
    warn_of_no_length(config, total_steps)


class _Hook:
    """What autograd calls. It does not keep the optimizer alive: gradients of one that is gone stay where they are."""

    def __init__(self, optimizer: StreamingOptimizer, streamed: _Streamed):
        self.optimizer, self.streamed = weakref.ref(optimizer), weakref.ref(streamed)

    def __call__(self, *_: Any) -> None:
        optimizer, streamed = self.optimizer(), self.streamed()
        if optimizer is not None and streamed is not None:
            optimizer._gradient(streamed)


class _NodeHook:
    """A hook on the node that accumulates a gradient, for torch before 2.1; the node must be kept."""

    def __init__(self, p: torch.Tensor, hook: Callable):
        with torch.enable_grad():
            expanded: Any = p.expand_as(p).grad_fn
        self.node = expanded.next_functions[0][0]
        self.handle = self.node.register_hook(hook)

    def remove(self) -> None:
        self.handle.remove()


def _on_gradient(p: torch.Tensor, hook: Callable) -> Any:
    """Have a hook called when backward has put all of a gradient into p.grad."""
    if hasattr(p, "register_post_accumulate_grad_hook"):
        return p.register_post_accumulate_grad_hook(hook)
    return _NodeHook(p, hook)


def _buckets(streamed: Iterable[_Streamed]) -> List[List[_Streamed]]:
    """Parameters whose frames are sent together."""
    buckets: List[List[_Streamed]] = []
    taken = _BUCKET
    for s in streamed:
        if taken >= _BUCKET:
            buckets.append([])
            taken = 0
        buckets[-1].append(s)
        taken += s.p.numel()
    return buckets


def _received(bucket: List[_Streamed], gathering: AllGather) -> Iterator[Tuple[_Streamed, List[List[torch.Tensor]]]]:
    """Wait for a bucket: its parameters, and of each of their tiles the frames of all processes."""
    tiles = map(list, zip(*gathering.wait()))
    return ((s, [next(tiles) for _ in s.tiles]) for s in bucket)
