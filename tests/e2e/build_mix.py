#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# build_mix.py DIRECTORY COUNT [SEED]: makes so many different files with sizes like those of real builds: median 2.8 KB, mean
# 126 KB, 99 % up to 2.7 MB, all up to 14 MB. Prints how many bytes they have together.
import math
import os
import random
import statistics
import sys

directory, count = sys.argv[1], int(sys.argv[2])
chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
normal = statistics.NormalDist(math.log(2800), 2.95)
sizes = [min(14_000_000, max(20, int(math.exp(normal.inv_cdf((i + 0.5) / count))))) for i in range(count)]
chance.shuffle(sizes)
pool = os.urandom(16_000_000)
for number, size in enumerate(sizes):
    folder = os.path.join(directory, str(number // 1000))
    if number % 1000 == 0:
        os.makedirs(folder)
    start = chance.randrange(len(pool) - size)
    with open(os.path.join(folder, str(number)), "wb") as file:
        file.write(b"%019d\n" % chance.randrange(10**19))
        file.write(pool[start : start + size - 20])
print(sum(sizes))
