# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the host side scripts of the VM tests share. Rule: everything that is built lives in the cache, appears there under its
# final name only when it is whole, and carries the hash of its recipe in that name.

vm_dir=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repo=$(readlink -f "$vm_dir/../..")
export KVBLK_CACHE=${KVBLK_CACHE:-$HOME/.cache/kvblk}

# as_root "$@": start the script again through sudo unless root runs it
as_root() {
	[ "$(id -u)" = 0 ] || exec sudo --preserve-env=KVBLK_CACHE,CI,MAKEFLAGS "$0" "$@"
	umask 022
	mkdir -p "$KVBLK_CACHE/log"
}

# locked NAME: hold the cache's lock NAME until the script ends
locked() {
	exec 9>"$KVBLK_CACHE/.lock-$1"
	flock -n 9 || { echo "waiting for another run to finish with: $1"; flock 9; }
}

# step "what" COMMAND...: run it with its output in a log file; a line at least every 10 s, the log's tail when it fails
step() {
	local what=$1 log t0=$SECONDS told=$SECONDS pid rc=0
	shift
	log="$KVBLK_CACHE/log/$(tr -cs 'a-zA-Z0-9.\n' - <<<"$what").log"
	echo "$what ..."
	"$@" >"$log" 2>&1 </dev/null 9>&- &
	pid=$!
	while sleep 1 && kill -0 $pid 2>/dev/null; do
		((SECONDS - told < 10)) || { told=$SECONDS && echo "  $what: $((SECONDS - t0)) s"; }
	done
	wait $pid || rc=$?
	if [ $rc = 0 ]; then
		echo "$what: done in $((SECONDS - t0)) s"
	else
		tail -n 40 "$log"
		echo "$what: FAILED after $((SECONDS - t0)) s, log: $log"
	fi
	return $rc
}

# recipe_hash: a short hash of standard input
recipe_hash() {
	sha256sum | cut -c1-12
}

# debian_mirror: the one that this host's own apt sources name
debian_mirror() {
	apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1 | grep .
}

root_fs() {
	echo "$KVBLK_CACHE/root-$(recipe_hash <"$vm_dir/rootfs")"
}

kernel_src() {
	echo "$(root_fs)-src"
}

debug_kernel() {
	echo "$KVBLK_CACHE/debug-$({ basename "$(root_fs)"; cat "$vm_dir/debug.config" "$vm_dir/debug-kernel"; } | recipe_hash)"
}

# uml_kernel: the benchmarks' kernel, a program; see bench/uml-kernel
uml_kernel() {
	local bench=$repo/selftests/bench
	echo "$KVBLK_CACHE/uml-$({ basename "$(root_fs)"; cat "$bench/uml.config" "$bench/uml-kernel" "$bench/crc/crc32.h"; } | recipe_hash)"
}

# build_root: where this checkout's build products are
build_root() {
	echo "$KVBLK_CACHE/build-$(recipe_hash <<<"$repo")"
}

# release_of 7.2|6.12|debug|uml: the kernel release
release_of() {
	local image
	case $1 in
	debug | uml)
		cat "$("$1_kernel")/include/config/kernel.release"
		;;
	*)
		image=$(echo "$(root_fs)/boot/vmlinuz-$1."*)
		echo "${image##*/vmlinuz-}"
		;;
	esac
}

# in_root COMMAND...: run it in the root file system; $build_dir (default: build_root) appears at /build, the kernel source at /src, the debug kernel's
# tree (or $debug_dir) at /debug
in_root() {
	local root
	root=$(root_fs)
	unshare -m bash -ec '
		root=$1 build=$2 debug=$3
		shift 3
		mount --make-rprivate /
		mount --rbind /dev "$root/dev"
		mount -t proc proc "$root/proc"
		mount --bind "$build" "$root/build"
		mount --bind "$root-src" "$root/src"
		[ ! -d "$debug" ] || mount --bind "$debug" "$root/debug"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 "$@"
	' in_root "$root" "${build_dir:-$(build_root)}" "${debug_dir:-$(debug_kernel)}" "$@"
}
