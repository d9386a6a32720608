# SPDX-License-Identifier: Apache-2.0
#
# make run       installs packages, builds, starts a server on loopback and says what to put in .bazelrc
# make test      installs packages, builds, runs all tests
# make help      the rest
#
# VARIANT is one of debug, release, asan, tsan; each builds under build/VARIANT/. Sources are found by folder, so a new
# file needs no line here.

.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash

VARIANT ?= debug
BUILD := build/$(VARIANT)
GEN := build/gen

CC := gcc
CLANG := clang
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
  -Wcast-qual -Wwrite-strings -Wvla -Wundef -Wformat=2 -Werror
COMMON := -std=c11 -D_GNU_SOURCE -I. -isystem $(GEN) -g -fno-omit-frame-pointer -fno-common -pthread
CFLAGS_debug := -O1 -DFAILPOINTS
CFLAGS_release := -O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE
CFLAGS_asan := -O1 -DFAILPOINTS -fsanitize=address,undefined -fno-sanitize-recover=all
CFLAGS_tsan := -O1 -DFAILPOINTS -fsanitize=thread
LDFLAGS_release := -pie -Wl,-z,relro,-z,now
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
CFLAGS := $(COMMON) $(CFLAGS_$(VARIANT))
LDFLAGS := -pthread -rdynamic $(LDFLAGS_$(VARIANT))
LIBS := -lgrpc -lgpr -lprotobuf-c -lrocksdb -lcrypto -lisal -lzstd -lmicrohttpd -lm

# ---- generated from our .proto files
PROTOS := $(shell find proto -name '*.proto' | sed 's|^proto/||' | sort)
# Google's well-known types are not ours: they come from the package libprotobuf-dev.
WELL_KNOWN_DIR := /usr/include
WELL_KNOWN := $(patsubst %,google/protobuf/%.proto,any duration timestamp wrappers)
GEN_C := $(patsubst %.proto,$(GEN)/%.pb-c.c,$(PROTOS) $(WELL_KNOWN))
GEN_H := $(GEN_C:.c=.h)
GEN_O := $(GEN_C:$(GEN)/%.c=$(BUILD)/gen/%.o)
DESCRIPTORS := $(GEN)/descriptors.h

# ---- our folders, each an archive; the order is the order of linking
FOLDERS := server client durability store proto base
MAINS := server/main.c client/cli_main.c
folder_sources = $(filter-out $(MAINS),$(wildcard $(1)/*.c))
folder_objects = $(patsubst %.c,$(BUILD)/%.o,$(call folder_sources,$(1)))
ARCHIVES := $(FOLDERS:%=$(BUILD)/lib%.a)

TEST_SOURCES := $(wildcard tests/test_*.c)
TESTS := $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
TEST_HELPERS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/sim/*.c tests/support/*.c))
BENCH_SOURCES := $(wildcard bench/*.c)
BENCHES := $(BENCH_SOURCES:bench/%.c=$(BUILD)/bench/%)
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
FUZZERS := $(FUZZ_SOURCES:tests/fuzz/%.c=build/fuzz/%)

BINARIES := $(BUILD)/varved $(BUILD)/varve

.PHONY: all
all: $(BINARIES)

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h &: proto/%.proto
	@mkdir -p $(@D)
	protoc-c -Iproto --c_out=$(GEN) $<

$(GEN)/google/protobuf/%.pb-c.c $(GEN)/google/protobuf/%.pb-c.h &: $(WELL_KNOWN_DIR)/google/protobuf/%.proto
	@mkdir -p $(@D)
	protoc-c -I$(WELL_KNOWN_DIR) --c_out=$(GEN) $<

# The descriptors of all our files with their imports, for server reflection.
$(GEN)/descriptors.bin: $(PROTOS:%=proto/%)
	@mkdir -p $(@D)
	protoc -Iproto --include_imports --descriptor_set_out=$@ $(PROTOS)

$(DESCRIPTORS): $(GEN)/descriptors.bin
	{ echo 'static const unsigned char descriptor_set[] = {'; od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo '};'; } > $@

$(BUILD)/gen/%.pb-c.o: $(GEN)/%.pb-c.c $(GEN_H)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -w -I$(GEN) -c -o $@ $<

$(BUILD)/%.o: %.c | $(GEN_H) $(DESCRIPTORS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(WARNINGS) -MMD -MP -c -o $@ $<

define archive_rule
$(BUILD)/lib$(1).a: $(call folder_objects,$(1)) $(if $(filter proto,$(1)),$(GEN_O))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach folder,$(FOLDERS),$(eval $(call archive_rule,$(folder))))

$(BUILD)/varved: $(BUILD)/server/main.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/varve: $(BUILD)/client/cli_main.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_HELPERS) $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcheck -lsubunit -lrt

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: tests benches
tests: $(TESTS)
benches: $(BENCHES)

# One test program: make unit-digest runs tests/test_digest.c
unit-%: $(BUILD)/tests/test_%
	$<

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
