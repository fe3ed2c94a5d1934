"""Whole channels, neurons and heads: which are found in a model, which are pruned, and that they can be removed."""

import copy
import functools
import os
import subprocess
import tempfile
import unittest
import warnings
from pathlib import Path

import support

os.environ["CUDA_VISIBLE_DEVICES"] = ""
torch = support.need("torch")
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from frugrad.torch import Sparsify, UnitLayer, UnitSlice  # noqa: E402
from frugrad.torch.find_units import find_layers  # noqa: E402
from frugrad.torch.sparse_units import prune, unpruned  # noqa: E402
from frugrad.torch.trainer.models import parse_model  # noqa: E402
from frugrad.torch.trainer.pretrained import floats_of, read_safetensors, write_safetensors  # noqa: E402


# ---- models

class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.tanh(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.downsample = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if stride > 1 else None

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.layer1, self.layer2 = nn.Sequential(Block(8, 8, 1)), nn.Sequential(Block(8, 16, 2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Conv1D(nn.Module):
    """As in transformers: the inputs are the first axis, and the shape is computed."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf) / nx ** 0.5), nn.Parameter(torch.randn(nf) / 9)

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x.size()[:-1] + (self.nf,))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.n_head, self.split_size = heads, width
        self.c_attn, self.c_proj = Conv1D(3 * width, width), Conv1D(width, width)

    def forward(self, x):
        q, k, v = (y.view(*y.shape[:2], self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).split(self.split_size, 2))
        if x.shape[0] == 0:  # which cannot be traced
            raise ValueError("no samples")
        y = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0))))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj, self.act = Conv1D(4 * width, width), Conv1D(width, 4 * width), NewGELU()

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x, cache=None):
        if x.sum() > 1e9:  # which cannot be traced
            return x
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, width=96, heads=6):
        super().__init__()
        self.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(2))

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x


class Dense(nn.Module):
    """Parts of BERT in transformers: a linear layer, and what is done behind it."""

    def __init__(self, a, b, function):
        super().__init__()
        self.dense, self.LayerNorm, self.function = nn.Linear(a, b), nn.LayerNorm(b), function

    def forward(self, *x):
        return self.function(self, self.dense(x[0]), *x[1:])


class BertSelf(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.num_attention_heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        q, k, v = (part(x).view(*x.shape[:2], self.num_attention_heads, -1).transpose(1, 2)
                   for part in (self.query, self.key, self.value))
        return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


class Bert(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.attention = nn.ModuleDict({"self": BertSelf(width, heads), "output": Dense(width, width, self.add)})
        self.intermediate = Dense(width, 4 * width, lambda part, y: F.gelu(y))
        self.output = Dense(4 * width, width, self.add)

    @staticmethod
    def add(part, y, x):
        return part.LayerNorm(y + x)

    def forward(self, x):
        x = self.attention["output"](self.attention["self"](x), x)
        return self.output(self.intermediate(x), x)


class Torch(nn.Module):
    """A block of torch.nn, attention, and a layer around it."""

    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.attention = nn.MultiheadAttention(32, 8, batch_first=True, kdim=16, vdim=16, add_bias_kv=True)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.block(x)
        return self.fc(self.attention(x, x[..., :16], x[..., :16])[0])


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(8, 20), nn.Linear(8, 20), nn.Linear(20, 8)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def chain(*between, out=None):
    """Two linear layers of 12 neurons with something between them."""
    return nn.Sequential(nn.Linear(5, 12), *between, out or nn.Linear(12, 3))


class Called(nn.Module):
    """Two linear layers, called by a function."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.c, self.function = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12), function

    def forward(self, x):
        return self.function(self, x)


def makers(layers):
    return [sorted({s.name.rpartition(".")[0] for s in layer.slices if not s.reads}) for layer in layers]


def readers(layers):
    return [s.name for layer in layers for s in layer.slices if s.reads]


def sparsify(model, text, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return optimizer, Sparsify(model, optimizer, text, **{"total_steps": 4, **options})


def train(model, x, optimizer, sparse, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        sparse.step()
        losses.append(loss.item())
    return losses


class Finding(unittest.TestCase):
    def test_lenet(self):
        layers = find_layers(LeNet(), "channels")
        self.assertEqual(readers(layers), ["conv2.weight", "fc1.weight", "fc2.weight", "fc3.weight"])
        self.assertEqual([layer.units for layer in layers], [6, 16, 120, 84])
        self.assertEqual(layers[1].slices, (UnitSlice("conv2.weight", 0, 1, 1, True), UnitSlice("conv2.bias", 0),
                                            UnitSlice("fc1.weight", 1, 1, 25, True, True)))

    def test_residual_networks_have_inner_channels_only(self):
        layers = find_layers(ResNet(), "units")
        self.assertEqual(makers(layers), [["layer1.0.bn1", "layer1.0.conv1"], ["layer2.0.bn1", "layer2.0.conv1"]])
        self.assertEqual([s.name for s in layers[0].slices if s.scored], ["layer1.0.bn1.weight", "layer1.0.conv2.weight"])
        self.assertEqual([s.name.rpartition(".")[2] for s in layers[0].slices],
                         ["weight", "weight", "bias", "running_mean", "running_var", "weight"])
        self.assertEqual(sum(layer.units for layer in find_layers(parse_model("resnet20").build(0), "channels")), 336)
        bottlenecks = find_layers(parse_model("resnet50:width=4").build(0), "channels")
        self.assertEqual((len(bottlenecks), bottlenecks[0].units), (32, 4))

    def test_transformers(self):
        layers = find_layers(GPT2(), "units")
        self.assertEqual(readers(layers), ["h.0.mlp.c_proj.weight", "h.1.mlp.c_proj.weight", "h.0.attn.c_proj.weight",
                                           "h.1.attn.c_proj.weight"])
        self.assertEqual(layers[3], UnitLayer(6, (UnitSlice("h.1.attn.c_attn.weight", 1, 3, 16, True),
                                                  UnitSlice("h.1.attn.c_attn.bias", 0, 3, 16),
                                                  UnitSlice("h.1.attn.c_proj.weight", 0, 1, 16, True, True)), True))
        layers = find_layers(Torch(), "units")
        self.assertEqual([(layer.units, layer.fixed) for layer in layers], [(64, False), (4, True), (8, True)])
        self.assertEqual([(s.name, s.axis, s.parts, s.length, s.scored) for s in layers[2].slices], [
            ("attention.q_proj_weight", 0, 1, 4, False), ("attention.k_proj_weight", 0, 1, 4, False),
            ("attention.v_proj_weight", 0, 1, 4, True), ("attention.in_proj_bias", 0, 3, 4, False),
            ("attention.bias_k", 2, 1, 4, False), ("attention.bias_v", 2, 1, 4, False),
            ("attention.out_proj.weight", 1, 1, 4, True)])
        for name, layers, heads in (("gpt2-small:layers=2,width=64,heads=4", 2, 4), ("bert-small:layers=2", 3, 8)):
            found = find_layers(parse_model(name).build(99), "units")
            self.assertEqual([layer.units for layer in found if layer.fixed], [heads] * 2)
            self.assertEqual(len({*readers(found)}), layers + 2)  # of BERT also the pooler

    def test_gates_and_activations_of_several_steps(self):
        layer, = find_layers(Gated(), "channels")
        self.assertEqual([s.name for s in layer.slices if s.scored], ["gate_proj.weight", "up_proj.weight", "down_proj.weight"])
        for between in ((nn.ReLU(),), (nn.Dropout(0.1), nn.GELU()), (nn.BatchNorm1d(12), nn.Tanh()), (NewGELU(),)):
            self.assertEqual(readers(find_layers(chain(*between), "channels")), [f"{len(between) + 1}.weight"])
        pooled = nn.Sequential(nn.Conv1d(2, 6, 3), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 3))
        layer, = find_layers(pooled, "channels")
        self.assertEqual([s.length for s in layer.slices], [1, 1, 2, 2, 2, 2, 2])

    def test_what_else_reads_the_units_means_no_layer(self):
        shared = nn.Linear(12, 12)
        for name, model in (
                ("norm", chain(nn.LayerNorm(12))), ("softmax", chain(nn.Softmax(-1))),
                ("prelu", chain(nn.PReLU(12))), ("flatten of tokens", chain(nn.Flatten(1))),
                ("pool over neurons", nn.Sequential(nn.Linear(5, 12), nn.AvgPool1d(3, 1, 1), nn.Linear(12, 3))),
                ("reader of pixels", nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(8, 3))),
                ("groups", nn.Sequential(nn.Conv2d(8, 8, 3, groups=4), nn.ReLU(), nn.Conv2d(8, 2, 3))),
                ("shared", nn.Sequential(shared, nn.ReLU(), shared)),
                ("sum", Called(lambda m, x: m.b(x + m.a(x)))), ("two", Called(lambda m, x: m.b(m.a(x)) + m.c(m.a(x)))),
                ("readers", Called(lambda m, x: (lambda y: m.b(y) + m.c(y))(m.a(x)))),
                ("sum of layers", Called(lambda m, x: m.c(m.a(x) + m.b(x)))),
                ("output", Called(lambda m, x: (lambda y: (y, m.b(y)))(m.a(x)))),
                ("weights", Called(lambda m, x: m.b(m.a(x)) @ m.a.weight)),
                ("constant", Called(lambda m, x: m.b(m.a(x) * m.c.bias))),
                ("rows of channels", nn.Sequential(nn.Conv2d(1, 4, 3), Called(lambda m, x: x.view(x.size(0) * 4, -1)), nn.Linear(16, 2))),
                ("one sample", nn.Sequential(nn.Conv2d(1, 4, 3), Called(lambda m, x: x.view(4, -1)), nn.Linear(16, 2))),
                ("mean", Called(lambda m, x: m.b(m.a(x).mean(1, keepdim=True)))),
                ("index", Called(lambda m, x: m.b(m.a(x)[..., [0] * 12]))),
                ("pool across channels", nn.Sequential(nn.Conv2d(3, 8, 3), nn.AvgPool3d((3, 1, 1), 1, (1, 0, 0)), nn.Conv2d(8, 2, 3))),
                ("infinity", Called(lambda m, x: m.b(1 / m.a(x)))), ("quotient", Called(lambda m, x: m.b(m.a(x) / m.c(x)))),
                ("root", Called(lambda m, x: m.b(torch.abs(m.a(x)) ** 0.5))),
                ("only in training", Called(lambda m, x: (lambda y: (m.b(y), m.c(y)) if m.training else m.b(y))(m.a(x)))),
                ("only in evaluation", Called(lambda m, x: (lambda y: m.b(y) if m.training else (m.b(y), y))(m.a(x))))):
            self.assertEqual(find_layers(model, "channels"), [], name)
        tied = chain(nn.ReLU())
        tied.extra = nn.Linear(5, 12)
        tied.extra.weight = tied[0].weight
        self.assertEqual(find_layers(tied, "channels"), [])
        for same in (lambda m, x: m.b(torch.relu(m.a(x)) * 2), lambda m, x: m.b(m.a(x) ** 2 / 3)):
            self.assertEqual(len(find_layers(Called(same), "channels")), 1)

    def test_activations_of_blocks(self):
        for activation, count in (("gelu", 1), (nn.SiLU(), 1), (lambda x: F.softmax(x, -1), 0), (nn.Softmax(-1), 0)):
            block = nn.TransformerEncoderLayer(8, 2, 16, activation=activation)
            self.assertEqual(len(find_layers(block, "channels")), count)

    def test_what_else_uses_a_block(self):
        class Around(nn.Module):
            def __init__(self, function):
                super().__init__()
                self.block, self.function = nn.TransformerEncoderLayer(8, 2, 16), function

            def forward(self, x):
                return self.function(self.block, x)

        uses = {"nothing": (lambda block, x: block(x), 1), "a call": (lambda block, x: block(x).sum() + block.linear1(x).sum(), 0),
                "its weights": (lambda block, x: block(x).sum() + block.linear2.weight.sum(), 0)}
        for name, (function, count) in uses.items():
            self.assertEqual(len(find_layers(Around(function), "channels")), count, name)
        hooked, replaced = Around(uses["nothing"][0]), Around(uses["nothing"][0])
        hooked.block.linear1.register_forward_hook(lambda module, x, y: y.flip(-1))
        replaced.block.linear1 = nn.Sequential(nn.Linear(8, 16))
        for model in hooked, replaced:
            self.assertEqual(find_layers(model, "channels"), [])

    def test_optional_arguments(self):
        class Labeled(Called):
            def forward(self, x, labels=None, scale=1, mask=None):
                y = self.a(x)
                if labels is None and self.function:
                    return y
                return self.b(y)

        self.assertEqual(find_layers(Labeled(True), "channels"), [])
        self.assertEqual(len(find_layers(Labeled(False), "channels")), 1)

        class Required(Called):
            def forward(self, x, other=None):
                return self.b(self.a(x)) + other.sum()

        self.assertEqual(len(find_layers(Required(None), "channels")), 1)

        class Open(Called):  # as layers of transformers, which have a wrapper around forward()
            def forward(self, x, **options):
                return self.b(self.a(x, **options))

            inner = forward

            @functools.wraps(inner)
            def forward(self, *arguments, **options):
                return self.inner(*arguments, **options)

        self.assertEqual(len(find_layers(Open(None), "channels")), 1)

    def test_hooks_may_read_the_units(self):
        for i in (0, 1, 2):
            model = chain(nn.Sequential(nn.ReLU()))
            model[i].register_forward_hook(lambda module, x, y: None)
            self.assertEqual(find_layers(model, "channels"), [])
        model = nn.Sequential(chain(nn.ReLU()), nn.LayerNorm(3))
        model[0].register_forward_hook(lambda module, x, y: None)  # which gets what the reader returns
        self.assertEqual(readers(find_layers(model, "channels")), ["0.2.weight"])

    def test_a_convolution_with_the_name_of_a_linear_layer(self):
        named = type("Conv1D", (nn.Conv1d,), {})
        self.assertEqual(find_layers(nn.Sequential(named(3, 6, 3), nn.ReLU(), named(6, 6, 3)), "channels"), [])

    def test_code_that_calls_the_parts_of_a_sequential(self):
        def forward(self, x):
            if x.sum() > 1e9:  # which cannot be traced
                return x
            values = []
            for part in self.parts:
                x = part(x)
                values.append(x)
            return values

        model = Called(forward)
        model.parts = chain(nn.ReLU())
        self.assertEqual(find_layers(model, "channels"), [])
        model.parts = nn.ModuleList([chain(nn.ReLU()), chain(nn.ReLU())])
        self.assertEqual(len(find_layers(model, "channels")), 2)

    def test_weights_that_code_around_a_part_uses(self):
        model = Called(lambda m, x: m.block(x) @ m.block.mlp.c_fc.weight)
        model.block = GPT2Block(24, 2)
        self.assertEqual(find_layers(model, "channels"), [])

    def test_a_graph_around_knows_more(self):
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.block, self.fc = GPT2Block(24, 2), nn.Linear(96, 24)

            def forward(self, x):
                return self.block(x) + self.fc(self.block.mlp.c_fc(x))  # a second layer that reads the neurons

        self.assertEqual(len(find_layers(GPT2Block(24, 2), "channels")), 1)
        self.assertEqual(find_layers(Outer(), "channels"), [])

    def test_the_model_is_as_before(self):
        def forward(self, x):
            self.seen, self.count = x, getattr(self, "count", 0) + 1
            self.outputs.append(x)
            self.steps.add_(1)
            return self.b(torch.relu(self.a(x))) * torch.rand(1)

        model = Called(forward)
        model.outputs = []
        model.register_buffer("steps", torch.zeros(1))
        model.b.eval()
        before, random = dict(model.__dict__), torch.get_rng_state()
        self.assertEqual(len(find_layers(model, "channels")), 1)
        self.assertEqual(model.__dict__, before)
        self.assertEqual((model.outputs, model.steps.item()), ([], 0))
        self.assertEqual([m.training for m in (model, model.a, model.b)], [True, True, False])
        self.assertTrue(torch.equal(torch.get_rng_state(), random))

    def test_blocks_that_are_used_twice(self):
        model = GPT2()
        model.h[1] = model.h[0]
        self.assertEqual(find_layers(model, "units"), [])
        model = GPT2()
        model.h[1].mlp.c_proj = model.h[0].mlp.c_proj
        self.assertEqual(find_layers(model, "channels"), [])

    def test_frozen_and_skipped_ones_stay(self):
        model = LeNet()
        model.fc2.bias.requires_grad = False
        self.assertEqual(readers(find_layers(model, "channels", ["conv1."])), ["fc1.weight", "fc2.weight"])

    def test_heads_need_a_number(self):
        model = nn.Module()
        model.q_proj, model.k_proj, model.v_proj, model.o_proj = (nn.Linear(8, 8) for _ in range(4))
        with self.assertRaisesRegex(ValueError, "no attribute num_heads.*o_proj"):
            find_layers(model, "units")
        self.assertEqual(find_layers(model, "units", ["o_proj"]), [])
        model.num_heads = 2
        self.assertEqual([layer.units for layer in find_layers(model, "heads")], [2])
        model.k_proj, model.v_proj = nn.Linear(8, 4), nn.Linear(8, 4)  # fewer heads of keys and values
        self.assertEqual(find_layers(model, "heads"), [])


class Pruning(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.program = os.environ.get("FRUGRAD")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def compare_with_program(self, model, commands, changed):
        """Sparsify a model, and run a program's commands on a file of it: both change the same tensors alike."""
        if not self.program:
            self.skipTest("no program")
        path = self.folder / "0.safetensors"
        write_safetensors(path, floats_of(model))
        for i, command in enumerate(commands):
            after = self.folder / f"{i + 1}.safetensors"
            words = [str({"IN": path, "OUT": after}.get(word, word)) for word in command.split()]
            ran = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            path = after if after.is_file() else next(after.iterdir())
        sparsify(model, "units:density=0.6,from=0,until=0")
        wanted, found = read_safetensors(path), floats_of(model)
        for name in (name for name in found if "running" not in name):
            torch.testing.assert_close(found[name], wanted[name], rtol=1e-5, atol=0, msg=name)  # zeros exactly
            self.assertEqual(bool((found[name] == 0).any()), name.startswith(changed), name)

    def test_lenet(self):
        self.compare_with_program(
            LeNet(), ["train --model lenet --data builtin --threads 1 --workers 1 --batch 4 --steps 1 --no-eval --quiet"
                      " --rate 1e-12 --sparse channels:density=0.6,from=0,until=0 --weights IN --save OUT"],
            ("conv1.", "conv2.", "fc1.", "fc2.", "fc3.weight"))

    def test_residual_network(self):
        model = parse_model("resnet20").build(0)
        for p in model.parameters():
            nn.init.normal_(p)
        changed = tuple(f"layer{i}.{j}.{part}" for i in (1, 2, 3) for j in (0, 1, 2) for part in ("conv", "bn1"))
        self.compare_with_program(model, ["prune IN --sparsity 0.4 --units channels --keep-shapes -o OUT"], changed)

    def test_gpt2(self):
        model = GPT2()
        for p in model.parameters():
            nn.init.normal_(p)
        prune = "prune IN --sparsity 0.4 --keep-shapes -o OUT --model gpt2:layers=2,width=96,heads=6 --units "
        changed = ("attn.c_attn", "attn.c_proj.weight", "mlp.c_fc", "mlp.c_proj.weight")
        self.compare_with_program(model, [prune + "channels", prune + "heads"],
                                  tuple(f"h.{i}.{part}" for i in (0, 1) for part in changed))

    def test_bert(self):
        model = Bert()
        for p in model.parameters():
            nn.init.normal_(p)
        prune = "prune IN --sparsity 0.4 --keep-shapes -o OUT --model bert-mini:layers=1,width=24,heads=3 --units "
        self.compare_with_program(model, [prune + "channels", prune + "heads"],
                                  ("attention.self", "attention.output.dense.weight", "intermediate.dense", "output.dense.weight"))

    def test_counts_follow_the_schedule_and_units_stay_pruned(self):
        model, x = chain(nn.ReLU()), torch.randn(9, 5)
        optimizer, sparse = sparsify(model, "channels:density=0.25,from=0.25,until=0.75,updates=2", total_steps=8)
        layer, counts, before = sparse.unit_layers[0], [], torch.ones(12, dtype=torch.bool)
        for _ in range(8):
            train(model, x, optimizer, sparse, 1)
            kept = unpruned(layer, dict(model.named_parameters()), sparse.masks)
            self.assertFalse(bool((kept & ~before).any()))
            counts.append(int(kept.sum()))
            before = kept
            for rows in (model[0].weight, model[0].bias, model[2].weight.t()):
                self.assertEqual(int(rows.detach()[~kept].count_nonzero()), 0)
        self.assertEqual(counts, [12, 12, 12, 4, 4, 3, 3, 3])
        self.assertEqual(sparse.masks["0.bias"].tolist(), before.tolist())

    def test_a_pruned_unit_is_not_selected_again(self):
        layer = UnitLayer(4, (UnitSlice("a", 0, scored=True), UnitSlice("b", 1, scored=True, reads=True)))
        masks = {"a": torch.tensor([False, True, True, True]), "b": torch.tensor([False, True, True, True])}
        tensors = {"a": torch.zeros(4, 1), "b": torch.zeros(1, 4)}  # all are as important
        changed = prune([layer], tensors, masks, 0.5)
        self.assertEqual([mask.tolist() for mask in changed.values()], [[False, True, True, False]] * 2)

    def test_states_of_pruned_units_are_zero(self):
        model, x = chain(nn.ReLU()), torch.randn(9, 5)
        optimizer, sparse = sparsify(model, "channels:from=0.5,until=0.5")
        train(model, x, optimizer, sparse, 2)
        for name, mask in sparse.masks.items():
            state = optimizer.state[dict(model.named_parameters())[name]]["momentum_buffer"].flatten()
            self.assertEqual(int(state[~mask].count_nonzero()), 0)
            self.assertGreater(int(state[mask].count_nonzero()), 0)
            self.assertEqual(int(mask.sum()), mask.numel() // 2)

    def test_at_least_one_stays_and_norms_are_not_restored(self):
        model = chain(nn.ReLU())
        weights = model[0].weight.detach().clone()
        sparsify(model, "channels:density=0.001,from=0,until=0")
        kept = model[0].weight.detach().abs().sum(1) > 0
        self.assertEqual(int(kept.sum()), 1)
        self.assertTrue(torch.equal(model[0].weight.detach()[kept], weights[kept]))

    def test_what_cannot_be_pruned(self):
        lazy = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LazyLinear(4))
        with self.assertRaisesRegex(ValueError, "call the model once"):
            sparsify(lazy, "channels")
        lazy(torch.zeros(1, 6))
        sparsify(lazy, "channels")
        with self.assertRaisesRegex(ValueError, "no parameter of this model"):
            Sparsify(chain(), torch.optim.SGD(lazy.parameters(), lr=0.1), "channels", total_steps=4)

    def test_units_that_are_given(self):
        model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4))
        with self.assertRaisesRegex(ValueError, "units="):
            sparsify(model, "channels")
        with self.assertRaisesRegex(ValueError, "heads: the model has no attention"):
            sparsify(chain(nn.ReLU()), "heads")
        _, sparse = sparsify(model, "channels:from=0,until=0", units=[("0", model[2])])
        self.assertEqual({name: int(mask.sum()) for name, mask in sparse.masks.items()}, {"0.weight": 24, "0.bias": 4, "2.weight": 16})
        _, sparse = sparsify(model, "heads:from=0,until=0", units=[("0", "2", 4)])
        self.assertEqual(sparse.unit_layers[0].slices[0], UnitSlice("0.weight", 0, 1, 2, True))
        _, sparse = sparsify(model, "heads:from=0,until=0", units=sparse.unit_layers)
        for wrong in (["0"], ["0", "1", "2"], ["0", "nothing"], ["2", "0"], [4, "0", "2"], ["0", "2", 3], ["0", "2", 4, 4],
                      ["0", "2", -4], ["0", "2", 0]):
            with self.assertRaises(ValueError):
                sparsify(model, "channels", units=[tuple(wrong)])
        for wrong in ("0", UnitLayer(8, (UnitSlice("0.weight", 0),)), UnitLayer(8, (UnitSlice("2.weight", 1, 2, reads=True),)),
                      UnitLayer(8, (UnitSlice("0.nothing", 0), UnitSlice("2.weight", 1, reads=True)))):
            with self.assertRaisesRegex(ValueError, "units="):
                sparsify(model, "channels", units=[wrong])
        with self.assertRaisesRegex(ValueError, "0.weight has the units of 2 layers"):
            sparsify(model, "channels", units=[("0", "2"), ("0", "2")])
        model[2].weight.requires_grad = False
        with self.assertRaisesRegex(ValueError, "no trainable parameter '2.weight'"):
            sparsify(model, "channels", units=[("0", "2")])
        model[2].weight.requires_grad = True
        with self.assertRaisesRegex(ValueError, "units= is for channels"):
            sparsify(model, "magnitude", units=[("0", "2")])


class Removal(unittest.TestCase):
    def smaller(self, model, x, text="channels:density=0.5,from=0,until=0"):
        """Train a model, and remove its pruned units: its output stays."""
        optimizer, sparse = sparsify(model, text)
        train(model, x, optimizer, sparse, 4)
        model.eval()
        with torch.no_grad():
            before, count = model(x), sum(p.numel() for p in model.parameters())
            removed = sparse.remove_units()
            self.assertLess(sum(p.numel() for p in model.parameters()), count)
            self.assertGreater(removed, 0)
            torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
        return sparse

    def test_the_output_is_the_same(self):
        torch.manual_seed(0)
        for model, x in ((LeNet(), torch.randn(4, 1, 28, 28)), (ResNet(), torch.randn(4, 3, 16, 16)),
                         (GPT2(), torch.randn(2, 5, 96)), (Gated(), torch.randn(4, 8)), (Torch(), torch.randn(2, 5, 32)),
                         (nn.Sequential(nn.ConvTranspose2d(3, 8, 3), nn.BatchNorm2d(8, affine=False), nn.Conv2d(8, 2, 3)),
                          torch.randn(2, 3, 6, 6))):
            self.smaller(model, x)
        lenet = LeNet()
        self.smaller(lenet, torch.randn(4, 1, 28, 28))
        self.assertEqual((lenet.conv1.out_channels, lenet.conv2.in_channels, lenet.conv2.out_channels), (3, 3, 8))
        self.assertEqual((lenet.fc1.in_features, lenet.fc1.out_features, lenet.fc3.in_features), (200, 60, 42))

    def test_a_number_in_the_code_keeps_the_channels(self):
        model = Called(lambda m, x: m.c(m.b(F.relu(m.a(x))).view(-1, 40)))
        model.a, model.b, model.c = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 10, 3), nn.Linear(40, 2)
        sparse = self.smaller(model, torch.randn(3, 1, 6, 6))
        self.assertEqual([(layer.units, layer.fixed) for layer in sparse.unit_layers], [(4, False), (10, True)])
        self.assertEqual(int((model.c.weight != 0).sum()), 40)

        for function in (lambda m, x: m.c(m.a(x).flatten(1) * m.b(x).view(-1, 128)),
                         lambda m, x: (lambda y: m.c(y.flatten(1)) / y.shape[1])(m.a(x) * m.b(x))):
            model = Called(function)
            model.a, model.b, model.c = nn.Conv2d(1, 8, 3), nn.Conv2d(1, 8, 3), nn.Linear(128, 2)
            self.assertEqual([layer.fixed for layer in find_layers(model, "channels")], [True])

    def test_sizes_that_are_not_the_number_of_channels(self):
        for function in (lambda x: x.shape[0], lambda x: x.size(-1), lambda x: x.shape[-2:][0], lambda x: x.shape[2:][0],
                         lambda x: x.dim(), lambda x: (lambda n, c, h, w: h)(*(x.shape[i] for i in range(4)))):
            model = Called(lambda m, x: (lambda y: m.b(y) * function(y))(m.a(x)))
            model.a, model.b = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 2, 3)
            self.assertEqual([layer.fixed for layer in find_layers(model, "channels")], [False])
        for function in (lambda x: x.shape[1], lambda x: x.size(-3), lambda x: x.shape[1:][0], lambda x: x.shape[:2][1],
                         lambda x: x.numel(), lambda x: x.shape.numel()):
            model = Called(lambda m, x: (lambda y: m.b(y) * function(y))(m.a(x)))
            model.a, model.b = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 2, 3)
            self.assertEqual([layer.fixed for layer in find_layers(model, "channels")], [True])

    def test_heads_stay_as_zeros(self):
        model = GPT2()
        sparse = self.smaller(model, torch.randn(2, 5, 96), "units:density=0.5,from=0,until=0")
        self.assertEqual((model.h[0].mlp.c_fc.nf, tuple(model.h[0].attn.c_attn.weight.shape)), (192, (96, 288)))
        self.assertEqual([layer.units for layer in sparse.unit_layers], [192, 192, 6, 6])
        self.assertEqual(int((model.h[0].attn.c_attn.weight.abs().sum(0) > 0).sum()), 144)

    def test_training_continues(self):
        for make in (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=1e-2)):
            torch.manual_seed(0)
            model, x = ResNet(), torch.randn(8, 3, 12, 12)
            other = copy.deepcopy(model)
            losses = []
            for each, removes in ((model, False), (other, True)):
                optimizer = make(each.parameters())
                sparse = Sparsify(each, optimizer, "channels:until=0.3,updates=2", total_steps=12)
                train(each, x, optimizer, sparse, 6)
                if removes:
                    self.assertEqual(sparse.remove_units(), 12)
                losses.append(train(each, x, optimizer, sparse, 6))
            torch.testing.assert_close(*map(torch.tensor, losses), rtol=2e-3, atol=1e-5)
            self.assertEqual(tuple(other.layer2[0].conv2.weight.shape), (16, 8, 3, 3))

    def test_a_loss_of_before_that_is_still_there(self):
        for dtype in (torch.float32, torch.float64):
            model, x = chain(nn.ReLU()).to(dtype), torch.randn(4, 5, dtype=dtype)
            optimizer, sparse = sparsify(model, "channels:from=0,until=0")
            loss = model(x).sum()
            loss.backward()
            same = [id(p) for p in model.parameters()]
            sparse.remove_units()
            train(model, x, optimizer, sparse, 1)
            self.assertEqual([id(p) for p in model.parameters()], same)
            self.assertEqual((model[0].weight.grad.shape, model[0].weight.dtype), ((6, 5), dtype))

    def test_states_of_other_shapes_are_refused(self):
        model = chain(nn.ReLU())
        optimizer, sparse = sparsify(model, "channels:from=0,until=0")
        optimizer.state[model[0].weight] = {"row": torch.zeros(12, 1)}
        with self.assertRaisesRegex(ValueError, "row of SGD has shape"):
            sparse.remove_units()
        optimizer.state.clear()
        self.assertEqual(sparse.remove_units(), 6)

    def test_a_checkpoint_of_the_whole_model(self):
        model, x = ResNet(), torch.randn(4, 3, 12, 12)
        optimizer, sparse = sparsify(model, "channels")
        train(model, x, optimizer, sparse, 4)
        again = ResNet()
        _, loaded = sparsify(again, "channels")
        again.load_state_dict(model.state_dict())
        loaded.load_state_dict(sparse.state_dict())
        self.assertEqual(loaded.remove_units(), 12)
        torch.testing.assert_close(again.eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)

    def test_the_program_removes_heads_from_a_file(self):
        program, model = os.environ.get("FRUGRAD"), GPT2()
        if not program:
            self.skipTest("no program")
        sparsify(model, "units:from=0,until=0")
        with tempfile.TemporaryDirectory() as folder:
            whole, small = (Path(folder) / f"{name}.safetensors" for name in ("whole", "small"))
            write_safetensors(whole, floats_of(model))
            ran = subprocess.run([program, "prune", whole, "--units", "zeros", "--model", "gpt2:layers=2,width=96,heads=6",
                                  "-o", small], capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            shapes = {name: tuple(tensor.shape) for name, tensor in read_safetensors(small).items()}
        self.assertEqual((shapes["h.1.attn.c_attn.weight"], shapes["h.1.attn.c_proj.weight"], shapes["h.1.mlp.c_fc.weight"]),
                         ((96, 144), (48, 96), (96, 192)))

    def test_not_before_the_last_update(self):
        model = chain(nn.ReLU())
        _, sparse = sparsify(model, "channels")
        with self.assertRaisesRegex(ValueError, "after the last update of masks at step 2"):
            sparse.remove_units()
        _, sparse = sparsify(model, "magnitude:from=0,until=0")
        with self.assertRaisesRegex(ValueError, "is for channels"):
            sparse.remove_units()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
