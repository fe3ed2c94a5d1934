"""Roles, heads and names of parameters are found from a model's modules."""

import unittest

import support

torch = support.need("torch")
import torch.nn as nn  # noqa: E402

from frugrad.torch.roles import describe  # noqa: E402


class Conv1D(nn.Module):
    """As transformers has it for GPT-2: weights are stored input first."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(inputs, outputs)), nn.Parameter(torch.zeros(outputs))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads, self.num_key_value_heads = 8, 2
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(32, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.o_proj = nn.Linear(32, 32)


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_head = 4
        self.c_attn = Conv1D(16, 48)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.conv, self.norm = nn.Embedding(9, 4), nn.Conv2d(1, 2, 3), nn.LayerNorm(4)
        self.mha, self.llama, self.gpt = nn.MultiheadAttention(16, 4), Attention(), Gpt2()
        self.head = nn.Linear(4, 9)
        self.head.weight = self.embed.weight  # shared: counts where it is seen first
        self.scale = nn.Parameter(torch.ones(3, 3))


class Roles(unittest.TestCase):
    def setUp(self):
        model = Model()
        found = describe(model)
        self.found = {name: found[id(p)] for name, p in model.named_parameters()}

    def test_every_parameter_has_its_name_and_shape(self):
        model = Model()
        found = describe(model)
        self.assertEqual(len(found), len(list(model.parameters())))
        for name, parameter in model.named_parameters():
            self.assertEqual((found[id(parameter)].name, found[id(parameter)].shape), (name, tuple(parameter.shape)))

    def test_roles_follow_types_and_names(self):
        for name, role in (("embed.weight", "embedding"), ("conv.weight", "conv"), ("norm.weight", "norm"),
                           ("norm.bias", "bias"), ("head.bias", "bias"), ("scale", "other"),
                           ("mha.in_proj_weight", "attn_qkv"), ("mha.in_proj_bias", "bias"),
                           ("mha.out_proj.weight", "attn_o"), ("llama.q_proj.weight", "attn_q"),
                           ("llama.k_proj.weight", "attn_k"), ("llama.v_proj.weight", "attn_v"),
                           ("llama.o_proj.weight", "attn_o"), ("gpt.c_attn.weight", "attn_qkv")):
            self.assertEqual(self.found[name].role, role, name)

    def test_attention_has_heads_and_a_number_of_its_own(self):
        llama, mha, gpt = (self.found[n] for n in ("llama.k_proj.weight", "mha.out_proj.weight", "gpt.c_attn.weight"))
        self.assertEqual((llama.heads, llama.kv_heads, mha.heads, gpt.heads), (8, 2, 4, 4))
        self.assertEqual(len({llama.module, mha.module, gpt.module} - {0}), 3)
        self.assertEqual(llama.module, self.found["llama.o_proj.weight"].module)
        self.assertTrue(gpt.input_first)
        self.assertFalse(llama.input_first)


if __name__ == "__main__":
    unittest.main()
