// The k largest logits of each row of a vocabulary slice, largest first, of equals the lower id.
//
// A value and its id make one 64-bit key that orders so. Each warp takes the best of its part k
// times: every lane offers its best key below the last one taken. Blocks keep k keys each for
// their part of the row, and a second kernel takes the best of these.
#include "device.cuh"

namespace {

using Key = unsigned long long;
constexpr int WARPS = 8;
constexpr int MOST_K = 16;
constexpr Key NONE = 0;  // below the key of any value
constexpr Key FIRST = ~0ull;

__device__ __forceinline__ Key make_key(float value, int id) {
  const unsigned bits = __float_as_uint(value + 0.f);  // -0 becomes 0
  const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

__device__ __forceinline__ float value_of(Key key) {
  const unsigned ordered = static_cast<unsigned>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

__device__ __forceinline__ int id_of(Key key) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

struct Logits {
  const __nv_bfloat16* row;
  __device__ Key operator()(int i) const { return make_key(__bfloat162float(row[i]), i); }
};

struct Keys {
  const Key* key;
  __device__ Key operator()(int i) const { return key[i]; }
};

template <class Source>
__device__ Key best_below(const Source& source, Key limit, int begin, int end, int step) {
  Key best = NONE;
  for (int i = begin; i < end; i += step) {
    const Key key = source(i);
    if (key < limit) best = max(best, key);
  }
  return best;
}

// The k best of [begin, end) by one warp, into `taken`; only the lane that gave looks again.
template <class Source>
__device__ void take_best(const Source& source, int begin, int end, int k, Key* taken) {
  const int lane = threadIdx.x % WARP_LANES;
  Key mine = best_below(source, FIRST, begin + lane, end, WARP_LANES);
  for (int i = 0; i < k; ++i) {
    const Key best = warp_max(mine);
    if (lane == 0) taken[i] = best;
    if (mine == best && best != NONE)
      mine = best_below(source, best, begin + lane, end, WARP_LANES);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(WARPS* WARP_LANES)
    top_k_parts(const __nv_bfloat16* __restrict__ logits,  // [rows][vocabulary]
                int vocabulary, int k,
                Key* __restrict__ best) {  // [rows][parts][k]
  __shared__ Key of_warp[WARPS * MOST_K];
  const int warp = threadIdx.x / WARP_LANES, part = blockIdx.x, parts = gridDim.x, row = blockIdx.y;
  const int share = (vocabulary + parts * WARPS - 1) / (parts * WARPS);
  const int begin = (part * WARPS + warp) * share;
  const Logits source = {logits + static_cast<size_t>(row) * vocabulary};
  take_best(source, begin, min(begin + share, vocabulary), k, of_warp + warp * k);
  __syncthreads();
  if (warp == 0) take_best(Keys{of_warp}, 0, WARPS * k, k, best + (row * parts + part) * k);
}
HOST_ENTRY(top_k_parts)

extern "C" __global__ void __launch_bounds__(WARP_LANES) top_k_merge(
    const Key* __restrict__ best,  // [rows][candidates]
    int candidates, int k, int first_id,
    float* __restrict__ values,  // [rows][k]
    int* __restrict__ ids) {     // [rows][k], of the whole vocabulary: first_id is the slice's
  __shared__ Key taken[MOST_K];
  const int lane = threadIdx.x, row = blockIdx.x;
  take_best(Keys{best + row * candidates}, 0, candidates, k, taken);
  __syncwarp();
  if (lane >= k) return;
  values[row * k + lane] = value_of(taken[lane]);
  ids[row * k + lane] = first_id + id_of(taken[lane]);
}
HOST_ENTRY(top_k_merge)
