/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a server of the Remote Execution API under load and measures: so many calls of one kind or of a mix in flight, or so
 * many a second, all driven by one thread over gRPC's C core. Speaks plain REAPI, so that any server can be compared.
 * bench/README.md tells how to run it; bench/support/ has its parts.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/support/load_print.h"
#include "bench/support/load_run.h"

int main(int argc, char **argv)
{
    client_prepare_process();
    struct load_settings settings;
    if (!load_settings_parse(&settings, argc, argv))
        return 2;
    struct load_report *report;
    struct status status = {0};
    if (!load_run(&settings, &report, &status)) {
        fprintf(stderr, "load: %s\n", status.message);
        return 1;
    }
    if (settings.json)
        load_print_json(&settings, report);
    else
        load_print_text(&settings, report);
    const bool good = load_report_good(report);
    free(report);
    return good ? 0 : 1;
}
