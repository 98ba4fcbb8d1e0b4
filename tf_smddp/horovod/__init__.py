"""Horovod's API on tf_smddp: change `import horovod.tensorflow` to `import tf_smddp.horovod.tensorflow`."""
