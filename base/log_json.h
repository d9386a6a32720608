/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of the log as a JSON object instead of logfmt:
 *   {"time":"2026-11-30T18:27:34.123Z","level":"warn","event":"segment_tail_cut","segment":17,"reason":"crc32c"}
 *
 * What is quoted in logfmt is a string, and so is what is no plain decimal number of at most 15 digits: more do not survive all
 * readers, and uids in hex have 16. Bytes that are not UTF-8 become U+FFFD. Pairs that would not fit are left out whole, and
 * "cut":true says so.
 */
#ifndef VARVE_BASE_LOG_JSON_H
#define VARVE_BASE_LOG_JSON_H

#include "base/bytes.h"

/*
 * pairs: a line of logfmt without its newline. capacity: of line, 64 bytes or more. The length of what was written, with a newline
 * and no NUL.
 */
size_t log_json_line(struct bytes pairs, char *line, size_t capacity);

#endif
