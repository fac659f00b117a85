# SPDX-License-Identifier: MIT
"""Restore a sequence of a llama.cpp context from a pool, and save it to the pool, by blocks of tokens.

Once the cache exists, errors of kvblk never reach the runtime as exceptions, and only exactly the requested state
reaches the context. A block that is missing, late or wrong ends the restored prefix before it.

llama.cpp serializes only whole sequences, so a block passes through a scratch sequence. llama_memory_seq_cp() between
sequences of one buffer marks cells and copies nothing. The bytes are therefore copied once: between the context and
memory registered with the pool.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import logging
import mmap
import os
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import kvblk
from kvblk import adapter

from .model import Model
from .runtime import Library, Session, address_of
from .state import Layout, Unsupported

log = logging.getLogger("kvblk.llamacpp")

PAGE = 4096
BATCH_MOST = 16  # in blocks: the next batch is in flight while llama.cpp takes one
# fields of llama_context_params that determine K
NUMERICS = ("rope_scaling_type", "attention_type", "rope_freq_base", "rope_freq_scale", "yarn_ext_factor",
            "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_orig_ctx")
CAUSAL = (-1, 0)  # attention types: the model's, causal


@dataclasses.dataclass(frozen=True)
class Options(adapter.Options):
    """Options; README.md describes them."""

    pool: str = "kv0"
    #: at most two batches are in flight
    threads: int = 2
    lease_s: float = 10.0
    timeout_s: float = 2.0
    hard_deadline: bool = False
    block_tokens: int = 64
    buffer_mib: int = 64

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        **adapter.Options.LIMITS, "threads": (1, 2), "block_tokens": (1, 4096), "buffer_mib": (1, 1 << 16)}


class PrefixCache:
    """Restore and save sequences of one context; for the thread that uses the context.

    ``context`` is a llama_context (a pointer of a package, or its address). Its parameters, ``params``, need
    ``n_seq_max`` of 2 or more and ``kv_unified``. ``model`` is the path of its GGUF file, or a :class:`Model`. The
    cache uses the last sequence of the context. Create the cache before anything is decoded: it decodes a token to
    learn the format of the context's state.

    A context with adapters (LoRA) or control vectors needs a ``salt`` that names them.
    """

    def __init__(self, library: Library, context: Any, params: Any, model: str | os.PathLike[str] | Model,
                 **options: Any):
        self.options = Options.read(options, "PrefixCache")
        #: counters; besides those of all adapters restored_tokens, restore_ms and save_ms
        self.report = adapter.Report(log)
        self._c = c = library.c
        self._context = address_of(context)
        self._memory = c.llama_get_memory(self._context)
        self._n_ctx: int = c.llama_n_ctx(self._context)
        self._scratch: int = c.llama_n_seq_max(self._context) - 1
        self._tokens = self.options.block_tokens
        native = c.llama_get_model(self._context)
        if not self._memory:
            raise Unsupported("this model has no KV cache")
        if self._scratch < 1:
            raise ValueError("the context needs a second sequence: n_seq_max=2")
        # with separate buffers, copying a part of a sequence would abort the process
        if c.llama_n_ctx_seq(self._context) != self._n_ctx:
            raise ValueError("the context needs one buffer for all sequences: kv_unified=True")
        causal = params.attention_type in CAUSAL and not c.llama_model_is_diffusion(native)
        if not causal or c.llama_model_has_encoder(native):
            raise Unsupported("a block of this model depends on more than the tokens before it")
        if not isinstance(model, Model):
            model = Model(model)
        self._layout = self._probe(library)
        self.block_bytes = self._layout.size(self._tokens)
        # no tokenizer: the file of the model contains one
        self.space = kvblk.Keyspace(
            runtime=f"llama.cpp/{library.build}", model=model.digest, dtype=self._layout.dtype(),
            layout=f"{self._layout.text()} {self._numerics(params, model)}", block_tokens=self._tokens,
            salt=self.options.salt, secret=self.options.secret())
        # an additional check by kvblk, besides the key
        self._tag = int.from_bytes(hashlib.blake2b(self.space.prefix, digest_size=8).digest(), "little")
        self._pool = self.options.open()
        self._checked = adapter.Checked(self._pool, self.report)
        limit = self._pool.get_info().value_max
        if self.block_bytes > limit:
            self._pool.close()
            raise ValueError(f"a block of {self._tokens} tokens has {self.block_bytes} bytes, the pool takes "
                             f"{limit}: lower block_tokens")
        self._stride = -(-self.block_bytes // PAGE) * PAGE
        # two halves: the pool and llama.cpp use different halves
        self._half = max(1, min((self.options.buffer_mib << 20) // self._stride // 2, BATCH_MOST))
        self._slab = mmap.mmap(-1, 2 * self._half * self._stride)
        self._view = memoryview(self._slab)
        self._base = _address(self._slab)
        adapter.register_slab(self._pool, self._base, len(self._slab), self._stride, log)
        self._queue = kvblk.Queue(self._pool, self.options.threads)
        self._closed = False

    @classmethod
    def of(cls, session: Session, **options: Any) -> PrefixCache:
        """Create the cache of a session, whose batches are split at blocks from then on: see :class:`Session`."""
        cache = cls(session.library, session.context, session.params, session.path, **options)
        session.cut = cache.options.block_tokens
        return cache

    def _probe(self, library: Library) -> Layout:
        """Learn the format of states from a state of one token."""
        c, scratch = self._c, self._scratch
        try:
            library.decode(self._context, [0], 0, scratch)
            size = c.llama_state_seq_get_size(self._context, scratch)
            room = bytearray(size)
            got = c.llama_state_seq_get_data(self._context, _address(room), size, scratch)
            if not size or got != size:
                raise Unsupported(f"llama.cpp says that the state of a token has {size} bytes and delivers {got}")
            return Layout(memoryview(room), 1)
        finally:
            c.llama_memory_seq_rm(self._memory, scratch, -1, -1)

    def _numerics(self, params: Any, model: Model) -> str:
        """Describe the context's parameters that K and V depend on."""
        parts = [f"{name}={getattr(params, name)!r}" for name in NUMERICS]
        if model.long_rope:
            parts.append(f"n_ctx={self._n_ctx}")
        # llama.cpp rotates quantized K and V unless the variable is set
        parts.append(f"rot={os.environ.get('LLAMA_ATTN_ROT_DISABLE', '')}")
        return " ".join(parts)

    def keys(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the keys of the complete blocks of these tokens."""
        return self.space.keys(kvblk.block_ids(tokens, self._tokens))

    # Where a sequence is

    def _filled(self, sequence: int) -> int:
        """Return the number of tokens of a sequence whose positions start at 0 without a gap; otherwise 0."""
        if self._c.llama_memory_seq_pos_min(self._memory, sequence) != 0:
            return 0
        return int(self._c.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def _room(self) -> int:
        """Return a lower bound of the free cells."""
        used = 0
        for sequence in range(self._scratch + 1):
            first = self._c.llama_memory_seq_pos_min(self._memory, sequence)
            if first >= 0:
                used += self._c.llama_memory_seq_pos_max(self._memory, sequence) - first + 1
        return max(0, self._n_ctx - used)

    # Restore

    def restore(self, tokens: Sequence[int], *, sequence: int = 0, have: int = 0) -> int:
        """Load the longest stored prefix of ``tokens`` into a sequence; returns its number of tokens.

        The sequence is empty, or its first ``have`` positions hold those of ``tokens``; later positions are removed. At
        least the last token is left for the caller to decode.
        """
        started = time.monotonic()
        c, step = self._c, self._tokens
        if not 0 <= sequence < self._scratch:
            raise ValueError(f"a sequence is a number from 0 to {self._scratch - 1}, not {sequence}")
        have = min(have, self._filled(sequence), max(0, len(tokens) - 1))
        c.llama_memory_seq_rm(self._memory, sequence, have, -1)
        first = have // step
        keys = self.keys(tokens[:max(0, len(tokens) - 1)])[first:][:self._room() // step]
        if keys and not self._closed:
            try:
                found = self._lookup(keys)
                with found.lease:
                    self._load(keys[:found.leading], first, sequence)
            except kvblk.KvblkError as e:
                self.report.trouble("lookup_errors", "lookup or batch", e)
        # after any error the sequence holds only the correct prefix
        filled = self._filled(sequence)
        self.report.count("restored_tokens", filled - have)
        self.report.count("restore_ms", round((time.monotonic() - started) * 1000))
        return filled

    def prestage(self, tokens: Sequence[int]) -> int:
        """Load the blocks of a prompt into the pool's memory, before restore() needs them; returns how many leading
        blocks are there. Any thread may call it, and waits for the loads."""
        try:
            return self._pool.prestage(self.keys(tokens), stop_at_miss=True, timeout=self.options.timeout_s).leading
        except kvblk.KvblkError as e:
            self.report.trouble("prestage_errors", "prestage", e)
            return 0

    def hint(self, tokens: Sequence[int], **hint: Any) -> int:
        """Tell the pool what is known of the future of a prompt's blocks; returns how many of them the pool has.

        ``hint`` are the arguments of kvblk.Pool.hint(): ``retain=600`` while a tool runs, ``release=True`` when the
        session is over. Any thread may call it.
        """
        try:
            return self._pool.hint(self.keys(tokens), **hint)
        except kvblk.KvblkError as e:
            self.report.trouble("hint_errors", "hint", e)
            return 0

    def _lookup(self, keys: list[bytes]) -> adapter.Found:
        self.report.count("lookup_calls")
        self.report.count("lookup_blocks", len(keys))
        found = self._checked.look_up(keys, [self.block_bytes] * len(keys), lease=self.options.lease_s, prefix=True)
        self.report.count("lookup_hits", found.leading)
        return found

    def _load(self, keys: list[bytes], first: int, sequence: int) -> None:
        """Load blocks and append them to the sequence, up to the first wrong one."""
        done = 0
        jobs: list[kvblk.Job] = []
        try:
            for start in range(0, len(keys) + self._half, self._half):
                if start < len(keys):
                    part = keys[start:start + self._half]
                    jobs.append(self._queue.get(part, self._slots(start, len(part)), layout_tag=self._tag,
                                                timeout=self.options.timeout_s,
                                                hard_deadline=self.options.hard_deadline))
                # llama.cpp uses the previous half during the load
                if start:
                    expected = min(start, len(keys)) - done
                    inserted = self._take(jobs[0], keys, done, first, sequence)
                    jobs.pop(0)
                    done += inserted
                    if inserted < expected:
                        break
        finally:
            self._quiet(jobs)

    def _take(self, job: kvblk.Job, keys: list[bytes], done: int, first: int, sequence: int) -> int:
        """Append the blocks of a job to the sequence, up to the first wrong one; returns their number."""
        results = self._results(job)
        for i, got in enumerate(results, done):
            if not self._checked.loaded(keys[i:i + 1], [got], [self.block_bytes])[0]:
                if got is None and self._other_tag(keys[i], i):
                    self._checked.refuse([keys[i]], "it has another layout tag")
                return i - done
            if not self._insert(i, (first + i) * self._tokens, sequence):
                self._checked.refuse([keys[i]], "it is not the state that belongs there")
                return i - done
        return len(results)

    def _other_tag(self, key: bytes, slot: int) -> bool:
        """Return True if a block that a get missed is present with another layout tag.

        Each lookup would find such a block, each get would miss it, and no put would replace it.
        """
        try:
            tag = self._pool.layout_tag(key, self._slots(slot, 1)[0], timeout=self.options.timeout_s)
            return tag not in (None, self._tag)
        except kvblk.KvblkError as e:
            self.report.trouble("load_errors", "a block was not loaded", e)
            return False

    def _insert(self, block: int, position: int, sequence: int) -> bool:
        """Append one block to the sequence if it is the right one."""
        c, scratch, start = self._c, self._scratch, self._start(block)
        if not self._layout.holds(self._view[start:start + self.block_bytes], position, self._tokens):
            return False
        took = c.llama_state_seq_set_data(self._context, self._base + start, self.block_bytes, scratch)
        right: bool = (took == self.block_bytes
                       and c.llama_memory_seq_pos_min(self._memory, scratch) == position
                       and c.llama_memory_seq_pos_max(self._memory, scratch) == position + self._tokens - 1)
        if right:
            # remove a part of this block that the sequence had
            c.llama_memory_seq_rm(self._memory, sequence, position, -1)
            c.llama_memory_seq_cp(self._memory, scratch, sequence, -1, -1)
        c.llama_memory_seq_rm(self._memory, scratch, -1, -1)
        return right

    # Save

    def save(self, tokens: Sequence[int], n_from: int = 0, *, sequence: int = 0) -> int:
        """Store the complete blocks of a sequence that the pool lacks, from token ``n_from`` on; returns their number.

        ``tokens`` are the sequence's, from position 0 on, and each was computed with all before it. Do not save a
        sequence from which tokens were removed and that was shifted.
        """
        started = time.monotonic()
        first = n_from // self._tokens
        keys = self.keys(tokens[:min(len(tokens), self._filled(sequence))])
        before = self.report.counts()["store_blocks"]
        if first < len(keys) and not self._closed:
            try:
                wanted = keys[first:]
                self.report.count("lookup_calls")
                found = self._pool.lookup(wanted)
                self.report.count("store_present", found.present)
                self._store(keys, [first + i for i in range(len(wanted)) if not found[i]], sequence)
            except kvblk.KvblkError as e:
                self.report.trouble("lookup_errors", "lookup", e)
        self.report.count("save_ms", round((time.monotonic() - started) * 1000))
        return self.report.counts()["store_blocks"] - before

    def _store(self, keys: list[bytes], missing: list[int], sequence: int) -> None:
        """Store blocks, consecutive ones as one chain. Stops at the first failed put, because lookups would not find
        the blocks after it."""
        jobs: list[kvblk.Job] = []
        at = batches = 0
        taken = True
        try:
            while at < len(missing) and taken:
                end = at + 1
                while end < len(missing) and end - at < self._half and missing[end] == missing[end - 1] + 1:
                    end += 1
                part = missing[at:end]
                # wait: the batch before the last uses the half
                if len(jobs) == 2:
                    taken = self._stored(jobs[0])
                    jobs.pop(0)
                slot = batches * self._half
                ready = self._extract(part, slot, sequence) if taken else 0
                if ready:
                    follows = ready == len(part) and missing[end:end + 1] == [part[-1] + 1]
                    names = [keys[i] for i in part[:ready]]
                    jobs.append(self._queue.put(
                        names, self._slots(slot, ready), names, chain=True,
                        parent=keys[part[0] - 1] if part[0] else b"", continues=follows, layout_tag=self._tag,
                        **self.options.put_options()))
                taken = taken and ready == len(part)
                at, batches = end, batches + 1
            while jobs:
                self._stored(jobs[0])
                jobs.pop(0)
        finally:
            self._quiet(jobs)

    def _extract(self, blocks: list[int], slot: int, sequence: int) -> int:
        """Copy blocks of the sequence to the slab; returns how many could be copied."""
        c, scratch = self._c, self._scratch
        for n, block in enumerate(blocks):
            position, start = block * self._tokens, self._start(slot + n)
            c.llama_memory_seq_cp(self._memory, sequence, scratch, position, position + self._tokens)
            size = c.llama_state_seq_get_size(self._context, scratch)
            got = 0
            if size == self.block_bytes:
                got = c.llama_state_seq_get_data(self._context, self._base + start, size, scratch)
            c.llama_memory_seq_rm(self._memory, scratch, -1, -1)
            if got != self.block_bytes or not self._layout.holds(self._view[start:start + got], position, self._tokens):
                self.report.tell("not stored", f"the state of tokens {position} to {position + self._tokens - 1} has "
                                                 f"{got or size} bytes, not {self.block_bytes}, or other positions")
                return n
        return len(blocks)

    def _stored(self, job: kvblk.Job) -> bool:
        """Count results of puts; returns True if all blocks are in the pool."""
        return all(self._checked.stored(job.tag, self._results(job), [self.block_bytes] * len(job.tag)))

    # Jobs

    def _start(self, slot: int) -> int:
        """Return the offset of a block in the slab, which is used round-robin."""
        return slot % (2 * self._half) * self._stride

    def _slots(self, slot: int, count: int) -> list[kvblk.Buffer]:
        return [(self._base + self._start(slot + i), self.block_bytes) for i in range(count)]

    def _results(self, job: kvblk.Job) -> list[Any]:
        """Wait for a job."""
        while job.results is None:
            self._queue.wait()
        return job.results

    def _quiet(self, jobs: list[kvblk.Job]) -> None:
        """Cancel unneeded jobs and wait for them, before their memory is reused."""
        for job in jobs:
            self._queue.cancel(job)
        for job in jobs:
            self._results(job)

    def close(self) -> None:
        """Wait for all operations, and close the pool."""
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        self._pool.close()

    def __enter__(self) -> PrefixCache:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


def _address(room: bytearray | mmap.mmap) -> int:
    """Return the address of memory that does not move."""
    return ctypes.addressof(ctypes.c_char.from_buffer(room))
