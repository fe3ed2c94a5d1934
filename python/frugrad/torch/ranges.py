"""Ranges of a bucket: where frames of buckets on a GPU are cut, and how they are aligned."""

from typing import List, Sequence

from .engine import Range

_ALIGN = 16
_MOST = 1 << 27  # entries


def aligned(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def limited(ranges: Sequence[Range], sizes: Sequence[int]) -> List[Range]:
    """Ranges whose frames stay far below the limit of the GPU's kernels, 2^30 bytes."""
    parts = -(-sum(sizes) // _MOST)
    return [r for part in cut(ranges, sizes, parts, 4096) for r in part] if parts > 1 else list(ranges)


def cut(ranges: Sequence[Range], sizes: Sequence[int], parts: int, block: int) -> List[List[Range]]:
    """Divide a bucket of tensors of these sizes into parts of equally many blocks, as lib/reduce/shards.c does."""
    blocks = [-(-size // block) for size in sizes]
    each, more = divmod(sum(blocks), parts)
    cuts, at, before, tensor = [0], 0, 0, 0
    for part in range(1, parts):
        first = each * part + min(part, more)
        while tensor < len(sizes) and first >= before + blocks[tensor]:
            before, at, tensor = before + blocks[tensor], at + sizes[tensor], tensor + 1
        cuts.append(at + (first - before) * block)
    cuts.append(sum(sizes))
    return [[Range(r.begin + max(low - r.offset, 0), min(high, r.offset + r.count) - max(low, r.offset),
                   max(low, r.offset)) for r in ranges if r.offset < high and r.offset + r.count > low]
            for low, high in zip(cuts, cuts[1:])]
