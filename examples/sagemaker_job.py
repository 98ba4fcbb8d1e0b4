"""Starts a training job in SageMaker, with SageMaker's Python SDK. It runs on your machine, not as a rank.

    pip install 'sagemaker<3'
    python examples/sagemaker_job.py --image URI --role ARN --instances 2 --script digits.py

URI is an image in ECR, as in ACCOUNT.dkr.ecr.REGION.amazonaws.com/tf-smddp:latest. It needs TensorFlow,
tf_smddp, rich and scikit-learn, Open MPI 4 and PyPI's sagemaker-training.
The script is one of this folder, or another with --source-dir.
"""

import argparse
import pathlib
from typing import Any, Dict


def estimator_arguments(options: argparse.Namespace) -> Dict[str, Any]:
    """Returns the arguments for sagemaker.tensorflow.TensorFlow."""
    hyperparameters: Dict[str, Any] = dict(word.split("=", 1) for word in options.hyperparameters)
    if options.ranks_per_instance:
        # Without it, the toolkit starts a rank for each GPU, and one on an instance without GPUs.
        hyperparameters["sagemaker_mpi_num_of_processes_per_host"] = options.ranks_per_instance
    return {
        "entry_point": options.script,
        "source_dir": options.source_dir,
        "image_uri": options.image,
        "role": options.role,
        "instance_count": options.instances,
        "instance_type": options.instance_type,
        "hyperparameters": hyperparameters,
        "model_dir": False,  # else the script gets --model_dir
        # The toolkit in the image then starts `mpirun ... smddprun python script` on the first instance. The
        # SDK takes this for any TensorFlow, as long as image_uri names the image.
        "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
        "environment": {"TF_CPP_MIN_LOG_LEVEL": "1"},
    }


def parse_arguments(words: Any = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Train in SageMaker.")
    parser.add_argument("--image", required=True, help="the URI of the image, in ECR")
    parser.add_argument("--role", required=True, help="the ARN of the role that the job runs as")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--instance-type", default="ml.p4d.24xlarge")
    parser.add_argument("--ranks-per-instance", type=int, help="default: one for each GPU")
    parser.add_argument("--script", default="digits.py", help="a script in --source-dir (default: digits.py)")
    parser.add_argument("--source-dir", default=str(pathlib.Path(__file__).resolve().parent))
    parser.add_argument("hyperparameters", nargs="*", help="of the script, as in epochs=3 for --epochs 3")
    options = parser.parse_args(words)
    for word in options.hyperparameters:
        if "=" not in word:
            parser.error(f"{word!r}: write a hyperparameter as name=value, as in epochs=3")
    return options


def main() -> None:
    """Starts the job, and shows its log until it ends."""
    options = parse_arguments()
    from sagemaker.tensorflow import TensorFlow

    print(f"starting {options.script} on {options.instances} x {options.instance_type}", flush=True)
    estimator = TensorFlow(**estimator_arguments(options))
    estimator.fit(wait=True)  # raises if the job fails
    print(f"ended: {estimator.latest_training_job.name}; the model is at {estimator.model_data}")


if __name__ == "__main__":
    main()
