# SPDX-License-Identifier: MIT
"""The version, which the tree says once, the license, which setuptools before 77 takes here only, and the C extension."""

import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
DKMS = HERE.parent.parent / "dkms.conf"
TREE = r'^PACKAGE_VERSION="(.*)"', DKMS
# of a source distribution, which has no tree around it
ALONE = r"^Version: (.*)", HERE / "PKG-INFO"

pattern, path = TREE if DKMS.exists() else ALONE
setup(
    version=re.search(pattern, path.read_text(), re.M).group(1),
    license="MIT",
    cffi_modules=["build_native.py:ffi"],
)
