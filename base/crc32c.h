/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), through ISA-L: 28 to 42 GB/s. */
#ifndef VARVE_BASE_CRC32C_H
#define VARVE_BASE_CRC32C_H

#include "base/bytes.h"

/*
 * crc: 0, or the result over the bytes before these (so that pieces chain). "123456789" gives
 * 0xe3069283.
 */
uint32_t crc32c(uint32_t crc, struct bytes data);
uint32_t crc32c_list(uint32_t crc, struct bytes_list data);

#endif
