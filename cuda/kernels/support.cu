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

// Two of these around a kernel give the clock that the SMs ran at: out = {ns, cycles}.
extern "C" __global__ void stamp(unsigned long long* out) {
  out[0] = stamp_ns();
  out[1] = stamp_cycles();
}
HOST_ENTRY(stamp)

// Fills `vectors` 16-byte vectors: evicts the L2 cache, but leaves it full of lines to write back.
extern "C" __global__ void __launch_bounds__(256)
    fill(uint4* __restrict__ to, unsigned long long vectors, unsigned word) {
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += stride)
    to[i] = {word, word, word, word};
}
HOST_ENTRY(fill)

// Reads them: evicts the L2 cache and leaves it clean. The sum only keeps the reads alive.
extern "C" __global__ void __launch_bounds__(256)
    sweep(const uint4* __restrict__ from, unsigned long long vectors, unsigned* __restrict__ sums) {
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    const uint4 v = from[i];
    sum += v.x + v.y + v.z + v.w;
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
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
