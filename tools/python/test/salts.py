# SPDX-License-Identifier: MIT
"""Files of a deployment's salt, for the tests of this package and of the connectors."""

import os
import tempfile

#: the salt of the test vectors in Documentation/keys.rst
SALT = bytes(range(32)).hex()


def salt_file(test, mode=0o640, text=f"{SALT}\n"):
    """Make a file that is removed after ``test``, and return its path."""
    directory = tempfile.TemporaryDirectory()
    test.addCleanup(directory.cleanup)
    path = os.path.join(directory.name, "salt")
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path
