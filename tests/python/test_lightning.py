"""Lightning in two processes over gloo, as docs/pytorch.md says, with the real package."""

import tempfile
import unittest
import warnings

import support

torch = support.need("torch")
lightning = support.need("lightning")
from ddp_helpers import batch, dist, flat, mlp, nn  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.overrides.distributed import _register_ddp_comm_hook  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402

import frugrad.torch  # noqa: E402


class Module(lightning.LightningModule):
    """The lines of docs/pytorch.md."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.optimizer = frugrad.torch.optimizer(self, torch.optim.AdamW(self.parameters(), lr=4e-3))
        self.frugrad = frugrad.torch.DDPState(self, "frugrad", self.optimizer)

    def configure_optimizers(self):
        return self.optimizer

    def training_step(self, rows, _):
        x, y = batch(self.global_step)  # the loader begins anew when a run is resumed
        return nn.functional.cross_entropy(self.net(x), y)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["frugrad"] = self.frugrad.state_dict(all_ranks=True)

    def on_load_checkpoint(self, checkpoint):
        self.frugrad.load_state_dict(checkpoint["frugrad"])


class OnCpu(Module):
    def on_train_start(self):
        if self.device.type == "cpu":  # where Lightning registers no hook
            self.trainer.model.register_comm_hook(self.frugrad, frugrad.torch.hook)


class Registering(DDPStrategy):
    """Does on a CPU what DDPStrategy does on a GPU."""

    def _register_ddp_hooks(self):
        _register_ddp_comm_hook(self.model, self._ddp_comm_state, self._ddp_comm_hook, self._ddp_comm_wrapper)


def fit(module, folder, steps, strategy=DDPStrategy, resumed=None):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20000
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch(0, 0, 2048)), batch_size=16)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, max_steps=steps, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, callbacks=[ModelCheckpoint(folder, every_n_train_steps=10,
                                                                                      save_top_k=-1)],
        strategy=strategy(ddp_comm_state=module.frugrad, ddp_comm_hook=frugrad.torch.hook, process_group_backend="gloo",
                          bucket_cap_mb=0.1))
    trainer.fit(module, loader, ckpt_path=resumed)
    weights = [torch.zeros_like(flat(module)) for _ in range(2)]
    dist.all_gather(weights, flat(module))
    return torch.equal(*weights)


def trained(folder):
    """All cases in turn, since importing Lightning takes longer than they do."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        fit(Module(), folder, 2)
    forgotten = [str(w.message) for w in shown if "the hook was not called" in str(w.message)]
    modules = [Module(), OnCpu(), OnCpu()]
    same = [fit(modules[0], folder + "/0", 20, Registering), fit(modules[1], folder + "/1", 20),
            fit(modules[2], folder + "/2", 20, resumed=f"{folder}/1/epoch=0-step=10.ckpt")]
    return dict(forgotten=len(forgotten), same=same, steps=[module.frugrad.step for module in modules],
                ratio=modules[0].frugrad.stats()["ratio"],
                equal=[torch.equal(flat(modules[0]), flat(module)) for module in modules])


class Lightning(unittest.TestCase):
    def test_the_hook_is_registered_and_resumes(self):
        with tempfile.TemporaryDirectory() as folder:
            for found in support.values(support.torchrun(2, trained, timeout=120, args=[folder])):
                self.assertEqual(found["forgotten"], 1)  # on a CPU, by DDPStrategy's arguments alone
                self.assertEqual(found["steps"], [20] * 3)
                self.assertGreater(found["ratio"], 4)
                self.assertEqual(found["same"] + found["equal"], [True] * 6)


if __name__ == "__main__":
    unittest.main()
