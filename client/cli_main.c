/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "client/cli.h"

int main(int argc, char **argv)
{
    client_prepare_process();
    /*
     * A reader of our output that goes away is an error of a write, which is told like any other.
     */
    signal(SIGPIPE, SIG_IGN);
    return cli_run(argc, argv);
}
