"""Train a model with compressed gradients through PyTorch, on a GPU where there is one: python3 -m frugrad.torch.train

    python3 -m frugrad.torch.train --model resnet18 --data data/cifar10 --workers 4 --batch 128 --steps 980 --rate 0.1
    python3 -m frugrad.torch.train --model gpt2-small:length=512,dropout=0 --data data/wikitext-2 --steps 600
    python3 -m frugrad.torch.train --model bert-small:length=64 --data data/glue/SST-2 --tokens vocab.txt --steps 1000

Options, the summary and the metrics are those of `frugrad train`, as far as they are here. One process simulates
all workers: their batches go through the model one after the other, each has its own compressor, and the mean of their
frames updates the weights. Frames are encoded and decoded on the GPU if its kernels support the method, and on the host
otherwise, with a note. Without a GPU everything runs on the host, in float32. `frugrad compare --size full` starts
this.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, NoReturn, Optional

import torch

from .._core import Compressor
from .._lib import FrugradError, lib
from .trainer import RunError, UsageError
from .trainer.distill import Taught, distill_loss, load_teacher
from .trainer.flat import Flat
from .trainer.loop import Plan, Result, Run
from .trainer.models import Model, parse_model
from .trainer.optimizers import FlatOptimizer, default_optimizer, has_own_length, merged_optimizer, momentum_hint
from .trainer.learning_rate import parse_schedule
from .trainer.local_run import GossipRun, LocalRun, check_own_optimizer, has_own_weights
from .trainer.passes import make_passes
from .trainer.power_sgd import PowerSGD, parse_rank
from .trainer.pretrained import floats_of, load_bert, load_images, write_safetensors
from .trainer.sentences import Sentences
from .trainer.sparse_run import Exchanged, SparseRun, check_sparse, read_sparse, sparse_method
from .trainer.simulated_frames import can_simulate, simulate
from .trainer.tasks import Images, Language, Score, Task
from .trainer.progress import Log, perplexity_of
from .trainer.workers import Exchange, make_exchange, make_planner, read_config


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
        return int(text)
    return read


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return number


def _limit(text: str) -> Optional[float]:
    """None is auto."""
    return None if text == "auto" else 0.0 if text == "0" else _positive(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python3 -m frugrad.torch.train", description=__doc__.split("\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add("--model", required=True, help="resnet20, resnet32, resnet18, resnet50, vit, gpt2-small, minilm,"
        " bert-small, bert-base; options as gpt2-small:layers=2")
    add("--weights", help="minilm and models of images: a safetensors file with pretrained weights")
    add("--teacher", metavar="FILE", help="models of images: weights of a trained model of the same kind, whose outputs"
        " are learned besides the labels")
    add("--data", required=True, help="directory with CIFAR-10's binary files, a text or its tokens, or SST-2, CoLA or"
        " MRPC, also as .xz")
    add("--tokens", help="texts: bytes, or none for files of tokens; sentences: a WordPiece vocabulary")
    add("--method", default="frugrad", help="config string, as in docs/methods.md; frugrad is frugrad-sgd,"
        " frugrad-adam or frugrad-muon here, as the optimizer is; also powersgd,rank=N [frugrad]")
    add("--sparse", metavar="TEXT", help="prune weights while training: magnitude, rigl, nm or zeros, or whole"
        " channels, heads or units, with options, as in docs/sparse-weights.md")
    add("--optimizer", help="sgd, adamw, merged, adam-merged, sign, muon, muon-merged, with options [what goes with the"
        " method]")
    add("--rate", type=_positive, help="[images 0.05, or 0.001 where steps have a length of their own (adam, sign,"
        " muon); texts 0.4 / width, sentences 0.06 / width, with --weights 0.02 / width]")
    add("--schedule", help="cosine, linear or constant, with ,warmup=STEPS or ,warmup=PERCENT%%"
        " [cosine,warmup=10%%; language models cosine,warmup=30%%]")
    add("--clip", type=_limit, default="auto", help="limit of the gradient's norm; auto: twice its running mean; 0:"
        " none [auto]")
    add("--workers", type=_count(1, 1024), default=4)
    add("--threads", type=_count(1, 1024), default=torch.get_num_threads(), help="of the host")
    add("--batch", type=_count(1, 1 << 20), default=0, help="of each worker [32 images, 8 windows, 16 sentences]")
    add("--steps", type=_count(1, 10**9), required=True)
    add("--seed", type=_count(0, 2**31 - 1), default=1)
    add("--eval-every", type=_count(1, 10**9), default=0, help="steps between evaluations [an epoch]")
    add("--eval-batches", type=_count(1, 10**9), default=0, help="of each worker, in an evaluation [all]")
    add("--hold-out", type=_count(1, 10**9), default=0,
        help="evaluate on this many training samples, which are not trained on, instead of the test split")
    add("--judge", choices=("valid", "test"), default="", help="which split judges the run at its end")
    add("--passes", choices=("auto", "eager", "graph", "compiled"), default="auto", help="forward and backward:"
        " operation by operation, replayed as CUDA graphs, or these of compiled blocks; auto: graph on a GPU, else"
        " eager [auto]")
    add("--no-augment", action="store_true", help="images as they are")
    add("--save", metavar="FILE", help="write the weights at the end as a safetensors file")
    add("--json", action="store_true", help="print the summary as one JSON object")
    add("--quiet", action="store_true", help="print no progress")
    add("--metrics", metavar="FILE", help="a line of JSON for each step and each evaluation")
    add("--metrics-layers", action="store_true", help="and at some steps what each tensor sends")
    return parser


def _open_task(model: Model, args: argparse.Namespace, device: torch.device) -> Task:
    """The task of a model, with its data."""
    if not Path(args.data).is_dir():
        raise RunError(f"{args.data}: no such directory")
    if args.weights is not None and model.name != "minilm" and model.task != "images":
        raise UsageError(f"--weights: {model.name} has no pretrained weights here; minilm and models of images have")
    if args.teacher is not None and model.task != "images":
        raise UsageError("--teacher: for models of images only")
    common = Path(args.data), device, args.seed, args.hold_out
    if model.task == "images":
        if args.tokens is not None:
            raise UsageError("--tokens: images have none")
        return Images(*common, augment=not args.no_augment)
    length = int(model.options["length"])
    if length < 4:
        raise UsageError("--model: length is 4 at least")
    return (Language if model.task == "language" else Sentences)(*common, tokens=args.tokens, length=length)


def _usual_rate(model: Model, args: argparse.Namespace, task: Task, optimizer: str) -> float:
    if model.task == "images":
        return 1e-3 if has_own_length(optimizer) else task.rate
    return min(8e-3, (task.rate if args.weights is None else 0.02) / model.options["width"])


def _check_save(path: str) -> None:
    """Refuse before training what cannot be written after it."""
    exists, folder = os.path.exists(path), os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.access(path if exists else folder, os.W_OK):
        raise UsageError(f"--save: cannot write {path}: it must be a file in a directory that exists and is writable")


def _check(args: argparse.Namespace, task: Task) -> None:
    if args.hold_out and args.judge == "test":
        raise UsageError("--judge: with --hold-out the run is evaluated on the held-out samples, not on the test split")
    if args.judge and not task.has(args.judge):
        raise RunError(f"{args.data}: has no {args.judge} split to be judged by")


def _driver() -> Optional[str]:
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], check=True,
                              capture_output=True, text=True, timeout=20).stdout.split("\n")[0].strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _memory(model: torch.nn.Module, full: Flat, exchange: Exchange, optimizer: FlatOptimizer, copies: int) -> dict:
    """Of ONE worker, though the process holds the frames and residuals of all: weights, the gradient, the optimizer,
    the residual and all workers' frames. Differs from `frugrad train`, whose gradient never exists whole, so that
    gradient_bytes is some buckets there, which counts the library's scratch memory, and whose adam-merged keeps its
    root in a byte."""
    weights = copies * 4 * full.n + sum(b.numel() * b.element_size() for b in model.buffers())
    library = optimizer.bytes + exchange.state_bytes
    return {"model_state_bytes": weights + 4 * full.n + library, "weight_bytes": weights,
            "gradient_bytes": 4 * full.n, "library_bytes": library}


def _metrics(score: Score, language: bool) -> dict:
    """Of two classes Matthews' correlation is Pearson's; F1 and it are there for tasks that are judged by them."""
    known = {name: x for name, x in (("f1", score.f1), ("matthews", score.matthews)) if math.isfinite(x)}
    return {"accuracy": score.accuracy, "perplexity": perplexity_of(score.loss) if language else None,
            "correlation": known.get("matthews"), **known}


def _summary(args: argparse.Namespace, result: Result, run: Run, seconds: float, text: str) -> dict:
    gpu, score, language = run.device.type == "cuda", result.score, run.language
    return {
        **_metrics(score, language),
        "loss": score.loss, "split": result.split, "answers": score.asked, "train_loss": result.train_loss,
        "bytes_sent": result.sent, "bytes_dense": result.dense, "density_mean": result.density,
        **_memory(run.model, run.full, run.exchange, run.optimizer, run.copies), "seconds": seconds,
        "step_ms": run.clock.median,
        "time_ms": run.clock.means(), "step": args.steps, "steps": args.steps,
        "version": lib.frug_version().decode(), "model": args.model, "data": args.data, "seed": args.seed,
        "workers": args.workers, "threads": args.threads, "batch": args.batch, "params": run.full.n,
        "sparse": args.sparse, "params_kept": run.flat.n, "teacher": args.teacher,
        "method": args.method, "config": text, "algorithm": run.exchange.name, "optimizer": run.optimizer.text,
        "schedule": args.schedule, "rate": args.rate, "clip": "auto" if args.clip is None else args.clip,
        "gain": run.optimizer.gain(args.rate), "interrupted": False, "checkpoint": None, "device": torch.cuda.get_device_name() if gpu else "cpu", "torch": torch.__version__,
        "driver": _driver() if gpu else None,
        "max_memory_allocated": torch.cuda.max_memory_allocated() if gpu else 0,
    }


def _print(summary: dict) -> None:
    """The same for people."""
    best = (f"perplexity {summary['perplexity']:.2f}" if summary["perplexity"] is not None
            else f"accuracy {100 * summary['accuracy']:.2f} %")
    best += "".join(f", {label} {summary[name]:.4f}" for name, label in (("f1", "F1"), ("matthews", "Matthews"))
                    if name in summary)
    left = f"; {summary['params_kept']} weights left" if summary["sparse"] else ""
    share = 100 * summary["bytes_sent"] / max(1, summary["bytes_dense"])
    print(f"{summary['model']} ({summary['params']} parameters) on {summary['data']}: {summary['steps']} steps of"
          f" {summary['workers']} x {summary['batch']} in {summary['seconds']:.1f} s\n"
          f"  {best} ({summary['split']} split), loss {summary['loss']:.4f} (while training"
          f"{', with that of the teacher,' if summary['teacher'] else ''} {summary['train_loss']:.4f}){left}\n"
          f"  sent {summary['bytes_sent']} bytes by each worker: {share:.1f} % of dense;"
          f" {100 * summary['density_mean']:.2f} % of the entries\n"
          f"  step {summary['step_ms']:.1f} ms of all workers one after the other; {summary['algorithm']};"
          f" {summary['device']}\n"
          f"  method {summary['config']}\n  optimizer {summary['optimizer']}")


def _make_exchange(flat: Flat, planner: Compressor, args: argparse.Namespace, rank: Optional[int], rounds: int) -> Exchange:
    if rank:
        return PowerSGD(flat, args.workers, rank)
    gossip, can = planner.config.option("reduce") == "gossip", can_simulate(planner.config)
    if gossip and not can:
        raise UsageError("--method: gossip is simulated in a ring, with the largest entries of each tensor as f32 values"
                         " and without averages over all workers, as gsgd has it; `frugrad train` has all")
    if can and (gossip or flat.grad.is_cuda):
        return simulate(flat, planner, args.workers, rounds, args.threads, args.passes == "compiled")
    return make_exchange(flat, planner, args.workers, rounds, args.threads)


def train(args: argparse.Namespace) -> dict:
    """Run what the command line asks for, and return the summary."""
    named = parse_model(args.model)
    args.schedule = args.schedule or f"cosine,warmup={30 if named.task == 'language' else 10}%"  # as `frugrad train`
    schedule = parse_schedule(args.schedule)
    rank = parse_rank(args.method)
    sparse = read_sparse(args.sparse, args.weights is None) if args.sparse else None
    method = sparse_method(args.method) if sparse else args.method
    config = read_config("dense" if rank else method, args.optimizer or merged_optimizer(named.task))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(args.threads)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    task = _open_task(named, args, device)
    _check(args, task)
    if args.save is not None:
        _check_save(args.save)
    args.batch = args.batch or {"images": 32, "language": 8, "sentences": 16}[named.task]
    torch.manual_seed(args.seed)
    model = named.build(task.vocab).to(device)
    if args.weights is not None:
        (load_images if named.task == "images" else load_bert)(model, Path(args.weights))
    flat = Flat(model, config, device)
    every = int(config.option("local"))
    rounds = -(-args.steps // every) if every else args.steps
    planner = make_planner(config, flat, rounds)
    usual = default_optimizer(named.task, args.method, config, args.weights is not None)
    text = args.optimizer or usual
    args.rate = args.rate or _usual_rate(named, args, task, text)
    check_own_optimizer(text, config)
    if sparse:
        check_sparse(config, text, bool(rank))
    optimizer = FlatOptimizer(text, flat, planner, args.steps)
    hint = momentum_hint(text, optimizer.text, usual, config) if args.optimizer and not rank else None
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)
    exchange = _make_exchange(flat, planner, args, rank, rounds)
    log = Log(args.metrics, args.quiet)
    log.print(f"training {args.model} ({flat.n} parameters) on {args.data}: {args.steps} steps of {args.workers} x"
            f" {args.batch}\nmethod {args.method}, optimizer {optimizer.text}, exchange {exchange.name}, device {device}\n"
            f"rate {args.rate:g}, schedule {args.schedule}, clip {'auto' if args.clip is None else args.clip}")
    plan = Plan(args.steps, args.workers, args.batch, args.rate, schedule, args.eval_every, args.eval_batches,
                args.judge, args.metrics_layers and config.option("reduce") != "dense")
    if args.teacher is not None:
        taught = Taught(model, load_teacher(named, Path(args.teacher), device))
        passes = make_passes(args.passes, taught, distill_loss, flat)
    else:
        passes = make_passes(args.passes, model, task.loss_of, flat)
    parts = plan, model, task, flat, passes, exchange, optimizer, args.clip, planner, log, named.task == "language"
    if has_own_weights(config):
        own = [optimizer] + [FlatOptimizer(text, flat, planner, args.steps) for _ in range(1, args.workers)]
        run: Run = (LocalRun if every else GossipRun)(*parts, config=config, optimizers=own)
    elif sparse:
        def make(packed: Flat) -> Exchanged:
            planner = make_planner(config, packed, args.steps)
            return (planner, _make_exchange(packed, planner, args, None, args.steps),
                    FlatOptimizer(text, packed, planner, args.steps))
        run = SparseRun(*parts, options=sparse, config=config, make=make, random_weights=args.weights is None)
    else:
        run = Run(*parts)
    try:
        result = run.train()
    finally:
        log.close()
    if args.save is not None:
        write_safetensors(Path(args.save), floats_of(model))
    return _summary(args, result, run, sum(run.clock.steps) / 1e3, exchange.text or config.text)


def main(argv: Optional[List[str]] = None) -> int:
    """Exit status: 0, 1 after a failure, 2 if the command line is wrong, 130 after an interruption."""
    try:
        args = _parser().parse_args(argv)
        summary = train(args)
    except UsageError as error:
        print(f"frugrad: {error}", file=sys.stderr)
        return 2
    except (RunError, FrugradError) as error:
        print(f"frugrad: {error}", file=sys.stderr)
        return 1
    except getattr(torch.cuda, "OutOfMemoryError", MemoryError) as error:
        print(f"frugrad: out of memory: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("frugrad: interrupted", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps(summary, indent=2))
    else:
        _print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
