"""Hugging Face Accelerate and Trainer in two processes over gloo, as docs/pytorch.md says, with the real packages."""

import io
import os
import tempfile
import unittest

import support

torch = support.need("torch")
support.need("accelerate")
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import DistributedDataParallelKwargs  # noqa: E402
from ddp_helpers import batch, dist, flat, mlp, nn  # noqa: E402

import frugrad.torch  # noqa: E402

EVERYTHING = "density=1,value=f32,feedback=none"
RESUMED = "feedback=plain,residual=int8"


def begin(**options):
    """An accelerator; several of one process share its group."""
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20000
    return Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=0.1)], **options)


def rows(n=512):
    x, y = batch(0, 0, n)
    return torch.utils.data.TensorDataset(x, y)


def train(accelerator, config, epochs=2, converted=False, **options):
    """A usual loop, with all that an accelerator does for it; the state and this rank's losses."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    if converted:
        optimizer = frugrad.torch.optimizer(model, optimizer)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    loader = torch.utils.data.DataLoader(rows(), batch_size=16)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    state = config and frugrad.torch.accelerate(accelerator, model, config, optimizer=optimizer, **options)
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return model, state, losses


def everything_is_sent():
    """Accumulated and clipped: the bits of training without the hook? And how often it was called."""
    accelerator = begin(gradient_accumulation_steps=2)
    dense, _, _ = train(accelerator, None)
    model, state, _ = train(accelerator, EVERYTHING, start_iter=0)
    return [torch.equal(flat(dense), flat(model)), state.step]


def learn(precision, dynamo):
    accelerator = begin(mixed_precision=precision, dynamo_backend=dynamo)
    model, state, losses = train(accelerator, "frugrad", epochs=6, converted=True)
    stats = state.stats()
    weights = accelerator.gather(flat(model)[None])
    names = sorted(row.name for row in state._engine.tensors)
    return [sum(losses[:8]) / 8, sum(losses[-8:]) / 8, stats["ratio"], stats["feedback"],
            torch.equal(weights[0], weights[-1]), names]


def resume(folder):
    """Eight steps at once, and four, save_state(), new objects, load_state() and four more: the same bits?"""
    weights = []
    for parts in ((range(8),), (range(4), range(4, 8))):
        for number, steps in enumerate(parts):
            accelerator = begin()
            model = mlp(number)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            model, optimizer = accelerator.prepare(model, optimizer)
            state = frugrad.torch.accelerate(accelerator, model, RESUMED, optimizer=optimizer)
            if number > 0:
                accelerator.load_state(folder)
            for step in steps:
                x, y = batch(step)
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
            accelerator.save_state(folder)
        weights.append(flat(model))
    return [state.step, torch.equal(*weights)]


def unprepared():
    try:
        frugrad.torch.accelerate(begin(), mlp(), "frugrad,feedback=none")
    except TypeError as error:
        return str(error)


def with_trainer(folder, resumed):
    """The callback of docs/pytorch.md in a Trainer of a small language model."""
    transformers = support.need("transformers")

    class Hook(transformers.TrainerCallback):
        def __init__(self, trainer, config="frugrad"):
            self.trainer, self.config = trainer, config

        def on_train_begin(self, args, state, control, **kwargs):
            trainer = self.trainer
            self.state = frugrad.torch.accelerate(trainer.accelerator, trainer.model_wrapped, self.config,
                                                  optimizer=trainer.optimizer, total_steps=state.max_steps)
            if state.global_step:  # resumed
                path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", "frugrad.pt")
                self.state.load_state_dict(torch.load(path))

        def on_save(self, args, state, control, **kwargs):
            saved = self.state.state_dict(all_ranks=True)  # all ranks come here
            if state.is_world_process_zero:
                torch.save(saved, os.path.join(args.output_dir, f"checkpoint-{state.global_step}", "frugrad.pt"))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0)
    text = [{"input_ids": t, "labels": t} for t in (torch.arange(32 * 128).view(128, 32) * 7 % 64)]
    arguments = transformers.TrainingArguments(
        folder, use_cpu=True, max_steps=24, save_steps=12, per_device_train_batch_size=4, learning_rate=3e-3,
        gradient_accumulation_steps=2, report_to=[], disable_tqdm=True, logging_steps=4, max_grad_norm=1.0)
    model = transformers.GPT2LMHeadModel(config)
    optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    trainer = transformers.Trainer(model, arguments, train_dataset=text, optimizers=(optimizer, None))
    hook = Hook(trainer)
    trainer.add_callback(hook)
    trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-12") if resumed == "resumed" else None)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    stats = hook.state.stats()
    return [losses[0], losses[-1], stats["ratio"], stats["step"], flat(trainer.model).double().sum().item()]


def trainer_can_resume():
    """Whether PyTorch loads what Transformers asks for on resuming: a tensor mapped to the device "cpu:0"."""
    buffer = io.BytesIO()
    torch.save(torch.zeros(1), buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, map_location=torch.device("cpu", 0), weights_only=True)
        return True
    except RuntimeError:
        return False


class Accelerate(unittest.TestCase):
    def run2(self, what, *args, ranks=2):
        return support.values(support.torchrun(ranks, what, timeout=120, args=args))

    def test_accumulation_and_clipping_stay_what_they_are(self):
        # 512 rows, 2 ranks, batches of 16, every other one of 2 epochs
        self.assertEqual(self.run2(everything_is_sent), [[True, 16]] * 2)

    def check_learning(self, *args):
        for first, last, ratio, feedback, same, names in self.run2(learn, *args):
            self.assertLess(last, first - 0.5)
            self.assertGreater(ratio, 5)
            self.assertEqual((feedback, same), ("merged", True))  # seen through Accelerate's wrapper
            self.assertEqual(names, sorted(name for name, _ in mlp().named_parameters()))

    def test_learns_in_bf16(self):
        self.check_learning("bf16", "no")

    def test_learns_compiled_under_the_same_names(self):
        self.check_learning("no", "eager")

    def test_save_state_and_load_state_are_bit_exact(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run2(resume, folder), [[8, True]] * 2)

    def test_one_process_runs_the_same_script(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run2(resume, folder, ranks=1), [[0, True]])

    def test_a_model_that_was_not_prepared_is_refused(self):
        for error in self.run2(unprepared):
            self.assertIn("accelerator.prepare()", error)

    def test_a_trainer_learns_and_resumes(self):
        support.need("transformers")
        with tempfile.TemporaryDirectory() as folder:
            whole = self.run2(with_trainer, folder, "anew")
            for first, last, ratio, step, _ in whole:
                self.assertLess(last, first - 0.5)
                self.assertGreater(ratio, 5)
                self.assertEqual(step, 24)
            if not trainer_can_resume():
                self.skipTest("this PyTorch and this Transformers cannot resume any Trainer on the CPU (cpu:0)")
            again = self.run2(with_trainer, folder, "resumed")
        self.assertEqual([row[3:] for row in again], [row[3:] for row in whole])


if __name__ == "__main__":
    unittest.main()
