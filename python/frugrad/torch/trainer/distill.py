"""Distillation: a model learns the outputs of a trained one, its teacher, besides the labels (arXiv:1503.02531)."""

from pathlib import Path

import torch
import torch.nn.functional as F

from . import RunError
from .models import Model
from .pretrained import load_images

_TEMPERATURE, _SHARE = 4.0, 0.9  # of the outputs that are compared; of their loss in the whole loss


class Taught(torch.nn.Module):
    """A model beside its teacher, which does not change. The output is that of both for the same batch."""

    def __init__(self, model: torch.nn.Module, teacher: torch.nn.Module):
        super().__init__()
        self.model, self.teacher = model, teacher.eval().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            shown = self.teacher(x)
        return torch.stack([self.model(x), shown])


def load_teacher(named: Model, path: Path, device: torch.device) -> torch.nn.Module:
    """A model with the weights of a file that --save wrote; RunError where it is another file."""
    teacher = named.build(0).to(device)
    try:
        load_images(teacher, path)
    except RunError as error:
        raise RunError(f"--teacher: {error}; it must be a file that --save wrote for the same --model") from None
    return teacher


def distill_loss(both: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of the output of ``Taught`` and the labels."""
    scores, shown = both.float()
    soft = F.kl_div((scores / _TEMPERATURE).log_softmax(1), (shown / _TEMPERATURE).log_softmax(1), log_target=True,
                    reduction="batchmean")
    return (1 - _SHARE) * F.cross_entropy(scores, labels) + _SHARE * _TEMPERATURE ** 2 * soft
