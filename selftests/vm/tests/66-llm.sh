#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=10 mem=3G kernels=debug share=pypi:llama-cpp-py-sync==0.11739
# The demo of "make demo-llm": a language model in llama.cpp computes a prompt once; another process gets its KV cache
# from the pool, and gives the same answer.
. "${0%/*}/../lib.sh"
check bash /kvblk/selftests/vm/demo-llm.guest
