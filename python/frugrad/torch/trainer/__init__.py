"""What ``python3 -m frugrad.torch.train`` is made of: models, tasks, exchanges, optimizers and the loop."""


class Refused(Exception):
    """What was asked for cannot be done: exit status 2."""


class Failed(Exception):
    """A run that went wrong: exit status 1."""
