"""FruGrad: data-parallel training that sends a few percent of the gradient.

``frugrad.torch`` has the hook for DistributedDataParallel and the optimisers; this module needs no framework.
"""

from ._core import ROLES, Config, Layout, Tensor
from ._lib import ConfigError, FormatError, FrugradError, MismatchError, version

__all__ = ["Config", "ConfigError", "FormatError", "FrugradError", "Layout", "MismatchError", "ROLES", "Tensor", "version"]
