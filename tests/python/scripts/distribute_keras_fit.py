"""A script for one process with MirroredStrategy and Keras. Its arguments are a folder and a batch size."""

import hashlib
import importlib.util
import json
import os
import sys

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

work = sys.argv[1]
strategy = tf.distribute.MirroredStrategy()
print(f"Number of devices: {strategy.num_replicas_in_sync}")

images, labels = load_digits(return_X_y=True)
images = images.reshape(-1, 8, 8, 1).astype("float32")
train = tf.data.Dataset.from_tensor_slices((images[:1200], labels[:1200]))
test = tf.data.Dataset.from_tensor_slices((images[1200:], labels[1200:]))
batch_size = int(sys.argv[2]) * strategy.num_replicas_in_sync


def scale(image, label):
    return tf.cast(image, tf.float32) / 16, label


train_dataset = train.map(scale).cache().shuffle(10000, seed=1).batch(batch_size)
eval_dataset = test.map(scale).batch(batch_size)

tf.keras.utils.set_random_seed(1)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu", use_bias=False),
            tf.keras.layers.BatchNormalization(synchronized=True),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(0.003),
        metrics=["accuracy"],
    )

checkpoint_dir = os.path.join(work, "training_checkpoints")
is_keras_2 = not hasattr(tf.keras, "ops")
checkpoints = os.path.join(checkpoint_dir, "ckpt_{epoch}" + ("" if is_keras_2 else ".weights.h5"))


def decay(epoch):
    return 3e-3 if epoch < 2 else 1e-3


class PrintLR(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"Learning rate for epoch {epoch + 1} is {model.optimizer.learning_rate.numpy()}")


callbacks = [
    tf.keras.callbacks.ModelCheckpoint(filepath=checkpoints, save_weights_only=True),
    tf.keras.callbacks.LearningRateScheduler(decay),
    tf.keras.callbacks.CSVLogger(os.path.join(work, "log.csv")),
    tf.keras.callbacks.BackupAndRestore(os.path.join(work, "backup")),
    PrintLR(),
]
if importlib.util.find_spec("tensorboard"):
    callbacks.append(tf.keras.callbacks.TensorBoard(log_dir=os.path.join(work, "logs")))

history = model.fit(train_dataset, epochs=3, callbacks=callbacks, verbose=2)
trained = [np.array(each) for each in model.get_weights()]
model.load_weights(tf.train.latest_checkpoint(checkpoint_dir) if is_keras_2 else checkpoints.format(epoch=3))
for mine, loaded in zip(trained, model.get_weights()):
    np.testing.assert_array_equal(mine, loaded)
eval_loss, eval_accuracy = model.evaluate(eval_dataset, verbose=0)
model.save(os.path.join(work, "model.keras"))
again = tf.keras.models.load_model(os.path.join(work, "model.keras"))
predictions = again.predict(eval_dataset, verbose=0)
found = {
    "losses": history.history["loss"],
    "evaluated": [eval_loss, eval_accuracy],
    "predicted": float((predictions.argmax(1) == labels[1200:]).mean()),
    "weights": float(sum(np.abs(each, dtype="float64").sum() for each in trained)),
    "digest": hashlib.sha256(b"".join(each.tobytes() for each in trained)).hexdigest(),
}
print("FOUND " + json.dumps(found), flush=True)
