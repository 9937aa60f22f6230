// Sums a bf16 vector over the GPUs of a node, each reading the others' memory. Sums are f32 and in
// the order of ranks, so that every rank gets the same bits.
//
//   one shot  every rank reads all of every peer's input
//   two shot  every rank sums its own slice, then gathers the slices of the others
//   stand-in  the one-shot sum on one GPU with all inputs in its own memory: no link is crossed
//             and nobody is waited for, so it says nothing about an AllReduce but the kernel's own
//             time
//
// Handshakes are per block: block b of a rank waits for block b of the others only.
#include "device.cuh"

namespace {

constexpr int MOST_RANKS = 8;
constexpr int THREADS = 256;

// What a rank knows of the others. Flags: [phases][blocks][ranks] in each rank's memory.
struct Peers {
  unsigned* const* flags;
  int rank, ranks;
  unsigned epoch;  // grows with every call
  unsigned* timed_out;
  unsigned long long limit_ns;
};

__device__ __forceinline__ int flag_of(const Peers& peers, int phase, int from) {
  return (phase * gridDim.x + blockIdx.x) * peers.ranks + from;
}

// Tells peer number threadIdx.x that this block has come to `phase`. Its writes go before: the
// barrier orders them before this thread's release, and a release is cumulative.
__device__ void signal_peer(const Peers& peers, int phase) {
  store_release(peers.flags[threadIdx.x] + flag_of(peers, phase, peers.rank), peers.epoch);
}

// Until peer number threadIdx.x has signalled; gives up after limit_ns and says so.
__device__ void wait_for_peer(const Peers& peers, int phase) {
  const unsigned* flag = peers.flags[peers.rank] + flag_of(peers, phase, threadIdx.x);
  const unsigned long long begin = spin_ns();
  while (static_cast<int>(load_acquire(flag) - peers.epoch) < 0) {
    pause_spin();
    if (spin_ns() - begin > peers.limit_ns) {
      store_release(peers.timed_out, 1u);
      return;
    }
  }
}

__device__ void meet_peers(const Peers& peers, int phase) {
  __syncthreads();  // all of the block's reads and writes are done
  if (static_cast<int>(threadIdx.x) < peers.ranks) {
    signal_peer(peers, phase);
    wait_for_peer(peers, phase);
  }
  __syncthreads();
}

__device__ __forceinline__ uint4 sum_ranks(const uint4* const* inputs, int ranks, int i) {
  uint4 held[MOST_RANKS];
#pragma unroll
  for (int r = 0; r < MOST_RANKS; ++r)
    if (r < ranks) held[r] = inputs[r][i];
  Eight sum = {};
#pragma unroll
  for (int r = 0; r < MOST_RANKS; ++r) {
    if (r >= ranks) break;
    const Eight part = unpack_bf16(held[r]);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum.value[j] += part.value[j];
  }
  return pack_bf16(sum);
}

// The sum of vectors [begin, end), into out[0] and on.
__device__ void reduce(const uint4* const* inputs, int ranks, int begin, int end, uint4* out) {
  const int stride = gridDim.x * blockDim.x;
  for (int i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += stride)
    out[i - begin] = sum_ranks(inputs, ranks, i);
}

// A thread reads what the thread with its number wrote on the other rank: the handshake of its
// block is enough.
__device__ void gather(const uint4* const* slices, int ranks, int slice, int vectors, uint4* out) {
  const int stride = gridDim.x * blockDim.x;
  for (int r = 0; r < ranks; ++r)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < slice && r * slice + i < vectors;
         i += stride)
      out[r * slice + i] = slices[r][i];
}

}  // namespace

// inputs: [ranks] pointers to [vectors] of eight bf16 values; flags zero before the first call.
extern "C" __global__ void __launch_bounds__(THREADS)
    allreduce_one_shot(const uint4* const* inputs, unsigned* const* flags, int rank, int ranks,
                       unsigned epoch, int vectors, uint4* out, unsigned* timed_out,
                       unsigned long long limit_ns) {
  const Peers peers = {flags, rank, ranks, epoch, timed_out, limit_ns};
  meet_peers(peers, 0);
  reduce(inputs, ranks, 0, vectors, out);
  meet_peers(peers, 1);  // nobody overwrites an input that is still read
}
HOST_ENTRY(allreduce_one_shot)

// slices: [ranks] pointers to room for ceil(vectors / ranks) vectors, one in each rank's memory.
extern "C" __global__ void __launch_bounds__(THREADS)
    allreduce_two_shot(const uint4* const* inputs, uint4* const* slices, unsigned* const* flags,
                       int rank, int ranks, unsigned epoch, int vectors, uint4* out,
                       unsigned* timed_out, unsigned long long limit_ns) {
  const Peers peers = {flags, rank, ranks, epoch, timed_out, limit_ns};
  const int slice = (vectors + ranks - 1) / ranks;
  meet_peers(peers, 0);
  reduce(inputs, ranks, rank * slice, min(vectors, (rank + 1) * slice), slices[rank]);
  meet_peers(peers, 1);  // the slices are there, and all inputs have been read
  gather(slices, ranks, slice, vectors, out);
}
HOST_ENTRY(allreduce_two_shot)

extern "C" __global__ void __launch_bounds__(THREADS)
    allreduce_standin(const uint4* const* inputs, int ranks, int vectors, uint4* out) {
  reduce(inputs, ranks, 0, vectors, out);
}
HOST_ENTRY(allreduce_standin)
