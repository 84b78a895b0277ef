/* A stand-in for libcudla.so.1 for tests of our plumbing. It checks the order and the arguments of the calls as the API
   reference prescribes them for hybrid mode, and computes max(x, 0) on INT8, byte by byte. Its "loadable" is a text:
   one line a tensor, `in|out|stat NAME SIZE N C H W FORMAT TYPE CATEGORY`. It is no DLA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef REAL_HEADER
#include REAL_HEADER
#include REAL_TABLE
#else
#include "cudla_declarations.h"
#endif

#define MOST 16
enum { OK = 0, INVALID_PARAM = 1, OUT_OF_RESOURCES = 2, INVALID_ADDRESS = 4, UMD = 7, INVALID_DEVICE = 8, UNSUPPORTED = 13 };

static cudlaModuleTensorDescriptor tensors[3][MOST];
static unsigned counts[3];
static struct { const uint64_t *memory; size_t size; uint32_t flags; int live; } registered[3 * MOST];
static int device_token, module_token, device_live, module_live, submitted, fail_submit;
static long violations;
static uint64_t handles[3 * MOST];

long standin_violations(void) { return violations; }
long standin_live(void) {
    long live = device_live + module_live;
    for (int i = 0; i < 3 * MOST; i++) live += registered[i].live;
    return live;
}
long standin_submitted(void) { return submitted; }
void standin_fail_submit(int status) { fail_submit = status; }

static int violated(const char *what) {
    fprintf(stderr, "stand-in for cuDLA: %s\n", what);
    violations++;
    return INVALID_PARAM;
}

cudlaStatus cudlaGetVersion(uint64_t *const version) { *version = 1005002; return OK; }
cudlaStatus cudlaDeviceGetCount(uint64_t *const count) { *count = 2; return OK; }

cudlaStatus cudlaCreateDevice(uint64_t const device, cudlaDevHandle *const handle, uint32_t const flags) {
    if (device > 1 || flags != 0) return violated("device or mode");
    if (device_live++) return violated("a second device");
    *handle = (cudlaDevHandle)&device_token;
    return OK;
}

cudlaStatus cudlaDestroyDevice(cudlaDevHandle const handle) {
    if (handle != (cudlaDevHandle)&device_token || !device_live) return violated("destroy of no device");
    if (module_live) violated("destroyed with a module");
    device_live = 0;
    return OK;
}

cudlaStatus cudlaModuleLoadFromMemory(cudlaDevHandle const handle, const uint8_t *const module, size_t const size,
                              cudlaModule *const out, uint32_t const flags) {
    static const char *const kinds[] = {"in", "out", "stat"};
    if (handle != (cudlaDevHandle)&device_token || flags) return violated("load");
    char *text = calloc(1, size + 1);
    memcpy(text, module, size);
    memset(counts, 0, sizeof counts);
    memset(tensors, 0, sizeof tensors);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char kind[8], name[81];
        unsigned long size_, n, c, h, w;
        unsigned format, type, category;
        if (sscanf(line, "%7s %80s %lu %lu %lu %lu %lu %u %u %u", kind, name, &size_, &n, &c, &h, &w, &format, &type,
                   &category) != 10) {
            free(text);
            return UMD;
        }
        for (int k = 0; k < 3; k++) {
            if (strcmp(kind, kinds[k]) || counts[k] == MOST) continue;
            cudlaModuleTensorDescriptor *t = &tensors[k][counts[k]++];
            strcpy(t->name, name);
            t->size = size_; t->n = n; t->c = c; t->h = h; t->w = w;
            t->dataFormat = format; t->dataType = type; t->dataCategory = category;
            t->stride[0] = 1;
        }
    }
    free(text);
    module_live = 1;
    *out = (cudlaModule)&module_token;
    return OK;
}

cudlaStatus cudlaModuleGetAttributes(cudlaModule const module, cudlaModuleAttributeType const what,
                             cudlaModuleAttribute *const answer) {
    if (module != (cudlaModule)&module_token || !module_live) return violated("attributes of no module");
    switch ((int)what) {
        case 0: answer->numInputTensors = counts[0]; return OK;
        case 1: answer->numOutputTensors = counts[1]; return OK;
        case 4: answer->numOutputTensors = counts[2]; return OK;
        case 2: memcpy(answer->inputTensorDesc, tensors[0], counts[0] * sizeof tensors[0][0]); return OK;
        case 3: memcpy(answer->outputTensorDesc, tensors[1], counts[1] * sizeof tensors[0][0]); return OK;
        case 5: memcpy(answer->outputTensorDesc, tensors[2], counts[2] * sizeof tensors[0][0]); return OK;
    }
    return violated("unknown attribute");
}

cudlaStatus cudlaModuleUnload(cudlaModule const module, uint32_t const flags) {
    if (module != (cudlaModule)&module_token || !module_live || flags) return violated("unload");
    module_live = 0;
    return OK;
}

cudlaStatus cudlaMemRegister(cudlaDevHandle const handle, const uint64_t *const memory, size_t const size, uint64_t **const out,
                     uint32_t const flags) {
    if (handle != (cudlaDevHandle)&device_token || (flags & ~2u)) return violated("register");
    if ((uintptr_t)memory & 31) return violated("memory that is not aligned by 32 bytes");
    for (int i = 0; i < 3 * MOST; i++) {
        if (registered[i].live) continue;
        registered[i].memory = memory; registered[i].size = size; registered[i].flags = flags; registered[i].live = 1;
        *out = &handles[i];
        return OK;
    }
    return OUT_OF_RESOURCES;
}

cudlaStatus cudlaMemUnregister(cudlaDevHandle const handle, const uint64_t *const mapped) {
    long i = mapped - handles;
    if (handle != (cudlaDevHandle)&device_token || i < 0 || i >= 3 * MOST || !registered[i].live)
        return violated("unregister of what is not registered");
    registered[i].live = 0;
    return OK;
}

static int place(const uint64_t *mapped, size_t size, uint32_t flags) {
    long i = mapped - handles;
    if (i < 0 || i >= 3 * MOST || !registered[i].live || registered[i].size < size || registered[i].flags != flags) return -1;
    return (int)i;
}

cudlaStatus cudlaSubmitTask(cudlaDevHandle const handle, const cudlaTask *const tasks, uint32_t const number, void *const stream,
                    uint32_t const flags) {
    if (handle != (cudlaDevHandle)&device_token || number != 1 || flags) return violated("submit");
    if (!stream) return violated("no stream in hybrid mode");
    if (tasks->waitEvents || tasks->signalEvents) { violated("events in hybrid mode"); return UNSUPPORTED; }
    if (tasks->moduleHandle != (cudlaModule)&module_token || tasks->numInputTensors != counts[0]) return violated("task");
    if (tasks->numOutputTensors != counts[1] && tasks->numOutputTensors != counts[1] + counts[2])
        return violated("number of outputs");
    if (fail_submit) return fail_submit;
    for (unsigned k = 0; k < tasks->numOutputTensors; k++) {
        int statistic = k >= counts[1];
        size_t size = statistic ? tensors[2][k - counts[1]].size : tensors[1][k].size;
        int to = place(tasks->outputTensor[k], size, statistic ? 2 : 0);
        if (to < 0) { violated("output that is not registered"); return INVALID_ADDRESS; }
        signed char *target = (signed char *)registered[to].memory;
        if (statistic) { memset(target, 'S', size); continue; }
        int from = place(tasks->inputTensor[k % counts[0]], size, 0);
        if (from < 0) { violated("input that is not registered"); return INVALID_ADDRESS; }
        const signed char *source = (const signed char *)registered[from].memory;
        for (size_t i = 0; i < size; i++) target[i] = source[i] > 0 ? source[i] : 0;
    }
    submitted++;
    return OK;
}

cudlaStatus cudlaDeviceGetAttribute(cudlaDevHandle const handle, cudlaDevAttributeType const what, cudlaDevAttribute *const answer) {
    if (handle != (cudlaDevHandle)&device_token) return INVALID_DEVICE;
    if (what == 1) answer->deviceVersion = 2; else answer->unifiedAddressingSupported = 1;
    return OK;
}

cudlaStatus cudlaGetLastError(cudlaDevHandle const handle) { return handle == (cudlaDevHandle)&device_token ? OK : INVALID_DEVICE; }

static const char CSV[] = "layer_name,start_ms,end_ms\n'relu',0.0,0.5\n";

static cudlaStatus translate(cudlaDevHandle const handle, unsigned char *input, uint32_t const frequency, uint32_t index,
                             cudlaTranslateAttributeType const what, cudlaTranslateCsvAttribute *const answer) {
    if (handle != (cudlaDevHandle)&device_token || !frequency || index >= counts[2] || input[0] != 'S') {
        violated("translation");
        return INVALID_PARAM;
    }
    if (what == 0) answer->csvStreamLength = sizeof CSV - 1;
    else memcpy(answer->csvStreamStats, CSV, sizeof CSV - 1);
    return OK;
}

cudlaStatus cudlaGetExternalExportTable(const cudlaExternalEtbl **const table, uint32_t const flags) {
    static cudlaExternalEtbl functions = {.etiTranslateStats = translate};
    if (flags) return violated("export table");
    *table = &functions;
    return OK;
}
