#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: engine_run.py JSON

One run of vLLM's engine, for test_engine.py: the argument is a dictionary

  model      directory of the model
  transfer   arguments of KVTransferConfig
  llm        further arguments of LLM
  tokens     to generate for each prompt
  steps      list of {"prompts": lists of token numbers, all at once; "env": to set before; "reset": arguments of
             reset_prefix_cache() before}

It prints one line of JSON behind RESULT: for each step what each prompt gave (tokens, their log probabilities, how it
finished, how many tokens were cached), the time that the step took, the time to the first token of its first prompt,
and what the adapter counted (where it runs in this process); then what the metrics of the engine say.
"""

import json
import os
import sys
import time


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
    # what is compiled or allocated at the first request is not to be measured
    params = SamplingParams(temperature=0, max_tokens=asked["tokens"], ignore_eos=True, logprobs=0)
    llm.generate([{"prompt_token_ids": [3] * 8}], params, use_tqdm=False)
    steps = []
    for step in asked["steps"]:
        os.environ.update(step.get("env", {}))
        reset = step.get("reset")
        if reset is not None and not llm.reset_prefix_cache(**reset):
            raise RuntimeError("the prefix cache was not reset")
        before = kvblk_vllm.counters()
        began = time.monotonic()
        outs = llm.generate([{"prompt_token_ids": tokens} for tokens in step["prompts"]], params, use_tqdm=False)
        took = time.monotonic() - began
        steps.append({
            "outs": [{"tokens": list(out.outputs[0].token_ids), "finish": out.outputs[0].finish_reason,
                      "logprobs": [next(iter(p.values())).logprob for p in out.outputs[0].logprobs or ()],
                      "cached": out.num_cached_tokens} for out in outs],
            "took": took, "ttft": getattr(outs[0].metrics, "first_token_latency", 0),
            "counted": {name: number - before.get(name, 0) for name, number in kvblk_vllm.counters().items()
                        if number != before.get(name, 0)},
        })
    metrics = {m.name: m.value for m in llm.get_metrics() if "kvblk" in m.name and hasattr(m, "value")}
    llm.llm_engine.engine_core.shutdown()
    print("RESULT " + json.dumps({"steps": steps, "metrics": metrics}), flush=True)


if __name__ == "__main__":
    main()
