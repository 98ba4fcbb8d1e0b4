"""Brings in the header of several versions of NCCL, out of its packages on PyPI: 730 MB, once for each folder of Bazel's output.

Only a test needs them. Where PyPI cannot be reached, the headers are empty, and the test says so.
"""

load("//third_party:pypi.bzl", "install_from_pypi")

# NCCL's header needs these of CUDA's.
_CUDA = """#define __CUDA_BF16_TYPES_EXIST__
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUstream_st* cudaStream_t;
"""

_LIBRARY = """cc_library(
    name = "{version}",
    hdrs = glob(["{version}/*.h"]),
    includes = ["{version}"],
    visibility = ["//visibility:public"],
)
"""

def _impl(ctx):
    error = ""
    build = ""
    for requirements in ctx.attr._requirements:
        version = requirements.name[:-len(".txt")]
        text = ""
        if error == "":
            installed = install_from_pypi(ctx, ctx.path(requirements))
            error = installed.error
        if error == "":
            text = ctx.read(installed.folder.get_child("nvidia").get_child("nccl").get_child("include").get_child("nccl.h"))
            ctx.delete(installed.folder)
        ctx.file(version + "/nccl.h", text, executable = False)
        ctx.file(version + "/cuda_runtime.h", _CUDA, executable = False)
        ctx.file(version + "/cuda_fp16.h", "", executable = False)
        build += _LIBRARY.format(version = version)
    if error != "":
        # buildifier: disable=print
        print("nccl_header_test compares nothing, since NCCL cannot be installed from PyPI.\n" + error)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD", build)

nccl = repository_rule(
    implementation = _impl,
    attrs = {
        "_requirements": attr.label_list(
            default = [Label("//third_party/nccl:%s.txt" % version) for version in ("2.16.5", "2.21.5", "2.32.3")],
            allow_files = True,
        ),
    },
)
