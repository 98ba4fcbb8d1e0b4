"""`smddprun --check`: what this host or these hosts have, what is wrong with it, and a self test.

The launcher's own process imports no TensorFlow. It starts these programs, each in a Python of its own:
`host_report` on each host, which starts `library_probe` there, and `self_test` on each rank of the self test.
"""
