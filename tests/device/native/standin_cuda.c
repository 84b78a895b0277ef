/* A stand-in for libcuda.so.1 for tests of our plumbing: device memory is host memory, streams do everything at once.
   Signatures after the CUDA Driver API reference. It counts what was not given back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };
static long live_memory, live_streams, live_events, contexts, bad_calls;
static int stream_token, context_token, current;

long standin_live(void) { return live_memory + live_streams + live_events + contexts; }
long standin_bad_calls(void) { return bad_calls; }
static int bad(void) { bad_calls++; return INVALID_VALUE; }

int cuInit(unsigned flags) { return flags ? bad() : SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal ? bad() : SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    if (device != 7) return bad();
    strncpy(name, "stand-in device", length);
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (device != 7) return bad();
    contexts++;
    *context = &context_token;
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) { contexts--; return device == 7 ? SUCCESS : bad(); }
int cuCtxSetCurrent(void *context) { current = context == &context_token; return current ? SUCCESS : bad(); }
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    void *memory = NULL;
    if (!current || !size || posix_memalign(&memory, 256, size)) return OUT_OF_MEMORY;
    memset(memory, 0xA5, size);
    live_memory++;
    *address = (uint64_t)(uintptr_t)memory;
    return SUCCESS;
}
int cuMemFree_v2(uint64_t address) { live_memory--; free((void *)(uintptr_t)address); return SUCCESS; }
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void *stream) {
    if (stream != &stream_token) return bad();
    memset((void *)(uintptr_t)address, value, size);
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    if (stream != &stream_token) return bad();
    memcpy((void *)(uintptr_t)to, from, size);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    if (stream != &stream_token) return bad();
    memcpy(to, (void *)(uintptr_t)from, size);
    return SUCCESS;
}
int cuStreamCreate(void **stream, unsigned flags) { live_streams++; *stream = &stream_token; return flags > 1 ? bad() : SUCCESS; }
int cuStreamSynchronize(void *stream) { return stream == &stream_token ? SUCCESS : bad(); }
int cuStreamDestroy_v2(void *stream) { live_streams--; return stream == &stream_token ? SUCCESS : bad(); }
int cuEventCreate(void **event, unsigned flags) {
    *event = calloc(1, sizeof(struct timespec));
    live_events++;
    return flags ? bad() : SUCCESS;
}
int cuEventRecord(void *event, void *stream) {
    if (stream != &stream_token) return bad();
    clock_gettime(CLOCK_MONOTONIC, event);
    return SUCCESS;
}
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    struct timespec *a = start, *b = end;
    *milliseconds = (float)((b->tv_sec - a->tv_sec) * 1e3 + (b->tv_nsec - a->tv_nsec) * 1e-6);
    return SUCCESS;
}
int cuEventDestroy_v2(void *event) { live_events--; free(event); return SUCCESS; }
int cuGetErrorName(int status, const char **name) {
    *name = status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : status ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_SUCCESS";
    return SUCCESS;
}
