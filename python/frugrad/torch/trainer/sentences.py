"""Sentences and pairs of sentences with two classes: SST-2, CoLA and MRPC of GLUE, as their official tables."""

import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from . import RunError, UsageError
from .data_files import read
from .tasks import Batch, Score, Task
from .wordpiece import WordPiece


class Table(NamedTuple):
    """The tables of a task: which columns are text and label, and which files are splits."""

    texts: Tuple[str, ...]
    label: str
    test: Optional[str]  # a file with labels
    metric: str  # besides accuracy: "", f1 or matthews
    head: Tuple[str, ...] = ()  # names of the columns, if the first row does not have them


_TABLES = {
    "sst-2": Table(("sentence",), "label", "test_labeled.tsv", ""),
    "mrpc": Table(("#1 String", "#2 String"), "Quality", "msr_paraphrase_test.txt", "f1"),
    "cola": Table(("sentence",), "label", None, "matthews", ("source", "label", "mark", "sentence")),
}


def f1(both: float, said: float, are: float) -> float:
    """Of class 1: answers of 1 that are right, answers of 1, and samples of 1."""
    return 2 * both / (said + are) if said + are else 0.0


def matthews(both: float, said: float, are: float, asked: float) -> float:
    """The correlation of answers and classes; 0 where one of them is always the same."""
    spread = said * (asked - said) * are * (asked - are)
    return (asked * both - said * are) / math.sqrt(spread) if spread else 0.0


class Sentences(Task):
    """A sample is its tokens and their segments, [CLS] A [SEP] or [CLS] A [SEP] B [SEP], padded with 0.

    The name of the folder is that of the task; a folder of any other name is read as SST-2.
    """

    rate, at_once = 0.06, 256  # of a width of 1

    def __init__(self, folder: Path, *arguments: Any, tokens: Optional[str], length: int):
        super().__init__(folder, *arguments)
        if tokens is None:
            raise UsageError("--tokens: sentences need the file of a WordPiece vocabulary")
        self.table = _TABLES.get(folder.resolve().name.lower(), _TABLES["sst-2"])
        self.files = {"train": "train.tsv", "valid": "dev.tsv"}
        if self.table.test is not None:
            self.files["test"] = self.table.test
        self.length, self.pieces = length, WordPiece(Path(tokens))
        self.vocab = self.pieces.size

    def _sample(self, texts: List[str]) -> List[List[int]]:
        """Tokens and segments. What does not fit is cut from the longer text, or the second."""
        parts = [self.pieces.encode(text) for text in texts]
        room = self.length - 1 - len(parts)
        while sum(map(len, parts)) > room:
            max(reversed(parts), key=len).pop()
        ids, segments = [self.pieces.first], [0]
        for segment, part in enumerate(parts):
            ids += part + [self.pieces.last]
            segments += [segment] * (len(part) + 1)
        return [row + [0] * (self.length - len(row)) for row in (ids, segments)]

    def _read(self, split: str) -> Batch:
        path, wanted = self.folder / self.files[split], (*self.table.texts, self.table.label)
        lines = read(self.folder, self.files[split]).decode(errors="replace").lstrip("\ufeff").split("\n")
        head = self.table.head or lines[0].rstrip("\r").split("\t")
        if any(name not in head for name in wanted):
            raise RunError(f"{path}: row 1: expected columns named {', '.join(map(repr, wanted))}")
        columns = [head.index(name) for name in wanted]
        samples: List[List[List[int]]] = []
        labels: List[int] = []
        first = 0 if self.table.head else 1
        for number, line in enumerate(lines[first:], first + 1):
            if not line:
                continue
            fields = line.rstrip("\r").split("\t")
            if len(fields) <= max(columns) or fields[columns[-1]] not in ("0", "1"):
                raise RunError(f"{path}: row {number}: expected {len(columns) - 1} text(s) and a label of 0 or 1")
            samples.append(self._sample([fields[i] for i in columns[:-1]]))
            labels.append(int(fields[columns[-1]]))
        if not samples:
            raise RunError(f"{path}: no rows")
        return torch.tensor(samples, device=self.device), torch.tensor(labels, device=self.device)

    def _score(self, loss: float, right: float, asked: float, both: float, said: float, are: float) -> Score:
        score = super()._score(loss, right, asked, both, said, are)
        if self.table.metric == "f1":
            return score._replace(f1=f1(both, said, are))
        if self.table.metric == "matthews":
            return score._replace(matthews=matthews(both, said, are, asked))
        return score
