// out[token][n] = sum over k of x[token][k] * weight[n][k]: bf16, f32 sums, few tokens. Tensor
// path: mma.sync with the weights as its m16 side ("swap AB").
//
// A block has 64 weight rows and 8, 16 or 40 tokens; 64 columns at a time come through a ring of
// six stages. Where there are too few blocks to fill the GPU the columns are split: the last block
// of a tile adds up the parts, always in the same order, so that a run repeats bit for bit.
#include "device.cuh"

namespace {

constexpr int ROWS = 64, COLUMNS = 64, STAGES = 6;
constexpr int WARPS = ROWS / 16, THREADS = WARPS * WARP_LANES;
constexpr int STRIDE = COLUMNS + 8;  // the eight rows of a matrix lie in different banks

struct Matrix {
  const __nv_bfloat16* at;
  int rows, columns;
};

template <int TOKENS>
struct Stage {
  __nv_bfloat16 weight[ROWS * STRIDE];
  __nv_bfloat16 x[TOKENS * STRIDE];
};

template <int TOKENS>
using Sums = float[TOKENS / 8][4];

template <int COUNT>
__device__ __forceinline__ void fetch_rows(__nv_bfloat16* to, const Matrix& from, int first_row,
                                           int column) {
  constexpr int VECTORS = COLUMNS / 8;
  for (int i = threadIdx.x; i < COUNT * VECTORS; i += THREADS) {
    const int row = i / VECTORS, offset = i % VECTORS * 8;
    const bool valid = first_row + row < from.rows;
    copy_async<16>(
        to + row * STRIDE + offset,
        from.at + static_cast<size_t>(valid ? first_row + row : 0) * from.columns + column + offset,
        valid);
  }
}

template <int TOKENS>
__device__ __forceinline__ void multiply_stage(Sums<TOKENS>& sums, const Stage<TOKENS>& stage,
                                               int warp, int lane) {
  const __nv_bfloat16* weight = stage.weight + (warp * 16 + lane % 16) * STRIDE + lane / 16 * 8;
  const __nv_bfloat16* x = stage.x + lane % 8 * STRIDE + lane / 8 * 8;
#pragma unroll
  for (int column = 0; column < COLUMNS; column += 32) {
    uint32_t a[2][4];
    load_matrices(a[0], weight + column);
    load_matrices(a[1], weight + column + 16);
#pragma unroll
    for (int tile = 0; tile < TOKENS / 8; ++tile) {
      uint32_t b[4];
      load_matrices(b, x + tile * 8 * STRIDE + column);
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      mma_bf16(sums[tile], a[0], first);
      mma_bf16(sums[tile], a[1], second);
    }
  }
}

// Columns [begin, end), in whole stages.
template <int TOKENS>
__device__ __forceinline__ void stream_columns(Sums<TOKENS>& sums, Stage<TOKENS>* ring,
                                               const Matrix& weight, const Matrix& x, int first_row,
                                               int first_token, int begin, int end) {
  const int warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES,
            count = (end - begin) / COLUMNS;
  const auto fetch = [&](int number) {
    Stage<TOKENS>& stage = ring[number % STAGES];
    if (number < count) {
      fetch_rows<ROWS>(stage.weight, weight, first_row, begin + number * COLUMNS);
      fetch_rows<TOKENS>(stage.x, x, first_token, begin + number * COLUMNS);
    }
    commit_async();
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch(i);
  for (int i = 0; i < count; ++i) {
    wait_async<STAGES - 2>();
    __syncthreads();  // stage i has arrived, and everyone has read the one before
    fetch(i + STAGES - 1);
    multiply_stage<TOKENS>(sums, ring[i % STAGES], warp, lane);
  }
}

// Calls store(row in the block, token in the block, sum) for each of this thread's sums.
template <int TOKENS, class Store>
__device__ __forceinline__ void for_each_sum(const Sums<TOKENS>& sums, Store store) {
  const int warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES;
#pragma unroll
  for (int tile = 0; tile < TOKENS / 8; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store(warp * 16 + lane / 4 + i / 2 * 8, tile * 8 + lane % 4 * 2 + i % 2, sums[tile][i]);
}

// Whether this block is the last of its tile to arrive; the counter is left at zero.
__device__ bool arrive_last(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();  // the block's parts are written
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1u) == blocks - 1;
    if (last) *counter = 0u;
  }
  __syncthreads();
  __threadfence();
  return last;
}

template <int TOKENS>
__device__ __forceinline__ void multiply(const Matrix& x, const Matrix& weight, float* parts,
                                         unsigned* counters, __nv_bfloat16* out) {
  DYNAMIC_SHARED(Stage<TOKENS>, ring);
  const int tile = blockIdx.x, split = blockIdx.y, splits = gridDim.y, batch = blockIdx.z;
  const int first_row = tile * ROWS, first_token = batch * TOKENS,
            stages = weight.columns / COLUMNS;
  Sums<TOKENS> sums = {};
  stream_columns<TOKENS>(sums, ring, weight, x, first_row, first_token,
                         split * stages / splits * COLUMNS,
                         (split + 1) * stages / splits * COLUMNS);
  const auto write = [&](int row, int token, float sum) {
    if (first_row + row < weight.rows && first_token + token < x.rows)
      out[static_cast<size_t>(first_token + token) * weight.rows + first_row + row] =
          __float2bfloat16(sum);
  };
  if (splits == 1) return for_each_sum<TOKENS>(sums, write);
  const int place = batch * gridDim.x + tile;
  float* own = parts + (static_cast<size_t>(place) * splits) * ROWS * TOKENS;
  for_each_sum<TOKENS>(sums, [&](int row, int token, float sum) {
    own[(split * TOKENS + token) * ROWS + row] = sum;
  });
  if (!arrive_last(counters + place, splits)) return;
  for (int i = threadIdx.x; i < ROWS * TOKENS; i += THREADS) {
    float sum = 0.f;
    for (int s = 0; s < splits; ++s) sum += own[s * ROWS * TOKENS + i];
    write(i % ROWS, i / ROWS, sum);
  }
}

}  // namespace

// x [tokens][columns], weight [rows][columns], out [tokens][rows]; columns a multiple of 64.
// parts [batches][tiles][splits][TOKENS][64] f32 and counters [batches][tiles], zero before and
// after, are used where the grid's y, the splits of the columns, is above 1.
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_tokens8(const __nv_bfloat16* x, const __nv_bfloat16* weight, int tokens, int rows,
                 int columns, float* parts, unsigned* counters, __nv_bfloat16* out) {
  multiply<8>({x, tokens, columns}, {weight, rows, columns}, parts, counters, out);
}
HOST_ENTRY(gemm_tokens8)

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_tokens16(const __nv_bfloat16* x, const __nv_bfloat16* weight, int tokens, int rows,
                  int columns, float* parts, unsigned* counters, __nv_bfloat16* out) {
  multiply<16>({x, tokens, columns}, {weight, rows, columns}, parts, counters, out);
}
HOST_ENTRY(gemm_tokens16)

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_tokens40(const __nv_bfloat16* x, const __nv_bfloat16* weight, int tokens, int rows,
                  int columns, float* parts, unsigned* counters, __nv_bfloat16* out) {
  multiply<40>({x, tokens, columns}, {weight, rows, columns}, parts, counters, out);
}
HOST_ENTRY(gemm_tokens40)
