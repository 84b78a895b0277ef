/* The two loops of a histogram that touch every element of a tensor; see watch.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ordered.h"

enum { BLOCK = 4096, BINS = 8192 };

static const int32_t LARGEST = 0x7f7fffff;

/* Smallest and largest of `count` values, and every `step`th of them, from `first` on, into `taken` (NULL for none).
   Returns 0, with nothing else valid, if a value is NaN or infinite. `count` is at least 1. */
int watch_extremes(const float *values, int64_t count, int64_t first, int64_t step, float *taken, float *low, float *high)
{
    int32_t least = INT32_MAX, most = INT32_MIN;
    int64_t next = first;
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t stop = start + BLOCK < count ? start + BLOCK : count;
        int32_t below = least, above = most;
        for (int64_t i = start; i < stop; i++) {
            int32_t key = ordered(bits_of(values[i]));
            below = key < below ? key : below;
            above = key > above ? key : above;
        }
        least = below;
        most = above;
        if (most > LARGEST || least < ~LARGEST)
            return 0;
        if (taken)
            for (; next < stop; next += step)
                *taken++ = values[next];
    }
    *low = number(least) + 0.0f;
    *high = number(most) + 0.0f;
    return 1;
}

/* Adds to counts[b], b the bin of |value| * factor, which is below BINS. Two tables, because equal neighbours would
   wait for each other's increment. */
void watch_count(const float *values, int64_t count, float factor, int64_t *counts)
{
    uint32_t tables[2][BINS];
    while (count > 0) {
        int64_t part = count < (1 << 30) ? count : 1 << 30;
        memset(tables, 0, sizeof tables);
        int64_t i = 0;
        for (; i + 1 < part; i += 2) {
            tables[0][(uint32_t)(int32_t)(fabsf(values[i]) * factor) % BINS]++;
            tables[1][(uint32_t)(int32_t)(fabsf(values[i + 1]) * factor) % BINS]++;
        }
        if (i < part)
            tables[0][(uint32_t)(int32_t)(fabsf(values[i]) * factor) % BINS]++;
        for (int b = 0; b < BINS; b++)
            counts[b] += (int64_t)tables[0][b] + tables[1][b];
        values += part;
        count -= part;
    }
}
