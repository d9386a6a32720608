/* SPDX-License-Identifier: Apache-2.0 */
/* The generated code with names that leave room for the rest of a line. */
#ifndef VARVE_TESTS_SUPPORT_REAPI_NAMES_H
#define VARVE_TESTS_SUPPORT_REAPI_NAMES_H

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "google/bytestream/bytestream.pb-c.h"

/* The struct of a message. */
#define REAPI(message) Build__Bazel__Remote__Execution__V2__##message

/* What protobuf-c knows of a message, an enum or a service, by the name in its symbols. */
#define REAPI_DESCRIPTOR(name) build__bazel__remote__execution__v2__##name##__descriptor

/* An empty message, to be given to protobuf_c_message_init(). */
#define REAPI_INIT(name, message) build__bazel__remote__execution__v2__##name##__init(message)

#endif
