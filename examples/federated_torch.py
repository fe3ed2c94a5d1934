#!/usr/bin/env python3
"""Federated training of a PyTorch model with a training loop of its own.

    python3 examples/federated_torch.py demo                                   server and two clients in one process

    python3 examples/federated_torch.py keygen alice >>clients.txt
    python3 examples/federated_torch.py keygen bob >>clients.txt
    python3 examples/federated_torch.py serve --clients clients.txt --save run
    python3 examples/federated_torch.py join localhost:7700 --key alice --server run/server.key.pub --share 1/2
    python3 examples/federated_torch.py join localhost:7700 --key bob --server run/server.key.pub --share 2/2

Without Fashion-MNIST in --data, images are made up. Any of them may be killed: the same command continues.
"""
import argparse
import logging
import tempfile
import threading

import torch
import torch.nn.functional as F

import frugrad.federated
from torch_ddp import accuracy, load


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, padding=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(4),
        torch.nn.Flatten(), torch.nn.Linear(8 * 49, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(model, images, classes, settings, round):
    """The own loop: some steps of SGD on this client's data. Returns the mean loss."""
    optimizer, total = torch.optim.SGD(model.parameters(), lr=settings["rate"], momentum=0.9), 0.0
    model.train()
    for step in range(settings["steps"]):
        some = torch.randint(len(images), (32,), generator=torch.Generator().manual_seed(round * 1000 + step))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[some]), classes[some])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / settings["steps"]


def join(a, address, key, server, share):
    part, parts = map(int, share.split("/"))
    images, classes = (data[part - 1::parts] for data in load(a.data, "train"))
    model = make_model()
    with frugrad.federated.Client(address, key=key, server=server) as client:
        client.join(model.state_dict(), examples=len(images))
        for weights in client:
            model.load_state_dict(weights)
            client.push(model.state_dict(), train(model, images, classes, client.settings, client.round))
        print("%s: sent %d bytes, received %d" % (key, *client.traffic()))


def make_server(a, clients, directory, listen):
    (images, classes), model = load(a.data, "t10k"), make_model()

    def evaluate(weights):
        model.load_state_dict(weights)
        model.eval()
        with torch.no_grad():
            return F.cross_entropy(model(images), classes).item(), accuracy(model, images, classes, "cpu")

    return frugrad.federated.Server(model.state_dict(), clients=clients, directory=directory, listen=listen,
                                    rounds=a.rounds, settings={"rate": 0.05, "steps": 20}, evaluate=evaluate)


def demo(a):
    with tempfile.TemporaryDirectory() as folder:
        keys = [f"{folder}/alice", f"{folder}/bob"]
        with open(f"{folder}/clients.txt", "w") as file:
            file.writelines(map(frugrad.federated.keygen, keys))
        with make_server(a, f"{folder}/clients.txt", f"{folder}/run", "127.0.0.1:0") as server:
            server.start()
            at = f"127.0.0.1:{server.port}"
            for i, key in enumerate(keys):
                threading.Thread(target=join, args=(a, at, key, server.key, f"{i + 1}/2")).start()
            server.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["demo", "keygen", "serve", "join"])
    p.add_argument("where", nargs="?", default="localhost:7700", help="join: HOST:PORT; keygen: the file")
    p.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder with the idx files")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--clients", default="clients.txt", help="serve: list of public keys")
    p.add_argument("--save", default="run", help="serve: directory of the run; the weights will be in weights.pt")
    p.add_argument("--key", help="join: file of the private key")
    p.add_argument("--server", help="join: public key of the server, or a file with it")
    p.add_argument("--share", default="1/1", help="join: which of how many shares of the data")
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    if a.what == "keygen":
        print(frugrad.federated.keygen(a.where), end="")
    elif a.what == "demo":
        demo(a)
    elif a.what == "join":
        join(a, a.where, a.key, a.server, a.share)
    else:
        with make_server(a, a.clients, a.save, "7700") as server:
            print(f"port {server.port}, key {server.key}", flush=True)
            torch.save(server.run(), f"{a.save}/weights.pt")


if __name__ == "__main__":
    main()
