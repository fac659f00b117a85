#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: install_test.sh OUT
# A C or C++ program finds the installed headers and libraries through pkg-config, shared and static, and works on the
# pool of libkvblk-fake. "make uninstall" leaves no file. OUT is the build directory of tools/.
set -u
out=$(readlink -f "${1:?usage: install_test.sh OUT}")
top=$(dirname "$(readlink -f "$0")")/../..
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$dir/root
number=0
failed=0

# expect WHAT COMMAND...
expect() {
	local what=$1
	shift
	number=$((number + 1))
	if "$@" > "$dir/log" 2>&1; then
		grep '^ok' "$dir/log"
		echo "ok $number install: $what"
	else
		failed=$((failed + 1))
		echo "not ok $number install: $what"
		sed 's/^/  # /' "$dir/log"
	fi
}

# parts VERB: run a make target in all parts of user space
parts() {
	make -C "$top/tools" O="$out" DESTDIR="$root" prefix=/kv "$1" &&
		make -C "$top/daemon" O="$out/../daemon" DESTDIR="$root" prefix=/kv "$1"
}

# build PROGRAM FLAG...: compile like a user of the library
build() {
	cc -Wall -Wextra -Werror -o "$dir/$1" "$top/tools/test/lib_test.c" "${@:2}"
}

# in_cxx FLAG...: check that the headers are valid C++, and that no function hides a structure of the library; exceptions
# are not needed
in_cxx() {
	{
		printf '#include <%s>\n' kvblk.h kvblk_admin.h kvblk_keys.h
		printf 'extern kvblk_%s *names_%s;\n' {info,lookup,op,op_ext,piece,result,completion,prefix,mem_info,changes,keyspace,notice}{,}
	} | c++ -x c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only "$@" - &&
		echo '#include <kvblk.hpp>' | c++ -x c++ -std=c++17 -fno-exceptions -Wall -Wextra -Werror -fsyntax-only "$@" -
}

# run PROGRAM
run() {
	LD_PRELOAD=$LD_LIBRARY_PATH/kvblk/libkvblk-fake.so "$dir/$1"
}

# pages: check that every exported function has a man page
pages() {
	(cd "$root/kv/share/man/man3" && sed -n 's/^\t\(kvblk_.*\);/\1.3/p' "$top"/tools/lib/libkvblk.map "$top"/tools/lib/*/libkvblk-*.map | xargs ls -L)
}

# keys FLAG...: build and run the test of the keys
keys() {
	cc -Wall -Wextra -Werror -Wno-unused-parameter -I"$top/selftests/host" -o "$dir/keys" "$top/tools/test/keys_test.c" "$@" -lcmocka && "$dir/keys"
}

# admin FLAG...: build and run a program that asks for a name
admin() {
	printf '#include <kvblk_admin.h>\n#include <stdio.h>\nint main(void) { return puts(kvblk_name(KVBLK_NAME_MEMBER_STATUS, 1)) < 0; }\n' |
		cc -Wall -Wextra -Werror -x c -o "$dir/admin" - "$@" && [ "$("$dir/admin")" = up ]
}

# linked FLAG...: build and run the example with the fake pool linked in
linked() {
	cc -Wall -Wextra -Werror -o "$dir/linked" "$top/tools/lib/examples/put_get.c" "$@" && "$dir/linked" fake
}

# spares LIBRARY PATTERN: check that an installed library needs no other one of this pattern
spares() {
	! objdump -p "$LD_LIBRARY_PATH/$1.so" | grep NEEDED | grep -E "$2"
}

# nothing_left: check that no file is left
nothing_left() {
	! find "$root" ! -type d | grep .
}

expect "make install" parts install
PKG_CONFIG_PATH=$(dirname "$(find "$root" -name kvblk.pc)")
LD_LIBRARY_PATH=$PKG_CONFIG_PATH/..
export PKG_CONFIG_PATH LD_LIBRARY_PATH PKG_CONFIG_SYSROOT_DIR=$root
read -ra flags < <(pkg-config --cflags --libs kvblk)
expect "a program with the shared library" build shared "${flags[@]}"
expect "it works" run shared
read -ra flags < <(pkg-config --static --cflags --libs kvblk)
expect "a program with the static library" build static "${flags[@]/#-lkvblk/-l:libkvblk.a}"
expect "it works" run static
read -ra flags < <(pkg-config --cflags kvblk)
expect "C++" in_cxx "${flags[@]}"
read -ra flags < <(pkg-config --cflags --libs kvblk-keys)
expect "a program with the library of keys" keys "${flags[@]}"
read -ra flags < <(pkg-config --cflags --libs kvblk-admin)
expect "a program with the library of administration" admin "${flags[@]}"
read -ra flags < <(pkg-config --cflags --libs kvblk kvblk-fake)
expect "a program with the fake pool" linked "${flags[@]}"
expect "the data path needs neither libnl nor libmd" spares libkvblk 'libnl|libmd'
expect "the keys need neither libnl nor liburing" spares libkvblk-keys 'libnl|liburing'
expect "the installed command runs" "$root/kv/bin/kvblk" --version
expect "the unit's daemon runs" "$root$(sed -n 's/^ExecStart=//p' "$root/kv/lib/systemd/system/kvblkd.service")" --version
expect "the rule for the nodes" test -s "$root/usr/lib/udev/rules.d/60-kvblk.rules" -a -s "$root/usr/lib/sysusers.d/kvblk.conf"
expect "a man page for every function" pages
expect "make uninstall" parts uninstall
expect "it leaves nothing" nothing_left
[ "$failed" = 0 ]
