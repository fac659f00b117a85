# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# bash completion of kvblk(8). Pools come from /dev/kvblk, which anyone may list; members and tenants from the command itself.

_kvblk_pools() {
	local node
	for node in /dev/kvblk/*/; do
		[ -d "$node" ] && basename "$node"
	done
}

_kvblk_words() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_kvblk() {
	local cur prev command options arguments words
	cur=${COMP_WORDS[COMP_CWORD]}
	prev=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()

	if [ "$COMP_CWORD" = 1 ]; then
		_kvblk_words 'pool member tenant apply policy put get exists rm prefetch hint keyspace status stat iostat top topo doctor events replay report bench --help --version' "$cur"
		return
	fi
	command=${COMP_WORDS[1]}
	case $command in
	pool | member | tenant | policy)
		if [ "$COMP_CWORD" = 2 ]; then
			[ "$command" = pool ] && _kvblk_words 'create import adopt destroy list show plan clear get set --help' "$cur"
			[ "$command" = member ] && _kvblk_words 'add follow unfollow remove wipe list --help' "$cur"
			[ "$command" = tenant ] && _kvblk_words 'create set key remove clear list --help' "$cur"
			[ "$command" = policy ] && _kvblk_words 'explain --help' "$cur"
			return
		fi
		command="$command ${COMP_WORDS[2]}"
		arguments=$((COMP_CWORD - 3))
		;;
	*)
		arguments=$((COMP_CWORD - 2))
		;;
	esac

	# bash cuts --option=word in three
	if [ "$cur" = = ]; then
		cur='' prev=$prev=
	elif [ "$prev" = = ]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}=
	fi
	if [ "$prev" = --synthetic= ]; then
		_kvblk_words 'chat prompts long once scan documents' "$cur"
		return
	fi
	case ${prev%=} in
	-o | --output)
		_kvblk_words 'json text' "$cur"
		return
		;;
	--pool)
		_kvblk_words "$(_kvblk_pools)" "$cur"
		return
		;;
	--trace | --member | --config | --keys | --salt-file)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--op)
		_kvblk_words 'put get exists' "$cur"
		return
		;;
	--engine)
		_kvblk_words 'uring uring-fixed ioctl' "$cur"
		return
		;;
	--mem)
		_kvblk_words 'host gpu' "$cur"
		return
		;;
	--model)
		_kvblk_words 'llama-3.2-3b llama-3.1-8b llama-3.1-70b llama-3.1-405b mistral-7b mixtral-8x7b qwen2.5-7b qwen3-30b-a3b qwen3-32b
			qwen3-235b-a22b deepseek-v3' "$cur"
		return
		;;
	--dtype)
		_kvblk_words 'fp16 bf16 fp8' "$cur"
		return
		;;
	--cache)
		_kvblk_words 'kvblk fifo lru optimum' "$cur"
		return
		;;
	--ttft)
		_kvblk_words 'llama-3.1-8b llama-3.1-70b' "$cur"
		return
		;;
	--gpu)
		_kvblk_words 'h100 a100' "$cur"
		return
		;;
	--route)
		_kvblk_words 'rr session prefix' "$cur"
		return
		;;
	--sharing)
		_kvblk_words 'none follow directory' "$cur"
		return
		;;
	--dram-mode)
		_kvblk_words 'through evict touched' "$cur"
		return
		;;
	--shared)
		_kvblk_words "none $(kvblk tenant list -H "${COMP_WORDS[3]}" 2> /dev/null | awk '{ print $2 }')" "$cur"
		return
		;;
	--segment-size | --index-slots | --parent | --priority | --ttl | --retain | --caller-tag | --layout-tag | --offset | --length | --count | \
		--seconds | --requests | --seed | --limit | --block-size | --speed | --threads | --buffer | --capacity | --dram | --dram-promote | --flash-load | --dram-load | --gpus | --servers | --mfu | --segments | --batch | \
		--tokens | --ranks | --members | --dwpd | --write-rate | --admit-permille | --first-permille | --reinsert-permille | --budget | --salt | --title | \
		--pod | --fresh | --span | --hints | --kill | --adopt | --restart-rack | --bandwidth | \
		--size | --depth | --blocks | --max-bytes | --deadline | --name | --group | --runtime | --tokenizer | --layout | --block-tokens | \
		--mode | --owner | --quota-bytes | --quota-bytes-soft | --quota-blocks | --quota-blocks-soft | --quota-dram | --weight | --tp-rank | --tp-size | --pp-rank | --pp-size | --cp-rank | --cp-size)
		return
		;;
	esac

	case $command in
	'pool create') options='--format --yes --strict --segment-size --index-slots --block-size --pod --seed-of --join --force --member --name' ;;
	'pool import') options='--all --scan --degraded --force --index-slots --name' ;;
	'pool adopt') options='--name --degraded --force --index-slots --yes' ;;
	'pool plan') options='--model --tokens --dtype --ranks --block-size --capacity --members --segment-size --index-slots --dwpd --write-rate' ;;
	'pool destroy') options='--force' ;;
	'pool set') options='--save' ;;
	apply) options='--config --dry-run' ;;
	'policy explain') options='--count' ;;
	'member add') options='--format --yes --force --segment-size --name' ;;
	'member follow') options='--name --hinted' ;;
	'member remove') options='--yes' ;;
	'member list') options='--foreign' ;;
	'member wipe') options='--yes --force' ;;
	'tenant create' | 'tenant set')
		options='--mode --owner --group --quota-bytes --quota-bytes-soft --quota-blocks --quota-blocks-soft --quota-dram --weight --shared'
		[ "$command" = 'tenant set' ] || options+=' --encrypt --key-file'
		;;
	'tenant key') options='--key-file' ;;
	'tenant remove' | 'tenant clear') options='--yes --force' ;;
	put) options='--hex --parent --priority --ttl --caller-tag --layout-tag' ;;
	get) options='--hex --offset --length' ;;
	exists) options='--hex --times' ;;
	rm) options='--hex' ;;
	keyspace) options='--new --group --salt-file --runtime --model --tokenizer --dtype --layout --salt --block-tokens --tp-rank --tp-size --pp-rank --pp-size --cp-rank --cp-size' ;;
	hint) options='--hex --priority --retain --demote --release' ;;
	prefetch) options='--hex --keys --max-bytes --stop --deadline --priority' ;;
	stat) options='--watch --count' ;;
	topo) options='--lines' ;;
	events) options='--count --seconds' ;;
	replay)
		options='--trace --synthetic --requests --seed --limit --pool --verify --block-size --speed --threads --seconds --buffer
			--quiet --simulate --capacity --dram --dram-mode --dram-promote --segments --batch --admit-permille --first-permille
			--reinsert-permille --cache --salt --budget --ttft --flash-load --dram-load --gpu --gpus --servers --mfu --tokens
			--pod --route --sharing --fresh --span --hints --kill --adopt --restart-rack --bandwidth'
		;;
	report) options='--title' ;;
	bench) options='--op --size --depth --threads --seconds --count --blocks --engine --mem' ;;
	*) options='' ;;
	esac
	if [[ $cur == -* ]]; then
		_kvblk_words "$options --output --help --usage" "$cur"
		return
	fi

	words=
	case $command in
	'pool create' | 'pool import' | 'pool plan' | 'member add')
		if [ "$command" != 'member add' ] || [ "$arguments" -gt 0 ]; then
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "${cur:-/dev/}")
			return
		fi
		words=$(_kvblk_pools)
		;;
	'member remove')
		words=$(_kvblk_pools)
		[ "$arguments" = 0 ] || words=$(kvblk member list "${COMP_WORDS[3]}" 2> /dev/null | awk 'NR > 1 { print $2 }')
		;;
	'tenant key' | 'tenant remove' | 'tenant clear')
		words=$(_kvblk_pools)
		[ "$arguments" = 0 ] || words=$(kvblk tenant list -H "${COMP_WORDS[3]}" 2> /dev/null | awk '$2 != "default" { print $2 }')
		;;
	'tenant set')
		words=$(_kvblk_pools)
		[ "$arguments" = 0 ] || words=$(kvblk tenant list -H "${COMP_WORDS[3]}" 2> /dev/null | awk '{ print $2 }')
		;;
	put | get)
		if [ "$arguments" -ge 2 ]; then
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			return
		fi
		[ "$arguments" != 0 ] || words=$(_kvblk_pools)
		;;
	report)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	topo) words=$(_kvblk_pools) ;;
	'pool get' | 'pool set')
		words=$(_kvblk_pools)
		[ "$arguments" = 0 ] || words=$(kvblk pool get -H "${COMP_WORDS[3]}" 2> /dev/null | awk '{ print $1 }')
		;;
	'pool adopt' | apply | replay | doctor) ;;
	*) [ "$arguments" != 0 ] || words=$(_kvblk_pools) ;;
	esac
	_kvblk_words "$words" "$cur"
}

complete -F _kvblk kvblk
