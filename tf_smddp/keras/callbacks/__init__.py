"""Callbacks for `model.fit` on many ranks. This module only re-exports, and lets them know each other."""

import tensorflow as tf

from tf_smddp._guards.callbacks_beside import watch_fits
from tf_smddp.keras.callbacks._broadcast import BroadcastGlobalVariablesCallback
from tf_smddp.keras.callbacks._checkpoint import RankZeroCheckpoint
from tf_smddp.keras.callbacks._join import Join
from tf_smddp.keras.callbacks._learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from tf_smddp.keras.callbacks._metric_average import MetricAverageCallback
from tf_smddp.keras.callbacks._tensorboard_stats import TensorBoardStats

watch_fits(tf.keras.callbacks.Callback)

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "Join",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "RankZeroCheckpoint",
    "TensorBoardStats",
]
