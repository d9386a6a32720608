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
# With sanitizers gcc warns of more than there is; the debug and release builds judge.
SANITIZER_QUIET := -Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-overflow
CFLAGS_asan := -O1 -DFAILPOINTS -fsanitize=address,undefined -fno-sanitize-recover=all $(SANITIZER_QUIET)
CFLAGS_tsan := -O1 -DFAILPOINTS -fsanitize=thread $(SANITIZER_QUIET)
LDFLAGS_release := -pie -Wl,-z,relro,-z,now,--as-needed
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
CFLAGS := $(COMMON) $(CFLAGS_$(VARIANT))
LDFLAGS := -pthread -rdynamic $(LDFLAGS_$(VARIANT))
LIBS := -lgrpc -lgpr -lprotobuf-c -lrocksdb -lcurl -lexpat -lcrypto -lisal -lzstd -lmicrohttpd -lgnutls -lcrypt -lm

# ---- generated from our .proto files
PROTOS := $(shell find proto -name '*.proto' | sed 's|^proto/||' | sort)
# Google's well-known types are not ours: they come from the package libprotobuf-dev.
WELL_KNOWN_DIR := /usr/include
WELL_KNOWN := $(patsubst %,google/protobuf/%.proto,any duration timestamp wrappers)
GEN_C := $(patsubst %.proto,$(GEN)/%.pb-c.c,$(PROTOS) $(WELL_KNOWN))
GEN_H := $(GEN_C:.c=.h)
GEN_O := $(GEN_C:$(GEN)/%.c=$(BUILD)/gen/%.o)
DESCRIPTORS := $(GEN)/descriptors.h
PAGE := $(GEN)/page_files.h
PAGE_FILES := $(sort $(wildcard server/page/*))

# ---- our folders, each an archive; the order is the order of linking
FOLDERS := server client durability store proto tier base
MAINS := server/main.c client/cli_main.c
folder_sources = $(filter-out $(MAINS),$(wildcard $(1)/*.c))
folder_objects = $(patsubst %.c,$(BUILD)/%.o,$(call folder_sources,$(1)))
ARCHIVES := $(FOLDERS:%=$(BUILD)/lib%.a)

TEST_SOURCES := $(wildcard tests/test_*.c)
TESTS := $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
# The simulated index takes the place of store/index.c, in the model alone.
MODEL_INDEX := tests/sim/index_sim.c
TEST_HELPERS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(MODEL_INDEX),$(wildcard tests/sim/*.c tests/support/*.c)))
# What tests/model/world.c puts in place of waiting, chance and fresh memory.
MODEL_WRAPPED := condition_wait condition_wait_for clock_pause getrandom mmap munmap log_event commit_submit
MODEL_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/model/*.c) $(MODEL_INDEX))
CRASH_DRIVER := $(BUILD)/tests/crash/driver
CRASH_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/crash/*.c))
BENCH_SOURCES := $(wildcard bench/*.c)
BENCHES := $(BENCH_SOURCES:bench/%.c=$(BUILD)/bench/%)
BENCH_HELPERS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard bench/support/*.c))
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
FUZZERS := $(FUZZ_SOURCES:tests/fuzz/%.c=build/fuzz/%)

BINARIES := $(BUILD)/varved $(BUILD)/varve

# Sub-makes build in parallel unless the caller has chosen.
parallel = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# make V=1 shows the commands, and not only what is made.
say = $(if $(V),@:,@echo '  $(1)')
Q := $(if $(V),,@)

.PHONY: all
all: $(BINARIES)

# ---- what people call
DATA ?= data
LISTEN ?= 127.0.0.1:8980
HTTP_LISTEN ?= 127.0.0.1:8981
ARGS ?=
PACKAGES ?= yes
PREFIX ?= /usr/local
packages = $(if $(filter yes,$(PACKAGES)),deploy/install-packages $(1),true)

.PHONY: help
help:
	@echo 'make run            install packages, build, start a server on loopback, print the lines for .bazelrc'
	@echo '                    DATA=$(DATA) LISTEN=$(LISTEN) HTTP_LISTEN=$(HTTP_LISTEN) ARGS="more flags"'
	@echo 'make test           install packages, build, run all tests'
	@echo 'make unit-X         build and run tests/test_X.c alone'
	@echo 'make asan, tsan     the tests under AddressSanitizer and UBSan, or under ThreadSanitizer'
	@echo 'make crash-kill     the server killed under load and started again, KILLS=$(KILLS) times'
	@echo 'make crash          crash images of the simulated store with fresh seeds, for SECONDS'
	@echo 'make mutants        breaks the code on purpose in a copy, and says which test notices'
	@echo 'make fuzz           each fuzzer for FUZZ_SECONDS'
	@echo 'make lint           format, clang-tidy, shellcheck, who includes whom, docs, headers compile alone'
	@echo 'make format         clang-format -i on everything; FILES="..." for some'
	@echo 'make check          everything that CI runs'
	@echo 'make release, debug build/release/, build/debug/: varved and varve'
	@echo 'make check-release  no fail point in the release, nothing but varve_* exported by libvarve'
	@echo 'make install        the release to DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)'
	@echo 'make deb            build/deb/varve-server_VERSION_ARCH.deb and varve-client_VERSION_ARCH.deb'
	@echo 'make compile_commands.json'
	@echo 'make clean          removes build/; data/ stays'
	@echo 'V=1 shows the commands; PACKAGES=no installs nothing.'

.PHONY: release debug
release:
	@+$(MAKE) --no-print-directory $(parallel) VARIANT=release all
debug:
	@+$(MAKE) --no-print-directory $(parallel) VARIANT=debug all

.PHONY: run
run:
	@$(call packages,build)
	@+$(MAKE) --no-print-directory release
	@DATA='$(DATA)' LISTEN='$(LISTEN)' HTTP_LISTEN='$(HTTP_LISTEN)' deploy/run $(ARGS)

KILLS ?= 200
.PHONY: test asan tsan crash-kill
test:
	@$(call packages,build test)
	@+$(MAKE) --no-print-directory $(parallel) VARIANT=debug all tests
	@tests/run debug
asan tsan:
	@$(call packages,build test)
	@+$(MAKE) --no-print-directory $(parallel) VARIANT=$@ all tests
	@tests/run $@
crash-kill:
	@$(call packages,build test)
	@+$(MAKE) --no-print-directory $(parallel) VARIANT=debug all crash-driver
	@tests/crash/run $(KILLS)

# The model with seeds that nobody has tried, for SECONDS; a failure is printed with its seed.
.PHONY: crash
crash: $(BUILD)/tests/test_model
	@$< --seconds $(or $(SECONDS),60) --seed $$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')

# The code broken on purpose, in a copy: does a test notice?
.PHONY: mutants
mutants:
	@.ci/mutants $(MUTANTS)

.PHONY: check
check:
	.ci/run

.PHONY: clean
clean:
	rm -rf build

.PHONY: install
install: release
	install -D -m 755 build/release/varved '$(DESTDIR)$(PREFIX)/bin/varved'
	install -D -m 755 build/release/varve '$(DESTDIR)$(PREFIX)/bin/varve'

.PHONY: deb
deb:
	@$(call packages,build package)
	@+$(MAKE) --no-print-directory release
	@deploy/build-deb

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h &: proto/%.proto
	@mkdir -p $(@D)
	$(call say,PROTO $<)
	$(Q)protoc-c -Iproto --c_out=$(GEN) $<

$(GEN)/google/protobuf/%.pb-c.c $(GEN)/google/protobuf/%.pb-c.h &: $(WELL_KNOWN_DIR)/google/protobuf/%.proto
	@mkdir -p $(@D)
	$(call say,PROTO $<)
	$(Q)protoc-c -I$(WELL_KNOWN_DIR) --c_out=$(GEN) $<

# The descriptors of all our files with their imports, for server reflection.
$(GEN)/descriptors.bin: $(PROTOS:%=proto/%)
	@mkdir -p $(@D)
	$(call say,PROTO $@)
	$(Q)protoc -Iproto --include_imports --descriptor_set_out=$@ $(PROTOS)

$(DESCRIPTORS): $(GEN)/descriptors.bin
	$(call say,GEN $@)
	$(Q){ echo 'static const unsigned char descriptor_set[] = {'; od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo '};'; } > $@

# The page that is served over HTTP: of each file its bytes and, as its ETag, a part of their hash.
$(PAGE): $(PAGE_FILES) $(wildcard server/page)
	@mkdir -p $(@D)
	$(call say,GEN $@)
	$(Q)for file in $(PAGE_FILES); do name=$$(basename $$file | tr .- __); \
	  echo "static const unsigned char $$name[] = {"; od -An -v -tx1 $$file | sed 's/ \(..\)/0x\1,/g'; echo '};'; \
	  echo "static const char $${name}_etag[] = \"\\\"$$(sha256sum $$file | cut -c -32)\\\"\";"; done > $@
$(BUILD)/server/http_page.o: $(PAGE)

$(BUILD)/gen/%.pb-c.o: $(GEN)/%.pb-c.c $(GEN_H)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(CFLAGS) -w -I$(GEN) -c -o $@ $<

# Changes when the flags do, so that a change of flags rebuilds.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CFLAGS) $(WARNINGS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS) $(WARNINGS)' >$@
.PHONY: FORCE
FORCE:

$(BUILD)/%.o: %.c $(BUILD)/flags | $(GEN_H) $(DESCRIPTORS) $(PAGE)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(CFLAGS) $(WARNINGS) -MMD -MP -c -o $@ $<

define archive_rule
$(BUILD)/lib$(1).a: $(call folder_objects,$(1)) $(if $(filter proto,$(1)),$(GEN_O))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR $$@)
	$$(Q)ar rcs $$@ $$^
endef
$(foreach folder,$(FOLDERS),$(eval $(call archive_rule,$(folder))))

$(BUILD)/varved: $(BUILD)/server/main.o $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/varve: $(BUILD)/client/cli_main.o $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_HELPERS) $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcheck -lsubunit -lrt -lm

$(CRASH_DRIVER): $(CRASH_OBJECTS) $(TEST_HELPERS) $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcheck -lsubunit -lrt -lm

$(BUILD)/tests/test_model: $(MODEL_OBJECTS) $(TEST_HELPERS) $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LDFLAGS) $(MODEL_WRAPPED:%=-Wl,--wrap=%) -o $@ $^ $(LIBS) -lcheck -lsubunit -lrt -lm

$(BUILD)/bench/libbench.a: $(BENCH_HELPERS)
	@rm -f $@
	$(call say,AR $@)
	$(Q)ar rcs $@ $^

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/bench/libbench.a $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: tests crash-driver benches
tests: $(TESTS) $(CRASH_DRIVER) $(BUILD)/tests/test_model
crash-driver: $(CRASH_DRIVER)
benches: $(BENCHES)

# One test program: make unit-digest runs tests/test_digest.c
unit-%: $(BUILD)/tests/test_%
	@tests/run -v $(VARIANT) test_$*

# ---- fuzzing: clang's libFuzzer over base, proto and what of server/ reads files, compressed uploads and what is stored, with those
# helpers of tests that they share
FUZZ_SECONDS ?= $(or $(SECONDS),60)
FUZZ_FLAGS := $(COMMON) -O1 -DFAILPOINTS -fsanitize=address,undefined -fno-sanitize-recover=all
FUZZED := $(foreach folder,base proto,$(call folder_sources,$(folder))) \
  $(addprefix server/,access_keys.c access_passwords.c access_rules.c page_content.c roles.c zstd_stream.c) client/json.c \
  tests/support/flat_walk.c tests/support/hot_messages_oracle.c tests/support/parts.c
FUZZED_O := $(FUZZED:%.c=build/fuzz/objects/%.o) $(GEN_C:$(GEN)/%.c=build/fuzz/objects/gen/%.o)

.PHONY: fuzz fuzzers
fuzz:
	@$(call packages,build lint)
	@+$(MAKE) --no-print-directory $(parallel) fuzzers
	@tests/fuzz/run $(FUZZ_SECONDS) $(FUZZERS:build/fuzz/%=%)
fuzzers: $(FUZZERS)

build/fuzz/objects/gen/%.o: $(GEN)/%.c $(GEN_H)
	@mkdir -p $(@D)
	$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -w -I$(GEN) -c -o $@ $<

build/fuzz/objects/%.o: %.c | $(GEN_H) $(DESCRIPTORS) $(PAGE)
	@mkdir -p $(@D)
	$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link $(WARNINGS) -MMD -MP -c -o $@ $<

build/fuzz/libfuzzed.a: $(FUZZED_O)
	@rm -f $@
	ar rcs $@ $^

build/fuzz/fuzz_%: build/fuzz/objects/tests/fuzz/fuzz_%.o build/fuzz/libfuzzed.a
	$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# ---- lint
C_SOURCES := $(sort $(wildcard $(FOLDERS:%=%/*.c) tests/*.c tests/*/*.c bench/*.c bench/*/*.c))
C_HEADERS := $(sort $(wildcard $(FOLDERS:%=%/*.h) tests/*.h tests/*/*.h bench/*.h bench/*/*.h))
SCRIPTS := $(shell grep -rlIE '^\#!.*[/ ](ba)?sh' .ci deploy tests bench 2>/dev/null | sort)
FILES ?= $(C_SOURCES) $(C_HEADERS)
TIDIED := $(C_SOURCES:%=build/tidy/%.stamp)
HEADERS_ALONE := $(C_HEADERS:%=build/tidy/%.stamp)
CLANG_FLAGS := $(COMMON) -DFAILPOINTS

.PHONY: lint lint-format lint-tidy lint-scripts lint-includes lint-docs lint-deploy lint-words
lint:
	@$(call packages,build test lint)
	@+$(MAKE) --no-print-directory -k $(parallel) lint-format lint-tidy lint-scripts lint-includes lint-docs lint-deploy lint-words

lint-format:
	@mkdir -p build/tidy
	@clang-format --dry-run -Werror $(C_SOURCES) $(C_HEADERS) 2>build/tidy/format || \
	  { sed -n 's/:[0-9]*:[0-9]*: error: .*/: is not as make format leaves it/p' build/tidy/format | sort -u; false; }

# One process a file: clang-tidy 14 mixes files up when it is given several. -Wcast-qual is gcc's to judge: clang finds it in the
# macros of protobuf-c too. Tests misuse locks on purpose.
lint-tidy: $(TIDIED) $(HEADERS_ALONE)

build/tidy/%.c.stamp: %.c .clang-tidy | $(GEN_H) $(DESCRIPTORS) $(PAGE)
	@mkdir -p $(@D)
	@$(CLANG) $(CLANG_FLAGS) $(filter-out -Wcast-qual,$(WARNINGS)) $(if $(filter tests/%,$<),,-Wthread-safety) -fsyntax-only -MD -MT $@ -MF build/tidy/$*.c.d $<
	@clang-tidy --quiet --warnings-as-errors='*' $< -- $(CLANG_FLAGS) 2>build/tidy/$*.c.err || { cat build/tidy/$*.c.err; false; }
	@touch $@

build/tidy/%.h.stamp: %.h | $(GEN_H) $(DESCRIPTORS) $(PAGE)
	@mkdir -p $(@D)
	@$(CC) $(CLANG_FLAGS) $(WARNINGS) -fsyntax-only -MD -MT $@ -MF build/tidy/$*.h.d -x c $<
	@touch $@

lint-scripts:
	@shellcheck $(SCRIPTS)

lint-includes:
	@.ci/check-includes

lint-docs:
	@.ci/check-docs

lint-deploy:
	@.ci/check-deploy || [ $$? = 77 ]

lint-words:
	@! grep -nE '\<(strcpy|strcat|sprintf|vsprintf|strtok|strerror|localtime|gmtime|asctime|ctime|atoi|atol|rand)\(' $(filter-out tests/%,$(C_SOURCES) $(C_HEADERS))
	@! grep -nE 'TODO|FIXME' $(C_SOURCES) $(C_HEADERS) $(SCRIPTS) $(PROTOS:%=proto/%)

.PHONY: format
format:
	clang-format -i $(FILES)

# ---- what the release may not contain
.PHONY: check-release
check-release: release
	@.ci/check-release build/release

# ---- for editors: what the compiler is called with, taken from make itself
.PHONY: compile_commands.json
compile_commands.json: $(GEN_H) $(DESCRIPTORS) $(PAGE)
	@$(MAKE) --no-print-directory -Bnk VARIANT=debug all tests benches 2>/dev/null | awk -v root='$(CURDIR)' \
	  '/^$(CC) .* -c -o [^ ]+ [^ ]+\.c$$/ { gsub(/["\\]/, "\\\\&"); \
	    printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s\"}", n++ ? ",\n" : "[\n", root, $$NF, $$0 } \
	  END { print n ? "\n]" : "[]" }' >$@

.SECONDARY:
-include $(shell find build/tidy build/fuzz -name '*.d' 2>/dev/null)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
