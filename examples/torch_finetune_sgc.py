"""Fine-tune a small text model with a twentieth of AdamW's states.

A byte-level transformer learns plain sentences; then copies of it learn sums in words, one with AdamW and one with each
variant of frugrad.torch.SGC that is asked for. Printed: what the optimizer keeps, and the loss on text it has not seen.
Your own texts: --first FILE --second FILE. Needs no downloads, and takes some seconds:

    python3 examples/torch_finetune_sgc.py
"""

import argparse
import copy
import random
import time

import torch
import torch.nn.functional as F

import frugrad.torch

NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()


def sentences(rng: random.Random) -> str:
    who, does = ("cat", "dog", "bird", "child", "old man"), ("sees", "likes", "follows", "hears")
    return "".join(f"the {rng.choice(who)} {rng.choice(does)} the {rng.choice(who)}. " for _ in range(3000))


def sums(rng: random.Random) -> str:
    pairs = [(rng.randrange(8), rng.randrange(9)) for _ in range(3000)]
    return "".join(f"{NUMBERS[a]} and {NUMBERS[b]} is {NUMBERS[a + b]}. " for a, b in pairs)


class Model(torch.nn.Module):
    def __init__(self, width: int, layers: int, length: int):
        super().__init__()
        self.byte, self.place = torch.nn.Embedding(256, width), torch.nn.Embedding(length, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers)
        self.out = torch.nn.Linear(width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        n = text.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        return self.out(self.layers(self.byte(text) + self.place(torch.arange(n)), mask))


def loss_on(model: Model, text: torch.Tensor, length: int, batch: int) -> torch.Tensor:
    starts = torch.randint(len(text) - length - 1, (batch,))
    rows = torch.stack([text[at:at + length + 1] for at in starts.tolist()])
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(model: Model, optimizer: torch.optim.Optimizer, text: torch.Tensor, steps: int, args) -> None:
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 10) * (1 - t / (steps + 1)))
    for _ in range(steps):
        optimizer.zero_grad()
        loss_on(model, text, args.length, args.batch).backward()
        optimizer.step()
        schedule.step()


def measure(model: Model, text: torch.Tensor, args) -> float:
    torch.manual_seed(1)
    with torch.no_grad():
        return loss_on(model, text, args.length, 64).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", help="text to learn at first; made up unless given")
    parser.add_argument("--second", help="text to fine-tune on; its last tenth is for measuring")
    parser.add_argument("--variants", nargs="*", default=["table"])
    for name, value in (("width", 128), ("layers", 2), ("length", 32), ("batch", 8), ("steps", 100), ("s", 448)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--rate", type=float, default=2e-2)
    args = parser.parse_args()
    rng = random.Random(0)
    texts = [open(name, "rb").read() if name else made(rng).encode()
             for name, made in ((args.first, sentences), (args.second, sums))]
    first, second = (torch.tensor(list(text)) for text in texts)
    learn, held = second[:len(second) * 9 // 10], second[len(second) * 9 // 10:]
    torch.set_num_threads(1)  # the model is too small to share
    torch.manual_seed(0)
    model = Model(args.width, args.layers, args.length)
    train(model, torch.optim.AdamW(model.parameters(), lr=2e-3), first, args.steps, args)
    print(f"{'optimizer':<12}{'states':>10}{'bytes':>10}{'seconds':>9}   loss, from {measure(model, held, args):.3f}")
    for kind in ["adamw", *args.variants]:
        tuned = copy.deepcopy(model)
        options = {"lr": 6e-3} if kind == "adamw" else {"lr": args.rate, "s": args.s}  # each what suits it
        optimizer = frugrad.torch.SGC(tuned.layers.parameters(), variant=kind, **options)  # embeddings stay
        torch.manual_seed(2)
        begin = time.perf_counter()
        train(tuned, optimizer, learn, args.steps, args)
        print(f"{kind:<12}{optimizer.states:>10}{optimizer.state_bytes:>10}{time.perf_counter() - begin:>9.1f}"
              f"   {measure(tuned, held, args):.3f}", flush=True)


if __name__ == "__main__":
    main()
