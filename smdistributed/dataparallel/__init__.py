"""The import paths of SageMaker's data parallel library; what is behind them is tf_smddp.

`smdistributed` itself has no `__init__.py` (PEP 420), so that another distribution's `smdistributed.*`, such
as `smdistributed.modelparallel`, works beside this one.
"""
