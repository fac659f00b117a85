#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=3G timeout=300 takes=20 share=pypi:llama-cpp-py-sync==0.11739
# A language model's prompt in a pod: llama.cpp computes it on one machine, and loads it on another from the first one's
# flash, over NVMe/TCP, with the same answer. The first machine is dead by then.
. "${0%/*}/pod.bash"

# llama MODULE ARGUMENT...: run a module of our connector
llama() {
	cd /tmp
	export PYTHONPATH=/build/user/tools/python-lib:/kvblk/tools/connectors/llamacpp:/share
	export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
	python3 -m "$@" 2>/tmp/llama.log || fail "$(cat /tmp/llama.log)"
}

# answer: print the report of the prompt's answer
answer() {
	head -c 1500 /kvblk/README.md >/tmp/prompt
	llama kvblk_llamacpp.tiny tiny.gguf --layers 2 --width 128 >/tmp/model
	llama kvblk_llamacpp --model tiny.gguf --pool "$pool" --timeout 30 --json <prompt
}

# finds_blocks COUNT: this node's pool knows so many blocks of others
finds_blocks() {
	[ "$(kvblk member list "$pool" --foreign -o json | sed -n 's/^ *"blocks": \([0-9]*\).*/\1/p')" = "$1" ]
}

pair 400 1
at b follow 1
at a answer >"$tmp/computed"
stored=$(at a counter puts)
[ "$stored" -gt 0 ] || fail "nothing was stored"
at b wait_for 30 finds_blocks "$stored"
ask kill a
at b answer >"$tmp/loaded"
python3 - "$tmp/computed" "$tmp/loaded" <<-'END' || fail "b did not load what a computed"
	import json, sys
	computed, loaded = (json.load(open(name)) for name in sys.argv[1:])
	assert computed["restored_tokens"] == 0 and computed["stats"]["store_blocks"] > 0, computed["stats"]
	assert loaded["restored_tokens"] > 0 and loaded["stats"]["load_blocks"] == loaded["stats"]["lookup_blocks"], loaded["stats"]
	assert loaded["tokens"] == computed["tokens"], (computed["tokens"], loaded["tokens"])
	print(f"{loaded['restored_tokens']} of {loaded['prompt_tokens']} tokens came from the other machine's flash")
END
expect "blocks put by b" "$(at b counter puts)" 0
at b more_than 0 foreign_gets
