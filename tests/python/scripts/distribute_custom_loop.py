"""A script of Slurm's with MultiWorkerMirroredStrategy and a loop of its own. Its argument is a folder."""

import hashlib
import json
import os
import sys

import numpy as np
import tensorflow as tf

work = sys.argv[1]
cluster_resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=12345)
implementation = tf.distribute.experimental.CommunicationImplementation.NCCL
communication_options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
strategy = tf.distribute.MultiWorkerMirroredStrategy(
    cluster_resolver=cluster_resolver, communication_options=communication_options
)
n_workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]) if "TF_CONFIG" in os.environ else 1
print(f"Number of workers: {n_workers}")
print(f"Number of replicas: {strategy.num_replicas_in_sync}")
task_type, task_id = cluster_resolver.get_task_info() if n_workers > 1 else ("worker", 0)

GLOBAL_BATCH = 48
EPOCHS = 3
x = np.random.RandomState(0).normal(size=(250, 12)).astype("float32")
y = (x.sum(1) > 0).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(250, seed=3).batch(GLOBAL_BATCH)
dist_dataset = strategy.experimental_distribute_dataset(dataset)

tf.keras.utils.set_random_seed(7)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((12,)),
            tf.keras.layers.Dense(16, use_bias=False),
            tf.keras.layers.BatchNormalization(synchronized=True),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Dense(1),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    loss_object = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    accuracy = tf.keras.metrics.BinaryAccuracy(threshold=0.0)
    auc = tf.keras.metrics.AUC(from_logits=True)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, os.path.join(work, "checkpoints"), max_to_keep=2)


def train_step(inputs):
    features, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(features, training=True)
        losses = loss_object(labels[:, None], predictions)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accuracy.update_state(labels[:, None], predictions)
    auc.update_state(labels[:, None], predictions)
    return loss


@tf.function
def train_epoch():
    total, batches = 0.0, 0.0
    for batch in dist_dataset:
        per_replica_losses = strategy.run(train_step, args=(batch,))
        total += strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)
        batches += 1.0
    return total / batches


losses, accuracies, aucs = [], [], []
for _epoch in range(EPOCHS):
    losses.append(float(train_epoch()))
    accuracies.append(float(accuracy.result()))
    aucs.append(float(auc.result()))
    accuracy.reset_state()
    auc.reset_state()
    manager.save()
trained = [np.array(each) for each in model.get_weights()]
checkpoint.restore(tf.train.latest_checkpoint(os.path.join(work, "checkpoints")))
for mine, loaded in zip(trained, model.get_weights()):
    np.testing.assert_array_equal(mine, loaded)
found = {
    "losses": losses,
    "evaluated": accuracies + aucs,
    "weights": float(sum(np.abs(each, dtype="float64").sum() for each in trained)),
    "digest": hashlib.sha256(b"".join(each.tobytes() for each in trained)).hexdigest(),
}
print("FOUND " + json.dumps(found), flush=True)
