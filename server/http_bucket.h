/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cache over HTTP is asked for and is not here is asked of the bucket, as over gRPC (server/tier_fetch.h): a blob by its hash alone, since a path has no
 * size; a value, and then all that it names. Peers are not asked: they bring what they have by themselves.
 *
 * In a request's callbacks; a request that waits is parked, and called again.
 */
#ifndef VARVE_SERVER_HTTP_BUCKET_H
#define VARVE_SERVER_HTTP_BUCKET_H

#include "server/http_request.h"

enum http_bucket {
    HTTP_BUCKET_WAITS,     /* parked */
    HTTP_BUCKET_FETCHED,   /* a blob is here now; a value is in request->at_bucket.result */
    HTTP_BUCKET_NOT_THERE, /* or there is no bucket that is read */
    HTTP_BUCKET_UNAVAILABLE,
};

/* size_bytes below 0: it is not known. Called again after WAITS with the same. */
enum http_bucket http_bucket_get_blob(struct http_request *request, const struct digest *digest);
/* The value of request->digest. */
enum http_bucket http_bucket_get_value(struct http_request *request);

/* Of a request that ends: what was got and not taken. */
void http_bucket_clear(struct http_request *request);

#endif
