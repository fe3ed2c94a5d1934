"""Weights and gradients of a model as one buffer each, in an order in which tensors of one kind are consecutive."""

from typing import Iterable, List, NamedTuple, Tuple

import torch

from ..._core import Config, Layout
from ..roles import describe


class Group(NamedTuple):
    """A range of the buffers in which all tensors are treated the same."""

    begin: int
    end: int
    compressed: bool  # else its tensors are sent dense
    decays: bool  # weight decay is for matrices


class Flat:
    """``weights`` and ``grad`` of a model, whose parameters become views of them.

    Compressed tensors come first, then those that are sent dense (small ones and, unless the config has vectors=sparse,
    those of one dimension), so optimizers need no masks and keep only what each kind needs.
    """

    def __init__(self, model: torch.nn.Module, config: Config, device: torch.device):
        least, dense = int(config.option("min_size")), config.option("vectors") == "dense"
        known = describe(model)

        def kind(p: torch.Tensor) -> Tuple[bool, bool]:
            return p.numel() < least or (p.dim() < 2 and dense), p.dim() < 2

        params = sorted(model.parameters(), key=kind)
        self.n = sum(p.numel() for p in params)
        self.weights, self.grad = (torch.zeros(self.n, device=device) for _ in range(2))
        self.layout = self.frame_layout = Layout([known[id(p)] for p in params])
        self.names = [known[id(p)].name for p in params]
        self.sizes = [p.numel() for p in params]
        self.groups: List[Group] = []
        at = 0
        for p in params:
            end, (whole, vector) = at + p.numel(), kind(p)
            view = self.weights[at:end].view(p.shape)
            view.copy_(p.data)
            p.data, p.grad = view, self.grad[at:end].view(p.shape)
            self._add_group(Group(at, end, not whole, not vector))
            at = end

    def _add_group(self, group: Group) -> None:
        """Append a range behind the last group, or extend that group if both are treated the same."""
        last = self.groups[-1] if self.groups else None
        if last is not None and (last.compressed, last.decays) == (group.compressed, group.decays):
            self.groups[-1] = last._replace(end=group.end)
        else:
            self.groups.append(group)

    def groups_without(self, tensors: Iterable[int]) -> List[Group]:
        """The groups without some tensors: what is left of each, in one or several ranges."""
        places = [self.layout[i].place for i in sorted(tensors)]
        cut = [(place.start, place.stop) for place in places]
        left: List[Group] = []
        for group in self.groups:
            at = group.begin
            for begin, end in [c for c in cut if group.begin <= c[0] < group.end] + [(group.end, group.end)]:
                left += [group._replace(begin=at, end=begin)] if begin > at else []
                at = end
        return left
