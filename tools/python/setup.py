# SPDX-License-Identifier: MIT
"""The version, which the tree says once, and the C extension."""

import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
DKMS = HERE.parents[1] / "dkms.conf"

setup(
    version=re.search(r'^PACKAGE_VERSION="(.*)"', DKMS.read_text(), re.M).group(1),
    cffi_modules=["build_native.py:ffi"],
)
