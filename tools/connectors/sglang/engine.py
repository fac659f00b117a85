# SPDX-License-Identifier: MIT
"""A real SGLang engine on a CPU, which runs jobs for test_engine.py.

usage: engine.py models DIRECTORY...     make a tiny Llama of random weights in each
       engine.py run JOB                 run a job, a JSON file; print a line of JSON for each step

A job has the engine's "arguments" and "steps":

  ["ask", TOKENS], ["flush"], ["attach", EXTRA-CONFIG], ["detach"], ["clear"]
  ["stored", PAGES], ["stored", PAGES, SECONDS]   wait until the pool was given that many pages since the last request
                                                  started, at most SECONDS or 60
  ["guest", COMMAND]                              run a command in the VM of selftests/runtimes
  ["before_load", COMMAND]                        watched.py runs it there before the next load
  ["tell", FILE], ["wait", FILE]                  synchronize two engines
"""

import json
import os
import sys
import time

EVENTS = "KVBLK_SGLANG_EVENTS"
BEFORE_LOAD = "KVBLK_SGLANG_BEFORE_LOAD"
MODEL_TOKENS = 512


def make_model(directory, seed):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    torch.manual_seed(seed)
    shape = LlamaConfig(vocab_size=MODEL_TOKENS, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                        num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=4096,
                        bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
    LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(directory)
    words = {f"w{i:03}": i for i in range(MODEL_TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w000"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="w001", eos_token="w002",
                            unk_token="w000").save_pretrained(directory)


def storage(extra):
    """Return the extra config of a job's storage backend."""
    return json.dumps({"backend_name": "kvblk", "module_path": "watched", "class_name": "Watched", "interface_v1": 1,
                       "hicache_storage_pass_prefix_keys": True, **extra})


def arguments(**more):
    """Return the arguments of an engine on a CPU, with pages of 64 tokens."""
    return dict(device="cpu", attention_backend="torch_native", sampling_backend="pytorch", grammar_backend="none",
                disable_cuda_graph=True, disable_overlap_schedule=True, mem_fraction_static=0.1, max_total_tokens=4096,
                page_size=64, dtype="bfloat16", log_level="info", skip_server_warmup=True, enable_cache_report=True,
                enable_hierarchical_cache=True, hicache_ratio=2.0, hicache_write_policy="write_through",
                hicache_io_backend="direct", hicache_mem_layout="page_first_direct",
                hicache_storage_prefetch_policy="wait_complete", **more)


def stored():
    """Count the pages stored in the pool, from the events that watched.py writes."""
    try:
        with open(os.environ[EVENTS]) as events:
            return sum(sum(event["result"]) for event in map(json.loads, events) if event["call"] == "batch_set_v1")
    except FileNotFoundError:
        return 0


def gets():
    """Return the number of gets of the pool of selftests/runtimes; None for another pool."""
    if "KVBLK_CARRY" not in os.environ:
        return None
    import carried
    return carried.counters()["gets"]


def guest(command):
    import carried
    carried.guest(command)


def wait_for(file):
    until = time.monotonic() + 600
    while not os.path.exists(file):
        if time.monotonic() > until:
            raise TimeoutError(file)
        time.sleep(0.05)


def run(job):
    import sglang
    begin = time.monotonic()
    engine = sglang.Engine(**job["arguments"])
    print(json.dumps({"step": "start", "seconds": time.monotonic() - begin}), flush=True)

    def control(call, **options):
        until = time.monotonic() + 60
        while True:
            answer = engine.loop.run_until_complete(getattr(engine.tokenizer_manager, call)(**options))
            message = getattr(answer, "message", "")
            # the scheduler may not have processed the end of the last request yet
            busy = "not idle" in message or call == "flush_cache" and not answer.success
            if not busy or time.monotonic() > until:
                return {"success": answer.success, "message": message}
            time.sleep(0.05)

    stored_before = 0
    for step, *with_ in job["steps"]:
        answer = {}
        before = gets() if step == "ask" else None
        if step == "ask":
            stored_before = stored()
        begin = time.monotonic()
        if step == "ask":
            for chunk in engine.generate(input_ids=with_[0], stream=True, sampling_params={
                    "temperature": 0, "max_new_tokens": 8, "ignore_eos": True}):
                answer.setdefault("first", time.monotonic() - begin)
            answer.update(output=chunk["output_ids"], cached=chunk["meta_info"]["cached_tokens"],
                          details=chunk["meta_info"].get("cached_tokens_details"))
            if before is not None:
                answer["gets"] = gets() - before
        elif step == "flush":
            answer = control("flush_cache")
        elif step == "stored":
            while stored() - stored_before < with_[0] and time.monotonic() - begin < (with_[1:] or [60])[0]:
                time.sleep(0.05)
            answer = {"pages": stored() - stored_before}
        elif step == "attach":
            answer = control("attach_hicache_storage", hicache_storage_backend="dynamic",
                             hicache_storage_backend_extra_config_json=with_[0])
        elif step == "detach":
            answer = control("detach_hicache_storage")
        elif step == "clear":
            answer = control("clear_hicache_storage")
        elif step == "guest":
            guest(with_[0])
        elif step == "before_load":
            with open(os.environ[BEFORE_LOAD], "w") as file:
                file.write(with_[0])
        elif step == "tell":
            open(with_[0], "x").close()
        elif step == "wait":
            wait_for(with_[0])
        else:
            raise ValueError(step)
        print(json.dumps({"step": step, "seconds": time.monotonic() - begin, **answer}), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "models":
        for i, name in enumerate(sys.argv[2:]):
            make_model(name, i)
    else:
        with open(sys.argv[2]) as file:
            run(json.load(file))
