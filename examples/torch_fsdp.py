#!/usr/bin/env python3
"""The GPT of torch_lm.py, sharded by fully_shard (FSDP2), in two replicas that exchange compressed gradients.

    torchrun --nproc_per_node 4 examples/torch_fsdp.py --text book.txt --replicas 2
    torchrun --nproc_per_node 4 examples/torch_fsdp.py --text book.txt --replicas 2 --dense     PyTorch's hybrid sharding
    torchrun --nproc_per_node 4 examples/torch_fsdp.py --text book.txt --save run               and again to continue

The steps are those of PyTorch's tutorial on FSDP2: shard each layer, then the model; train with clipping; save with
torch.distributed.checkpoint. Lines that FruGrad adds are marked. With one replica its reduce-scatter is compressed.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch_lm import GPT, loss_of, read

import frugrad.torch  # FruGrad

try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
except ImportError:
    raise SystemExit("torch_fsdp.py: FSDP2 needs PyTorch 2.7 or later") from None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", default="", help="a file to learn")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=8, help="pieces of text of each process in a step")
    p.add_argument("--length", type=int, default=64, help="bytes of a piece")
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--replicas", type=int, default=1)
    p.add_argument("--config", default="frugrad", help="what FruGrad sends")
    p.add_argument("--dense", action="store_true", help="without FruGrad")
    p.add_argument("--save", default="", metavar="DIR", help="save there at the end, and continue from there")
    a = p.parse_args()
    cuda = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])  # a GPU for each process
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    world = dist.get_world_size()
    mesh = init_device_mesh(device.type, (a.replicas, world // a.replicas), mesh_dim_names=("replicate", "shard"))
    over = mesh if a.dense and a.replicas > 1 else mesh["shard"]  # FruGrad: only the shards

    torch.manual_seed(1)
    model = GPT(a.width, a.layers, a.length).to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=over)
    fully_shard(model, mesh=over)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.rate)
    state = None
    if not a.dense:
        optimizer = frugrad.torch.optimizer(model, optimizer)  # FruGrad
        state = frugrad.torch.fsdp(model, a.config, optimizer,  # FruGrad
                                   replicate_group=mesh["replicate"] if a.replicas > 1 else None)

    if a.save and os.path.exists(os.path.join(a.save, ".metadata")):
        saved = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        dcp.load(saved, checkpoint_id=a.save)
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        if state:
            state.load(a.save)  # FruGrad

    text = read(a.text)
    train, held = text.split([len(text) - len(text) // 10, len(text) // 10])
    torch.manual_seed(1000 + dist.get_rank())  # each process reads other pieces
    for step in range(a.steps):
        loss = loss_of(model, train, torch.randint(len(train) - a.length, (a.batch,)), a.length, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 49 or step == a.steps - 1:
            with torch.no_grad():
                test = loss_of(model, held, torch.arange(0, len(held) - a.length, a.length)[:64], a.length, device)
            sent = f", sent 1/{state.stats()['ratio']:.1f} of the bytes" if state else ""
            if dist.get_rank() == 0:
                print(f"step {step + 1}, loss {loss:.4f}, on held-out text {test:.4f}{sent}", flush=True)

    if a.save:
        saved = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        if state:
            saved["frugrad"] = state.state_dict()  # FruGrad
        dcp.save(saved, checkpoint_id=a.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
