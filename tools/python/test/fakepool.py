# SPDX-License-Identifier: MIT
"""Settings of libkvblk-fake(7), which reads the environment at each call."""

import contextlib
import os


@contextlib.contextmanager
def fault(**settings):
    """Set ``KVBLK_FAKE_NAME=VALUE`` temporarily."""
    settings = {f"KVBLK_FAKE_{name}": str(value) for name, value in settings.items()}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]


@contextlib.contextmanager
def gate():
    """Delay batches: yield a function that lets a number of batches pass."""
    reader, writer = os.pipe()
    try:
        with fault(GATE=reader):
            yield lambda count=64: os.write(writer, b"x" * count)
    finally:
        os.close(writer)
        os.close(reader)


@contextlib.contextmanager
def arrivals():
    """Yield a function that waits until a batch has arrived at the gate."""
    reader, writer = os.pipe()
    try:
        with fault(ARRIVALS=writer):
            yield lambda: os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)
