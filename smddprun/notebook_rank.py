"""The program of a rank of `run`: it calls the function, and leaves its result in the folder."""

from __future__ import annotations

import os
import pathlib
import pickle
import time
import traceback

import cloudpickle

from smddp import uncaught
from smddprun.notebook import CALL, Failure


def main(name: str) -> None:
    """Calls the function that is pickled in the folder `name`; writes its result, or why there is none."""
    folder, rank = pathlib.Path(name), os.environ["SMDDP_RANK"]
    try:
        function, args, kwargs = cloudpickle.loads((folder / CALL).read_bytes())
        result = function(*args, **kwargs)
        try:
            content = cloudpickle.dumps(result)
        except Exception as error:  # cloudpickle raises whatever an object's own methods raise
            raise TypeError(
                f"the function's result of type {type(result).__name__} cannot be sent back: {error}. Return "
                "numbers, arrays or text, such as model.get_weights()."
            ) from error
    except Exception as error:
        text = "".join(traceback.format_exception_only(type(error), error)).rstrip()
        follows = uncaught.blamed(error, int(rank)) is not None
        failure = Failure(follows, time.time_ns(), text, traceback.format_exc())
        _write(folder / f"failure.{rank}", pickle.dumps(tuple(failure)))
        raise  # the other ranks get its text, as of any script
    _write(folder / f"result.{rank}", content)


def _write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that is there as a whole or not at all."""
    part = path.with_suffix(f"{path.suffix}.part")
    part.write_bytes(content)
    part.rename(path)
