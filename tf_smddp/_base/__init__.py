"""What the rest of tf_smddp builds on: the op library, TensorFlow's private parts, users' arguments."""
