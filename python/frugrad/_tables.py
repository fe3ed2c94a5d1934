"""The library's tables: the options of configs and optimizers."""

from typing import Any, Callable, List, NamedTuple

from ._lib import lib


class Option(NamedTuple):
    """An option of a config string."""

    name: str
    values: str  # the words or numbers it takes
    default: str
    help: str


class Preset(NamedTuple):
    """A named config."""

    name: str
    text: str  # the options it stands for
    help: str


class OptimizerKind(NamedTuple):
    """An optimizer, and the options that may stand behind its name."""

    name: str
    options: str  # with their defaults
    help: str


def _rows(at: Callable, made: Callable) -> List[Any]:
    rows: List[Any] = []
    while True:
        row = at(len(rows))
        if not row:
            return rows
        rows.append(made(*(getattr(row.contents, name).decode() for name, _ in row.contents._fields_)))


def options() -> List[Option]:
    """All options of a config.

    >>> next(option.default for option in options() if option.name == "value")
    'bf16'
    """
    return _rows(lib.frug_option_at, Option)


def presets() -> List[Preset]:
    """All presets.

    >>> "dgc" in [preset.name for preset in presets()]
    True
    """
    return _rows(lib.frug_preset_at, Preset)


def optimizers() -> List[OptimizerKind]:
    """All optimizers.

    >>> "muon" in [kind.name for kind in optimizers()]
    True
    """
    return _rows(lib.frug_optimizer_at, OptimizerKind)
