/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stored ActionResult as it is sent: byte for byte what the client stored, with what was asked
 * for put inline and with execution_metadata there in any case, because some clients cannot read a
 * result without it (docs/protocol.md, decision 17).
 */
#ifndef VARVE_SERVER_ACTION_ANSWER_H
#define VARVE_SERVER_ACTION_ANSWER_H

#include "base/arena.h"
#include "durability/durability.h"
#include "server/byte_builder.h"

struct action_inline {
    bool stdout_raw;
    bool stderr_raw;
    struct bytes *paths; /* of output files; borrowed; sorted by action_answer_inline() */
    size_t path_count;
};

static inline bool action_inline_wants(const struct action_inline *wanted)
{
    return wanted->stdout_raw || wanted->stderr_raw || wanted->path_count > 0;
}

/*
 * What has to stand behind an encoded result so that it has execution_metadata: nothing, or the
 * empty message. Static storage.
 */
struct bytes action_answer_metadata(struct bytes result);

/*
 * Appends the result with everything inlined that fits LIMIT_INLINE_BYTES and a response: stdout,
 * stderr, then files in the order of the result. What is inline already stays as it is.
 * action_answer_metadata() is not in yet.
 *
 * result: valid by action_result_check(). *gone_count 1 and *gone: this blob turned out not to be
 * there; the answer is then not to be used.
 * Errors: UNAVAILABLE when the disk fails to read; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool action_answer_inline(struct durability *durability,
                                     struct arena *arena,
                                     enum digest_function function,
                                     struct bytes result,
                                     struct action_inline *wanted,
                                     struct byte_builder *answer,
                                     struct digest *gone,
                                     size_t *gone_count,
                                     struct status *status);

#endif
