"""Tasks: data on the device, the batch of a worker at a step, a loss, and the evaluation of a model on a split.

A split is read on first use, so a run that is evaluated on held-out samples or on the validation split
never opens the test files. The samples of a step are the same for any number of workers, which share them.
"""

import json
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F

from . import RunError, UsageError
from .data_files import find, read

Batch = Tuple[torch.Tensor, torch.Tensor]


class Score(NamedTuple):
    """The quality of a model on a split."""

    loss: float
    accuracy: float
    asked: int
    f1: float = math.nan  # of class 1
    matthews: float = math.nan  # Matthews' correlation


class Task:
    """Base of all tasks. Subclasses read a split (``_read``) and make batches of it (``_samples``)."""

    rate, at_once, vocab = 0.0, 64, 0
    files: Dict[str, str] = {}

    def __init__(self, folder: Path, device: torch.device, seed: int, hold_out: int):
        self.folder, self.device, self.seed, self.hold_out = folder, device, seed, hold_out
        self._splits: Dict[str, Batch] = {}
        self._epoch, self._order = -1, torch.empty(0)
        self.random = torch.Generator(device).manual_seed(seed)

    def has(self, split: str) -> bool:
        """Whether there is a split; nothing is read."""
        return split == "train" or (split == "valid" and self.hold_out > 0) or (
            split in self.files and find(self.folder, self.files[split]) is not None)

    def split(self, name: str) -> Batch:
        """Inputs and labels. With hold_out the last samples of training are the validation split."""
        if name not in self._splits:
            if self.hold_out and name != "test":
                x, y = self._read("train")
                if self.hold_out >= self._count((x, y)):
                    raise RunError(f"{self.folder}: cannot hold out {self.hold_out} of {self._count((x, y))} training"
                                 " samples")
                self._splits.update(zip(("train", "valid"), self._cut((x, y), self._count((x, y)) - self.hold_out)))
            else:
                self._splits[name] = self._read(name)
        return self._splits[name]

    def count(self, name: str) -> int:
        return self._count(self.split(name))

    def per_epoch(self, samples: int) -> int:
        """Steps of an epoch; samples that do not fill a step are omitted, others in each epoch."""
        steps = self.count("train") // samples
        if steps == 0:
            raise RunError(f"{self.folder}: {self.count('train')} training samples are fewer than a step takes"
                         f" ({samples})")
        return steps

    def batch(self, step: int, worker: int, workers: int, size: int) -> Batch:
        """The samples of a worker at a step."""
        epoch, at = divmod(step, self.per_epoch(workers * size))
        if epoch != self._epoch:
            self._epoch = epoch
            order = torch.randperm(self.count("train"), generator=self._generator(epoch))
            self._order = order.to(self.device)
        begin = (at * workers + worker) * size
        return self._samples("train", self._order[begin:begin + size])

    def _generator(self, epoch: int) -> torch.Generator:
        """Random numbers of an epoch, on the host: the same on every device."""
        return torch.Generator().manual_seed(1000003 * self.seed + epoch)

    def batches(self, split: str, most: int) -> Iterator[Batch]:
        count = self.count(split)
        count = min(count, most) if most else count
        for at in range(0, count, self.at_once):
            yield self._samples(split, torch.arange(at, min(at + self.at_once, count), device=self.device))

    @torch.no_grad()
    def evaluate(self, model: torch.nn.Module, split: str, most: int) -> Score:
        """On all samples of a split, or on the first ``most``."""
        sums = torch.zeros(6, dtype=torch.float64, device=self.device)
        model.eval()
        for x, y in self.batches(split, most):
            logits, y = model(x).float().flatten(0, -2), y.flatten()
            sums[0] += F.cross_entropy(logits, y, reduction="sum", ignore_index=-1)
            answers = logits.argmax(1)
            for i, which in enumerate((answers == y, y >= 0, (answers == 1) & (y == 1), answers == 1, y == 1), 1):
                sums[i] += which.sum()
        model.train()
        return self._score(*sums.tolist())

    @classmethod
    def loss(cls, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return cls.loss_of(model(batch[0]), batch[1])

    @staticmethod
    def loss_of(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(scores.float().flatten(0, -2), wanted.flatten(), ignore_index=-1)

    def _score(self, loss: float, right: float, asked: float, both: float, said: float, are: float) -> Score:
        """From sums over all samples; the last three: right answers of class 1, such answers, such samples."""
        return Score(loss / max(asked, 1), right / max(asked, 1), int(asked))

    # ---- for subclasses

    def _read(self, split: str) -> Batch:
        raise NotImplementedError

    def _samples(self, split: str, chosen: torch.Tensor) -> Batch:
        x, y = self.split(split)
        return x[chosen], y[chosen]

    def _count(self, data: Batch) -> int:
        return len(data[1])

    def _cut(self, data: Batch, at: int) -> Tuple[Batch, Batch]:
        return (data[0][:at], data[1][:at]), (data[0][at:], data[1][at:])


class Images(Task):
    """CIFAR-10, its binary files; training images are shifted by up to 4 pixels and flipped, unless --no-augment."""

    rate, at_once, vocab = 0.05, 1000, 0
    files = {"train": "data_batch_1.bin", "test": "test_batch.bin"}

    def __init__(self, *arguments: Any, augment: bool = True):
        super().__init__(*arguments)
        self.augment = augment

    def _read(self, split: str) -> Batch:
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else [self.files[split]]
        names = names[:1] + [name for name in names[1:] if find(self.folder, name) is not None]
        parts = []
        for name in names:
            raw = read(self.folder, name)
            if not raw or len(raw) % 3073 or max(raw[::3073]) > 9:
                raise RunError(f"{self.folder / name}: not a file of CIFAR-10: {len(raw)} bytes, or a label above 9")
            parts.append(torch.frombuffer(raw, dtype=torch.uint8).view(-1, 3073))
        rows = torch.cat(parts).to(self.device)
        mean, std = (torch.tensor(row, device=self.device).view(3, 1, 1) * 255  # those of `frugrad train`
                     for row in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        images = torch.empty(len(rows), 3, 32, 32, device=self.device,
                             dtype=torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        for at in range(0, len(rows), 10000):
            images[at:at + 10000] = (rows[at:at + 10000, 1:].view(-1, 3, 32, 32).float() - mean) / std
        return images, rows[:, 0].long()

    def _samples(self, split: str, chosen: torch.Tensor) -> Batch:
        x, y = super()._samples(split, chosen)
        if split == "train" and self.augment:
            x = self._moved(x)
        return x.contiguous(memory_format=torch.channels_last), y

    def _moved(self, x: torch.Tensor) -> torch.Tensor:
        n, line = len(x), torch.arange(32, device=self.device)
        shift = torch.randint(0, 9, (2, n, 1), generator=self.random, device=self.device)
        flip = torch.randint(0, 2, (n, 1), generator=self.random, device=self.device).bool()
        rows, columns = line + shift[0], torch.where(flip, 31 - line, line) + shift[1]
        every = torch.arange(n, device=self.device).view(-1, 1, 1)
        padded = F.pad(x, (4, 4, 4, 4)).permute(0, 2, 3, 1)
        return padded[every, rows.view(n, 32, 1), columns.view(n, 1, 32)].permute(0, 3, 1, 2)


class Language(Task):
    """A text in windows that do not overlap and, in training, begin at another offset in each epoch.

    tokens None: files of 16-bit numbers, either train.u16 and so on, beside the vocabulary (vocab.json), or
    train.gpt2bpe.u16 and so on: GPT-2's. "bytes": the text itself.
    """

    rate, at_once = 0.4, 16  # of a width of 1

    def __init__(self, *arguments: Any, tokens: Optional[str], length: int):
        super().__init__(*arguments)
        if tokens not in (None, "bytes"):
            raise UsageError(f"--tokens: '{tokens}' is not for texts here; bytes, or none for files of tokens")
        self.length, self.bytes = length, tokens == "bytes"
        own = not self.bytes and find(self.folder, "train.u16") is not None
        self.vocab = 256 if self.bytes else self._vocabulary_size() if own else 50257
        end = ".txt" if self.bytes else ".u16" if own else ".gpt2bpe.u16"
        self.files = {split: split + end for split in ("train", "valid", "test")}
        self._shift = 0

    def _vocabulary_size(self) -> int:
        """Of the vocabulary beside the files of tokens: a JSON object of all tokens, with their numbers."""
        path = self.folder / "vocab.json"
        try:
            numbers = json.loads(read(self.folder, path.name))
        except ValueError as error:
            raise RunError(f"{path}: not JSON: {error}") from None
        size = len(numbers) if isinstance(numbers, dict) else 0
        if not 1 <= size <= 1 << 16 or sorted(map(repr, numbers.values())) != sorted(map(repr, range(size))):
            raise RunError(f"{path}: not a vocabulary: expected an object of up to 65536 tokens, numbered from 0")
        return size

    def _read(self, split: str) -> Batch:
        raw = read(self.folder, self.files[split])
        if not self.bytes and len(raw) % 2:
            raise RunError(f"{self.folder / self.files[split]}: {len(raw)} bytes are no 16-bit numbers")
        if len(raw) < (1 if self.bytes else 2) * (self.length + 1):
            raise RunError(f"{self.folder / self.files[split]}: shorter than a window of {self.length} tokens")
        ids = torch.frombuffer(raw, dtype=torch.uint8).to(self.device).int()
        if not self.bytes:
            ids = ids.view(-1, 2)[:, 0] + 256 * ids.view(-1, 2)[:, 1]
            if int(ids.max()) >= self.vocab:
                raise RunError(f"{self.folder / self.files[split]}: token {int(ids.max())} is none of the"
                             f" {self.vocab} of its vocabulary")
        return ids, ids

    def _count(self, data: Batch) -> int:
        return (len(data[0]) - 1) // self.length

    def count(self, name: str) -> int:
        """In training one less, so that windows can be shifted; in other splits also the last, shorter window."""
        whole, rest = divmod(len(self.split(name)[0]) - 1, self.length)
        return max(1, whole - 1) if name == "train" else whole + (rest > 0)

    def _cut(self, data: Batch, at: int) -> Tuple[Batch, Batch]:
        ids = data[0]
        return (ids[:at * self.length + 1],) * 2, (ids[at * self.length:],) * 2

    def batch(self, step: int, worker: int, workers: int, size: int) -> Batch:
        epoch, room = step // self.per_epoch(workers * size), self._count(self.split("train")) > 1
        if epoch != self._epoch:
            self._shift = int(torch.randint(0, self.length, (1,), generator=self._generator(-1 - epoch))) if room else 0
        return super().batch(step, worker, workers, size)

    def _samples(self, split: str, chosen: torch.Tensor) -> Batch:
        ids = self.split(split)[0]
        begin = chosen[:, None] * self.length + (self._shift if split == "train" else 0)
        at = begin + torch.arange(self.length + 1, device=self.device)
        rows = ids[at.clamp(max=len(ids) - 1)].long()
        return rows[:, :-1], rows[:, 1:].masked_fill(at[:, 1:] >= len(ids), -1)
