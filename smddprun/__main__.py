"""The commands `smddprun`, also as `python -m smddprun`, and `smddpsinglenode`. See docs/launcher.md."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import smddprun
from smddprun import command, environment, horovodrun, hosts, options

if TYPE_CHECKING:
    from smddprun.lost_hosts import Watch

_USAGE = 2
_CANNOT_START = 1
_OUTPUT_LOST = 1
_MOST_OF_A_HOSTFILE = 1 << 20  # characters

# init() accepts no more ranks on one host (kMaxLocalRanks in kernels/common/launch_environment.h).
_MOST_RANKS_OF_A_HOST = 64


def _shown(what: str) -> str:
    if what == "help":
        return options.HELP
    if what == "version":
        return f"smddprun {smddprun.__version__}\n"
    from smddprun import completion

    return completion.script()


def main(
    arguments: Sequence[str] | None = None,
    *,
    whole_host: bool = False,
    supervised: bool = False,
    watch: Watch | None = None,
) -> int:
    """Runs the launcher.

    Args:
      arguments: the words after the program's name; default: `sys.argv[1:]`.
      whole_host: without `-np`, start as many ranks as suit this host, not one.
      supervised: this is one of the tries of `--max-restarts`.
      watch: the supervisor's, if the job has several hosts.

    Returns:
      The exit code. Under an MPI launcher it does not return, since this process becomes the command.
    """
    _open_standard_descriptors()
    try:
        chosen = options.parse(list(sys.argv[1:] if arguments is None else arguments))
        if chosen.show:
            print(_shown(chosen.show), end="", flush=True)
            return 0
        is_rank = chosen.num_ranks is None and environment.outer_launcher(os.environ) is not None
        if chosen.max_restarts and not supervised and not is_rank:
            from smddprun import restarts

            if chosen.names_hosts:
                from smddprun import lost_hosts

                watch = lost_hosts.Watch(environment.with_exports(os.environ, chosen.exports))
            again = functools.partial(main, arguments, whole_host=whole_host, supervised=True, watch=watch)
            return restarts.run(chosen.max_restarts, again, watch)
        environ = environment.with_exports(os.environ, chosen.exports)
        if chosen.check:
            from smddprun import mpi
            from smddprun.check import checker

            named = hosts.deal(_named_hosts(chosen), chosen.num_ranks)
            return checker.run(chosen, named, mpi.with_ways_to_hosts(environ, chosen) if named else environ)
        words = command.resolve(chosen.command, environ)
        several_hosts = chosen.names_hosts
        outer = environment.outer_launcher(environ)
        if chosen.servers and not several_hosts and chosen.num_ranks is None and outer:
            raise options.UsageError(
                f"--ps {chosen.servers}: this process is a rank of another launcher, as {outer} shows; give "
                "-np for the workers of a new job"
            )
        if not several_hosts and chosen.num_ranks is None and outer:
            from smddprun import lost_hosts

            lost_hosts.hold(environ)
            _replace_this_process(words, environment.with_torch_variables(environ, os.getppid()))
        options.refuse_nodes(chosen)
        notes = not chosen.quiet and not _is_another_try(supervised)
        if chosen.ignored and notes:
            print(f"smddprun: {horovodrun.note(chosen.ignored)}", file=sys.stderr)
        if several_hosts:
            dealt = _hosts_of_this_start(chosen, environ, first=not _is_another_try(supervised))
            return _launch_on_hosts(dealt, chosen, words, environ, notes, watch)
        if chosen.num_ranks is None and whole_host:
            chosen = chosen._replace(num_ranks=_ranks_of_this_host(environ))
        return _launch(chosen, words, environ, notes)
    except options.UsageError as error:
        return _fail(str(error), _USAGE)
    except command.CommandError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:  # the launcher had not taken over the signals yet, and had started nothing
        return 128 + signal.SIGINT
    except BrokenPipeError:  # of a help text or a check; a job's output has writers of its own
        # Python writes what it still holds when it ends, and would report the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _is_another_try(supervised: bool) -> bool:
    """Whether `--max-restarts` has started the job before."""
    if not supervised:
        return False
    from smddprun import restarts

    return os.environ[restarts.COUNT] != "0"


def _named_hosts(chosen: options.Options) -> list[hosts.Host]:
    """Returns the hosts that the options name, with their slots; none when all ranks are on this one."""
    if chosen.hosts is not None:
        return hosts.parse_list("-H", chosen.hosts)
    if chosen.discovery_script is not None:
        from smddprun import elastic

        return elastic.discover(chosen.discovery_script, chosen.slots_per_host or 1)
    if chosen.hostfile is None:
        return []
    try:
        with open(chosen.hostfile, encoding="utf-8") as file:
            text = file.read(_MOST_OF_A_HOSTFILE + 1)
        if len(text) > _MOST_OF_A_HOSTFILE:
            raise options.UsageError(
                f"--hostfile {chosen.hostfile!r} has more than {_MOST_OF_A_HOSTFILE} characters; name a "
                "file with a line such as 'host1 slots=8' for each host"
            )
        return hosts.parse_file(chosen.hostfile, text.splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise options.UsageError(f"--hostfile {chosen.hostfile!r} cannot be read: {error}") from error


def _hosts_of_this_start(
    chosen: options.Options, environ: Mapping[str, str], first: bool
) -> list[hosts.Host]:
    """Returns the hosts with the ranks that each gets; `first`: as in `elastic.find`."""
    if chosen.min_ranks is None and chosen.discovery_script is None:
        return hosts.deal(_named_hosts(chosen), chosen.num_ranks)
    from smddprun import elastic, mpi

    if not chosen.max_restarts:
        print(
            "smddprun: note: without --max-restarts, the loss of a host ends the job for good",
            file=sys.stderr,
        )
    try:
        name_hosts = functools.partial(_named_hosts, chosen)
        return elastic.find(name_hosts, chosen, mpi.with_ways_to_hosts(environ, chosen), first)
    except mpi.LauncherError as error:
        raise command.CommandError(str(error), _CANNOT_START) from error


def _launch_on_hosts(
    dealt: list[hosts.Host],
    chosen: options.Options,
    words: list[str],
    environ: Mapping[str, str],
    notes: bool,
    watch: Watch | None,
) -> int:
    """Becomes MPI's launcher; if the only host is this one, runs the job without.

    `notes`: as in `_launch`; `watch`: as in `main`.
    """
    from smddprun import cores, gpus, mpi, rendezvous
    from smddprun.check import programs

    if len(dealt) == 1 and hosts.is_this_one(dealt[0]):
        return _launch(chosen._replace(num_ranks=dealt[0].slots), words, environ, notes)
    if chosen.servers:
        from smddprun import roles

        named = [hosts.Host(hosts.address_of(host), host.slots) for host in dealt]
        plan = roles.plan(named, chosen.servers, chosen.between_graph, words)
        for each in plan.ports:
            each.set_inheritable(True)
        rank_words = plan.words
        dealt = [host._replace(slots=count) for host, count in zip(dealt, plan.counts)]
        if notes:
            ranks = ", ".join(f"{rank} is {name}" for rank, name in enumerate(plan.names))
            print(f"smddprun: note: of the ranks {ranks}", file=sys.stderr)
    else:  # there smddprun becomes the command, and gives it the numbers that MPI's launcher gives it
        rank_words = [*programs.words_of("smddprun.__main__"), "--", *words]
    threads = chosen.threads_per_rank or cores.fair_share(cores.usable(), dealt[0].slots)
    job_environ = environment.job_environment(environ, threads, chosen.threads_per_rank is not None)
    port = rendezvous.reserve_port()
    port.set_inheritable(True)  # to MPI's launcher, which this process becomes
    first = hosts.address_of(dealt[0])
    job_environ = environment.with_torch_store(job_environ, first, port.getsockname()[1])
    job_environ = gpus.with_settings(environment.with_exports(job_environ, chosen.exports), dealt[0].slots)
    job_environ = mpi.with_ways_to_hosts(job_environ, chosen)
    if watch is not None and not chosen.servers:
        job_environ.update(watch.environ(dealt))
    try:
        program, family = mpi.find_launcher(job_environ)
    except mpi.LauncherError as error:
        return _fail(str(error), _CANNOT_START)
    launch = mpi.launch_words(program, family, dealt, chosen, job_environ, rank_words)
    unknown = hosts.unknown(dealt) if notes else []
    if unknown:
        names = ",".join(unknown)
        print(
            f"smddprun: note: {names}: no address is known here, unless to ssh: check the spelling, or see "
            f"'smddprun --check -H {names}'",
            file=sys.stderr,
        )
    if chosen.verbose:
        print(f"smddprun: {' '.join(launch)}", file=sys.stderr)
    _replace_this_process(launch, mpi.launch_environment(family, chosen, job_environ))
    raise AssertionError("execve does not return")


def single_node() -> int:
    """Runs `smddpsinglenode`: the launcher, with the number of ranks that suits this host."""
    return main(whole_host=True)


def _ranks_of_this_host(environ: Mapping[str, str]) -> int:
    """Returns one rank for each GPU; on a host without GPUs, one for each two cores."""
    from smddprun import cores, gpus

    return min(gpus.count(environ) or cores.fitting_ranks(cores.usable()), _MOST_RANKS_OF_A_HOST)


def _note_of_a_lone_rank(words: Sequence[str]) -> str:
    if "-np" in words:
        return "note: 1 rank; '-np' behind the command is the command's own: put it before the command"
    return "note: 1 rank, since there is no -np; 'smddprun -np 2 ...' starts two"


def _fail(text: str, exit_code: int) -> int:
    print(f"smddprun: {text}", file=sys.stderr)
    return exit_code


def _open_standard_descriptors() -> None:
    """Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    The next pipe would take its number otherwise, and ranks would write into that pipe.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(
                os.open(os.devnull, os.O_RDWR), True
            )  # gets the lowest free number, which is fd


def _replace_this_process(words: list[str], environ: Mapping[str, str]) -> None:
    """Replaces this process by the command, which then is a rank of the MPI launcher."""
    # Python ignores these two signals at its start, and the command must not inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(words[0], words, environ)
    except OSError as error:
        raise command.CommandError(
            f"{words[0]!r} can't be executed: {error.strerror}; does a script begin with '#!...'?",
            command.NOT_EXECUTABLE,
        ) from error


def _launch(chosen: options.Options, words: Sequence[str], environ: Mapping[str, str], notes: bool) -> int:
    """Runs a job on this host. `notes`: write what the user may want to know before it starts."""
    try:
        from smddprun import cores, gpus, job, outputs, rank_notes, rendezvous, reports, signals, sinks
        from smddprun.guard import Guard
    except ModuleNotFoundError as error:
        return _fail(f"the Python package {error.name!r} is missing; pip install {error.name}", _CANNOT_START)

    if not os.path.exists("/proc/self/stat"):
        return _fail(
            "the launcher can't start: /proc is not mounted, in which it finds processes", _CANNOT_START
        )
    num_ranks = chosen.num_ranks or 1
    names: Sequence[str] = ()
    usable = cores.usable()
    try:
        port = rendezvous.reserve_port()
        if chosen.servers:
            from smddprun import roles

            one = hosts.Host("127.0.0.1", num_ranks)
            plan = roles.plan([one], chosen.servers, chosen.between_graph, words)
            words, names, num_ranks = plan.words, plan.names, len(plan.names)
            chosen = chosen._replace(num_ranks=num_ranks)
    except OSError as error:
        return _fail(
            f"the launcher can't reserve a TCP port: {error.strerror}; look at `ulimit -n`", _CANNOT_START
        )
    threads = chosen.threads_per_rank or cores.fair_share(usable, num_ranks)
    job_environ = environment.job_environment(environ, threads, chosen.threads_per_rank is not None)
    job_environ = environment.with_torch_store(job_environ, "127.0.0.1", port.getsockname()[1])
    job_environ = environment.with_exports(job_environ, chosen.exports)  # -x overrides what is computed above
    job_environ = gpus.with_settings(job_environ, num_ranks)
    job_id = environment.new_job_id(environ, os.urandom(8).hex())
    try:
        # All users see its name, and the job's id is not for them.
        directory = rendezvous.choose(environ, os.urandom(8).hex())
        if chosen.output_dir is not None:
            os.makedirs(chosen.output_dir, exist_ok=True)
    except rendezvous.RendezvousError as error:
        return _fail(str(error), _CANNOT_START)
    except OSError as error:
        raise options.UsageError(
            f"--output-dir {chosen.output_dir!r}: {error.strerror}; give a directory that you may write to"
        ) from error
    try:
        wanted = reports.Reports(chosen.timeline, chosen.summary)
        own = {rank_notes.VARIABLE: rendezvous.fifo(directory), **wanted.environ()}
        job_environ = {**job_environ, **own}
        signal_pipe = signals.SignalPipe()
        signal_pipe.install()
        guard = Guard(job_id, directory)
        run = job.Job(chosen, job_id, sinks.open_sinks(signal_pipe.wake), signal_pipe, guard, names)
    except OSError as error:
        return _fail(f"the launcher can't start: {error.strerror}; look at `ulimit -n -u`", _CANNOT_START)
    try:
        rendezvous.create(directory)
        try:
            run.listen(rank_notes.RankNotes(rendezvous.fifo(directory)))
        except OSError as error:
            text = f"the launcher can't start: {error.strerror}; look at `ulimit -n`"
            raise rendezvous.RendezvousError(text) from error
        if notes and chosen.num_ranks is None:
            run.say(_note_of_a_lone_rank(words))
        if notes and num_ranks > usable and not chosen.servers:
            run.say(cores.note(num_ranks, usable))
        if chosen.verbose:
            run.say(
                f"job {job_id}: {num_ranks} ranks, {usable} cores, {threads} threads for each rank, "
                f"directory {directory}"
            )
            run.say(f"command: {' '.join(words)}")
        exit_code = run.run(words, job_environ, rendezvous.meeting(directory))
    except (rendezvous.RendezvousError, outputs.LogError, job.StartError) as error:
        run.say(str(error))
        exit_code = getattr(error, "exit_code", _CANNOT_START)
    try:
        rendezvous.remove(directory)
    except rendezvous.RendezvousError as error:
        run.say(str(error))
    guard.dismiss()
    for line in wanted.finish(num_ranks):
        run.say(line)
    # Only output remains to be written, and its reader may be slow. A signal now ends this process at once.
    signal_pipe.restore_stopping()
    written = run.close()
    return exit_code if written else exit_code or _OUTPUT_LOST


if __name__ == "__main__":
    sys.exit(main())
