/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk in memory behind the seam of base/io.h, which fails on demand and loses power on demand.
 *
 *   struct io_sim *sim = io_sim_new();
 *   io_sim_fail(sim, IO_SIM_SYNC, 3, EIO, IO_SIM_ONCE);
 *   ... work with io_sim_io(sim) ...
 *   io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
 *   ... open again, and look ...
 *
 * What it promises is the least that POSIX file systems do, and less than ext4 in practice:
 *   - Bytes and the size of a file are durable once a sync of that file has returned that began
 *     after the write.
 *   - A name is durable (made, renamed, removed) once a sync_directory of its directory has
 *     returned that began after the change. Syncing the file does not help. A rename is atomic.
 *   - Until then each sector of 512 bytes, each size and each name may be on disk or not, in any
 *     combination; only changes of one name keep their order.
 *   - A failed sync loses what was unsynced in that file: reads still show it, until drop_cache; no
 *     later sync writes it; the size grows nevertheless. A crash may or may not have brought
 *     sectors of it to the disk before.
 *
 * Paths: "/" is there from the start; relative paths begin there too; no "..", no links.
 * Every function is for any thread.
 */
#ifndef VARVE_TESTS_SIM_IO_SIM_H
#define VARVE_TESTS_SIM_IO_SIM_H

#include "base/io.h"

struct io_sim;

/* The operations of struct io_ops, and any of them. */
enum io_sim_operation {
    IO_SIM_OPEN,
    IO_SIM_CLOSE,
    IO_SIM_PREAD,
    IO_SIM_PWRITEV,
    IO_SIM_SYNC,
    IO_SIM_ALLOCATE,
    IO_SIM_TRUNCATE,
    IO_SIM_DROP_CACHE,
    IO_SIM_SIZE,
    IO_SIM_RENAME,
    IO_SIM_UNLINK,
    IO_SIM_MAKE_DIRECTORY,
    IO_SIM_SYNC_DIRECTORY,
    IO_SIM_LIST,
    IO_SIM_SPACE,
    IO_SIM_LOCK,
    IO_SIM_OTHER, /* io_sim_other() */
    IO_SIM_ANY,
};

struct io_sim *io_sim_new(void);
void io_sim_free(struct io_sim *sim); /* open descriptors are fine */
struct io *io_sim_io(struct io_sim *sim);

/*
 * A copy of the machine as it is, without its process: no descriptor is open, no lock held, nothing
 * ordered; what is unsynced is unsynced in the copy too; limits are the same. Cheap: what does not
 * change is shared. Freed with io_sim_free().
 */
struct io_sim *io_sim_copy(struct io_sim *sim);

/*
 * Hands out such a copy just before the nth operation from now does anything (1 is the next; 0
 * takes the order back): the machine as a crash at that moment finds it. `copied` owns the copy,
 * and may not call the original. One order at a time.
 */
void io_sim_copy_at(struct io_sim *sim,
                    uint64_t nth,
                    void (*copied)(void *argument, struct io_sim *copy),
                    void *argument);

enum io_sim_repeat { IO_SIM_ONCE, IO_SIM_FOREVER };

/*
 * Lets the nth operation of this kind from now (1 is the next) fail with error_number, and all
 * later ones too if FOREVER. One such order a kind and one for ANY; a new one replaces the old one.
 * A failed operation does nothing, but a close closes and a sync loses (see above).
 */
void io_sim_fail(struct io_sim *sim,
                 enum io_sim_operation operation,
                 uint64_t nth,
                 int error_number,
                 enum io_sim_repeat repeat);
void io_sim_fail_nothing(struct io_sim *sim); /* takes back all orders */

/*
 * How many operations failed by order, ever: 0 ends a loop over n. Interruptions and the power cut
 * do not count.
 */
uint64_t io_sim_failures(struct io_sim *sim);

/*
 * From the nth operation on, counted from now, nothing happens any more and all fail with EIO: the
 * moment of a power cut, as the program in it sees it. Unlike by io_sim_fail() nothing is lost.
 * io_sim_crash() must follow, or io_sim_kill(): then only the process has stopped there.
 */
void io_sim_cut_power_at(struct io_sim *sim, uint64_t nth);
bool io_sim_has_power(struct io_sim *sim);

/*
 * Counts an operation of somebody else on the same machine, who fails and loses power with it: 0,
 * or -errno as ordered. For doubles of what does its own I/O.
 */
int io_sim_other(struct io_sim *sim);

/* pread and pwritev carry at most so many bytes each; 0: no limit, as at the start. */
void io_sim_set_transfer_max(struct io_sim *sim, size_t bytes);

/*
 * Every nth (>= 2) operation of those that may be interrupted gives EINTR and does nothing; 0:
 * none, as at the start.
 */
void io_sim_set_interrupt_every(struct io_sim *sim, uint64_t nth);

/*
 * Sizes of all files together; where they would pass it, allocate gives ENOSPC and pwritev is
 * short, then gives ENOSPC. May go below what is in use. 0: no limit, as at the start (io_space
 * says 1 TiB).
 */
void io_sim_set_capacity(struct io_sim *sim, uint64_t bytes);

/*
 * A sync takes this long, in real time; what is written meanwhile it does not make durable. 0 at
 * the start.
 */
void io_sim_set_sync_delay(struct io_sim *sim, int64_t duration_ns);

/* Operations of this kind so far, those that failed included. */
uint64_t io_sim_count(struct io_sim *sim, enum io_sim_operation operation);

/*
 * Turns bits of one synced byte over, in the cache and on the disk: a medium that forgets. The file
 * must be there.
 */
void io_sim_corrupt(struct io_sim *sim, const char *path, uint64_t offset, uint8_t bits);

enum io_sim_crash_mode {
    IO_SIM_CRASH_NOTHING,    /* nothing survives that was not synced */
    IO_SIM_CRASH_EVERYTHING, /* everything does, but for what a failed sync lost */
    IO_SIM_CRASH_RANDOM,     /* the seed decides about every sector, size and name */
};

/*
 * A power cut and the boot after it. All descriptors are closed, for good: their numbers never come
 * back, so that a thread of the old life only gets EBADF. Locks are free, orders to fail and a
 * power cut are taken back; limits stay. The same operations and the same seed give the same disk.
 */
void io_sim_crash(struct io_sim *sim, uint64_t seed, enum io_sim_crash_mode mode);

/*
 * Only the process is killed: descriptors, locks and orders go as above, the page cache stays, and
 * stays unsynced.
 */
void io_sim_kill(struct io_sim *sim);

#endif
