"""FruGrad in PyTorch: a communication hook for DistributedDataParallel, and optimisers."""

from .ddp import DDPState, hook

__all__ = ["DDPState", "hook"]
