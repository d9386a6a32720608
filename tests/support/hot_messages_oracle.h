/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the decoders of proto/hot_messages.h with protobuf-c's. Where both accept a message, what
 * they say of it is asserted to be the same. A Digest that comes in several fields is compared with
 * what protobuf-c reads from all of them put one behind the other: protobuf-c 1.4 does not merge
 * numbers of proto3.
 */
#ifndef VARVE_TESTS_SUPPORT_HOT_MESSAGES_ORACLE_H
#define VARVE_TESTS_SUPPORT_HOT_MESSAGES_ORACLE_H

#include "base/bytes.h"

enum hot_message {
    HOT_WRITE_REQUEST,
    HOT_BATCH_UPDATE,
    HOT_FIND_MISSING,
    HOT_BATCH_READ,
    HOT_UPDATE_ACTION_RESULT,
};
enum { HOT_MESSAGES = HOT_UPDATE_ACTION_RESULT + 1 };

struct hot_verdict {
    bool ours;   /* our decoder accepts the message */
    bool theirs; /* protobuf-c accepts it */
};

/* parts: the bytes of flat, cut in any way. */
struct hot_verdict hot_messages_compare(enum hot_message kind,
                                        struct bytes flat,
                                        struct bytes_list parts);

#endif
