"""Hashes of values, by which ranks find out whether they have the same ones."""

from __future__ import annotations

import hashlib
from typing import Sequence

import numpy as np

BYTES = 8


def hash_of(data: bytes) -> bytes:
    """Returns a hash of BYTES bytes."""
    return hashlib.blake2b(data, digest_size=BYTES).digest()


def hash_of_array(array: np.ndarray) -> bytes:
    """Returns a hash of the array's elements, of BYTES bytes."""
    elements = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.blake2b(elements, digest_size=BYTES).digest()


def number_of(hashes: Sequence[bytes]) -> int:
    """Returns a number of 64 bits, with a sign, for a list of hashes.

    Ranks have the same list if the largest number of all is the smallest, too: if for (number, ~number) the
    maxima over all ranks are (n, ~n).
    """
    return int.from_bytes(hash_of(b"".join(hashes)), "little", signed=True)
