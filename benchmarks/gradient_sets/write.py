"""Writes the shapes of the gradient sets: write.py, in an environment with TensorFlow.

keras_resnet50.json comes from keras.applications. bert_base.json is computed from BERT-base's published sizes
(uncased, English): the encoder with its pooler, without the head for a task. The gradients of its embeddings
are dense, as they are when the masked-word head shares them.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import List, Sequence


def bert_base() -> List[List[int]]:
    """Returns the shapes of BERT-base's variables, from the embeddings to the pooler."""
    words, positions, segments = 30522, 512, 2
    layers, hidden, inner = 12, 768, 3072
    norm = [[hidden], [hidden]]
    square = [[hidden, hidden], [hidden]]
    layer = [*square * 3, *square, *norm, [hidden, inner], [inner], [inner, hidden], [hidden], *norm]
    return [[words, hidden], [positions, hidden], [segments, hidden], *norm, *layer * layers, *square]


def keras_resnet50() -> List[List[int]]:
    """Returns the shapes of the trainable variables of Keras's ResNet50."""
    import tensorflow as tf

    return [
        list(variable.shape) for variable in tf.keras.applications.ResNet50(weights=None).trainable_variables
    ]


def write(name: str, shapes: Sequence[Sequence[int]]) -> None:
    """Writes one set and prints its size."""
    lines = ",\n".join(f"    {json.dumps(list(shape))}" for shape in shapes)
    path = pathlib.Path(__file__).resolve().parent / f"{name}.json"
    path.write_text(f'{{\n  "shapes": [\n{lines}\n  ]\n}}\n')
    print(f"{name}: {len(shapes)} tensors, {sum(math.prod(shape) for shape in shapes):,} elements")


if __name__ == "__main__":
    write("bert_base", bert_base())
    write("keras_resnet50", keras_resnet50())
