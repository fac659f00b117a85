#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=90 check=6.12,debug takes=15
# Pools written by earlier versions (selftests/images), stopped or crashed, return with every block and byte, without
# deleted or expired ones, whatever the host's clock says, and continue to work. Members of a later version are rejected
# unchanged. In make check: one crashed image, and one stopped later.
. "${0%/*}/pool.bash"
images=/kvblk/selftests/images
len=70001

# clock SECONDS: set the host's clock to SECONDS since 1970; restored at the end
offset=0
clock() {
	local now
	now=$(date +%s)
	check date -s "@$1" >/dev/null
	offset=$((offset + $1 - now))
}
defer 'date -s "@$(($(date +%s) - offset))" >/dev/null'

# holds: the pool has exactly the blocks of the list
holds() {
	local said
	said=$(guest_kept_images $node get <"$tmp/list") || fail "$image: $said"
	expect "$image: blocks" "$said" "here=$(grep -vcE '^#| gone$' "$tmp/list") gone=$(grep -c ' gone$' "$tmp/list")"
}

supers() {
	local device
	for device in "${members[@]}"; do
		dd if="$device" bs=64K count=2 iflag=direct status=none
	done | cksum
}

detach() {
	[ ! -b "$1" ] || [ ! -d "/sys/block/${1#/dev/}/loop" ] || busybox losetup -d "$1"
}

check install -D "$images/node" /var/lib/kvblk/node
defer 'rm /var/lib/kvblk/node'
kv_load
modprobe -q loop || true
dirs=("$images"/*/)
[ "$KVBLK_DEPTH" = all ] || dirs=("$images"/1-crashed/ "$images"/1-pod-short-stopped/)
[ ${#dirs[@]} -ge 2 ] || fail "there are no images"
for dir in "${dirs[@]}"; do
	image=$(basename "$dir")
	echo "-- $image"
	made=$(sed -n 's/^# made=//p' "$dir/blocks")
	check tar -C "$tmp" -I zstd -xSf "$dir/members.tar.zst"
	members=()
	for i in 0 1; do
		device=$(busybox losetup -f)
		check busybox losetup "$device" "$tmp/flash$i"
		defer "detach $device"
		members+=("$device")
	done
	name=${members[0]#/dev/}
	features=$(crash_media_fuzz field "${members[0]}" incompat)
	# devices without reservations
	force=()
	[[ $image != *pod* ]] || force=(--force)

	# with a clock that is behind, no expired block returns, and none expires
	clock $((made - 24 * 3600))
	pool_import "${force[@]}" "${members[@]}" >"$tmp/made"
	cat "$tmp/made"
	expect "blocks restored" "$(grep -o '([0-9]*' "$tmp/made" | tr -d '(' | paste -sd+ | bc)" "$(grep -vcE '^#| gone$' "$dir/blocks")"
	put $sysfs/integrity header
	sed 's/ unproven$/ gone/' "$dir/blocks" >"$tmp/list"
	holds
	no_failures

	wait_for 40 takes_puts 8999
	blocks put 9000 20 $len
	expect "puts" "$stored" 20
	sed -n '/ here$/{s/here$/gone/;p}' "$tmp/list" | head -n 5 >"$tmp/deleted"
	check guest_kept_images $node delete <"$tmp/deleted"

	# ten years later: the downtime that a pool assumes is bounded
	check pool_destroy
	clock $((made + 10 * 365 * 24 * 3600))
	pool_import "${force[@]}" "${members[@]}"
	put $sysfs/integrity header
	awk 'NR == FNR { deleted[$1] = 1; next } $1 in deleted || $8 == "hour" { $8 = "gone" } 1' "$tmp/deleted" "$tmp/list" >"$tmp/later"
	mv "$tmp/later" "$tmp/list"
	holds
	blocks get 9000 20 $len
	expect "gets of what was put" "$hits" 20
	no_failures

	# with integrity=full, blocks without checksums are not served
	put $sysfs/integrity full
	sed -n 's/ bare$/ gone/p' "$dir/blocks" >"$tmp/list"
	holds
	check pool_destroy
	# records put by this version have the member's form, or else the last import had not found them
	expect "incompat bits" "$(crash_media_fuzz field "${members[0]}" incompat)" "$features"

	# the module detects a feature, the command also a version
	said="$name was written by another version"
	for what in feature version; do
		for device in "${members[@]}"; do
			check crash_media_fuzz $what "$device"
		done
		before=$(supers)
		code 1 "$said of kvblk" kvblk pool import $pool "${members[@]}"
		code 1 "$name is of another version of kvblk" kvblk pool create $pool "${members[@]}"
		expect "superblocks after the refusal" "$(supers)" "$before"
		said="$name is of another version"
	done
	code 0 "${members[1]} is of another version of kvblk" kvblk pool import --scan
	for device in "${members[@]}"; do
		detach "$device"
	done
done
