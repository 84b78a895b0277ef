/* One element type T of deform.c, which includes this file once per type. */

#define NAME(base) JOIN(base, SUFFIX)
#define LANES ((int64_t)(64 / sizeof(T)))
#define VECTOR NAME(vector)
#define TAPS NAME(taps)

typedef T VECTOR __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));

/* Up to PORTION sampling points of one output pixel and group. */
typedef struct {
    T x[PORTION], y[PORTION], weight[PORTION];                   /* given */
    T top[PORTION], left[PORTION];                               /* fraction of the way to the next pixel */
    T w00[PORTION], w01[PORTION], w10[PORTION], w11[PORTION];    /* weight times bilinear weight, row then column */
    int64_t base[PORTION];                                       /* element of the upper left corner */
    int32_t corners[PORTION];                                    /* which corners lie inside; 0: no contribution */
} TAPS;

static void NAME(locate)(TAPS *t, int64_t count, int64_t height, int64_t width, int64_t step)
{
    const T h = (T)height, w = (T)width;
    for (int64_t k = 0; k < count; k++) {
        const int inside = (t->y[k] > -1) & (t->y[k] < h) & (t->x[k] > -1) & (t->x[k] < w);
        const T y = inside ? t->y[k] : 0, x = inside ? t->x[k] : 0;
        const T floor_y = FLOOR(y), floor_x = FLOOR(x);
        const int32_t row = (int32_t)floor_y, column = (int32_t)floor_x;
        const T ly = y - floor_y, lx = x - floor_x, m = t->weight[k];
        t->top[k] = ly;
        t->left[k] = lx;
        t->w00[k] = (1 - ly) * (1 - lx) * m;
        t->w01[k] = (1 - ly) * lx * m;
        t->w10[k] = ly * (1 - lx) * m;
        t->w11[k] = ly * lx * m;
        t->base[k] = ((int64_t)row * width + column) * step;
        const int32_t corners = (row >= 0 ? TOP : 0) | (row + 1 < height ? BOTTOM : 0) | (column >= 0 ? LEFT : 0)
                              | (column + 1 < width ? RIGHT : 0);
        t->corners[k] = inside ? corners : 0;
    }
}

/* Calls body(weight, address of the corner) for every corner of tap k that lies inside. */
#define EACH_CORNER(t, k, image, down, right, body)                                                        \
    do {                                                                                                   \
        const int32_t c_ = (t)->corners[k];                                                                \
        if ((c_ & (TOP | LEFT)) == (TOP | LEFT)) body((t)->w00[k], (image) + (t)->base[k]);                \
        if ((c_ & (TOP | RIGHT)) == (TOP | RIGHT)) body((t)->w01[k], (image) + (t)->base[k] + (right));    \
        if ((c_ & (BOTTOM | LEFT)) == (BOTTOM | LEFT)) body((t)->w10[k], (image) + (t)->base[k] + (down)); \
        if ((c_ & (BOTTOM | RIGHT)) == (BOTTOM | RIGHT))                                                   \
            body((t)->w11[k], (image) + (t)->base[k] + (down) + (right));                                  \
    } while (0)

/* out[0..channels) += the samples of all taps. `down` and `right` are the steps to the next row and pixel. */
static void NAME(add_samples)(T *restrict out, const T *restrict image, const TAPS *t, int64_t count,
                              int64_t channels, int64_t down, int64_t right)
{
    int64_t d = 0;
    for (; d + LANES <= channels; d += LANES) {
        const T *const at = image + d;
        VECTOR sum = *(const VECTOR *)(out + d);
        for (int64_t k = 0; k < count; k++) {
            if (t->corners[k] == WHOLE) {
                const T *const p = at + t->base[k];
                sum += t->w00[k] * *(const VECTOR *)p;
                sum += t->w01[k] * *(const VECTOR *)(p + right);
                sum += t->w10[k] * *(const VECTOR *)(p + down);
                sum += t->w11[k] * *(const VECTOR *)(p + down + right);
            } else {
#define ADD(weight, address) sum += (weight) * *(const VECTOR *)(address)
                EACH_CORNER(t, k, at, down, right, ADD);
#undef ADD
            }
        }
        *(VECTOR *)(out + d) = sum;
    }
    if (d == channels)
        return;
    for (int64_t k = 0; k < count; k++) {
#define ADD(weight, address)                              \
    for (int64_t e = d; e < channels; e++) out[e] += (weight) * (address)[e]
        EACH_CORNER(t, k, image, down, right, ADD);
#undef ADD
    }
}

static T NAME(dot)(const T *a, const T *b, int64_t count)
{
    int64_t d = 0;
    VECTOR sums = {0};
    T sum = 0;
    for (; d + LANES <= count; d += LANES)
        sums += *(const VECTOR *)(a + d) * *(const VECTOR *)(b + d);
    for (; d < count; d++)
        sum += a[d] * b[d];
    for (int64_t lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

/* Gradients of one located portion: image_gradient is added to; gx, gy and gw are written per tap. */
static void NAME(add_gradients)(T *restrict image_gradient, T *gx, T *gy, T *gw, const T *restrict image,
                                const T *restrict gradient, const TAPS *t, int64_t count, int64_t channels,
                                int64_t down, int64_t right)
{
    for (int64_t k = 0; k < count; k++) {
        const int32_t c = t->corners[k];
        const T *const p = image + t->base[k];
        const T ly = t->top[k], lx = t->left[k], m = t->weight[k];
        gx[k] = gy[k] = gw[k] = 0;
        if (!c)
            continue;
        const T v00 = (c & TOP) && (c & LEFT) ? NAME(dot)(gradient, p, channels) : 0;
        const T v01 = (c & TOP) && (c & RIGHT) ? NAME(dot)(gradient, p + right, channels) : 0;
        const T v10 = (c & BOTTOM) && (c & LEFT) ? NAME(dot)(gradient, p + down, channels) : 0;
        const T v11 = (c & BOTTOM) && (c & RIGHT) ? NAME(dot)(gradient, p + down + right, channels) : 0;
        gw[k] = (1 - ly) * ((1 - lx) * v00 + lx * v01) + ly * ((1 - lx) * v10 + lx * v11);
        gx[k] = m * ((1 - ly) * (v01 - v00) + ly * (v11 - v10));
        gy[k] = m * ((1 - lx) * (v10 - v00) + lx * (v11 - v01));
#define ADD(weight, address) \
    for (int64_t e = 0; e < channels; e++) (address)[e] += (weight) * gradient[e]
        EACH_CORNER(t, k, image_gradient, down, right, ADD);
#undef ADD
    }
}

/* Reads taps first .. first+count of group g's slice, at output pixel (oy, ox). */
static void NAME(read_taps)(TAPS *t, const dcnv4_arguments *a, const int32_t *grid_x, const int32_t *grid_y,
                            const T *slice, int64_t taps, int64_t first, int64_t count, int64_t oy, int64_t ox)
{
    const T scale = (T)a->offset_scale;
    const T origin_x = (T)(ox * a->stride_w - a->pad_w + a->dilation_w * (a->kernel_w - 1) / 2);
    const T origin_y = (T)(oy * a->stride_h - a->pad_h + a->dilation_h * (a->kernel_h - 1) / 2);
    for (int64_t k = 0; k < count; k++) {
        t->x[k] = origin_x + scale * ((T)grid_x[first + k] + slice[2 * (first + k)]);
        t->y[k] = origin_y + scale * ((T)grid_y[first + k] + slice[2 * (first + k) + 1]);
        t->weight[k] = slice[2 * taps + first + k];
    }
}

/* grid_x, grid_y: position of every tap relative to the kernel's centre, in the order of the packing. */
void NAME(dcnv4_forward)(const dcnv4_arguments *a, const int32_t *grid_x, const int32_t *grid_y, int64_t taps,
                         const T *value, const T *offset_mask, T *output, int threads)
{
    const int64_t channels = a->group * a->group_channels, lines = a->batch * a->rows;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (lines * a->columns * channels >= PARALLEL_FROM)
    for (int64_t line = 0; line < lines; line++) {
        const T *const image = value + line / a->rows * a->height * a->width * channels;
        TAPS t;
        for (int64_t ox = 0; ox < a->columns; ox++) {
            const T *const vector = offset_mask + (line * a->columns + ox) * a->offset_width;
            T *const out = output + (line * a->columns + ox) * channels;
            memset(out, 0, (size_t)channels * sizeof(T));
            for (int64_t g = 0; g < a->group; g++)
                for (int64_t first = 0; first < taps; first += PORTION) {
                    const int64_t count = taps - first < PORTION ? taps - first : PORTION;
                    NAME(read_taps)(&t, a, grid_x, grid_y, vector + 3 * taps * g, taps, first, count,
                                    line % a->rows, ox);
                    NAME(locate)(&t, count, a->height, a->width, channels);
                    NAME(add_samples)(out + g * a->group_channels, image + g * a->group_channels, &t, count,
                                      a->group_channels, a->width * channels, channels);
                }
        }
    }
}

/* value_gradient and offset_gradient come zeroed. A thread owns whole (image, group) pairs, so nothing is shared. */
void NAME(dcnv4_backward)(const dcnv4_arguments *a, const int32_t *grid_x, const int32_t *grid_y, int64_t taps,
                          const T *value, const T *offset_mask, const T *gradient, T *value_gradient,
                          T *offset_gradient, int threads)
{
    const int64_t channels = a->group * a->group_channels, pixels = a->rows * a->columns;
    const T scale = (T)a->offset_scale;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (a->batch * pixels * channels >= PARALLEL_FROM)
    for (int64_t task = 0; task < a->batch * a->group; task++) {
        const int64_t n = task / a->group, g = task % a->group;
        const int64_t at = n * a->height * a->width * channels + g * a->group_channels;
        TAPS t;
        T gx[PORTION], gy[PORTION], gw[PORTION];
        for (int64_t q = 0; q < pixels; q++) {
            const int64_t slice = (n * pixels + q) * a->offset_width + 3 * taps * g;
            for (int64_t first = 0; first < taps; first += PORTION) {
                const int64_t count = taps - first < PORTION ? taps - first : PORTION;
                NAME(read_taps)(&t, a, grid_x, grid_y, offset_mask + slice, taps, first, count, q / a->columns,
                                q % a->columns);
                NAME(locate)(&t, count, a->height, a->width, channels);
                NAME(add_gradients)(value_gradient + at, gx, gy, gw, value + at,
                                    gradient + (n * pixels + q) * channels + g * a->group_channels, &t, count,
                                    a->group_channels, a->width * channels, channels);
                for (int64_t k = 0; k < count; k++) {
                    offset_gradient[slice + 2 * (first + k)] = scale * gx[k];
                    offset_gradient[slice + 2 * (first + k) + 1] = scale * gy[k];
                    offset_gradient[slice + 2 * taps + first + k] = gw[k];
                }
            }
        }
    }
}

/* The largest logit and the sum of exp(logit - largest). */
static void NAME(softmax_terms)(const T *logits, int64_t count, T *largest, T *sum)
{
    *largest = logits[0];
    for (int64_t i = 1; i < count; i++)
        *largest = logits[i] > *largest ? logits[i] : *largest;
    *sum = 0;
    for (int64_t i = 0; i < count; i++)
        *sum += EXP(logits[i] - *largest);
}

/* Reads points first .. first+count of a level: locations are normalised, pixel centres lie at half numbers. */
static void NAME(read_points)(TAPS *t, const T *locations, const T *logits, int64_t first, int64_t count,
                              int64_t height, int64_t width, T largest, T sum)
{
    for (int64_t k = 0; k < count; k++) {
        t->x[k] = locations[2 * (first + k)] * (T)width - (T)0.5;
        t->y[k] = locations[2 * (first + k) + 1] * (T)height - (T)0.5;
        t->weight[k] = EXP(logits[first + k] - largest) / sum;
    }
}

void NAME(flash_forward)(const flash_arguments *a, const int64_t *shapes, const int64_t *starts, const T *value,
                         const T *vectors, T *output, int threads)
{
    const int64_t step = a->group * a->channels, samples = a->levels * a->points, length = 3 * samples;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (a->batch * a->queries * step >= PARALLEL_FROM)
    for (int64_t query = 0; query < a->batch * a->queries; query++) {
        const T *const rows = value + query / a->queries * a->rows * step;
        TAPS t;
        memset(output + query * step, 0, (size_t)step * sizeof(T));
        for (int64_t g = 0; g < a->group; g++) {
            const T *const locations = vectors + (query * a->group + g) * length, *const logits = locations + 2 * samples;
            T largest, sum;
            NAME(softmax_terms)(logits, samples, &largest, &sum);
            for (int64_t level = 0; level < a->levels; level++)
                for (int64_t point = 0; point < a->points; point += PORTION) {
                    const int64_t height = shapes[2 * level], width = shapes[2 * level + 1];
                    const int64_t count = a->points - point < PORTION ? a->points - point : PORTION;
                    NAME(read_points)(&t, locations, logits, level * a->points + point, count, height, width,
                                      largest, sum);
                    NAME(locate)(&t, count, height, width, step);
                    NAME(add_samples)(output + query * step + g * a->channels,
                                      rows + starts[level] * step + g * a->channels, &t, count, a->channels,
                                      width * step, step);
                }
        }
    }
}

/* value_gradient comes zeroed. The softmax's gradient is p * (gw - sum of p*gw). */
void NAME(flash_backward)(const flash_arguments *a, const int64_t *shapes, const int64_t *starts, const T *value,
                          const T *vectors, const T *gradient, T *value_gradient, T *vector_gradient, int threads)
{
    const int64_t step = a->group * a->channels, samples = a->levels * a->points, length = 3 * samples;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (a->batch * a->queries * step >= PARALLEL_FROM)
    for (int64_t task = 0; task < a->batch * a->group; task++) {
        const int64_t n = task / a->group, g = task % a->group;
        TAPS t;
        T gx[PORTION], gy[PORTION], gw[PORTION];
        for (int64_t q = 0; q < a->queries; q++) {
            const int64_t query = n * a->queries + q, slice = (query * a->group + g) * length;
            const T *const locations = vectors + slice, *const logits = locations + 2 * samples;
            T *const location_gradient = vector_gradient + slice, *const logit_gradient = location_gradient + 2 * samples;
            T largest, sum, mean = 0;
            NAME(softmax_terms)(logits, samples, &largest, &sum);
            for (int64_t level = 0; level < a->levels; level++)
                for (int64_t point = 0; point < a->points; point += PORTION) {
                    const int64_t height = shapes[2 * level], width = shapes[2 * level + 1];
                    const int64_t first = level * a->points + point;
                    const int64_t count = a->points - point < PORTION ? a->points - point : PORTION;
                    const int64_t at = (n * a->rows + starts[level]) * step + g * a->channels;
                    NAME(read_points)(&t, locations, logits, first, count, height, width, largest, sum);
                    NAME(locate)(&t, count, height, width, step);
                    NAME(add_gradients)(value_gradient + at, gx, gy, gw, value + at,
                                        gradient + query * step + g * a->channels, &t, count, a->channels,
                                        width * step, step);
                    for (int64_t k = 0; k < count; k++) {
                        location_gradient[2 * (first + k)] = (T)width * gx[k];
                        location_gradient[2 * (first + k) + 1] = (T)height * gy[k];
                        logit_gradient[first + k] = gw[k];
                        mean += t.weight[k] * gw[k];
                    }
                }
            for (int64_t i = 0; i < samples; i++)
                logit_gradient[i] = EXP(logits[i] - largest) / sum * (logit_gradient[i] - mean);
        }
    }
}

#undef NAME
#undef LANES
#undef VECTOR
#undef TAPS
#undef EACH_CORNER
