/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim_tree.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

static struct sim_entry *entries_find(const struct sim_entries *entries, const char *name);
static void entries_set(struct sim_tree *tree,
                        struct sim_node *directory,
                        enum sim_layer layer,
                        const char *name,
                        struct sim_node *node);
static void entries_remove(struct sim_tree *tree,
                           struct sim_node *directory,
                           enum sim_layer layer,
                           const char *name);
static void entries_clear(struct sim_tree *tree, struct sim_node *directory, enum sim_layer layer);
static void entry_drop(struct sim_tree *tree, enum sim_layer layer, struct sim_entry entry);
static size_t next_component(const char **path, const char **component);
static void choose_what_leads_to(struct sim_tree *tree, struct sim_name_change *change);
static bool same_name(const struct sim_node *directory_a,
                      const char *name_a,
                      const struct sim_node *directory_b,
                      const char *name_b);
static void name_change_apply(struct sim_tree *tree,
                              const struct sim_name_change *change,
                              enum sim_layer layer);
static void name_change_free(struct sim_tree *tree, struct sim_name_change *change);
static struct sim_name_change *name_change_add(struct sim_tree *tree,
                                               struct sim_node *node,
                                               struct sim_node *from_directory,
                                               const char *from_name,
                                               struct sim_node *to_directory,
                                               const char *to_name);
static void change_append(struct sim_node *file, struct sim_change *change);
static void change_free(struct sim_change *change);

void sim_tree_init(struct sim_tree *tree)
{
    *tree = (struct sim_tree){0};
    tree->root = sim_node_new(tree, SIM_DIRECTORY);
    tree->root->references++;
}

void sim_tree_destroy(struct sim_tree *tree)
{
    sim_tree_forget_names(tree);
    sim_node_release(tree, tree->root);
    ASSERT(tree->nodes == NULL);
}

void sim_tree_forget_names(struct sim_tree *tree)
{
    while (tree->first_name_change != NULL) {
        struct sim_name_change *const change = tree->first_name_change;
        tree->first_name_change = change->next;
        name_change_free(tree, change);
    }
    tree->last_name_change = NULL;
}

static void copy_node(struct sim_tree *tree, const struct sim_node *from);

/* Nodes stand in the same order in the copy, so that a crash with one seed treats both alike. */
void sim_tree_copy(struct sim_tree *to, struct sim_tree *from)
{
    *to = (struct sim_tree){.sequence = from->sequence};
    struct sim_node *last = from->nodes;
    while (last != NULL && last->next != NULL)
        last = last->next;
    for (struct sim_node *node = last; node != NULL; node = node->previous) {
        node->twin = sim_node_new(to, node->kind);
        node->twin->references++; /* until all are there */
    }
    for (const struct sim_node *node = from->nodes; node != NULL; node = node->next)
        copy_node(to, node);
    to->root = from->root->twin;
    to->root->references++;
    for (const struct sim_name_change *change = from->first_name_change; change != NULL;
         change = change->next)
        name_change_add(
            to, change->node->twin,
            change->from_directory != NULL ? change->from_directory->twin : NULL, change->from_name,
            change->to_directory != NULL ? change->to_directory->twin : NULL, change->to_name);
    for (struct sim_node *node = from->nodes; node != NULL; node = node->next) {
        sim_node_release(to, node->twin); /* goes, if only a descriptor had it */
        node->twin = NULL;
    }
}

static void copy_node(struct sim_tree *tree, const struct sim_node *from)
{
    struct sim_node *const to = from->twin;
    to->diverged = from->diverged;
    sparse_bytes_copy(&to->cached, &from->cached);
    sparse_bytes_copy(&to->durable, &from->durable);
    for (const struct sim_change *change = from->first_change; change != NULL;
         change = change->next) {
        struct sim_change *const copy = malloc(sizeof(*copy));
        ASSERT(copy != NULL);
        *copy = *change;
        if (copy->data != NULL)
            atomic_fetch_add(&copy->data->references, 1);
        change_append(to, copy);
    }
    for (enum sim_layer layer = SIM_LIVE; layer < SIM_LAYER_COUNT; layer++)
        for (size_t i = 0; i < from->entries[layer].count; i++)
            entries_set(tree, to, layer, from->entries[layer].items[i].name,
                        from->entries[layer].items[i].node->twin);
}

int sim_tree_find(struct sim_tree *tree, const char *path, struct sim_node **node)
{
    struct sim_node *directory;
    char name[SIM_NAME_BYTES_MAX];
    const int result = sim_tree_find_parent(tree, path, &directory, name);
    if (result == -EEXIST) {
        *node = tree->root;
        return 0;
    }
    if (result < 0)
        return result;
    *node = sim_tree_lookup(directory, name);
    return *node == NULL ? -ENOENT : 0;
}

int sim_tree_find_parent(struct sim_tree *tree,
                         const char *path,
                         struct sim_node **directory,
                         char name[SIM_NAME_BYTES_MAX])
{
    struct sim_node *at = tree->root;
    const char *component;
    size_t length = next_component(&path, &component);
    if (length == 0)
        return -EEXIST; /* the root has no name */

    while (true) {
        if (length >= SIM_NAME_BYTES_MAX)
            return -ENAMETOOLONG;
        memcpy(name, component, length);
        name[length] = '\0';
        ASSERT(strcmp(name, "..") != 0);

        length = next_component(&path, &component);
        if (length == 0) {
            *directory = at;
            return 0;
        }
        at = sim_tree_lookup(at, name);
        if (at == NULL)
            return -ENOENT;
        if (at->kind != SIM_DIRECTORY)
            return -ENOTDIR;
    }
}

/* The next component of a path: its length, and *path behind it; 0 at the end. */
static size_t next_component(const char **path, const char **component)
{
    while (true) {
        *path += strspn(*path, "/");
        *component = *path;
        const size_t length = strcspn(*path, "/");
        *path += length;
        if (length != 1 || (*component)[0] != '.')
            return length;
    }
}

struct sim_node *sim_tree_lookup(const struct sim_node *directory, const char *name)
{
    const struct sim_entry *const entry = entries_find(&directory->entries[SIM_LIVE], name);
    return entry == NULL ? NULL : entry->node;
}

struct sim_node *sim_node_new(struct sim_tree *tree, enum sim_node_kind kind)
{
    struct sim_node *const node = calloc(1, sizeof(*node));
    ASSERT(node != NULL);
    node->kind = kind;
    node->next = tree->nodes;
    if (tree->nodes != NULL)
        tree->nodes->previous = node;
    tree->nodes = node;
    return node;
}

void sim_node_release(struct sim_tree *tree, struct sim_node *node)
{
    ASSERT(node->references > 0);
    if (--node->references > 0)
        return;
    ASSERT(node->uses == 0);
    entries_clear(tree, node, SIM_LIVE);
    entries_clear(tree, node, SIM_DURABLE);
    sim_file_drop_changes(node, UINT64_MAX);
    sparse_bytes_destroy(&node->cached);
    sparse_bytes_destroy(&node->durable);
    if (node->previous != NULL)
        node->previous->next = node->next;
    else
        tree->nodes = node->next;
    if (node->next != NULL)
        node->next->previous = node->previous;
    free(node);
}

void sim_tree_change_name(struct sim_tree *tree,
                          struct sim_node *node,
                          struct sim_node *from_directory,
                          const char *from_name,
                          struct sim_node *to_directory,
                          const char *to_name)
{
    const struct sim_name_change *const change =
        name_change_add(tree, node, from_directory, from_name, to_directory, to_name);
    name_change_apply(tree, change, SIM_LIVE);
}

static struct sim_name_change *name_change_add(struct sim_tree *tree,
                                               struct sim_node *node,
                                               struct sim_node *from_directory,
                                               const char *from_name,
                                               struct sim_node *to_directory,
                                               const char *to_name)
{
    struct sim_name_change *const change = calloc(1, sizeof(*change));
    ASSERT(change != NULL);
    change->node = node;
    node->references++;
    if (from_directory != NULL) {
        change->from_directory = from_directory;
        from_directory->references++;
        memcpy(change->from_name, from_name, strlen(from_name) + 1);
    }
    if (to_directory != NULL) {
        change->to_directory = to_directory;
        to_directory->references++;
        memcpy(change->to_name, to_name, strlen(to_name) + 1);
    }
    if (tree->last_name_change != NULL)
        tree->last_name_change->next = change;
    else
        tree->first_name_change = change;
    tree->last_name_change = change;
    return change;
}

/* And those before them that changed the same names, in whatever directory. */
void sim_tree_sync_names(struct sim_tree *tree, struct sim_node *directory)
{
    for (struct sim_name_change *change = tree->first_name_change; change != NULL;
         change = change->next) {
        change->chosen = change->from_directory == directory || change->to_directory == directory;
        if (change->chosen)
            choose_what_leads_to(tree, change);
    }
    sim_tree_keep_chosen_names(tree);
}

/* What is found leads on to others before it. */
static void choose_what_leads_to(struct sim_tree *tree, struct sim_name_change *change)
{
    for (struct sim_name_change *before = tree->first_name_change; before != change;
         before = before->next) {
        if (before->chosen || !sim_name_changes_meet(before, change))
            continue;
        before->chosen = true;
        choose_what_leads_to(tree, before);
    }
}

bool sim_name_changes_meet(const struct sim_name_change *a, const struct sim_name_change *b)
{
    return same_name(a->from_directory, a->from_name, b->from_directory, b->from_name) ||
           same_name(a->from_directory, a->from_name, b->to_directory, b->to_name) ||
           same_name(a->to_directory, a->to_name, b->from_directory, b->from_name) ||
           same_name(a->to_directory, a->to_name, b->to_directory, b->to_name);
}

static bool same_name(const struct sim_node *directory_a,
                      const char *name_a,
                      const struct sim_node *directory_b,
                      const char *name_b)
{
    return directory_a != NULL && directory_a == directory_b && strcmp(name_a, name_b) == 0;
}

void sim_tree_keep_chosen_names(struct sim_tree *tree)
{
    struct sim_name_change **link = &tree->first_name_change;
    tree->last_name_change = NULL;
    while (*link != NULL) {
        struct sim_name_change *const change = *link;
        if (!change->chosen) {
            tree->last_name_change = change;
            link = &change->next;
            continue;
        }
        name_change_apply(tree, change, SIM_DURABLE);
        *link = change->next;
        name_change_free(tree, change);
    }
}

struct sim_change *sim_file_add_change(struct sim_tree *tree,
                                       struct sim_node *file,
                                       enum sim_change_kind kind,
                                       uint64_t offset,
                                       size_t length)
{
    struct sim_change *const change = malloc(sizeof(*change));
    ASSERT(change != NULL);
    *change = (struct sim_change){
        .sequence = ++tree->sequence, .kind = kind, .offset = offset, .length = length};
    if (length > 0) {
        change->data = malloc(sizeof(*change->data) + length);
        ASSERT(change->data != NULL);
        atomic_init(&change->data->references, 1);
    }
    change_append(file, change);
    return change;
}

static void change_append(struct sim_node *file, struct sim_change *change)
{
    change->next = NULL;
    if (file->last_change != NULL)
        file->last_change->next = change;
    else
        file->first_change = change;
    file->last_change = change;
}

static void change_free(struct sim_change *change)
{
    if (change->data != NULL && atomic_fetch_sub(&change->data->references, 1) == 1)
        free(change->data);
    free(change);
}

void sim_change_apply(const struct sim_change *change, struct sparse_bytes *content)
{
    const uint64_t end = change->offset + change->length;
    if (change->kind == SIM_CHANGE_CUT) {
        if (change->offset < content->size_bytes)
            sparse_bytes_set_size(content, change->offset);
        return;
    }
    if (end > content->size_bytes)
        sparse_bytes_set_size(content, end);
    if (!change->lost && change->length > 0)
        sparse_bytes_write(content, change->offset, change->data->bytes, change->length);
}

void sim_file_sync_until(struct sim_node *file, uint64_t sequence)
{
    for (const struct sim_change *change = file->first_change;
         change != NULL && change->sequence <= sequence; change = change->next)
        sim_change_apply(change, &file->durable);
    sim_file_drop_changes(file, sequence);
}

void sim_file_lose_until(struct sim_node *file, uint64_t sequence)
{
    for (struct sim_change *change = file->first_change;
         change != NULL && change->sequence <= sequence; change = change->next)
        change->lost = true;
    file->diverged = true;
}

/* What is dirty stays, as in Linux; what only seems clean shows its true face. */
void sim_file_drop_cache(struct sim_node *file)
{
    if (!file->diverged)
        return;
    sparse_bytes_copy(&file->cached, &file->durable);
    for (const struct sim_change *change = file->first_change; change != NULL;
         change = change->next)
        sim_change_apply(change, &file->cached);
}

uint64_t sim_tree_used_bytes(const struct sim_tree *tree)
{
    uint64_t used_bytes = 0;
    for (const struct sim_node *node = tree->nodes; node != NULL; node = node->next)
        if (node->uses > 0)
            used_bytes += node->cached.size_bytes;
    return used_bytes;
}

static void name_change_apply(struct sim_tree *tree,
                              const struct sim_name_change *change,
                              enum sim_layer layer)
{
    if (change->from_directory != NULL) {
        const struct sim_entry *const entry =
            entries_find(&change->from_directory->entries[layer], change->from_name);
        ASSERT(entry != NULL && entry->node == change->node);
        entries_remove(tree, change->from_directory, layer, change->from_name);
    }
    if (change->to_directory != NULL)
        entries_set(tree, change->to_directory, layer, change->to_name, change->node);
}

static void name_change_free(struct sim_tree *tree, struct sim_name_change *change)
{
    sim_node_release(tree, change->node);
    if (change->from_directory != NULL)
        sim_node_release(tree, change->from_directory);
    if (change->to_directory != NULL)
        sim_node_release(tree, change->to_directory);
    free(change);
}

/* Names are as on disk again. */
void sim_directory_revert(struct sim_tree *tree, struct sim_node *directory)
{
    entries_clear(tree, directory, SIM_LIVE);
    const struct sim_entries *const durable = &directory->entries[SIM_DURABLE];
    for (size_t i = 0; i < durable->count; i++)
        entries_set(tree, directory, SIM_LIVE, durable->items[i].name, durable->items[i].node);
}

void sim_file_drop_changes(struct sim_node *file, uint64_t sequence)
{
    while (file->first_change != NULL && file->first_change->sequence <= sequence) {
        struct sim_change *const change = file->first_change;
        file->first_change = change->next;
        change_free(change);
    }
    if (file->first_change == NULL)
        file->last_change = NULL;
}

static struct sim_entry *entries_find(const struct sim_entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++)
        if (strcmp(entries->items[i].name, name) == 0)
            return &entries->items[i];
    return NULL;
}

/* Adds the name or points it elsewhere. */
static void entries_set(struct sim_tree *tree,
                        struct sim_node *directory,
                        enum sim_layer layer,
                        const char *name,
                        struct sim_node *node)
{
    struct sim_entries *const entries = &directory->entries[layer];
    node->references++;
    if (layer == SIM_LIVE)
        node->uses++;
    entries_remove(tree, directory, layer, name);
    if (entries->count == entries->capacity) {
        const size_t capacity = entries->capacity == 0 ? 8 : 2 * entries->capacity;
        struct sim_entry *const items = realloc(entries->items, capacity * sizeof(*items));
        ASSERT(items != NULL);
        entries->items = items;
        entries->capacity = capacity;
    }
    char *const copy = strdup(name);
    ASSERT(copy != NULL);
    entries->items[entries->count++] = (struct sim_entry){.name = copy, .node = node};
}

static void entries_remove(struct sim_tree *tree,
                           struct sim_node *directory,
                           enum sim_layer layer,
                           const char *name)
{
    struct sim_entries *const entries = &directory->entries[layer];
    struct sim_entry *const entry = entries_find(entries, name);
    if (entry == NULL)
        return;
    const struct sim_entry removed = *entry;
    *entry = entries->items[--entries->count];
    entry_drop(tree, layer, removed);
}

static void entries_clear(struct sim_tree *tree, struct sim_node *directory, enum sim_layer layer)
{
    const struct sim_entries entries = directory->entries[layer];
    directory->entries[layer] = (struct sim_entries){0};
    for (size_t i = 0; i < entries.count; i++)
        entry_drop(tree, layer, entries.items[i]);
    free(entries.items);
}

static void entry_drop(struct sim_tree *tree, enum sim_layer layer, struct sim_entry entry)
{
    free(entry.name);
    if (layer == SIM_LIVE)
        entry.node->uses--;
    sim_node_release(tree, entry.node);
}
