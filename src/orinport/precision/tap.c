/* An operator for ONNX Runtime that counts tensors where they are made, in whatever layout; see tap.py.

   One node holds a chain of element-wise steps, each of which is watched: x, scale * x + bias by channel, the sum with
   a second tensor, and a ReLU or Clip. A block of it stays in the first-level cache from the first step to the last.

   ONNX Runtime's interface is declared here as far as it is used. Its tables keep their order for ever: onnxruntime_c_api.h
   and the assertions at the end of onnxruntime_c_api.cc (microsoft/onnxruntime) fix that version 1 has 102 entries, the
   last ReleaseCustomOpDomain. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "ordered.h"

enum { BLOCK = 2048, BINS = 8192, BITS = 13, EMPTY = -(1 << 30), SMALL_EXPONENT = -100, ROOM = 16 };

/* ---------------------------------------------------------------------------------------------- histograms */

struct part { /* the values of one sign */
    int32_t exponent;
    float factor;
    uint32_t counts[BINS];
    uint32_t tail[BINS]; /* of blocks that are not counted: the values of the tail */
};

struct slot {
    float low, high;
    int32_t above, below; /* keys (see `ordered`): values from `above` up and from `below` down are the tail */
    int64_t seen, nonfinite, beneath; /* beneath: how many of the nonfinite are minus infinity */
    int64_t beneath_counted;          /* how many of those lie in blocks that are counted */
    struct part part[2];              /* not negative, negative */
};

const int64_t tap_slot_bytes = sizeof(struct slot);

static _Thread_local struct slot *bound;
static _Thread_local int64_t sample;
static _Thread_local int everything;

void tap_close(struct slot *slots)
{
    free(slots);
}

/* What this thread runs from now on is counted in `slots`; nothing is with NULL. */
void tap_bind(struct slot *slots)
{
    bound = slots;
}

/* The number of the sample that this thread runs next: it shifts which blocks of large tensors are counted, unless all
   are. */
void tap_sample(int64_t number, int64_t all)
{
    sample = number;
    everything = all != 0;
}

static void fold_counts(uint32_t *counts, int64_t steps)
{
    steps = steps < BITS ? steps : BITS;
    for (int b = 0; b < BINS >> steps; b++) {
        uint32_t sum = 0;
        for (int i = 0; i < 1 << steps; i++)
            sum += counts[((uint32_t)b << steps) + i];
        counts[b] = sum;
    }
    memset(counts + (BINS >> steps), 0, (BINS - (BINS >> steps)) * sizeof *counts);
}

static void fold(struct part *part, int exponent)
{
    int64_t steps = (int64_t)exponent - part->exponent;
    fold_counts(part->counts, steps);
    fold_counts(part->tail, steps);
    part->exponent = exponent;
    part->factor = exponent < SMALL_EXPONENT ? 0.0f : ldexpf(1.0f, BITS - exponent);
}

static void reach(struct part *part, float magnitude)
{
    int exponent;
    if (magnitude > 0.0f) {
        frexpf(magnitude, &exponent);
        if (exponent > part->exponent)
            fold(part, exponent);
    }
}

/* The bin of a value, however tiny. */
static uint32_t bin_of(const struct part *part, float value)
{
    if (part->exponent == EMPTY)
        return 0;
    if (part->exponent < SMALL_EXPONENT)
        return (uint32_t)ldexp(fabs((double)value), BITS - part->exponent);
    return (uint32_t)(fabsf(value) * part->factor);
}

/* Whether a magnitude falls into one of the bins there are. */
static int fits(const struct part *part, float magnitude)
{
    return magnitude <= 0.0f || (part->exponent >= SMALL_EXPONENT && magnitude * part->factor < (float)BINS);
}

static int is_tiny(const struct part *part)
{
    return part->exponent != EMPTY && part->exponent < SMALL_EXPONENT;
}

/* Takes the extremes of some values in, given as keys; returns 0, with nothing done, if one is not finite. */
static int widen(struct slot *slot, int32_t least, int32_t most)
{
    if (most > 0x7f7fffff || least < ~0x7f7fffff)
        return 0;
    float low = number(least) + 0.0f, high = number(most) + 0.0f;
    slot->low = low < slot->low ? low : slot->low;
    slot->high = high > slot->high ? high : slot->high;
    return 1;
}

/* Counts at most BLOCK values; returns 0, with nothing done, if one of them is not finite. Bins and extremes are found in
   one go, in the hope that the bins reach far enough, as they nearly always do; else they are made wider and the values
   looked at again. */
static int count_all(struct slot *slot, const float *values, int count)
{
    uint32_t bins[BLOCK];
    for (;;) {
        int32_t least = INT32_MAX, most = INT32_MIN;
        float above = slot->part[0].factor, below = slot->part[1].factor;
        for (int i = 0; i < count; i++) {
            int32_t bits = bits_of(values[i]), key = ordered(bits), sign = bits >> 31;
            least = key < least ? key : least;
            most = key > most ? key : most;
            float place = fabsf(values[i]) * (sign ? below : above);
            place = place < (float)(BINS - 1) ? place : (float)(BINS - 1);
            bins[i] = (uint32_t)(int32_t)place + (uint32_t)(sign & (int32_t)(sizeof(struct part) / 4));
        }
        if (!widen(slot, least, most))
            return 0;
        if (fits(slot->part, slot->high) && fits(slot->part + 1, -slot->low))
            break;
        reach(slot->part, slot->high);
        reach(slot->part + 1, -slot->low);
        if (is_tiny(slot->part) || is_tiny(slot->part + 1)) {
            for (int i = 0; i < count; i++) {
                struct part *part = slot->part + (bits_of(values[i]) < 0);
                part->counts[bin_of(part, values[i])]++;
            }
            return 1;
        }
    }
    uint32_t *counts = slot->part[0].counts;
    for (int i = 0; i < count; i++)
        counts[bins[i]]++;
    return 1;
}

/* Copies the values of the tail to `tail`, which has room for BLOCK and ROOM more, and returns how many they are; the
   extremes of all values as keys. */
#ifdef __AVX512F__
static int pick(const struct slot *slot, const float *values, int count, float *tail, int32_t *least, int32_t *most)
{
    __m512i low = _mm512_set1_epi32(INT32_MAX), high = _mm512_set1_epi32(INT32_MIN);
    __m512i above = _mm512_set1_epi32(slot->above), below = _mm512_set1_epi32(slot->below);
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    int picked = 0;
    for (int i = 0; i < count; i += 16) {
        __mmask16 valid = count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : 0xffff;
        __m512i bits = _mm512_maskz_loadu_epi32(valid, values + i);
        __m512i key = _mm512_xor_si512(bits, _mm512_and_si512(_mm512_srai_epi32(bits, 31), magnitude));
        low = _mm512_mask_min_epi32(low, valid, low, key);
        high = _mm512_mask_max_epi32(high, valid, high, key);
        __mmask16 hit = valid & (_mm512_cmpge_epi32_mask(key, above) | _mm512_cmple_epi32_mask(key, below));
        if (hit) {
            _mm512_storeu_si512(tail + picked, _mm512_maskz_compress_epi32(hit, bits));
            picked += __builtin_popcount(hit);
        }
    }
    *least = _mm512_reduce_min_epi32(low);
    *most = _mm512_reduce_max_epi32(high);
    return picked;
}
#else
static int pick(const struct slot *slot, const float *values, int count, float *tail, int32_t *least, int32_t *most)
{
    uint8_t hits[BLOCK + 8]; /* one for a value of the tail; of eight in a row most are zero */
    int32_t low = INT32_MAX, high = INT32_MIN, above = slot->above, below = slot->below;
    int picked = 0;
    for (int i = 0; i < count; i++) {
        int32_t key = ordered(bits_of(values[i]));
        low = key < low ? key : low;
        high = key > high ? key : high;
        hits[i] = (uint8_t)((key >= above) | (key <= below));
    }
    memset(hits + count, 0, 8);
    for (int from = 0; from < count; from += 8) {
        uint64_t eight;
        memcpy(&eight, hits + from, 8);
        for (int i = from; eight && i < from + 8 && i < count; i++) {
            tail[picked] = values[i];
            picked += hits[i];
        }
    }
    *least = low;
    *most = high;
    return picked;
}
#endif

/* The same as `count_all` for the values of the tail alone. */
static int count_tail(struct slot *slot, const float *values, int count)
{
    float tail[BLOCK + ROOM];
    int32_t least, most;
    int picked = pick(slot, values, count, tail, &least, &most);
    if (!widen(slot, least, most))
        return 0;
    reach(slot->part, slot->high);
    reach(slot->part + 1, -slot->low);
    for (int i = 0; i < picked; i++) {
        struct part *part = slot->part + (bits_of(tail[i]) < 0);
        part->tail[bin_of(part, tail[i])]++;
    }
    return 1;
}

/* Counts at most BLOCK finite values, all or those of the tail; returns 0, with nothing done, if one is not finite. */
static int count_finite(struct slot *slot, const float *values, int count, int all)
{
    return all ? count_all(slot, values, count) : count_tail(slot, values, count);
}

static void count(struct slot *slot, const float *values, int count, int all)
{
    slot->seen += count;
    if (count_finite(slot, values, count, all))
        return;
    float finite[BLOCK];
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if ((bits_of(values[i]) & 0x7f800000) == 0x7f800000) {
            slot->nonfinite++;
            slot->beneath += bits_of(values[i]) == (int32_t)0xff800000;
            slot->beneath_counted += all && bits_of(values[i]) == (int32_t)0xff800000;
            continue;
        }
        finite[kept++] = values[i];
    }
    if (kept)
        count_finite(slot, finite, kept, all);
}

/* Of the values in blocks that are not counted, which ones are counted all the same: those >= `above` and those <= -`below`.
   With zeros all are. */
void tap_split(struct slot *slot, float above, float below)
{
    slot->above = ordered(bits_of(above));
    slot->below = ordered(bits_of(-below));
}

static void clear(struct slot *slot)
{
    int32_t above = slot->above, below = slot->below;
    memset(slot, 0, sizeof *slot);
    slot->above = above;
    slot->below = below;
    slot->low = INFINITY;
    slot->high = -INFINITY;
    slot->part[0].exponent = slot->part[1].exponent = EMPTY;
}

struct slot *tap_open(int64_t count)
{
    struct slot *slots = malloc((size_t)count * sizeof *slots);
    for (int64_t i = 0; slots && i < count; i++) {
        tap_split(slots + i, 0.0f, 0.0f);
        clear(slots + i);
    }
    return slots;
}

/* Hands out what a slot has counted and clears it: BINS counts of magnitudes, then BINS of the values with everything
   negative at zero, then the same two of the tail outside of the blocks that were counted. `whole` gets both exponents,
   how many values were seen, how many were not finite, and how many of those were minus infinity; `extremes` the smallest
   and the largest. */
void tap_drain(struct slot *slot, int64_t *whole, double *extremes, int64_t *counts)
{
    int64_t *rectified = counts + BINS, *tail = counts + 2 * BINS, *rectified_tail = counts + 3 * BINS;
    int64_t below = slot->beneath_counted, below_tail = slot->beneath - slot->beneath_counted;
    whole[1] = slot->part[0].exponent;
    for (int b = 0; b < BINS; b++) {
        rectified[b] = slot->part[0].counts[b];
        rectified_tail[b] = slot->part[0].tail[b];
        below += slot->part[1].counts[b];
        below_tail += slot->part[1].tail[b];
    }
    rectified[0] += below;
    rectified_tail[0] += below_tail;
    int exponent = slot->part[0].exponent > slot->part[1].exponent ? slot->part[0].exponent : slot->part[1].exponent;
    for (int sign = 0; sign < 2; sign++)
        if (slot->part[sign].exponent < exponent)
            fold(slot->part + sign, exponent);
    for (int b = 0; b < BINS; b++) {
        counts[b] = (int64_t)slot->part[0].counts[b] + slot->part[1].counts[b];
        tail[b] = (int64_t)slot->part[0].tail[b] + slot->part[1].tail[b];
    }
    whole[0] = exponent;
    whole[2] = slot->seen;
    whole[3] = slot->nonfinite;
    whole[4] = slot->beneath;
    extremes[0] = slot->low;
    extremes[1] = slot->high;
    clear(slot);
}

/* ---------------------------------------------------------------------------------------------- the chain */

enum { NOTHING, RELU, CLIP };

struct chain {
    const void *const *api;
    int64_t first, scaled, summed, clipped; /* slots; -1 for a step that is not taken */
    int64_t activation, channels, block;    /* block 0: channels one after the other */
    int64_t every;                          /* of so many blocks one is counted; extremes and tail are those of all */
    float least, most;
};

struct source {
    const float *x, *scale, *bias, *other;
    float *out;
};

/* Whether the next block is counted, `left` being the number of those to leave out before. */
static int counted(int64_t every, int64_t *left)
{
    int all = *left == 0;
    *left = all ? every - 1 : *left - 1;
    return all;
}

/* The `length` values of the chain at `from`, all of channel `channel` or, in the blocked layout, of a block of them from
   there on, whose `valid` first are no padding (0: all). Counted if `all`, else looked at for the extremes and the tail. */
static void step(
    const struct chain *chain, const struct source *at, int64_t from, int length, int64_t channel, int valid, int all)
{
    float held[2][BLOCK], packed[BLOCK];
    const float *now = at->x + from;
    struct slot *slots = bound;
    int64_t block = chain->block;
#define WATCH(slot_number)                                                                                             \
    do {                                                                                                               \
        if (slots && (slot_number) >= 0) {                                                                             \
            const float *values = now;                                                                                 \
            int number = length;                                                                                       \
            if (valid) {                                                                                               \
                number = 0;                                                                                            \
                for (int i = 0; i < length; i += (int)block)                                                           \
                    for (int lane = 0; lane < valid; lane++)                                                           \
                        packed[number++] = now[i + lane];                                                              \
                values = packed;                                                                                       \
            }                                                                                                          \
            count(slots + (slot_number), values, number, all);                                                         \
        }                                                                                                              \
    } while (0)

    WATCH(chain->first);
    if (chain->scaled >= 0) {
        float *into = held[0];
        if (block == 16) {
            float scale[16], bias[16];
            memcpy(scale, at->scale + channel, sizeof scale);
            memcpy(bias, at->bias + channel, sizeof bias);
            for (int i = 0; i < length; i += 16)
                for (int lane = 0; lane < 16; lane++)
                    into[i + lane] = now[i + lane] * scale[lane] + bias[lane];
        } else if (block) {
            for (int i = 0; i < length; i += (int)block)
                for (int lane = 0; lane < block; lane++)
                    into[i + lane] = now[i + lane] * at->scale[channel + lane] + at->bias[channel + lane];
        } else {
            float scale = at->scale[channel], bias = at->bias[channel];
            for (int i = 0; i < length; i++)
                into[i] = now[i] * scale + bias;
        }
        now = into;
        WATCH(chain->scaled);
    }
    if (chain->summed >= 0) {
        float *into = held[1];
        const float *other = at->other + from;
        for (int i = 0; i < length; i++)
            into[i] = now[i] + other[i];
        now = into;
        WATCH(chain->summed);
    }
    float *out = at->out + from;
    if (chain->activation == RELU) {
        for (int i = 0; i < length; i++)
            out[i] = now[i] <= 0.0f ? 0.0f : now[i]; /* NaN stays */
    } else if (chain->activation == CLIP) {
        float least = chain->least, most = chain->most;
        for (int i = 0; i < length; i++) {
            float value = now[i] < least ? least : now[i];
            out[i] = value > most ? most : value;
        }
        now = out;
        WATCH(chain->clipped);
    } else if (now != out) {
        memcpy(out, now, (size_t)length * sizeof *out);
    }
#undef WATCH
}

static void run(const struct chain *chain, const struct source *at, int64_t total, int64_t spatial)
{
    int64_t every = everything ? 1 : chain->every, left = sample * 7919 % every;
    if (chain->channels <= 0 || (!chain->block && chain->scaled < 0)) { /* no step asks for the channel */
        for (int64_t from = 0; from < total; from += BLOCK)
            step(chain, at, from, (int)(total - from < BLOCK ? total - from : BLOCK), 0, 0, counted(every, &left));
        return;
    }
    int64_t width = chain->block ? chain->block : 1;
    int64_t groups = (chain->channels + width - 1) / width, span = spatial * width;
    int64_t rest = chain->channels % width;
    for (int64_t start = 0, group = 0; start < total; start += span, group = (group + 1) % groups) {
        int valid = group == groups - 1 ? (int)rest : 0;
        for (int64_t from = 0; from < span; from += BLOCK)
            step(
                chain, at, start + from, (int)(span - from < BLOCK ? span - from : BLOCK), group * width, valid,
                counted(every, &left));
    }
}

/* The same on memory, for the tests. */
void tap_run(
    const int64_t *numbers, float least, float most, const float *x, const float *scale, const float *bias,
    const float *other, float *out, int64_t total, int64_t spatial)
{
    struct chain chain = {
        NULL, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], least, most};
    struct source source = {x, scale, bias, other, out};
    run(&chain, &source, total, spatial);
}

/* ---------------------------------------------------------------------------------------------- ONNX Runtime */

enum { /* entries of OrtApi */
    CREATE_DOMAIN = 26, ADD_TO_DOMAIN = 27, ADD_DOMAIN = 28, DATA = 51, RANK = 61, DIMENSIONS = 62, SHAPE = 65,
    FLOAT_ATTRIBUTE = 85, INT_ATTRIBUTE = 86, INPUT = 90, OUTPUT = 91, RELEASE_SHAPE = 99
};
enum { FLOAT = 1, VERSION = 18, REQUIRED = 0, OPTIONAL = 1 };

typedef void *(*pointer2)(const void *, void **);

struct base { /* OrtApiBase */
    const void *const *(*api)(uint32_t);
    const char *(*version)(void);
};

struct operator { /* OrtCustomOp as of version 18 */
    uint32_t version;
    void *(*create)(const struct operator *, const void *const *, const void *);
    const char *(*name)(const struct operator *);
    const char *(*provider)(const struct operator *);
    int (*input_type)(const struct operator *, size_t);
    size_t (*input_count)(const struct operator *);
    int (*output_type)(const struct operator *, size_t);
    size_t (*output_count)(const struct operator *);
    void (*compute)(void *, void *);
    void (*destroy)(void *);
    int (*input_characteristic)(const struct operator *, size_t);
    int (*output_characteristic)(const struct operator *, size_t);
    int (*input_memory)(const struct operator *, size_t);
    int (*variadic_input_arity)(const struct operator *);
    int (*variadic_input_same)(const struct operator *);
    int (*variadic_output_arity)(const struct operator *);
    int (*variadic_output_same)(const struct operator *);
    void *(*create_2)(const struct operator *, const void *const *, const void *, void **);
    void *(*compute_2)(void *, void *);
    void *(*infer_shape)(const struct operator *, void *);
    int (*start_version)(const struct operator *);
    int (*end_version)(const struct operator *);
    size_t (*in_place)(int **, int **);
    void (*release_in_place)(int *, int *);
    size_t (*alias)(int **, int **);
    void (*release_alias)(int *, int *);
};

static void *create(const struct operator *op, const void *const *api, const void *info)
{
    (void)op;
    struct chain *chain = calloc(1, sizeof *chain);
    if (!chain)
        return NULL;
    void *(*whole)(const void *, const char *, int64_t *) = (void *(*)(const void *, const char *, int64_t *))api[INT_ATTRIBUTE];
    void *(*real)(const void *, const char *, float *) = (void *(*)(const void *, const char *, float *))api[FLOAT_ATTRIBUTE];
    chain->api = api;
    whole(info, "first", &chain->first);
    whole(info, "scaled", &chain->scaled);
    whole(info, "summed", &chain->summed);
    whole(info, "clipped", &chain->clipped);
    whole(info, "activation", &chain->activation);
    whole(info, "channels", &chain->channels);
    whole(info, "block", &chain->block);
    whole(info, "every", &chain->every);
    if (chain->every < 1)
        chain->every = 1;
    real(info, "least", &chain->least);
    real(info, "most", &chain->most);
    return chain;
}

static void *data_of(const void *const *api, const void *value)
{
    void *data = NULL;
    if (value)
        ((pointer2)api[DATA])(value, &data);
    return data;
}

/* Counters come into the cache all at once rather than one by one as they are hit; not where few are hit. */
static void fetch(const struct chain *chain)
{
    if (chain->every > 1 && !everything)
        return;
    int64_t slots[] = {chain->first, chain->scaled, chain->summed, chain->clipped};
    for (int i = 0; bound && i < 4; i++)
        for (int sign = 0; slots[i] >= 0 && sign < 2; sign++)
            for (int b = 0; b < BINS; b += 16)
                __builtin_prefetch(bound[slots[i]].part[sign].counts + b, 1);
}

static void compute(void *kernel, void *context)
{
    const struct chain *chain = kernel;
    const void *const *api = chain->api;
    void *(*input)(const void *, size_t, const void **) = (void *(*)(const void *, size_t, const void **))api[INPUT];
    void *(*output)(void *, size_t, const int64_t *, size_t, void **) =
        (void *(*)(void *, size_t, const int64_t *, size_t, void **))api[OUTPUT];
    const void *values[4] = {NULL, NULL, NULL, NULL};
    for (size_t i = 0; i < 4; i++)
        input(context, i, values + i);
    void *shape = NULL, *out = NULL;
    size_t rank = 0;
    int64_t dimensions[16] = {0};
    ((pointer2)api[SHAPE])(values[0], &shape);
    ((void *(*)(const void *, size_t *))api[RANK])(shape, &rank);
    if (rank > 16)
        rank = 16;
    ((void *(*)(const void *, int64_t *, size_t))api[DIMENSIONS])(shape, dimensions, rank);
    ((void (*)(void *))api[RELEASE_SHAPE])(shape);
    output(context, 0, dimensions, rank, &out);
    fetch(chain);
    int64_t total = 1, spatial = 1;
    for (size_t i = 0; i < rank; i++) {
        total *= dimensions[i];
        spatial *= i < 2 ? 1 : dimensions[i];
    }
    struct source source = {
        data_of(api, values[0]), data_of(api, values[1]), data_of(api, values[2]), data_of(api, values[3]), data_of(api, out)};
    if (total && source.x && source.out)
        run(chain, &source, total, spatial);
}

static const char *name(const struct operator *op) { (void)op; return "Tap"; }
static const char *provider(const struct operator *op) { (void)op; return NULL; }
static int type(const struct operator *op, size_t i) { (void)op, (void)i; return FLOAT; }
static size_t inputs(const struct operator *op) { (void)op; return 4; }
static size_t outputs(const struct operator *op) { (void)op; return 1; }
static int needed(const struct operator *op, size_t i) { (void)op; return i ? OPTIONAL : REQUIRED; }
static int given(const struct operator *op, size_t i) { (void)op, (void)i; return REQUIRED; }
static int memory(const struct operator *op, size_t i) { (void)op, (void)i; return 0; }
static int one(const struct operator *op) { (void)op; return 1; }
static int newest(const struct operator *op) { (void)op; return INT32_MAX; }

/* The output may lie where the first input lay. */
static size_t in_place(int **input, int **output)
{
    static int first = 0;
    *input = *output = &first;
    return 1;
}

static void keep(int *input, int *output) { (void)input, (void)output; }

static const struct operator tap = {
    .version = VERSION, .create = create, .name = name, .provider = provider, .input_type = type, .input_count = inputs,
    .output_type = type, .output_count = outputs, .compute = compute, .destroy = free, .input_characteristic = needed,
    .output_characteristic = given, .input_memory = memory, .variadic_input_arity = one, .variadic_input_same = one,
    .variadic_output_arity = one, .variadic_output_same = one, .start_version = one, .end_version = newest,
    .in_place = in_place, .release_in_place = keep};

/* What ONNX Runtime calls when it loads this library. */
void *RegisterCustomOps(void *options, const struct base *base)
{
    const void *const *api = base->api(VERSION);
    void *domain = NULL, *status = ((void *(*)(const char *, void **))api[CREATE_DOMAIN])("orinport.tap", &domain);
    if (!status)
        status = ((void *(*)(void *, const void *))api[ADD_TO_DOMAIN])(domain, &tap);
    if (!status)
        status = ((void *(*)(void *, void *))api[ADD_DOMAIN])(options, domain);
    return status;
}
