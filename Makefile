# SPDX-License-Identifier: GPL-2.0
# The verbs a person needs; "make help" shows them. KDIR= names the kernel to build for.
#   make             the module for the running kernel, and the user space
#   make tools       user space alone: the command is tools/kvblk/kvblk
#   make python      the Python package, in tools/python-lib (or: pip install
#                    ./tools/python)
#   make install     module, library, command, daemon, udev rule, man pages
#                    (DESTDIR=, prefix=); make uninstall. Without the module:
#                    make -C tools install, make -C daemon install
#   make dkms        the module for this and later kernels, by DKMS
#   make demo        the whole thing in a VM on this machine (TRACE=file replays
#                    your own trace)
#   make demo-llm    a small language model in a VM: its prompt is computed once
#   make demo-pod    two nodes and an enclosure: one puts, the other gets, one is killed
#   make check       what CI runs; make host, make lint: parts of it
#   make check-all   everything on every kernel, over an hour (RESUME=1 goes on where the
#                    last one was interrupted)
#   make test T=NAME one VM test (K=6.12 or another kernel, D=all in full length)
#   make bench       measures, at native speed in user-mode Linux (BENCH=full for
#                    all sizes); make bench-plots draws
#   make bench-icount  kernel instructions for each operation, against those
#                    recorded (TOP=n: in which functions)
#   make bench-lines cache lines for which two CPUs compete, for each operation
#   make bench-index the index alone, at 100 million entries (4.5 GiB, minutes;
#                    ARGS='--entries 1000000' for less)

KDIR ?= /lib/modules/$(shell uname -r)/build
prefix ?= /usr
export prefix DESTDIR
# real traces, where there are some beside the project: the policy's targets are tested on them
traces := $(patsubst %/agents_trace.jsonl,%,$(abspath $(wildcard ../shared/data/agents_trace.jsonl)))
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
parts := $(patsubst %/Makefile,%,$(wildcard tools/Makefile daemon/Makefile))

all: module tools

module:
	@[ -d '$(KDIR)' ] || { echo 'no kernel headers at $(KDIR): install them, or "make tools" for user space alone'; false; }
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

tools:
	$(foreach p,$(parts),$(MAKE) -C $(p) &&) true

python:
	$(MAKE) -C tools python

# Programs that the VM tests run.
selftests: tools
	$(if $(wildcard selftests/Makefile),$(MAKE) -C selftests)

host: export WERROR := -Werror
host:
	$(if $(traces),KVBLK_TRACES='$(traces)') $(MAKE) -C selftests/host check
	selftests/bench/icount_test
	selftests/abi/grows
	$(foreach p,$(parts),$(MAKE) -C $(p) check &&) true
	selftests/abi/library tools

lint:
	selftests/lint

check:
	selftests/check

check-all:
	selftests/check --all $(if $(RESUME),--resume)

test:
	@[ -n '$(T)' ] || { echo 'which? make test T=30-data'; false; }
	selftests/vm/run --verbose $(if $(K),--kernel $(K)) $(if $(D),--depth $(D)) $(T)

help:
	@sed -n '/^#   make/,/^$$/s/^#   //p' $(firstword $(MAKEFILE_LIST))

demo:
	selftests/vm/demo $(if $(TRACE),--trace '$(TRACE)')

demo-llm:
	selftests/vm/demo-llm

demo-pod:
	selftests/vm/demo-pod

bench:
	selftests/bench/run $(if $(filter full,$(BENCH)),--full)

bench-icount:
	selftests/bench/icount $(if $(TOP),--top $(TOP))

bench-lines:
	selftests/bench/lines $(if $(TOP),--top $(TOP))

bench-index:
	$(MAKE) -s -C selftests/bench index

bench-plots:
	selftests/bench/plots

install: all
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules_install $(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR))
	# Debian's kernel headers lack what modules_install needs to do this
	[ -n "$(DESTDIR)" ] || depmod $$($(MAKE) -sC $(KDIR) kernelrelease)
	$(foreach p,$(parts),$(MAKE) -C $(p) install &&) true

# DKMS takes a version once, so that of a checkout names the commit
dkms_version ?= $(VERSION)$(shell git -C '$(CURDIR)' log -1 --date=format:%Y%m%d%H%M%S --format=+%cd.%h 2>/dev/null)
dkms_source := $(DESTDIR)/usr/src/kvblk-$(dkms_version)

dkms-source:
	rm -rf '$(dkms_source)'
	mkdir -p '$(dkms_source)'
	cp --parents Kbuild kernel/*.[ch] kernel/*/*.[ch] uapi/linux/*.h '$(dkms_source)'
	sed 's/^PACKAGE_VERSION=.*/PACKAGE_VERSION="$(dkms_version)"/' dkms.conf >'$(dkms_source)/dkms.conf'

dkms:
	! dkms status kvblk/$(dkms_version) | grep . || dkms remove kvblk/$(dkms_version) --all
	$(MAKE) dkms-source DESTDIR=
	dkms install kvblk/$(dkms_version)

uninstall:
	rm -f $(DESTDIR)/lib/modules/*/updates/kvblk.ko* $(DESTDIR)/lib/modules/*/extra/kvblk.ko*
	-[ -n "$(DESTDIR)" ] || depmod
	$(foreach p,$(parts),$(MAKE) -C $(p) uninstall &&) true

clean:
	$(foreach p,$(parts) $(patsubst %/Makefile,%,$(wildcard selftests/Makefile selftests/host/Makefile)),$(MAKE) -C $(p) clean &&) true
	[ ! -d $(KDIR) ] || $(MAKE) -C $(KDIR) M=$(CURDIR) clean

.PHONY: all module tools python selftests host lint check check-all test help demo demo-llm demo-pod bench bench-icount bench-lines bench-index bench-plots install dkms-source dkms uninstall clean
