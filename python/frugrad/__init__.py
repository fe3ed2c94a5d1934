"""FruGrad: data-parallel training that sends a few percent of the gradient.

``frugrad.torch`` has the hook for DistributedDataParallel and the optimizers. This module needs no framework, and
``frugrad.Compressor`` nothing but NumPy:

    compressor = frugrad.Compressor((1000, 512), "frugrad", rank=rank)
    frame = compressor.compress(gradient, step)        # bytes; exchange them any way you like
    mean = compressor.decompress(frames_of_all_workers)
"""

from typing import TYPE_CHECKING, Any

from ._core import ROLES, Config, Layout, Tensor
from ._frames import inspect
from ._lib import CommError, ConfigError, FormatError, FrugradError, MismatchError, RemoteError, version
from ._payload import Payload, read_payload, write_payload
from ._tables import Option, OptimizerKind, Preset, optimizers, options, presets

if TYPE_CHECKING:
    from ._arrays import Compressor

__version__ = version()

__all__ = ["CommError", "Compressor", "Config", "ConfigError", "FormatError", "FrugradError", "Layout", "MismatchError",
           "Option", "OptimizerKind", "Payload", "Preset", "ROLES", "RemoteError", "Tensor", "inspect", "optimizers",
           "options", "presets", "read_payload", "version", "write_payload"]


def __getattr__(name: str) -> Any:
    if name == "Compressor":  # the only one that needs NumPy
        from ._arrays import Compressor

        return Compressor
    raise AttributeError(f"module 'frugrad' has no attribute '{name}'")
