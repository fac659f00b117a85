# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Functions of the host-side scripts of the VM tests. The rule: everything built is in the cache. It gets its final
# name, which has the hash of its recipe, only when it is complete.

vm_dir=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repo=$(readlink -f "$vm_dir/../..")
export KVBLK_CACHE=${KVBLK_CACHE:-$HOME/.cache/kvblk}

# variables that sudo must keep
kept_env=KVBLK_CACHE,KVBLK_SERIES,KVBLK_ACCEL,KV_SEED,CI,MAKEFLAGS

# as_root "$@": restart the script through sudo unless it runs as root
as_root() {
	[ "$(id -u)" = 0 ] || exec sudo "--preserve-env=$kept_env" "$0" "$@"
	umask 022
	mkdir -p "$KVBLK_CACHE/log"
}

# locked NAME: hold the cache's lock NAME until the script ends
locked() {
	exec 9>"$KVBLK_CACHE/.lock-$1"
	flock -n 9 || { echo "waiting for another run to finish with: $1"; flock 9; }
}

# step "what" COMMAND...: run a command with its output in a log file; print a line at least every 10 s, and the log's
# tail if it fails
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

# recipe_hash: print a short hash of standard input
recipe_hash() {
	sha256sum | cut -c1-12
}

# debian_mirror: print the mirror in this host's apt sources
debian_mirror() {
	apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1 | grep .
}

# archive_open DIRECTORY SUITE...: read the lists of these suites with the host's apt, whose state is in DIRECTORY
archive_open() {
	local dir=$1 suite mirror
	shift
	mirror=$(debian_mirror) || { echo "this host's apt sources name no Debian mirror"; return 1; }
	mkdir -p "$dir/lists/partial"
	for suite; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
	done >"$dir/sources.list"
	archive "$dir" apt-get update
}

# archive DIRECTORY apt-get|apt-cache ARGUMENT...: run apt with the state in DIRECTORY
archive() {
	local dir=$1 command=$2
	shift 2
	"$command" -o "Dir::State::lists=$dir/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$dir" -o APT::Update::Error-Mode=any \
		-o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Default-Release= -o APT::Sandbox::User=root "$@"
}

# archive_kernel DIRECTORY SERIES: print the newest release of the series (a glob: [0-9]* is any) that the archive has
# with image, headers and source
archive_kernel() {
	local names release
	names=$(archive "$1" apt-cache pkgnames linux-)
	while read -r release; do
		# shellcheck disable=SC2254 # a glob
		case ${release%%+*} in $2.*) ;; *) continue ;; esac
		grep -qx "linux-source-$(cut -d. -f1,2 <<<"$release")" <<<"$names" || continue
		! archive "$1" apt-cache show "linux-image-$release" >/dev/null 2>&1 || { echo "$release"; return; }
	done < <(sed -n 's/^linux-headers-\([0-9.]*+deb[0-9]*-amd64\)$/\1/p' <<<"$names" | sort -rV)
	echo "Debian's archive has no kernel of series $2 any more (image, headers and source); see Documentation/testing.rst, KVBLK_SERIES" >&2
	return 1
}

root_fs() {
	echo "$KVBLK_CACHE/root-$({ cat "$vm_dir/rootfs"; echo "${KVBLK_SERIES-}"; } | recipe_hash)"
}

kernel_src() {
	echo "$(root_fs)-src"
}

# kernels that Debian does not have: see built-kernel
built_kernels=(debug debug-smp 6.12-p2p uml)

# is_built NAME: true for one of these. is_uml NAME: true for a kernel that runs as a process of the host
is_built() {
	[[ " ${built_kernels[*]} " = *" $1 "* ]]
}

is_uml() {
	[ "$1" = debug ] || [ "$1" = uml ]
}

# fragments_of NAME: print the files that make a built kernel's configuration; later files override earlier ones
fragments_of() {
	case $1 in
	debug) echo "$vm_dir/uml.config" "$vm_dir/debug.config" ;;
	*) echo "$vm_dir/$1.config" ;;
	esac
}

# kernel_recipe: print the parts of the root file system that affect a kernel: source and compiler, not other packages
kernel_recipe() {
	sed '/^packages=(/,/^)/d' "$vm_dir/rootfs"
	dpkg-query --admindir="$(root_fs)/var/lib/dpkg" -W 'linux-source-*' 'linux-headers-*' gcc 'gcc-*' binutils libc6-dev 2>/dev/null |
		sed '/\t$/d'
}

built_kernel() {
	local also=()
	case $1 in
	uml) also=("$repo/selftests/bench/crc/crc32.h") ;;
	debug) also=("$vm_dir/debug-stack.h") ;;
	esac
	# shellcheck disable=SC2046 # several words
	echo "$KVBLK_CACHE/$1-$({ kernel_recipe; cat $(fragments_of "$1") "$vm_dir/built-kernel" "${also[@]}"; } | recipe_hash)"
}

# build_root: print the directory of this checkout's build products
build_root() {
	echo "$KVBLK_CACHE/build-$(recipe_hash <<<"$repo")"
}

# tree_of NAME: print the directory in the cache that a kernel's modules are built in
tree_of() {
	if is_built "$1"; then built_kernel "$1"; else root_fs; fi
}

# release_of NAME: print the release of a kernel: newest, a series, or one of built_kernels
release_of() {
	local image
	if is_built "$1"; then
		cat "$(built_kernel "$1")/include/config/kernel.release"
	elif [ "$1" = newest ]; then
		cat "$(root_fs)/boot/newest"
	else
		image=$(echo "$(root_fs)/boot/vmlinuz-$1."*)
		echo "${image##*/vmlinuz-}"
	fi
}

# in_root COMMAND...: run a command in the root file system; $build_dir (default: build_root) is at /build, the kernel
# source (or $src_dir) at /src, the debug kernel's tree (or $debug_dir) at /debug
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
