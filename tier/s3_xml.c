/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/s3_xml.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    const struct s3_xml_reader *reader;
    XML_Parser parser;
    struct status *status;
    bool failed;
    size_t depth;
    size_t path_lengths[S3_XML_DEPTH_MAX]; /* of path before each element */
    char path[S3_XML_PATH_BYTES_MAX];
    size_t path_length;
    char text[S3_XML_TEXT_BYTES_MAX];
    size_t text_length;
};

static void begin(void *argument, const char *name, const char **attributes);
static void end(void *argument, const char *name);
static void take_text(void *argument, const char *text, int length);
static void refuse_doctype(void *argument,
                           const char *name,
                           const char *system_id,
                           const char *public_id,
                           int has_subset);
static void fail(struct reading *reading, const char *why);

bool s3_xml_read(struct bytes document, const struct s3_xml_reader *reader, struct status *status)
{
    /* A server that kept the connection alive while it worked has sent white space first. */
    while (document.length > 0 && (document.data[0] == ' ' || document.data[0] == '\n' ||
                                   document.data[0] == '\r' || document.data[0] == '\t')) {
        document.data++;
        document.length--;
    }
    if (document.length == 0 || document.length > INT_MAX)
        return status_fail(status, STATUS_INTERNAL, "the answer is empty where XML should be");
    struct reading *const reading = calloc(1, sizeof(*reading));
    XML_Parser parser = XML_ParserCreate("UTF-8");
    bool ok = false;
    if (reading == NULL || parser == NULL) {
        status_fail_errno(status, ENOMEM, "read XML");
        goto out;
    }
    *reading = (struct reading){.reader = reader, .parser = parser, .status = status};
    XML_SetUserData(parser, reading);
    XML_SetElementHandler(parser, begin, end);
    XML_SetCharacterDataHandler(parser, take_text);
    XML_SetStartDoctypeDeclHandler(parser, refuse_doctype);
    const enum XML_Status result =
        XML_Parse(parser, (const char *)document.data, (int)document.length, 1);
    if (reading->failed)
        goto out;
    if (result != XML_STATUS_OK)
        status_fail(status, STATUS_INTERNAL, "the answer is no XML: %s in line %lu",
                    XML_ErrorString(XML_GetErrorCode(parser)), XML_GetCurrentLineNumber(parser));
    else
        ok = true;
out:
    if (parser != NULL)
        XML_ParserFree(parser);
    free(reading);
    return ok;
}

static void begin(void *argument, const char *name, const char **attributes)
{
    (void)attributes;
    struct reading *const reading = argument;
    if (reading->failed)
        return;
    const size_t length = strlen(name);
    if (reading->depth == S3_XML_DEPTH_MAX ||
        reading->path_length + length + 2 > sizeof(reading->path)) {
        fail(reading, "elements are nested too deeply");
        return;
    }
    reading->path_lengths[reading->depth++] = reading->path_length;
    if (reading->path_length > 0)
        reading->path[reading->path_length++] = '/';
    memcpy(reading->path + reading->path_length, name, length + 1);
    reading->path_length += length;
    reading->text_length = 0;
}

static void end(void *argument, const char *name)
{
    (void)name;
    struct reading *const reading = argument;
    if (reading->failed)
        return;
    reading->text[reading->text_length] = '\0';
    if (!reading->reader->element(reading->reader->argument, reading->path, reading->text,
                                  reading->status)) {
        fail(reading, NULL);
        return;
    }
    reading->path_length = reading->path_lengths[--reading->depth];
    reading->path[reading->path_length] = '\0';
    reading->text_length = 0;
}

static void take_text(void *argument, const char *text, int length)
{
    struct reading *const reading = argument;
    if (reading->failed)
        return;
    if (reading->text_length + (size_t)length >= sizeof(reading->text)) {
        fail(reading, "an element is too long");
        return;
    }
    memcpy(reading->text + reading->text_length, text, (size_t)length);
    reading->text_length += (size_t)length;
}

/* No answer has one; those that do want to make us work. */
static void refuse_doctype(void *argument,
                           const char *name,
                           const char *system_id,
                           const char *public_id,
                           int has_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_subset;
    fail(argument, "it has a document type");
}

/* why NULL: the status is set already. */
static void fail(struct reading *reading, const char *why)
{
    reading->failed = true;
    if (why != NULL)
        status_fail(reading->status, STATUS_INTERNAL, "the answer's XML is not taken: %s", why);
    XML_StopParser(reading->parser, XML_FALSE);
}

bool s3_xml_escape(const char *text, char *to, size_t capacity, size_t *used)
{
    for (const char *at = text; *at != '\0'; at++) {
        const char one[2] = {*at, '\0'};
        const char *const as = *at == '&'   ? "&amp;"
                               : *at == '<' ? "&lt;"
                               : *at == '>' ? "&gt;"
                               : *at == '"' ? "&quot;"
                                            : one;
        const size_t length = strlen(as);
        if (*used + length >= capacity)
            return false;
        memcpy(to + *used, as, length + 1);
        *used += length;
    }
    return *used < capacity;
}
