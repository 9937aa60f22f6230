// What measuring itself needs: an empty kernel, holding a stream, stamps of time and clock,
// sweeping the L2 cache, and a plain copy.
#include "device.cuh"

extern "C" __global__ void empty() {}
HOST_ENTRY(empty)

// Holds the stream until the host sets *go, so that all that is timed is queued before any of it
// runs and launch latency stays out of the interval. Gives up after limit_ns.
extern "C" __global__ void hold(const unsigned* go, unsigned* timed_out,
                                unsigned long long limit_ns) {
  const unsigned long long begin = spin_ns();
  while (!load_acquire(go)) {
    pause_spin();
    if (spin_ns() - begin > limit_ns) {
      store_release(timed_out, 1u);
      return;
    }
  }
}
HOST_ENTRY(hold)

// Two of these around a kernel give the clock that the SMs ran at: out = {ns, cycles}. Every SM
// counts cycles of its own: a block for each SM, so that one runs on number 0, and only that one
// writes. After NVIDIA/nvbench, detail/gpu_frequency.
extern "C" __global__ void stamp(unsigned long long* out) {
  if (processor_number() != 0) return;
  out[0] = stamp_ns();
  out[1] = stamp_cycles();
}
HOST_ENTRY(stamp)

// Reads `vectors` 16-byte vectors: evicts the L2 cache and leaves it clean. The store keeps the
// reads alive; hardly any sum is this word.
extern "C" __global__ void __launch_bounds__(256)
    sweep(const uint4* __restrict__ from, unsigned long long vectors, unsigned* __restrict__ seen) {
  constexpr unsigned RARE = 0x9e3779b9u;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    const uint4 v = from[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == RARE) *seen = sum;
}
HOST_ENTRY(sweep)

// Four loads under way in each thread before the first store.
extern "C" __global__ void __launch_bounds__(256)
    copy(const uint4* __restrict__ from, uint4* __restrict__ to, unsigned long long vectors) {
  constexpr int AHEAD = 4;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + (AHEAD - 1) * stride < vectors; i += AHEAD * stride) {
    uint4 held[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) held[j] = from[i + j * stride];
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) to[i + j * stride] = held[j];
  }
  for (; i < vectors; i += stride) to[i] = from[i];
}
HOST_ENTRY(copy)
