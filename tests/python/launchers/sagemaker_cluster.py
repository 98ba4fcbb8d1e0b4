"""Containers as SageMaker starts them, one on each virtual host: algo-1, algo-2.

A container has processes of its own, and its own /opt/ml, /etc and /usr/sbin, which vanish with it. All other
files are those of the machine. Its /usr/sbin/sshd is ssh_server.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Dict, List

import mpi_launchers
import psutil
from virtual_hosts import VirtualHosts

_HERE = pathlib.Path(__file__).parent
# The toolkit's environment, on top of the one that runs the tests.
TOOLKIT = pathlib.Path(sys.prefix).parent / pathlib.Path(sys.prefix).name.replace("tf-", "sagemaker-") / "bin"
# A container that its test has forgotten ends by itself.
_LIFE_SECONDS = 900
_CONTAINER = """
set -eu
own=$1
cp /etc/hosts "$own/hosts"
mount -t tmpfs tmpfs "$own/layers"
for each in etc opt usr/sbin; do
  layers=$own/layers/$each
  mkdir -p "$layers/upper" "$layers/work"
  mount -t overlay overlay -o "lowerdir=/$each,upperdir=$layers/upper,workdir=$layers/work" "/$each"
done
mount -t proc proc /proc
cp "$own/hosts" /etc/hosts
cp -r "$own/files/." /
echo ready
# A container's first process waits for those whose parents have ended, orted for example.
sleep "$2" & wait
"""
# The part of the toolkit that TensorFlow's container calls, where the job's settings ask for SMDataParallel.
_FRAMEWORK = """
from sagemaker_training import entry_point, environment, runner

def main():
    env = environment.Environment()
    assert env.additional_framework_parameters["sagemaker_distributed_dataparallel_enabled"]
    entry_point.run(env.module_dir, env.user_entry_point, env.to_cmd_args(), env.to_env_vars(),
        capture_error=True, runner_type=runner.SMDataParallelRunnerType)
"""


class SageMakerCluster:
    """The containers of one training job. Use it as a context manager.

    Args:
      folder: An empty folder for the cluster's files.
      count: How many containers.
      script: The path of the script that is trained.
      ranks: How many ranks each container has; 0 for parameter servers in place of ranks.
      hyperparameters: The job's.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        count: int,
        script: pathlib.Path,
        ranks: int,
        hyperparameters: Dict[str, object],
    ) -> None:
        self.names = [f"algo-{index + 1}" for index in range(count)]
        # The toolkit's first container writes this file on the others when all is over.
        self.status_file = pathlib.Path(f"/tmp/done.{self.names[0]}")
        self._hosts = VirtualHosts(count, names=self.names)
        self._folder = folder
        self._settings = {
            **hyperparameters,
            "sagemaker_program": script.name,
            "sagemaker_submit_directory": str(script.parent),
            "sagemaker_region": "us-west-2",
            "sagemaker_job_name": "test",
            "sagemaker_distributed_dataparallel_enabled": ranks > 0,
            "sagemaker_parameter_server_enabled": ranks == 0,
            "sagemaker_instance_type": "ml.c5.xlarge",
            "sagemaker_mpi_num_of_processes_per_host": ranks,
        }
        # TensorFlow's own part of the toolkit starts the servers.
        self._module = "framework:main" if ranks else "sagemaker_tensorflow_container.training:main"
        self._inits: Dict[str, int] = {}
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> SageMakerCluster:
        with contextlib.ExitStack() as undo:
            undo.callback(self.status_file.unlink, missing_ok=True)
            undo.enter_context(self._hosts)
            self._write_programs()
            for name in self.names:
                self._start(name, undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _write_programs(self) -> None:
        """Writes a container's programs: the launchers, ssh with its key, TensorFlow's module."""
        programs, keys, modules = (self._folder / each for each in ("bin", "home/.ssh", "modules"))
        for each in (programs, keys, modules):
            each.mkdir(parents=True)
        key = keys / "id_ed25519"
        make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(make_key, timeout=30, check=True)
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ]
        words = ["/usr/bin/ssh", "-F", "none", "-i", str(key), *(f"-o{option}" for option in options)]
        (programs / "ssh").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / "ssh").chmod(0o755)
        (programs / "mpirun").symlink_to(mpi_launchers.program("openmpi4"))
        (programs / "smddprun").symlink_to(pathlib.Path(sys.executable).parent / "smddprun")
        (modules / "framework.py").write_text(_FRAMEWORK)

    def _start(self, name: str, undo: contextlib.ExitStack) -> None:
        own = self._folder / name
        (own / "layers").mkdir(parents=True)
        settings = own / "files" / "opt" / "ml" / "input" / "config"
        settings.mkdir(parents=True)
        (own / "files" / "opt" / "ml" / "output").mkdir()
        group = {
            "instance_group_name": "homogeneousCluster",
            "instance_type": "ml.c5.xlarge",
            "hosts": self.names,
        }
        resources = {
            "current_host": name,
            "hosts": self.names,
            "current_instance_type": "ml.c5.xlarge",
            "current_group_name": "homogeneousCluster",
            "instance_groups": [group],
            "network_interface_name": "eth0",
        }
        # SageMaker hands over all hyperparameters as texts of JSON.
        texts = {key: json.dumps(value) for key, value in self._settings.items()}
        (settings / "resourceconfig.json").write_text(json.dumps(resources))
        (settings / "hyperparameters.json").write_text(json.dumps(texts))
        (settings / "inputdataconfig.json").write_text("{}")
        server = own / "files" / "usr" / "sbin" / "sshd"
        server.parent.mkdir(parents=True)
        server.write_text(f'#!/bin/sh\nexec {TOOLKIT / "python"} {_HERE / "ssh_server.py"} "$@"\n')
        server.chmod(0o755)
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        words = self._hosts.on(name, [*unshare, "bash", "-c", _CONTAINER, "bash", own, _LIFE_SECONDS])
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        undo.callback(process.wait, 30)
        undo.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"the container {name} has not started"
        (first,) = psutil.Process(process.pid).children()
        self._inits[name] = first.pid

    def train(self, name: str) -> List[str]:
        """The words that run the toolkit in a container, as the container's entry point does."""
        enter = ["nsenter", "-t", str(self._inits[name]), "--mount", "--uts", "--net", "--pid"]
        return [*enter, "--", str(TOOLKIT / "train")]

    def environ(self) -> Dict[str, str]:
        """The variables of the containers' image."""
        return {
            "HOME": str(self._folder / "home"),
            "PATH": os.pathsep.join([str(self._folder / "bin"), str(TOOLKIT), "/usr/bin", "/bin"]),
            "PYTHONPATH": str(self._folder / "modules"),
            "SAGEMAKER_TRAINING_MODULE": self._module,
        }

    def failure(self, name: str) -> str:
        """The reason that SageMaker would show for the job's failure."""
        path = pathlib.Path(f"/proc/{self._inits[name]}/root/opt/ml/output/failure")
        return path.read_text()
