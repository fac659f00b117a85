# SPDX-License-Identifier: MIT
"""Build the extension module kvblk._native from native.c and libkvblk, with cffi.

By default libkvblk is compiled from the tree and linked statically, so the package needs only the libraries that
libkvblk needs. An installed libkvblk is linked if KVBLK_SYSTEM_LIB=1 is set, or in a source distribution, which lacks
the tree.
"""

import atexit
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from cffi import FFI

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent


def built_libraries():
    """Build the static libraries; return their paths."""
    out = tempfile.mkdtemp(prefix="kvblk-lib-")
    atexit.register(shutil.rmtree, out, True)
    archives = [f"{out}/lib/libkvblk.a", f"{out}/lib/libkvblk-keys.a"]
    subprocess.run(["make", "-s", "-C", str(HERE.parent), f"O={out}", *archives], check=True)
    return archives


ffi = FFI()
source = (HERE / "native.c").read_text()
# declarations for Python; the compiler skips the declarations of kvblk.h
declared = re.search(r"/\* cdef \*/(.*)/\* end of cdef \*/", source, re.S).group(1)
ffi.cdef(re.sub(r"^#(if 0|endif)$|KVPY ", "", declared, flags=re.M))
options = {"include_dirs": [str(HERE.parent / "lib"), str(TOP / "uapi")]}
if os.environ.get("KVBLK_SYSTEM_LIB") == "1" or not (HERE.parent / "lib" / "kvblk.h").exists():
    options = {"libraries": ["kvblk", "kvblk-keys"]}
else:
    # hide the symbols, because another libkvblk may be loaded in the process
    options.update(extra_objects=built_libraries(), libraries=["uring", "md"],
                   extra_link_args=["-Wl,--exclude-libs,ALL"])
ffi.set_source("kvblk._native", source, extra_compile_args=["-std=gnu11", "-D_GNU_SOURCE"], **options)
