/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_page.h"

#include <stdlib.h>
#include <string.h>

#include "page_files.h"
#include "proto/resource_name.h"
#include "server/http.h"
#include "server/http_cache.h"
#include "server/page_lookup.h"
#include "server/page_state.h"
#include "server/server.h"

enum page_role { PAGE_OPEN, PAGE_STATE, PAGE_LOOKUP };

struct http_page {
    const char *path;
    enum page_role role;
    enum MHD_Result (*answer)(struct http_request *request);
    /* Of files. */
    const char *type, *etag;
    const unsigned char *data;
    size_t length;
};

static enum MHD_Result answer_file(struct http_request *request);
static enum MHD_Result answer_state(struct http_request *request);
static enum MHD_Result answer_lookup(struct http_request *request);
static enum MHD_Result answer_blob(struct http_request *request);

#define FILE_OF(path, type, name)                                                                  \
    {                                                                                              \
        path, PAGE_OPEN, answer_file, type, name##_etag, name, sizeof(name)                        \
    }

static const struct http_page pages[] = {
    FILE_OF("/", "text/html; charset=utf-8", index_html),
    FILE_OF("/page/page.css", "text/css; charset=utf-8", page_css),
    FILE_OF("/page/page.js", "text/javascript; charset=utf-8", page_js),
    FILE_OF("/page/icon.svg", "image/svg+xml", icon_svg),
    {.path = "/page/state.json", .role = PAGE_STATE, .answer = answer_state},
    {.path = "/page/lookup.json", .role = PAGE_LOOKUP, .answer = answer_lookup},
    {.path = "/page/blob", .role = PAGE_LOOKUP, .answer = answer_blob},
};

bool http_page_route(struct http_request *request)
{
    for (size_t i = 0; i < ARRAY_LENGTH(pages); i++) {
        if (strcmp(request->url, pages[i].path) == 0) {
            request->page = &pages[i];
            return true;
        }
    }
    return false;
}

bool http_page_is_open(const struct http_request *request)
{
    return request->page->role == PAGE_OPEN;
}

bool http_page_needs_store(const struct http_request *request)
{
    return request->page->role == PAGE_LOOKUP;
}

/* ---- what is asked for */

/* "" when it is not there. */
static const char *argument(const struct http_request *request, const char *name)
{
    const char *const value =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
    return value != NULL ? value : "";
}

/* *number is as it was when there is none. */
static bool take_number(const struct http_request *request,
                        const char *name,
                        uint64_t *number,
                        struct status *status)
{
    const struct bytes text = bytes_of_string(argument(request, name));
    return text.length == 0 || http_length_parse(text, number) ||
           status_fail(status, STATUS_INVALID_ARGUMENT, "%s is a number", name);
}

/* HASH or HASH/SIZE, whose size does not count. */
static bool take_digest(const char *text, struct digest *digest, struct status *status)
{
    const size_t length = strcspn(text, "/");
    return digest_parse(DIGEST_FUNCTION_SHA256, bytes_of(text, length), 0, digest, status);
}

static bool take_question(struct http_request *request,
                          struct page_question *question,
                          struct status *status)
{
    const char *const kind = argument(request, "as");
    const char *const folder = argument(request, "folder");
    *question = (struct page_question){.digest = request->digest, .instance = request->instance};
    if (kind[0] != '\0' && !page_kind_parse(kind, &question->kind))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "as is one of auto, directory, tree, command, action, data");
    return (folder[0] == '\0' || take_digest(folder, &question->folder, status)) &&
           take_number(request, "offset", &question->offset, status);
}

/* Stores of keys and values, too, whose keys are the hashes of theirs. */
static bool is_served(const struct config *config, struct bytes instance)
{
    for (size_t i = 0; i < config->http_keys.count; i++)
        if (bytes_equal_string(instance, config->http_keys.items[i]))
            return true;
    return config_serves_instance(config, instance);
}

bool http_page_check(struct http_request *request, struct status *status)
{
    struct page_question question;
    if (request->page->role == PAGE_STATE)
        return access_check_somewhere(&request->caller, ROLE_ANY, status);
    ASSERT(request->page->role == PAGE_LOOKUP);
    request->instance = bytes_of_string(argument(request, "instance"));
    if (!instance_name_check(request->instance, status) ||
        !access_check(&request->caller, ROLE_READ, request->instance, status))
        return false;
    if (!is_served(http_server(request)->config, request->instance))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "this server does not serve \"%.*s\"",
                           (int)request->instance.length, (const char *)request->instance.data);
    return take_digest(argument(request, "digest"), &request->digest, status) &&
           take_question(request, &question, status);
}

/* ---- answers */

void http_page_protect(struct MHD_Response *response)
{
    MHD_add_response_header(
        response, "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
}

enum MHD_Result http_page_answer(struct http_request *request)
{
    return request->page->answer(request);
}

void http_page_clear(struct http_request *request)
{
    free(request->json);
    request->json = NULL;
}

static enum MHD_Result answer_file(struct http_request *request)
{
    const struct http_page *const page = request->page;
    const struct bytes known = http_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
    const bool same = bytes_equal_string(known, page->etag);
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        same ? 0 : page->length, (void *)(uintptr_t)page->data, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page->type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, page->etag);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    http_page_protect(response);
    return http_reply(request, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}

/* Takes the text over. */
static enum MHD_Result answer_json(struct http_request *request, char *json, size_t length)
{
    struct MHD_Response *const response =
        MHD_create_response_from_buffer(length, json, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(json);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    http_page_protect(response);
    return http_reply(request, MHD_HTTP_OK, response);
}

static enum MHD_Result answer_state(struct http_request *request)
{
    struct page_state state;
    struct status status = {0};
    char *json;
    size_t length;
    http_page_state(request, &state);
    state.all = access_permits_everywhere(&request->caller, ROLE_READ);
    if (!take_number(request, "after", &state.after, &status) ||
        !page_state_put(&state, &json, &length, &status))
        return http_reply_failure(request, 0, &status);
    return answer_json(request, json, length);
}

static void look_up(struct task *task)
{
    struct http_request *const request = CONTAINER_OF(task, struct http_request, task);
    struct page_question question;
    if (take_question(request, &question, &request->status) &&
        !page_lookup(http_server(request)->durability, &question, &request->json,
                     &request->json_length, &request->status))
        request->json = NULL;
    request->worked = true;
    http_wake(request);
}

/* On a worker, since it reads the disk. False: it is parked. */
static bool looked_up(struct http_request *request)
{
    if (request->worked)
        return true;
    if (!request->working) {
        if (!http_busy(request))
            return !status_fail(&request->status, STATUS_UNAVAILABLE, "the server is stopping");
        request->working = true;
        request->task.run = look_up;
        workers_submit(http_server(request)->workers, &request->task);
    }
    return !http_park(request);
}

static enum MHD_Result answer_lookup(struct http_request *request)
{
    if (!looked_up(request))
        return MHD_YES;
    if (request->json == NULL)
        return http_reply_failure(request, 0, &request->status);
    char *const json = request->json;
    request->json = NULL;
    return answer_json(request, json, request->json_length);
}

/* Of letters that mean nothing to anybody's shell, header or file system. */
static void put_file_name(const struct http_request *request, char to[PAGE_FILE_NAME_BYTES])
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+=@";
    const char *const name = argument(request, "name");
    char hex[DIGEST_HASH_HEX_MAX + 1];
    size_t length = 0;
    for (; name[length] != '\0' && length < PAGE_FILE_NAME_BYTES - 1; length++)
        to[length] = strchr(plain, name[length]) != NULL && (name[length] != '.' || length > 0)
                         ? name[length]
                         : '_';
    to[length] = '\0';
    if (length == 0)
        snprintf(to, PAGE_FILE_NAME_BYTES, "%s", digest_hex(&request->digest, hex));
}

static enum MHD_Result answer_blob(struct http_request *request)
{
    put_file_name(request, request->file_name);
    return http_cache_answer_blob(request);
}
