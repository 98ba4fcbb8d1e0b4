"""Trains a small CNN on scikit-learn's handwritten digits, with any number of ranks.

    python examples/digits.py                  # one rank
    smddprun -np 2 python examples/digits.py   # two

The data set has 1,797 images of 8 x 8 pixels; every fifth is kept for the test. The numbered comments mark
what a script for one process needs in order to run on several. It works with Keras 2 and Keras 3. The exit
code is 1 if the ranks' weights are not equal to the bit, or if the test accuracy is below 97 % after at least
the default number of epochs.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, List, Tuple

import numpy as np
import tensorflow as tf
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

import tf_smddp as sdp

LEARNING_RATE = 0.003  # for one rank; scaled by the number of ranks
EPOCHS = 20
EXPECTED_ACCURACY = 0.97  # after EPOCHS


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Train a small CNN on handwritten digits.")
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, help=f"passes over the training images (default: {EPOCHS})"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed for the weights and the order of the images"
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    parser.add_argument("--checkpoint-dir", help="rank 0 saves a checkpoint here at the end (default: none)")
    return parser.parse_args()


def load_images() -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training images and labels, then test images and labels; images [n, 8, 8, 1] in 0..1."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    test = np.arange(len(labels)) % 5 == 4
    return images[~test], labels[~test], images[test], labels[test]


def shift(image: tf.Tensor, label: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Shifts an image by up to one pixel in each direction, at random."""
    return tf.image.random_crop(tf.pad(image, [[1, 1], [1, 1], [0, 0]]), [8, 8, 1]), label


def make_model() -> tf.keras.Model:
    """Returns a CNN with about 120,000 weights, from images [n, 8, 8, 1] to logits [n, 10]."""
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Dropout(0.15),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(96, activation="relu"),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(10),
        ]
    )


def optimizer_variables(optimizer: Any) -> List[Any]:
    """Returns the optimizer's variables: a method in older versions of Keras, a list in newer ones."""
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables


def weights_are_equal(model: tf.keras.Model) -> bool:
    """Returns whether all ranks have the same weights, to the bit. Collective: every rank must call this."""
    equal = True
    for weight in model.get_weights():
        equal &= np.array_equal(weight, sdp.broadcast(weight, root_rank=0).numpy())
    return bool(sdp.allreduce(tf.constant(equal), 0, 1, op=sdp.ReduceOp.MIN))


def main() -> int:
    """Trains and tests the model, prints a summary on rank 0, and returns the exit code."""
    arguments = parse_arguments()

    # 1. Join the job.
    sdp.init()

    # 2. If there are GPUs, each local rank uses one of them.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[sdp.local_rank() % len(gpus)], "GPU")

    # 3. Each rank takes its own shard of the data, then shuffles it. The last, incomplete batch is left out,
    # so that all ranks make the same number of steps. Each rank has another seed, so the ranks start with
    # different weights until step 5 makes them equal.
    tf.keras.utils.set_random_seed(arguments.seed + sdp.rank())
    train_images, train_labels, test_images, test_labels = load_images()
    dataset = (
        sdp.shard(tf.data.Dataset.from_tensor_slices((train_images, train_labels)))
        .shuffle(len(train_labels))
        .map(shift)
        .batch(arguments.batch_size, drop_remainder=True)
        .prefetch(2)
    )
    steps_per_epoch = len(train_labels) // sdp.size() // arguments.batch_size
    if steps_per_epoch == 0:
        raise SystemExit(
            f"--batch-size {arguments.batch_size} is more than a rank's share of {len(train_labels)} images."
        )

    # 4. All ranks together have a batch that is size() times as large, so the learning rate is scaled
    # likewise. It grows to that in the first epoch, since large steps from random weights may ruin them.
    model = make_model()
    loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learning_rate = tf.keras.optimizers.schedules.CosineDecay(
        LEARNING_RATE,
        decay_steps=arguments.epochs * steps_per_epoch,
        warmup_target=LEARNING_RATE * sdp.size(),
        warmup_steps=steps_per_epoch,
    )
    optimizer = tf.keras.optimizers.Adam(learning_rate)
    optimizer.build(model.trainable_variables)

    # 5. Now that all variables exist, every rank takes rank 0's values.
    sdp.broadcast_variables(model.weights, root_rank=0)
    sdp.broadcast_variables(optimizer_variables(optimizer), root_rank=0)

    @tf.function
    def training_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(images, training=True))
        # 6. Average the gradients over all ranks.
        tape = sdp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    # 7. Only rank 0 prints. It shows a progress bar if its output is a terminal.
    progress = Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeElapsedColumn(),
        disable=arguments.no_progress or sdp.rank() != 0 or not sys.stdout.isatty(),
    )
    seconds = 0.0
    with progress:
        task = progress.add_task("", total=arguments.epochs * steps_per_epoch, epoch=0, loss=float("nan"))
        for epoch in range(arguments.epochs):
            begin = time.perf_counter()
            for images, labels in dataset.take(steps_per_epoch):
                loss = training_step(images, labels)
                progress.update(task, advance=1, epoch=epoch + 1)
            last_loss = float(loss)
            seconds += time.perf_counter() - begin
            progress.update(task, loss=last_loss)
            if progress.disable and sdp.rank() == 0 and not arguments.no_progress:
                print(f"epoch {epoch + 1}/{arguments.epochs}: loss {last_loss:.4f}", flush=True)

    # 8. Only rank 0 saves a checkpoint, since all ranks have the same weights.
    equal = weights_are_equal(model)
    if arguments.checkpoint_dir and sdp.rank() == 0:
        tf.train.Checkpoint(model=model).save(f"{arguments.checkpoint_dir}/digits")

    predicted = np.argmax(model(test_images, training=False).numpy(), axis=1)
    accuracy = float(np.mean(predicted == test_labels))
    if sdp.rank() == 0:
        images_seen = arguments.epochs * steps_per_epoch * arguments.batch_size * sdp.size()
        print(f"ranks          {sdp.size()}")
        print(f"training time  {seconds:.1f} s, {images_seen / seconds:.0f} images/s")
        print(f"test accuracy  {accuracy:.2%} of {len(test_labels)} images")
        print(f"weights        {'equal to the bit on all ranks' if equal else 'DIFFER between ranks'}")
        if accuracy < EXPECTED_ACCURACY and arguments.epochs < EPOCHS:
            print(f"{EPOCHS} epochs reach {EXPECTED_ACCURACY:.0%}; this run had {arguments.epochs}.")
        elif accuracy < EXPECTED_ACCURACY:
            print(f"The test accuracy is below the expected {EXPECTED_ACCURACY:.0%}.", file=sys.stderr)
    return 0 if equal and (accuracy >= EXPECTED_ACCURACY or arguments.epochs < EPOCHS) else 1


if __name__ == "__main__":
    sys.exit(main())
