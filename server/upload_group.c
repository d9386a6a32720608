/* SPDX-License-Identifier: Apache-2.0 */
#include "server/upload_group.h"

#include <errno.h>
#include <stdlib.h>

#include "store/chunk_share.h"

enum { BUCKETS = 1024 };

struct upload_group {
    struct upload_groups *groups; /* borrowed */
    struct digest digest;
    struct upload_group *chain;           /* owned; the next one of the bucket */
    struct upload_group *next, *previous; /* among all groups */
    struct upload_group **bucket;
    size_t members;
    struct chunk_share *share; /* shared; NULL until a member brings one */

    struct upload_member *leader; /* borrowed; NULL: nobody leads */
    uint64_t leader_bytes;
    bool leader_commits;
    uint64_t verdict_bytes; /* leader_bytes at the last verdict */
    int64_t verdict_ns;     /* when that was */

    struct upload_member *first, *last; /* borrowed; the followers in order of arrival */
    unsigned release_next; /* followers that the next verdict against a leader releases */
};

struct upload_groups {
    struct upload_group *buckets[BUCKETS]; /* owned */
    struct upload_group *first;            /* all groups */
    size_t followers;                      /* of all groups */
};

static struct upload_group *find(struct upload_groups *groups,
                                 const struct digest *digest,
                                 uint64_t bucket_hash);
static struct upload_group *make(struct upload_groups *groups,
                                 const struct digest *digest,
                                 uint64_t bucket_hash);
static void drop(struct upload_groups *groups, struct upload_group *group);
static void lead(struct upload_group *group, struct upload_member *member, int64_t now_ns);
static bool worth_waiting(struct upload_group *group);
static void judge(struct upload_group *group, int64_t now_ns);
static void promote_first(struct upload_group *group, int64_t now_ns);
static void release_first(struct upload_group *group);
static void follower_add(struct upload_group *group, struct upload_member *member);
static void follower_remove(struct upload_group *group, struct upload_member *member);

bool upload_groups_new(struct upload_groups **groups, struct status *status)
{
    *groups = calloc(1, sizeof(**groups));
    return *groups || status_fail_errno(status, ENOMEM, "table of upload groups");
}

void upload_groups_free(struct upload_groups *groups)
{
    if (!groups)
        return;
    ASSERT(!groups->first);
    free(groups);
}

bool upload_group_join(struct upload_groups *groups,
                       const struct digest *digest,
                       uint64_t bucket_hash,
                       struct upload_member *member,
                       int64_t now_ns,
                       struct status *status)
{
    ASSERT(member->role == UPLOAD_ROLE_NONE);

    struct upload_group *group = find(groups, digest, bucket_hash);
    if (!group)
        group = make(groups, digest, bucket_hash);
    if (!group)
        return status_fail_errno(status, ENOMEM, "upload group");
    group->members++;
    member->group = group;
    if (!group->leader)
        lead(group, member, now_ns);
    else if (groups->followers < UPLOAD_GROUP_FOLLOWERS_MAX)
        follower_add(group, member);
    else
        member->role = UPLOAD_ROLE_ALONE;
    return true;
}

static struct upload_group *find(struct upload_groups *groups,
                                 const struct digest *digest,
                                 uint64_t bucket_hash)
{
    struct upload_group *group = groups->buckets[bucket_hash % BUCKETS];
    while (group && !digest_equal(&group->digest, digest))
        group = group->chain;
    return group;
}

static struct upload_group *make(struct upload_groups *groups,
                                 const struct digest *digest,
                                 uint64_t bucket_hash)
{
    struct upload_group *const group = calloc(1, sizeof(*group));
    if (!group)
        return NULL;
    group->digest = *digest;
    group->groups = groups;
    group->bucket = &groups->buckets[bucket_hash % BUCKETS];
    group->chain = *group->bucket;
    *group->bucket = group;
    group->next = groups->first;
    if (group->next)
        group->next->previous = group;
    groups->first = group;
    return group;
}

struct chunk_share *upload_group_share(struct upload_member *member, struct chunk_share *offered)
{
    struct upload_group *const group = member->group;
    if (!group->share && offered) {
        chunk_share_ref(offered);
        group->share = offered;
    }
    return group->share;
}

void upload_group_replace(struct upload_member *from, struct upload_member *to)
{
    ASSERT(to->role == UPLOAD_ROLE_NONE);
    struct upload_group *const group = from->group;
    if (!group)
        return;
    to->group = group;
    if (from->role == UPLOAD_ROLE_FOLLOWER) {
        follower_remove(group, from);
        follower_add(group, to);
    } else {
        to->role = from->role;
    }
    if (group->leader == from)
        group->leader = to;
    from->group = NULL;
    from->role = UPLOAD_ROLE_NONE;
}

void upload_group_moved(struct upload_member *member, uint64_t held_bytes)
{
    if (member->role == UPLOAD_ROLE_LEADER)
        member->group->leader_bytes = held_bytes;
}

void upload_group_committing(struct upload_member *member)
{
    if (member->role == UPLOAD_ROLE_LEADER)
        member->group->leader_commits = true;
}

void upload_group_leave(struct upload_groups *groups,
                        struct upload_member *member,
                        bool stored,
                        int64_t now_ns)
{
    struct upload_group *const group = member->group;
    if (!group)
        return;
    if (member->role == UPLOAD_ROLE_FOLLOWER)
        follower_remove(group, member);
    const bool led = group->leader == member;
    if (led)
        group->leader = NULL;
    member->group = NULL;
    member->role = UPLOAD_ROLE_NONE;
    group->members--;

    if (stored)
        while (group->first)
            release_first(group);
    else if (led && group->first)
        promote_first(group, now_ns);
    if (group->members == 0)
        drop(groups, group);
}

static void drop(struct upload_groups *groups, struct upload_group *group)
{
    struct upload_group **link = group->bucket;
    while (*link != group)
        link = &(*link)->chain;
    *link = group->chain;
    if (group->previous)
        group->previous->next = group->next;
    else
        groups->first = group->next;
    if (group->next)
        group->next->previous = group->previous;
    chunk_share_unref(group->share);
    free(group);
}

void upload_groups_step(struct upload_groups *groups, int64_t now_ns)
{
    for (struct upload_group *group = groups->first; group; group = group->next)
        if (group->leader && now_ns - group->verdict_ns >= UPLOAD_GROUP_VERDICT_NS)
            judge(group, now_ns);
}

static void judge(struct upload_group *group, int64_t now_ns)
{
    const bool worth = worth_waiting(group);
    group->verdict_ns = now_ns;
    group->verdict_bytes = group->leader_bytes;
    if (worth || !group->first)
        return;
    group->leader->role = UPLOAD_ROLE_ALONE;
    promote_first(group, now_ns);
    for (unsigned i = 0; i < group->release_next && group->first; i++)
        release_first(group);
    group->release_next = 2 * group->release_next + 1;
}

static bool worth_waiting(struct upload_group *group)
{
    if (group->leader_commits)
        return true;
    /* What a leader holds goes back when it starts again. */
    if (group->leader_bytes <= group->verdict_bytes)
        return false;
    const uint64_t moved_bytes = group->leader_bytes - group->verdict_bytes;
    const uint64_t left_bytes = (uint64_t)group->digest.size_bytes - group->leader_bytes;
    return moved_bytes >= UPLOAD_GROUP_PACE_BYTES ||
           left_bytes / UPLOAD_GROUP_PATIENCE <= moved_bytes;
}

static void lead(struct upload_group *group, struct upload_member *member, int64_t now_ns)
{
    member->role = UPLOAD_ROLE_LEADER;
    group->leader = member;
    group->leader_bytes = 0;
    group->leader_commits = false;
    group->verdict_bytes = 0;
    group->verdict_ns = now_ns;
}

static void promote_first(struct upload_group *group, int64_t now_ns)
{
    struct upload_member *const member = group->first;
    follower_remove(group, member);
    lead(group, member, now_ns);
    member->released(member);
}

static void release_first(struct upload_group *group)
{
    struct upload_member *const member = group->first;
    follower_remove(group, member);
    member->role = UPLOAD_ROLE_ALONE;
    member->released(member);
}

static void follower_add(struct upload_group *group, struct upload_member *member)
{
    member->role = UPLOAD_ROLE_FOLLOWER;
    member->next = NULL;
    member->previous = group->last;
    if (group->last)
        group->last->next = member;
    else
        group->first = member;
    group->last = member;
    group->groups->followers++;
}

static void follower_remove(struct upload_group *group, struct upload_member *member)
{
    if (member->previous)
        member->previous->next = member->next;
    else
        group->first = member->next;
    if (member->next)
        member->next->previous = member->previous;
    else
        group->last = member->previous;
    member->next = NULL;
    member->previous = NULL;
    member->role = UPLOAD_ROLE_ALONE;
    group->groups->followers--;
}
