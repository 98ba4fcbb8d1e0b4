"""Starts a job of several hosts through the launcher of the MPI that is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from smddprun.hosts import Host
from smddprun.options import Options, UsageError

# Variables of a host, a session or a shell, which must not be taken to other hosts.
_LOCAL = re.compile(
    r"_|PWD|OLDPWD|SHLVL|HOSTNAME|HOST|DISPLAY|TERM|TERMCAP|WINDOWID|TMPDIR|LS_COLORS|MAIL|"
    r"(BASH_FUNC_|SSH_|XDG_|DBUS_|OMPI_|PMIX_|PMI_|PRTE_|HYDRA_|SLURM_).*"
)
_VERSION_SECONDS = 30


class LauncherError(Exception):
    """There is no launcher of MPI that can be used. The text is one line."""


def find_launcher(environ: Mapping[str, str]) -> tuple[str, str]:
    """Returns the path of MPI's launcher and its family, "Open MPI" or "Hydra".

    Raises:
      LauncherError: there is none in PATH, or it is of no family that is known.
    """
    path = environ.get("PATH")
    program = shutil.which("mpirun", path=path) or shutil.which("mpiexec", path=path)
    if program is None:
        raise LauncherError(
            "several hosts need an MPI, and there is no mpirun or mpiexec in PATH; install one on all hosts, "
            "for example with: pip install mpich"
        )
    try:
        shown = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LauncherError(f"'{program} --version' failed: {error}") from error
    text = shown.stdout + shown.stderr
    if "Open MPI" in text or "Open RTE" in text or "PRRTE" in text:
        return program, "Open MPI"
    if "HYDRA" in text.upper() or "Intel(R) MPI" in text:
        return program, "Hydra"
    first = text.strip().partition("\n")[0]
    raise LauncherError(
        f"{program} is of no MPI that smddprun knows ({first!r}); start the job with it yourself, as in "
        f"'{os.path.basename(program)} -np 4 ... python train.py'"
    )


def launch_words(
    program: str,
    family: str,
    hosts: Sequence[Host],
    chosen: Options,
    environ: Mapping[str, str],
    command: Sequence[str],
) -> list[str]:
    """Returns the words that start the job. Pure.

    Args:
      program: the path of mpirun or mpiexec.
      family: "Open MPI" or "Hydra".
      hosts: with the ranks of each.
      chosen: the options.
      environ: what the ranks are to have; Hydra's ranks inherit it.
      command: what each rank runs.

    Raises:
      UsageError: for an option that MPI's launcher does not have.
    """
    if chosen.output_dir is not None:
        raise UsageError(
            f"--output-dir {chosen.output_dir!r} is for ranks of this host; with several hosts, write files "
            "in the script"
        )
    if chosen.quiet:
        raise UsageError(
            "-q is for ranks of this host; with several hosts, let the script print on rank 0 only, and set "
            "-x TF_CPP_MIN_LOG_LEVEL=2"
        )
    if chosen.grace is not None:
        raise UsageError(
            f"--grace {chosen.grace:g} is for ranks of this host; with several hosts, MPI's launcher ends "
            "the others when a rank fails: leave --grace out"
        )
    if chosen.timeline is not None or chosen.summary:
        option = "--summary" if chosen.timeline is None else f"--timeline {chosen.timeline!r}"
        raise UsageError(
            f"{option} puts together files of ranks of this host; with several hosts, set SMDDP_TIMELINE or "
            "SMDDP_SUMMARY to a path, with -x, and each rank writes a file of its own there"
        )
    if family == "Hydra" and len(chosen.interfaces) > 1:
        raise UsageError(
            f"--network-interfaces {','.join(chosen.interfaces)}: {program} takes one interface; name one"
        )
    where = ",".join(f"{host.name}:{host.slots}" for host in hosts)
    total = str(sum(host.slots for host in hosts))
    tag = chosen.tag_output is not False
    if family == "Hydra":
        return [program, "-np", total, "-hosts", where, *(["-prepend-rank"] if tag else []), *command]
    words = [program, "-np", total, "-H", where, "--bind-to", "none", "--map-by", "slot"]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    if tag:
        words.append("--tag-output")
    if chosen.timeout is not None:
        words += ["--timeout", str(max(1, round(chosen.timeout)))]
    for name in sorted(environ):
        if not _LOCAL.fullmatch(name):
            words += ["-x", name]
    return [*words, *command]


def with_ways_to_hosts(environ: Mapping[str, str], chosen: Options) -> dict[str, str]:
    """Returns the environment in which each family's launcher finds how to reach the hosts. Pure.

    That is ssh's port and key, and the network interfaces. MPI's launchers take none of these to other hosts.
    """
    result = dict(environ)
    ssh = [] if chosen.ssh_port is None else ["-p", str(chosen.ssh_port)]
    ssh += [] if chosen.ssh_identity_file is None else ["-i", chosen.ssh_identity_file]
    if ssh:
        for name in ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args", "HYDRA_LAUNCHER_EXTRA_ARGS"):
            result[name] = " ".join(ssh)
    if chosen.interfaces:
        for name in (
            "OMPI_MCA_btl_tcp_if_include",
            "OMPI_MCA_oob_tcp_if_include",
            "PRTE_MCA_prte_if_include",
        ):
            result[name] = ",".join(chosen.interfaces)
        result["HYDRA_IFACE"] = chosen.interfaces[0]
    return result


def launch_environment(family: str, chosen: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of MPI's launcher. Pure."""
    if family == "Hydra" and chosen.timeout is not None:
        return {**environ, "MPIEXEC_TIMEOUT": str(max(1, round(chosen.timeout)))}
    return dict(environ)
