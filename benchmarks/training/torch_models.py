"""The models of `whole` in torch: the layers of models.py, with as many weights in as many tensors.

The weights begin with torch's values, and not with Keras's. Images have their channels first, as is usual in
torch. With Keras's weights, the outputs and gradients are Keras's; this was checked by hand, once.
"""

from __future__ import annotations

from typing import List, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from training.inputs import MODELS, check_size, make_batch


class Task(NamedTuple):
    """A model and a batch for it."""

    model: nn.Module
    images: torch.Tensor  # [batch, channels, rows, columns]; or numbers, or those of words, [batch, length]
    labels: torch.Tensor


def make_task(name: str, batch_size: int, seed: int, sparse: bool = False) -> Task:
    """Makes one of MAKERS. `seed` is for the batch; the weights are the same on all ranks.

    `sparse` is whether the gradient of the table of embeddings is sparse.
    """
    torch.manual_seed(1)
    model = MAKERS[name](sparse)
    check_size(name, [parameter.shape for parameter in model.parameters()])
    batch, classes = make_batch(name, batch_size, seed)
    images = torch.from_numpy(batch)
    if images.dim() == 4:
        images = images.permute(0, 3, 1, 2).contiguous()
    return Task(model, images, torch.from_numpy(classes))


def _mlp(_: bool) -> nn.Module:
    layers: List[nn.Module] = []
    for inputs in (784, 1024, 1024):
        layers += [nn.Linear(inputs, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def _digits(_: bool) -> nn.Module:
    convolutions = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()]
    top = [nn.MaxPool2d(2), nn.Dropout(0.15), nn.Flatten(), nn.Linear(4 * 4 * 64, 96), nn.ReLU()]
    return nn.Sequential(*convolutions, *top, nn.Dropout(0.3), nn.Linear(96, 10))


class _EncoderLayer(nn.Module):
    """Attention between the words of a text, and two dense layers for each word."""

    WIDTH, HEADS = 256, 4

    def __init__(self) -> None:
        super().__init__()
        width = self.WIDTH
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-3) for _ in range(2))  # Keras's epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes and returns [batch, length, width]."""
        projections = (self.query(x), self.key(x), self.value(x))
        heads = (p.unflatten(-1, (self.HEADS, -1)).transpose(1, 2) for p in projections)
        attended = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.output(attended))
        return self.norms[1](x + self.narrow(functional.gelu(self.wide(x))))


class _FirstWord(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes [batch, length, width], returns [batch, width]."""
        return x[:, 0]


def _encoder(_: bool) -> nn.Module:
    width = _EncoderLayer.WIDTH
    layers = [nn.Embedding(MODELS["encoder"].words, width), _EncoderLayer(), _EncoderLayer()]
    return nn.Sequential(*layers, _FirstWord(), nn.Linear(width, 10))


class _MeanOfWords(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes [batch, length, width], returns [batch, width]."""
        return x.mean(1)


def _embedding(sparse: bool) -> nn.Module:
    table = nn.Embedding(MODELS["embedding"].words, 64, sparse=sparse)
    return nn.Sequential(table, _MeanOfWords(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    """A convolution with a bias, as in Keras's ResNet50, and the normalization of its outputs."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, eps=1.001e-5, momentum=0.01))


class _Bottleneck(nn.Module):
    """Three convolutions around which the input goes; the first has the stride, as in Keras's ResNet50."""

    def __init__(self, inputs: int, width: int, stride: int, shortcut: bool) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(_convolution(inputs, width, 1, stride), nn.ReLU(inplace=True)),
            *(_convolution(width, width, 3), nn.ReLU(inplace=True)),
            _convolution(width, 4 * width, 1),
        )
        self.shortcut = _convolution(inputs, 4 * width, 1, stride) if shortcut else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.convolutions(x) + self.shortcut(x))


def _resnet50(_: bool) -> nn.Module:
    layers: List[nn.Module] = [
        *(_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
    ]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(_Bottleneck(inputs, width, stride if number == 0 else 1, shortcut=number == 0))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


MAKERS = {
    "mlp": _mlp,
    "digits": _digits,
    "encoder": _encoder,
    "embedding": _embedding,
    "resnet50": _resnet50,
}
