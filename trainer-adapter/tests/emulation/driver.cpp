// libcuda, libnvrtc and libcublas as far as the CUDA device calls them, over ordinary memory and the same kernels.
//
// Manners of the real ones that the device has to cope with:
// - nothing that is given to a stream happens before somebody waits for it or asks for it, and then only what has to;
// - host memory that the driver does not know is read when the call is made, pinned memory when the copy happens;
// - new memory holds garbage (not-a-number, read as f32), and writing outside of an allocation aborts when it is freed;
// - a call on a thread without a context, and every call on a broken one, is refused.
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "threads.h"

#include "kernels.cu"

namespace emulation {

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_SUPPORTED = 801 };

struct Context {
    int device;
    bool broken = false;
};

struct Stream {
    Context* context;
    std::deque<std::function<void()>> queue;
    uint64_t queued = 0, done = 0;

    void give(std::function<void()> work) {
        queue.push_back(std::move(work));
        ++queued;
    }

    void advance(uint64_t until) {
        while (done < until) {
            auto work = std::move(queue.front());
            queue.pop_front();
            work();
            ++done;
        }
    }
};

struct Event {
    std::shared_ptr<Stream> stream;
    uint64_t position = 0;
};

struct Kernel {
    std::vector<size_t> sizes;
    std::function<void(void**)> run;
};

template <class... Arguments, size_t... Places>
void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<Places...>) {
    kernel(*(Arguments*)arguments[Places]...);
}

template <class... Arguments>
Kernel described(void (*kernel)(Arguments...)) {
    return {{sizeof(Arguments)...}, [kernel](void** arguments) { call(kernel, arguments, std::index_sequence_for<Arguments...>{}); }};
}

std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all = {
#define KERNEL(name) {#name, described(name)},
#include "names.inc"
    };
    return all;
}

std::recursive_mutex lock;
thread_local Context* bound = nullptr;
Context contexts[3] = {{0}, {1}, {2}};
// Which devices this process sees, in which order: what CUDA_VISIBLE_DEVICES does.
std::vector<int> visible = {0, 1, 2};
std::map<uint64_t, size_t> pinned;
std::set<uint64_t> registered;
constexpr size_t GUARD = 64;
constexpr unsigned char GUARD_BYTE = 0x5A;
uint64_t launches = 0;

int state() { return bound == nullptr ? INVALID_CONTEXT : bound->broken ? ILLEGAL_ADDRESS : SUCCESS; }

bool is_pinned(const void* place) {
    auto after = pinned.upper_bound((uint64_t)place);
    return after != pinned.begin() && (--after, (uint64_t)place < after->first + after->second);
}

void check_guards(const char* base, size_t bytes) {
    for (size_t index = 0; index < GUARD; ++index) {
        if ((unsigned char)base[index] != GUARD_BYTE || (unsigned char)base[GUARD + bytes + index] != GUARD_BYTE) {
            fprintf(stderr, "emulation: something wrote outside of an allocation of %zu bytes\n", bytes);
            abort();
        }
    }
}

std::map<uint64_t, size_t> allocated;

Stream& of(void* stream) { return **(std::shared_ptr<Stream>*)stream; }

}  // namespace emulation

using namespace emulation;

#define CALL extern "C" int
#define GUARDED                                          \
    std::lock_guard<std::recursive_mutex> guard(lock);   \
    if (int refused = state()) return refused;

// For tests: the order in which devices are seen, and a context that fails from now on.
CALL emulation_show(const int* devices, int count) {
    visible.assign(devices, devices + count);
    return SUCCESS;
}
CALL emulation_break(int ordinal) {
    contexts[visible[ordinal]].broken = true;
    return SUCCESS;
}

CALL cuInit(unsigned) { return visible.empty() ? NO_DEVICE : SUCCESS; }
CALL cuGetErrorName(int code, const char** name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_EMULATION";
    return SUCCESS;
}
CALL cuDeviceGetCount(int* count) {
    *count = (int)visible.size();
    return SUCCESS;
}
CALL cuDeviceGet(int* device, int ordinal) {
    if (ordinal < 0 || ordinal >= (int)visible.size()) return INVALID_DEVICE;
    *device = visible[ordinal];
    return SUCCESS;
}
CALL cuDeviceGetUuid_v2(char* uuid, int device) {
    for (int byte = 0; byte < 16; ++byte) uuid[byte] = (char)(0xF0 + 16 * device + byte);
    return SUCCESS;
}
CALL cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, length, "emulated device %d", device);
    return SUCCESS;
}
CALL cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = (size_t)8 << 30;
    return SUCCESS;
}
CALL cuDeviceGetAttribute(int* value, int attribute, int) {
    // Compute capability 9.0, mapping of memory, descriptors of it.
    *value = attribute == 75 ? 9 : attribute == 102 || attribute == 103 ? 1 : 0;
    return SUCCESS;
}
// Devices 0 and 1 have a link between them.
CALL cuDeviceCanAccessPeer(int* can, int own, int other) {
    *can = own < 2 && other < 2;
    return SUCCESS;
}
CALL cuDeviceGetDefaultMemPool(void** pool, int) {
    *pool = &contexts;
    return SUCCESS;
}
CALL cuMemPoolSetAttribute(void*, int attribute, void*) { return attribute == 4 ? SUCCESS : INVALID_VALUE; }
CALL cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = &contexts[device];
    return SUCCESS;
}
CALL cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
CALL cuCtxSetCurrent(void* context) {
    bound = (Context*)context;
    return SUCCESS;
}

CALL cuModuleLoadData(void** module, const void* image) {
    GUARDED
    *module = &kernels();
    return strcmp((const char*)image, "emulated image") == 0 ? SUCCESS : INVALID_VALUE;
}
CALL cuModuleUnload(void*) { return SUCCESS; }
CALL cuModuleGetFunction(void** function, void*, const char* name) {
    GUARDED
    auto found = kernels().find(name);
    if (found == kernels().end()) return NOT_FOUND;
    *function = &found->second;
    return SUCCESS;
}

// For tests: no memory of a device is longer than this.
size_t longest = (size_t)64 << 30;
CALL emulation_longest(size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    longest = bytes;
    return SUCCESS;
}

CALL cuMemAllocAsync(uint64_t* address, size_t bytes, void*) {
    GUARDED
    if (bytes == 0) return INVALID_VALUE;
    char* base = bytes > longest ? nullptr : (char*)malloc(bytes + 2 * GUARD);
    if (base == nullptr) return OUT_OF_MEMORY;
    memset(base, GUARD_BYTE, GUARD);
    memset(base + GUARD, 0xFF, bytes);
    memset(base + GUARD + bytes, GUARD_BYTE, GUARD);
    *address = (uint64_t)(base + GUARD);
    allocated[*address] = bytes;
    return SUCCESS;
}
CALL cuMemFreeAsync(uint64_t address, void* stream) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto found = allocated.find(address);
    if (found == allocated.end()) return INVALID_VALUE;
    size_t bytes = found->second;
    allocated.erase(found);
    of(stream).give([=] {
        char* base = (char*)address - GUARD;
        check_guards(base, bytes);
        free(base);
    });
    return SUCCESS;
}
// Memory that has a descriptor: a memory file. What it holds at first is garbage, as everywhere.
struct Location {
    int type, id;
};
struct Properties {
    int type;
    unsigned handles;
    Location location;
    void* windows;
    unsigned char flags[8];
};
struct Access {
    Location location;
    unsigned flags;
};
struct Physical {
    int file;
    size_t bytes;
};
constexpr size_t GRANULARITY = 64 << 10;
// Mappings, and physical memory that was not released.
std::map<uint64_t, size_t> mapped;
int64_t physical = 0;

static bool is_sound(const Properties* properties) {
    return properties->type == 1 && properties->handles == 1 && properties->location.type == 1 && properties->location.id >= 0 && properties->location.id < 3;
}

CALL cuMemGetAllocationGranularity(size_t* bytes, const Properties* properties, int) {
    *bytes = GRANULARITY;
    return is_sound(properties) ? SUCCESS : INVALID_VALUE;
}
CALL cuMemCreate(uint64_t* handle, size_t bytes, const Properties* properties, unsigned long long flags) {
    GUARDED
    if (!is_sound(properties) || flags != 0 || bytes == 0 || bytes % GRANULARITY != 0) return INVALID_VALUE;
    if (bytes > longest) return OUT_OF_MEMORY;
    int file = memfd_create("emulated device memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0) return OUT_OF_MEMORY;
    void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) return OUT_OF_MEMORY;
    memset(place, 0xFF, bytes);
    munmap(place, bytes);
    ++physical;
    *handle = (uint64_t) new Physical{file, bytes};
    return SUCCESS;
}
CALL cuMemRelease(uint64_t handle) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    --physical;
    close(((Physical*)handle)->file);
    delete (Physical*)handle;
    return SUCCESS;
}
CALL cuMemExportToShareableHandle(void* descriptor, uint64_t handle, int type, unsigned long long flags) {
    GUARDED
    if (type != 1 || flags != 0) return INVALID_VALUE;
    *(int*)descriptor = dup(((Physical*)handle)->file);
    return SUCCESS;
}
CALL cuMemImportFromShareableHandle(uint64_t* handle, void* descriptor, int type) {
    GUARDED
    struct stat file;
    int number = dup((int)(intptr_t)descriptor);
    if (type != 1 || number < 0 || fstat(number, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size == 0) {
        if (number >= 0) close(number);
        return INVALID_VALUE;
    }
    ++physical;
    *handle = (uint64_t) new Physical{number, (size_t)file.st_size};
    return SUCCESS;
}
CALL cuMemAddressReserve(uint64_t* address, size_t bytes, size_t, uint64_t, unsigned long long flags) {
    GUARDED
    if (bytes == 0 || bytes % GRANULARITY != 0 || flags != 0) return INVALID_VALUE;
    void* place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return OUT_OF_MEMORY;
    *address = (uint64_t)place;
    return SUCCESS;
}
CALL cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    GUARDED
    Physical* memory = (Physical*)handle;
    if (offset != 0 || flags != 0 || bytes > memory->bytes) return INVALID_VALUE;
    if (mmap((void*)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0) == MAP_FAILED) return INVALID_VALUE;
    mapped[address] = bytes;
    return SUCCESS;
}
// Memory to be read alone is refused, as some drivers do.
CALL cuMemSetAccess(uint64_t address, size_t bytes, const Access* access, size_t count) {
    GUARDED
    if (count != 1 || access->location.type != 1 || access->flags != 3 || mapped[address] != bytes) return INVALID_VALUE;
    return mprotect((void*)address, bytes, PROT_READ | PROT_WRITE) == 0 ? SUCCESS : INVALID_VALUE;
}
CALL cuMemUnmap(uint64_t address, size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (mapped[address] != bytes) return INVALID_VALUE;
    mapped.erase(address);
    mmap((void*)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return SUCCESS;
}
CALL cuMemAddressFree(uint64_t address, size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return munmap((void*)address, bytes) == 0 ? SUCCESS : INVALID_VALUE;
}
// For tests: what was not given back.
CALL emulation_shared_memories() { return (int)(physical + mapped.size()); }

// For tests: no pinned memory of the host is longer than this.
size_t longest_pinned = (size_t)64 << 30;
CALL emulation_longest_pinned(size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    longest_pinned = bytes;
    return SUCCESS;
}

CALL cuMemHostAlloc(void** place, size_t bytes, unsigned flags) {
    GUARDED
    // Write-combined memory (4) is for nobody who reads.
    if (bytes == 0 || (flags & 4) != 0) return INVALID_VALUE;
    *place = bytes > longest_pinned ? nullptr : malloc(bytes);
    if (*place == nullptr) return OUT_OF_MEMORY;
    memset(*place, 0xFF, bytes);
    pinned[(uint64_t)*place] = bytes;
    return SUCCESS;
}
CALL cuMemFreeHost(void* place) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (pinned.erase((uint64_t)place) == 0) return INVALID_VALUE;
    free(place);
    return SUCCESS;
}
CALL cuMemHostRegister_v2(void* place, size_t bytes, unsigned flags) {
    GUARDED
    if (bytes == 0) return INVALID_VALUE;
    // Memory that may be read alone (8) cannot be pinned by every driver; not by this one.
    if ((flags & 8) != 0) return NOT_SUPPORTED;
    if (is_pinned(place) || is_pinned((char*)place + bytes - 1)) return ALREADY_REGISTERED;
    pinned[(uint64_t)place] = bytes;
    registered.insert((uint64_t)place);
    return SUCCESS;
}
CALL cuMemHostUnregister(void* place) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (registered.erase((uint64_t)place) == 0) return NOT_REGISTERED;
    pinned.erase((uint64_t)place);
    return SUCCESS;
}
CALL cuPointerGetAttribute(void* value, int attribute, uint64_t place) {
    GUARDED
    if (attribute != 2 || !is_pinned((void*)place)) return INVALID_VALUE;
    *(unsigned*)value = 1;
    return SUCCESS;
}

CALL cuMemcpyHtoDAsync_v2(uint64_t target, const void* source, size_t bytes, void* stream) {
    GUARDED
    if (is_pinned(source)) {
        of(stream).give([=] { memcpy((void*)target, source, bytes); });
        return SUCCESS;
    }
    std::string staged((const char*)source, bytes);
    of(stream).give([target, staged] { memcpy((void*)target, staged.data(), staged.size()); });
    return SUCCESS;
}
// For tests: what is called in the middle of the next copy to the host.
void (*in_copy)() = nullptr;
CALL emulation_in_copy(void (*called)()) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    in_copy = called;
    return SUCCESS;
}
CALL cuMemcpyDtoHAsync_v2(void* target, uint64_t source, size_t bytes, void* stream) {
    GUARDED
    if (auto called = std::exchange(in_copy, nullptr)) called();
    of(stream).give([=] { memcpy(target, (const void*)source, bytes); });
    return SUCCESS;
}
CALL cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t bytes, void* stream) {
    GUARDED
    of(stream).give([=] { memmove((void*)target, (const void*)source, bytes); });
    return SUCCESS;
}
CALL cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void* stream) {
    GUARDED
    of(stream).give([=] { memset((void*)address, value, bytes); });
    return SUCCESS;
}

// For tests: so many of the next streams and events are refused.
int handles_refused = 0;
CALL emulation_refuse_handles(int count) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    handles_refused = count;
    return SUCCESS;
}

CALL cuStreamCreate(void** stream, unsigned) {
    GUARDED
    if (handles_refused > 0) return --handles_refused, OUT_OF_MEMORY;
    *stream = new std::shared_ptr<Stream>(new Stream{bound});
    return SUCCESS;
}
CALL cuStreamDestroy_v2(void* stream) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    of(stream).advance(of(stream).queued);
    delete (std::shared_ptr<Stream>*)stream;
    return SUCCESS;
}
CALL cuStreamSynchronize(void* stream) {
    GUARDED
    of(stream).advance(of(stream).queued);
    return SUCCESS;
}
CALL cuStreamWaitEvent(void* stream, void* event, unsigned) {
    GUARDED
    Event before = *(Event*)event;
    of(stream).give([before] {
        if (before.stream) before.stream->advance(before.position);
    });
    return SUCCESS;
}
CALL cuEventCreate(void** event, unsigned) {
    GUARDED
    if (handles_refused > 0) return --handles_refused, OUT_OF_MEMORY;
    *event = new Event();
    return SUCCESS;
}
CALL cuEventRecord(void* event, void* stream) {
    GUARDED
    *(Event*)event = {*(std::shared_ptr<Stream>*)stream, of(stream).queued};
    return SUCCESS;
}
CALL cuEventQuery(void* event) {
    GUARDED
    Event& place = *(Event*)event;
    if (!place.stream || place.stream->done >= place.position) return SUCCESS;
    place.stream->advance(place.stream->done + 1);
    return NOT_READY;
}
CALL cuEventSynchronize(void* event) {
    GUARDED
    Event& place = *(Event*)event;
    if (place.stream) place.stream->advance(place.position);
    return SUCCESS;
}
CALL cuEventDestroy_v2(void* event) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    delete (Event*)event;
    return SUCCESS;
}

CALL cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** parameters, void** extra) {
    GUARDED
    if (x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || threads == 0 || threads > BLOCK_THREADS_MAX) return INVALID_VALUE;
    if (threads_y != 1 || threads_z != 1 || shared != 0 || extra != nullptr) return INVALID_VALUE;
    const Kernel& kernel = *(Kernel*)function;
    std::vector<std::vector<char>> values;
    for (size_t index = 0; index < kernel.sizes.size(); ++index) {
        char* value = (char*)parameters[index];
        values.emplace_back(value, value + kernel.sizes[index]);
    }
    ++launches;
    of(stream).give([&kernel, values, x, y, z, threads]() mutable {
        std::vector<void*> places;
        for (auto& value : values) places.push_back(value.data());
        run_grid({x, y, z}, threads, [&] { kernel.run(places.data()); });
    });
    return SUCCESS;
}

CALL nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}
CALL nvrtcCreateProgram(void** program, const char*, const char*, int, const char**, const char**) {
    *program = &contexts;
    return SUCCESS;
}
CALL nvrtcCompileProgram(void*, int, const char**) { return SUCCESS; }
CALL nvrtcDestroyProgram(void**) { return SUCCESS; }
CALL nvrtcGetProgramLogSize(void*, size_t* bytes) {
    *bytes = 1;
    return SUCCESS;
}
CALL nvrtcGetProgramLog(void*, char* log) {
    *log = 0;
    return SUCCESS;
}
CALL nvrtcGetCUBINSize(void*, size_t* bytes) {
    *bytes = sizeof "emulated image";
    return SUCCESS;
}
CALL nvrtcGetCUBIN(void*, char* image) {
    strcpy(image, "emulated image");
    return SUCCESS;
}

struct Blas {
    Context* context;
    void* stream;
};

static int blas_handles = 0;

CALL cublasCreate_v2(void** handle) {
    GUARDED
    *handle = new Blas{bound, nullptr};
    ++blas_handles;
    return SUCCESS;
}
// What a handle has of the device is freed in the context that is bound.
CALL cublasDestroy_v2(void* handle) {
    GUARDED
    if (((Blas*)handle)->context != bound) return INVALID_CONTEXT;
    delete (Blas*)handle;
    --blas_handles;
    return SUCCESS;
}
// For tests: handles that were not destroyed.
CALL emulation_blas_handles() { return blas_handles; }
CALL cublasSetStream_v2(void* handle, void* stream) {
    ((Blas*)handle)->stream = stream;
    return SUCCESS;
}

// A value of a column-major matrix; type 0 is f32, 14 bfloat16.
static float element(const void* matrix, int type, int64_t row, int64_t column, int64_t leading) {
    int64_t place = row + column * leading;
    return type == 14 ? __uint_as_float((unsigned)((const unsigned short*)matrix)[place] << 16) : ((const float*)matrix)[place];
}

// C = alpha op(A) op(B) + beta C, column-major, as cuBLAS documents it. A beta of 0 does not read C.
CALL cublasGemmEx(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute, int) {
    GUARDED
    bool types = (a_type == 0 || a_type == 14) && b_type == a_type && c_type == 0 && compute == 68;
    bool leading = lda >= std::max(1, transpose_a ? k : m) && ldb >= std::max(1, transpose_b ? n : k) && ldc >= std::max(1, m);
    if (!types || !leading || m < 0 || n < 0 || k < 0) return 7;
    float scale = *(const float*)alpha, keep = *(const float*)beta;
    of(((Blas*)handle)->stream).give([=] {
        // One column of C at a time: its sums run over l in its order, side by side.
        std::vector<float> left((size_t)k * m), sums(m);
        for (int l = 0; l < k; ++l)
            for (int i = 0; i < m; ++i) left[(size_t)l * m + i] = transpose_a ? element(a, a_type, l, i, lda) : element(a, a_type, i, l, lda);
        for (int j = 0; j < n; ++j) {
            std::fill(sums.begin(), sums.end(), 0.0f);
            for (int l = 0; l < k; ++l) {
                float right = transpose_b ? element(b, b_type, j, l, ldb) : element(b, b_type, l, j, ldb);
                for (int i = 0; i < m; ++i) sums[i] += left[(size_t)l * m + i] * right;
            }
            float* into = (float*)c + (int64_t)j * ldc;
            for (int i = 0; i < m; ++i) into[i] = scale * sums[i] + (keep == 0.0f ? 0.0f : keep * into[i]);
        }
    });
    return SUCCESS;
}
