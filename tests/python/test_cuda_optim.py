"""SGC and StreamingOptimizer with parameters on a GPU: the bits of the CPU, where gradients are the same numbers."""

import unittest

import support

torch = support.need("torch")
if not torch.cuda.is_available():
    raise unittest.SkipTest("no GPU")

import frugrad.torch  # noqa: E402

SHAPES = ((300, 70), (513,), (64, 3, 3, 3), (129, 128))


def given(step):
    made = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=made) for shape in SHAPES]


def parameters(device, dtype=torch.float32):
    """One of them not contiguous."""
    found = [torch.nn.Parameter((0.1 * w).to(device, dtype)) for w in given(99)]
    found[2].data = found[2].data.contiguous(memory_format=torch.channels_last)
    return found


def states(optimizer):
    return [{key: value for key, value in group["frugrad"].items()} for group in optimizer.state_dict()["param_groups"]]


def alike(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one.cpu(), other.cpu())
    if isinstance(one, dict):
        return all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return all(map(alike, one, other))
    return one == other


class OnAGPU(unittest.TestCase):
    def sgc(self, device, dtype, **options):
        params = parameters(device, dtype)
        optimizer = frugrad.torch.SGC(params, lr=1e-2, min_size=4096, **options)
        for step in range(5):
            for p, g in zip(params, given(step)):
                p.grad = g.to(device, dtype)
            optimizer.step()
            if step == 2:  # a checkpoint that goes over the other device
                saved = optimizer.state_dict()
                optimizer = frugrad.torch.SGC(params, lr=1e-2, min_size=4096, **options)
                optimizer.load_state_dict(saved)
        return [p.detach() for p in params], states(optimizer)

    def test_sgc(self):
        for dtype in (torch.float32, torch.bfloat16):
            for variant in ("table", "mesgc", "cesgc", "adamw"):
                here = self.sgc("cpu", dtype, variant=variant, threads=2)
                there = self.sgc("cuda", dtype, variant=variant, threads=2)
                self.assertTrue(alike(list(here), list(there)), (variant, dtype))
                self.assertEqual(there[0][0].device.type, "cuda")

    def streaming(self, device, **options):
        params = parameters(device)
        optimizer = frugrad.torch.StreamingOptimizer(params, lr=1e-2, threads=2, **options)
        for step in range(5):
            sum((p * g.to(device)).sum() for p, g in zip(params, given(step))).backward()
            self.assertTrue(all(p.grad is None for p in params))
            optimizer.step()
        return [p.detach() for p in params], states(optimizer)

    def test_streaming(self):
        for kind in ("merged", "adam-merged"):
            self.assertTrue(alike(list(self.streaming("cpu", optimizer=kind)),
                                  list(self.streaming("cuda", optimizer=kind))), kind)

    def test_a_model_on_another_stream_trains(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
        x, y = torch.randn(256, 64, device="cuda"), torch.randint(0, 10, (256,), device="cuda")
        optimizer = frugrad.torch.StreamingOptimizer(model.named_parameters(), lr=0.05)
        losses, stream = [], torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(60):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertLess(losses[-1], 0.8 * losses[0])


if __name__ == "__main__":
    unittest.main()
