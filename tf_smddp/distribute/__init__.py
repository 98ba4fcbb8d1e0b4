"""tf.distribute with the ranks of the job as replicas: `Strategy`, and `python -m tf_smddp.distribute`."""

from tf_smddp.distribute._strategy import Strategy

__all__ = ["Strategy"]
