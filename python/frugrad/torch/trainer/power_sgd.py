"""PowerSGD (Vogels et al. 2019), the rival that sends low-rank factors: a method of this trainer only.

Each matrix M, the gradient plus what was not sent, is sent as P = M Q, orthogonalized, and Q = M^T P, both all-reduced;
all workers apply P Q^T, and the difference stays at each. Q is that of the step before. Both products are linear in M, so
the simulation computes them once, from the mean of all workers. Tensors whose factors are no smaller are sent dense.

A column of Q that has become zero would stay zero, and so would what is sent. It starts again as a random one: matrices in
front of a normalization whose weights begin at zero, as in residual networks, have no gradient at the first step.
"""

import re
from typing import List, Optional, Tuple

import torch

from . import UsageError
from .flat import Flat
from .workers import Exchange

_MOST = 256
_DEPENDENT = 1e-5  # length of what is left of a column of length 1


def parse_rank(method: str) -> Optional[int]:
    """The rank of ``powersgd`` or ``powersgd,rank=N``; None for any other method."""
    if method.split(",")[0].strip() != "powersgd":
        return None
    found = re.fullmatch(r"powersgd(?:,rank=(\d{1,3}))?", method)
    rank = int(found.group(1) or 4) if found else 0
    if not 1 <= rank <= _MOST:
        raise UsageError(f"--method: '{method}' is not powersgd with a rank from 1 to {_MOST}, as powersgd,rank=4")
    return rank


def _normalize(columns: torch.Tensor, least: float) -> None:
    """To length 1, or to 0 if one is not longer than ``least``."""
    length = columns.norm(dim=-1, keepdim=True)
    columns.mul_(torch.where(length > least, 1 / length, torch.zeros_like(length)))


def orthogonalize(matrices: torch.Tensor) -> None:
    """Gram-Schmidt of the columns of each matrix, in place. A column that depends on others becomes zero: what is left of
    it is rounding, which may have any direction. There is no matrix product, because a GPU may round its factors to TF32,
    and then more is left."""
    for i in range(matrices.shape[-1]):
        columns, before = matrices[..., i], matrices[..., :i]
        _normalize(columns, 0.0)
        for _ in range(2 if i else 0):  # once leaves some of the others in it
            shares = (before * columns.unsqueeze(-1)).sum(-2, keepdim=True)
            columns.sub_((before * shares).sum(-1))
            _normalize(columns, _DEPENDENT)


class PowerSGD(Exchange):
    """The exchange of factors, simulated for all workers."""

    def __init__(self, flat: Flat, workers: int, rank: int):
        super().__init__(flat, workers)
        self.name = self.text = f"powersgd,rank={rank}"
        made = torch.Generator().manual_seed(1)  # the same for all workers
        self.matrices: List[torch.Tensor] = []  # the mean gradient
        self.dense: List[Tuple[int, int]] = []  # ranges
        floats, factors = 0, []
        for tensor in flat.layout:
            begin, end, rows = tensor.begin, tensor.begin + tensor.elements, tensor.shape[0]
            columns = tensor.elements // rows
            if rank * (rows + columns) < tensor.elements:
                self.matrices.append(flat.grad[begin:end].view(rows, columns))
                factors.append(torch.randn(columns, rank, generator=made))
                floats += rank * (rows + columns)
            elif self.dense and self.dense[-1][1] == begin:
                self.dense[-1] = self.dense[-1][0], end
            else:
                self.dense.append((begin, end))
        floats += sum(end - begin for begin, end in self.dense)
        self.density, self.sent = floats / flat.n, 8 * floats * (workers - 1) // workers
        self.errors = torch.zeros(workers, flat.n, device=flat.grad.device)
        self.state_bytes = 4 * (flat.n + sum(factor.numel() for factor in factors))
        # Factors of all matrices are in one tensor, with rows of zeros after the shorter ones: a kernel computes all of them.
        rows, columns = (max((matrix.shape[side] for matrix in self.matrices), default=1) for side in (0, 1))
        self.p = torch.zeros(len(factors), rows, rank, device=flat.grad.device)
        self.start = torch.zeros(len(factors), columns, rank)  # what Q begins as
        for padded, factor in zip(self.start, factors):
            padded[:len(factor)] = factor
        self.start = self.start.to(flat.grad.device)
        self.q = self.start.clone()

    def add_gradient(self, worker: int, step: int) -> None:
        self.errors[worker].add_(self.flat.grad)

    def mean(self, step: int) -> None:
        torch.mean(self.errors, 0, out=self.flat.grad)
        sides = [(m, self.p[i, :m.shape[0]], self.q[i, :m.shape[1]]) for i, m in enumerate(self.matrices)]
        for matrix, p, q in sides:
            torch.mm(matrix, q, out=p)
        orthogonalize(self.p)
        for matrix, p, q in sides:
            torch.mm(matrix.t(), p, out=q)
            torch.mm(p, q.t(), out=matrix)
        self.q = torch.where(self.q.abs().amax(1, keepdim=True) > 0, self.q, self.start)
        self.errors.sub_(self.flat.grad)
        for begin, end in self.dense:
            self.errors[:, begin:end].zero_()
