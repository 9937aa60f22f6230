// CUDA's device functions and the project's own (kernels/device.cuh), for host_shim.h.
#pragma once

inline void __syncthreads() { shim::meet_block(); }

inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  const int nothing = 0;
  shim::meet_warp(mask, &nothing, sizeof nothing, shim::WarpOp::SYNC);
}

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32) {
  return shim::shuffle(mask, value, shim::source_lane(shim::fiber->lane ^ bits, width));
}

inline uint32_t __ballot_sync(uint32_t mask, int vote) {
  const int mine = vote != 0;
  const auto& result = shim::meet_warp(mask, &mine, sizeof mine, shim::WarpOp::BALLOT);
  uint32_t votes = 0;
  for (int lane = 0; lane < shim::WARP; ++lane)
    if ((mask >> lane & 1) && shim::read_as<int>(result.of[lane])) votes |= 1u << lane;
  return votes;
}

inline uint32_t __float_as_uint(float x) { return shim::read_as<uint32_t>(&x); }
inline float __uint_as_float(uint32_t x) { return shim::read_as<float>(&x); }
inline long long __double_as_longlong(double x) { return shim::read_as<long long>(&x); }
inline double __longlong_as_double(long long x) { return shim::read_as<double>(&x); }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline unsigned atomicAdd(unsigned* at, unsigned value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
using std::max;
using std::min;

// ---- twins of kernels/device.cuh ----

inline float bf16_of(uint32_t pair, int half) {
  return __uint_as_float((half ? pair >> 16 : pair & 0xffffu) << 16);
}

// Fragments as the PTX manual lays them out: lane 4g + t has rows g and g + 8 of A, column g of B.
struct MmaOperands {
  uint32_t a[4], b[2];
};

inline void mma_bf16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const MmaOperands mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto& warp = shim::meet_warp(0xffffffffu, &mine, sizeof mine, shim::WarpOp::MMA);
  const int g = shim::fiber->lane >> 2, t = shim::fiber->lane & 3;
  for (int quad = 0; quad < 4; ++quad) {
    const auto rows = shim::read_as<MmaOperands>(warp.of[g * 4 + quad]);
    for (int column = 0; column < 2; ++column) {
      const auto columns = shim::read_as<MmaOperands>(warp.of[(t * 2 + column) * 4 + quad]);
      for (int half = 0; half < 4; ++half) {
        const float b_value = bf16_of(columns.b[half >> 1], half & 1);
        sum[column] += bf16_of(rows.a[half & 2], half & 1) * b_value;
        sum[2 + column] += bf16_of(rows.a[1 + (half & 2)], half & 1) * b_value;
      }
    }
  }
}

struct MatrixRow {
  uint16_t value[8];
};

inline const shim::WarpResult& publish_row(const void* row) {
  return shim::meet_warp(0xffffffffu, row, sizeof(MatrixRow), shim::WarpOp::MATRIX);
}

inline void load_matrices(uint32_t (&to)[4], const void* row) {
  const auto& rows = publish_row(row);
  const int g = shim::fiber->lane >> 2, t = shim::fiber->lane & 3;
  for (int i = 0; i < 4; ++i) {
    const auto found = shim::read_as<MatrixRow>(rows.of[i * 8 + g]);
    to[i] = found.value[2 * t] | static_cast<uint32_t>(found.value[2 * t + 1]) << 16;
  }
}

inline void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
  const auto& rows = publish_row(row);
  const int g = shim::fiber->lane >> 2, t = shim::fiber->lane & 3;
  for (int i = 0; i < 4; ++i) {
    const auto low = shim::read_as<MatrixRow>(rows.of[i * 8 + 2 * t]);
    const auto high = shim::read_as<MatrixRow>(rows.of[i * 8 + 2 * t + 1]);
    to[i] = low.value[g] | static_cast<uint32_t>(high.value[g]) << 16;
  }
}

template <int BYTES>
void copy_async(void* to, const void* from, bool valid = true) {
  shim::copy_async(to, from, valid ? BYTES : 0, valid ? 0 : BYTES);
}
inline void commit_async() { shim::commit_async(); }
template <int GROUPS_LEFT>
void wait_async() {
  shim::wait_async(GROUPS_LEFT);
}

inline void store_release(unsigned* flag, unsigned value) {
  __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}
inline unsigned load_acquire(const unsigned* flag) {
  return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}
inline void pause_spin() { shim::pause_spin(); }
inline unsigned processor_number() { return shim::block->index.x; }
inline uint64_t stamp_ns() { return shim::clock_ns(); }
inline uint64_t stamp_cycles() { return shim::clock_cycles(); }
inline uint64_t spin_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
