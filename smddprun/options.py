"""Parses the command line of smddprun into `Options`. Pure: it reads no environment and no file.

It does not use argparse, because options must end at the first word that is not one (all words after it
belong to the command, even `--verbose`), each mistake must give one line that names the value and the remedy,
and the launcher starts faster without it.
"""

from __future__ import annotations

import difflib
import re
import sys
from typing import Any, Callable, NamedTuple

from smddprun import horovodrun

HELP = """\
usage: smddprun -np N [options] command [arguments of the command...]
       smddprun -np N [options] -m module [arguments of the module...]
       smddprun -np N [options] --strategy script.py [arguments of the script...]
       smddprun --ps P -np N [--between-graph] [options] command [arguments of the command...]
       smddprun --check [-H HOST,... | --hostfile FILE] [-x NAME=VALUE] [--timeout SECONDS]

Starts N ranks of a tf_smddp program, on this host or on those that -H names, and ends when all have ended.
smddpsinglenode is the same command, but starts a rank for each GPU of this host unless -np is given;
without GPUs, a rank for each two cores.

  -np N, --num-proc N         number of ranks (default: 1)
  -H HOST:N,..., --hosts ...  start N ranks on each of these hosts, through the MPI that is installed there
  --hostfile FILE             likewise; a line for each host: 'host1 slots=8'
  --host-discovery-script FILE
                              likewise; a program that prints a line for each host: 'host1:8'
  --min-np N                  start with the hosts that answer, if they have room for N ranks
  --elastic-timeout SECONDS   wait so long for these hosts at each start (default: 600)
  -p PORT, --ssh-port PORT    the port of the hosts' ssh servers
  -i FILE, --ssh-identity-file FILE
                              the private key for ssh
  --network-interfaces A,...  the network interfaces between the hosts
  --threads-per-rank N        threads for each rank (default: a fair share of this host's cores)
  -x NAME[=VALUE]             set NAME for the ranks; -x NAME does nothing, since ranks inherit all variables
  --output-dir DIR            write each rank's output to DIR/rank-<rank>.stdout and .stderr as well
  --tag-output                begin each line with its rank, as in '[1] ...' (default with 2 ranks or more)
  --no-tag-output             do not tag lines
  --grace SECONDS             when a rank fails, give the others this time to end by themselves (default: 5);
                              for ranks of this host
  --timeout SECONDS           end the job after this time, with exit code 124 (default: no limit)
  --max-restarts N            when the job fails, start it again, N times at most (default: 0)
  --timeline FILE             write a timeline of all ranks' collectives, a Chrome trace
  --summary                   print a table at the end: what each rank has sent, and how long it has waited
  --ps P                      TensorFlow's parameter servers: start P of them, and N workers. A chief runs the
                              command, as a coordinator of TensorFlow 2
  --between-graph             with --ps: the workers run the command, the first of them as master, as graphs
                              of TensorFlow 1 and estimators do
  -q, --quiet                 show the output of rank 0 only, and no notes; a rank that fails is reported
  -v, --verbose               report what is started, and how each rank ends
  --check                     run no command: say what this host or the named ones have, test them with a rank
                              for each GPU, or else two or one on each host; name each problem with its remedy
  -m MODULE                   run a Python module, as python -m does; the rest are its arguments
  --strategy SCRIPT.py        run an unmodified script of tf.distribute's with the ranks as replicas, as
                              python -m tf_smddp.distribute does; the rest are its arguments
  --completion                print a script that completes options in bash: eval "$(smddprun --completion)"
  --version, -h, --help       print the version, or this text
  --                          end of the options

On a terminal, rank 0's output is not changed, so that progress bars work; --tag-output tags it, too.
Other options of horovodrun are taken, named as without effect, or refused with a remedy: docs/launcher.md.
Options end at the first word that is not an option. A command whose name ends in .py, and which is not
executable, runs with this Python.

examples:
  smddprun -np 2 train.py --epochs 3
  smddprun -np 4 --output-dir logs python train.py
  smddprun -np 2 --threads-per-rank 8 -x TF_CPP_MIN_LOG_LEVEL=2 python -m trainer.main
  smddprun -np 2 bash -c 'ulimit -c unlimited; exec python train.py'
  smddprun -H host1:8,host2:8 python train.py
  smddprun --check

The exit code is that of the rank that failed first (128 + the signal's number if a signal ended it), 0 if all
ranks succeeded, 2 for a mistake on the command line, 124 after --timeout, 126 for a command that cannot be
executed, 127 for one that is not found.
Under mpirun, and without -np, smddprun executes the command in its place, since mpirun has started the ranks.
Elsewhere -n is refused: it counted hosts in SMDDP's smddprun, and counts ranks in other launchers.
"""

# For how long the other ranks may end by themselves when one fails, without --grace.
GRACE_SECONDS = 5.0

# A larger number is taken for a typing error.
MAX_RANKS = 16384


class UsageError(Exception):
    """A mistake on the command line. The text is one line that names the value and the remedy."""


class Options(NamedTuple):
    """The options and the command. `None` means that an option was not given."""

    command: tuple[str, ...] = ()
    num_ranks: int | None = None
    nodes: int | None = None  # -n of SMDDP's launcher; see `refuse_nodes`
    threads_per_rank: int | None = None
    hosts: str | None = None
    hostfile: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    interfaces: tuple[str, ...] = ()
    exports: tuple[tuple[str, str | None], ...] = ()
    output_dir: str | None = None
    tag_output: bool | None = None
    grace: float | None = None
    timeout: float | None = None
    max_restarts: int | None = None
    min_ranks: int | None = None  # None: all hosts must answer
    discovery_script: str | None = None
    slots_per_host: int | None = None  # of those that the script names without a number
    elastic_timeout: float | None = None
    servers: int | None = None  # parameter servers
    between_graph: bool = False
    timeline: str | None = None
    summary: bool = False
    verbose: bool = False
    quiet: bool = False
    check: bool = False  # there is no command then
    ignored: tuple[str, ...] = ()  # horovodrun's options that have no effect
    show: str | None = None  # "help", "version" or "completion", which is to be printed instead

    @property
    def names_hosts(self) -> bool:
        """Whether the job has hosts that are named, which may be this one alone."""
        return (self.hosts, self.hostfile, self.discovery_script) != (None, None, None)


def _count(option: str, text: str) -> int:
    # isdecimal() alone accepts the digits of other scripts.
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= MAX_RANKS or len(text) > 9:
        raise UsageError(f"{option} {text!r}: give a whole number from 1 to {MAX_RANKS}, as in '{option} 2'")
    return int(text)


def _restarts(option: str, text: str) -> int:
    return 0 if text == "0" else _count(option, text)


def _seconds(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:  # also refuses nan and inf
        raise UsageError(f"{option} {text!r}: give a number of seconds, 0 or more, as in '{option} 10'")
    return value


def _export(option: str, text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(
            f"{option} {text!r}: give a variable's name, as in '{option} NAME=VALUE' or '{option} NAME'"
        )
    return name, (value if equals else None)


def _path(option: str, text: str) -> str:
    if not text:
        kind = "a directory" if option.startswith("--output-") else "a file"
        raise UsageError(f"{option} '': give the path of {kind}")
    return text


def _hosts(option: str, text: str) -> str:
    if not text:
        raise UsageError(f"{option} '': name the hosts and their numbers of ranks, as in '{option} host1:8'")
    return text


def _key(option: str, text: str) -> str:
    # MPI's launchers split the words for ssh at blanks, so what follows one would be an option of ssh.
    if any(each.isspace() for each in text):
        raise UsageError(
            f"{option} {text!r}: MPI's launchers take no path with white space; copy or link the key"
        )
    return _path(option, text)


def _port(option: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise UsageError(f"{option} {text!r}: give a port from 1 to 65535, as in '{option} 2222'")
    return int(text)


def _interfaces(option: str, text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names):
        raise UsageError(f"{option} {text!r}: name network interfaces, as in '{option} eth0,eth1'")
    return names


def _seconds_of(option: str, text: str) -> tuple[str, str]:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise UsageError(f"{option} {text!r}: give a whole number of seconds, as in '{option} 60'")
    return horovodrun.SECONDS[option], text


def _log_level(option: str, text: str) -> tuple[str, str]:
    level = horovodrun.LOG_LEVELS.get(text.lower())
    if level is None:
        raise UsageError(f"{option} {text!r}: give one of {', '.join(horovodrun.LOG_LEVELS)}")
    return "SMDDP_LOG_LEVEL", level


_NUM_PROC = ("num_ranks", _count)
# Options that take a value, each with its field and converter.
_VALUES: dict[str, tuple[str, Callable]] = {
    "-np": _NUM_PROC,
    "-n": ("nodes", _count),
    "--num-proc": _NUM_PROC,
    "-H": ("hosts", _hosts),
    "--hosts": ("hosts", _hosts),
    "--hostfile": ("hostfile", _path),
    "--host-discovery-script": ("discovery_script", _path),
    "--min-np": ("min_ranks", _count),
    "--elastic-timeout": ("elastic_timeout", _seconds),
    "-p": ("ssh_port", _port),
    "--ssh-port": ("ssh_port", _port),
    "-i": ("ssh_identity_file", _key),
    "--ssh-identity-file": ("ssh_identity_file", _key),
    "--network-interfaces": ("interfaces", _interfaces),
    "--threads-per-rank": ("threads_per_rank", _count),
    "-x": ("exports", _export),
    "--output-dir": ("output_dir", _path),
    "--max-restarts": ("max_restarts", _restarts),
    "--ps": ("servers", _count),
    "--timeline": ("timeline", _path),
    "--grace": ("grace", _seconds),
    "--timeout": ("timeout", _seconds),
}
# Options that take no value, each with its field and what it sets there.
_FLAGS: dict[str, tuple[str, object]] = {
    "--between-graph": ("between_graph", True),
    "--summary": ("summary", True),
    "-q": ("quiet", True),
    "--quiet": ("quiet", True),
    "-v": ("verbose", True),
    "--verbose": ("verbose", True),
    "--tag-output": ("tag_output", True),
    "--no-tag-output": ("tag_output", False),
    "--check": ("check", True),
    "-h": ("show", "help"),
    "--help": ("show", "help"),
    "--version": ("show", "version"),
    "--completion": ("show", "completion"),
}


_OURS = [*_VALUES, *_FLAGS, "-m", "--strategy", "--"]
# Fields of which each option adds a part; of the others the last value counts.
_LISTS = ("exports", "interfaces", "settings", "ignored")


def _add_horovodruns() -> None:
    _VALUES["--network-interface"] = _VALUES["--network-interfaces"]
    _VALUES["--max-np"] = ("max_ranks", _count)
    _VALUES["--slots-per-host"] = ("slots_per_host", _count)
    _VALUES["--log-level"] = ("settings", _log_level)
    _VALUES.update((name, ("settings", _seconds_of)) for name in horovodrun.SECONDS)
    _VALUES.update((name, ("ignored", lambda option, _: option)) for name in horovodrun.IGNORED_WITH_VALUE)
    _FLAGS.update((name, ("settings", value)) for name, value in horovodrun.SETTINGS.items())
    _FLAGS.update((name, ("ignored", name)) for name in horovodrun.IGNORED)
    for name, ours in horovodrun.SAME.items():
        table: dict[str, Any] = _VALUES if ours in _VALUES else _FLAGS
        table[name] = table[ours]


_add_horovodruns()


def with_value() -> list[str]:
    """Returns the options that take a value."""
    return list(_VALUES)


def words() -> list[str]:
    """Returns our own options."""
    return list(_OURS)


# How other launchers write what we have, and how we do.
_ELSEWHERE = {
    "--np": "-np",
    "-c": "-np",
    "--ntasks": "-np",
    "--nproc-per-node": "-np",
    "--nproc_per_node": "-np",
    "--nnodes": "-H HOST:N,...",
    "-machinefile": "--hostfile",
    "--machinefile": "--hostfile",
    "-host": "-H",
    "--host": "-H",
    "--module": "-m",
}


def _unknown(word: str) -> UsageError:
    """Returns the error for an option that there is not, with the one that may have been meant."""
    name, _, value = word.partition("=")
    if name in horovodrun.REFUSED:
        return UsageError(f"{name} of horovodrun: {horovodrun.REFUSED[name]}")
    number = re.fullmatch(r"-np=?([0-9]{1,5})", word)
    if number:
        meant = f"-np {number[1]}"
    elif name in _ELSEWHERE:
        meant = _ELSEWHERE[name]
        if meant == "-np" and value.isalnum():
            meant = f"-np {value}"
    else:
        meant = next(iter(difflib.get_close_matches(name, [*_VALUES, *_FLAGS], n=1)), "")
    guess = f" did you mean '{meant}'?" if meant else ""
    return UsageError(
        f"unknown option {word!r};{guess} see smddprun --help (options of the command go after the command)"
    )


def refuse_nodes(chosen: Options) -> None:
    """Refuses `-n`, whose number would be misread by half of those who write it.

    `smddprun -n 16` of SMDDP started ranks on 16 hosts, and `mpirun -n 16` starts 16 ranks. Only in a process
    that an MPI launcher has started does the number not matter, since no rank is started there.

    Raises:
      UsageError: if `-n` was given.
    """
    if chosen.nodes is not None:
        raise UsageError(
            f"-n {chosen.nodes}: it counted hosts in SMDDP's smddprun, and counts ranks elsewhere; give "
            f"'-np {chosen.nodes}' for {chosen.nodes} ranks on this host, or name the hosts and the ranks of "
            "each, as in '-H host1:8,host2:8'"
        )


def _check_hosts(fields: dict[str, Any], given: dict[str, str]) -> None:
    """Refuses options about hosts that contradict each other."""
    naming = [given[field] for field in ("hosts", "hostfile", "discovery_script") if field in given]
    if len(naming) > 1:
        raise UsageError(f"{' and '.join(naming)} each name the hosts; leave out all but one of them")
    if "slots_per_host" in given and "discovery_script" not in given:
        raise UsageError(
            f"{given['slots_per_host']} is for the hosts of --host-discovery-script; with -H, write 'host1:8'"
        )
    least, most = fields.get("min_ranks"), fields.get("num_ranks")
    if least is not None:
        option = f"{given['min_ranks']} {least}"
        if not naming:
            raise UsageError(f"{option} is for jobs of several hosts; name them, as in '-H host1:8,host2:8'")
        if "servers" in given:
            raise UsageError(f"{option}: a job with --ps needs all of its hosts; leave it out")
        if most is not None and least > most:
            raise UsageError(f"{option}: there are {most} ranks at most; give {most} or less")


_BESIDE_CHECK = ("check", "hosts", "hostfile", "ssh_port", "ssh_identity_file", "timeout", "verbose")


def _refuse_beside_check(given: dict[str, str], rest: list[str]) -> None:
    if rest:
        raise UsageError(f"--check runs no command; leave out {rest[0]!r}")
    for field, option in given.items():
        if field not in _BESIDE_CHECK:
            raise UsageError(f"--check starts ranks of its own; leave out {option}")


def _with_strategy(rest: list[str]) -> list[str]:
    """Returns the command that runs the script that `rest` begins with, which may stand behind a Python."""
    is_python = bool(rest) and re.fullmatch(r"(.*/)?python[0-9.]*", rest[0]) is not None
    python, script = (rest[0], rest[1:]) if is_python else (sys.executable, rest)
    if not script:
        raise UsageError("--strategy needs a script after it, as in 'smddprun -np 2 --strategy train.py'")
    return [python, "-m", "tf_smddp.distribute", *script]


def parse(arguments: list[str]) -> Options:
    """Parses the words after the program's name.

    Long options take their value as the next word or after '='. The last value of an
    option counts; `-x` adds up. `exports` has the variables of horovodrun's options before those of `-x`.

    Args:
      arguments: `sys.argv[1:]`.

    Returns:
      The options. The command is never empty unless `show` or `check` is set.

    Raises:
      UsageError: for an unknown option, a missing or wrong value, or no command.
    """
    fields: dict[str, Any] = {}
    given: dict[str, str] = {}  # the option by which each field was set
    lists: dict[str, list[Any]] = {field: [] for field in _LISTS}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word == "-m":
            if not rest:
                raise UsageError("-m needs a module after it, as in 'smddprun -np 2 -m trainer.main'")
            rest = [sys.executable, "-m", *rest]
            break
        if word == "--strategy":
            given["strategy"] = word
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _FLAGS:
            if equals:
                raise UsageError(f"{word!r}: {name} takes no value; leave out '={value}'")
            field, flag = _FLAGS[name]
            if field in lists:
                lists[field].append(flag)
            else:
                fields[field], given[field] = flag, name
            if field == "show":
                return Options(**fields)
        elif name in _VALUES:
            if not equals:
                if not rest:
                    raise UsageError(f"{name} needs a value after it; see smddprun --help")
                value = rest.pop(0)
            field, convert = _VALUES[name]
            if field == "interfaces":
                lists[field] += convert(name, value)
            elif field in lists:
                lists[field].append(convert(name, value))
            else:
                fields[field], given[field] = convert(name, value), name
        else:
            raise _unknown(word)
    if "strategy" in given:
        rest = _with_strategy(rest)
    if "max_ranks" in fields:
        fields["num_ranks"] = fields.pop("max_ranks")
    _check_hosts(fields, given)
    if "between_graph" in fields and "servers" not in fields:
        raise UsageError("--between-graph says who runs the command beside parameter servers; add '--ps 1'")
    for field in ("timeline", "summary", "strategy"):
        if field in given and "servers" in given:
            raise UsageError(f"--ps: tf_smddp does not move the data of this job; leave out {given[field]}")
    if fields.get("check"):
        _refuse_beside_check(given, rest)
    elif not rest:
        raise UsageError("no command given; for example: smddprun -np 2 python train.py")
    interfaces = tuple(dict.fromkeys(lists["interfaces"]))
    settings = [*lists["settings"], *([("NCCL_SOCKET_IFNAME", ",".join(interfaces))] if interfaces else [])]
    return Options(
        command=tuple(rest),
        exports=(*settings, *lists["exports"]),
        interfaces=interfaces,
        ignored=tuple(lists["ignored"]),
        **fields,
    )
