#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M
# The nodes of a pod: two of them see the same namespaces of an enclosure. One of them reserves its namespace, and the
# other reads it and cannot write. A node hangs and continues; a node is killed and boots again.
. "${0%/*}/pod.bash"

own() {
	[ "$(hostname)" = "$1" ] && [ "$KVBLK_NODE" = "$1" ]
}

pattern() {
	check dd if=/dev/urandom of="$(namespace 1)" bs=1M count=8 oflag=direct status=none
}

# sum: print a checksum of what pattern() wrote
sum() {
	dd if="$(namespace 1)" bs=1M count=8 iflag=direct status=none | sha256sum
}

reserve() {
	nvme resv-register "$(namespace 1)" --nrkey=0xa --rrega=0
	nvme resv-acquire "$(namespace 1)" --crkey=0xa --rtype=1 --racqa=0
}

write() {
	dd if=/dev/zero of="$(namespace 1)" bs=4096 count=1 oflag=direct status=none
}

enclosure 2 64
for n in a b; do
	at $n own $n
	at $n attach 2
done
at a pattern
was=$(at b sum)
expect "what b reads" "$was" "$(at a sum)"

at a reserve
refuse at b write
at a write
[ "$(at b sum)" != "$was" ] || fail "b does not see what a has written"

ask stop a
at b sum >/dev/null
ask go a
at a write

ask kill b
ask boot b
at b attach 2
expect "what b reads after its boot" "$(at b sum)" "$(at a sum)"
refuse at b write
