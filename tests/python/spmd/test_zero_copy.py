"""Tensors are born in the arena: nothing above the small-tensor limit is staged."""

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

HIDDEN = 512


def model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(HIDDEN, activation="relu"),
            tf.keras.layers.Dense(HIDDEN, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def data(rank):
    return tf.random.stateless_normal([32, 100], [rank, 1]), tf.range(32) % 10


def figures():
    return sdp.stats()["collectives"]["allreduce"]


def check(allreduce, least_in_place):
    assert allreduce["bytes"] > 4 * HIDDEN * HIDDEN
    assert allreduce["staged_bytes"] == 0
    in_place = allreduce["in_place_bytes"] / allreduce["bytes"]
    print(f"reduced in place: {in_place:.0%} of the bytes")
    assert in_place >= least_in_place


LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("inside", ["function", "eager"])
def test_a_tape_step(rank, size, inside):
    trained = model()
    optimizer = tf.keras.optimizers.SGD(0.01)
    x, y = data(rank)
    trained(x)

    def step():
        with tf.GradientTape() as tape:
            loss = LOSS(y, trained(x, training=True))
        tape = sdp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, trained.trainable_variables)
        optimizer.apply_gradients(zip(gradients, trained.trainable_variables))

    if inside == "function":
        step = tf.function(step)
    step()
    sdp.stats(reset=True)
    for _ in range(3):
        step()
    # Eager tensors belong to Python, too, and are not overwritten.
    check(figures(), 0.9 if inside == "function" else 0)


def test_fit(rank, size):
    trained = model()
    optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3))
    trained.compile(optimizer=optimizer, loss=LOSS)
    x, y = data(rank)
    trained.fit(x, y, batch_size=8, epochs=1, verbose=0)
    sdp.stats(reset=True)
    trained.fit(x, y, batch_size=8, epochs=1, verbose=0)
    check(figures(), 0.5)


@pytest.mark.parametrize(
    "kind, call",
    [
        ("broadcast", lambda x: sdp.broadcast(x, root_rank=0)),
        ("allgather", sdp.allgather),
        ("reducescatter", sdp.reducescatter),
        ("alltoall", sdp.alltoall),
    ],
)
def test_the_other_collectives(size, kind, call):
    step = tf.function(lambda x: call(x * 2.0))
    x = tf.random.normal([12 * 100, 100])
    sdp.stats(reset=True)
    step(x)
    found = sdp.stats()["collectives"][kind]
    assert found["bytes"] == 4 * 12 * 100 * 100
    assert found["staged_bytes"] == 0
