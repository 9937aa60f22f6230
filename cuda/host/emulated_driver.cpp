// A pretend libcuda.so.1, to test what drives a GPU on a machine without one: pycuda's calls work,
// kernels run on the CPU through host_shim, and time is virtual and made up.
//
// Work is queued, as on a GPU: every stream has a thread of its own, so that kernels that wait for
// a peer or for the host really do. A module image is the text HOST_SHIM:path. Every device is named
// EMULATED: no figure of a run counts.
//
// Environment: EMULATED_DEVICES (1), EMULATED_CC (90), EMULATED_SCHEDULE (0, see host_shim.h),
// EMULATED_THROTTLE_EVERY (0; every n-th kernel runs at half the clock).
//
// One calling thread is assumed. Signatures are those of cuda.h with handles as void*; the calls
// that are not here answer NOT_SUPPORTED (host/libcuda.py makes them).
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

enum Result : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  PEER_ACCESS_ALREADY_ENABLED = 704,
  PEER_ACCESS_NOT_ENABLED = 705,
  LAUNCH_FAILED = 719,
};

using Pointer = unsigned long long;
using Task = std::function<Result()>;

constexpr double KERNEL_NS = 5000, COPY_NS = 2000, COPY_BYTES_PER_NS = 50, CLOCK_GHZ = 1.98;
constexpr size_t MEMORY_BYTES = 1ull << 33, PLAIN_SHARED_BYTES = 48 * 1024,
                 SMALL_SHARED_BYTES = 99 * 1024, LARGE_SHARED_BYTES = 227 * 1024;
constexpr int MOST_DEVICES = 8, SMALL_SHARED_CC = 120, POISON = 0xA5;

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}
int device_count() { return std::min(MOST_DEVICES, setting("EMULATED_DEVICES", 1)); }
int compute_capability() { return setting("EMULATED_CC", 90); }
size_t most_shared_bytes() {
  return compute_capability() >= SMALL_SHARED_CC ? SMALL_SHARED_BYTES : LARGE_SHARED_BYTES;
}

// ---- devices and their time ----

class Device {
 public:
  void run_for(double ns, double speed = 1) {
    std::lock_guard<std::mutex> hold(lock_);
    ns_ += ns;
    cycles_ += ns * speed * CLOCK_GHZ;
  }
  // Mostly 5 us, at times 9: some noise, the same in every run.
  void run_kernel() {
    const int every = setting("EMULATED_THROTTLE_EVERY", 0);
    const bool throttled = every && ++kernels_ % every == 0;
    const double ns = KERNEL_NS * (1 + 0.02 * chance()) + (chance() < 0.01 ? 4000 : 0);
    run_for(throttled ? 2 * ns : ns, throttled ? 0.5 : 1);
  }
  double ns() const { return ns_; }
  double cycles() const { return cycles_; }

 private:
  double chance() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) / (1ull << 53);
  }
  std::mutex lock_;
  double ns_ = 1e6, cycles_ = 1e6;
  uint64_t state_ = 88172645463325252ull;
  std::atomic<int> kernels_{0};
};

struct Context {
  int device;
  std::set<const Context*> peers;
};

struct Graph {
  std::vector<Task> nodes;
};

class Stream {
 public:
  explicit Stream(int device) : device(device), worker_([this] { work(); }) {}
  ~Stream() {
    push(nullptr);
    worker_.join();
  }

  void push(Task task) {
    std::lock_guard<std::mutex> hold(lock_);
    queue_.push_back(std::move(task));
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> hold(lock_);
    changed_.wait(hold, [this] { return queue_.empty(); });
  }
  bool is_idle() {
    std::lock_guard<std::mutex> hold(lock_);
    return queue_.empty();
  }

  const int device;
  std::unique_ptr<Graph> capture;

 private:
  // A task leaves the queue when it is done. No task ends the thread.
  void work() {
    while (const Task task = next()) {
      run(task);
      std::lock_guard<std::mutex> hold(lock_);
      queue_.pop_front();
      changed_.notify_all();
    }
  }
  Task next() {
    std::unique_lock<std::mutex> hold(lock_);
    changed_.wait(hold, [this] { return !queue_.empty(); });
    return queue_.front();
  }
  static void run(const Task& task);

  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::thread worker_;
};

enum class Moment { FRESH, PENDING, PAST };

struct Event {
  std::atomic<Moment> moment{Moment::FRESH};
  double ns = 0;

  void wait() const {
    while (moment == Moment::PENDING) std::this_thread::yield();
  }
};

using Entry = int (*)(const int*, size_t, const unsigned char*, int, int);

struct Module {
  void* library;

  template <class Function>
  Function find(const std::string& name) const {
    return reinterpret_cast<Function>(dlsym(library, name.c_str()));
  }
};

struct Kernel {
  Module* module;
  std::string name;
  Entry entry;
  size_t shared_limit = PLAIN_SHARED_BYTES;
};

Device devices[MOST_DEVICES];
std::vector<Context*> context_stack;
std::map<int, Context> primary_contexts;
std::map<Pointer, size_t> allocations;  // of device memory
std::set<Stream*> streams;
std::atomic<int> failure{SUCCESS};  // sticks, as a GPU's does

int current_device() { return context_stack.empty() ? 0 : context_stack.back()->device; }

// ---- queues ----

void Stream::run(const Task& task) {
  if (const Result result = task()) failure = result;
}

// Until the current device has nothing left to do.
int drain() {
  for (Stream* stream : streams)
    if (stream->device == current_device()) stream->wait();
  return failure;
}

int wait_for(void* stream) {
  if (!stream) return drain();
  static_cast<Stream*>(stream)->wait();
  return failure;
}

// The null stream waits for all others of its device, and they for it.
int enqueue(void* handle, Task task) {
  auto* stream = static_cast<Stream*>(handle);
  if (stream && stream->capture) return stream->capture->nodes.push_back(std::move(task)), SUCCESS;
  if (stream) return stream->push(std::move(task)), failure.load();
  if (const int result = drain()) return result;
  if (const Result result = task()) failure = result;
  return failure;
}

// ---- memory ----

// Device memory must belong to one allocation from end to end; host memory is not known here.
bool is_inside_an_allocation(Pointer at, size_t bytes) {
  auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return false;
  const auto& [begin, size] = *--next;
  return at + bytes <= begin + size;
}

Task copy_task(int device, void* to, const void* from, size_t bytes) {
  return [=] {
    std::memcpy(to, from, bytes);
    devices[device].run_for(COPY_NS + bytes / COPY_BYTES_PER_NS);
    return SUCCESS;
  };
}

int copy_now(void* to, const void* from, size_t bytes) {
  if (const int result = drain()) return result;
  return copy_task(current_device(), to, from, bytes)();
}

void* host(Pointer at) { return reinterpret_cast<void*>(at); }

template <class Word>
int fill_later(Pointer at, Word value, size_t count, void* stream) {
  if (!is_inside_an_allocation(at, count * sizeof value)) return INVALID_VALUE;
  const int device = current_device();
  return enqueue(stream, [=] {
    std::fill_n(static_cast<Word*>(host(at)), count, value);
    devices[device].run_for(COPY_NS + count * sizeof value / COPY_BYTES_PER_NS);
    return SUCCESS;
  });
}

// ---- launches ----

struct Arguments {
  const void* buffer = nullptr;
  size_t bytes = 0;
};

// The packed form of cuLaunchKernel: {1, buffer, 2, &size, 0}.
Arguments packed_arguments(void** extra) {
  Arguments found;
  for (; extra && *extra; extra += 2) {
    const auto key = reinterpret_cast<intptr_t>(extra[0]);
    if (key == 1) found.buffer = extra[1];
    if (key == 2) found.bytes = *static_cast<size_t*>(extra[1]);
  }
  return found;
}

Result run_kernel(const Kernel& kernel, const int* sizes, size_t shared,
                  const unsigned char* packed, int device) {
  Device& on = devices[device];
  kernel.module->find<void (*)(uint64_t, uint64_t)>("shim_set_clock")(
      static_cast<uint64_t>(on.ns()), static_cast<uint64_t>(on.cycles()));
  const int result = kernel.entry(sizes, shared, packed, setting("EMULATED_SCHEDULE", 0),
                                  device_count() > 1 ? 1 : 2);
  on.run_kernel();
  if (!result) return SUCCESS;
  std::fprintf(stderr, "emulated driver: kernel %s: %s\n", kernel.name.c_str(),
               kernel.module->find<const char* (*)()>("shim_last_error")());
  return LAUNCH_FAILED;
}

}  // namespace

extern "C" {

// ---- the driver and its devices ----

int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int* count) { return *count = device_count(), SUCCESS; }
int cuDeviceGet(int* device, int number) {
  if (number < 0 || number >= device_count()) return INVALID_DEVICE;
  return *device = number, SUCCESS;
}
int cuDeviceGetName(char* name, int bytes, int) {
  return std::snprintf(name, bytes, "EMULATED (CPU)"), SUCCESS;
}
int cuDeviceGetUuid_v2(char* uuid, int device) {
  std::memset(uuid, 0, 16);
  return uuid[15] = static_cast<char>(device), SUCCESS;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = MEMORY_BYTES, SUCCESS; }
int cuDeviceComputeCapability(int* major, int* minor, int) {
  return *major = compute_capability() / 10, *minor = compute_capability() % 10, SUCCESS;
}
int cuDeviceGetPCIBusId(char* id, int bytes, int device) {
  return std::snprintf(id, bytes, "0000:0%d:00.0", device), SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  static const std::map<int, int> known = {
      {1, 1024},  // threads in a block
      {2, 1024},  // of which along x
      {8, PLAIN_SHARED_BYTES},
      {10, 32},  // lanes of a warp
      {13, static_cast<int>(CLOCK_GHZ * 1e6)},
      {16, 132},      // SMs
      {36, 3201000},  // memory clock, kHz
      {37, 6144},     // memory bus, bits
      {38, 4 << 20},  // L2 bytes: small, so that flushing it is quick
  };
  const auto found = known.find(attribute);
  *value = found == known.end() ? 1 : found->second;
  if (attribute == 75) *value = compute_capability() / 10;
  if (attribute == 76) *value = compute_capability() % 10;
  if (attribute == 97) *value = static_cast<int>(most_shared_bytes());
  return SUCCESS;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) { return *can = device != peer, SUCCESS; }

// ---- contexts ----

int cuCtxCreate_v4(void** context, void*, unsigned, int device) {
  context_stack.push_back(new Context{device, {}});
  return *context = context_stack.back(), SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  Context& primary = primary_contexts[device];
  primary.device = device;
  return *context = &primary, SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
int cuCtxDestroy_v2(void* context) {
  drain();
  if (!context_stack.empty() && context_stack.back() == context) context_stack.pop_back();
  return SUCCESS;
}
int cuCtxDetach(void* context) { return cuCtxDestroy_v2(context); }
int cuCtxPushCurrent_v2(void* context) {
  return context_stack.push_back(static_cast<Context*>(context)), SUCCESS;
}
int cuCtxPopCurrent_v2(void** context) {
  if (context_stack.empty()) return INVALID_CONTEXT;
  if (context) *context = context_stack.back();
  return context_stack.pop_back(), SUCCESS;
}
int cuCtxGetCurrent(void** context) {
  return *context = context_stack.empty() ? nullptr : context_stack.back(), SUCCESS;
}
int cuCtxGetDevice(int* device) {
  if (context_stack.empty()) return INVALID_CONTEXT;
  return *device = current_device(), SUCCESS;
}
int cuCtxGetApiVersion(void*, unsigned* version) { return *version = 13000, SUCCESS; }
int cuCtxSynchronize() { return drain(); }
int cuCtxEnablePeerAccess(void* peer, unsigned) {
  if (context_stack.empty()) return INVALID_CONTEXT;
  const bool added = context_stack.back()->peers.insert(static_cast<Context*>(peer)).second;
  return added ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}
int cuCtxDisablePeerAccess(void* peer) {
  if (context_stack.empty()) return INVALID_CONTEXT;
  return context_stack.back()->peers.erase(static_cast<Context*>(peer)) ? SUCCESS
                                                                        : PEER_ACCESS_NOT_ENABLED;
}

// ---- memory ----

int cuMemAlloc_v2(Pointer* at, size_t bytes) {
  void* memory = nullptr;
  if (!bytes) return INVALID_VALUE;
  if (posix_memalign(&memory, 256, bytes)) return OUT_OF_MEMORY;
  std::memset(memory, POISON, bytes);
  *at = reinterpret_cast<Pointer>(memory);
  return allocations[*at] = bytes, SUCCESS;
}
int cuMemFree_v2(Pointer at) {
  drain();
  if (!allocations.erase(at)) return INVALID_VALUE;
  return std::free(host(at)), SUCCESS;
}
int cuMemGetInfo_v2(size_t* free_bytes, size_t* bytes) {
  return *free_bytes = *bytes = MEMORY_BYTES, SUCCESS;
}
int cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  if (posix_memalign(at, 4096, std::max<size_t>(bytes, 1))) return OUT_OF_MEMORY;
  return std::memset(*at, 0, bytes), SUCCESS;
}
int cuMemFreeHost(void* at) { return drain(), std::free(at), SUCCESS; }
int cuMemHostGetDevicePointer_v2(Pointer* device, void* at, unsigned) {
  return *device = reinterpret_cast<Pointer>(at), SUCCESS;
}
int cuMemcpyHtoD_v2(Pointer to, const void* from, size_t bytes) {
  return is_inside_an_allocation(to, bytes) ? copy_now(host(to), from, bytes) : INVALID_VALUE;
}
int cuMemcpyDtoH_v2(void* to, Pointer from, size_t bytes) {
  return is_inside_an_allocation(from, bytes) ? copy_now(to, host(from), bytes) : INVALID_VALUE;
}
int cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t bytes) {
  if (!is_inside_an_allocation(to, bytes) || !is_inside_an_allocation(from, bytes))
    return INVALID_VALUE;
  return copy_now(host(to), host(from), bytes);
}
int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, void* stream) {
  if (!is_inside_an_allocation(to, bytes)) return INVALID_VALUE;
  return enqueue(stream, copy_task(current_device(), host(to), from, bytes));
}
int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, void* stream) {
  if (!is_inside_an_allocation(from, bytes)) return INVALID_VALUE;
  return enqueue(stream, copy_task(current_device(), to, host(from), bytes));
}
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void* stream) {
  if (!is_inside_an_allocation(to, bytes) || !is_inside_an_allocation(from, bytes))
    return INVALID_VALUE;
  return enqueue(stream, copy_task(current_device(), host(to), host(from), bytes));
}
int cuMemcpyPeer(Pointer to, void*, Pointer from, void*, size_t bytes) {
  return cuMemcpyDtoD_v2(to, from, bytes);
}
int cuMemcpyPeerAsync(Pointer to, void*, Pointer from, void*, size_t bytes, void* stream) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
int cuMemsetD8_v2(Pointer at, unsigned char value, size_t count) {
  return fill_later(at, value, count, nullptr);
}
int cuMemsetD16_v2(Pointer at, unsigned short value, size_t count) {
  return fill_later(at, value, count, nullptr);
}
int cuMemsetD32_v2(Pointer at, unsigned value, size_t count) {
  return fill_later(at, value, count, nullptr);
}
int cuMemsetD8Async(Pointer at, unsigned char value, size_t count, void* stream) {
  return fill_later(at, value, count, stream);
}
int cuMemsetD16Async(Pointer at, unsigned short value, size_t count, void* stream) {
  return fill_later(at, value, count, stream);
}
int cuMemsetD32Async(Pointer at, unsigned value, size_t count, void* stream) {
  return fill_later(at, value, count, stream);
}

// ---- modules and launches ----

int cuModuleLoadDataEx(void** module, const void* image, unsigned options, const int* option,
                       void** value) {
  constexpr int ERROR_LOG_BUFFER = 5, ERROR_LOG_BYTES = 6;
  for (unsigned i = 0; i < options; ++i) {
    if (option[i] == ERROR_LOG_BUFFER) *static_cast<char*>(value[i]) = 0;
    if (option[i] == ERROR_LOG_BYTES) value[i] = nullptr;
  }
  const std::string mark = "HOST_SHIM:", text = static_cast<const char*>(image);
  if (text.compare(0, mark.size(), mark) != 0) return INVALID_IMAGE;
  void* library = dlopen(text.c_str() + mark.size(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "emulated driver: %s\n", dlerror()), INVALID_IMAGE;
  return *module = new Module{library}, SUCCESS;
}
int cuModuleUnload(void*) { return drain(); }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  auto* from = static_cast<Module*>(module);
  const auto entry = from->find<Entry>(std::string(name) + "_host");
  if (!entry) return NOT_FOUND;
  return *function = new Kernel{from, name, entry}, SUCCESS;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8) return SUCCESS;
  if (static_cast<size_t>(value) > most_shared_bytes()) return INVALID_VALUE;
  static_cast<Kernel*>(function)->shared_limit = std::max<size_t>(value, PLAIN_SHARED_BYTES);
  return SUCCESS;
}
int cuFuncGetAttribute(int* value, int, void*) { return *value = 0, SUCCESS; }
int cuFuncSetBlockShape(void*, int, int, int) { return SUCCESS; }
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void* stream, void**, void** extra) {
  const auto* kernel = static_cast<Kernel*>(function);
  if (shared > kernel->shared_limit) return INVALID_VALUE;
  const std::vector<int> sizes = {static_cast<int>(grid_x),  static_cast<int>(grid_y),
                                  static_cast<int>(grid_z),  static_cast<int>(block_x),
                                  static_cast<int>(block_y), static_cast<int>(block_z)};
  const Arguments given = packed_arguments(extra);
  const auto* bytes = static_cast<const unsigned char*>(given.buffer);
  const std::vector<unsigned char> packed(bytes, bytes + given.bytes);
  const int device = current_device();
  return enqueue(stream,
                 [=] { return run_kernel(*kernel, sizes.data(), shared, packed.data(), device); });
}

// ---- streams, events, graphs ----

int cuStreamCreate(void** stream, unsigned) {
  return *stream = *streams.insert(new Stream(current_device())).first, SUCCESS;
}
int cuStreamDestroy_v2(void* stream) {
  streams.erase(static_cast<Stream*>(stream));
  return delete static_cast<Stream*>(stream), SUCCESS;
}
int cuStreamSynchronize(void* stream) { return wait_for(stream); }
int cuStreamQuery(void* stream) {
  return !stream || static_cast<Stream*>(stream)->is_idle() ? SUCCESS : NOT_READY;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  return enqueue(stream, [=] { return static_cast<Event*>(event)->wait(), SUCCESS; });
}
int cuEventCreate(void** event, unsigned) { return *event = new Event, SUCCESS; }
int cuEventDestroy_v2(void* event) {
  static_cast<Event*>(event)->wait();
  return delete static_cast<Event*>(event), SUCCESS;
}
int cuEventRecord(void* handle, void* stream) {
  auto* event = static_cast<Event*>(handle);
  const int device = stream ? static_cast<Stream*>(stream)->device : current_device();
  event->moment = Moment::PENDING;
  return enqueue(stream, [=] {
    event->ns = devices[device].ns();
    event->moment = Moment::PAST;
    return SUCCESS;
  });
}
int cuEventQuery(void* event) {
  return static_cast<Event*>(event)->moment == Moment::PENDING ? NOT_READY : SUCCESS;
}
int cuEventSynchronize(void* event) { return static_cast<Event*>(event)->wait(), failure.load(); }
int cuEventElapsedTime(float* ms, void* begin, void* end) {
  const auto &from = *static_cast<Event*>(begin), &to = *static_cast<Event*>(end);
  if (from.moment == Moment::FRESH || to.moment == Moment::FRESH) return INVALID_HANDLE;
  if (from.moment == Moment::PENDING || to.moment == Moment::PENDING) return NOT_READY;
  return *ms = static_cast<float>((to.ns - from.ns) * 1e-6), SUCCESS;
}
int cuEventElapsedTime_v2(float* ms, void* begin, void* end) {
  return cuEventElapsedTime(ms, begin, end);
}
int cuStreamBeginCapture_v2(void* stream, int) {
  return static_cast<Stream*>(stream)->capture = std::make_unique<Graph>(), SUCCESS;
}
int cuStreamEndCapture(void* stream, void** graph) {
  if (!static_cast<Stream*>(stream)->capture) return INVALID_HANDLE;
  return *graph = static_cast<Stream*>(stream)->capture.release(), SUCCESS;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  return *executable = new Graph(*static_cast<Graph*>(graph)), SUCCESS;
}
int cuGraphLaunch(void* executable, void* stream) {
  const auto* graph = static_cast<Graph*>(executable);
  return enqueue(stream, [graph] {
    for (const Task& node : graph->nodes)
      if (const Result result = node()) return result;
    return SUCCESS;
  });
}
int cuGraphExecDestroy(void* executable) {
  return drain(), delete static_cast<Graph*>(executable), SUCCESS;
}
int cuGraphDestroy(void* graph) { return delete static_cast<Graph*>(graph), SUCCESS; }

// ---- errors ----

int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> known = {
      {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
      {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
      {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {NOT_READY, "CUDA_ERROR_NOT_READY"},
      {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
      {PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
      {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
      {801, "CUDA_ERROR_NOT_SUPPORTED"},
  };
  const auto found = known.find(error);
  return *name = found == known.end() ? "CUDA_ERROR_UNKNOWN" : found->second, SUCCESS;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }
}
