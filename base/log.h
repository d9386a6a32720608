/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event a line, logfmt, to stderr:
 *   time=2026-11-30T18:27:34.123Z level=warn event=segment_tail_cut segment=17 lost_bytes=4096 reason="crc32c"
 * Event names are stable and listed in docs/operations.md. Nothing per blob at info. Secrets never.
 */
#ifndef VARVE_BASE_LOG_H
#define VARVE_BASE_LOG_H

#include <stdbool.h>

#include "base/compiler.h"

/* As above, or a JSON object a line (base/log_json.h). Process-wide, atomic; logfmt at start. */
enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };
void log_set_format(enum log_format format);

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* Lines below it are dropped. Process-wide, atomic; info at start. */
void log_set_level(enum log_level level);
bool log_level_parse(const char *name,
                     enum log_level *level); /* "debug", "info", "warn", "error" */

/*
 * format gives the pairs after event=, already in logfmt; text that is not ours goes through
 * log_quote().
 */
void log_event(enum log_level level, const char *event, const char *format, ...) PRINTF_LIKE(3, 4);

enum { LOG_TEXT_BYTES_MAX = 1024 };
struct log_text {
    char text[LOG_TEXT_BYTES_MAX];
};

/* "..." with quotes, backslashes and control bytes escaped and cut to fit; returns into->text. */
const char *log_quote(struct log_text *into, const char *text);

#endif
