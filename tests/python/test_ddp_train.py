"""A small network on real images learns through the hook as with dense gradients, at a fraction of the bytes."""

import unittest

import support
from ddp_helpers import RANK, batch, begin, fashion, flat, mlp, nn, torch, wrap

import frugrad.torch
from frugrad.torch import DDPState

STEPS = 100


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
                         nn.ReLU(), nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def held_out_loss(model, ddp, optimizer):
    images, labels = fashion("train", 4096)
    draw = torch.Generator().manual_seed(RANK)
    for _ in range(STEPS):
        pick = torch.randint(0, len(images), (16,), generator=draw)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(images[pick]), labels[pick]).backward()
        optimizer.step()
    images, labels = fashion("t10k", 1000)
    with torch.no_grad():
        return nn.functional.cross_entropy(model(images), labels).item()


def dense_and_hook():
    """Loss on images that were not seen, of both; and bytes against dense."""
    begin()
    dense = network()
    without = held_out_loss(dense, wrap(dense, bucket_cap_mb=0.2), sgd(dense))
    model = network()
    ddp = wrap(model, bucket_cap_mb=0.2)
    optimizer = frugrad.torch.optimizer(model, sgd(model))
    state = DDPState(model, "frugrad", optimizer, total_steps=STEPS)
    ddp.register_comm_hook(state, frugrad.torch.hook)
    return [without, held_out_loss(model, ddp, optimizer), state.stats()["ratio"]]


def muon_and_hook():
    """Losses at the start and at the end with torch.optim.Muon for the matrix of the body and AdamW for the rest."""
    begin()
    model = mlp()
    body = [model[2].weight]
    rest = [p for p in model.parameters() if p is not body[0]]
    muon = torch.optim.Muon(body, lr=4e-3, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(rest, lr=4e-3)
    both = [frugrad.torch.optimizer(model, each) for each in (muon, adam)]
    state = DDPState(model, "frugrad", both, total_steps=STEPS)
    ddp, losses = wrap(model, state), []
    for step in range(STEPS):
        x, y = batch(step)
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return [state.config.option("hold"), sum(losses[:10]) / 10, sum(losses[-10:]) / 10, float(flat(model).sum())]


class Training(unittest.TestCase):
    @unittest.skipUnless(hasattr(torch.optim, "Muon"), "this PyTorch has no torch.optim.Muon")
    def test_muon_of_torch_learns(self):
        results = support.values(support.torchrun(2, muon_and_hook))
        for hold, first, last, _ in results:
            self.assertEqual(hold, "adam")
            self.assertLess(last, 0.6 * first)
        self.assertEqual(results[0][3], results[1][3])  # the same weights on all ranks

    def check(self, ranks):
        fashion("t10k", 1)
        results = support.values(support.torchrun(ranks, dense_and_hook))
        for dense, hooked, ratio in results:
            self.assertLess(dense, 0.9)
            self.assertLess(hooked, dense + 0.05)
            self.assertGreater(ratio, 8)
        self.assertEqual(results, [results[0]] * ranks)

    def test_two_ranks_learn_as_with_dense_gradients(self):
        self.check(2)

    def test_three_ranks_learn_as_with_dense_gradients(self):
        self.check(3)


if __name__ == "__main__":
    unittest.main()
