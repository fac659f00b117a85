#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=90 check=6.12,debug takes=15
# Pools that earlier versions wrote (selftests/images), stopped or cut off, come back with every block and byte, without what was
# deleted or has expired, whatever the host's clock says, and go on from there. A later version's members are refused as they are. In
# make check: one that was cut off, and one that was stopped later.
. "${0%/*}/pool.bash"
images=/kvblk/selftests/images

# the host's clock, moved to SECONDS since 1970; it is right again at the end
offset=0
clock() {
	local now
	now=$(date +%s)
	check date -s "@$1" >/dev/null
	offset=$((offset + $1 - now))
}
defer 'date -s "@$(($(date +%s) - offset))" >/dev/null'

# holds: what is there is what the list says
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
[ "$KVBLK_DEPTH" = all ] || dirs=("$images"/1-crashed/ "$images"/1-places-stopped/)
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

	# a clock that is behind brings nothing back that had expired, and ends nothing
	clock $((made - 24 * 3600))
	pool_import "${members[@]}" >"$tmp/made"
	cat "$tmp/made"
	expect "blocks restored" "$(grep -o '([0-9]*' "$tmp/made" | tr -d '(' | paste -sd+ | bc)" "$(grep -vcE '^#| gone$' "$dir/blocks")"
	put $sysfs/integrity header
	sed 's/ unproven$/ gone/' "$dir/blocks" >"$tmp/list"
	holds
	no_failures

	blocks put 9000 20 70001
	expect "puts" "$stored" 20
	sed -n '/ here$/{s/here$/gone/;p}' "$tmp/list" | head -n 5 >"$tmp/deleted"
	check guest_kept_images $node delete <"$tmp/deleted"

	# ten years later: the time that a pool takes for the time it was down is bounded
	check pool_destroy
	clock $((made + 10 * 365 * 24 * 3600))
	pool_import "${members[@]}"
	put $sysfs/integrity header
	awk 'NR == FNR { deleted[$1] = 1; next } $1 in deleted || $8 == "hour" { $8 = "gone" } 1' "$tmp/deleted" "$tmp/list" >"$tmp/later"
	mv "$tmp/later" "$tmp/list"
	holds
	blocks get 9000 20 70001
	expect "gets of what was put" "$hits" 20
	no_failures

	# without checksums a block is not served to those who ask for full checks
	put $sysfs/integrity full
	sed -n 's/ bare$/ gone/p' "$dir/blocks" >"$tmp/list"
	holds
	check pool_destroy

	# a feature is the module's to see, a version the command's as well
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
