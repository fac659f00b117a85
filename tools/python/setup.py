# SPDX-License-Identifier: MIT
"""Metadata that pyproject.toml cannot hold: version, license (for setuptools before 77) and C extension."""

import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
DKMS = HERE.parent.parent / "dkms.conf"
TREE = r'^PACKAGE_VERSION="(.*)"', DKMS
# in a source distribution, which lacks the tree
ALONE = r"^Version: (.*)", HERE / "PKG-INFO"

pattern, path = TREE if DKMS.exists() else ALONE
setup(
    version=re.search(pattern, path.read_text(), re.M).group(1),
    license="MIT",
    cffi_modules=["build_native.py:ffi"],
)
