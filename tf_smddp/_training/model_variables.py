"""The variables that are the state of a training: a model's weights, and its optimizer's variables.

Metrics are not among them, because Keras resets them in each epoch. Nor is the state of Keras 3's seed
generators, which must differ between ranks; otherwise dropout would remove the same units on every rank.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import tensorflow as tf

from tf_smddp._base.arguments import unwrapped
from tf_smddp._training.optimizers.reclassing import Averages, state_of


def is_built(model: Any) -> bool:
    """Returns whether the model has its variables. If not, the first batch creates them."""
    # A custom train_step may call only parts of the model (as in a GAN). Then these are built, but not the
    # model.
    return bool(model.built) or (bool(model.layers) and all(layer.built for layer in model.layers))


def build_from(model: Any, data: Any) -> None:
    """Creates the model's variables by calling it on zeros, eagerly, even while a function is traced.

    Args:
        model: a Keras model.
        data: the argument of `train_step`: features, or a tuple that begins with them; real or symbolic.

    Raises:
        Exception: the model has no `call`, or cannot be called on the features alone.
    """
    if type(model).call is tf.keras.Model.call:
        raise NotImplementedError(f"{type(model).__name__} has no call().")
    features, _, _ = tf.keras.utils.unpack_x_y_sample_weight(data)
    with tf.init_scope():
        model(tf.nest.map_structure(_zeros, features), training=False)


def _zeros(tensor: Any) -> tf.Tensor:
    return tf.zeros([1 if length is None else length for length in tensor.shape.as_list()], tensor.dtype)


def variables_of(model: Any) -> List[Any]:
    """Returns the variables of the model and of its optimizer. Builds the optimizer if possible."""
    trainable = trainable_of(model)
    return weights_of(model) + optimizer_variables(getattr(model, "optimizer", None), trainable)


def variables_in(state: Sequence[Any], caller: str) -> List[Any]:
    """Returns the variables of models, optimizers and lists of variables, each once. Builds the optimizers.

    Args:
        state: Keras models (with their own optimizers, if they are compiled) and layers, `tf.Module`s,
            optimizers, variables, or lists of these.
        caller: the public function, for the error.

    Raises:
        TypeError: something is none of these.
    """
    objects: List[Any] = list(tf.nest.flatten(list(state)))
    trainable = [each for found in objects if _is_model(found) for each in trainable_of(found)]
    # Without a model, the optimizers train the variables.
    trainable = trainable or [each for each in objects if _is_trained(each)]
    variables: Dict[int, Any] = {}
    for each in objects:
        for variable in _variables_in(each, trainable, caller):
            variables.setdefault(id(variable), variable)
    return list(variables.values())


def _is_model(found: Any) -> bool:
    return hasattr(found, "trainable_variables") and not hasattr(found, "apply_gradients")


def _is_trained(found: Any) -> bool:
    return isinstance(unwrapped(found), tf.Variable) and found.trainable


def _variables_in(found: Any, trainable: List[Any], caller: str) -> List[Any]:
    if isinstance(unwrapped(found), tf.Variable):
        return [found]
    if hasattr(found, "apply_gradients"):
        return optimizer_variables(found, trainable)
    if hasattr(found, "weights"):  # a model or a layer of Keras
        return variables_of(found)
    if isinstance(found, tf.Module):
        return list(found.variables)
    raise TypeError(f"{caller}() takes models, optimizers and variables, but got {found!r}.")


def weights_of(model: Any) -> List[Any]:
    """Returns the model's weights, or an empty list before they are created."""
    return _created(model, "weights")


def trainable_of(model: Any) -> List[Any]:
    """Returns the model's trainable variables, or an empty list before they are created."""
    return _created(model, "trainable_variables")


def value_of(variable: Any) -> float:
    """Returns the value of a scalar variable or a number; in a v1 graph, the value in Keras's session."""
    in_session = tf.is_tensor(variable) and not tf.executing_eagerly()
    return float(tf.compat.v1.keras.backend.get_value(variable) if in_session else variable)


def _created(model: Any, attribute: str) -> List[Any]:
    try:
        return list(getattr(model, attribute))
    except ValueError:  # Keras 2: they have not been created.
        return []


def optimizers_of(model: Any) -> List[Any]:
    """Returns the optimizers that the model is compiled with. Some of Keras 2 have a list of them."""
    optimizer = getattr(model, "optimizer", None)
    if isinstance(optimizer, (list, tuple)):
        return list(optimizer)
    return [] if optimizer is None else [optimizer]


def optimizers_in(objects: Sequence[Any]) -> List[Any]:
    """Returns the optimizers among these, and those of models; of a LossScaleOptimizer, the inner one."""
    found: List[Any] = []
    for each in tf.nest.flatten(list(objects)):
        found += [each] if hasattr(each, "apply_gradients") else optimizers_of(each)
    return [getattr(optimizer, "inner_optimizer", optimizer) for optimizer in found]


def optimizer_variables(optimizer: Any, trainable: List[Any]) -> List[Any]:
    """Returns the variables of an optimizer, or of a list of them, that trains these. Builds it if needed."""
    if optimizer is None or not trainable:
        return []
    if isinstance(optimizer, (list, tuple)):
        # Which variables each one trains is known after the first batch.
        made = [each.variables() if callable(each.variables) else each.variables for each in optimizer]
        return [variable for each in made for variable in each]
    wrapped = getattr(optimizer, "optimizer", None)
    if isinstance(wrapped, tf.compat.v1.train.Optimizer):  # in Keras 2
        found = _variables_of_v1(wrapped, trainable)
    elif hasattr(optimizer, "_create_all_weights"):  # Keras 2's legacy optimizers
        optimizer._create_all_weights(trainable)
        found = optimizer.weights
    else:
        if not getattr(optimizer, "built", False):  # Keras 3's LossScaleOptimizer would build it twice
            optimizer.build(trainable)
        found = optimizer.variables
    known = {id(variable) for variable in found}
    return [*found, *(extra for extra in _unlisted_variables(optimizer, trainable) if id(extra) not in known)]


def _variables_of_v1(optimizer: tf.compat.v1.train.Optimizer, trainable: List[Any]) -> List[Any]:
    """Returns what the optimizer has made in its first step, in the order of the model's variables.

    Its own `variables()` are in the order of their names. These have numbers that count the layers which the
    process has made, so where a rank has made more layers, "dense_10" is before "dense_9" on one rank only.
    """
    slots = [
        optimizer.get_slot(variable, name) for name in optimizer.get_slot_names() for variable in trainable
    ]
    slots = [slot for slot in slots if slot is not None]
    known = {id(slot) for slot in slots}
    return [*slots, *(other for other in optimizer.variables() if id(other) not in known)]


def _unlisted_variables(optimizer: Any, trainable: List[Any]) -> List[Any]:
    """Returns what checkpoints have beside `variables`: Keras 2's rates and loss scale, and LocalSGD's."""
    loss_scale = getattr(getattr(optimizer, "_loss_scale", None), "_weights", {})
    while hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        optimizer = optimizer.inner_optimizer
    rates = getattr(optimizer, "_hyper", None)  # for legacy optimizers
    if rates is None:
        rates = {"learning_rate": getattr(optimizer, "_learning_rate", None)}
    values = [*(rates[name] for name in sorted(rates)), *loss_scale.values()]
    if isinstance(optimizer, Averages):
        values += state_of(optimizer).variables(trainable)
    return [value for value in values if isinstance(unwrapped(value), tf.Variable)]
