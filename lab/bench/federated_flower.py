#!/usr/bin/env python3
"""Federated averaging with Flower (PyPI: flwr) and PyTorch: what federated_links.py compares with.

    federated_flower.py serve PORT CLIENTS ROUNDS
    federated_flower.py join HOST:PORT DIRECTORY NUMBER CLIENTS STEPS BATCH

LeNet-5, plain SGD and images shifted by up to 4 pixels, as `frugrad serve --model lenet` has them. Connections are
without TLS. The server prints the seconds of each round as JSON.
"""
import gzip
import json
import sys
import time

import flwr
import numpy as np
import torch
from flwr.compat.client.app import start_client
from flwr.compat.server.app import start_server
from torch import nn

RATE = 0.1


def read_idx(path: str) -> torch.Tensor:
    with gzip.open(path) as file:
        data = file.read()
    shape = np.frombuffer(data, ">u4", data[3], 4).tolist()
    return torch.tensor(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape))


def lenet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


class Client(flwr.client.NumPyClient):
    """Every CLIENTS-th sample from NUMBER on, the share NUMBER + 1 / CLIENTS of `frugrad join`."""

    def __init__(self, directory: str, number: int, clients: int, steps: int, batch: int) -> None:
        self.model, self.steps, self.batch = lenet(), steps, batch
        images, labels = (read_idx(f"{directory}/train-{name}-ubyte.gz")[number::clients]
                          for name in ("images-idx3", "labels-idx1"))
        self.images, self.labels = images[:, None].float() / 255, labels.long()

    def fit(self, parameters: list, config: dict) -> tuple:
        del config
        with torch.no_grad():
            for tensor, new in zip(self.model.parameters(), parameters):
                tensor.copy_(torch.from_numpy(new))
        optimizer = torch.optim.SGD(self.model.parameters(), RATE)
        for _ in range(self.steps):
            at = torch.randint(len(self.labels), (self.batch,))
            y, x = torch.randint(9, (2,)).tolist()
            images = nn.functional.pad(self.images[at], (4, 4, 4, 4))[:, :, y:y + 28, x:x + 28]
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(images), self.labels[at]).backward()
            optimizer.step()
        return [tensor.detach().numpy() for tensor in self.model.parameters()], len(self.labels), {}


class Timed(flwr.server.strategy.FedAvg):
    """FedAvg that notes when the first round begins and when each ends."""
    times: list[float] = []

    def configure_fit(self, server_round: int, parameters, client_manager):  # type: ignore[no-untyped-def]
        chosen = super().configure_fit(server_round, parameters, client_manager)  # waits for all clients
        self.times = self.times or [time.monotonic()]
        return chosen

    def aggregate_fit(self, server_round: int, results, failures):  # type: ignore[no-untyped-def]
        mean = super().aggregate_fit(server_round, results, failures)
        self.times.append(time.monotonic())
        return mean


def serve(port: str, clients: int, rounds: int) -> None:
    first = flwr.common.ndarrays_to_parameters([tensor.detach().numpy() for tensor in lenet().parameters()])
    strategy = Timed(fraction_evaluate=0, min_fit_clients=clients, min_available_clients=clients,
                     initial_parameters=first)
    start_server(server_address=f"0.0.0.0:{port}", config=flwr.server.ServerConfig(num_rounds=rounds),
                 strategy=strategy)
    rounds_seconds = [end - begin for begin, end in zip(strategy.times, strategy.times[1:])]
    print(json.dumps({"flwr": flwr.__version__, "torch": torch.__version__, "round_seconds": rounds_seconds}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        start_client(server_address=sys.argv[2], insecure=True,
                     client=Client(sys.argv[3], *map(int, sys.argv[4:])).to_client())
