/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads of one and the same digest, so that of many clients that send the same blob one writes it. The first leads; those who
 * come later follow, which is to wait, as long as it is worth waiting for the leader. Those who do not wait have their chunks in
 * common. Knows members and times; no bytes, no locks: the upload table calls it under its own.
 *
 *   From       To         On                                              Made by
 *   (none)     LEADER     nobody leads                                    upload_group_join()
 *   (none)     FOLLOWER   somebody leads                                  upload_group_join()
 *   (none)     ALONE      somebody leads, but too many follow already     upload_group_join()
 *   FOLLOWER   LEADER     the leader left without the blob, or is slow    upload_group_leave(), upload_groups_step()
 *   FOLLOWER   ALONE      the blob is there, or too many leaders failed   upload_group_leave(), upload_groups_step()
 *   LEADER     ALONE      it is too slow to be waited for                 upload_groups_step()
 *
 * Whoever is no FOLLOWER goes on by itself.
 */
#ifndef VARVE_SERVER_UPLOAD_GROUP_H
#define VARVE_SERVER_UPLOAD_GROUP_H

#include "base/clock.h"
#include "base/digest.h"
#include "base/status.h"

struct chunk_share;
struct upload_group;
struct upload_groups;

enum upload_role { UPLOAD_ROLE_NONE, UPLOAD_ROLE_LEADER, UPLOAD_ROLE_FOLLOWER, UPLOAD_ROLE_ALONE };

/* Memory of the member, zeroed at first; the group's but for `released`. */
struct upload_member {
    /* Called when a FOLLOWER has become something else. */
    void (*released)(struct upload_member *member);
    struct upload_group *group;
    enum upload_role role;
    struct upload_member *next, *previous; /* among the followers */
};

/*
 * How often a leader is judged, and by what. It is waited for while, since the last time, it took bytes at 5 MiB/s, or so many that
 * at this pace it will have ended within half a minute. Each time it is not, the next follower leads, and
 * of the others more and more are released: 0, 1, 3, 7, ...
 */
#define UPLOAD_GROUP_VERDICT_NS NS_PER_S
#define UPLOAD_GROUP_PACE_BYTES (5 * MIB)
enum { UPLOAD_GROUP_PATIENCE = 30 };
/*
 * Followers of all groups together. What their clients send meanwhile is held by gRPC, up to the window of each stream, and
 * bounded by gRPC's memory; whoever does not follow has all of it taken in and hashed, which costs more.
 */
enum { UPLOAD_GROUP_FOLLOWERS_MAX = 1024 };

MUST_CHECK bool upload_groups_new(struct upload_groups **groups, struct status *status);
void upload_groups_free(struct upload_groups *groups); /* asserts that nobody is in a group */

/* bucket_hash: any well-mixed, secret function of the digest. RESOURCE_EXHAUSTED when memory is used up. */
MUST_CHECK bool upload_group_join(struct upload_groups *groups,
                                  const struct digest *digest,
                                  uint64_t bucket_hash,
                                  struct upload_member *member,
                                  int64_t now_ns,
                                  struct status *status);

/* What the members have in common: `offered`, of which it takes a reference, if there was nothing yet. Borrowed. */
struct chunk_share *upload_group_share(struct upload_member *member, struct chunk_share *offered);

/* `to`, which is in no group, takes the place and the role of `from`, which is then in none. */
void upload_group_replace(struct upload_member *from, struct upload_member *to);

/* How far this member has come. */
void upload_group_moved(struct upload_member *member, uint64_t held_bytes);
/* It has all bytes and only waits for the disk: it is waited for without a verdict. */
void upload_group_committing(struct upload_member *member);

/* stored: the blob is there, everybody is released. Does nothing for who is in no group. */
void upload_group_leave(struct upload_groups *groups,
                        struct upload_member *member,
                        bool stored,
                        int64_t now_ns);

/* Judges leaders with followers. */
void upload_groups_step(struct upload_groups *groups, int64_t now_ns);

#endif
