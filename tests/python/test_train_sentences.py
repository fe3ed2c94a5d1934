"""frugrad.torch.train on sentences: tables of GLUE, pairs, metrics, and a pretrained BERT from a safetensors file."""

import contextlib
import io
import json
import lzma
import os
import struct
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import support

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # on the host, also where there is a GPU
torch = support.need("torch")

from frugrad.torch import train  # noqa: E402
from frugrad.torch.trainer import RunError  # noqa: E402
from frugrad.torch.trainer.models import parse_model  # noqa: E402
from frugrad.torch.trainer.pretrained import load_bert  # noqa: E402
from frugrad.torch.trainer.sentences import Sentences, f1, matthews  # noqa: E402

DATA = Path(os.environ.get("FRUGRAD_DATA") or "/nonexistent")
MODEL = "minilm:layers=2,width=32,heads=2,length=12"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a", "##s", "."]
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def hugging_face(model) -> dict:
    """The weights of a model by the names of a file of Hugging Face, written out here once more."""
    names = {"tokens.": "embeddings.word_embeddings.", "positions.": "embeddings.position_embeddings.",
             "segments.": "embeddings.token_type_embeddings.", "ln.": "embeddings.LayerNorm.",
             "pooler.": "pooler.dense."}
    for i in range(2):
        ours, theirs = f"layers.{i}.", f"encoder.layer.{i}."
        for part in "query", "key", "value":
            names[f"{ours}attention.{part}."] = f"{theirs}attention.self.{part}."
        names[f"{ours}attention.o_proj."] = f"{theirs}attention.output.dense."
        names[f"{ours}ln1."], names[f"{ours}ln2."] = f"{theirs}attention.output.LayerNorm.", f"{theirs}output.LayerNorm."
        names[f"{ours}up."], names[f"{ours}down."] = f"{theirs}intermediate.dense.", f"{theirs}output.dense."
    found = {}
    for name, weight in model.named_parameters():
        for ours, theirs in names.items():
            if name.startswith(ours):
                found[theirs + name[len(ours):]] = weight.detach()
    return found


def write_safetensors(path: Path, tensors: dict, prefix: str = "") -> None:
    header, data = {"__metadata__": {"format": "pt"}, "ids": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}, b"\0" * 8
    for name, tensor in tensors.items():
        raw = struct.pack(f"<{tensor.numel()}f", *tensor.flatten().tolist())
        header[prefix + name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.room = tempfile.TemporaryDirectory(prefix="frugrad-test-")
        cls.addClassCleanup(cls.room.cleanup)
        cls.addClassCleanup(torch.set_num_threads, torch.get_num_threads())
        cls.folder = Path(cls.room.name)
        (cls.folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
        for task, words in (("CoLA", ("bad", "good")), ("MRPC", ("bad\ta good film", "good\ta good film"))):
            (cls.folder / task).mkdir()
            for name, count in (("train.tsv", 160), ("dev.tsv", 40), ("msr_paraphrase_test.txt", 40)):
                rows = []
                for i in range(count):
                    label = int(i % 3 > 0)
                    rows.append(f"gj04\t{label}\t*\ta {words[label]} film{'s' * (i % 2)} ." if task == "CoLA"
                                else f"{label}\t1\t2\ta {words[label]}")
                text = ("" if task == "CoLA" else MRPC) + "\r\n".join(rows) + "\n"
                (cls.folder / task / name).write_text(text, newline="")

    def run_main(self, task: str, *words: str, code: int = 0):
        out, err = io.StringIO(), io.StringIO()
        base = ["--model", MODEL, "--data", self.folder / task, "--tokens", self.folder / "vocab.txt", "--steps", 60,
                "--batch", 8, "--workers", 2, "--rate", 5e-3, "--json", "--quiet", "--threads", 1]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = train.main([*map(str, base), *map(str, words)])
        self.assertEqual(status, code, err.getvalue())
        return err.getvalue().splitlines()[-1] if code else json.loads(out.getvalue())

    def task(self, name: str, length: int = 12) -> Sentences:
        return Sentences(self.folder / name, torch.device("cpu"), 1, 0, tokens=str(self.folder / "vocab.txt"),
                         length=length)


class Tables(Case):
    def test_cola_is_judged_by_matthews(self):
        log = self.folder / "log"
        result = self.run_main("CoLA", "--metrics", log)
        self.assertEqual((result["accuracy"], result["matthews"], result["split"], result["answers"]), (1, 1, "valid", 40))
        self.assertEqual(result["correlation"], result["matthews"])
        self.assertNotIn("f1", result)
        self.assertEqual(json.loads(log.read_text().splitlines()[-1])["matthews"], 1)
        self.assertIn("no test split", self.run_main("CoLA", "--judge", "test", code=1))

    def test_mrpc_has_pairs_and_f1(self):
        result = self.run_main("MRPC")
        self.assertEqual((result["accuracy"], result["f1"], result["split"], result["answers"]), (1, 1, "test", 40))
        self.assertEqual((result["correlation"], "matthews" in result), (None, False))

    def test_samples_have_segments(self):
        sample = self.task("MRPC").split("train")[0][1].tolist()
        self.assertEqual(sample, [[2, 7, 4, 3, 7, 4, 6, 3, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]])
        short = self.task("MRPC", 6).split("train")[0][1].tolist()  # cut from the longer text
        self.assertEqual(short, [[2, 7, 4, 3, 7, 3], [0, 0, 0, 0, 1, 1]])
        self.assertEqual(self.task("CoLA", 5).split("train")[0][1].tolist(), [[2, 7, 4, 6, 3], [0] * 5])

    def test_metrics_are_their_definitions(self):
        answers, classes = [1, 1, 1, 0, 0, 1, 0, 1], [1, 0, 1, 1, 0, 1, 0, 0]
        both, said, are = sum(a & b for a, b in zip(answers, classes)), sum(answers), sum(classes)
        precision, recall = both / said, both / are
        self.assertAlmostEqual(f1(both, said, are), 2 * precision * recall / (precision + recall))
        pairs = torch.tensor([answers, classes]).double()
        centered = pairs - pairs.mean(1, keepdim=True)
        pearson = (centered[0] @ centered[1]) / (centered[0].norm() * centered[1].norm())
        self.assertAlmostEqual(matthews(both, said, are, 8), float(pearson))
        self.assertEqual((f1(0, 0, 0), matthews(0, 0, 3, 8)), (0, 0))

    def test_wrong_rows_are_reported(self):
        for name, row, pattern in (("CoLA", "gj04\t2\t\ta film", "row 2: expected 1 text"), ("CoLA", "gj04", "row 2"),
                                   ("MRPC", "1\t1\t2\tonly one", "row 3: expected 2 text"), ("MRPC", "", "row 1")):
            path = self.folder / name / "train.tsv"
            was = path.read_text()
            path.write_text("\n".join(was.splitlines()[:1] + ["1\t1\t2\ta\tb" if name == "MRPC" else "", row])
                            if row and name == "MRPC" else "gj04\t1\t\ta\n" + row if row else "label\n")
            try:
                self.assertIn(pattern, self.run_main(name, code=1))
            finally:
                path.write_text(was)

    def test_real_tables_have_all_rows(self):
        """Counts of GLUE's official splits, and the tokens of BERT for a pair."""
        vocab = DATA / "tokenizers/bert_base_uncased_vocab.txt"
        if not (DATA / "glue/MRPC").is_dir():
            self.skipTest(f"no {DATA / 'glue'}")
        for name, counts in ("CoLA", {"valid": 1043}), ("MRPC", {"valid": 408, "test": 1725}):
            task = Sentences(DATA / "glue" / name, torch.device("cpu"), 1, 0, tokens=str(vocab), length=128)
            self.assertEqual({split: task.count(split) for split in counts}, counts)
        with lzma.open(DATA / "tokenizers/oracle/bert_MRPC.dev.ids.txt.xz", "rt") as file:
            wanted = [[int(i) for i in line.split()] for line in file]
        found = [[i for i in row if i] for row in task.split("valid")[0][:, 0].tolist()]
        self.assertEqual(found, wanted)


class Pretrained(Case):
    def test_weights_are_those_of_the_file(self):
        torch.manual_seed(3)
        there, here = (parse_model(text).build(10) for text in (MODEL.replace("length=12", "length=16"), MODEL))
        for weight in there.parameters():
            torch.nn.init.normal_(weight, std=0.3)
        path = self.folder / "model.safetensors"
        sample = torch.tensor([[[2, 7, 4, 3, 5, 3, 0], [0, 0, 0, 0, 1, 1, 0]]])
        for prefix in "", "bert.":
            write_safetensors(path, hugging_face(there), prefix)
            load_bert(here, path)
            here.classifier.load_state_dict(there.classifier.state_dict())
            self.assertTrue(torch.equal(there.eval()(sample), here.eval()(sample)))
        first = self.run_main("CoLA", "--weights", path, "--steps", 1, "--rate", 1e-9)
        again = self.run_main("CoLA", "--steps", 1, "--rate", 1e-9)
        self.assertGreater(abs(first["loss"] - again["loss"]), 1e-3)
        self.assertIn("gain=finetune", first["optimizer"])
        self.assertIn("gain=auto", again["optimizer"])

    def test_wrong_files_are_reported(self):
        model, path = parse_model(MODEL).build(10), self.folder / "wrong.safetensors"
        tensors = hugging_face(model)
        write_safetensors(path, tensors)
        good = path.read_bytes()
        length = int.from_bytes(good[:8], "little")
        for raw, pattern in (
            (b"", "its header does not end"), (b"\xff" * 8, "its header does not end"),
            ((4).to_bytes(8, "little") + b"{{{{", "not a safetensors file"),
            ((2).to_bytes(8, "little") + b"[]", "not a safetensors file"),
            (good[:-4], "at"), (good[:8 + length], "not a safetensors file"),
            (good.replace(b'"F32"', b'"F16"', 1), "not a safetensors file"),
            (good.replace(b"word_embeddings", b"word_embeddingz"), "has no tensor 'embeddings.word_embeddings.weight'"),
        ):
            path.write_bytes(raw)
            with self.assertRaises(RunError) as error:
                load_bert(model, path)
            self.assertIn(pattern, str(error.exception))
        write_safetensors(path, {**tensors, "pooler.dense.bias": torch.zeros(31)})
        self.assertIn("'pooler.dense.bias' is [31]; the model has [32]", self.run_main("CoLA", "--weights", path, code=1))
        self.assertIn("not found", self.run_main("CoLA", "--weights", self.folder / "none.safetensors", code=1))
        self.assertIn("bert-small has no pretrained weights", self.run_main("CoLA", "--model", "bert-small", "--weights",
                                                                          path, code=2))

    def test_minilm_has_its_size(self):
        none = {name: lambda tensor, *_, **__: tensor for name in ("normal_", "uniform_", "kaiming_uniform_")}
        with unittest.mock.patch.multiple(torch.nn.init, **none):  # numbers are not looked at
            model = parse_model("minilm:length=512").build(30522)
        self.assertEqual(sum(p.numel() for p in model.parameters()), 22_713_216 + 2 * 385)


if __name__ == "__main__":
    unittest.main()
