"""Local steps: every process trains by itself for some steps, then all exchange the compressed change of the weights."""

import warnings
from typing import Any, Callable, Dict, List, Optional

import torch

from .._core import Config, Tensor
from ._floats import bytes_tensor, tensor_bytes
from ._group import Group
from .config import unsupported_option
from .convert import ConvertedOptimizer
from .engine import Engine, ReducerBucket, ReducerEngine
from .pipeline import Times
from .roles import describe, uncompiled
from .transport import Comm, host_group


class OuterStep:
    """The step of the shared weights: SGD with Nesterov momentum on the mean difference, by options of a config."""

    def __init__(self, config: Config, shared: torch.Tensor):
        self.rate, self.mu = float(config.option("outer")), float(config.option("outer_momentum"))
        self.shared, self.momentum = shared, torch.zeros_like(shared) if self.mu else None

    def step(self, difference: torch.Tensor) -> None:
        if self.momentum is not None:
            self.momentum.mul_(self.mu).add_(difference)
            difference = difference.add(self.momentum, alpha=self.mu)
        self.shared.sub_(difference, alpha=self.rate)


class LocalSteps:
    """Data-parallel training that exchanges weights every ``every`` steps instead of gradients at each (SparseLoCo)::

        local = frugrad.torch.LocalSteps(model, optimizer, every=30)
        for x, y in data:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            local.step()                     # optimizer.step(), and at every 30th call an exchange

    model          not wrapped in DistributedDataParallel. The first process's weights are broadcast to all
    optimizer      any optimizer with its own momentum; its state stays with each process
    config         how differences are compressed, averaged (``mean``) and applied (``outer_momentum``), see
                   docs/methods.md. ``local`` and ``outer`` of it are the defaults of the next two
    every          steps between two exchanges
    outer          factor of the mean difference that is subtracted from the shared weights
    total_steps    the length of training in optimizer steps, for schedules of density
    process_group  None: the default group where torch.distributed is initialized, else this process alone

    What the steps of a process have subtracted from the shared weights is compressed like a gradient, with what was not
    sent in the residual. All processes have the same weights after an exchange, and only then: evaluate and save models
    there (``shared`` is true), or call ``exchange()`` before. Buffers (as of BatchNorm) are not exchanged. The weights
    of a GPU are copied to the host and back at every exchange. Memory: 8 bytes a parameter of the host, 4 more with
    momentum, and the residual.

    >>> import torch, frugrad.torch
    >>> model = torch.nn.Linear(100, 100)
    >>> local = frugrad.torch.LocalSteps(model, torch.optim.AdamW(model.parameters()), every=2)
    >>> for _ in range(3):
    ...     model(torch.ones(1, 100)).sum().backward()
    ...     _ = local.step()
    >>> local.rounds, local.shared
    (1, False)
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: str = "sparseloco",
                 every: Optional[int] = None, outer: Optional[float] = None, *, total_steps: int = 0,
                 process_group: Optional[Any] = None, threads: int = 1):
        _refuse(model, optimizer)
        self.optimizer, self.config = optimizer, _config(config, every, outer)
        self.every = int(self.config.option("local"))
        self.group, self.count, self.rounds = Group(process_group), 0, 0
        known = describe(uncompiled(model))
        self._params = [p for p in uncompiled(model).parameters() if p.requires_grad and p.numel()]
        if not self._params:
            raise ValueError("LocalSteps: the model has no parameters to train")
        self._engine = self._make_engine([known[id(p)] for p in self._params], -(-total_steps // self.every), threads)
        self._times = Times()
        with torch.no_grad():
            self.group.broadcast(self._params)
            self._shared = self._flat()
        self._outer = OuterStep(self.config, self._shared)

    def _make_engine(self, tensors: List[Tensor], rounds: int, threads: int) -> Engine:
        exchange = self.group.exchange
        if exchange is None:
            return Engine(self.config, tensors, rounds, threads, 0)
        comm = Comm(host_group(exchange.group, exchange.device), exchange.rank, exchange.size)
        return ReducerEngine(comm, self.config, tensors, rounds, threads, exchange.rank)

    def _flat(self) -> torch.Tensor:
        """The weights, in one buffer on the host."""
        return torch.cat([p.detach().reshape(-1).to("cpu", torch.float32) for p in self._params])

    def _parts(self, flat: torch.Tensor) -> List[torch.Tensor]:
        """The parts of a buffer that belong to the parameters, in their shapes."""
        return [part.view(p.shape) for p, part in zip(self._params, flat.split([p.numel() for p in self._params]))]

    def _put(self, weights: torch.Tensor) -> None:
        for p, values in zip(self._params, self._parts(weights)):
            p.copy_(values)

    def _difference(self) -> torch.Tensor:
        """What this process's steps have subtracted from its weights since the last exchange.

        They began with the shared weights rounded to the parameter's type. The rounding is no part of the difference, or
        16-bit weights would take back, at each exchange, means below half a unit in their last place.
        """
        difference = self._flat()
        for p, now, shared in zip(self._params, self._parts(difference), self._parts(self._shared)):
            torch.sub(shared.to(p.dtype).float(), now, out=now)
        return difference

    @property
    def shared(self) -> bool:
        """Whether all processes have the same weights: there was no step since the last exchange."""
        return self.count == 0

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """A step of the optimizer; at every ``every``-th one also an exchange, which all processes take part in."""
        result = self.optimizer.step(closure)
        self.count += 1
        if self.count >= self.every:  # more after an exchange that has failed
            self.exchange()
        return result

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchange now, whatever the number of steps. All processes call it.

        After an exchange has failed, each later one, which then is at every step, raises the same error.
        """
        difference = self._difference()
        self._mean(difference)
        self._outer.step(difference)
        self._put(self._shared)
        self.count, self.rounds = 0, self.rounds + 1

    def _mean(self, values: torch.Tensor) -> None:
        """Make values the mean of what all processes send of them."""
        engine = self._engine
        if isinstance(engine, ReducerEngine):
            names = [tensor.name for tensor in engine.tensors]
            ReducerBucket(engine, engine.ranges(names)).run(self.rounds, values, self._times)
            return
        n, compressor = values.numel(), engine.compressor
        frame = torch.empty(compressor.bound(0, n), dtype=torch.uint8)
        length = compressor.compress(self.rounds, 0, n, values.data_ptr(), frame.data_ptr(), frame.numel())
        values.zero_()
        compressor.decode_add([frame.data_ptr()], [length], 1.0, 0, n, values.data_ptr())

    def stats(self) -> Dict[str, float]:
        """Totals: exchanges, bytes sent to each other process, and bytes of float32 gradients at every step instead."""
        steps = self.rounds * self.every + self.count
        return {"rounds": self.rounds, "bytes_sent": self._times.bytes_sent,
                "bytes_dense": steps * 4 * self._shared.numel()}

    def state_dict(self) -> Dict[str, Any]:
        """This process's state; save it with its model and its optimizer, which differ between processes.

        Between two exchanges it has this process's weights as well: a model that is loaded before LocalSteps is made gets
        those of the first process.
        """
        weights = None if self.shared else [p.detach().to("cpu", copy=True) for p in self._params]
        return {"config": self.config.text, "rank": self.group.rank, "processes": self.group.size,
                "count": self.count, "rounds": self.rounds, "shared": self._shared.clone(), "weights": weights,
                "residual": bytes_tensor(self._engine.save()), "momentum": _clone(self._outer.momentum)}

    @torch.no_grad()
    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore this process's state_dict() and continue bit for bit: the same model, config and processes.

        Load the model and the optimizer as well, before or after LocalSteps is made.
        """
        if state.get("config") != self.config.text or state["shared"].numel() != self._shared.numel():
            raise ValueError("the state is not one of LocalSteps with this config and model")
        mine = self.group.rank, self.group.size
        of = int(state.get("rank", mine[0])), int(state.get("processes", mine[1]))  # states of earlier versions have neither
        if of != mine:
            raise ValueError(f"the state is that of rank {of[0]} of {of[1]}, and this is rank {mine[0]} of {mine[1]}: every"
                             " process saves and loads its own")
        self._engine.restore(tensor_bytes(state["residual"]))
        self._shared.copy_(state["shared"])
        if self._outer.momentum is not None:
            self._outer.momentum.copy_(state["momentum"])
        self.count, self.rounds = int(state["count"]), int(state["rounds"])
        if not self.shared:
            self._restore_weights(state.get("weights"))

    def _restore_weights(self, weights: Optional[List[torch.Tensor]]) -> None:
        """Restore what this process has trained since the last exchange; states of earlier versions do not have it."""
        if weights is None and self.group.size > 1:
            warnings.warn("LocalSteps: this state of an earlier version was saved between two exchanges: load the model's"
                          " weights after LocalSteps was made, which gave all processes those of the first one")
        for p, values in zip(self._params, weights or []):
            p.copy_(values)


def _refuse(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise for what would train, but not as meant."""
    if isinstance(uncompiled(model), torch.nn.parallel.DistributedDataParallel):
        raise TypeError("LocalSteps: this model is a DistributedDataParallel, which exchanges gradients at every step; give"
                        " the model itself")
    if isinstance(optimizer, ConvertedOptimizer):
        raise TypeError("LocalSteps: this optimizer is one of frugrad.torch.optimizer(), which leaves the momentum to a"
                        " compressor of gradients; give PyTorch's optimizer itself")


def _clone(x: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if x is None else x.clone()


def _config(text: str, every: Optional[int], outer: Optional[float]) -> Config:
    for name, value in (("local", every), ("outer", outer)):
        text += f",{name}={value}" if value is not None else ""
    config = Config(text.lstrip(","))
    if config.option("local") == "0":
        raise ValueError("LocalSteps: give every=H, or a config with local=H")
    if config.option("reduce") == "gossip":
        raise ValueError("LocalSteps: reduce=gossip has no shared weights")
    if unsupported_option(config):
        raise ValueError(unsupported_option(config))
    return config
