"""Hugging Face Accelerate: the hook on a model that ``prepare()`` has wrapped, and its state in checkpoints.

Accelerate's own way to hooks, the ``comm_hook`` of DistributedDataParallelKwargs, is a list of PyTorch's, and the class
cannot be derived from: an Accelerator looks handlers up by their exact class. So the hook is registered on what
``prepare()`` returns, by nothing but public calls. Accelerate itself is not imported here.
"""

from typing import Any

import torch

from .ddp import DDPState, hook
from .roles import uncompiled


class _AllRanks:
    """A state as ``save_state()`` wants it: all ranks ask for it, the first one writes, and all read that file."""

    def __init__(self, state: DDPState):
        self.state = state

    def state_dict(self) -> dict:
        return self.state.state_dict(all_ranks=True)

    def load_state_dict(self, state: dict) -> None:
        self.state.load_state_dict(state)


def accelerate(accelerator: Any, model: torch.nn.Module, config: str = "frugrad", **options: Any) -> DDPState:
    """Register the hook on what ``accelerator.prepare(model, ...)`` returned, and its state with the accelerator.

    ``config`` and ``options`` (total_steps, optimizer, ...) are those of ``DDPState``, which is returned, for
    ``stats()``. Its ``scaler`` is the accelerator's. ``accelerator.save_state()`` and ``load_state()`` then take it along, with the residuals of all ranks:
    call ``load_state()`` after this. With one process there is nothing to exchange, and the hook is not called.

    >>> import accelerate, torch, frugrad.torch
    >>> accelerator, model = accelerate.Accelerator(cpu=True), torch.nn.Linear(100, 100)
    >>> optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
    >>> model, optimizer = accelerator.prepare(model, optimizer)
    >>> state = frugrad.torch.accelerate(accelerator, model, "frugrad", optimizer=optimizer)
    >>> state.config.option("feedback")
    'merged'
    """
    options.setdefault("scaler", getattr(accelerator, "scaler", None))  # of mixed_precision="fp16"
    state = DDPState(model, config, **options)
    if accelerator.num_processes > 1:
        ddp: Any = uncompiled(model)
        if not issubclass(type(ddp), torch.nn.parallel.DistributedDataParallel):
            raise TypeError("the hook takes a model that accelerator.prepare() has wrapped in DistributedDataParallel;"
                            f" this is a {type(ddp).__name__} (distributed_type {accelerator.distributed_type})")
        ddp.register_comm_hook(state, hook)
    accelerator.register_for_checkpointing(_AllRanks(state))
    return state
