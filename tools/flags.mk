# SPDX-License-Identifier: MIT
# Build flags for tools/Makefile and daemon/Makefile, which set top (the tree's root, absolute). O=DIR builds in DIR
# instead of the tree.

# the version of the module, too
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' $(top)/dkms.conf)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))

PKG_CONFIG ?= pkg-config
libnl_cflags := $(or $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0 2>/dev/null),-I/usr/include/libnl3)
# what the static libraries need: the core, administration, keys
lib_libs := -luring
admin_libs := -lnl-genl-3 -lnl-3 -luring
keys_libs := -lmd

prefix ?= /usr
bindir ?= $(prefix)/bin
sbindir ?= $(prefix)/sbin
multiarch := $(shell $(CC) -print-multiarch 2>/dev/null)
libdir ?= $(prefix)/lib$(if $(multiarch),/$(multiarch))
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
completiondir ?= $(prefix)/share/bash-completion/completions
zshdir ?= $(prefix)/share/zsh/site-functions
fishdir ?= $(prefix)/share/fish/vendor_completions.d

CFLAGS ?= -O2 -g
# tests set WERROR=-Werror; others must be able to build with a compiler that has new warnings
warnings := -Wall -Wextra -Wno-unused-parameter $(WERROR)
flags = -std=gnu11 $(warnings) -D_GNU_SOURCE= -DKVBLK_VERSION='"$(VERSION)"' \
	-I$(top)/uapi -pthread -MMD -MP $(CPPFLAGS) $(CFLAGS)
