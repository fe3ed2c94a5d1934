"""Optimizers with few states for fine-tuning, as a torch.optim.Optimizer: the SGC family of docs/sgc.md.

A param group is at most two optimizers of the library, so that workspaces exist once: one that updates matrices as
a whole, and AdamW for the others. Parameters are ranges of their layouts.
"""

import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch

from .. import _core
from .._lib import FrugradError, lib
from .._tables import optimizers
from . import _group
from ._floats import as_floats, bytes_tensor, check_gradient, check_parameter, put_back, tensor_bytes

_NAMES = {"s": "s", "kappa": "kappa", "chunks": "c", "rank": "rank", "refresh": "refresh", "scale": "scale"}
_VARIANTS = ("table", "mesgc", "cesgc", "sgc", "lora", "galore", "apollo", "adamw")
_OPTIONS = (*_NAMES, "betas", "eps", "weight_decay", "options")  # that an optimizer is made of, but for the variant
_STATE = "frugrad"  # where a group's states are in a state_dict


# The options that each variant has.
_KNOWN = {kind.name: tuple(part.partition("=")[0] for part in kind.options.split(","))
          for kind in optimizers() if kind.name in _VARIANTS}


class _Part:
    """The parameters of a group with the same kind of optimizer: one of the library's, with a range for each."""

    def __init__(self, kind: str, params: List[torch.Tensor], group: Dict[str, Any], threads: int):
        self.kind, self.params = kind, params
        self.layout = _core.Layout(_core.Tensor(str(i), tuple(p.shape)) for i, p in enumerate(params))
        self.begins = [tensor.begin for tensor in self.layout]
        self.counts = [p.numel() for p in params]
        self.steps = [0] * len(params)
        self.spec, self.optimizer = _spec(group), _core.Optimizer(self._text(group, threads), self.layout)

    def apply_options(self, group: Dict[str, Any], threads: int) -> None:
        """Apply the group's options as they are now; states are kept."""
        spec = _spec(group)
        if spec == self.spec:
            return
        made = _core.Optimizer(self._text(group, threads), self.layout)
        made.restore(self.optimizer.save())
        self.spec, self.optimizer = spec, made

    def _text(self, group: Dict[str, Any], threads: int) -> str:
        given = {_NAMES[name]: group[name] for name in _NAMES if group[name] is not None}
        given.update(beta1=float(group["betas"][0]), beta2=float(group["betas"][1]), eps=float(group["eps"]),
                     decay=float(group["weight_decay"]), threads=threads, targets="all")
        if group["weight_decay"]:
            given["decay_all"] = 1
        options = [f"{name}={value}" for name, value in given.items() if name in _KNOWN[self.kind]]
        if self.kind == group["variant"] and group["options"]:
            options.append(group["options"])
        return self.kind + ":" + ",".join(options)


def _spec(group: Dict[str, Any]) -> tuple:
    """The options of a group that an optimizer is made of."""
    return tuple(group[name] for name in _OPTIONS)


class _Due(NamedTuple):
    """A parameter that is updated in this step."""

    part: _Part
    i: int
    rate: float
    measured: int = 0


class SGC(torch.optim.Optimizer):
    """Fine-tune with an optimizer whose states do not grow with the model.

    Matrices (two dimensions or more, at least ``min_size`` entries) are updated by ``variant``; everything else in the
    same group by AdamW with the same betas, eps, rate and decay. ``variant="adamw"`` gives a whole group to AdamW.
    Freeze parameters with ``requires_grad_(False)``, or leave it out of the groups.

    variant       "table", "mesgc", "cesgc", "sgc", "lora", "galore", "apollo" or "adamw"; docs/sgc.md compares them
    s, kappa      entries of a matrix recovered at a step, and the size of its state: 2 kappa s numbers
    chunks        parts of a matrix that are recovered separately ("table", "mesgc", "cesgc")
    rank, refresh of the projection, and steps after which it is refreshed ("cesgc", "galore", "apollo"; rank: "lora")
    scale         what steps are multiplied by
    options       more of the library's options for the variant, e.g. "adaptive=1" or "method=batch"
    weight_decay  decoupled, of every parameter in the group, as torch.optim.AdamW has it
    threads       of recovery and products; None: as many as torch uses. Bits do not depend on it

    None: the default of the library. All but min_size, threads and data_parallel may differ from group to group;
    options that a group inherits and its variant does not have are ignored there, those it was given are refused.

    A matrix whose gradient has a NaN or an infinity is skipped, so GradScaler may skip steps or not. Weights that
    are not float32, contiguous and on the host are copied there and back; those in float16 and bfloat16 are rounded
    after each step, and no float32 copy of them is stored.

    data_parallel=True averages over ``process_group`` (None: the default one) inside step(): do not wrap the model in
    DistributedDataParallel as well, and do not clip, because gradients stay local. What is sent is 2 kappa s
    measurements a matrix for "sgc", "mesgc" and "cesgc" (except at steps that refresh the basis) and the gradient for
    everything else, "table" included: for "table" use DistributedDataParallel and frugrad.torch.hook instead. The
    first process's weights are broadcast when a group is added. Every process calls step() equally often, and loads the
    same state if one does; a parameter is updated if any of them has a gradient for it.

    >>> import torch, frugrad.torch
    >>> model = torch.nn.Linear(100, 100)
    >>> opt = frugrad.torch.SGC(model.parameters(), lr=1e-3, s=64)
    >>> model(torch.ones(1, 100)).sum().backward()
    >>> opt.step()
    >>> opt.states < 2 * sum(p.numel() for p in model.parameters())
    True
    """

    param_groups: List[Dict[str, Any]]
    state: Any

    def __init__(self, params: Iterable, lr: float = 1e-3, variant: str = "table", s: Optional[int] = None,
                 kappa: Optional[int] = None, chunks: Optional[int] = None, rank: Optional[int] = None,
                 refresh: Optional[int] = None, scale: Optional[float] = None,
                 betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
                 options: str = "", min_size: int = 4096, threads: Optional[int] = None, data_parallel: bool = False,
                 process_group: Optional[Any] = None):
        self._min_size, self._threads = min_size, threads or torch.get_num_threads()
        self._parts: List[List[_Part]] = []
        self._exchange = _group.Group(process_group) if data_parallel or process_group is not None else None
        # GradScaler then leaves it to step() to skip: where one process overflows, others must not wait for it.
        self._step_supports_amp_scaling = self._exchange is not None
        self._agreed, self._loaded_digest = False, "none"
        self._sent = self._dense = 0
        self._seconds = 0.0
        given = dict(s=s, kappa=kappa, chunks=chunks, rank=rank, refresh=refresh, scale=scale)
        _check_options(variant, given)
        super().__init__(params, dict(given, lr=lr, variant=variant, betas=tuple(betas), eps=eps,
                                      weight_decay=weight_decay, options=options))

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        variant = param_group.get("variant", self.defaults["variant"])
        _check_options(variant, param_group)
        if not float(param_group.get("lr", self.defaults["lr"])) >= 0:
            raise ValueError(f"SGC: lr is {param_group.get('lr', self.defaults['lr'])}, and must not be negative")
        if variant != self.defaults["variant"]:
            param_group.setdefault("options", "")
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._parts.append(self._make_parts(group, len(self.param_groups) - 1))
        except Exception:
            self.param_groups.pop()
            raise
        self._agreed = False
        if self._exchange:
            with torch.no_grad():
                self._exchange.broadcast(group["params"])

    def _make_parts(self, group: Dict[str, Any], number: int) -> List[_Part]:
        ways: Dict[str, List[torch.Tensor]] = {}
        for i, p in enumerate(group["params"]):
            check_parameter(p, f"parameter {i} of group {number}")
            large = p.dim() >= 2 and p.numel() >= self._min_size
            if p.numel():
                ways.setdefault(group["variant"] if large else "adamw", []).append(p)
        parts: List[_Part] = []
        for kind, params in ways.items():
            try:
                parts.append(_Part(kind, params, group, self._threads))
            except FrugradError as error:
                shapes = ", ".join(sorted({"x".join(map(str, p.shape)) for p in params}))
                raise type(error)(f"group {number}: {error} (parameters of {shapes})") from None
        return parts

    # ---- a step

    def step(self, closure: Optional[Callable[[], Any]] = None, **scaling: Any) -> Any:
        """Update the weights. With data_parallel all processes of the group call it.

        scaling   a GradScaler of PyTorch 1.13 gives itself, as grad_scaler. Later ones would, and warn, if it was named
        """
        unknown = set(scaling) - ({"grad_scaler"} if self._exchange else set())
        if unknown:
            raise TypeError(f"SGC.step() has no argument {', '.join(sorted(unknown))}")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            if self._exchange:
                self._step_together(self._exchange, *self._scale_and_overflow(scaling.get("grad_scaler")))
            else:
                self._step_alone()
        return loss

    def _step_alone(self) -> None:
        for group, parts in zip(self.param_groups, self._parts):
            rate = float(group["lr"])
            for part in parts:
                part.apply_options(group, self._threads)
                move = part.optimizer.step
                for i, p in enumerate(part.params):
                    if p.grad is None:
                        continue
                    check_gradient(p.grad, f"parameter {i}")
                    grad, weights = as_floats(p.grad), as_floats(p)
                    move(part.steps[i], part.begins[i], part.counts[i], grad.data_ptr(), rate, weights.data_ptr())
                    part.steps[i] += 1
                    put_back(p, weights)

    def _due(self) -> List[_Due]:
        due = []
        for group, parts in zip(self.param_groups, self._parts):
            for part in parts:
                part.apply_options(group, self._threads)
                for i in range(len(part.params)):
                    measured = part.optimizer.measure_count(part.steps[i], part.begins[i], part.counts[i])
                    due.append(_Due(part, i, float(group["lr"]), measured))
        return due

    def _scale_and_overflow(self, scaler: Optional[Any]) -> Tuple[Optional[float], float]:
        """What gradients are still to be divided by, and above 0 if any is not finite: of a GradScaler."""
        if scaler is None:  # or PyTorch 2.0 or later, where it has set these
            scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", 0.0)
            return None if scale is None else float(scale), float(found)
        unscaled = scaler._found_inf_per_device(self)  # empty unless unscale_() was called
        found = unscaled or scaler._check_inf_per_device(self)
        return None if unscaled else scaler.get_scale(), sum(float(each) for each in found.values())

    def _step_together(self, exchange: _group.Group, scale: Optional[float], overflow: float) -> None:
        """One sum over all: measurements, a number for each parameter (who has a gradient), and one for overflow."""
        self._agree(exchange)
        due = self._due()
        flat = torch.zeros(sum(d.measured for d in due) + len(due) + 1)
        tail = flat.numel() - len(due) - 1
        flat[-1] = overflow
        at = 0
        for number, d in enumerate(due):
            p = d.part.params[d.i]
            if p.grad is not None:
                check_gradient(p.grad, f"parameter {d.i}")
                grad = as_floats(p.grad if scale is None else p.grad.float() / scale)
                d.part.optimizer.measure(d.part.steps[d.i], d.part.begins[d.i], d.part.counts[d.i], grad.data_ptr(),
                                         flat.data_ptr() + 4 * at)
                flat[tail + number] = 1.0
            at += d.measured
        begin = time.perf_counter()
        flat = exchange.mean(flat)
        self._seconds += time.perf_counter() - begin
        self._sent += 4 * flat.numel()
        self._dense += 4 * sum(d.part.counts[d.i] for d in due)
        if flat[-1] == 0:
            self._move_by(due, flat, flat[tail:].tolist())

    def _agree(self, group: _group.Group) -> None:
        """At the first step, and where any process has loaded a state: check that all train the same, from one state.

        Whether one has is gathered at every step, apart from the sum: at different steps sums may differ in length.
        """
        exchange = group.exchange
        if exchange is None or not any(row[0] for row in exchange.gather_numbers([int(not self._agreed)])):
            return
        items: Dict[str, Any] = {}
        for number, options in enumerate(self.param_groups):
            items.update({f"{name} of group {number}": options[name] for name in ("variant", *_OPTIONS)})
        for i, (part, p, step) in enumerate((part, *each) for part in self._all()
                                            for each in zip(part.params, part.steps)):
            items[f"optimizer, shape or order of parameters (number {i})"] = f"{part.kind} {tuple(p.shape)}"
            items[f"the step (of parameter {i})"] = step
        exchange.agree(dict(items, **{"the loaded state": self._loaded_digest}))
        self._agreed = True

    def _move_by(self, due: List[_Due], flat: torch.Tensor, has: List[float]) -> None:
        at = 0
        for number, d in enumerate(due):
            if has[number] > 0:
                p = d.part.params[d.i]
                weights = as_floats(p)
                d.part.optimizer.step_measured(d.part.steps[d.i], d.part.begins[d.i], d.part.counts[d.i],
                                               flat.data_ptr() + 4 * at, d.rate, weights.data_ptr())
                d.part.steps[d.i] += 1
                put_back(p, weights)
            at += d.measured

    # ---- state

    def _all(self) -> Iterable[_Part]:
        return (part for parts in self._parts for part in parts)

    @property
    def states(self) -> int:
        """The number of state values; AdamW has two per parameter."""
        return sum(part.optimizer.states for part in self._all())

    @property
    def state_bytes(self) -> int:
        """Bytes of the state, with indices and bases."""
        return sum(lib.frug_optimizer_state_size(part.optimizer.handle) for part in self._all())

    def times(self) -> Dict[str, float]:
        """Seconds since the optimizer was made: matrices by stage, and the exchange of data_parallel."""
        total = {"seconds_project": 0.0, "seconds_recover": 0.0, "seconds_apply": 0.0}
        for part in self._all():
            for name, value in part.optimizer.times().items():
                total[name] += value
        return dict(total, seconds_exchange=self._seconds)

    def traffic(self) -> Dict[str, int]:
        """With data_parallel: bytes sent so far, and what gradients in float32 would have been."""
        return {"bytes_sent": self._sent, "bytes_dense": self._dense}

    def state_dict(self) -> Dict[str, Any]:
        """torch's form. States are byte tensors, one or two in each param group, and every parameter has its step."""
        for part in self._all():
            for p, step in zip(part.params, part.steps):
                self.state[p]["step"] = step
        state = super().state_dict()
        for group, parts in zip(state["param_groups"], self._parts):
            group[_STATE] = {part.kind: bytes_tensor(part.optimizer.save()) for part in parts}
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restore a state_dict() of the same groups and continue bit for bit. On an error nothing has changed."""
        before = self.param_groups, self.state
        super().load_state_dict(state_dict)
        try:
            loaded = [self._loaded(number, group, before[0][number]["variant"])
                      for number, group in enumerate(self.param_groups)]
        except Exception:
            self.param_groups, self.state = before
            raise
        self._parts, self._agreed = loaded, False
        if self._exchange:
            self._loaded_digest = _group.digest(saved for group in state_dict["param_groups"]
                                                for saved in group[_STATE].values())

    def _loaded(self, number: int, group: Dict[str, Any], variant: str) -> List[_Part]:
        """A group's optimizers as saved."""
        saved = group.pop(_STATE, {})
        parts = self._make_parts(group, number) if group.get("variant") == variant else None
        if parts is None or set(saved) != {part.kind for part in parts}:
            raise ValueError(f"group {number}: the state is not one of SGC(variant='{variant}') with the same min_size")
        for part in parts:
            part.optimizer.restore(tensor_bytes(saved[part.kind]))
            part.steps = [int(self.state[p].get("step", 0)) for p in part.params]
        return parts

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError("SGC holds memory of the library and cannot be copied or pickled; use state_dict()")


def _check_options(variant: str, given: Dict[str, Any]) -> None:
    if variant not in _KNOWN:
        raise ValueError(f"variant '{variant}' is unknown; there are {', '.join(_VARIANTS)}")
    for name, option in _NAMES.items():
        if given.get(name) is not None and option not in _KNOWN[variant]:
            fitting = [v for v in _VARIANTS if option in _KNOWN[v]]
            raise ValueError(f"variant '{variant}' has no {name}; {', '.join(fitting)} have")
