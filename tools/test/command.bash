# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Test cases of the command $kvblk, in an empty directory that is removed at the end. Sourced by
# tests. The output of the command is in the files out and err until the next case.
: "${kvblk:?is the command that is tested}"
suite=$(basename "$0" _test.sh)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export LC_ALL=C
passed=0
failed=0

verdict() {
	if [ "$1" = 0 ]; then
		passed=$((passed + 1))
		echo "ok $((passed + failed)) $suite: $2"
	else
		failed=$((failed + 1))
		echo "not ok $((passed + failed)) $suite: $2"
		sed 's/^/  # /' err out
	fi
}

# expect CODE PATTERN ARGUMENT...: check the exit code, and that a line of stderr or stdout matches
expect() {
	local code=$1 pattern=$2 got
	shift 2
	"$kvblk" "$@" > out 2> err < /dev/null
	got=$?
	[ "$got" = "$code" ] && { [ -z "$pattern" ] || cat err out | grep -qE -- "$pattern"; }
	verdict $? "kvblk $*: code $code, got $got, and \"$pattern\""
}

# cases_end: print the summary; returns false if a case failed
cases_end() {
	echo "# ${suite}_test: $passed passed, $failed failed, 0 skipped"
	[ "$failed" = 0 ]
}
