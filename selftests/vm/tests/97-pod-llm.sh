#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=5 mem=3G kernels=debug check=debug share=pypi:llama-cpp-py-sync==0.11739
# Two pools of a pod on one machine, over NVMe/TCP: llama.cpp computes a prompt with the pool of one node, and another
# process loads it with the pool of the other, from the first one's flash, and gives the same answer.
. "${0%/*}/pool.bash"
cd "$tmp"
export PYTHONPATH=/build/user/tools/python-lib:/kvblk/tools/connectors/llamacpp:/share
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

# answer POOL FILE: answer the prompt in a new process; the report is in FILE
answer() {
	check python3 -m kvblk_llamacpp --model tiny.gguf --pool "$1" --timeout 30 --json <prompt >"$2"
}

flash 2 400
nvmet_tcp_up pod /dev/flash0 /dev/flash1
kv_load
node_id a
on ta pod_pool "${namespaces[0]}"
node_id b
on tb pod_pool --seed-of "${namespaces[0]}" "${namespaces[1]}"
on tb check kvblk member follow tb "${namespaces[0]}"

check python3 -m kvblk_llamacpp.tiny tiny.gguf --layers 2 --width 128
head -c 1500 /kvblk/README.md >prompt
answer ta computed
stored=$(on ta counter puts)
[ "$stored" -gt 0 ] || fail "nothing was stored"
finds_all() {
	[ "$(kvblk member list tb --foreign -o json | sed -n 's/^ *"blocks": \([0-9]*\).*/\1/p')" = "$stored" ]
}
wait_for 30 finds_all
answer tb loaded
python3 - <<-'END' || fail "b did not load what a computed"
	import json
	computed, loaded = (json.load(open(name)) for name in ("computed", "loaded"))
	assert computed["restored_tokens"] == 0 and computed["stats"]["store_blocks"] > 0, computed["stats"]
	assert loaded["restored_tokens"] > 0 and loaded["stats"]["load_blocks"] == loaded["stats"]["lookup_blocks"], loaded["stats"]
	assert loaded["tokens"] == computed["tokens"], (computed["tokens"], loaded["tokens"])
	print(f"{loaded['restored_tokens']} of {loaded['prompt_tokens']} tokens came from the other node's flash")
END
expect "blocks put by b" "$(on tb counter puts)" 0
on tb more_than 0 foreign_gets
expect "gets by a" "$(on ta counter gets)" 0
