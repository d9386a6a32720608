/* SPDX-License-Identifier: Apache-2.0 */
/* What the client says of itself: in --version, in RequestMetadata, in the user agent. */
#ifndef VARVE_CLIENT_VERSION_H
#define VARVE_CLIENT_VERSION_H

#define CLIENT_VERSION "0.1.0"

#endif
