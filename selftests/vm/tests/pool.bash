# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Pools for the tests: create, watch and destroy. Sourced by tests, hence not executable.
. "${BASH_SOURCE[0]%/*}/../lib.sh"
PATH=/build/user/selftests/.bin:$PATH
pool=t
node=/dev/kvblk/$pool/default
sysfs=/sys/class/kvblk/$pool
# bytes of a block
len=65536
# output of guest_blocks, see blocks()
stored=0 exists=0 declined=0 full=0 quota=0 errors=0 hits=0 misses=0 deleted=0 absent=0 memory=0 foreign=0 remote=0 removed=0 bytes=0 slowest=0 took=0 bad=0 present=0 late=0

# tracefs_mount: mount it unless it is mounted; sets $tracefs
tracefs_mount() {
	tracefs=/sys/kernel/tracing
	[ -e $tracefs/trace ] || mount -t tracefs tracefs $tracefs
}

# flash COUNT MB: create memory-backed devices /dev/flash0, ...
flash() {
	local i
	for ((i = 0; i < $1; i++)); do
		nullb_create "flash$i" "$2"
	done
}

# kvblk ARGUMENT...: run the command. On a busy machine a device may not respond within a request's 5 seconds; the
# request then continues, which is no failure. Callers wait for the resulting state. "pool destroy" is waited for here,
# because a test may remove the device next; its warning is in the kernel log then.
kvblk() {
	local rc=0 said=$tmp/said.$BASHPID logged
	case "${1-} ${2-}" in
	"pool create" | "pool import" | "pool destroy" | "member add" | "member remove") ;;
	*)
		# explicit $rc: in a trap, a bare return gives the status from before the trap
		command kvblk "$@" || rc=$?
		return $rc
		;;
	esac
	[ "$2" != destroy ] || logged=$(dmesg | wc -l)
	command kvblk "$@" 2>"$said" || rc=$?
	cat "$said" >&2
	[ $rc != 0 ] && grep -q 'the request goes on' "$said" || return $rc
	[ "$2" = destroy ] || return 0
	wait_for 60 pool_is_gone "$3"
	! dmesg | tail -n +$((logged + 1)) | grep "down,\? as after a crash" >&2 || return 4
}

# pool_create [OPTION...] DEVICE...: create a pool, wait until all members are up, and destroy it at the end of the
# test. suspect_ms is high enough for slow machines.
pool_create() {
	defer pool_destroy
	check kvblk pool create "$pool" "$@"
	wait_for 30 pool_is_up
	put "$sysfs/suspect_ms" 60000
}

# pool_import [OPTION...] [DEVICE...]: import a pool in the same way
pool_import() {
	defer pool_destroy
	check kvblk pool import "$pool" "$@"
	wait_for 30 pool_is_up
	put "$sysfs/suspect_ms" 60000
}

# bear_errors: disable the limits on I/O errors, so that no member becomes failing
bear_errors() {
	put "$sysfs/failing_run" 0
	put "$sysfs/failing_permille" 0
}

# pool_format DEVICE...: create a pool of small segments
pool_format() {
	pool_create --format --yes --segment-size 8M "$@"
}

# pool_is_gone NAME: the pool and its name are free
pool_is_gone() {
	local said
	! said=$(kvblk pool show "$1" 2>&1) && [[ $said == *'no pool'* ]]
}

pool_destroy() {
	[ ! -d "$sysfs" ] || kvblk pool destroy "$pool"
}

# member_states: print a line "NAME STATE" for each member
member_states() {
	kvblk member list "$pool" | awk 'NR > 1 { print $2, $3 }'
}

pool_is_up() {
	local states
	states=$(member_states) && [ -n "$states" ] && ! grep -qvE ' (up|missing)$' <<<"$states"
}

# member_is NAME STATE: STATE gone means not a member
member_is() {
	local states
	states=$(member_states) && [ "$(awk -v name="$1" '$1 == name { s = $2 } END { print s ? s : "gone" }' <<<"$states")" = "$2" ]
}

# counter NAME: print a counter of the pool
counter() {
	[[ $(kvblk stat "$pool" -o json) =~ \"$1\":\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

# no_failures: counters of errors are zero
no_failures() {
	local name value
	for name in checksum_failures read_errors write_errors put_errors; do
		value=$(counter $name)
		[ "$value" = 0 ] || fail "$name is $value, and no device failed"
	done
}

# set_to TUNABLE VALUE
set_to() {
	[ "$(cat "$sysfs/$1" 2>/dev/null)" = "$2" ]
}

# dram_is BYTES: the pool uses at most BYTES of DRAM
dram_is() {
	[ "$(cat $sysfs/dram_used)" -le "$1" ]
}

# counts_more THAN NAME: the counter is above THAN; sets $value; for wait_for
counts_more() {
	value=$(counter "$2")
	[ "$value" -gt "$1" ]
}

# settled: nothing has been reclaimed for a while; sets $reclaimed
settled() {
	reclaimed=$(counter segments_reclaimed)
	sleep 2
	[ "$(counter segments_reclaimed)" = "$reclaimed" ]
}

# more_than NUMBER NAME: fail unless the counter is above NUMBER
more_than() {
	local value
	counts_more "$@" || fail "$2 is $value, should be more than $1"
}

# went_there: if blocks are in device memory, some were bounced, because these members reach none
went_there() {
	[ -z "${KV_MEMORY-}" ] || more_than 50 device_bounced
}

# code N PATTERN COMMAND...: check exit code and output of a command
code() {
	local rc=0
	"${@:3}" >"$tmp/out" 2>&1 || rc=$?
	expect "exit code of ${*:3}" $rc "$1"
	grep -q -- "$2" "$tmp/out" || fail "${*:3} does not say $2: $(cat "$tmp/out")"
}

# blocks VERB FIRST COUNT LEN [TAG]: run guest_blocks with a time limit; sets variables to its output: $stored, $hits,
# $misses, $slowest, ...
blocks() {
	local verb=$1 line
	shift
	line=$(timeout $((60 * KVBLK_SLOW)) guest_blocks "$node" "$verb" "$@") || fail "guest_blocks $verb $*: $line"
	echo "$verb $*: $line"
	eval "$line"
}

# of NODE VERB ARGUMENT...: blocks() of a tenant
of() {
	local node=$1
	shift
	blocks "$@"
}

expect() {
	[ "$2" = "$3" ] || fail "$1: $2, should be $3"
}

# on POOL COMMAND...: run a command about this pool, where a test has several
on() {
	pool=$1 node=/dev/kvblk/$1/default sysfs=/sys/class/kvblk/$1
	"${@:2}"
}

# pod_pool OPTION... DEVICE...: create the pool in a pod
pod_pool() {
	pool_create --force --pod here --format --yes --segment-size 8M "$@"
	defer "on $pool pool_destroy"
}

# pod_pool_short OPTION... DEVICE...: as pod_pool, with a reuse grace of 3 s, or else puts wait for 10 s in a full pool
pod_pool_short() {
	pod_pool --index-slots 30000 "$@"
	put "$sysfs/reuse_grace_ms" 3000
}

# sees FIRST COUNT: the pool finds all of these blocks
sees() {
	present=$(guest_blocks "$node" lookup "$1" "$2" "$len") && [ "$present" = "present=$2" ]
}

# two_pools: create the pools ta and tb of a pod on /dev/flash0 and /dev/flash1, of the nodes a and b
two_pools() {
	node_id a
	on ta pod_pool_short /dev/flash0
	node_id b
	on tb pod_pool_short --seed-of /dev/flash0 /dev/flash1
}

# takes_puts NUMBER: the pool stores this block, as it does not within the grace of a former pool of its devices
takes_puts() {
	blocks put "$1" 1 "$len" 7
	[ "$stored" = 1 ]
}

# hold WHAT FIRST COUNT LEN: run guest_pin in the background until release, which prints how many operations succeeded
hold() {
	: >"$tmp/held"
	guest_pin "$node" "$@" >"$tmp/held" &
	holder=$!
	defer "kill -KILL $holder 2>/dev/null || true"
	wait_for 20 grep -q holding "$tmp/held"
}

release() {
	kill -USR1 "$holder"
	wait "$holder" || fail "the holder failed: $(cat "$tmp/held")"
}

# pinned: print the number of pinned pages in the system
pinned() {
	awk '/nr_foll_pin_acquired/ { n += $2 } /nr_foll_pin_released/ { n -= $2 } END { print n }' /proc/vmstat
}

pinned_is() {
	[ "$(pinned)" -le "$1" ]
}

# page STATUS PATTERN PATH [ACCEPT]: kvblkd's HTTP server responds so; the answer is in $tmp/answer
page() {
	{ exec 7<>/dev/tcp/127.0.0.1/9733; } 2>/dev/null || return
	printf 'GET %s HTTP/1.1\r\nHost: kvblkd\r\nConnection: close\r\nAccept: %s\r\n\r\n' "$3" "${4:-*/*}" >&7
	tr -d '\r' <&7 >"$tmp/answer"
	exec 7>&-
	grep -q "^HTTP/1.1 $1 " "$tmp/answer" && grep -qE "$2" "$tmp/answer"
}

# events_start: record the pool's events in $tmp/events from now on
events_start() {
	local others
	others=$(listeners)
	kvblk events "$pool" >"$tmp/events" &
	defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true"
	wait_for 10 more_listeners "$others"
}

# listeners: print the number of listeners of generic netlink; more_listeners THAN: there are more
listeners() {
	# Eth 16 is generic netlink; a listener has a bit in Groups
	awk '$2 == 16 && $4 != "00000000" { n++ } END { print n + 0 }' /proc/net/netlink
}

more_listeners() {
	[ "$(listeners)" -gt "$1" ]
}

# changes_start: read the pool's change feed in the background until changes_end
changes_start() {
	rm -f "$tmp/followed"
	guest_changes "$node" follow "$tmp/followed" >"$tmp/follow" &
	follower=$!
	defer "kill $follower 2>/dev/null; wait $follower 2>/dev/null || true"
	wait_for 30 grep -q '^following' "$tmp/follow"
}

# changes_end: end the reader, which must know the same blocks as a new one; sets $present to their number, and $stored
# and $removed to the changes that it read
changes_end() {
	touch "$tmp/followed"
	wait "$follower" || { cat "$tmp/follow"; fail "what was followed is not what there is"; }
	eval "$(sed -n 's/^same=1 blocks=/present=/p' "$tmp/follow")"
	echo "present=$present stored=$stored removed=$removed"
}

event() {
	grep -qw -- "$1" "$tmp/events"
}

# stress_start [OPTION...]: run guest_stress in the background until stress_stop
stress_start() {
	rm -f "$tmp/stop"
	local nice=15
	# or else the test's own commands starve; not on the debug kernel, where nvme-tcp's worker at nice -20 is always
	# busy and would starve the stress
	[ "$KVBLK_KERNEL" != debug-smp ] || nice=0
	nice -n $nice guest_stress -f "$tmp/stop" -s 1000 "$@" "$node" >"$tmp/stress" &
	stress=$!
	defer "kill $stress 2>/dev/null; wait $stress 2>/dev/null || true"
}

# stress_stop: stop guest_stress, which must have found no error
stress_stop() {
	local rc=0
	touch "$tmp/stop"
	wait "$stress" || rc=$?
	cat "$tmp/stress"
	[ $rc = 0 ] || fail "guest_stress found errors (exit code $rc)"
}

# crash_image DEVICE COPY: copy the state that a power cut would leave now, while the pool is up
crash_image() {
	check dd if="$1" of="$2" bs=1M iflag=direct oflag=direct status=none
}
