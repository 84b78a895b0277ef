/* Floats as integers whose order is theirs, which compilers turn into vector instructions without any licence to
   reorder arithmetic; NaN and infinities lie beyond all finite numbers. Included by tap.c and watch.c. */

#include <stdint.h>
#include <string.h>

static int32_t bits_of(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static int32_t ordered(int32_t bits)
{
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

static float number(int32_t key)
{
    int32_t bits = ordered(key);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
