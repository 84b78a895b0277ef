/* What cuDLA's API reference says of structures and functions, declared anew for the stand-in; the probe compares it
   with NVIDIA's own header where that can be had. */
#include <stddef.h>
#include <stdint.h>

typedef int cudlaStatus;
typedef void *cudlaDevHandle;
typedef void *cudlaModule;
typedef int cudlaModuleAttributeType;
typedef int cudlaDevAttributeType;
typedef int cudlaTranslateAttributeType;

typedef struct {
    char name[81];
    uint64_t size, n, c, h, w;
    uint8_t dataFormat, dataType, dataCategory, pixelFormat, pixelMapping;
    uint32_t stride[8];
} cudlaModuleTensorDescriptor;

typedef union {
    uint32_t numInputTensors, numOutputTensors;
    cudlaModuleTensorDescriptor *inputTensorDesc, *outputTensorDesc;
} cudlaModuleAttribute;

typedef union {
    uint8_t unifiedAddressingSupported;
    uint32_t deviceVersion;
} cudlaDevAttribute;

typedef struct {
    void *fence;
    int type;
} CudlaFence;

typedef struct {
    const CudlaFence *preFences;
    uint32_t numEvents;
} cudlaWaitEvents;

typedef struct {
    uint64_t *const *devPtrs;
    CudlaFence *eofFences;
    uint32_t numEvents;
} cudlaSignalEvents;

typedef struct {
    cudlaModule moduleHandle;
    uint64_t *const *outputTensor;
    uint32_t numOutputTensors, numInputTensors;
    const uint64_t *const *inputTensor;
    const cudlaWaitEvents *waitEvents;
    cudlaSignalEvents *signalEvents;
} cudlaTask;

typedef union {
    uint64_t csvStreamLength;
    void *csvStreamStats;
} cudlaTranslateCsvAttribute;

typedef struct {
    cudlaStatus (*etiTranslateStats)(cudlaDevHandle, unsigned char *, uint32_t, uint32_t, cudlaTranslateAttributeType,
                                     cudlaTranslateCsvAttribute *);
} cudlaExternalEtbl;
