"""A usual optimizer of PyTorch as one for compressed gradients: at its own learning rate, without a second momentum.

With feedback=merged (or dgc) the residual is the momentum, and what is received is counted once. So a parameter that
is compressed gets the same optimizer without momentum, at a rate times the library's gain (docs/optimizers.md), so
that the rate of dense training is right. A parameter that is sent whole has no residual, and keeps the optimizer as it is.
"""

from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from .._core import Config
from ._floats import warn_once
from .checks import known_classes, refuse_scheduled, require_model, require_optimizer, unknown_optimizer
from .rate_gain import RateGain, mean_width

_OWN_MOMENTUM = ("merged", "dgc")  # feedbacks whose residual is a momentum
_MOST_ASKED = 16  # optimizers of the library that are kept to be asked again


def bare(optimizer: Any) -> Any:
    """The optimizer inside wrappers, as that of Hugging Face Accelerate."""
    while not isinstance(optimizer, ConvertedOptimizer) and isinstance(getattr(optimizer, "optimizer", None),
                                                                       torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def family(optimizer: torch.optim.Optimizer) -> str:
    """"sgd", "adam" or "muon"; empty: not known, also where the class is only derived from one of PyTorch's."""
    if isinstance(optimizer, ConvertedOptimizer):
        return optimizer.kind
    if type(optimizer) not in known_classes():
        return ""
    return {"SGD": "sgd", "Muon": "muon"}.get(type(optimizer).__name__, "adam")


class Rule:
    """How the options of a param group change for compressed parameters, by a config."""

    def __init__(self, optimizer: torch.optim.Optimizer, config: Config, total_steps: int, width: float, pretrained: bool):
        self._gain = "finetune" if pretrained else "auto"
        self.kind, self.decoupled = family(optimizer), isinstance(optimizer, torch.optim.AdamW)
        self._config, self._steps, self._width = config, total_steps, width
        self.merges = config.option("feedback") in _OWN_MOMENTUM and config.option("reduce") != "dense"
        self._asked: Dict[str, RateGain] = {}

    def options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        """The options that differ from the group's."""
        return getattr(self, f"_{self.kind}")(group)

    def _ask(self, text: str) -> RateGain:
        """The gain and the options of one of the library's optimizers."""
        if text not in self._asked:
            if len(self._asked) == _MOST_ASKED:  # a schedule of the momentum asks for another one at every step
                self._asked.clear()
            self._asked[text] = RateGain(text, self._config, self._steps, self._width)
        return self._asked[text]

    def _sgd(self, group: Dict[str, Any]) -> Dict[str, Any]:
        momentum = float(group["momentum"])
        gain = self._ask(f"merged:momentum={momentum!r}").at(float(group["lr"]))
        gain *= 1 - float(group["dampening"]) if momentum else 1.0
        return dict(lr=group["lr"] * gain, momentum=0, dampening=0, nesterov=False)

    def _adam(self, group: Dict[str, Any]) -> Dict[str, Any]:
        asked = self._ask(f"adam-merged:gain={self._gain}")
        gain = asked.at(float(group["lr"]))
        decoupled = group.get("decoupled_weight_decay", self.decoupled)  # then it is times the rate, and not the gain
        return dict(lr=group["lr"] * gain, betas=(0.0, float(asked.options["beta2"])),
                    weight_decay=group["weight_decay"] / (gain if decoupled else 1.0))

    def _muon(self, group: Dict[str, Any]) -> Dict[str, Any]:
        gain = float(self._ask("muon-merged").options["gain"]) / float(self._ask("muon").options["gain"])
        return dict(lr=group["lr"] * gain, momentum=0, nesterov=False, weight_decay=group["weight_decay"] / gain)


class ConvertedOptimizer(torch.optim.Optimizer):
    """What ``frugrad.torch.optimizer()`` returns: param groups and state are those of the optimizer that was given.

    Until a compressed gradient has been received, or where nothing is compressed, a step is that optimizer's, bit for
    bit. From then on it differs as the module says. Schedulers, param groups, clipping, GradScaler and ``state_dict()``
    work as usual; a checkpoint of the optimizer that was given can be loaded.
    """

    def __init__(self, given: torch.optim.Optimizer, pretrained: bool):
        super().__init__(given.param_groups, given.defaults)
        self._pretrained = pretrained
        self.state = given.state
        first = dict(self.param_groups[0])
        make: Callable[..., torch.optim.Optimizer] = type(given)
        self._inner = make([first], lr=first["lr"])
        self._inner.state = self.state
        self._source: Optional[Any] = None
        self._rule: Optional[Rule] = None
        self._compressed: Set[int] = set()  # ids of the parameters with a residual
        self._momenta: List[float] = []  # of the param groups that bind() has seen
        self._merged = False  # whether the residual is the momentum by now
        self._unhooked = 0  # steps before any call of the hook
        self._exchanges = 0  # of gradients, until the last step
        self._repeated = 0  # steps in succession with several exchanges
        self.stepped = False  # whether step() was called

    @property
    def kind(self) -> str:
        """"sgd", "adam" or "muon"."""
        return family(self._inner)

    def bind(self, source: Any, config: Config, total_steps: int, compressed: Set[int]) -> None:
        """Follow a hook's state: ``source.step`` counts steps, ``source.compressing`` says whether any was compressed.

        compressed   ids of the parameters that the config compresses
        """
        width = mean_width(tuple(p.shape) for group in self.param_groups for p in group["params"])
        self._source, self._rule = source, Rule(self._inner, config, total_steps, width, self._pretrained)
        self._compressed = set(compressed)
        self._momenta = [_momentum(group) for group in self.param_groups]
        self._merged = False

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step, by the gradients that the hook has received."""
        self.stepped = True
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._source is None:
            self._watch_hook()
        elif self._rule is not None and self._rule.merges:
            self._merged = self._merged and self._source.compressing  # or an earlier state was loaded
            if not self._merged:
                self._begin_merging(self._source)
            self._watch_accumulation(self._source.step)
            self._watch_momentum()
        self._inner.param_groups = self.step_groups()
        self._inner.step()
        return loss

    def step_groups(self) -> List[Dict[str, Any]]:
        """The param groups with the options by which they step."""
        return [part for group in self.param_groups for part in self._parts(group)]

    def _begin_merging(self, source: Any) -> None:
        """From the first compressed gradient on, the residual is the momentum."""
        if source.compressing:
            self._merged = True
            self._drop_momentum()
        elif source.step == 0:
            self._watch_hook()

    def _watch_hook(self) -> None:
        """At a step without any exchange by the hook before."""
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            self._unhooked += 1
            if self._unhooked > 1:  # the first may be that by which torch.distributed.checkpoint makes a state to load
                warn_once("the hook was not called in backward(): nothing is compressed. Was this optimizer given to"
                          " DDPState, and is that registered, by ddp.register_comm_hook(state, frugrad.torch.hook)?"
                          " (Lightning does not do that on CPUs)")

    def _watch_accumulation(self, exchanges: int) -> None:
        """Warn of passes that are all exchanged; a step that a GradScaler has skipped is no such one."""
        self._repeated = self._repeated + 1 if exchanges > self._exchanges + 1 else 0
        self._exchanges = exchanges
        if self._repeated == 3:
            warn_once("gradients were exchanged several times before each step(), and every time the momentum in the"
                      " residual decays: put all backward passes but the last into `with ddp.no_sync():` (FSDP2:"
                      " set_requires_gradient_sync(False))")

    def _watch_momentum(self) -> None:
        if self._merged and any(_momentum(group) != before for group, before in zip(self.param_groups, self._momenta)):
            warn_once("the optimizer's momentum has changed in training, and the decay of the residual, which is the"
                      " momentum of compressed parameters, has not: make OneCycleLR or CyclicLR with"
                      " cycle_momentum=False")

    def _parts(self, group: Dict[str, Any]) -> List[Dict[str, Any]]:
        """A param group as it is, or its parameters that are sent whole and those that are compressed."""
        if self._rule is None or not self._merged:
            return [group]
        whole = [p for p in group["params"] if id(p) not in self._compressed]
        compressed = [p for p in group["params"] if id(p) in self._compressed]
        parts = [dict(group, params=whole)] if whole else []
        return parts + ([dict(group, params=compressed, **self._rule.options(group))] if compressed else [])

    def _drop_momentum(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if id(p) in self._compressed and p in self.state:
                    self.state[p].pop("momentum_buffer" if self.kind == "sgd" else "", None)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._inner.state = self.state

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError("an optimizer of frugrad.torch.optimizer() follows a hook's state and cannot be copied or"
                        " pickled; use state_dict()")


def _momentum(group: Dict[str, Any]) -> float:
    """SGD's and Muon's momentum, Adam's beta1."""
    return float(group["momentum"] if "momentum" in group else group["betas"][0])


class _GivenStep:
    """In place of ``step()`` of an optimizer that was given: refuses to be called, and to be followed by a scheduler,
    which replaces the method and asks for its parts."""

    def __call__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("this optimizer was given to frugrad.torch.optimizer(): call step() of what that returned")

    def _refuse_scheduler(self) -> None:
        raise RuntimeError("this optimizer was given to frugrad.torch.optimizer(): make the scheduler for what that"
                           " returned")

    __func__ = __self__ = property(_refuse_scheduler)


def optimizer(model: torch.nn.Module, torch_optimizer: torch.optim.Optimizer, *, pretrained: bool = False
              ) -> ConvertedOptimizer:
    """A usual optimizer for compressed gradients: ``torch.optim`` SGD, Adam, AdamW or Muon, at the rate that it has::

        optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
        state = frugrad.torch.DDPState(model, "frugrad", optimizer=optimizer)

    pretrained   the weights are trained already, and are fine-tuned: rates of Adam above the usual ones for that, 0.02
                 over the width of matrices, count as high (below)

    Use what is returned in place of the optimizer that was given, which refuses to step from then on, and make
    schedulers for it. Param groups and their options, momentum included, stay as they are. Compressed parameters
    (matrices; not vectors and small tensors) step without momentum, since it is in the residual: SGD by 1 / (1 -
    momentum) times the rate, Adam by 0.5 (high rates) to 2 times it, with a beta2 that fits the density, Muon by 1.5. Without
    a ``DDPState``, and until it has compressed a gradient, the step is that of the optimizer that was given.

    >>> import torch, frugrad.torch
    >>> model = torch.nn.Linear(100, 100)
    >>> optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    >>> schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
    >>> optimizer.kind, optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]
    ('sgd', 0.1, 0.9)
    """
    require_model(model, "frugrad.torch.optimizer()")
    given = bare(require_optimizer(torch_optimizer, "frugrad.torch.optimizer()"))
    if isinstance(given, ConvertedOptimizer):
        return given
    if not family(given):
        raise TypeError(f"frugrad.torch.optimizer(): {unknown_optimizer(given)}")
    if any(group.get("amsgrad") for group in given.param_groups):
        raise ValueError("frugrad.torch.optimizer(): amsgrad=True keeps the largest mean square for good, and received"
                         " gradients are seldom and large; leave it out")
    refuse_scheduled(given, "frugrad.torch.optimizer()")
    converted = ConvertedOptimizer(given, pretrained)
    given.step = _GivenStep()
    return converted
