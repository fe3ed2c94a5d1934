"""Config strings of the hook: a feedback that fits the optimizer, and options that the hook does not support."""

import warnings
from typing import Sequence

import torch

from .._core import Config
from .._tables import presets
from .checks import unknown_optimizer
from .convert import ConvertedOptimizer, family

_REDUCE = ("gather", "split", "tree", "nodes", "shared", "auto", "dense")
_OWN_MOMENTUM = ("merged", "dgc")
_DECAY = 0.95  # of the residual of frugrad-sgd
DENSE_START = 2  # dense steps at the start, where nothing else is said


def has_momentum(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer smooths gradients itself: SGD and others by momentum, Adam and its variants by beta1."""
    return not isinstance(optimizer, ConvertedOptimizer) and any(
        group.get("momentum", 0) or group.get("betas", (0,))[0] for group in optimizer.param_groups)


def hook_config(text: str, optimizers: Sequence[torch.optim.Optimizer]) -> Config:
    """The config, where ``frugrad`` is frugrad-sgd, frugrad-adam or frugrad-muon, whichever goes with the first optimizer.

    SGD's own momentum is what hold=auto is to preserve.
    """
    if not isinstance(text, str):
        raise TypeError(f"the config is a text, such as 'frugrad', not a {type(text).__name__}")
    kind = family(optimizers[0]) if optimizers else ""
    config = Config(text, kind or None)
    if kind == "sgd" and config.option("hold") == "auto" and "momentum=" not in text:
        momentum = {float(group["momentum"]) for group in optimizers[0].param_groups}
        if len(momentum) == 1 and max(momentum) < _DECAY:
            return Config(f"{text},momentum={momentum.pop()!r}", kind)
    return config


def with_dense_start(text: str, config: Config) -> Config:
    """The config with some dense steps at the start, unless its text says how many."""
    if "warmup=" in text or int(config.option("warmup")):
        return config
    return Config(f"{config.text},warmup={DENSE_START}")


def names_feedback(text: str) -> bool:
    """Whether a config, or its preset, says what happens to entries that are not sent."""
    parts = text.split(",")
    named = parts + [preset.text for preset in presets() if preset.name == parts[0].strip()]
    return any("feedback=" in part for part in named)


def _require_fitting(text: str, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Refuse optimizers that have a momentum besides that of the residual, or are not known."""
    how = (". Write optimizer = frugrad.torch.optimizer(model, optimizer), and give it as optimizer=optimizer; or, to keep"
           " the optimizer as it is, write 'frugrad,feedback=none', which drops the entries that are not sent")
    if not optimizers:
        raise ValueError(f"'{text}' keeps the momentum in the residual, so it must know the optimizer{how}")
    for each in optimizers:
        if not family(each):
            raise ValueError(f"'{text}': {unknown_optimizer(each)}")
        if has_momentum(each):
            raise ValueError(f"'{text}' keeps the momentum in the residual, and {type(each).__name__} has one of its"
                             f" own{how}")
        if family(each) == "adam" and not isinstance(each, ConvertedOptimizer):
            raise ValueError(f"'{text}' with {type(each).__name__} needs another rate than dense training{how}")


def unsupported_option(config: Config) -> str:
    """An option that neither hook nor trainer supports, and why; empty: none."""
    if config.option("layers") == "sensitivity":
        return "layers=sensitivity needs a weight for each tensor, and nothing here gives any; choose layers=even or role"
    if config.option("score") == "given":
        return "score=given needs a number for each attention head, and nothing here gives any; choose score=l2"
    gossip = ("topology", "ring"), ("gamma", "0.2"), ("average_every", "0")
    if config.option("reduce") != "gossip" and any(config.option(name) != usual for name, usual in gossip):
        return "topology, gamma and average_every do nothing without reduce=gossip; leave them out"
    return ""


def _warn_of_other_preset(text: str, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Warn of a preset that is for another optimizer than those given."""
    names = {"sgd": "SGD", "adam": "Adam", "muon": "Muon"}
    preset, kinds = text.split(",")[0].strip(), {family(each) for each in optimizers} - {""}
    meant = preset[len("frugrad-"):]
    if preset.startswith("frugrad-") and meant in names and kinds and meant not in kinds:
        warnings.warn(f"'{preset}' is for {names[meant]}, and the optimizer is {names[family(optimizers[0])]}: write 'frugrad',"
                      " which is the preset that goes with the optimizer", stacklevel=4)


def warn_of_no_length(config: Config, total_steps: int) -> None:
    """Warn of a schedule whose end is unknown. Called by what a constructor calls: the warning names its caller."""
    schedule = config.option("schedule")
    if total_steps == 0 and not schedule.startswith("constant"):
        warnings.warn(f"schedule={schedule} needs total_steps=, the length of training in steps: without it, its last"
                      " density is that of all steps", stacklevel=4)


def check(config: Config, text: str, optimizers: Sequence[torch.optim.Optimizer], total_steps: int) -> None:
    """Refuse options that the hook does not support and optimizers that do not fit, and warn of likely mistakes.

    The library's default, feedback=merged, keeps the momentum in the residual. It needs optimizers that have none
    besides; where they are not of that kind, a text that names no feedback is refused.
    """
    feedback = config.option("feedback")
    if config.option("reduce") not in _REDUCE:
        raise ValueError(f"reduce={config.option('reduce')} is not for the hook, which takes reduce="
                         + ", ".join(_REDUCE))
    if config.option("transform") != "off":
        raise ValueError("transform is done by the trainers; the hook does not have it: leave it out")
    if config.option("local") != "0":
        raise ValueError("local steps exchange weights, not gradients: without DistributedDataParallel, by"
                         " frugrad.torch.LocalSteps; leave local out")
    if feedback == "ef21":
        raise ValueError("feedback=ef21 sends changes of the gradient, which only the library's optimizers add up; the"
                         " hook takes feedback=none, merged, plain, dgc")
    if unsupported_option(config):
        raise ValueError(unsupported_option(config))
    if config.option("reduce") != "dense":
        warn_of_no_length(config, total_steps)
    if feedback not in _OWN_MOMENTUM or config.option("reduce") == "dense":
        return
    _warn_of_other_preset(text, optimizers)
    if not names_feedback(text):
        _require_fitting(text, optimizers)
    elif not optimizers or any(map(has_momentum, optimizers)):
        warnings.warn(f"feedback={feedback} holds the momentum itself: name an optimizer without one, as"
                      " optimizer=frugrad.torch.optimizer(model, optimizer)", stacklevel=3)
