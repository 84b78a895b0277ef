/* DCNv4 and FlashDeformAttn on a CPU, forward and backward, in float and double.
 *
 * Plain C11 with GCC's vector extension (GCC and Clang, any architecture). Tensors are contiguous; value is
 * channels last. All arithmetic is done in the element type; half types are converted by the caller.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Taps are located in portions of this many, so that the arrays stay on the stack and in vector registers. */
#define PORTION 16

/* Below this many output elements a second thread costs more than it saves. */
#define PARALLEL_FROM 4096

enum { TOP = 1, BOTTOM = 2, LEFT = 4, RIGHT = 8, WHOLE = 15 };

typedef struct {
    int64_t batch, height, width, rows, columns, offset_width; /* N, H, W, Ho, Wo, P */
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int64_t group, group_channels, remove_center;
    double offset_scale;
} dcnv4_arguments;

typedef struct {
    int64_t batch, rows, queries, group, channels, levels, points; /* B, N, Q, G, D, L, K */
} flash_arguments;

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#define T float
#define SUFFIX f32
#define FLOOR floorf
#define EXP expf
#include "deform_type.h"
#undef T
#undef SUFFIX
#undef FLOOR
#undef EXP

#define T double
#define SUFFIX f64
#define FLOOR floor
#define EXP exp
#include "deform_type.h"
