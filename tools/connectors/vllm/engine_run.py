#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: engine_run.py JSON

One run of vLLM's engine, for test_engine.py: the argument is a dictionary

  model      directory of the model
  transfer   arguments of KVTransferConfig
  llm        further arguments of LLM
  prompts    lists of token numbers, one request after the other; a list of such lists: all at once
  tokens     to generate for each

It prints one line of JSON behind RESULT: tokens, finish reasons, cached tokens and the time to the first token of
each, what the adapter has counted, and what the metrics of the engine say.
"""

import json
import os
import sys
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def main() -> None:
    asked = json.loads(sys.argv[1])
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    import kvblk_vllm

    transfer = asked.get("transfer")
    options = dict(enforce_eager=True, max_model_len=1024, dtype="bfloat16", block_size=32,
                   enable_prefix_caching=True, disable_log_stats=False)
    options.update(asked.get("llm", {}))
    llm = LLM(model=asked["model"], kv_transfer_config=KVTransferConfig(**transfer) if transfer else None, **options)
    results = []
    for prompt in asked["prompts"]:
        together = isinstance(prompt[0], list)
        prompts = [{"prompt_token_ids": tokens} for tokens in (prompt if together else [prompt])]
        before = kvblk_vllm.counters()
        began = time.monotonic()
        first = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=asked["tokens"], ignore_eos=True),
                             use_tqdm=False)
        took = time.monotonic() - began
        for out in first:
            metrics = out.metrics
            results.append({
                "tokens": list(out.outputs[0].token_ids), "finish": out.outputs[0].finish_reason,
                "cached": out.num_cached_tokens, "took": round(took, 4),
                "ttft": round(getattr(metrics, "first_token_latency", 0) or 0, 4),
                "counted": {name: number - before.get(name, 0) for name, number in kvblk_vllm.counters().items()},
            })
        if asked.get("reset"):
            llm.reset_prefix_cache(**asked["reset"])
    metrics = {m.name: m.value for m in llm.get_metrics() if "kvblk" in m.name and hasattr(m, "value")}
    llm.llm_engine.engine_core.shutdown()
    print("RESULT " + json.dumps({"results": results, "counted": kvblk_vllm.counters(), "metrics": metrics}), flush=True)


if __name__ == "__main__":
    main()
