"""Masks of weights: which of them stay. By magnitude, n of every m, or exchanged by sums of gradients (rigl).

Ties go to the lower index, and counts are those of ``frugrad train --sparse``, so that both select the same.
"""

from typing import Callable, List, NamedTuple, Sequence

import torch

from .sparse_options import SparseOptions


class Masked(NamedTuple):
    """A tensor that has a mask, as a matrix."""

    shape: Sequence[int]
    weights: torch.Tensor  # flat
    input_first: bool = False  # the inputs of an output are a column


def _largest(scores: torch.Tensor, keep: int) -> torch.Tensor:
    """The keep largest of all scores, as bits; no candidate has a score below 0."""
    if keep <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    if keep >= len(scores):
        return scores >= 0
    cutoff = scores.topk(keep).values[-1].clamp(min=0)
    above, ties = scores > cutoff, scores == cutoff
    return above | (ties & (ties.cumsum(0) <= keep - above.sum()))


def select_largest(values: torch.Tensor, among: torch.Tensor, keep: int) -> torch.Tensor:
    """The entries of ``among`` with the keep largest magnitudes."""
    return _largest(torch.where(among, values.abs(), torch.full_like(values, -1)), keep)


def select_n_of_m(tensor: Masked, n: int, m: int) -> torch.Tensor:
    """The n largest of every m weights along the inputs of an output; what is left over at the end stays."""
    rows = tensor.shape[0]
    matrix = tensor.weights.view(rows, -1)
    matrix = (matrix.t() if tensor.input_first else matrix).abs()
    whole = matrix.shape[1] // m * m
    groups = matrix[:, :whole].reshape(len(matrix), -1, m)
    order = groups.sort(dim=-1, descending=True, stable=True).indices
    selected = torch.ones_like(matrix, dtype=torch.bool)
    selected[:, :whole] = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, order[..., :n], True).flatten(1)
    return (selected.t() if tensor.input_first else selected).reshape(-1)


def pack_bits(mask: torch.Tensor) -> torch.Tensor:
    """A mask as it is sent: eight weights per byte, the first in the lowest bit."""
    bits = torch.nn.functional.pad(mask.to(torch.uint8), (0, -len(mask) % 8)).view(-1, 8)
    return (bits << torch.arange(8, dtype=torch.uint8, device=mask.device)).sum(1, dtype=torch.uint8)


def unpack_bits(packed: torch.Tensor, n: int) -> torch.Tensor:
    """The mask of n weights that ``pack_bits`` got."""
    bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)
    return (bits & 1).bool().flatten()[:n]


def _erk_counts(tensors: Sequence[Masked], density: float) -> List[float]:
    """Erdos-Renyi-kernel (arXiv:1911.11134): tensors for which the factor gives more than all are dense."""
    sizes, weights = [len(t.weights) for t in tensors], [sum(t.shape) for t in tensors]
    factor = 0.0
    while True:
        dense = [factor * w >= n for n, w in zip(sizes, weights)]
        wanted = sum(density * n - (n if d else 0) for n, d in zip(sizes, dense))
        total = sum(w for w, d in zip(weights, dense) if not d)
        following = wanted / total if total else factor
        if following <= factor:
            return [factor * w for w in weights]
        factor = following


def layer_counts(tensors: Sequence[Masked], layers: str, density: float) -> List[int]:
    """How many weights of each tensor stay, at least one."""
    wanted = _erk_counts(tensors, density) if layers == "erk" else [density * len(t.weights) for t in tensors]
    return [min(len(t.weights), max(1, int(k + 0.5))) for t, k in zip(tensors, wanted)]


def keep_largest(tensors: Sequence[Masked], masks: Sequence[torch.Tensor], layers: str,
                 density: float) -> List[torch.Tensor]:
    """Masks that leave the largest weights, of those that the masks before have left."""
    counts = layer_counts(tensors, layers, density)
    if layers != "global":
        return [select_largest(t.weights, mask, k) for t, mask, k in zip(tensors, masks, counts)]
    both = torch.cat([t.weights for t in tensors]), torch.cat(list(masks))
    parts = select_largest(*both, sum(counts)).split([len(t.weights) for t in tensors])
    return [part | select_largest(t.weights, mask, 1) for part, t, mask in zip(parts, tensors, masks)]


def swap_counts(options: SparseOptions, masks: Sequence[torch.Tensor], step: int, steps: int) -> List[int]:
    """How many weights an update of rigl exchanges in each tensor."""
    share = options.swap_share(step, steps)
    kept = [int(mask.sum()) for mask in masks]
    return [min(int(share * k), len(mask) - k) for k, mask in zip(kept, masks)]


class Growth(NamedTuple):
    """The largest sums of gradients of pruned weights: as many of a tensor as it grows."""

    indices: torch.Tensor
    sums: torch.Tensor


def list_growth(sums: Sequence[torch.Tensor], masks: Sequence[torch.Tensor], counts: Sequence[int]) -> List[Growth]:
    """What one worker sends for an update of rigl."""
    found = [select_largest(s, ~mask, k).nonzero().flatten() for s, mask, k in zip(sums, masks, counts)]
    return [Growth(i, s[i]) for i, s in zip(found, sums)]


def swap_weights(tensors: Sequence[Masked], masks: Sequence[torch.Tensor], counts: Sequence[int],
                 growth: Sequence[Sequence[Growth]]) -> List[torch.Tensor]:
    """Masks without the smallest weights, and with those whose sums, over all workers, are largest."""
    changed = []
    for i, (tensor, mask, count) in enumerate(zip(tensors, masks, counts)):
        total = torch.zeros_like(tensor.weights)
        for worker in growth:
            total[worker[i].indices] += worker[i].sums
        kept = select_largest(tensor.weights, mask, int(mask.sum()) - count)
        changed.append(kept | select_largest(total, ~mask, count))
    return changed


def update(options: SparseOptions, tensors: Sequence[Masked], masks: Sequence[torch.Tensor], step: int, steps: int,
           exchange_growth: Callable[[Sequence[int]], Sequence[Sequence[Growth]]]) -> List[torch.Tensor]:
    """The masks before a step at which an update is due.

    exchange_growth   gets how many weights each tensor grows, and returns what each worker sends
    """
    if options.kind == "rigl" and step > 0:
        counts = swap_counts(options, masks, step, steps)
        return swap_weights(tensors, masks, counts, exchange_growth(counts))
    if options.kind == "zeros":
        return [mask if mask.any() else select_largest(mask.float(), ~mask, 1) for mask in (t.weights != 0 for t in tensors)]
    if options.kind == "nm":
        return [select_n_of_m(t, options.n, options.m) for t in tensors]
    return keep_largest(tensors, masks, options.layers, options.density_at(step, steps))
