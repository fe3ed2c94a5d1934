#!/usr/bin/env python3
"""Image classification with DistributedDataParallel, its gradients sent by FruGrad.

    torchrun --nproc_per_node 2 examples/torch_ddp.py
    torchrun --nproc_per_node 2 examples/torch_ddp.py --dense        the same without FruGrad, to compare

Without Fashion-MNIST in --data, images are made up. Marked are FruGrad's five lines, and one more to resume.
"""
import argparse
import gzip
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import frugrad.torch  # FruGrad 1


def idx(folder, name, header):
    with gzip.open(os.path.join(folder, name + "-ubyte.gz")) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[header:]


def load(folder, part):
    try:
        images = idx(folder, part + "-images-idx3", 16).view(-1, 1, 28, 28)
        return images.float() / 127.5 - 1, idx(folder, part + "-labels-idx1", 8).long()
    except FileNotFoundError:
        g = torch.Generator().manual_seed(len(part))
        patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(2))
        classes = torch.randint(10, (1024,), generator=g)
        return patterns[classes] + torch.randn(1024, 1, 28, 28, generator=g), classes


def accuracy(model, images, classes, device):
    with torch.no_grad():
        found = torch.cat([model(x.to(device)).argmax(1).cpu() for x in images.split(500)])
    return (found == classes).float().mean().item()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder with the idx files")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=64, help="images of each process in a step")
    p.add_argument("--steps", type=int, default=0, help="stop after so many steps in all; 0: after the last epoch")
    p.add_argument("--rate", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--config", default="frugrad", help="what FruGrad sends")
    p.add_argument("--dense", action="store_true", help="without FruGrad")
    p.add_argument("--checkpoint", default="", help="file to save to at the end, and to resume from if it exists")
    a = p.parse_args()
    cuda = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])  # a GPU for each process
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(a.seed)
    images, classes = load(a.data, "train")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(ddp.parameters(), lr=a.rate, momentum=0.9))  # FruGrad 2
    each = len(images) // (world * a.batch)
    first, total, config = 0, a.steps or a.epochs * each, "dense" if a.dense else a.config
    state = frugrad.torch.DDPState(model, config, optimizer, total_steps=a.epochs * each)  # FruGrad 3
    if not a.dense:
        ddp.register_comm_hook(state, frugrad.torch.hook)  # FruGrad 4
    if a.checkpoint and os.path.exists(a.checkpoint):
        saved = torch.load(a.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state.load_state_dict(saved["frugrad"])  # FruGrad, to resume
        first = saved["step"]
    for step in range(first, total):
        if step % each == 0 or step == first:
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(a.seed + step // each))
        mine = order[(step % each) * world * a.batch:][rank * a.batch:(rank + 1) * a.batch]
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(images[mine].to(device)), classes[mine].to(device))
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 100 == 99 or step == total - 1):
            print(f"step {step + 1} of {total}, loss {loss.item():.4f}", flush=True)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": total,
             "frugrad": state.state_dict(all_ranks=True)}  # FruGrad 5: called by all ranks
    if a.checkpoint and rank == 0:
        torch.save(saved, a.checkpoint)
    if rank == 0:
        print(f"accuracy {accuracy(model, *load(a.data, 't10k'), device):.4f},"
              f" sent 1/{state.stats()['ratio']:.1f} of the gradients")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
