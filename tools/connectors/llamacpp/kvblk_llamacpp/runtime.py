# SPDX-License-Identifier: MIT
"""libllama of llama-cpp-python or llama-cpp-py-sync, and a session of a model for programs without one.

Only structs that differ between builds (parameters) come from the packages. The rest is the C interface with opaque
pointers, so one adapter supports both.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any

PACKAGES = "llama-cpp-python", "llama-cpp-py-sync"


class _Batch(ctypes.Structure):
    """llama_batch of llama.h."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    ]


_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_get_model": (c_void_p, [c_void_p]),
    "llama_n_ctx": (c_uint32, [c_void_p]),
    "llama_n_ctx_seq": (c_uint32, [c_void_p]),
    "llama_n_batch": (c_uint32, [c_void_p]),
    "llama_n_seq_max": (c_uint32, [c_void_p]),
    "llama_decode": (c_int32, [c_void_p, _Batch]),
    "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    "llama_memory_seq_cp": (None, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "llama_memory_seq_pos_min": (c_int32, [c_void_p, c_int32]),
    "llama_memory_seq_pos_max": (c_int32, [c_void_p, c_int32]),
    "llama_state_seq_get_size": (c_size_t, [c_void_p, c_int32]),
    "llama_state_seq_get_data": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32]),
    "llama_state_seq_set_data": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32]),
    "llama_model_has_encoder": (c_bool, [c_void_p]),
    "llama_model_is_diffusion": (c_bool, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_model_free": (None, [c_void_p]),
    "llama_free": (None, [c_void_p]),
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [c_void_p, c_void_p]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]),
    "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool]),
    "llama_vocab_is_eog": (c_bool, [c_void_p, c_int32]),
    "llama_sampler_init_greedy": (c_void_p, []),
    "llama_sampler_sample": (c_int32, [c_void_p, c_void_p, c_int32]),
    "llama_sampler_free": (None, [c_void_p]),
}


def address_of(pointer: Any) -> int:
    """Return the address of a package's pointer: an int, or a pointer of ctypes or cffi."""
    if isinstance(pointer, int):
        return pointer
    if isinstance(pointer, ctypes._SimpleCData):
        return int(pointer.value or 0)
    if isinstance(pointer, ctypes._Pointer):
        return ctypes.cast(pointer, c_void_p).value or 0
    try:
        from llama_cpp_py_sync._cffi_bindings import ffi
        return int(ffi.cast("uintptr_t", pointer))
    except ImportError:
        raise TypeError(f"{type(pointer).__name__} is no pointer to a context of llama.cpp") from None


class Library:
    """A loaded libllama: ``c`` has its functions, ``build`` names package and version."""

    def __init__(self, package: str = ""):
        if package not in ("", *PACKAGES):
            raise ValueError(f"package is one of {', '.join(PACKAGES)}, not {package!r}")
        for name in [package] if package else PACKAGES:
            try:
                load = self._cpp_python if name == PACKAGES[0] else self._py_sync
                self.build = load()
                break
            except ModuleNotFoundError as e:
                # report that the package itself lacks a module
                if e.name not in ("llama_cpp", "llama_cpp_py_sync"):
                    raise
        else:
            raise RuntimeError(f"no llama.cpp for this Python: install {package or ' or '.join(PACKAGES)}")
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments

    def _cpp_python(self) -> str:
        import llama_cpp.llama_cpp as package

        # a separate handle, because function prototypes belong to the handle
        self.c: Any = ctypes.CDLL(package._lib._name)
        self.model_params = package.llama_model_default_params
        self.context_params = package.llama_context_default_params
        self._load, self._new = package.llama_model_load_from_file, package.llama_init_from_model
        return f"{PACKAGES[0]} {importlib.metadata.version(PACKAGES[0])}"

    def _py_sync(self) -> str:
        import llama_cpp_py_sync
        from llama_cpp_py_sync import _cffi_bindings as package

        lib, ffi = package.get_lib(), package.get_ffi()
        self.c = ctypes.CDLL(package._find_library())
        self.model_params = lib.llama_model_default_params
        self.context_params = lib.llama_context_default_params
        self._load = lib.llama_model_load_from_file
        self._new = lambda model, params: lib.llama_init_from_model(ffi.cast("struct llama_model *", model), params)
        return f"{PACKAGES[1]} {llama_cpp_py_sync.__llama_cpp_tag__}"

    def load_model(self, path: str | os.PathLike[str], params: Any) -> int:
        if not os.path.exists(path):
            raise ValueError(f"there is no model {os.fspath(path)}")
        model = address_of(self._load(os.fspath(path).encode(), params) or 0)
        if not model:
            raise ValueError(f"llama.cpp cannot load {os.fspath(path)}")
        return model

    def new_context(self, model: int, params: Any) -> int:
        context = address_of(self._new(model, params) or 0)
        if not context:
            raise ValueError("llama.cpp cannot make a context with these parameters")
        return context

    def decode(self, context: int, tokens: Sequence[int], position: int, sequence: int, cut: int = 0) -> None:
        """Decode tokens from a position on; the last one gets logits. Raises RuntimeError if llama.cpp fails.

        ``cut``: no batch crosses a multiple of this position.
        """
        step = self.c.llama_n_batch(context)
        one = (c_int32 * 1)(sequence)
        start = 0
        while start < len(tokens):
            n = min(step, len(tokens) - start, cut - (position + start) % cut if cut else step)
            part = tokens[start:start + n]
            flags = (c_int8 * n)()
            flags[n - 1] = start + n == len(tokens)
            batch = _Batch(
                n, (c_int32 * n)(*part), None, (c_int32 * n)(*range(position + start, position + start + n)),
                (c_int32 * n)(*[1] * n), (POINTER(c_int32) * n)(*[ctypes.cast(one, POINTER(c_int32))] * n), flags)
            answer = self.c.llama_decode(context, batch)
            if answer:
                raise RuntimeError(f"llama_decode: {answer}" + (": the context is full" if answer == 1 else ""))
            start += n


_silent = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda level, text, data: None)


class Session:
    """A model and a context for :class:`PrefixCache`: with a second sequence, and one buffer for both.

    ``params`` are fields of llama_context_params: ``n_ctx``, ``n_batch``, ``type_k``, ...

    ``cut``: decode() starts a new batch at each multiple of this position; 0: at none. llama.cpp's rounding depends on
    how a prompt is split into batches. Without ``cut`` a partly restored prompt would be split differently, and
    answered differently, from a computed one. PrefixCache.of() sets the length of a block, so that both are split
    alike.
    """

    def __init__(self, model: str | os.PathLike[str], *, library: Library | None = None, threads: int = 1,
                 gpu_layers: int = 0, verbose: bool = False, **params: Any):
        self.library = library or Library()
        self.c = self.library.c
        if not verbose:
            self.c.llama_log_set(_silent, None)
        self.c.llama_backend_init()
        self.path = os.fspath(model)
        self.cut = 0
        model_params = self.library.model_params()
        model_params.n_gpu_layers = gpu_layers
        #: llama_context_params, part of the keys
        self.params = self.library.context_params()
        params = {"n_ctx": 4096, "n_batch": 512, "n_seq_max": 2, "kv_unified": True, "n_threads": threads,
                  "n_threads_batch": threads, **params}
        for name, value in params.items():
            if not hasattr(self.params, name):
                raise ValueError(f"a context of llama.cpp has no parameter {name!r}")
            setattr(self.params, name, value)
        self.model = self.library.load_model(model, model_params)
        self.context = self.library.new_context(self.model, self.params)
        self.vocab = self.c.llama_model_get_vocab(self.model)
        self._sampler = self.c.llama_sampler_init_greedy()

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        room = len(raw) + 8
        while True:
            tokens = (c_int32 * room)()
            n = self.c.llama_tokenize(self.vocab, raw, len(raw), tokens, room, True, False)
            if n >= 0:
                return tokens[:n]
            room = -n

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, which may be a part of a character."""
        room = ctypes.create_string_buffer(256)
        n = self.c.llama_token_to_piece(self.vocab, token, room, len(room), 0, False)
        return room.raw[:max(n, 0)]

    def is_end(self, token: int) -> bool:
        return bool(self.c.llama_vocab_is_eog(self.vocab, token))

    def decode(self, tokens: Sequence[int], position: int) -> None:
        self.library.decode(self.context, tokens, position, 0, self.cut)

    def sample(self) -> int:
        """Return the most probable next token."""
        return int(self.c.llama_sampler_sample(self._sampler, self.context, -1))

    def close(self) -> None:
        context, self.context = self.context, 0
        if context:
            self.c.llama_sampler_free(self._sampler)
            self.c.llama_free(context)
            self.c.llama_model_free(self.model)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()
