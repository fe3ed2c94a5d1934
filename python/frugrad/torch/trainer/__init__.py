"""The parts of ``python3 -m frugrad.torch.train``: models, tasks, exchanges, optimizers and the loop."""


class UsageError(Exception):
    """A wrong or unsupported option: exit status 2."""


class RunError(Exception):
    """A run that failed: exit status 1."""
