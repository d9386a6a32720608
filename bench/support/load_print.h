/* SPDX-License-Identifier: Apache-2.0 */
/* The report of bench/load: a few lines for people, or one of JSON. */
#ifndef VARVE_BENCH_LOAD_PRINT_H
#define VARVE_BENCH_LOAD_PRINT_H

#include "bench/support/load_run.h"

void load_print_text(const struct load_settings *settings, const struct load_report *report);
void load_print_json(const struct load_settings *settings, const struct load_report *report);

#endif
