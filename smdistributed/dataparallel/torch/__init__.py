"""The import paths of SageMaker's data parallel library for PyTorch; what is behind them is torch_smddp."""
