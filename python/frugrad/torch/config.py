"""Config strings of the hook: a feedback that fits the optimizer, and options that the hook does not support."""

import warnings
from typing import Optional

import torch

from .._core import Config
from .._tables import presets

_REDUCE = ("gather", "split", "tree", "nodes", "shared", "auto", "dense")
_OWN_MOMENTUM = ("merged", "dgc")


def has_momentum(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer smooths gradients itself: SGD and others by momentum, Adam and its variants by beta1."""
    return any(group.get("momentum", 0) or group.get("betas", (0,))[0] for group in optimizer.param_groups)


def hook_config(text: str, optimizer: Optional[torch.optim.Optimizer]) -> Config:
    """The config with a feedback where neither the preset nor an option names one.

    The library's default, feedback=merged, keeps the momentum in the residual, and goes with an optimizer that has
    none; the preset ``frugrad`` is then frugrad-sgd, frugrad-adam or frugrad-muon. Where the optimizer has one, or is
    not known, it is feedback=none.
    """
    bare = optimizer is not None and not has_momentum(optimizer)
    parts = text.split(",")
    named = parts + [preset.text for preset in presets() if preset.name == parts[0].strip()]
    if not any("feedback=" in part or "beta=" in part for part in named):
        feedback = "feedback=merged" if bare else "feedback=none"
        text = f"{text},{feedback}" if text.strip() else feedback
    return Config(text, _family(optimizer) if bare else None)


def _family(optimizer: torch.optim.Optimizer) -> str:
    """Which preset goes with an optimizer, known by the options of its groups."""
    options = {name for group in optimizer.param_groups for name in group}
    return "muon" if "ns_steps" in options else "adam" if "betas" in options else "sgd"


def unsupported_option(config: Config) -> str:
    """An option that neither hook nor trainer supports, and why; empty: none."""
    if config.option("layers") == "sensitivity":
        return "layers=sensitivity needs a weight for each tensor, and nothing here gives any; choose layers=even or role"
    if config.option("score") == "given":
        return "score=given needs a number for each attention head, and nothing here gives any; choose score=l2"
    gossip = ("topology", "ring"), ("gamma", "0.2"), ("average_every", "0")
    if config.option("reduce") != "gossip" and any(config.option(name) != usual for name, usual in gossip):
        return "topology, gamma and average_every do nothing without reduce=gossip; leave them out"
    if config.option("servers") != "1" or config.option("staleness") != "0":
        return "servers and staleness are for parameter servers, which are not used here; leave them out"
    return ""


def check(config: Config, optimizer: Optional[torch.optim.Optimizer]) -> None:
    """Refuse options that the hook does not support, and warn of likely mistakes."""
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
    if feedback in _OWN_MOMENTUM and (optimizer is None or has_momentum(optimizer)):
        warnings.warn(f"feedback={feedback} holds the momentum itself: give the optimizer none (SGD: momentum=0, and"
                      " ten times the learning rate where it was 0.9; Adam: betas=(0.0, 0.99) and half of the rate), and"
                      " name it to DDPState as optimizer=...", stacklevel=3)
