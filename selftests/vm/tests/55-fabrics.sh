#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=60 kernels=newest,6.12 check=newest waits=1
# kvblkd and NVMe-oF. Two discovery controllers report two paths to one subsystem: if a path becomes inaccessible or is
# lost, no block misses, and kvblkd reconnects it. A new subsystem in the log is connected, and its member brings its
# blocks. DH-HMAC-CHAP: a secret readable by others, a wrong one, and a target that does not know its own are rejected.
# TLS: with a key from a file.
# slow: the driver gives a path up, and wrong secrets are tried again with seconds between.
. "${0%/*}/daemon.bash"

both=nqn.2026-11.org.kvblk:both newer=nqn.2026-11.org.kvblk:newer secret=nqn.2026-11.org.kvblk:secret sealed=nqn.2026-11.org.kvblk:sealed
nvmet=$configfs/nvmet
host=nqn.2026-11.org.kvblk:host

config() {
	cat >"$conf" <<-END
		host_nqn = "$host";
		host_id = "7c0e2b1c-52d5-4a3f-9d3b-5a1f2a7f6f11";
		discovery = (
		  { address = "127.0.0.1"; port = ${port[0]}; ctrl_loss = 4; reconnect_delay = 1; fast_io_fail = 2; },
		  { address = "127.0.0.1"; port = ${port[1]}; ctrl_loss = 4; reconnect_delay = 1; fast_io_fail = 2; }
		);
		pools = ( { name = "$pool"; degraded_after = 2; } );
		${1-}
	END
}

all_up() {
	[ "$(member_states 2>/dev/null | grep -c ' up$')" = "$1" ]
}

# paths NAME COUNT: the subsystem has COUNT live paths
paths() {
	local c nr=0
	for c in $(nvmet_controller "$1"); do
		[ "$(cat "$c/state")" != live ] || nr=$((nr + 1))
	done
	[ $nr = "$2" ]
}

# port_link PORT NAME, port_unlink PORT NAME: export a subsystem on a port of configfs, or not
port_link() {
	check ln -s "$nvmet/subsystems/$2" "$nvmet/ports/$1/subsystems/$2"
}

port_unlink() {
	check rm "$nvmet/ports/$1/subsystems/$2"
}

ana() {
	put "$nvmet/ports/$1/ana_groups/1/ana_state" "$2"
}

# all_blocks FIRST: the 100 blocks from there on are hits
all_blocks() {
	blocks get "$1" 100 50000
	expect "gets" "$hits" 100
}

kv_load
for name in $both $newer; do
	truncate -s 120M "$tmp/$name"
	nvmet_tcp_up "$name" "$tmp/$name"
	port+=("$target_port") number+=($((target_port - 4419))) member+=("${namespaces[0]}")
done
pool_format "${member[@]}"
blocks put 1 200 50000
expect "puts" "$stored" 200
check pool_destroy
for name in $both $newer; do
	check nvme disconnect -n "$name" >/dev/null
done
port_unlink "${number[1]}" $newer
port_link "${number[1]}" $both
# a separate ANA group for the other subsystem, so that path states apply to one
for n in "${number[@]}"; do
	check mkdir "$nvmet/ports/$n/ana_groups/2"
	defer "rmdir $nvmet/ports/$n/ana_groups/2; put $nvmet/ports/$n/ana_groups/1/ana_state optimized"
	put "$nvmet/ports/$n/ana_groups/2/ana_state" optimized
done
put "$nvmet/subsystems/$newer/namespaces/1/ana_grpid" 2
config
daemon_start
# disconnect the discovery controllers, too
defer 'nvme disconnect-all'
defer pool_destroy

echo "-- two discovery controllers: two paths, and a pool that waits for a member"
wait_for 30 logged "^kvblkd: connect to nqn.2014-08.org.nvmexpress.discovery, tcp 127.0.0.1 port ${port[1]}: done"
wait_for 30 paths $both 2
check logged "^kvblkd: connect to $both, tcp 127.0.0.1 port ${port[0]}: done"
check logged "^kvblkd: connect to $both, tcp 127.0.0.1 port ${port[1]}: done"
wait_for 30 pool_is_here
check logged "import pool $pool from /dev/nvme.*, degraded: nvme.* missing after 2 s: done"
all_up 1 || fail "$(member_states)"

echo "-- a subsystem that is new in the log"
port_link "${number[1]}" $newer
wait_for 30 all_up 2
check logged "^kvblkd: connect to $newer, tcp 127.0.0.1 port ${port[1]}: done"
blocks get 1 200 50000
expect "gets" "$hits" 200

echo "-- one path is inaccessible, then the other; then one is gone"
ana "${number[0]}" inaccessible
all_blocks 1
blocks put 1000 100 50000
expect "puts" "$stored" 100
ana "${number[0]}" optimized
ana "${number[1]}" inaccessible
all_blocks 1000
ana "${number[1]}" optimized
port_unlink "${number[0]}" $both
wait_for 30 paths $both 1
all_blocks 1
blocks put 2000 100 50000
expect "puts" "$stored" 100
one_left() {
	[ "$(nvmet_controller $both | wc -l)" = 1 ]
}
wait_for 60 one_left
all_blocks 2000
expect "member states" "$(member_states | grep -vc ' up$')" 0
port_link "${number[0]}" $both
wait_for 60 paths $both 2
port_unlink "${number[1]}" $both
all_blocks 1000
expect "damaged blocks" "$(counter checksum_failures)" 0

echo "-- secrets"
[ -d "$nvmet/hosts/$host" ] || check mkdir "$nvmet/hosts/$host"
defer "rmdir $nvmet/hosts/$host"
truncate -s 120M "$tmp/$secret"
nvmet_target tcp 127.0.0.1 $secret "$tmp/$secret"
put "$nvmet/subsystems/$secret/attr_allow_any_host" 0
check ln -s "$nvmet/hosts/$host" "$nvmet/subsystems/$secret/allowed_hosts/$host"
defer "rm $nvmet/subsystems/$secret/allowed_hosts/$host"
for name in right wrong target; do
	nvme gen-dhchap-key --hmac=0 --key-length=32 >"$tmp/$name.key"
	chmod 600 "$tmp/$name.key"
done
put "$nvmet/hosts/$host/dhchap_key" "$(cat "$tmp/right.key")"
put "$nvmet/hosts/$host/dhchap_ctrl_key" "$(cat "$tmp/target.key")"
where="connect to $secret, tcp 127.0.0.1 port $target_port"

# try_with NQN SETTINGS: give the daemon a new configuration
try_with() {
	cat "$tmp/log" >>"$tmp/logs"
	: >"$tmp/log"
	config "subsystems = ( { nqn = \"$1\"; address = \"127.0.0.1\"; port = $target_port; $2 } );"
	kill -HUP $daemon
}

# with HOST-KEY TARGET-KEY: try these keys
with() {
	try_with $secret "dhchap_secret_file = \"$tmp/$1.key\"; dhchap_ctrl_secret_file = \"$tmp/$2.key\";"
}

cp "$tmp/right.key" "$tmp/open.key"
chmod 644 "$tmp/open.key"
with open target
wait_for 30 logged "$where: failed: $tmp/open.key holds a secret and others may read it: chmod 600 $tmp/open.key"
with wrong target
wait_for 30 logged "$where: failed: "
with right wrong
wait_for 30 logged "$where: failed: "
refuse paths $secret 1
with right target
wait_for 60 paths $secret 1
wait_for 10 logged "$where: done"
refuse grep -q DHHC "$tmp/log" "$tmp/logs"
all_up 2 || fail "$(member_states)"

echo "-- TLS"
cat >"$tmp/tlshd.conf" <<-END
	[debug]
	loglevel=0
	[authenticate]
	keyrings=.nvme
END
modprobe -a tls nvme-tcp nvmet-tcp
tlshd -s -c "$tmp/tlshd.conf" 2>"$tmp/tlshd" &
defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true; cat $tmp/tlshd"
truncate -s 120M "$tmp/$sealed"
TARGET_TSAS=tls1.3 nvmet_target tcp 127.0.0.1 $sealed "$tmp/$sealed"
nvme gen-tls-key --hmac=1 >"$tmp/tls.key"
chmod 600 "$tmp/tls.key"
echo nonsense >"$tmp/nonsense.key"
chmod 600 "$tmp/nonsense.key"
where="connect to $sealed, tcp 127.0.0.1 port $target_port"

try_with $sealed ""
wait_for 30 logged "$where: failed: "
try_with $sealed "tls = true; tls_key_file = \"$tmp/nonsense.key\";"
wait_for 30 logged "$where: failed: $tmp/nonsense.key holds no key of the form NVMeTLSkey-1:..."
try_with $sealed "tls = true; tls_key_file = \"$tmp/tls.key\";"
wait_for 60 paths $sealed 1
wait_for 10 logged "$where: done"
# the prefix alone may appear in messages, but no key
refuse grep -q NVMeTLSkey-1:0 "$tmp/log" "$tmp/logs"
check grep -q . "$(nvmet_controller $sealed)/tls_key"
