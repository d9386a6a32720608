/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of an S3 server, element by element. Over expat; entities of their own, depth and lengths are bounded. */
#ifndef VARVE_TIER_S3_XML_H
#define VARVE_TIER_S3_XML_H

#include "base/bytes.h"
#include "base/status.h"

enum {
    S3_XML_DEPTH_MAX = 8,
    S3_XML_PATH_BYTES_MAX = 256,
    S3_XML_TEXT_BYTES_MAX = 8192, /* of one element */
};

struct s3_xml_reader {
    /*
     * At the end of each element. path: "ListBucketResult/Contents/Key"; text: all of it without that of elements inside. False
     * ends the reading with what it has set.
     */
    bool (*element)(void *argument, const char *path, const char *text, struct status *status);
    void *argument;
};

/* INTERNAL: it is no XML, or more than the bounds. */
MUST_CHECK bool s3_xml_read(struct bytes document,
                            const struct s3_xml_reader *reader,
                            struct status *status);

/* Appends `text` to what becomes XML, with its special characters escaped. False: it does not fit. */
MUST_CHECK bool s3_xml_escape(const char *text, char *to, size_t capacity, size_t *used);

#endif
