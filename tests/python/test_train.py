"""frugrad.torch.train: small models learn, the summary is that of `frugrad train`, and wrong options are reported."""

import contextlib
import io
import json
import lzma
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import support

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # on the host, also where there is a GPU
torch = support.need("torch")

from frugrad._core import Config, Optimizer  # noqa: E402
from frugrad.torch import train  # noqa: E402
from frugrad.torch.trainer import models  # noqa: E402
from frugrad.torch.trainer.flat import Flat  # noqa: E402
from frugrad.torch.trainer.loop import Clip  # noqa: E402
from frugrad.torch.trainer.optimizers import FlatOptimizer  # noqa: E402
from frugrad.torch.trainer.power_sgd import PowerSGD  # noqa: E402
from frugrad.torch.trainer.pretrained import load_images, read_safetensors  # noqa: E402
from frugrad.torch.trainer.learning_rate import parse_schedule  # noqa: E402
from frugrad.torch.trainer.simulated_frames import LargestEntries, can_simulate, count_reached, simulate  # noqa: E402
from frugrad.torch.trainer.wordpiece import WordPiece  # noqa: E402
from frugrad.torch.trainer.workers import Transform, make_exchange, make_planner, read_config  # noqa: E402

DATA = Path(os.environ.get("FRUGRAD_DATA") or "/nonexistent")
GPT2, BERT = "gpt2-small:layers=1,width=32,heads=2,length=16,dropout=0", "bert-small:layers=1,width=32,heads=2,length=8"
FIELDS = """accuracy perplexity loss split answers train_loss bytes_sent bytes_dense density_mean model_state_bytes
weight_bytes gradient_bytes library_bytes seconds step_ms time_ms step steps model data seed workers threads batch
params method config algorithm optimizer schedule rate clip gain version device torch driver
max_memory_allocated""".split()
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a", "##s", "."]


def write_data(folder: Path) -> None:
    """Images whose brightness is their label, a text of few words, and sentences that say what their label is."""
    generator = torch.Generator().manual_seed(7)
    for part in ("cifar10", "text", "SST-2"):
        (folder / part).mkdir()
    for name, count in (("data_batch_1.bin", 96), ("test_batch.bin", 32)):
        labels = torch.randint(0, 10, (count, 1), generator=generator)
        pixels = 25 * labels + torch.randint(0, 20, (count, 3072), generator=generator)
        raw = torch.cat([labels, pixels], 1).to(torch.uint8).flatten().tolist()
        (folder / "cifar10" / name).write_bytes(bytes(raw))
    for name, count in (("train", 300), ("valid", 20), ("test", 20)):
        chosen = torch.randint(0, 3, (count,), generator=generator).tolist()
        (folder / "text" / f"{name}.txt").write_text("".join(("the cat sat. ", "a dog ran. ", "so it was. ")[i]
                                                             for i in chosen))
        tokens = torch.randint(0, 50, (400,), generator=generator).tolist()
        with lzma.open(folder / "text" / f"{name}.gpt2bpe.u16.xz", "wb") as file:
            file.write(b"".join(t.to_bytes(2, "little") for t in tokens))
    for name, count in (("train", 120), ("dev", 20), ("test_labeled", 20)):
        labels = torch.randint(0, 2, (count,), generator=generator).tolist()
        rows = [f"a {('bad', 'good')[label]} film{'s' * (i % 2)} .\t{label}" for i, label in enumerate(labels)]
        (folder / "SST-2" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.room = tempfile.TemporaryDirectory(prefix="frugrad-test-")
        cls.folder = Path(cls.room.name)
        write_data(cls.folder)
        cls.addClassCleanup(cls.room.cleanup)
        cls.addClassCleanup(torch.set_num_threads, torch.get_num_threads())

    def run_main(self, *words: str, code: int = 0):
        """What a command printed: the summary, or where it fails its last line on stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = train.main([*map(str, words), "--json", "--quiet", "--threads", "1"])
        self.assertEqual(status, code, err.getvalue())
        if code:
            self.assertEqual(out.getvalue(), "")
            return err.getvalue().splitlines()[-1]
        return json.loads(out.getvalue())

    def images(self, *words: str, code: int = 0, steps: int = 8, data: str = "cifar10"):
        return self.run_main("--model", "resnet18:width=4", "--data", self.folder / data, "--steps", steps, "--batch",
                             8, "--workers", 2, "--rate", 0.05, "--no-augment", *words, code=code)

    def text(self, *words: str, code: int = 0, steps: int = 30):
        return self.run_main("--model", GPT2, "--data", self.folder / "text", "--tokens", "bytes", "--steps", steps,
                             "--batch", 4, "--rate", 1e-2, *words, code=code)


class Learning(Case):
    def test_losses_fall(self):
        begins = math.log(256)
        for method in "frugrad", "dense", "topk", "dgc --optimizer adam-merged", "demo", "frugrad-muon --rate 1e-3",\
                "dense --optimizer muon --rate 1e-3":
            result = self.text("--method", *method.split(), "--schedule", "linear,warmup=3")
            self.assertLess(result["loss"], 0.75 * begins, method)
            self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), places=5)
            self.assertEqual((result["split"], result["device"]), ("test", "cpu"))
        result = self.images(steps=20)
        self.assertLess(result["train_loss"], 0.9 * math.log(10))
        self.assertEqual(result["schedule"], "cosine,warmup=10%")
        result = self.run_main("--model", BERT, "--data", self.folder / "SST-2", "--tokens", self.folder / "vocab.txt",
                             "--steps", 40, "--batch", 8, "--workers", 2, "--rate", 5e-3)
        self.assertEqual((result["accuracy"], result["answers"]), (1.0, 20))
        result = self.run_main("--model", GPT2, "--data", self.folder / "text", "--steps", 3, "--batch", 2)
        self.assertEqual(result["params"], 50257 * 32 + 16 * 32 + 12 * 32 * 32 + 13 * 32 + 2 * 32)
        self.assertEqual(result["schedule"], "cosine,warmup=30%")

    def test_frames_of_everything_are_dense(self):
        for model in self.images, self.text:
            dense = model("--method", "dense", steps=8)
            whole = model("--method", "frugrad,density=1,feedback=none,value=f32", steps=8)
            self.assertAlmostEqual(dense["train_loss"], whole["train_loss"], delta=1e-3)
            self.assertAlmostEqual(dense["loss"], whole["loss"], delta=2e-3)
            self.assertEqual((dense["density_mean"], whole["density_mean"]), (1, 1))
            self.assertGreater(whole["bytes_sent"], dense["bytes_sent"] * 0.99)

    def test_a_seed_is_a_run(self):
        first, again, other = (self.text("--seed", seed, steps=6) for seed in (3, 3, 4))
        self.assertEqual(first["loss"], again["loss"])
        self.assertNotEqual(first["loss"], other["loss"])
        few, many = (self.text("--method", "dense", "--workers", n, "--batch", 8 // n, steps=4) for n in (1, 4))
        self.assertAlmostEqual(few["loss"], many["loss"], delta=1e-4)  # as many workers, the same samples
        self.assertEqual((few["bytes_sent"], few["bytes_dense"]), (0, 0))

    def test_models_of_size_paper(self):
        """Their commands are understood, and they are as large as published. A layer says how large twelve are."""
        def params(text, vocab=0):
            none = {f"{name}_": lambda tensor, *_, **__: tensor
                    for name in ("normal", "uniform", "kaiming_normal", "kaiming_uniform")}
            with unittest.mock.patch.multiple(torch.nn.init, **none):  # numbers are not looked at
                return sum(p.numel() for p in models.parse_model(text).build(vocab).parameters())

        def deep(text, vocab):
            one, two = params(f"{text}:layers=1", vocab), params(f"{text}:layers=2", vocab)
            return one + 11 * (two - one)

        words = ["--method", "frugrad", "--rate", "1e-4", "--schedule", "linear,warmup=200", "--workers", "4", "--batch",
                 "8", "--steps", "2000", "--seed", "1", "--eval-every", "500", "--judge", "valid"]
        for text in ("resnet50", "gpt2-small:length=1024,dropout=0", "bert-base:length=128"):
            args = train._parser().parse_args(["--model", text, "--data", "x", *words])
            self.assertEqual(models.parse_model(args.model).name, text.partition(":")[0])
        self.assertEqual(params("resnet50"), 23_520_842)  # with the stem of small images and ten classes
        self.assertEqual(deep("gpt2-small", 50257), 124_439_808)
        self.assertEqual(deep("bert-base", 30522), 109_482_240 - 2 * 768 + 2 * 769)  # no segments; a classifier

    def test_a_teacher_is_learned_besides_the_labels(self):
        """A model that is its own teacher has no loss but its share of the labels'; from another one it learns."""
        path, other = (self.folder / f"{name}.safetensors" for name in ("taught", "teacher"))
        words = ["--model", "vit:patch=8,layers=1,width=16,heads=2", "--data", self.folder / "cifar10", "--method", "dense",
                 "--workers", 1, "--no-augment", "--optimizer", "adamw", "--batch", 8]
        self.run_main(*words, "--steps", 1, "--rate", 1e-12, "--save", path)
        self.run_main(*words, "--steps", 24, "--rate", 1e-2, "--save", other)
        still = ["--steps", 2, "--rate", 1e-12, "--weights", path]
        labels = self.run_main(*words, *still)["train_loss"]
        own = self.run_main(*words, *still, "--teacher", path)
        self.assertAlmostEqual(own["train_loss"], 0.1 * labels, places=5)
        self.assertEqual(own["teacher"], str(path))
        far, near = (self.run_main(*words, "--steps", steps, "--rate", 1e-2, "--teacher", other)["train_loss"]
                     for steps in (1, 24))
        self.assertLess(near, 0.7 * far)
        self.assertIn("for the same --model", self.images("--teacher", other, code=1))
        self.assertIn("for models of images only", self.text("--teacher", other, code=2))

    def test_saved_weights_continue_a_run(self):
        """A model, written and read again, has the loss that it had."""
        path = self.folder / "saved.safetensors"
        words = ["--data", self.folder / "cifar10", "--method", "dense", "--workers", 1, "--no-augment", "--optimizer",
                 "adamw"]
        vit, deeper = ("--model", "vit:patch=8,layers=1,width=16,heads=2"), ("--model", "vit:patch=8,width=16,heads=2")
        first = self.run_main(*vit, *words, "--steps", 24, "--batch", 8, "--rate", 1e-2, "--save", path)
        again = self.run_main(*vit, *words, "--steps", 1, "--batch", 8, "--rate", 1e-12, "--weights", path)
        self.assertLess(first["train_loss"], 0.95 * math.log(10))
        self.assertAlmostEqual(first["loss"], again["loss"], places=5)
        self.assertIn("has no tensor 'blocks.1", self.run_main(*deeper, *words, "--steps", 1, "--weights", path, code=1))
        few = [*words, "--steps", 1, "--batch", 4, "--rate", 1e-12]
        self.run_main("--model", "resnet20", *few, "--save", path)
        self.assertIn("layer3.2.bn2.running_var", read_safetensors(path))
        for wrong in (self.folder / "no" / "file", self.folder):
            with unittest.mock.patch.object(train.Run, "train", side_effect=AssertionError("trained")):
                self.assertIn("--save: cannot write", self.images("--save", wrong, steps=1, code=2))

    @unittest.skipUnless((DATA / "weights").is_dir() and (DATA / "cifar10").is_dir(), "no FRUGRAD_DATA")
    def test_published_weights_classify(self):
        with lzma.open(DATA / "cifar10" / "test_batch.bin.xz") as file:
            rows = torch.frombuffer(bytearray(file.read(3073 * 64)), dtype=torch.uint8).view(-1, 3073)
        mean, std = (torch.tensor(x).view(3, 1, 1) for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        model = models.parse_model("resnet20").build(0).eval()
        load_images(model, DATA / "weights" / "resnet-cifar10" / "resnet20_cifar10.safetensors")
        with torch.no_grad():
            answers = model((rows[:, 1:].view(-1, 3, 32, 32) / 255 - mean) / std).argmax(1)
        self.assertGreater((answers == rows[:, 0]).float().mean(), 0.85)

    def test_augmented_images_differ(self):
        base = ["--model", "resnet18:width=4", "--data", self.folder / "cifar10", "--steps", 2, "--batch", 8]
        self.assertNotEqual(self.run_main(*base)["train_loss"], self.run_main(*base, "--no-augment")["train_loss"])

    def test_a_loss_that_is_no_number_ends_a_run(self):
        result = self.text("--method", "dense", "--optimizer", "sgd", "--rate", "1e30", code=1)
        self.assertIn("is not finite after step", result)


class TokenFiles(Case):
    """Files of tokens with a vocabulary beside them."""

    def tokens(self, vocabulary, ids=(0, 1, 2, 3) * 100, code: int = 0):
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for name in "train", "valid":
            (folder / f"{name}.u16").write_bytes(b"".join(t.to_bytes(2, "little") for t in ids))
        if vocabulary is not None:
            (folder / "vocab.json").write_text(vocabulary)
        return self.run_main("--model", GPT2, "--data", folder, "--steps", 20, "--batch", 4, "--rate", 1e-2, code=code)

    def test_the_vocabulary_gives_the_size(self):
        result = self.tokens(json.dumps({"a": 3, "b": 1, "c": 0, "d": 2}))
        self.assertEqual(result["params"], 4 * 32 + 16 * 32 + 12 * 32 * 32 + 13 * 32 + 2 * 32)
        self.assertEqual((result["split"], result["answers"]), ("valid", 399))
        self.assertLess(result["loss"], 0.5 * math.log(4))

    def test_wrong_files_are_reported(self):
        for vocabulary, pattern in ((None, "vocab.json: not found"), ("{", "vocab.json: not JSON"),
                                    ("[0, 1]", "not a vocabulary"), ("{}", "not a vocabulary"),
                                    ('{"a": 0, "b": 2}', "not a vocabulary"), ('{"a": false}', "not a vocabulary")):
            self.assertIn(pattern, self.tokens(vocabulary, code=1))
        self.assertIn("train.u16: token 3 is none of the 2 of its vocabulary", self.tokens('{"a": 0, "b": 1}', code=1))


class Judging(Case):
    def test_the_test_split_stays_shut(self):
        shut = self.folder / "shut"
        shut.mkdir()
        (shut / "data_batch_1.bin").write_bytes((self.folder / "cifar10" / "data_batch_1.bin").read_bytes())
        (shut / "test_batch.bin").write_bytes(b"not to be read")
        result = self.images("--hold-out", 16, "--eval-every", 2, data="shut", steps=4)
        self.assertEqual((result["split"], result["answers"]), ("valid", 16))
        self.assertIn("test_batch.bin", self.images(data="shut", steps=1, code=1))
        self.assertIn("not on the test split", self.images("--hold-out", 16, "--judge", "test", data="shut", code=2))
        self.assertIn("cannot hold out", self.images("--hold-out", 96, data="shut", code=1))
        test = self.folder / "text" / "test.txt"
        was = test.read_bytes()
        test.write_bytes(b"")
        try:
            result = self.text("--judge", "valid", steps=2)
            self.assertIn("test.txt", self.text(steps=1, code=1))
        finally:
            test.write_bytes(was)
        valid = len((self.folder / "text" / "valid.txt").read_bytes())
        self.assertEqual((result["split"], result["answers"]), ("valid", valid - 1))  # every byte but the first
        held = self.text("--hold-out", 8, "--eval-batches", 1, "--workers", 2, "--batch", 2, steps=1)
        self.assertEqual((held["split"], held["answers"]), ("valid", 4 * 16))
        self.assertIn("no valid split", self.images("--judge", "valid", steps=1, code=1))

    def test_the_summary_and_the_metrics(self):
        log = self.folder / "log"
        result = self.text("--metrics", log, "--metrics-layers", "--eval-every", 4, "--clip", 1, "--workers", 4,
                           steps=10)
        self.assertEqual([name for name in FIELDS if name not in result], [])
        self.assertEqual(result["bytes_dense"], 10 * 2 * 3 * result["params"])  # 2 (P - 1) / P floats
        self.assertEqual(result["bytes_sent"] % 30, 0)
        self.assertEqual(result["config"], Config("frugrad-adam").text)
        self.assertEqual(result["model_state_bytes"],
                         result["weight_bytes"] + result["gradient_bytes"] + result["library_bytes"])
        self.assertTrue(all(result["time_ms"][part] > 0 for part in ("forward", "backward", "compress", "decode")))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        steps = [line for line in lines if line["kind"] == "step"]
        self.assertEqual([line["step"] for line in steps], list(range(1, 11)))
        self.assertEqual(steps[-1]["bytes_sent"], result["bytes_sent"])
        self.assertTrue(all(line["seconds"] > 0 for line in steps))
        kinds = [line["kind"] for line in lines if line["kind"] != "layers"]
        self.assertEqual(kinds, ["step"] * 4 + ["valid"] + ["step"] * 4 + ["valid"] + ["step"] * 2 + ["test"])
        self.assertEqual(lines[-1]["perplexity"], result["perplexity"])
        layers = [line for line in lines if line["kind"] == "layers"]
        self.assertEqual((layers[0]["step"], layers[-1]["step"]), (1, 10))
        self.assertEqual(dict(zip(layers[0]["names"], layers[0]["density"]))["wte.weight"], 0.0625)

    def test_a_long_run_reports_its_progress(self):
        words = ("--model", GPT2, "--data", self.folder / "text", "--tokens", "bytes", "--steps", 5, "--batch", 2, "--rate",
                 1e-2, "--eval-every", 5, "--threads", 1)
        for seconds, quiet, steps in ((0.0, [], [1, 2, 3, 4, 5]), (15.0, [], [5]), (0.0, ["--quiet"], [])):
            err = io.StringIO()
            with unittest.mock.patch("frugrad.torch.trainer.progress._PROGRESS_EVERY", seconds), \
                    contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
                self.assertEqual(train.main([*map(str, words), *quiet]), 0)
            printed = [line.split() for line in err.getvalue().splitlines() if " ms a step" in line]
            self.assertEqual(sorted({int(line[1]) for line in printed}), steps, err.getvalue())
            self.assertTrue(all(line[2:4] == ["of", "5"] and float(line[5]) > 0 for line in printed))

    def test_memory_is_of_one_worker(self):
        one, four = (self.text("--method", "frugrad", "--workers", n, "--batch", 8 // n, steps=2) for n in (1, 4))
        frame = four["bytes_sent"] // 6
        self.assertEqual(four["library_bytes"] - one["library_bytes"], 3 * frame)

    def test_transforms_are_orthonormal_and_undone(self):
        model = torch.nn.Linear(70, 130)
        for kind, block in (("cosine", 4096), ("hadamard", 256)):
            config = Config(f"transform={kind},block={block}")
            flat = Flat(model, config, torch.device("cpu"))
            transform, was = Transform(config, flat), torch.randn(flat.n)
            flat.grad.copy_(was)
            transform.forward()
            self.assertAlmostEqual((flat.grad.norm() / was.norm()).item(), 1, places=5)
            self.assertGreater((flat.grad - was).norm(), 1)
            whole = 70 * 130 // block * block
            self.assertTrue(torch.equal(flat.grad[whole:9100], was[whole:9100]))  # an incomplete block
            self.assertAlmostEqual(flat.grad[0].item(), was[:block].sum().item() / block ** 0.5, places=4)
            transform.inverse()
            self.assertLess((flat.grad - was).abs().max(), 1e-5)
        self.assertEqual(Transform(Config("frugrad"), flat).squares, [])

    def test_local_steps(self):
        log, words = self.folder / "local", ("--workers", 2, "--batch", 4, "--clip", 1)
        result = self.text("--method", "frugrad,local=3,vectors=sparse,min_size=0", *words, "--metrics", log, steps=10)
        at = [line["step"] for line in map(json.loads, log.read_text().splitlines()) if line.get("density")]
        self.assertEqual(at, [3, 6, 9, 10])
        self.assertIn("adamw", result["optimizer"])
        self.assertEqual(result["weight_bytes"], 8 * result["params"])
        more = self.text("--method", "sparseloco,local=3,outer_momentum=0.5,vectors=sparse,min_size=0", *words, steps=10)
        self.assertIn("mean=senders", more["config"])
        self.assertEqual(more["weight_bytes"], 12 * result["params"])
        # One worker that sends everything is the optimizer alone, up to the rounding of differences.
        all_sent = "frugrad,density=1,feedback=none,value=f32"
        alone, local = (self.text("--method", all_sent + more, "--workers", 1, "--optimizer", "adamw", steps=10)
                        for more in ("", ",local=4"))
        self.assertAlmostEqual(alone["loss"], local["loss"], places=4)
        self.assertLess(local["bytes_sent"], result["bytes_dense"])

    def test_gossip(self):
        words = "--workers", 4, "--batch", 2, "--clip", 1, "--optimizer", "adamw"
        result = self.text("--method", "gsgd,vectors=sparse,min_size=0", *words, steps=6)
        self.assertGreater(result["bytes_sent"], 0.4 * 6 * 2 * 4 * result["params"])  # to two neighbors
        self.assertAlmostEqual(result["density_mean"], 0.4, places=2)
        # Two workers that send everything and move to the mean have the same weights: the mean of two steps.
        every = "gsgd,density=1,gamma=1"
        two = self.text("--method", every, "--workers", 2, "--batch", 4, "--optimizer", "sgd", "--clip", 0, steps=6)
        dense = self.text("--method", "dense", "--workers", 2, "--batch", 4, "--optimizer", "sgd", "--clip", 0, steps=6)
        self.assertAlmostEqual(two["loss"], dense["loss"], places=4)

    def test_wrong_words(self):
        for words, pattern in (
            (["--method", "powersgd,rank=0"], "'powersgd,rank=0' is not powersgd with a rank"),
            (["--method", "powersgd,value=f32"], "is not powersgd with a rank"),
            (["--method", "gsgd,topology=torus"], "gossip is simulated in a ring"),
            (["--method", "gsgd", "--optimizer", "merged"], "leaves the momentum to the residual"),
            (["--method", "frugrad,reduce=split,down=2"], "reduce=split is not a mean"),
            (["--method", "frugrad,feedback=ef21"], "ef21"),
            (["--method", "frugrad,wrong=1"], "unknown option 'wrong'"),
            (["--optimizer", "microadam"], "microadam"),
            (["--method", "frugrad,local=4", "--optimizer", "adam-merged"], "leaves the momentum to the residual"),
            (["--optimizer", "sgd:nesterov=1"], "nesterov"),
            (["--optimizer", "adamw:wrong=1"], "unknown option 'wrong'"),
            (["--schedule", "cosine,cool=3"], "cosine,cool=3"),
            (["--model", "gpt3"], "no 'gpt3'"),
            (["--model", "gpt2-small:layers=x"], "'x' is not a number"),
            (["--model", "gpt2-small:deep=2"], "no option 'deep'"),
            (["--model", "gpt2-small:width=30,heads=4"], "no whole number"),
            (["--weights", "x.safetensors"], "gpt2-small has no pretrained weights here"),
            (["--workers", "0"], "'0' is not a whole number"),
            (["--rate", "-1"], "'-1' is not a number above 0"),
            (["--tokens", "letters"], "letters"),
            (["--passes", "graph"], "graph needs a GPU"),
            (["--augment-not"], "--augment-not"),
        ):
            result = self.text(*words, code=2)
            self.assertTrue(result.startswith("frugrad: ") and pattern in result, result)
        self.assertIn("required: --model", self.run_main("--data", ".", "--steps", 1, code=2))
        self.assertIn("no such directory", self.text("--data", self.folder / "nothing", code=1))
        self.assertIn("fewer than a step takes", self.text("--batch", "100000", code=1))
        self.assertIn("patch=5 does not divide", self.run_main(
            "--model", "vit:patch=5", "--data", self.folder / "cifar10", "--steps", 1, code=2))
        self.assertIn("cannot write", self.text("--metrics", self.folder / "no" / "log", code=1))


    def test_momentum_of_both_or_neither(self):
        for method, optimizer, hint in (("frugrad", "adamw", "applied twice"), ("dgc", "sgd", "applied twice"),
                                        ("dense", "adam-merged", "no momentum"), ("topk", "adam-merged", "no momentum"),
                                        ("frugrad", "adam-merged", ""), ("frugrad", "sgd:momentum=0", ""),
                                        ("dense", "adamw", ""), ("frugrad,local=2", "adamw", "")):
            err = io.StringIO()
            with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
                train.main(["--model", GPT2, "--data", str(self.folder / "text"), "--tokens", "bytes", "--steps", "1",
                            "--batch", "4", "--quiet", "--method", method, "--optimizer", optimizer])
            said = [line for line in err.getvalue().splitlines() if line.startswith("  hint: ")]
            self.assertEqual(len(said), int(bool(hint)), (method, optimizer, err.getvalue()))
            self.assertIn(hint, "".join(said))


class Parts(unittest.TestCase):
    def test_optimisers_are_the_library_s(self):
        for text, method in (("sgd:momentum=0.9,decay=5e-3", "dense"), ("sgd:momentum=0", "dense"),
                             ("adamw:beta2=0.95,decay=0.1", "dense"), ("merged:decay=5e-3", "frugrad"),
                             ("merged:inertia=0.5", "frugrad"), ("merged", "dgc"), ("sign:decay=0.1", "demo"),
                             ("adam-merged:beta2=0.95,decay=0.1,state=f32", "frugrad"),
                             ("adam-merged:inertia=0.7,state=f32", "frugrad"),
                             ("muon:decay=0.1", "dense"), ("muon:momentum=0", "dense"),
                             ("muon-merged:beta2=0.95,state=f32", "frugrad-muon"),
                             ("muon-merged:beta2=0.95,momentum=0.9,state=f32", "frugrad-muon"),
                             ("merged:inertia=auto", "frugrad,schedule=frugrad"),
                             ("adam-merged:inertia=auto,state=f32", "frugrad,schedule=frugrad")):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.LayerNorm(128), torch.nn.Linear(128, 8))
            config = Config(method)
            flat = Flat(model, config, torch.device("cpu"))
            planner = make_planner(config, flat, 30)
            optimizer, weights = FlatOptimizer(text, flat, planner, 30), flat.weights.clone()
            reference = Optimizer(text, flat.layout, planner)
            for step in range(30):
                flat.grad.copy_(torch.randn(flat.n))
                flat.grad[:8192][torch.rand(8192) > 0.1] = 0
                reference.step(step, 0, flat.n, flat.grad.data_ptr(), 0.01, weights.data_ptr())
                optimizer.step(0.01)
            self.assertLess(float((weights - flat.weights).abs().max()), 1e-6, (text, method))

    def test_powersgd_sends_factors_and_loses_nothing(self):
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Linear(40, 3))
        flat = Flat(model, Config("dense"), torch.device("cpu"))
        exchange = PowerSGD(flat, 2, 2)
        floats = 2 * (24 + 40) + 40 + 2 * (40 + 3) + 3
        self.assertEqual((exchange.sent, exchange.density), (8 * floats // 2, floats / flat.n))
        total, applied = torch.zeros(flat.n), torch.zeros(flat.n)
        for step in range(5):
            for worker in range(2):
                flat.grad.copy_(torch.randn(flat.n))
                total += flat.grad / 2
                exchange.add_gradient(worker, step)
            exchange.mean(step)
            applied += flat.grad
            weight = model[0].weight.grad
            self.assertLessEqual(int(torch.linalg.matrix_rank(weight)), 2)
        self.assertLess(float((applied + exchange.errors.mean(0) - total).abs().max()), 1e-5)
        self.assertEqual(float(exchange.p[1, 3:].abs().max()), 0)  # factors of the smaller matrices are padded with zeros
        self.assertEqual(float(exchange.q[0, 24:].abs().max()), 0)
        self.assertEqual(float(exchange.errors[:, -43:].abs().max()), 0)  # biases are sent whole
        factors = torch.randn(24, 2)
        for step in range(30):  # a matrix of rank 2 is found whole
            model[0].weight.grad.copy_(torch.randn(40, 2, generator=torch.Generator().manual_seed(1)) @ factors.t())
            wanted = model[0].weight.grad.clone()
            exchange.errors.zero_()
            for worker in range(2):
                exchange.add_gradient(worker, step)
            exchange.mean(step)
        self.assertLess(float((model[0].weight.grad - wanted).abs().max()), 1e-3)

    def test_powersgd_goes_on_after_a_gradient_of_zeros(self):
        model = torch.nn.Linear(24, 40, bias=False)
        flat = Flat(model, Config("dense"), torch.device("cpu"))
        exchange = PowerSGD(flat, 2, 2)
        for step in range(2):  # nothing, then something
            for worker in range(2):
                flat.grad.fill_(step)
                exchange.add_gradient(worker, step)
            exchange.mean(step)
        self.assertLess(float((flat.grad - 1).abs().max()), 1e-4)

    def test_simulated_frames_are_those_of_the_host(self):
        torch.manual_seed(3)
        small = (129, 70), (70, 71)  # no common divisor that is long enough for a row: exact
        for text, shapes in (("onebit", small), ("topk", small), ("dgc", small), ("topk,density=0.01", small),
                             ("topk", ((256, 256), (256, 512))), ("onebit", ((256, 256), (129, 70), (256, 64)))):
            config, steps, exact = read_config(text, "sgd"), 20 if text == "dgc" else 5, shapes is small or text == "onebit"
            self.assertTrue(can_simulate(config), text)
            flat = Flat(torch.nn.Sequential(*[torch.nn.Linear(*shape) for shape in shapes]), config, torch.device("cpu"))
            planner = make_planner(config, flat, steps)
            both = [make(flat, planner, 3, steps, 1) for make in (make_exchange, simulate)]
            for step in range(steps):
                gradients, means = [torch.randn(flat.n) for _ in range(3)], []
                for exchange in both:
                    for worker, gradient in enumerate(gradients):
                        flat.grad.copy_(gradient)
                        exchange.add_gradient(worker, step)
                    exchange.mean(step)
                    means.append(flat.grad.clone())
                differ = (means[0] - means[1]).abs() > 1e-5
                self.assertLessEqual(int(differ.sum()), 0 if exact else 0.01 * exchange.density * flat.n, text)
                self.assertEqual(*[(exchange.sent, exchange.density) for exchange in both], text)
        for text in ("frugrad", "qsgd", "topk,clip=1", "dgc,mask=off", "topk,residual=bf16", "onebit,feedback=none"):
            self.assertFalse(can_simulate(read_config(text, "sgd")), text)

    def test_largest_entries_of_tensors_in_rows(self):
        for width in (256, 1 << 16):
            self._check_largest_entries(width)

    def _check_largest_entries(self, width):
        torch.manual_seed(4)
        sizes, counts = [3 * width, width, 2 * width, width, width], [width // 128, width // 2, 40, 7, 0]
        x = torch.randn(sum(sizes)) * torch.rand(sum(sizes)) ** 3
        parts = x.split(sizes)
        parts[0][:2] = torch.tensor([float("inf"), float("nan")])
        parts[2].zero_()
        parts[3][5:].zero_()  # fewer than are wanted
        masks = LargestEntries(sizes, counts, x.device, count_reached).mask(x).split(sizes)
        self.assertTrue(masks[0][:2].all())
        self.assertEqual([int(mask.sum()) for mask in masks[2:]], [0, 5, 0])
        for part, chosen, count in zip(parts[:2], masks, counts):
            self.assertGreaterEqual(int(chosen.sum()), count)
            self.assertLessEqual(int(chosen.sum()), max(count * 1.01, count + 2))
            least = part[chosen].nan_to_num(nan=1e9).abs().min()
            self.assertGreater(float(least), float(part[~chosen].abs().max()))

    def test_parameters_are_views_in_groups(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(64, 128))
        before = [p.detach().clone() for p in model.parameters()]
        flat = Flat(model, Config("frugrad"), torch.device("cpu"))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, model.parameters())))
        self.assertEqual([tuple(group) for group in flat.groups],
                         [(0, 8192, True, True), (8192, 8208, False, True), (8208, 8340, False, False)])
        flat.weights.zero_()
        self.assertEqual(sum(float(p.detach().abs().sum()) for p in model.parameters()), 0)
        model[1](torch.ones(1, 64)).sum().backward()
        self.assertEqual(float(flat.grad.sum()), 8192 + 128)

    def test_schedules(self):
        cosine = parse_schedule("cosine,warmup=4")
        for step, factor in ((0, 0.25), (3, 1), (4, 1), (54, 0.5), (103, 0.5 + 0.5 * math.cos(math.pi * 0.99))):
            self.assertAlmostEqual(cosine.at(step, 104), factor, places=12)
        self.assertEqual([parse_schedule("linear").at(step, 4) for step in range(4)], [1, 0.75, 0.5, 0.25])
        self.assertEqual(parse_schedule("constant").at(7, 8), 1)

    def test_clipping(self):
        flat = Flat(torch.nn.Linear(8, 8), Config("frugrad"), torch.device("cpu"))
        whole = Clip(0.5, flat, True)
        for size, norm in ((3.0, 0.5), (0.01, 0.01 * math.sqrt(72))):
            flat.grad.fill_(size)
            whole.before()
            whole.after(1)
            self.assertAlmostEqual(float(flat.grad.norm()), norm, places=5)
        lagging = Clip(0.5, flat, False)
        norms = []
        for size in (1.0, 2.0):
            flat.grad.fill_(size)
            lagging.before()
            norms.append(float(flat.grad.norm()))
            lagging.after(1)
        self.assertAlmostEqual(norms[0], 0.5, places=5)
        self.assertAlmostEqual(norms[1], 1.0, places=5)  # by the norm of the step before

    def test_pieces_of_words(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "vocab")
            path.write_text("\n".join(WORDS) + "\n")
            pieces = WordPiece(path)
        result = [WORDS[i] for i in pieces.encode("A  Good\tfilms.bäd (x)")]
        self.assertEqual(result, ["a", "good", "film", "##s", ".", "bad", "[UNK]", "[UNK]", "[UNK]"])

    def test_pieces_of_words_are_bert_s(self):
        vocab, oracle = DATA / "tokenizers/bert_base_uncased_vocab.txt", DATA / "tokenizers/oracle"
        if not oracle.is_dir():
            self.skipTest(f"no {oracle}")
        pieces = WordPiece(vocab)
        with lzma.open(oracle / "bert_CoLA.dev.ids.txt.xz", "rt") as file:
            wanted = [[int(i) for i in line.split()] for line in file]
        with lzma.open(DATA / "glue/CoLA/dev.tsv.xz", "rt", encoding="utf-8") as file:
            texts = [line.rstrip("\n").split("\t")[3] for line in file]
        self.assertEqual([[101, *pieces.encode(text), 102] for text in texts], wanted)


class Sparse(Case):
    def test_pruned_weights_are_zero_and_nothing_is_sent_of_them(self):
        whole = self.images("--method", "frugrad,min_size=0")
        for text, most in (("magnitude:from=0,until=0", 0.13), ("magnitude:updates=2", 0.13), ("rigl:updates=2", 0.13),
                           ("nm", 0.53)):
            with unittest.mock.patch.object(train, "_summary", lambda args, result, run, *rest: {
                    "zeros": int((run.full.weights == 0).sum()), "kept": run.flat.n, "params": run.full.n,
                    "library": train._memory(run.model, run.full, run.exchange, run.optimizer, 1)["library_bytes"],
                    "last": run.sent[-1], "loss": result.train_loss}):
                result = self.images("--sparse", text)
            self.assertLess(result["kept"], most * result["params"])
            self.assertGreaterEqual(result["zeros"], result["params"] - result["kept"])
            self.assertLess(result["last"], most * whole["bytes_sent"] / 8 + 3500)  # vectors, headers
            self.assertLess(result["library"], most * whole["library_bytes"] + 12000)
            self.assertTrue(math.isfinite(result["loss"]))

    def test_frames_of_all_tensors_have_one_section(self):
        words = ["--model", "resnet20", "--method", "frugrad,min_size=0,vectors=sparse"]
        dense = self.images(*words, steps=1)["bytes_sent"]
        self.assertGreater(dense, 8 * self.images(*words, "--sparse", "magnitude:from=0,until=0", steps=1)["bytes_sent"])

    def test_adam_and_dense_gradients(self):
        for words in (["--optimizer", "adam-merged"], ["--method", "dense", "--optimizer", "adamw"],
                      ["--method", "frugrad,vectors=sparse"]):
            result = self.text("--sparse", "nm:from=0.2,until=0.6", *words)
            self.assertLess(result["loss"], 0.75 * math.log(256))
            self.assertLess(result["params_kept"], 0.8 * result["params"])  # embeddings stay

    def test_pretrained_weights_keep_their_values(self):
        dense, pruned = (self.folder / f"{name}.safetensors" for name in ("dense", "pruned"))
        self.images("--save", dense, steps=1)
        self.images("--weights", dense, "--sparse", "magnitude:from=0,until=0", "--rate", 1e-12, "--save", pruned, steps=1)
        before, after = (read_safetensors(path) for path in (dense, pruned))
        kernels = [name for name in before if before[name].dim() == 4]
        self.assertTrue(any((after[name] == 0).any() for name in kernels))
        for name in kernels:
            torch.testing.assert_close(after[name], before[name] * (after[name] != 0))

    def test_units_are_pruned_and_removed_by_the_program(self):
        program = os.environ.get("FRUGRAD")
        if not program:
            self.skipTest("no program")
        whole, small = (self.folder / f"{name}.safetensors" for name in ("whole", "small"))
        result = self.images("--model", "resnet20", "--sparse", "channels:updates=3", "--save", whole)
        pruned = read_safetensors(whole)
        self.assertEqual(int((pruned["layer3.2.bn1.bias"] != 0).sum()), 32)
        self.assertEqual(result["params_kept"], result["params"] - sum(
            int((tensor == 0).sum()) for name, tensor in pruned.items()
            if name.startswith("layer") and (".conv" in name or ".bn1.weight" in name or ".bn1.bias" in name)))
        ran = subprocess.run([program, "prune", whole, "--units", "zeros", "--json", "-o", small], capture_output=True,
                             text=True, timeout=60)
        self.assertEqual((ran.returncode, json.loads(ran.stdout)["removed"]), (0, 168), ran.stderr)
        data, losses = self.folder / "batches", []
        shutil.copytree(self.folder / "cifar10", data)
        for i in range(2, 6):  # the program wants all
            shutil.copy(data / "data_batch_1.bin", data / f"data_batch_{i}.bin")
        for path in whole, small:
            ran = subprocess.run([program, "eval", "--model", "resnet20", "--data", data, "--weights", path,
                                  "--json"], capture_output=True, text=True, timeout=120)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            losses.append(json.loads(ran.stdout)["loss"])
        self.assertAlmostEqual(*losses, places=5)
        self.assertAlmostEqual(result["loss"], losses[0], places=4)  # the program reads and normalizes images alike

    def test_units_of_transformers(self):
        with unittest.mock.patch.object(train, "_summary", lambda args, result, run, *rest: {
                "kept": [int(mask.sum()) for mask, name in zip(run.masks, run.full.names) if name.endswith("qkv.bias")],
                "dims": [len(t.shape) for t in run.flat.layout] == [len(t.shape) for t in run.full.layout],
                "packed": run.flat.n, "params": run.full.n, "bits": int(sum(mask.sum() for mask in run.masks)),
                "wrong": int(run.full.weights[~torch.cat(run.masks)].count_nonzero()), "sent": run.sent}):
            result = self.text("--sparse", "units:updates=3", "--method", "frugrad,vectors=sparse", steps=10)
        self.assertEqual(result["kept"], [3 * 16])  # one of two heads
        self.assertEqual((result["packed"], result["wrong"], result["dims"]), (result["bits"], 0, True))
        self.assertLess(result["packed"], 0.8 * result["params"])  # embeddings stay
        self.assertLess(result["sent"][-1], 0.8 * result["sent"][0])

    def test_refused(self):
        self.assertIn("the model has no attention heads", self.images("--sparse", "heads", code=1))
        self.assertIn("unknown kind", self.images("--sparse", "half", code=2))
        self.assertIn("zeros needs --weights", self.images("--sparse", "zeros", code=2))
        for words in (["--method", "powersgd,rank=1"], ["--method", "frugrad,local=2", "--optimizer", "sgd"],
                      ["--method", "dgc"], ["--optimizer", "muon-merged"]):
            self.assertIn("--sparse: ", self.images("--sparse", "rigl", *words, code=2))


class OnADevice(Case):
    def test_frames_of_kernels_are_those_of_the_host(self):
        emulator = os.environ.get("FRUGRAD_CUDA_EMULATED")
        if not emulator:
            self.skipTest("no emulated kernels")
        base = ["--steps", "3", "--eval-batches", "1"]
        words = [sys.executable, "-B", "-m", "frugrad.torch.train", "--model", GPT2, "--data",
                 str(self.folder / "text"), "--tokens", "bytes", "--batch", "4", "--rate", "1e-2", "--threads", "1",
                 "--json", "--quiet"]
        env = dict(os.environ, FRUGRAD_CUDA_LIBRARY=emulator)
        ran = subprocess.run(words + base, env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        there, here = json.loads(ran.stdout), self.text("--eval-batches", 1, steps=3)
        self.assertEqual(there["algorithm"], "gather, frames made on the GPU")
        for name in ("loss", "train_loss", "bytes_sent", "density_mean", "model_state_bytes"):
            self.assertEqual(there[name], here[name], name)
        ran = subprocess.run(words + base + ["--method", "topk"], env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stderr, "^frugrad: frames are made on the host: .*\n$")

    def test_recorded_passes_learn_the_same(self):
        """On a GPU, which this process does not see."""
        env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        there = subprocess.run([sys.executable, "-c", "import torch; torch.zeros(1).cuda()"], env=env,
                               capture_output=True)
        if there.returncode:
            self.skipTest("no GPU")
        losses = {}
        for model, data, kinds in (GPT2, "text", ("eager", "auto", "compiled")), (
                "resnet18:width=4", "cifar10", ("eager", "auto")):
            for passes in kinds:
                words = ["--model", model, "--data", str(self.folder / data), "--steps", "12", "--batch", "8",
                         "--workers", "2", "--passes", passes, "--json", "--quiet", "--threads", "1"]
                ran = subprocess.run([sys.executable, "-B", "-m", "frugrad.torch.train", *words], env=env,
                                     capture_output=True, text=True, timeout=300)
                self.assertEqual((ran.returncode, "not recorded" in ran.stderr), (0, False), ran.stderr)
                losses[passes] = json.loads(ran.stdout)["train_loss"]
            for passes in kinds:
                self.assertAlmostEqual(losses["eager"], losses[passes], delta=2e-3 * losses["eager"])


if __name__ == "__main__":
    unittest.main()
