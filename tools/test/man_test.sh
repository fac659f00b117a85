#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: man_test.sh
# The libraries' man pages match the headers: every function with its prototype, no other function, and structures
# without a difference. Other pages name no function that was removed. The example is one that tests run, and groff
# reports no errors.
set -u
export LC_ALL=C
tools=$(dirname "$(readlink -f "$0")")/..
cd "$tools/lib/man" || exit
headers=(../kvblk.h ../kvblk_admin.h ../kvblk_keys.h)
maps=(../libkvblk.map ../*/libkvblk-*.map)
number=0
failed=0

# expect WHAT COMMAND...: run a command that prints what is wrong, or nothing
expect() {
	local out
	number=$((number + 1))
	if out=$("${@:2}" 2>&1) && [ -z "$out" ]; then
		echo "ok $number man: $1"
	else
		failed=$((failed + 1))
		echo "not ok $number man: $1"
		printf '  # %s\n' "${out//$'\n'/$'\n'  # }"
	fi
}

# bare FILE...: print C code without blanks, comments and the markup of man pages
bare() {
	sed -E 's/^\.BI? //; s/"//g' "$@" | tr -d ' \t\n' | sed -E 's@/\*([^*]|\*+[^*/])*\*+/@@g'
}

# functions: print prototypes
functions() {
	grep -oE '(constchar\*|unsignedint|int|uint64_t|structkvblk_[a-z_]+\*|enumkvblk_[a-z]+|void\*?)kvblk_[a-z_]+\([^()]*\)[;{]' | sed 's/.$//' | sort
}

# names FILE...: print the names in the NAME sections, without the overview's
names() {
	sed -n '/^\.SH NAME/{n;s/ \\-.*//;s/, /\n/g;p;}' "$@" | grep -v '^libkvblk$' | sort
}

prototypes() {
	diff <(bare "${headers[@]}" | functions) <(sed -n '/^\.SH SYNOPSIS/,/^\.SH DESC/p' ./*.3 | bare | functions)
}

named() {
	diff <(bare "${headers[@]}" | functions | sed -E 's,^enumkvblk_[a-z]+kvblk_,kvblk_,' | grep -o 'kvblk_[a-z_]*(' | tr -d '(' | sort) <(names ./*.3)
}

# shown: print exported functions that are missing in the pages
shown() {
	sed -n 's/^\t\(kvblk_.*\);/\1/p' "${maps[@]}" | sort | comm -23 - <(names ./*.3)
}

# called FILE...: print names that are used as a function or page
called() {
	grep -ohE '\bkvblk_[a-z0-9_]+(\(| \([37]?\))' "$@" | sed 's/ *(.*//' | sort -u
}

# mentioned: print names that a page uses as a function or page, and that are neither
mentioned() {
	called ./*.[37] | comm -23 - <(names ./*.[37])
}

# elsewhere: likewise for all other texts, which also name functions of the module
elsewhere() {
	local texts modules
	cd ../../..
	mapfile -t texts < <(find README.md CONTRIBUTING.md Documentation tools/man daemon/doc tools/python tools/connectors \
		-name '*.rst' -o -name '*.md' -o -name '*.[58]' -o -name '*.conf')
	mapfile -t modules < <(find kernel -name '*.h')
	[ "${#texts[@]}" -gt 20 ] || echo "only ${#texts[@]} texts"
	called "${texts[@]}" | comm -23 - <({ names tools/lib/man/*.[37]; called "${modules[@]}"; } | sort -u)
}

structures() {
	bare ./*.3 | grep -oE 'structkvblk_[a-z_]+\{([^{}]|\{[^{}]*\})*\};' | while IFS= read -r s; do
		bare "${headers[@]}" ../../../uapi/linux/kvblk.h | grep -qF -- "$s" || echo "$s"
	done
}

# actions: compare the table of results with the code's
actions() {
	diff <(tr -d '\n\t' < ../result.c | grep -oE '\{ E[A-Z0-9]+, *KVBLK_DO_[A-Z]+, *"[^"]*" \}' |
		sed -E 's/\{ (E[A-Z0-9]+), *KVBLK_DO_([A-Z]+), *"(.*)" \}/\1 \L\2\E \3/') \
		<(sed -nE 's/^\\-(E[A-Z0-9]+) +([a-z]+) +/\1 \2 /p' libkvblk.3)
}

# variables: compare the environment of the fake pool with the code's
variables() {
	diff <(grep -ohE 'KVBLK_FAKE_[A-Z_]+' ../../fake/*.[ch] | grep -vxE 'KVBLK_FAKE_(RING|H)' | sort -u) \
		<(grep -oE '^\.B KVBLK_FAKE_[A-Z_]+' libkvblk-fake.7 | cut -c 4- | sort -u)
}

example() {
	diff <(sed -n '/^#include/,$p' ../examples/put_get.c | expand -t 4) \
		<(sed -n '/^\.SH EXAMPLE/,$p' libkvblk.3 | sed -n '/^\.EX$/,/^\.EE$/{/^\.E/d;s/\\-/-/g;s/\\e/\\/g;p;}')
}

warnings() {
	local page
	for page in ./*.[37] ../../man/*.8 ../../../daemon/doc/*.8; do
		groff -man -Tutf8 -ww -Z "$page" > /dev/null
	done
}

expect "prototypes are the headers'" prototypes
expect "each page is named for its functions" named
expect "every function that a library shows has one" shown
expect "no other function is mentioned" mentioned
expect "no other function is mentioned elsewhere" elsewhere
expect "structures are the headers'" structures
expect "results have the actions of the code" actions
expect "the fake pool has the variables of the code" variables
expect "the example is the one that is tested" example
if command -v groff > /dev/null; then
	expect "no warnings" warnings
else
	echo "ok $((number + 1)) man: no warnings # SKIP no groff"
fi
[ "$failed" = 0 ]
