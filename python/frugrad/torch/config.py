"""Config strings as the hook takes them: another default, and what a hook cannot do."""

import warnings

from .._core import Config
from .._tables import presets

FEEDBACK = "feedback=plain"
_REDUCE = ("gather", "split", "dense")


def hook_config(text: str) -> str:
    """The config with the hook's feedback where neither the preset nor an option says which.

    The library's default, feedback=merged, keeps the momentum in the residual and wants an optimiser without one; those
    of PyTorch users have it.
    """
    parts = text.split(",")
    named = parts + [p.text for p in presets() if p.name == parts[0].strip()]
    if any("feedback=" in part or "beta=" in part for part in named):
        return text
    return f"{text},{FEEDBACK}" if text.strip() else FEEDBACK


def check(config: Config) -> None:
    """Refuse what the hook does not do, and warn of what is easily got wrong."""
    if config.option("reduce") not in _REDUCE:
        raise ValueError(f"reduce={config.option('reduce')} is not for the hook, which takes reduce="
                         + ", ".join(_REDUCE))
    if config.option("feedback") == "ef21":
        raise ValueError("feedback=ef21 is not for the hook, which takes feedback=plain, none, merged, dgc")
    if config.option("feedback") in ("merged", "dgc"):
        warnings.warn(f"feedback={config.option('feedback')} holds the momentum itself: give the optimiser none")
