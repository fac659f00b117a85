#compdef kvblk
# SPDX-License-Identifier: MIT
# zsh completion of kvblk(8). Rule: verbs, options and arguments are those that the command's help tells, so none is said here.

# _kvblk_read VERB...: the help of these verbs: what may follow, as NAME:DESCRIPTION; what takes a value, and which; the arguments
_kvblk_read() {
	local help="$(_call_program help kvblk $@ --help 2>/dev/null)"
	verbs=(${(f)"$(sed -nE 's/^  ([a-z][a-z-]*)  +(.*)/\1:\2/p' <<<$help)"})
	options=(${(f)"$(sed -nE 's/^ {2,6}(-., )?(--[a-z-]+)(\[?=[^ ]*)? *(.*)/\2:\4/p' <<<$help)"})
	valued=(${(f)"$(sed -nE 's/^ {2,6}(-., )?(--[a-z-]+)=([^ ]*).*/\2 \3/p' <<<$help)"})
	arguments=(${="$(sed -nE 's/^Usage: kvblk [a-z ]*\[OPTION\.\.\.\]//p' <<<$help)"})
}

# _kvblk_value KIND: a word of this kind, as the help calls it
_kvblk_value() {
	local -a found
	case $1 in
	FORMAT) found=(json text) ;;
	POOL* | NAME*) found=(/dev/kvblk/*(N/:t)) ;;
	MEMBER*) found=(${(f)"$(_call_program members kvblk member list 2>/dev/null | awk 'NR > 1 { print $2 }')"}) ;;
	TENANT*) found=(${(f)"$(_call_program tenants kvblk tenant list -H 2>/dev/null | awk '{ print $2 }')"}) ;;
	*FILE* | *DEVICE*)
		_files
		return
		;;
	*) return 1 ;;
	esac
	_describe value found
}

_kvblk() {
	local -a typed verbs options valued arguments
	local word option='' kind=''
	integer nth=1

	_kvblk_read
	for word in ${words[2,CURRENT - 1]}; do
		if [[ -n $option ]]; then
			option=''
		elif [[ $word == -* ]]; then
			[[ $word != -o ]] || word=--output
			option=${valued[(r)$word *]}
		elif (( $#verbs )); then
			[[ -n ${verbs[(r)$word:*]} ]] || return 1
			typed+=($word)
			_kvblk_read $typed
		else
			(( nth++ ))
		fi
	done

	word=$words[CURRENT]
	if [[ -n $option ]]; then
		_kvblk_value ${option#* }
	elif [[ $word == --*=* ]]; then
		option=${valued[(r)${word%%=*} *]}
		compset -P '*='
		_kvblk_value ${option#* }
	elif [[ $word == -* ]]; then
		_describe -o option options
	elif (( $#verbs )); then
		_describe verb verbs
	else
		# the last one may come again
		kind=${arguments[nth]:-${(M)arguments[-1]:#*...*}}
		_kvblk_value ${${kind#\[}%%[].]*}
	fi
}

_kvblk "$@"
