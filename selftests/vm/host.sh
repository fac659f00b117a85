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

# the kernels that Debian has not: see built-kernel
built_kernels=(debug 6.12-p2p)

# is_built NAME: is it one of them?
is_built() {
	[[ " ${built_kernels[*]} " = *" $1 "* ]]
}

built_kernel() {
	echo "$KVBLK_CACHE/$1-$({ basename "$(root_fs)"; cat "$vm_dir/$1.config" "$vm_dir/built-kernel"; } | recipe_hash)"
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

# tree_of NAME: what a kernel's modules are built in, in the cache
tree_of() {
	case $1 in
	uml) uml_kernel ;;
	*) if is_built "$1"; then built_kernel "$1"; else root_fs; fi ;;
	esac
}

# release_of 7.2|6.12|debug|6.12-p2p|uml: the kernel release
release_of() {
	local image
	if [ "$1" = uml ] || is_built "$1"; then
		cat "$(tree_of "$1")/include/config/kernel.release"
	else
		image=$(echo "$(root_fs)/boot/vmlinuz-$1."*)
		echo "${image##*/vmlinuz-}"
	fi
}

# in_root COMMAND...: run it in the root file system; $build_dir (default: build_root) appears at /build, the kernel source (or
# $src_dir) at /src, the debug kernel's tree (or $debug_dir) at /debug
in_root() {
	local root
	root=$(root_fs)
	unshare -m bash -ec '
		root=$1 build=$2 debug=$3 src=$4
		shift 4
		mount --make-rprivate /
		mount --rbind /dev "$root/dev"
		mount -t proc proc "$root/proc"
		mount --bind "$build" "$root/build"
		mount --bind "$src" "$root/src"
		[ ! -d "$debug" ] || mount --bind "$debug" "$root/debug"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 "$@"
	' in_root "$root" "${build_dir:-$(build_root)}" "${debug_dir:-$(built_kernel debug)}" "${src_dir:-$(kernel_src)}" "$@"
}
