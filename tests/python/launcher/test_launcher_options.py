"""The parsing of the command line."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smddprun.options import HELP, MAX_RANKS, Options, UsageError, parse, refuse_nodes

WITH_VALUE = {
    "-np": ("2", {"num_ranks": 2}),
    "-n": ("3", {"nodes": 3}),
    "--num-proc": ("4", {"num_ranks": 4}),
    "--threads-per-rank": ("8", {"threads_per_rank": 8}),
    "-H": ("a:2,b", {"hosts": "a:2,b"}),
    "--hosts": ("a:2,b", {"hosts": "a:2,b"}),
    "--output-dir": ("logs", {"output_dir": "logs"}),
    "--grace": ("0.5", {"grace": 0.5}),
    "--timeout": ("60", {"timeout": 60.0}),
    "--max-restarts": ("3", {"max_restarts": 3}),
    "--timeline": ("t.json", {"timeline": "t.json"}),
    "-x": ("A=b=c", {"exports": (("A", "b=c"),)}),
    "-p": ("2222", {"ssh_port": 2222}),
    "--ssh-port": ("2222", {"ssh_port": 2222}),
    "-i": ("key", {"ssh_identity_file": "key"}),
    "--ssh-identity-file": ("key", {"ssh_identity_file": "key"}),
}
FLAGS = {
    "-v": {"verbose": True},
    "--verbose": {"verbose": True},
    "--summary": {"summary": True},
    "--tag-output": {"tag_output": True},
    "--no-tag-output": {"tag_output": False},
}


def test_defaults():
    assert parse(["train.py"]) == Options(command=("train.py",))
    assert Options().num_ranks is None and Options().grace is None and Options().timeout is None


@pytest.mark.parametrize("option", WITH_VALUE)
def test_option_with_a_value(option):
    text, fields = WITH_VALUE[option]
    assert parse([option, text, "cmd"]) == Options(command=("cmd",), **fields)
    if option.startswith("--"):
        assert parse([f"{option}={text}", "cmd"]) == Options(command=("cmd",), **fields)


@pytest.mark.parametrize("option", FLAGS)
def test_flag(option):
    assert parse([option, "cmd"]) == Options(command=("cmd",), **FLAGS[option])


def test_every_pair_of_options_in_both_orders():
    words = {option: [option, text] for option, (text, _) in WITH_VALUE.items()}
    words.update({option: [option] for option in FLAGS})
    fields = {option: value for option, (_, value) in WITH_VALUE.items()} | FLAGS
    for first, second in itertools.permutations(words, 2):
        if set(fields[first]) != set(fields[second]):
            expected = Options(command=("cmd",), **{**fields[first], **fields[second]})
            assert parse([*words[first], *words[second], "cmd"]) == expected


@pytest.mark.parametrize("option", [*WITH_VALUE, *FLAGS])
def test_every_option_is_in_the_help(option):
    assert option in HELP


def test_last_value_counts_and_exports_add_up():
    options = parse(["-np", "2", "-np", "3", "-x", "A=1", "-x", "B", "-x", "C=", "cmd"])
    assert options.num_ranks == 3
    assert options.exports == (("A", "1"), ("B", None), ("C", ""))


@given(st.lists(st.text(max_size=8)), st.text(min_size=1, max_size=8).filter(lambda w: not w.startswith("-")))
def test_words_after_the_command_are_never_ours(arguments, command):
    assert parse(["-np", "2", command, *arguments]).command == (command, *arguments)
    assert parse(["--", command, *arguments]).command == (command, *arguments)


def test_a_number_of_hosts_is_refused_with_both_readings():
    refuse_nodes(parse(["-np", "2", "cmd"]))
    with pytest.raises(UsageError) as error:
        refuse_nodes(parse(["-n", "16", "cmd"]))
    for part in ("-n 16", "hosts", "'-np 16'", "-H host1:8"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_a_command_that_begins_with_a_dash():
    assert parse(["-np", "2", "--", "-odd", "-np"]).command == ("-odd", "-np")
    assert parse(["-"]).command == ("-",)


def test_a_module():
    command = (sys.executable, "-m", "trainer.main", "--epochs", "3", "-np", "4")
    assert parse(["-np", "2", "-m", "trainer.main", *command[3:]]) == Options(command=command, num_ranks=2)
    assert "-m MODULE" in HELP


def test_a_script_of_tf_distribute():
    strategy = ("-m", "tf_smddp.distribute", "train.py", "--epochs", "3", "-np", "4")
    words = ["-np", "2", "--strategy"]
    assert parse([*words, *strategy[2:]]) == Options(command=(sys.executable, *strategy), num_ranks=2)
    assert parse(["--strategy", "-np", "2", *strategy[2:]]) == parse([*words, *strategy[2:]])
    assert parse([*words, "-m", "trainer"]).command == (sys.executable, *strategy[:2], "-m", "trainer")
    for python in ("python", "/usr/bin/python3.11"):
        assert parse([*words, python, *strategy[2:]]).command == (python, *strategy)
    for rest in ([], ["python"]):
        with pytest.raises(UsageError, match="--strategy needs a script after it"):
            parse([*words, *rest])
    assert "--strategy SCRIPT.py" in HELP


@pytest.mark.parametrize("word,show", [("-h", "help"), ("--help", "help"), ("--version", "version")])
def test_help_and_version_need_no_command(word, show):
    assert parse(["-np", "2", word]).show == show
    assert parse(["cmd", word]).show is None


@pytest.mark.parametrize(
    "text", ["0", "-1", "abc", "", "1.5", "2x", " 2", "+2", "٣", "²", str(MAX_RANKS + 1), "9" * 5000]
)
@pytest.mark.parametrize("option", ["-np", "-n", "--num-proc", "--threads-per-rank"])
def test_wrong_count_names_option_value_and_remedy(option, text):
    with pytest.raises(UsageError) as error:
        parse([option, text, "cmd"])
    assert (
        option in str(error.value) and repr(text) in str(error.value) and "whole number" in str(error.value)
    )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["-1", "abc", "", "nan", "inf", "1e10"])
@pytest.mark.parametrize("option", ["--grace", "--timeout"])
def test_wrong_seconds_name_option_value_and_remedy(option, text):
    with pytest.raises(UsageError, match="seconds") as error:
        parse([option, text, "cmd"])
    assert option in str(error.value) and repr(text) in str(error.value)


@pytest.mark.parametrize(
    "words,part",
    [
        ([], "no command"),
        (["-np", "2"], "no command"),
        (["--"], "no command"),
        (["-np"], "needs a value"),
        (["-x"], "needs a value"),
        (["-x", "=1", "cmd"], "'=1'"),
        (["--output-dir", "", "cmd"], "directory"),
        (["--bogus", "cmd"], "'--bogus'"),
        (["-np2", "cmd"], "unknown option '-np2'; did you mean '-np 2'?"),
        (["--verbos", "cmd"], "unknown option '--verbos'; did you mean '--verbose'?"),
        (["--nproc-per-node=8", "cmd"], "did you mean '-np 8'?"),
        (["--nproc_per_node", "8", "cmd"], "did you mean '-np'?"),
        (["-machinefile", "f", "cmd"], "did you mean '--hostfile'?"),
        (["-m"], "-m needs a module after it"),
        (["--verbose=1", "cmd"], "takes no value"),
    ],
)
def test_other_mistakes(words, part):
    with pytest.raises(UsageError) as error:
        parse(words)
    assert part in str(error.value) and "\n" not in str(error.value)


@given(st.lists(st.text(max_size=6)))
def test_anything_is_parsed_or_refused_in_one_line(words):
    try:
        parse(words)
    except UsageError as error:
        assert "\n" not in str(error)
