#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: engine_run.py

Run vLLM's engine for test_engine.py. Reads one JSON request per line, and answers each with a line of RESULT and JSON.

  {"begin": {...}}    start an engine, in place of the previous one
    model      directory of the model
    transfer   arguments of KVTransferConfig
    llm        further arguments of LLM
    tokens     tokens to generate for each prompt
  {"prompts": [...]}  generate for lists of token numbers, all at once
    env         environment variables to set first
    reset       arguments of reset_prefix_cache(), called first
    before_get  command for the guest of selftests/carry to run between lookup and load: before the first batch of gets
    kill        die by SIGKILL after so many batches of puts have started

The answer has the result of each prompt (tokens, their log probabilities, finish reason, cached tokens), the time of
the step, the time to the first token of its first prompt, the adapter's counters (if it runs in this process), and the
engine's metrics. At the end of the input the program exits without further steps to stop the engine.
"""

import json
import os
import signal
import sys
import time

import kvblk

import kvblk_vllm

get, put = kvblk.Queue.get, kvblk.Queue.put
step = {}


def get_after(self, *args, **kwargs):
    command = step.pop("before_get", None)
    if command:
        import carried
        carried.guest(command)
    return get(self, *args, **kwargs)


def put_until(self, *args, **kwargs):
    job = put(self, *args, **kwargs)
    if "kill" in step:
        step["kill"] -= 1
        if not step["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
    return job


def begin(model, transfer, llm, tokens):
    from vllm import LLM, SamplingParams
    from vllm.config import KVEventsConfig, KVTransferConfig

    if "kv_events_config" in llm:
        llm["kv_events_config"] = KVEventsConfig(**llm["kv_events_config"])
    options = {"enforce_eager": True, "max_model_len": 1024, "dtype": "bfloat16", "block_size": 32,
               "enable_prefix_caching": True, "disable_log_stats": False, **llm}
    made = LLM(model=model, kv_transfer_config=KVTransferConfig(**transfer) if transfer else None, **options)
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, logprobs=0)
    # warm up, so that compilation and allocation are not measured
    made.generate([{"prompt_token_ids": [3] * 8}], params, use_tqdm=False)
    return made, params


def end(llm):
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()


def generate(llm, params):
    os.environ.update(step.get("env", {}))
    if "reset" in step:
        # blocks are in use until their stores complete, which a step of the engine reports
        end = time.monotonic() + 60
        while not llm.reset_prefix_cache(**step["reset"]):
            if time.monotonic() > end:
                raise RuntimeError("the prefix cache was not reset")
            llm.llm_engine.step()
            time.sleep(0.1)
    before = kvblk_vllm.counters()
    began = time.monotonic()
    outs = llm.generate([{"prompt_token_ids": tokens} for tokens in step["prompts"]], params, use_tqdm=False)
    took = time.monotonic() - began
    return {
        "outs": [{"tokens": list(out.outputs[0].token_ids), "finish": out.outputs[0].finish_reason,
                  "logprobs": [next(iter(p.values())).logprob for p in out.outputs[0].logprobs or ()],
                  "cached": out.num_cached_tokens} for out in outs],
        "took": took, "ttft": getattr(outs[0].metrics, "first_token_latency", 0),
        "counted": {name: number - before.get(name, 0) for name, number in kvblk_vllm.counters().items()
                    if number != before.get(name, 0)},
        "metrics": {m.name: m.value for m in llm.get_metrics() if "kvblk" in m.name and hasattr(m, "value")},
    }


def main():
    kvblk.Queue.get, kvblk.Queue.put = get_after, put_until
    llm = params = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "begin" in asked:
            if llm is not None:
                end(llm)
            llm, params = begin(**asked["begin"])
            answer = {}
        else:
            step.update(asked)
            answer = generate(llm, params)
            step.clear()
        print("RESULT " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
