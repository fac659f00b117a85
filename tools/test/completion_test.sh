#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: completion_test.sh KVBLK
# The installed shells of bash, zsh and fish offer the verbs and options that the help of the command KVBLK lists.
set -u
PATH=$(dirname "$(readlink -f "${1:?usage: completion_test.sh KVBLK}")"):$PATH
cd "$(dirname "$(readlink -f "$0")")/../kvblk/completion" || exit
number=0
failed=0

# expect WHAT GOT WANTED
expect() {
	number=$((number + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $number completion: $1"
	else
		failed=$((failed + 1))
		echo "not ok $number completion: $1"
		diff <(echo "$3") <(echo "$2") | sed 's/^/  # /'
	fi
}

# told PATTERN [VERB...]: print the words of the help that match
told() {
	kvblk "${@:2}" --help | sed -nE "s/^$1.*/\2/p" | sort -u
}

# offered_by_SHELL WORD...: print the completions of the last word behind "kvblk"
offered_by_bash() {
	# shellcheck disable=SC2034,SC2317 # for the completion
	(
		compopt() { :; }
		# shellcheck source=tools/kvblk/completion/kvblk.bash
		. ./kvblk.bash
		COMP_WORDS=(kvblk "$@") COMP_CWORD=$#
		_kvblk
		printf '%s\n' "${COMPREPLY[@]}"
	)
}

offered_by_zsh() {
	zsh -f -c '
		_call_program() { shift; "$@" }
		_describe() { [[ $1 != -o ]] || shift; print -l -- "${(@P)2%%:*}" }
		_files() { print -l -- $words[CURRENT]* }
		compset() { }
		words=(kvblk "$@") CURRENT=$#words
		. ./kvblk.zsh' zsh "$@"
}

offered_by_fish() {
	fish --no-config -c 'source ./kvblk.fish; complete -C "$argv"' -- kvblk "$@" | cut -f1
}

# offered SHELL WORD...
offered() {
	"offered_by_$1" "${@:2}" | sort -u
}

verbs='()  ([a-z][a-z-]*)  '
options=' {2,6}(-., )?(--[a-z-]+)'
for shell in bash zsh fish; do
	if ! command -v $shell >/dev/null; then
		echo "ok $((number += 1)) completion: $shell # SKIP it is not installed"
		continue
	fi
	expect "$shell reads it" "$($shell -n kvblk.$shell 2>&1)" ""
	expect "$shell: verbs" "$(offered $shell '' | grep -v '^-')" "$(told "$verbs")"
	for noun in $(told "$verbs"); do
		actions=$(told "$verbs" "$noun")
		[ -z "$actions" ] || expect "$shell: verbs of $noun" "$(offered $shell "$noun" '' | grep -v '^-')" "$actions"
		for action in ${actions:-''}; do
			expect "$shell: options of $noun${action:+ $action}" "$(offered $shell "$noun" ${action:+"$action"} --)" \
				"$(told "$options" "$noun" ${action:+"$action"})"
		done
	done
	expect "$shell: values" "$(offered $shell pool create -o '' | paste -sd' ')" "json text"
	expect "$shell: files" "$(offered $shell put kv0 key ./kvblk.b)" ./kvblk.bash
done
[ "$failed" = 0 ]
