/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on the simulated disk of io_sim.h: files and directories, as everybody sees them and as
 * they are on disk, and the changes that lead from one to the other. Knows nothing of descriptors
 * and failures. The lock of its io_sim guards it.
 *
 * A file has two contents and a list of changes; a directory has two sets of entries, and the
 * changes of all names are in one list of the tree. Memory that runs out is asserted: this is a
 * test.
 */
#ifndef VARVE_TESTS_SIM_SIM_TREE_H
#define VARVE_TESTS_SIM_SIM_TREE_H

#include <stdbool.h>

#include "tests/sim/io_sim.h"
#include "tests/sim/sparse_bytes.h"

enum { SIM_NAME_BYTES_MAX = 256 };

/* What changed in a file since its last sync, in order. */
enum sim_change_kind {
    SIM_CHANGE_WRITE, /* data at offset; grows the file to its end */
    SIM_CHANGE_GROW,  /* the size becomes offset, if it is smaller; no data */
    SIM_CHANGE_CUT,   /* the size becomes offset, if it is larger; no data */
};

/* What was written. Never changes, so that the trees of several disks share it. */
struct sim_data {
    _Atomic size_t references;
    uint8_t bytes[];
};

struct sim_change {
    struct sim_change *next; /* owned */
    uint64_t sequence;       /* rises with every change on the disk */
    enum sim_change_kind kind;
    bool lost; /* a sync failed on it: it only grows the file from then on */
    uint64_t offset;
    size_t length;
    struct sim_data *data; /* shared; of length bytes; NULL when there are none */
};

enum sim_layer { SIM_LIVE, SIM_DURABLE, SIM_LAYER_COUNT };

struct sim_entry {
    char *name;            /* owned */
    struct sim_node *node; /* shared */
};

struct sim_entries {
    struct sim_entry *items; /* owned */
    size_t count, capacity;
};

enum sim_node_kind { SIM_FILE, SIM_DIRECTORY };

struct sim_node {
    struct sim_node *next, *previous; /* of all nodes of the tree */
    enum sim_node_kind kind;
    size_t references; /* entries of both layers, changes of names, descriptors */
    size_t uses;       /* live entries and descriptors: while there are any it takes space */

    /* Of a file. */
    struct sparse_bytes cached;
    struct sparse_bytes durable;
    struct sim_change *first_change; /* owned */
    struct sim_change *last_change;
    bool diverged; /* a sync has failed: the cache shows more than disk and changes explain */
    bool locked;

    struct sim_node *twin; /* while a tree is being copied: the node in the copy */

    /* Of a directory. */
    struct sim_entries entries[SIM_LAYER_COUNT];
};

/* The making (no `from`), removing (no `to`) or renaming of a name; all nodes are shared. */
struct sim_name_change {
    struct sim_name_change *next;
    struct sim_node *node;
    struct sim_node *from_directory, *to_directory;
    bool chosen; /* by who is about to make some of them durable */
    char from_name[SIM_NAME_BYTES_MAX], to_name[SIM_NAME_BYTES_MAX];
};

struct sim_tree {
    struct sim_node *nodes;
    struct sim_node *root;                     /* shared */
    struct sim_name_change *first_name_change; /* owned, those that are not durable */
    struct sim_name_change *last_name_change;
    uint64_t sequence; /* of the last change of a file */
};

void sim_tree_init(struct sim_tree *tree);
void sim_tree_destroy(struct sim_tree *tree); /* no node may be in use but by names */
/* Makes `to`, which is no tree yet, a copy of `from` without its descriptors and locks. */
void sim_tree_copy(struct sim_tree *to, struct sim_tree *from);

/* 0 or -errno. "/" is the root; find_parent gives -EEXIST for it, as it has no name. */
int sim_tree_find(struct sim_tree *tree, const char *path, struct sim_node **node);
int sim_tree_find_parent(struct sim_tree *tree,
                         const char *path,
                         struct sim_node **directory,
                         char name[SIM_NAME_BYTES_MAX]);
/* NULL if it is not there. */
struct sim_node *sim_tree_lookup(const struct sim_node *directory, const char *name);

/* No reference is held yet: the caller names or opens it next. */
struct sim_node *sim_node_new(struct sim_tree *tree, enum sim_node_kind kind);
/* Gives one reference up; without any the node goes, and what only it names. */
void sim_node_release(struct sim_tree *tree, struct sim_node *node);

/*
 * Makes (from_directory is NULL), removes (to_directory is NULL) or renames; live at once, noted
 * for the disk.
 */
void sim_tree_change_name(struct sim_tree *tree,
                          struct sim_node *node,
                          struct sim_node *from_directory,
                          const char *from_name,
                          struct sim_node *to_directory,
                          const char *to_name);
/* All changes of its names so far become durable. */
void sim_tree_sync_names(struct sim_tree *tree, struct sim_node *directory);

/* Notes a change; the caller fills in its data and then applies it to the cached content. */
struct sim_change *sim_file_add_change(struct sim_tree *tree,
                                       struct sim_node *file,
                                       enum sim_change_kind kind,
                                       uint64_t offset,
                                       size_t length);
void sim_change_apply(const struct sim_change *change, struct sparse_bytes *content);
/*
 * Changes up to this one become durable, lose their data, or are looked at anew by whoever reads.
 */
void sim_file_sync_until(struct sim_node *file, uint64_t sequence);
void sim_file_lose_until(struct sim_node *file, uint64_t sequence);
void sim_file_drop_cache(struct sim_node *file);

/* Sizes of all that is in use. */
uint64_t sim_tree_used_bytes(const struct sim_tree *tree);

/* A power cut and the boot after it, as io_sim_crash() has it. No descriptor may be open. */
void sim_tree_crash(struct sim_tree *tree, uint64_t seed, enum io_sim_crash_mode mode);

/* For sim_tree_crash() alone. */
/* Whether they change the same name: then the disk sees them in their order. */
bool sim_name_changes_meet(const struct sim_name_change *a, const struct sim_name_change *b);
/* Makes the chosen ones durable and removes them from the list. */
void sim_tree_keep_chosen_names(struct sim_tree *tree);
/* Removes all from the list; the disk never sees them. */
void sim_tree_forget_names(struct sim_tree *tree);
void sim_directory_revert(struct sim_tree *tree, struct sim_node *directory);
void sim_file_drop_changes(struct sim_node *file, uint64_t sequence);

#endif
