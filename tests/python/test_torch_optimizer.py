"""frugrad.torch.optimizer(): a usual optimizer without a second momentum, at its own rate."""

import copy
import pickle
import unittest
import warnings
from unittest import mock

import support
from ddp_helpers import batch, begin, flat, mlp, nn, torch, wrap

import frugrad.torch
from frugrad.torch.rate_gain import mean_width
from frugrad.torch import DDPState, _floats

KINDS = {"sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
         "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
         "plain": lambda p: torch.optim.SGD(p, lr=0.05),
         "adam": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=1e-2),
         "adamw": lambda p: torch.optim.AdamW(p, lr=4e-3, betas=(0.8, 0.95))}


def backward(model, step=0):
    x, y = batch(step, 0)
    nn.functional.cross_entropy(model(x), y).backward()


def steps(model, optimizer, count, scheduler=None, first=0):
    for step in range(first, first + count):
        optimizer.zero_grad()
        backward(model, step)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def groups_of(model):
    return [{"params": [model[0].weight, model[0].bias]}, {"params": list(model[2:].parameters()), "lr": 0.02}]


class Alone(unittest.TestCase):
    def test_without_compression_it_is_the_optimizer_that_was_given(self):
        for name, make in KINDS.items():
            models = [mlp(), mlp()]
            both = [make(groups_of(model)) for model in models]
            both[1] = frugrad.torch.optimizer(models[1], both[1])
            DDPState(models[1], "frugrad", both[1])
            for model, optimizer in zip(models, both):
                schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
                steps(model, optimizer, 4, schedule)
            self.assertTrue(torch.equal(flat(models[0]), flat(models[1])), name)
            self.assertEqual([group["lr"] for group in both[0].param_groups],
                             [group["lr"] for group in both[1].param_groups])

    def test_a_state_dict_of_either_can_be_loaded(self):
        for name, make in KINDS.items():
            model = mlp()
            given = make(model.parameters())
            steps(model, given, 2)
            saved, weights = copy.deepcopy(given.state_dict()), copy.deepcopy(model.state_dict())
            steps(model, given, 2, first=2)
            again = mlp()
            again.load_state_dict(weights)
            converted = frugrad.torch.optimizer(again, make(again.parameters()))
            converted.load_state_dict(saved)
            steps(again, converted, 1, first=2)
            converted.load_state_dict(copy.deepcopy(converted.state_dict()))
            steps(again, converted, 1, first=3)
            self.assertTrue(torch.equal(flat(model), flat(again)), name)

    def test_compressed_parameters_step_without_momentum_by_the_gain(self):
        # one step: SGD moves by lr / (1 - momentum) (g + decay w)
        for name, factor in (("sgd", 0.5), ("nesterov", 0.25), ("plain", 0.05)):
            model = mlp()
            optimizer = frugrad.torch.optimizer(model, KINDS[name](model.parameters()))
            state = DDPState(model, "frugrad", optimizer)
            backward(model)
            state.compressing = True
            weight, bias, decay = model[2].weight, model[2].bias, optimizer.param_groups[0]["weight_decay"]
            expected = weight - factor * (weight.grad + decay * weight)
            whole = bias - 0.05 * (bias.grad + decay * bias) * (1.8 if name == "nesterov" else 1)
            optimizer.step()
            self.assertTrue(torch.allclose(weight, expected, atol=1e-7), name)
            self.assertTrue(torch.allclose(bias, whole, atol=1e-7), name)
            self.assertIsNone(optimizer.state[weight].get("momentum_buffer"))
            self.assertEqual(optimizer.state[bias].get("momentum_buffer") is not None, name != "plain")

    def test_adam_takes_half_of_the_rate_and_its_own_decay(self):
        model = mlp()
        optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.5))
        state = DDPState(model, "frugrad", optimizer)
        backward(model)
        state.compressing = True
        weight = model[2].weight
        expected = weight * (1 - 0.5e-2) - 0.5e-2 * weight.grad.sign()
        moved = weight.grad.abs() > 1e-5
        optimizer.step()
        self.assertTrue(torch.allclose(weight[moved], expected[moved], atol=2e-5))

    def test_rates_of_pretrained_models_are_high_sooner(self):
        gains = {}
        for pretrained in False, True:
            model = mlp()
            rate = 0.08 / mean_width(p.shape for p in model.parameters())  # four times the usual rate of fine-tuning
            given = torch.optim.AdamW(model.parameters(), lr=rate)
            optimizer = frugrad.torch.optimizer(model, given, pretrained=pretrained)
            DDPState(model, "frugrad", optimizer).compressing = True
            backward(model)
            optimizer.step()
            gains[pretrained], = {group["lr"] / rate for group in optimizer.step_groups() if group["betas"][0] == 0}
        self.assertAlmostEqual(gains[False], 1.25, delta=0.02)
        self.assertAlmostEqual(gains[True], 0.5, delta=0.02)

    def test_momentum_is_dropped_when_compression_begins(self):
        model = mlp()
        optimizer = frugrad.torch.optimizer(model, KINDS["sgd"](model.parameters()))
        state = DDPState(model, "frugrad", optimizer)
        steps(model, optimizer, 2)
        self.assertIsNotNone(optimizer.state[model[2].weight]["momentum_buffer"])
        state.compressing = True
        steps(model, optimizer, 1)
        self.assertIsNone(optimizer.state[model[2].weight].get("momentum_buffer"))
        self.assertIsNotNone(optimizer.state[model[2].bias]["momentum_buffer"])

    def test_without_feedback_it_is_the_optimizer_that_was_given(self):
        models = [mlp(), mlp()]
        both = [KINDS["sgd"](model.parameters()) for model in models]
        both[1] = frugrad.torch.optimizer(models[1], both[1])
        DDPState(models[1], "frugrad,feedback=none", both[1]).compressing = True
        for model, optimizer in zip(models, both):
            steps(model, optimizer, 3)
        self.assertTrue(torch.equal(flat(models[0]), flat(models[1])))

    def test_what_cannot_be_converted_is_refused(self):
        model = mlp()
        params = list(model.parameters())
        scheduled = torch.optim.SGD(params, lr=1)
        torch.optim.lr_scheduler.StepLR(scheduled, 1)
        for given, error, why in ((torch.optim.RMSprop(params), TypeError, "RMSprop is not one"),
                                  (torch.optim.LBFGS(params), TypeError, "LBFGS is not one"),
                                  (torch.optim.Adam(params, amsgrad=True), ValueError, "amsgrad"),
                                  (scheduled, ValueError, "make it afterwards"),
                                  (params, TypeError, "an optimizer is wanted")):
            with self.assertRaisesRegex(error, why):
                frugrad.torch.optimizer(model, given)
        with self.assertRaisesRegex(TypeError, "not a generator"):
            frugrad.torch.optimizer(model.parameters(), torch.optim.SGD(params, lr=1))

    def test_the_optimizer_that_was_given_steps_no_more(self):
        model = mlp()
        given = torch.optim.SGD(model.parameters(), lr=1)
        converted = frugrad.torch.optimizer(model, given)
        self.assertIs(frugrad.torch.optimizer(model, converted), converted)
        with self.assertRaisesRegex(RuntimeError, "of what that returned"):
            given.step()
        with self.assertRaisesRegex(RuntimeError, "make the scheduler for what that returned"):
            torch.optim.lr_scheduler.StepLR(given, 1)

    def test_passes_that_are_all_exchanged_are_warned_of(self):
        for exchanges, warned in (((1, 2, 5, 6, 8, 10, 11), 0), ((2, 4, 6, 8), 1)):
            model = mlp()
            optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0))
            state = DDPState(model, "frugrad", optimizer)
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter("always")
                for state.step in exchanges:
                    optimizer.step()
            self.assertEqual(len([w for w in shown if "no_sync" in str(w.message)]), warned)

    def test_a_schedule_of_the_momentum_is_warned_of_and_leaves_nothing(self):
        for cycled, warned in ((False, 0), (True, 1)):
            model = mlp()
            optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
            DDPState(model, "frugrad", optimizer).compressing = True
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, 50, cycle_momentum=cycled)
            with warnings.catch_warnings(record=True) as shown, mock.patch.object(_floats, "_shown", set()):
                warnings.simplefilter("always")
                steps(model, optimizer, 40, schedule)
            self.assertEqual(len([w for w in shown if "cycle_momentum=False" in str(w.message)]), warned)
            self.assertLessEqual(len(optimizer._rule._asked), 16 if cycled else 1)
            group, = (group for group in optimizer.step_groups() if group["momentum"] == 0)
            given = optimizer.param_groups[0]
            self.assertAlmostEqual(group["lr"], given["lr"] / (1 - given["momentum"]), delta=1e-6 * group["lr"])

    def test_copies_are_refused(self):
        model = mlp()
        optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=1))
        for copied in copy.copy, copy.deepcopy, pickle.dumps:
            with self.assertRaisesRegex(TypeError, "use state_dict"):
                copied(optimizer)

    def test_parameters_of_another_model_and_shared_ones_are_refused(self):
        model = mlp()
        first, second = (frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=1)) for _ in range(2))
        with self.assertRaisesRegex(ValueError, "no parameter of this model: make it from model.parameters"):
            DDPState(mlp(), "frugrad", first)
        with self.assertRaisesRegex(ValueError, "in more than one optimizer"):
            DDPState(model, "frugrad", [first, second])


def trained(kind):
    """Steps with the hook, accumulation and a scheduler; the loss of each tenth, and how gradients were sent."""
    begin()
    model = mlp()
    ddp = wrap(model)
    optimizer = frugrad.torch.optimizer(model, KINDS[kind](model.parameters()))
    state = DDPState(model, "frugrad", optimizer)
    ddp.register_comm_hook(state, frugrad.torch.hook)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 60)
    losses = []
    for step in range(60):
        with ddp.no_sync():
            x, y = batch(2 * step)
            nn.functional.cross_entropy(ddp(x), y).backward()
        x, y = batch(2 * step + 1)
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    return [sum(losses[:6]) / 6, sum(losses[-6:]) / 6, state.stats()["feedback"], float(flat(model).sum())]


def stepped_by_another():
    """Warnings of a script that steps an optimizer of its own."""
    begin()
    model = mlp()
    state = DDPState(model, "frugrad", frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1)))
    ddp, other = wrap(model, state), torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for step in range(22):
            x, y = batch(step)
            nn.functional.cross_entropy(ddp(x), y).backward()
            other.step()
            other.zero_grad()
    return [str(w.message) for w in shown]


class Together(unittest.TestCase):
    def test_an_optimizer_that_is_never_stepped_is_warned_of(self):
        for shown in support.values(support.torchrun(2, stepped_by_another)):
            self.assertEqual([text for text in shown if "was never stepped" in text], shown)
            self.assertEqual(len(shown), 1)

    def test_two_ranks_learn_with_accumulation_and_a_scheduler(self):
        for kind in ("sgd", "adamw"):
            results = support.values(support.torchrun(2, trained, args=[kind]))
            self.assertEqual(results[0][3], results[1][3])
            for first, last, feedback, _ in results:
                self.assertEqual(feedback, "merged")
                self.assertLess(last, first - 0.3, kind)


if __name__ == "__main__":
    unittest.main()
