"""PowerSGD (Vogels et al. 2019), the rival that sends low-rank factors: a method of this trainer only.

Each matrix M, the gradient plus what was not sent, is sent as P = M Q, orthogonalized, and Q = M^T P, both all-reduced;
all workers apply P Q^T, and the difference stays at each. Q is that of the step before. Both products are linear in M, so
the simulation computes them once, from the mean of all workers. Tensors whose factors are no smaller are sent dense.
"""

import re
from typing import List, Optional, Tuple

import torch

from . import UsageError
from .flat import Flat
from .workers import Exchange

_MOST = 256


def parse_rank(method: str) -> Optional[int]:
    """The rank of ``powersgd`` or ``powersgd,rank=N``; None for any other method."""
    if method.split(",")[0].strip() != "powersgd":
        return None
    found = re.fullmatch(r"powersgd(?:,rank=(\d{1,3}))?", method)
    rank = int(found.group(1) or 4) if found else 0
    if not 1 <= rank <= _MOST:
        raise UsageError(f"--method: '{method}' is not powersgd with a rank from 1 to {_MOST}, as powersgd,rank=4")
    return rank


def orthogonalize(matrix: torch.Tensor) -> None:
    """Gram-Schmidt of the columns, in place. A column that depends on others becomes as good as zero."""
    for i in range(matrix.shape[1]):
        column = matrix[:, i]
        column.div_(column.norm() + 1e-8)
        if i + 1 < matrix.shape[1]:
            rest = matrix[:, i + 1:]
            rest.sub_(torch.outer(column, column @ rest))


class PowerSGD(Exchange):
    """The exchange of factors, simulated for all workers."""

    def __init__(self, flat: Flat, workers: int, rank: int):
        super().__init__(flat, workers)
        self.name = self.text = f"powersgd,rank={rank}"
        made = torch.Generator().manual_seed(1)  # the same for all workers
        self.matrices: List[Tuple[torch.Tensor, torch.Tensor]] = []  # the mean, and Q
        self.dense: List[Tuple[int, int]] = []  # ranges
        floats = 0
        for tensor in flat.layout:
            begin, end, rows = tensor.begin, tensor.begin + tensor.elements, tensor.shape[0]
            columns = tensor.elements // rows
            if rank * (rows + columns) < tensor.elements:
                factor = torch.randn(columns, rank, generator=made).to(flat.grad.device)
                self.matrices.append((flat.grad[begin:end].view(rows, columns), factor))
                floats += rank * (rows + columns)
            elif self.dense and self.dense[-1][1] == begin:
                self.dense[-1] = self.dense[-1][0], end
            else:
                self.dense.append((begin, end))
        floats += sum(end - begin for begin, end in self.dense)
        self.density, self.sent = floats / flat.n, 8 * floats * (workers - 1) // workers
        self.errors = torch.zeros(workers, flat.n, device=flat.grad.device)
        self.state_bytes = 4 * (flat.n + sum(q.numel() for _, q in self.matrices))

    def add_gradient(self, worker: int, step: int) -> None:
        self.errors[worker].add_(self.flat.grad)

    def mean(self, step: int) -> None:
        torch.mean(self.errors, 0, out=self.flat.grad)
        for matrix, q in self.matrices:
            p = matrix @ q
            orthogonalize(p)
            torch.mm(matrix.t(), p, out=q)
            torch.mm(p, q.t(), out=matrix)
        self.errors.sub_(self.flat.grad)
        for begin, end in self.dense:
            self.errors[:, begin:end].zero_()
