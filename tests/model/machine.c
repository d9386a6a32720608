/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/machine.h"

void machine_init(struct machine *machine)
{
    machine->disk = io_sim_new();
    machine->index = index_sim_new(machine->disk);
}

void machine_destroy(struct machine *machine)
{
    index_sim_free(machine->index);
    io_sim_free(machine->disk);
    *machine = (struct machine){0};
}

void machine_copy(struct machine *to, const struct machine *from)
{
    to->disk = io_sim_copy(from->disk);
    to->index = index_sim_copy(from->index, to->disk);
}

void machine_end(struct machine *machine, enum machine_end end, uint64_t seed)
{
    static const enum io_sim_crash_mode modes[MACHINE_END_COUNT] = {
        [MACHINE_LOST_ALL_UNSYNCED] = IO_SIM_CRASH_NOTHING,
        [MACHINE_LOST_NOTHING] = IO_SIM_CRASH_EVERYTHING,
        [MACHINE_LOST_AT_RANDOM] = IO_SIM_CRASH_RANDOM,
    };
    if (end == MACHINE_KILLED)
        io_sim_kill(machine->disk);
    else
        io_sim_crash(machine->disk, seed, modes[end]);
    index_sim_crash(machine->index, seed);
}
