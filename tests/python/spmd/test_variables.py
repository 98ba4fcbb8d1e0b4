"""broadcast_variables: TensorFlow's, Keras 2's and Keras 3's, eager, traced, and in a v1 session."""

import pytest
import tensorflow as tf
from values import FLOAT_TYPES, INTEGER_TYPES, assert_equal, of_rank

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]


def make_variables(rank):
    variables = [tf.Variable(of_rank((2, 3), dtype, rank)) for dtype in (*FLOAT_TYPES, *INTEGER_TYPES)]
    return [*variables, tf.Variable(rank % 2 == 0), tf.Variable(tf.zeros((0, 2)))]


def check(variables, root):
    for variable, wanted in zip(variables, make_variables(root)):
        assert_equal(variable, wanted.numpy(), variable)


def test_eager(rank, size):
    for root in range(size):
        variables = make_variables(rank)
        assert sdp.broadcast_variables(variables, root) is None
        check(variables, root)


def test_function(rank, size):
    variables = make_variables(rank)
    tf.function(lambda: sdp.broadcast_variables(variables, size - 1))()
    check(variables, size - 1)


def test_generator_and_nothing():
    assert sdp.broadcast_variables([], 0) is None
    variable = tf.Variable(float(sdp.rank()))
    sdp.broadcast_variables((v for v in [variable]), 0)
    assert float(variable) == 0.0
    tf.function(lambda: sdp.broadcast_variables([], 0))()


@pytest.mark.parametrize("use_resource", [False, True])
def test_v1_session(rank, size, use_resource):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(f"v{i}", initializer=[rank + float(i)], use_resource=use_resource)
            for i in range(3)
        ]
        operation = sdp.broadcast_variables(variables, size - 1)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(operation)
        assert [float(value[0]) for value in session.run(variables)] == [size - 1.0 + i for i in range(3)]


def test_keras(rank, size):
    tf.keras.utils.set_random_seed(rank)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((4,)),
            tf.keras.layers.Dense(3),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(2, dtype="mixed_bfloat16"),
        ]
    )
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    optimizer.apply_gradients([(tf.ones(v.shape) * rank, v) for v in model.trainable_variables])
    for variables in (model.variables, optimizer.variables):
        sdp.broadcast_variables(variables, size - 1)
        for variable in variables:
            value = tf.convert_to_tensor(variable).numpy()
            assert_equal(sdp.broadcast(value, size - 1), value, variable)


@pytest.mark.parametrize("thing", [1.0, tf.constant(1.0), "text"], ids=str)
def test_not_a_variable(thing):
    with pytest.raises(TypeError, match="takes variables, but got"):
        sdp.broadcast_variables([thing], 0)


def test_a_type_that_is_not_supported(rank):
    variables = [tf.Variable([1.0 + rank]), tf.Variable("text", name="vocabulary")]
    text = r"does not take the variable 'vocabulary:0' of type string, .*broadcast_object\(\)"
    with pytest.raises(TypeError, match=text):
        sdp.broadcast_variables(variables, 0)
    assert float(variables[0][0]) == 1.0 + rank, "nothing was broadcast"


def test_another_number_of_variables(rank, size):
    variables = [tf.Variable(float(rank)) for _ in range(3 if rank == 0 else 2)]
    if size > 1:
        either_first = r"(?s)(?=.*parameter 0 of 3)(?=.*parameter 0 of 2)"
        with pytest.raises(tf.errors.InternalError, match=either_first):
            sdp.broadcast_variables(variables, 0)
    sdp.broadcast_variables(variables[:2], 0)
    assert [float(variable) for variable in variables[:2]] == [0.0, 0.0]


def test_a_model_is_no_list_of_variables():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    with pytest.raises(
        TypeError, match=r"takes a list of variables, but got .* Pass its variables: model\.var"
    ):
        sdp.broadcast_variables(model, 0)
    with pytest.raises(TypeError, match=r"takes a list of variables, but got 3\.0\.$"):
        sdp.broadcast_variables(3.0, 0)
