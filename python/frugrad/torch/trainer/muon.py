"""Muon's update of matrices: their momentum, orthogonalized by Newton-Schulz steps, of all matrices of a shape at once.

The formulas are those of the library (docs/optimizers.md). On a GPU products are bf16, as Muon was published.
"""

import math
from typing import Dict, List, Tuple

import torch

from .flat import Flat

_STEPS, _A, _B, _C = 5, 3.4445, -4.7750, 2.0315
_SCALE, _MIN_NORM = 0.2, 1e-7


def orthogonalize(x: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrices of some (k, rows, columns), approximately."""
    x = x.bfloat16() if x.is_cuda else x
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = x / x.flatten(1).norm(dim=1).clamp(min=_MIN_NORM)[:, None, None]
    for _ in range(_STEPS):
        a = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=_B, alpha=_C), x, beta=_A)
    return x.transpose(1, 2) if tall else x


class MuonPart:
    """The matrices of a model that Muon updates, and their momentum, where there is one."""

    def __init__(self, flat: Flat, tensors: List[int], momentum: float, decay: float):
        self.momentum, self.decay = momentum, decay
        self.shapes: Dict[Tuple[int, int], List[Tuple[torch.Tensor, torch.Tensor]]] = {}
        for i in tensors:
            tensor = flat.layout[i]
            shape = tensor.shape[0], math.prod(tensor.shape[1:])
            pair = flat.weights[tensor.place].view(shape), flat.grad[tensor.place].view(shape)
            self.shapes.setdefault(shape, []).append(pair)
        self.means = {shape: torch.zeros(len(pairs), *shape, device=flat.grad.device)
                      for shape, pairs in self.shapes.items() if momentum}
        self.most = sum(4 * mean.numel() for mean in self.means.values())

    def step(self, rate: float) -> None:
        for shape, pairs in self.shapes.items():
            x = torch.stack([g for _, g in pairs])
            if self.momentum:
                x.add_(self.means[shape].mul_(self.momentum).add_(x), alpha=self.momentum)
            moves = orthogonalize(x)
            for (w, _), move in zip(pairs, moves):
                w.mul_(1 - rate * self.decay).sub_(move.float(), alpha=rate * _SCALE * max(shape) ** 0.5)
