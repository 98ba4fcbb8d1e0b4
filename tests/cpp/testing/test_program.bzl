"""test_program: the tests of a folder as one program, of which each file is a test of its own."""

load("//kernels:as_one.bzl", "cc_library_as_one")

def test_program(name, tests, deps, tags = [], **kwargs):
    """Makes a program of test files that are compiled as one, and a test for each file.

    Reading GoogleTest's and the standard library's headers takes longer than compiling a test file, and each
    program is linked three times, for two sanitizers and without. So files that run under the same sanitizers
    belong into one program. Names in unnamed namespaces must differ between its files.

    Args:
      name: of the program.
      tests: the names of the tests, each with its own tags; the test `x` is the file x.cc.
      deps: the libraries that the files use; GoogleTest is one.
      tags: the tags of all tests.
      **kwargs: other arguments of the tests, which are sh_test.
    """
    cc_library_as_one(
        name = name + "_files",
        testonly = True,
        srcs = [test + ".cc" for test in tests],
        deps = deps + ["@com_google_googletest//:gtest"],
    )
    native.cc_binary(
        name = name,
        testonly = True,
        tags = ["manual"],  # built for those of its tests that are selected
        deps = [
            ":%s_files" % name,
            "//tests/cpp/testing:main",
        ],
    )
    for test, own_tags in tests.items():
        test_on_hosts(test, name, 1, tags = tags + own_tags, **kwargs)

def test_on_hosts(test, program, hosts, left_out = "", tags = [], grouped = False, **kwargs):
    """Makes a test that runs the tests of one file, with the ranks on so many hosts, which a wire joins.

    Args:
      test: the name of the file, without .cc.
      program: the test program that the file belongs to.
      hosts: how many hosts the ranks are on. With more than one it is part of the test's name.
      left_out: patterns of tests not to run, in the syntax of --gtest_filter.
      tags: of the test.
      grouped: whether the hosts exchange large tensors in groups. It is part of the test's name, too.
      **kwargs: other arguments of sh_test.
    """
    native.sh_test(
        name = test if hosts == 1 else "%s_on_%d_%shosts" % (test, hosts, "grouped_" if grouped else ""),
        srcs = ["//tests/cpp/testing:on_hosts.sh"],
        args = [
            str(hosts) + (",groups" if grouped else ""),
            "$(location :%s)" % program,
            "--tests_of=%s.cc" % test,
        ] + (["--gtest_filter=-" + left_out] if left_out else []),
        data = [":" + program],
        tags = tags,
        **kwargs
    )
