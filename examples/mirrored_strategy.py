"""Trains on handwritten digits with TensorFlow's MirroredStrategy. The script does not know tf_smddp.

python examples/mirrored_strategy.py                          # one process, with the GPUs that it sees
smddprun -np 2 --strategy examples/mirrored_strategy.py       # two ranks, with a GPU each if there are two
"""

import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MirroredStrategy()
images, labels = load_digits(return_X_y=True)
train = tf.data.Dataset.from_tensor_slices((images[360:] / 16, labels[360:])).shuffle(2000)
test = tf.data.Dataset.from_tensor_slices((images[:360] / 16, labels[:360]))
batch_size = 32 * strategy.num_replicas_in_sync

with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(64,)),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        tf.keras.optimizers.Adam(0.002 * strategy.num_replicas_in_sync),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
model.fit(train.batch(batch_size), epochs=10, verbose=2)
_, accuracy = model.evaluate(test.batch(batch_size), verbose=0)
print(f"test accuracy  {accuracy:.2%}")
