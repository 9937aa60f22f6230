// Runs the body of a .cu file on the CPU, for tests of correctness only.
//
// A CUDA thread is a fiber. Fibers switch only at barriers, warp operations and pauses of a spin,
// and blocks run in turn, so that every run is a legal one and a schedule repeats exactly:
//
//   0, 1  all warps in lockstep, lanes forward or backward
//   2, 3  one warp as far as it goes, then the next, forward or backward
//   4...  random warps and numbers of steps, seeded by the schedule
//
// Odd schedules finish an asynchronous copy when it is issued, even ones when it is waited for: a
// missing barrier or wait gives a wrong result under at least one of them.
//
// Not modelled: weak memory, bank conflicts, occupancy, time. NVIDIA's bf16, fp16 and fp8 headers
// work under plain g++. Use: g++ -std=c++17 -include host_shim.h -x c++ kernel.cu
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SHIM_ASAN 1
#endif

#define HOST_SHIM 1
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

namespace shim {

constexpr int WARP = 32;
constexpr int SLOT_BYTES = 32;  // what one lane publishes in a warp operation
constexpr int RING = 64;        // warp operations whose results stay readable
constexpr size_t STACK_BYTES = 128 * 1024;

enum class State : uint8_t { READY, AT_BARRIER, AT_WARP_OP, DONE };
enum class WarpOp : uint8_t { SYNC, SHUFFLE, BALLOT, MMA, MATRIX };

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes, zeros;  // copied, then filled with zeros
  int group;         // the commit that it belongs to
};

struct Fiber {
  uint3 thread;
  int lane, warp;
  State state;
  uint32_t mask;  // of the warp operation it waits at
  WarpOp op;
  int result;  // where in the ring the answer is
  unsigned char slot[SLOT_BYTES];
  std::vector<AsyncCopy> copies;
  int committed;  // groups of asynchronous copies
  void* stack_pointer;
  char* stack;
#ifdef SHIM_ASAN
  void* fake_stack;
#endif
};

struct WarpResult {
  unsigned char of[WARP][SLOT_BYTES];
};

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<WarpResult> ring;  // RING for each warp
  std::vector<int> ring_position;
  std::vector<unsigned char> shared;
  LaunchShape shape;
  uint3 index;
  int schedule;
  void (*entry)(void*);
  void* argument;
  std::string error;
  void* scheduler_stack;
#ifdef SHIM_ASAN
  const void* scheduler_bottom;
  size_t scheduler_size;
  void* scheduler_fake_stack;
#endif
};

// Plain __thread: thread_local would call a wrapper at every use of threadIdx.
extern __thread Fiber* fiber;
extern __thread Block* block;

void yield();
void fail(const char* problem);  // of the running block; does not return to the kernel
void meet_block();
const WarpResult& meet_warp(uint32_t mask, const void* value, size_t bytes, WarpOp op);
void copy_async(void* to, const void* from, int bytes, int zeros);
void commit_async();
void wait_async(int groups_left);
void pause_spin();
uint64_t clock_ns();
uint64_t clock_cycles();
int run_grid(const LaunchShape& shape, void (*entry)(void*), void* argument, int schedule,
             int workers);

template <class T>
T read_as(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T>
T shuffle(uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= SLOT_BYTES);
  return read_as<T>(meet_warp(mask, &value, sizeof value, WarpOp::SHUFFLE).of[source & 31]);
}

// The lane itself where the source lies outside of its section of `width` lanes.
inline int source_lane(int wanted, int width) {
  const int lane = fiber->lane;
  return (wanted & ~(width - 1)) == (lane & ~(width - 1)) ? wanted : lane;
}

// Reads the arguments from a packed buffer, each at its natural alignment, as the driver does.
template <class... A, size_t... I>
int launch_packed(void (*kernel)(A...), const LaunchShape& shape, const unsigned char* packed,
                  int schedule, int workers, std::index_sequence<I...>) {
  using Values = std::tuple<std::decay_t<A>...>;
  struct Call {
    void (*kernel)(A...);
    Values values;
  } call{kernel, {}};
  size_t at = 0;
  auto take = [&](auto& value) {
    at = (at + alignof(decltype(value)) - 1) / sizeof(value) * sizeof(value);
    std::memcpy(&value, packed + at, sizeof value);
    at += sizeof value;
  };
  (take(std::get<I>(call.values)), ...);
  (void)take;
  return run_grid(
      shape,
      [](void* c) { std::apply(static_cast<Call*>(c)->kernel, static_cast<Call*>(c)->values); },
      &call, schedule, workers);
}

template <class... A>
int launch(void (*kernel)(A...), const int* sizes, size_t shared_bytes, const unsigned char* packed,
           int schedule, int workers) {
  const LaunchShape shape{dim3(sizes[0], sizes[1], sizes[2]), dim3(sizes[3], sizes[4], sizes[5]),
                          shared_bytes};
  return launch_packed(kernel, shape, packed, schedule, workers, std::index_sequence_for<A...>{});
}

}  // namespace shim

#define threadIdx (shim::fiber->thread)
#define blockIdx (shim::block->index)
#define blockDim (shim::block->shape.block)
#define gridDim (shim::block->shape.grid)

#include "host_twins.h"

// A kernel's entry on the host: int NAME_host(sizes, shared bytes, packed arguments, schedule,
// workers).
#define HOST_ENTRY(kernel)                                                                         \
  extern "C" int kernel##_host(const int* sizes, size_t shared_bytes, const unsigned char* packed, \
                               int schedule, int workers) {                                        \
    return shim::launch(kernel, sizes, shared_bytes, packed, schedule, workers);                   \
  }
#define DYNAMIC_SHARED(Type, name) Type* name = reinterpret_cast<Type*>(shim::block->shared.data())
