"""FruGrad in PyTorch: a communication hook for DistributedDataParallel, and optimisers."""

from .ddp import DDPState, hook
from .hugging import accelerate
from .sgc import SGC
from .streaming import StreamingOptimizer

__all__ = ["DDPState", "SGC", "StreamingOptimizer", "accelerate", "hook"]
