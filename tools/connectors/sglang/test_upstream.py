# SPDX-License-Identifier: MIT
"""SGLang's own tests of storage backends, with this backend in place of "file", on a CPU with a tiny model.

SGLang's wheel lacks them: SGLANG_SRC names a source tree of SGLang, at the version of requirements.txt. The tests are
unchanged, except for the backend's name and options. Servers start with the options of a CPU and one rank.
"""

import ast
import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

import engine
from pools import POOL
from test_engine import HERE, loaded, on_a_cpu

SRC = os.environ.get("SGLANG_SRC", "")
DIR = Path(SRC, "test/registered/hicache")
FILES = ("test_hicache_storage_file_backend", "test_hicache_storage_runtime_attach_detach")
LEFT_OUT = {"test_eval_accuracy": "wants a model that can calculate, and GSM8K's questions",
            "TestHiCacheStorageMLA": "wants attention of MLA models, which is not there on a CPU"}


# because stdout is for TAP
aside = functools.partial(print, file=sys.stderr)


class InPlaceOfFile(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.copy_location(ast.Constant("dynamic"), node) if node.value == "file" else node

    def visit_Assign(self, node):
        self.generic_visit(node)
        if ast.unparse(node.targets) in ("extra_config", "extra_cfg"):
            node.value = ast.BinOp(node.value, ast.BitOr(), ast.Name("OURS", ast.Load()))
        return node


def launch(start, dir, model, base_url, timeout, other_args, env):
    """Replace popen_launch_server of sglang.test, on a CPU."""
    options = engine.arguments(tp_size=1, hicache_size=0)
    forced = ("mem_fraction_static", "tp_size", "hicache_size")
    options["hicache_mem_layout"] = "layer_first"
    if "page_first" in other_args:
        options["hicache_io_backend"] = "kernel"
    for key, value in options.items():
        option = f"--{key.replace('_', '-')}"
        if key in forced or option not in other_args:
            other_args = [*other_args, option, *([] if value is True else [str(value)])]
    env = {**env, **on_a_cpu(dir, dir / "events"), "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    with contextlib.redirect_stdout(sys.stderr):
        return start(model, base_url, timeout, other_args=other_args, env=env, device="cpu",
                     return_stdout_stderr=(Path(os.devnull).open("w"),) * 2)


def from_the_pool(test, dir):
    """Run a test that needs 700 cached tokens."""
    @functools.wraps(test)
    def call(self):
        test(self)
        events = dir / "events"
        pages = loaded(map(json.loads, events.read_text().splitlines()))
        self.assertGreaterEqual(pages, 700 // 64, "pages that came from the pool")
        events.unlink()
    return call


def cases(name, dir):
    """Return the test classes of a file."""
    module = sys.modules[name] = types.ModuleType(name)
    module.OURS = json.loads(engine.storage({"pool": POOL}))
    module.print = aside
    path = DIR / f"{name}.py"
    tree = ast.fix_missing_locations(InPlaceOfFile().visit(ast.parse(path.read_text())))
    exec(compile(tree, path, "exec"), vars(module))
    for case in list(vars(module).values()):
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == name:
            for test in unittest.defaultTestLoader.getTestCaseNames(case):
                if test in LEFT_OUT:
                    setattr(case, test, unittest.skip(LEFT_OUT[test])(getattr(case, test)))
                elif test == "test_basic_backup_and_prefetch":
                    setattr(case, test, from_the_pool(getattr(case, test), dir))
            case.shortDescription = lambda self: f"upstream: {self.id()}"
            yield unittest.skip(LEFT_OUT[case.__name__])(case) if case.__name__ in LEFT_OUT else case


def load_tests(loader, tests, pattern):
    if not DIR.is_dir():
        @unittest.skip(f"SGLANG_SRC={SRC!r} is no source tree of SGLang (github.com/sgl-project/sglang)")
        def upstream():
            pass
        return unittest.TestSuite([unittest.FunctionTestCase(upstream)])
    from sglang.test import test_utils
    temporary = tempfile.TemporaryDirectory(prefix="kvblk-sglang-")
    atexit.register(temporary.cleanup)
    dir = Path(temporary.name)
    test_utils.print = aside
    test_utils.DEFAULT_MODEL_NAME_FOR_TEST = str(dir / "tiny")
    test_utils.popen_launch_server = functools.partial(launch, test_utils.popen_launch_server, dir)
    subprocess.run([sys.executable, HERE / "engine.py", "models", dir / "tiny"], check=True, stdout=sys.stderr,
                   env={**os.environ, **on_a_cpu(dir, dir / "events")})
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for name in FILES for case in cases(name, dir))
