"""cc_library_as_one: a library whose sources are compiled as one file."""

def cc_library_as_one(name, srcs, **kwargs):
    """Makes a cc_library of `srcs`, which are included into one file, in their order, and always linked.

    For files that include TensorFlow's headers: reading these takes 7 s for each file, and those of XLA 40 s. The
    rest of our files takes next to nothing. Names in unnamed namespaces must differ between the files.

    Args:
      name: of the library.
      srcs: the names of .cc files in this package.
      **kwargs: other arguments of cc_library.
    """
    folder = native.package_name()
    native.genrule(
        name = name + "_as_one",
        outs = [name + "_as_one.cc"],
        cmd = "printf '#include \"%s/%%s\"\\n' %s > $@" % (folder, " ".join(srcs)),
    )
    native.cc_library(
        name = name,
        srcs = [name + "_as_one.cc"],
        textual_hdrs = srcs,
        alwayslink = True,
        **kwargs
    )
