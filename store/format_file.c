/* SPDX-License-Identifier: Apache-2.0 */
#include "store/format_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/format.h"
#include "store/line_file.h"

static const char file_name[] = "FORMAT";

static bool parse(const char *text, struct format_file *file);
static void print(char text[LINE_FILE_TEXT_BYTES_MAX + 1], unsigned version, uint64_t node_uid);

bool format_file_read(struct io *io,
                      const char *directory,
                      struct format_file *file,
                      struct status *status)
{
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    enum line_file_state state;
    *file = (struct format_file){.state = FORMAT_FILE_ABSENT};
    if (!line_file_read(io, directory, file_name, &state, text, status))
        return false;
    if (state == LINE_FILE_ABSENT)
        return true;
    const bool sound = state == LINE_FILE_SOUND && parse(text, file);
    file->state = sound ? FORMAT_FILE_SOUND : FORMAT_FILE_DAMAGED;
    return true;
}

static bool parse(const char *text, struct format_file *file)
{
    static const char name[] = "varve ";
    char again[LINE_FILE_TEXT_BYTES_MAX + 1];
    char *rest = NULL;
    if (strncmp(text, name, strlen(name)) != 0)
        return false;
    file->version = (unsigned)strtoul(text + strlen(name), &rest, 10);
    file->node_uid = strtoull(rest, NULL, 16);
    print(again, file->version, file->node_uid);
    return strcmp(text, again) == 0;
}

static void print(char text[LINE_FILE_TEXT_BYTES_MAX + 1], unsigned version, uint64_t node_uid)
{
    snprintf(text, LINE_FILE_TEXT_BYTES_MAX + 1, "varve %u %016" PRIx64, version, node_uid);
}

bool format_file_write(struct io *io,
                       const char *directory,
                       uint64_t node_uid,
                       struct status *status)
{
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    print(text, FORMAT_VERSION, node_uid);
    return line_file_write(io, directory, file_name, text, status);
}
