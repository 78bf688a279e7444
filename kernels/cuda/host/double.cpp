// A test double of the CUDA driver's library: the functions that crates/cuda opens, with the kernels compiled for the
// host inside. It is not CUDA, and says so in its device's name. Signatures and codes are those of NVIDIA's cuda.h.
//
// * Work on a stream is only done when somebody waits for it, so that what is read too early is not there.
// * Memory is filled with rubbish when it is allocated, and what is written beside it is found when somebody waits.
// * It fails by request. Requests stand in its file name, behind "double": libcuda-double.memory=4096.so has 4 KiB.
//
// | request | what happens |
// | --- | --- |
// | no-device | there is none |
// | version=N | the driver's version, for CUDA 12.4: 12040 |
// | capability=N | the device's compute capability, for 9.0: 90 |
// | memory=BYTES | more is not there |
// | launch=N | the launch after the first N fails, and from then on everything |

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

#include "functions.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using CUresult = int;
using CUdeviceptr = unsigned long long;
using Work = std::function<CUresult()>;

namespace {

enum : CUresult {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
};

struct Code {
    CUresult code;
    const char *name, *text;
};

const Code CODES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

struct Stream {
    std::vector<Work> work;
};

struct Event {
    bool is_pending = false;
};

// Bytes on both sides of an allocation that nobody may write.
constexpr size_t GUARD_BYTES = 256;
constexpr unsigned char GUARD = 0xa7, RUBBISH = 0x5c;

std::mutex lock;
bool is_initialized = false;
int contexts = 0;
size_t launches = 0, used_bytes = 0;
// What the first failed launch has left behind.
CUresult sticky = SUCCESS;
std::map<CUdeviceptr, size_t> allocations;
std::map<Stream*, bool> streams;
// How often this thread has made the context current.
thread_local int entered = 0;

// The number of a request, or `otherwise`.
size_t requested(const char* what, size_t otherwise) {
    Dl_info info;
    if (dladdr((void*)&requested, &info) == 0) {
        return otherwise;
    }
    std::string name = info.dli_fname;
    name = name.substr(name.rfind('/') + 1);
    size_t at = name.find(std::string(".") + what);
    if (at == std::string::npos) {
        return otherwise;
    }
    return strtoull(name.c_str() + at + strlen(what) + 2, nullptr, 10);
}

bool is_requested(const char* what) {
    return requested(what, SIZE_MAX) != SIZE_MAX;
}

// What every call finds first.
CUresult state() {
    if (!is_initialized) {
        return NOT_INITIALIZED;
    }
    if (entered == 0 || contexts == 0) {
        return INVALID_CONTEXT;
    }
    return sticky;
}

// Whether these bytes are in one allocation.
bool is_allocated(CUdeviceptr address, size_t bytes) {
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin()) {
        return false;
    }
    auto found = std::prev(next);
    return address + bytes <= found->first + found->second;
}

bool is_guard_intact(CUdeviceptr address, size_t bytes) {
    const unsigned char* from = (const unsigned char*)address;
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (*(from - 1 - i) != GUARD || from[bytes + i] != GUARD) {
            return false;
        }
    }
    return true;
}

CUresult run(Stream* stream) {
    std::vector<Work> work;
    work.swap(stream->work);
    for (const Work& one : work) {
        if (sticky == SUCCESS) {
            sticky = one();
        }
    }
    for (auto [address, bytes] : allocations) {
        if (sticky == SUCCESS && !is_guard_intact(address, bytes)) {
            sticky = ILLEGAL_ADDRESS;
        }
    }
    return sticky;
}

CUresult run_all() {
    for (auto [stream, _] : streams) {
        run(stream);
    }
    return sticky;
}

struct Module {};

} // namespace

EXPORT CUresult cuInit(unsigned) {
    std::lock_guard<std::mutex> guard(lock);
    if (is_requested("no-device")) {
        return NO_DEVICE;
    }
    is_initialized = true;
    return SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
    *version = (int)requested("version", 12090);
    return SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char** name) {
    for (const Code& one : CODES) {
        if (one.code == code) {
            *name = one.name;
            return SUCCESS;
        }
    }
    *name = nullptr;
    return INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char** text) {
    for (const Code& one : CODES) {
        if (one.code == code) {
            *text = one.text;
            return SUCCESS;
        }
    }
    *text = nullptr;
    return INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetCount(int* count) {
    *count = 1;
    return is_initialized ? SUCCESS : NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char* name, int bytes, int) {
    snprintf(name, (size_t)bytes, "test double (no card)");
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, int) {
    int capability = (int)requested("capability", 90);
    switch (attribute) {
    case 75:
        *value = capability / 10;
        return SUCCESS;
    case 76:
        *value = capability % 10;
        return SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void** context, int) {
    std::lock_guard<std::mutex> guard(lock);
    contexts++;
    *context = &contexts;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(int) {
    std::lock_guard<std::mutex> guard(lock);
    contexts--;
    return contexts < 0 ? INVALID_CONTEXT : SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(void* context) {
    if (context != &contexts) {
        return INVALID_CONTEXT;
    }
    entered++;
    return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(void** context) {
    if (entered == 0) {
        return INVALID_CONTEXT;
    }
    entered--;
    *context = &contexts;
    return SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
    std::lock_guard<std::mutex> guard(lock);
    *total = requested("memory", (size_t)1 << 32);
    *available = *total - used_bytes;
    return state();
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    if (CUresult code = state()) {
        return code;
    }
    if (bytes == 0) {
        return INVALID_VALUE;
    }
    if (bytes > requested("memory", (size_t)1 << 32) - used_bytes) {
        return OUT_OF_MEMORY;
    }
    size_t whole = (bytes + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES + 2 * GUARD_BYTES;
    unsigned char* memory = (unsigned char*)aligned_alloc(GUARD_BYTES, whole);
    if (memory == nullptr) {
        return OUT_OF_MEMORY;
    }
    memset(memory, GUARD, bytes + 2 * GUARD_BYTES);
    memset(memory + GUARD_BYTES, RUBBISH, bytes);
    *address = (CUdeviceptr)(memory + GUARD_BYTES);
    allocations[*address] = bytes;
    used_bytes += bytes;
    return SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    std::lock_guard<std::mutex> guard(lock);
    run_all();
    auto found = allocations.find(address);
    if (found == allocations.end()) {
        return INVALID_VALUE;
    }
    used_bytes -= found->second;
    free((void*)(address - GUARD_BYTES));
    allocations.erase(found);
    return sticky;
}

// What an address is: memory of the first device, or none, which is no error.
EXPORT CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr address) {
    std::lock_guard<std::mutex> guard(lock);
    for (unsigned i = 0; i < count; i++) {
        bool is_known = is_allocated(address, 0);
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CU_MEMORYTYPE_DEVICE. CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.
        if (attributes[i] == 2) {
            *(int*)values[i] = is_known ? 2 : 0;
        } else if (attributes[i] == 9) {
            *(int*)values[i] = is_known ? 0 : -2;
        } else {
            return INVALID_VALUE;
        }
    }
    return SUCCESS;
}

static CUresult enqueue(void* stream, Work work) {
    if (CUresult code = state()) {
        return code;
    }
    auto found = streams.find((Stream*)stream);
    if (found == streams.end()) {
        return INVALID_HANDLE;
    }
    found->first->work.push_back(std::move(work));
    return SUCCESS;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    if (!is_allocated(to, bytes)) {
        return INVALID_VALUE;
    }
    // Memory that is not pinned is read before the call returns.
    std::string copy((const char*)from, bytes);
    return enqueue(stream, [to, copy] {
        memcpy((void*)to, copy.data(), copy.size());
        return SUCCESS;
    });
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    if (!is_allocated(from, bytes)) {
        return INVALID_VALUE;
    }
    return enqueue(stream, [to, from, bytes] {
        memcpy(to, (const void*)from, bytes);
        return SUCCESS;
    });
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    if (!is_allocated(from, bytes) || !is_allocated(to, bytes)) {
        return INVALID_VALUE;
    }
    return enqueue(stream, [to, from, bytes] {
        memmove((void*)to, (const void*)from, bytes);
        return SUCCESS;
    });
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned word, size_t words, void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    if (!is_allocated(to, 4 * words)) {
        return INVALID_VALUE;
    }
    return enqueue(stream, [to, word, words] {
        for (size_t i = 0; i < words; i++) {
            ((unsigned*)to)[i] = word;
        }
        return SUCCESS;
    });
}

EXPORT CUresult cuStreamCreate(void** stream, unsigned) {
    std::lock_guard<std::mutex> guard(lock);
    if (CUresult code = state()) {
        return code;
    }
    Stream* made = new Stream;
    streams[made] = true;
    *stream = made;
    return SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    if (CUresult code = state()) {
        return code;
    }
    return streams.count((Stream*)stream) == 0 ? INVALID_HANDLE : run((Stream*)stream);
}

EXPORT CUresult cuStreamDestroy_v2(void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    if (streams.count((Stream*)stream) == 0) {
        return INVALID_HANDLE;
    }
    run((Stream*)stream);
    streams.erase((Stream*)stream);
    delete (Stream*)stream;
    return sticky;
}

EXPORT CUresult cuStreamGetCtx(void* stream, void** context) {
    std::lock_guard<std::mutex> guard(lock);
    *context = &contexts;
    return streams.count((Stream*)stream) == 0 ? INVALID_HANDLE : SUCCESS;
}

// It has no graphs.
EXPORT CUresult cuStreamIsCapturing(void* stream, int* status) {
    std::lock_guard<std::mutex> guard(lock);
    *status = 0;
    return streams.count((Stream*)stream) == 0 ? INVALID_HANDLE : SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
    thread_local int own = 0;
    int before = own;
    own = *mode;
    *mode = before;
    return SUCCESS;
}

EXPORT CUresult cuEventCreate(void** event, unsigned) {
    *event = new Event;
    return SUCCESS;
}

EXPORT CUresult cuEventRecord(void* event, void* stream) {
    std::lock_guard<std::mutex> guard(lock);
    CUresult code = enqueue(stream, [event] {
        ((Event*)event)->is_pending = false;
        return SUCCESS;
    });
    ((Event*)event)->is_pending = code == SUCCESS;
    return code;
}

EXPORT CUresult cuEventQuery(void* event) {
    std::lock_guard<std::mutex> guard(lock);
    if (CUresult code = state()) {
        return code;
    }
    return ((Event*)event)->is_pending ? NOT_READY : SUCCESS;
}

EXPORT CUresult cuEventSynchronize(void*) {
    std::lock_guard<std::mutex> guard(lock);
    return run_all();
}

// It has no clock: times of a double mean nothing.
EXPORT CUresult cuEventElapsedTime(float* milliseconds, void*, void*) {
    *milliseconds = 0.0f;
    return SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(void* event) {
    std::lock_guard<std::mutex> guard(lock);
    // What is recorded writes to it.
    run_all();
    delete (Event*)event;
    return SUCCESS;
}

// Takes a cubin, PTX or the words "test double", and has its own kernels whatever is in it.
EXPORT CUresult cuModuleLoadData(void** module, const void* image) {
    std::lock_guard<std::mutex> guard(lock);
    if (CUresult code = state()) {
        return code;
    }
    const char* text = (const char*)image;
    bool is_known = memcmp(text, "\x7f" "ELF", 4) == 0 || strstr(text, ".version") != nullptr;
    if (!is_known && strncmp(text, "test double", 11) != 0) {
        return INVALID_IMAGE;
    }
    *module = new Module;
    return SUCCESS;
}

EXPORT CUresult cuModuleUnload(void* module) {
    delete (Module*)module;
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(void** function, void*, const char* name) {
    for (Function& one : FUNCTIONS) {
        if (strcmp(one.name, name) == 0) {
            *function = &one;
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

EXPORT CUresult cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned, void* stream, void** arguments,
                               void** extra) {
    std::lock_guard<std::mutex> guard(lock);
    if (grid_x == 0 || grid_x > 0x7fffffff || grid_y * grid_z * block_y * block_z != 1 || block_x != THREADS ||
        extra != nullptr) {
        return INVALID_VALUE;
    }
    if (launches++ == requested("launch", SIZE_MAX)) {
        return enqueue(stream, [] { return LAUNCH_FAILED; });
    }
    Launch launch = ((Function*)function)->bind(arguments);
    for (const void* pointer : launch.pointers) {
        // Whatever is not there has a null pointer.
        if (pointer != nullptr && !is_allocated((CUdeviceptr)pointer, 0)) {
            return enqueue(stream, [] { return ILLEGAL_ADDRESS; });
        }
    }
    return enqueue(stream, [body = launch.body, grid_x] {
        for (blockIdx.x = 0; blockIdx.x < grid_x; blockIdx.x++) {
            for (unsigned first = 0; first < THREADS; first += Warp::THREADS) {
                warp.run(body, first);
            }
        }
        return SUCCESS;
    });
}
