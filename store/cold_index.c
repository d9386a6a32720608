/* SPDX-License-Identifier: Apache-2.0 */
#include "store/cold_index.h"

void cold_index_init(struct cold_index *cold)
{
    *cold = (struct cold_index){0};
    lock_init(&cold->lock, LOCK_RANK_LEAF);
    condition_init(&cold->changed);
}

void cold_index_destroy(struct cold_index *cold)
{
    ASSERT(cold->index == NULL && cold->asking == 0);
    condition_destroy(&cold->changed);
    lock_destroy(&cold->lock);
}

void cold_index_set(struct cold_index *cold, struct index *index)
{
    lock_acquire(&cold->lock);
    cold->index = NULL;
    while (cold->asking > 0)
        condition_wait(&cold->changed, &cold->lock);
    cold->index = index;
    lock_release(&cold->lock);
}

void cold_index_promise(struct cold_index *cold, bool promised)
{
    lock_acquire(&cold->lock);
    cold->promised = promised;
    condition_broadcast(&cold->changed);
    lock_release(&cold->lock);
}

enum cold_answer cold_index_find(struct cold_index *cold,
                                 const struct index_entry *key,
                                 struct index_entry *found)
{
    struct status status;
    bool is_there = false;
    lock_acquire(&cold->lock);
    struct index *index = cold->index;
    if (index != NULL)
        cold->asking++;
    lock_release(&cold->lock);
    if (index == NULL)
        return COLD_UNKNOWN;
    const bool ok = index_get(index, key, found, &is_there, &status);
    lock_acquire(&cold->lock);
    cold->asking--;
    condition_broadcast(&cold->changed);
    lock_release(&cold->lock);
    if (!ok)
        return COLD_UNKNOWN;
    return is_there ? COLD_FOUND : COLD_ABSENT;
}

bool cold_index_await(struct cold_index *cold)
{
    lock_acquire(&cold->lock);
    const bool promised = cold->promised;
    while (cold->promised)
        condition_wait(&cold->changed, &cold->lock);
    lock_release(&cold->lock);
    return promised;
}
