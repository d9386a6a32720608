/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failpoint.h"

#ifdef FAILPOINTS

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/compiler.h"

/* Index is enum failpoint. Plain atomics: tests set points before they start what passes them. */
static struct {
    _Atomic enum failpoint_action action;
    _Atomic uint64_t at;
    _Atomic uint64_t passes;
} points[FAILPOINT_COUNT];

static void sleep_ms(uint64_t duration_ms);
static bool parse_setting(struct bytes text);
static bool parse_name(struct bytes name, enum failpoint *point);
static bool parse_number(struct bytes digits, uint64_t *number);
static bool cut_prefix(struct bytes *text, const char *prefix);

void failpoint_pass(enum failpoint point)
{
    const uint64_t pass = atomic_fetch_add(&points[point].passes, 1) + 1;
    const uint64_t at = atomic_load(&points[point].at);

    switch (atomic_load(&points[point].action)) {
    case FAILPOINT_OFF:
        break;
    case FAILPOINT_KILL:
        if (pass == at) {
            kill(getpid(), SIGKILL);
            pause();
        }
        break;
    case FAILPOINT_SLEEP:
        sleep_ms(at);
        break;
    }
}

static void sleep_ms(uint64_t duration_ms)
{
    struct timespec left = {
        .tv_sec = (time_t)(duration_ms / 1000),
        .tv_nsec = (long)(duration_ms % 1000) * NS_PER_MS,
    };
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

void failpoint_set(enum failpoint point, enum failpoint_action action, uint64_t at)
{
    ASSERT((unsigned int)point < FAILPOINT_COUNT);
    atomic_store(&points[point].action, FAILPOINT_OFF);
    atomic_store(&points[point].passes, 0);
    atomic_store(&points[point].at, at);
    atomic_store(&points[point].action, action);
}

uint64_t failpoint_passes(enum failpoint point)
{
    return atomic_load(&points[point].passes);
}

bool failpoint_init_from_environment(const char **bad)
{
    const char *setting = getenv("VARVE_FAILPOINTS");
    if (setting == NULL || setting[0] == '\0')
        return true;
    while (true) {
        const size_t length = strcspn(setting, ",");
        if (!parse_setting(bytes_of(setting, length))) {
            *bad = setting;
            return false;
        }
        if (setting[length] == '\0')
            return true;
        setting += length + 1;
    }
}

/* One name=action. */
static bool parse_setting(struct bytes text)
{
    const uint8_t *const sign = text.length > 0 ? memchr(text.data, '=', text.length) : NULL;
    if (sign == NULL)
        return false;
    const size_t name_length = (size_t)(sign - text.data);
    struct bytes action = bytes_of(sign + 1, text.length - name_length - 1);
    enum failpoint point;
    uint64_t at = 1;

    if (!parse_name(bytes_of(text.data, name_length), &point))
        return false;
    if (cut_prefix(&action, "sleep:")) {
        if (!parse_number(action, &at))
            return false;
        failpoint_set(point, FAILPOINT_SLEEP, at);
        return true;
    }
    if (!cut_prefix(&action, "kill"))
        return false;
    if (action.length > 0 && (!cut_prefix(&action, "@") || !parse_number(action, &at) || at == 0))
        return false;
    failpoint_set(point, FAILPOINT_KILL, at);
    return true;
}

static bool parse_name(struct bytes name, enum failpoint *point)
{
    static const char *const names[] = {
#define FAILPOINT_NAME(name, what) [FAILPOINT_##name] = #name,
        FAILPOINTS_LIST(FAILPOINT_NAME)
#undef FAILPOINT_NAME
    };
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (bytes_equal_string(name, names[i])) {
            *point = (enum failpoint)i;
            return true;
        }
    }
    return false;
}

static bool parse_number(struct bytes digits, uint64_t *number)
{
    const size_t digits_max = 9; /* below 2^63 whatever they are, and longer than anybody waits */
    uint64_t value = 0;
    if (digits.length == 0 || digits.length > digits_max)
        return false;
    for (size_t i = 0; i < digits.length; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(digits.data[i] - '0');
    }
    *number = value;
    return true;
}

static bool cut_prefix(struct bytes *text, const char *prefix)
{
    const size_t length = strlen(prefix);
    if (text->length < length || memcmp(text->data, prefix, length) != 0)
        return false;
    *text = bytes_of(text->data + length, text->length - length);
    return true;
}

#endif
