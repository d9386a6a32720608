/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_bucket.h"

#include <stdlib.h>

#include "server/server.h"
#include "server/tier.h"

static enum http_bucket ask(struct http_request *request, const struct tier_want *what);
static void answered(struct tier_want *want);

enum http_bucket http_bucket_get_blob(struct http_request *request, const struct digest *digest)
{
    const struct tier_want what = {
        .digest = *digest, .any_size = digest->size_bytes < 0, .done = answered};
    return ask(request, &what);
}

enum http_bucket http_bucket_get_value(struct http_request *request)
{
    const struct tier_want what = {
        .digest = request->digest, .action = true, .instance = request->instance, .done = answered};
    return ask(request, &what);
}

static enum http_bucket ask(struct http_request *request, const struct tier_want *what)
{
    struct tier_fetch *const reader = tier_reader(http_server(request)->tier);
    if (reader == NULL)
        return HTTP_BUCKET_NOT_THERE;
    if (request->bucket == HTTP_BUCKET_IDLE) {
        if (!http_busy(request))
            return HTTP_BUCKET_UNAVAILABLE;
        http_bucket_clear(request);
        request->at_bucket = *what;
        request->bucket = HTTP_BUCKET_ASKED;
        tier_fetch_ask(reader, &request->at_bucket);
        if (http_park(request))
            return HTTP_BUCKET_WAITS;
    }
    ASSERT(request->bucket == HTTP_BUCKET_ANSWERED); /* else it would not be called */
    request->bucket = HTTP_BUCKET_IDLE;
    switch (request->at_bucket.outcome) {
    case TIER_FETCHED:
        return HTTP_BUCKET_FETCHED;
    case TIER_UNAVAILABLE:
        return HTTP_BUCKET_UNAVAILABLE;
    case TIER_NOT_THERE:
        break;
    }
    return HTTP_BUCKET_NOT_THERE;
}

static void answered(struct tier_want *want)
{
    struct http_request *const request = CONTAINER_OF(want, struct http_request, at_bucket);
    request->bucket = HTTP_BUCKET_ANSWERED;
    http_wake(request);
}

void http_bucket_clear(struct http_request *request)
{
    free(request->at_bucket.result);
    request->at_bucket.result = NULL;
}
