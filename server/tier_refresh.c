/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_refresh.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/blob_table.h"

enum { SECONDS_OF_MINUTE = 60 };

static bool is_to_go(const struct tier_refresh *refresh, const struct feed_entry *entry);
static const char *note_name(const struct tier_refresh *refresh);
static int64_t now_s(const struct tier_refresh *refresh);
static void begin_period(struct tier_refresh *refresh, int64_t at_s);

void tier_refresh_init(struct tier_refresh *refresh,
                       struct store *store,
                       struct tier_known *known,
                       enum lane lane)
{
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    *refresh = (struct tier_refresh){.store = store,
                                     .known = known,
                                     .lane = lane,
                                     .period_s = tier_known_refresh_after_s(known)};
    if (refresh->period_s == 0)
        return;
    tier_known_note(known, note_name(refresh), text);
    const int64_t began_s = strtoll(text, NULL, 10);
    if (began_s > 0 && began_s <= now_s(refresh))
        refresh->due_s = began_s + refresh->period_s;
    else
        begin_period(refresh, now_s(refresh));
}

static void begin_period(struct tier_refresh *refresh, int64_t at_s)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, at_s);
    tier_known_set_note(refresh->known, note_name(refresh), text);
    refresh->due_s = at_s + refresh->period_s;
}

bool tier_refresh_wants(struct tier_refresh *refresh, uint64_t until_seq, struct feed_query *query)
{
    if (refresh->period_s == 0)
        return false;
    if (!refresh->under_way && now_s(refresh) >= refresh->due_s) {
        refresh->under_way = until_seq > 0;
        refresh->after_seq = 0;
        refresh->until_seq = until_seq;
        if (!refresh->under_way)
            begin_period(refresh, now_s(refresh));
    }
    if (!refresh->under_way)
        return false;
    query->lane = refresh->lane;
    query->after_seq = refresh->after_seq;
    query->through_seq = refresh->until_seq;
    query->kinds = FEED_ALL & ~FEED_KIND(RECORD_FORGET);
    return true;
}

void tier_refresh_choose(struct tier_refresh *refresh, struct feed_batch *batch)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (is_to_go(refresh, &batch->entries[i]))
            batch->entries[kept++] = batch->entries[i];
    }
    batch->count = kept;
}

static bool is_to_go(const struct tier_refresh *refresh, const struct feed_entry *entry)
{
    struct blob_table *const table = refresh->store->table;
    const bool action = entry->kind == RECORD_ACTION;
    const struct blob_key key = action
                                    ? blob_table_action_key(table, &entry->digest, entry->instance)
                                    : blob_table_blob_key(table, &entry->digest);
    struct blob_use use;
    if (!blob_table_look(table, key, &use) || !use.touched ||
        (int64_t)use.idle_minutes * SECONDS_OF_MINUTE > refresh->period_s)
        return false;
    /* Of an action result it is not known how old it is there: that is looked at. */
    return action || !tier_known_is_fresh(refresh->known, &entry->digest);
}

void tier_refresh_move_on(struct tier_refresh *refresh, const struct feed_batch *batch)
{
    refresh->after_seq = batch != NULL ? batch->next_after_seq : 0;
    if (batch == NULL || (batch->more && refresh->after_seq < refresh->until_seq))
        return;
    refresh->under_way = false;
    begin_period(refresh, now_s(refresh));
}

static const char *note_name(const struct tier_refresh *refresh)
{
    return refresh->lane == LANE_SMALL ? "refreshed-small" : "refreshed-large";
}

static int64_t now_s(const struct tier_refresh *refresh)
{
    return clock_wall_ns(refresh->store->clock) / NS_PER_S;
}
