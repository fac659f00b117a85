#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: examples_test.sh OUT
# The library's examples work on the pool of libkvblk-fake, do what results ask for, and name errors. OUT is the build
# directory of tools/.
set -u
export LC_ALL=C
out=$(readlink -f "${1:?usage: examples_test.sh OUT}")
cuda=$(dirname "$(readlink -f "$0")")/../../selftests/cuda/fake_cuda.c
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
number=0
failed=0

# tell "ok"|"not ok" WHAT
tell() {
	number=$((number + 1))
	[ "$1" = ok ] || failed=$((failed + 1))
	echo "$1 $number examples: $2"
}

# expect RC PATTERN EXAMPLE ARGUMENT... [VARIABLE=VALUE...]: run an example on the fake pool
expect() {
	local rc=0 settings=() arguments=() a
	for a in "${@:4}"; do
		case $a in
		*=*) settings+=("$a") ;;
		*) arguments+=("$a") ;;
		esac
	done
	env "${settings[@]}" LD_PRELOAD="$out/fake/libkvblk-fake.so" "$out/lib/examples/$3" "${arguments[@]}" >"$dir/out" 2>&1 || rc=$?
	if [ "$rc" = "$1" ] && grep -qE -- "$2" "$dir/out"; then
		tell ok "${*:3}"
	else
		tell "not ok" "${*:3}"
		echo "  # exit code $rc, should be $1; no line has $2"
		sed 's/^/  # /' "$dir/out"
	fi
}

expect 0 '^100000 bytes came back' put_get fake
expect 1 '^nowhere: no such pool' put_get nowhere
expect 0 '^64 of 64 blocks were in the pool, 0 were computed' ring fake
expect 1 '^64 of 64 blocks were in the pool, 8 were computed' ring fake KVBLK_FAKE_LOSE=8
# nothing is admitted, so that all is computed twice
expect 1 '^0 of 64 blocks were in the pool, 64 were computed' ring fake KVBLK_FAKE_DECLINE=1
expect 1 '^nowhere: no such pool' ring nowhere
expect 0 '^16 blocks of 32 parts went through host: pinned once' scatter fake host
expect 1 'RLIMIT_MEMLOCK: raise it' scatter fake host KVBLK_FAKE_MEMLOCK=1
expect 1 '^declined' scatter fake host KVBLK_FAKE_DECLINE=1
if "${CC:-cc}" -D_GNU_SOURCE -fPIC -shared -pthread -Wl,-soname,libcuda.so.1 -o "$dir/libcuda.so.1" "$cuda"; then
	expect 0 '^16 blocks of 32 parts went through cuda:0: staged' scatter fake cuda:0 LD_LIBRARY_PATH="$dir"
else
	tell "not ok" "fake CUDA"
fi
if [ -e "$out/lib/examples/put_get-rs" ]; then
	expect 0 '^success' put_get-rs fake
	expect 101 'No such device' put_get-rs nowhere
else
	tell ok "put_get-rs # SKIP no rustc"
fi
[ "$failed" = 0 ]
