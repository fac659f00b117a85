# SPDX-License-Identifier: MIT
"""llama-cpp-python's class Llama with a pool: completions, chats and streams, shared between processes.

Only this file depends on the class's internals: two parameters of the context, and the sequence before and after
generate().
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import llama_cpp

from .cache import Options, PrefixCache
from .runtime import PACKAGES, Library


class Llama(llama_cpp.Llama):
    """A ``llama_cpp.Llama``; ``kvblk`` has the options of :class:`PrefixCache`.

    ``prefixes`` is the cache. Adapters need a salt that names them.
    """

    n_tokens: int

    def __init__(self, model_path: str, *, kvblk: dict[str, Any], **arguments: Any):
        # check options first, because loading the model may take minutes
        Options.read(kvblk, "Llama")
        if arguments.get("lora_path") and not kvblk.get("salt"):
            raise ValueError("kvblk: with an adapter (lora_path) the option salt must name it")
        super().__init__(model_path, **arguments)
        try:
            self.prefixes = PrefixCache(Library(PACKAGES[0]), self._ctx.ctx, self.context_params, model_path, **kvblk)
        except BaseException:
            super().close()
            raise

    @property
    def context_params(self) -> Any:
        return self._context_params

    @context_params.setter
    def context_params(self, params: Any) -> None:
        params.n_seq_max = 2
        params.kv_unified = True
        self._context_params = params

    def generate(self, tokens: Sequence[int], *arguments: Any, **options: Any) -> Generator[int, Any, None]:
        """Generate as llama_cpp.Llama does; restores the prompt's blocks from the pool, and saves new ones."""
        tokens = list(tokens)
        # blocks have no scores, which are needed for all tokens here
        whole = not options.get("reset", True) or self._logits_all
        have = 0 if whole else self._restore(tokens)
        try:
            yield from super().generate(tokens, *arguments, **options)
        finally:
            self.prefixes.save(self.input_ids[:self.n_tokens].tolist(), have)

    def _restore(self, tokens: list[int]) -> int:
        matched: int = self.longest_token_prefix(self.input_ids[:self.n_tokens].tolist(), tokens)
        if matched == len(tokens):
            return matched
        have = self.prefixes.restore(tokens, have=matched)
        self.input_ids[:have] = tokens[:have]
        self.n_tokens = have
        self._requires_eval = True
        return have

    def close(self) -> None:
        # __del__() calls this even if __init__() failed
        if hasattr(self, "prefixes"):
            self.prefixes.close()
        if hasattr(self, "_stack"):
            super().close()
