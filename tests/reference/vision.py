#!/usr/bin/env python3
"""One training step of every model of images in PyTorch, as a table of golden numbers.

Weights, images and classes come from a formula that test_nn_models.c computes too, so that no tensor has to be stored.
Of every gradient and of every weight after a step of plain SGD the table has the sum, the norm and the dot product with
a fixed pattern:

    tests/reference/vision.py > tests/reference/vision.txt

Lines: "model NAME batch channels height width classes rate loss", then "NAME of parameter" with six numbers, then "end".
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def mix(x):
    """SplitMix64's output function, on int64 tensors that wrap round (a shift to the right must not copy the sign)."""

    def right(v, n):
        return (v >> n) & ((1 << (64 - n)) - 1)

    def signed(v):
        return v - (1 << 64) if v >= 1 << 63 else v

    x = x + signed(0x9E3779B97F4A7C15)
    x = (x ^ right(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ right(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ right(x, 31)


def numbers(stream, count):
    """Uniform in [-1, 1): 24 bits of mix(i * 2^20 + stream)."""
    i = torch.arange(count, dtype=torch.int64)
    bits = (mix((i << 20) + stream) >> 40) & 0xFFFFFF
    return (bits.double() / 2**23 - 1).float()


class Basic(nn.Module):
    def __init__(self, into, out, stride, option):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.pad = (out - into) // 2 if option == "A" and stride != 1 else None
        if option == "B" and (stride != 1 or into != out):
            self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.pad is not None:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        elif hasattr(self, "downsample"):
            x = self.downsample(x)
        return F.relu(y + x)


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(into, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        if stride != 1 or into != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(into, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Cifar(nn.Module):
    def __init__(self, blocks, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        into = 16
        for stage in range(3):
            out = 16 << stage
            layer = []
            for i in range(blocks):
                layer.append(Basic(into, out, 2 if stage > 0 and i == 0 else 1, "A"))
                into = out
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.linear = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


class ImageNet(nn.Module):
    def __init__(self, blocks, deep, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        into = 64
        for stage in range(4):
            width = 64 << stage
            layer = []
            for i in range(blocks[stage]):
                stride = 2 if stage > 0 and i == 0 else 1
                layer.append(Bottleneck(into, width, stride) if deep else Basic(into, width, stride, "B"))
                into = 4 * width if deep else width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(into, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self, pixels, classes):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(pixels, 256), nn.Linear(256, 128), nn.Linear(128, classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class LeNet(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(channels, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def fill(net):
    """Weights of a spread that keeps signals alive; scales of norms near 1, or 0.2 at the end of a bottleneck, without
    which a deep network in a small batch amplifies the last bit of float32 to percents of a gradient."""
    for number, (name, p) in enumerate(net.named_parameters()):
        draw = numbers(number + 1, p.numel()).view(p.shape)
        if p.dim() > 1:
            p.data = draw * math.sqrt(3.0 / (p.numel() / p.shape[0]))
        elif name.endswith("weight"):
            p.data = (0.2 if name.endswith("bn3.weight") else 1) + 0.1 * draw
        else:
            p.data = 0.1 * draw


def three(tensor):
    x = tensor.detach().double().flatten()
    pattern = numbers(999, x.numel()).double()
    return "%.9g %.9g %.9g" % (x.sum(), x.norm(), x @ pattern)


def step(name, net, batch, shape, classes, rate):
    fill(net)
    pixels = numbers(1000, batch * math.prod(shape)).view(batch, *shape)
    targets = torch.arange(batch) * 3 % classes
    net.double()  # the golden numbers are those of the formula, not of float32
    loss = F.cross_entropy(net(pixels.double()), targets)
    loss.backward()
    print("model", name, batch, *shape, classes, rate, "%.9g" % loss.item())
    with torch.no_grad():
        for name, p in net.named_parameters():
            gradient = three(p.grad)
            p -= rate * p.grad
            print(name, gradient, three(p))
    print("end")


def main():
    step("mlp", Mlp(784, 10), 8, (1, 28, 28), 10, 0.05)
    step("lenet", LeNet(1, 10), 8, (1, 28, 28), 10, 0.05)
    step("resnet20", Cifar(3, 3, 10), 8, (3, 32, 32), 10, 0.05)
    step("resnet18", ImageNet([2, 2, 2, 2], False, 3, 20), 4, (3, 64, 64), 20, 0.05)
    step("resnet50", ImageNet([3, 4, 6, 3], True, 3, 20), 4, (3, 64, 64), 20, 0.05)


main()
