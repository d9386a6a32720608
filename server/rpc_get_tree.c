/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ContentAddressableStorage.GetTree: the pages of server/tree_pages.h as a stream. Each page is
 * made when the one before has left.
 */
#include <stdlib.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "server/call_repair.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/tree_pages.h"
#include "server/walks.h"

/* What one turn may add: a page, the directory that is read, and what is met in it. */
enum { TURN_BYTES = 12 << 20 };

struct state {
    struct call *call; /* borrowed */
    struct walk walk;
    struct tree_pages pages;
    struct call_repair repair;
    bool last_sent;
};

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status);
static void go_on(struct call *call, void *state);
static void repaired(struct call *call, void *state);
static void wake_walk(struct walk *walk);
static void send_page(struct call *call, struct state *state);

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct state *const tree = state;
    struct status status = {0};
    tree->call = call;
    tree->walk.wake = wake_walk;
    if (start(call, tree, message, &status)) {
        tree->pages.asks = call_repair_is_possible(call);
        go_on(call, tree);
    } else {
        call_fail(call, &status);
    }
}

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status)
{
    const Build__Bazel__Remote__Execution__V2__GetTreeRequest *const request =
        (const void *)call_unpack(
            call, message, &build__bazel__remote__execution__v2__get_tree_request__descriptor,
            status);
    if (request == NULL ||
        !call_check_instance(call, bytes_of_string(request->instance_name), status))
        return false;
    if (request->root_digest == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "GetTreeRequest: root_digest is not set");
    struct digest root;
    if (!digest_parse((enum digest_function)request->digest_function,
                      bytes_of_string(request->root_digest->hash), request->root_digest->size_bytes,
                      &root, status)) {
        status_prefix(status, "root_digest");
        return false;
    }
    return tree_pages_start(&state->pages, call_server(call)->durability, call_arena(call), &root,
                            request->page_size, bytes_of_string(request->page_token), status);
}

static void go_on(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    struct status status = {0};
    enum tree_pages_state next;
    if (call_cancelled(call)) {
        status_fail(&status, STATUS_CANCELLED, "the client is gone");
        call_fail(call, &status);
        return;
    }
    if (!walk_hold(call_server(call)->walks, &state->walk,
                   call_arena(call)->used_bytes + TURN_BYTES)) {
        call_park(call, go_on);
        return;
    }
    if (!tree_pages_next(&state->pages, &next, &status)) {
        call_fail(call, &status);
        return;
    }
    if (next == TREE_PAGES_ABSENT &&
        call_repair_start(&state->repair, call, &state->pages.absent, 1)) {
        call_park(call, repaired);
        return;
    }
    if (next == TREE_PAGES_UNFINISHED || next == TREE_PAGES_ABSENT) {
        call_resume(call, go_on); /* behind others that want a worker */
        return;
    }
    state->last_sent = next == TREE_PAGES_LAST;
    send_page(call, state);
}

static void wake_walk(struct walk *walk)
{
    (void)call_wake(CONTAINER_OF(walk, struct state, walk)->call);
}

static void repaired(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    if (call_repair_over(&state->repair))
        go_on(call, state_memory);
    else
        call_park(call, repaired);
}

/* The client may be slow: only what the next page needs is kept meanwhile. */
static void send_page(struct call *call, struct state *state)
{
    size_t length;
    whole_blob_free(&state->pages.blob);
    uint8_t *const page = byte_builder_release(&state->pages.page, &length);
    grpc_slice slice = grpc_empty_slice();
    if (length > 0)
        slice = grpc_slice_new(page, length, free);
    else
        free(page);
    walk_keep(&state->walk, call_arena(call)->used_bytes); /* what is sent is counted by others */
    call_send(call, &slice, 1);
}

static void on_sent(struct call *call, void *state_memory)
{
    const struct state *const state = state_memory;
    if (state->last_sent)
        call_finish(call);
    else
        go_on(call, state_memory);
}

static void on_free(struct call *call, void *state_memory)
{
    (void)call;
    struct state *const state = state_memory;
    call_repair_end(&state->repair);
    tree_pages_end(&state->pages);
    walk_end(&state->walk);
}

const struct method rpc_get_tree = {
    .path = "/build.bazel.remote.execution.v2.ContentAddressableStorage/GetTree",
    .kind = METHOD_SERVER_STREAM,
    .role = ROLE_READ,
    .has_instance = true,
    .state_bytes = sizeof(struct state),
    .on_message = on_message,
    .on_sent = on_sent,
    .on_free = on_free,
};
