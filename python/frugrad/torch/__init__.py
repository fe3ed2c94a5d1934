"""FruGrad in PyTorch: a communication hook for DistributedDataParallel, and optimizers."""

from .compact import PackedLinear, load, load_state, save
from .convert import optimizer
from .ddp import DDPState, hook
from .functional import compress, decompress, frame_length
from .accelerate_hook import accelerate
from .fsdp_hook import FSDPState, fsdp
from .local_steps import LocalSteps
from .sgc import SGC
from .sparse_units import UnitLayer, UnitSlice
from .sparsify import Sparsify
from .streaming import StreamingOptimizer

__all__ = ["DDPState", "FSDPState", "LocalSteps", "PackedLinear", "SGC", "Sparsify", "StreamingOptimizer", "UnitLayer", "UnitSlice",
           "accelerate", "compress", "decompress", "frame_length", "fsdp", "hook", "load", "load_state", "optimizer", "save"]
