// The scheduler behind host_shim.h; compiled once and linked to every kernel.
#include "host_shim.h"

#include <sys/mman.h>

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

// x86-64, System V: keep the callee-saved registers on the old stack, go on with the new one.
extern "C" void shim_switch(void** save, void* to);
asm(R"(
.text
.globl shim_switch
.hidden shim_switch
.type shim_switch,@function
shim_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size shim_switch,.-shim_switch
)");

namespace shim {

__thread Fiber* fiber = nullptr;
__thread Block* block = nullptr;

namespace {

thread_local std::string last_error;
thread_local uint64_t virtual_ns = 0, virtual_cycles = 0;

constexpr int SAVED_REGISTERS = 6;
constexpr int MOST_THREADS = 1024;
constexpr int FIRST_RANDOM_SCHEDULE = 4;

bool runs_backward(int schedule) { return schedule == 1 || schedule == 3; }
bool runs_one_warp_far(int schedule) { return schedule == 2 || schedule == 3; }

void switch_to_scheduler([[maybe_unused]] bool dying) {
  Fiber* self = fiber;
#ifdef SHIM_ASAN
  Block* home = block;
  __sanitizer_start_switch_fiber(dying ? nullptr : &self->fake_stack, home->scheduler_bottom,
                                 home->scheduler_size);
#endif
  shim_switch(&self->stack_pointer, block->scheduler_stack);
#ifdef SHIM_ASAN
  __sanitizer_finish_switch_fiber(self->fake_stack, &home->scheduler_bottom, &home->scheduler_size);
#endif
}

void switch_to(Fiber& next) {
  fiber = &next;
#ifdef SHIM_ASAN
  __sanitizer_start_switch_fiber(&block->scheduler_fake_stack, next.stack, STACK_BYTES);
#endif
  shim_switch(&block->scheduler_stack, next.stack_pointer);
#ifdef SHIM_ASAN
  __sanitizer_finish_switch_fiber(block->scheduler_fake_stack, nullptr, nullptr);
#endif
}

void finish_fiber() {
  fiber->state = State::DONE;
  switch_to_scheduler(true);
  std::abort();
}

void begin_fiber() {
#ifdef SHIM_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &block->scheduler_bottom, &block->scheduler_size);
#endif
  block->entry(block->argument);
  finish_fiber();
}

void finish_copy(const AsyncCopy& copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
}

// ---- one block ----

class BlockRun {
 public:
  BlockRun(Block& home, std::mt19937& luck)
      : home_(home),
        luck_(luck),
        live_(static_cast<int>(home.fibers.size())),
        warps_((live_ + WARP - 1) / WARP) {
    for (int i = 0; i < warps_; ++i) order_.push_back(backward() ? warps_ - 1 - i : i);
  }

  void run() {
    while (live_ > 0 && home_.error.empty()) {
      bool moved = run_warps();
      moved |= release_barrier();
      if (!moved && home_.error.empty()) home_.error = describe_deadlock();
    }
  }

 private:
  bool backward() const { return runs_backward(home_.schedule); }
  bool random() const { return home_.schedule >= FIRST_RANDOM_SCHEDULE; }

  int steps() {
    if (random()) return 1 << (luck_() % 8);
    return runs_one_warp_far(home_.schedule) ? INT32_MAX : 1;
  }

  bool run_warps() {
    bool moved = false;
    if (random()) std::shuffle(order_.begin(), order_.end(), luck_);
    for (int warp : order_)
      for (int left = steps(); left > 0 && home_.error.empty() && step_warp(warp); --left)
        moved = true;
    return moved;
  }

  bool step_warp(int warp) {
    bool moved = run_lanes(warp);
    return release_warp(warp) || moved;
  }

  int lanes_of(int warp) const {
    return std::min(WARP, static_cast<int>(home_.fibers.size()) - warp * WARP);
  }

  bool run_lanes(int warp) {
    const int lanes = lanes_of(warp);
    int order[WARP];
    for (int i = 0; i < lanes; ++i) order[i] = backward() ? lanes - 1 - i : i;
    if (random()) std::shuffle(order, order + lanes, luck_);
    bool moved = false;
    for (int i = 0; i < lanes && home_.error.empty(); ++i)
      moved |= run_lane(home_.fibers[warp * WARP + order[i]]);
    return moved;
  }

  bool run_lane(Fiber& lane) {
    if (lane.state != State::READY) return false;
    switch_to(lane);
    live_ -= lane.state == State::DONE;
    return true;
  }

  // A warp operation goes on when every living lane of its mask waits with that mask.
  bool release_warp(int warp) {
    bool moved = false;
    uint32_t seen = 0;
    for (int i = 0; i < lanes_of(warp) && home_.error.empty(); ++i) {
      Fiber& lane = home_.fibers[warp * WARP + i];
      if ((seen >> i & 1) || lane.state != State::AT_WARP_OP) continue;
      seen |= lane.mask;
      if (all_wait(warp, lane)) moved |= exchange(warp, lane.mask);
    }
    return moved;
  }

  bool all_wait(int warp, const Fiber& first) {
    for (int i = 0; i < lanes_of(warp); ++i) {
      const Fiber& lane = home_.fibers[warp * WARP + i];
      if (!(first.mask >> i & 1) || lane.state == State::DONE) continue;
      if (lane.state != State::AT_WARP_OP || lane.mask != first.mask) return false;
      if (lane.op != first.op) home_.error = "lanes of one mask meet at different warp operations";
    }
    return home_.error.empty();
  }

  bool exchange(int warp, uint32_t mask) {
    const int position = home_.ring_position[warp]++ % RING;
    WarpResult& result = home_.ring[warp * RING + position];
    std::memset(&result, 0xA5, sizeof result);
    for (int i = 0; i < lanes_of(warp); ++i) {
      Fiber& lane = home_.fibers[warp * WARP + i];
      if (!(mask >> i & 1) || lane.state == State::DONE) continue;
      std::memcpy(result.of[i], lane.slot, SLOT_BYTES);
      lane.result = position;
      lane.state = State::READY;
    }
    return true;
  }

  bool release_barrier() {
    int waiting = 0;
    for (const Fiber& f : home_.fibers) waiting += f.state == State::AT_BARRIER;
    if (!waiting || waiting != live_) return false;
    for (Fiber& f : home_.fibers)
      if (f.state == State::AT_BARRIER) f.state = State::READY;
    return true;
  }

  std::string describe_deadlock() const {
    int at_barrier = 0, at_warp_op = 0;
    for (const Fiber& f : home_.fibers) {
      at_barrier += f.state == State::AT_BARRIER;
      at_warp_op += f.state == State::AT_WARP_OP;
    }
    return "deadlock: " + std::to_string(at_barrier) + " threads at __syncthreads, " +
           std::to_string(at_warp_op) + " at a warp operation, " +
           std::to_string(home_.fibers.size() - live_) + " exited";
  }

  Block& home_;
  std::mt19937& luck_;
  int live_, warps_;
  std::vector<int> order_;
};

// ---- a grid ----

struct Grid {
  LaunchShape shape;
  void (*entry)(void*);
  void* argument;
  int schedule;
  uint64_t ns, cycles;
  std::atomic<long> next{0};
  std::atomic<bool> failed{false};
  std::string error;

  long blocks() const { return static_cast<long>(shape.grid.x) * shape.grid.y * shape.grid.z; }
  int threads() const { return static_cast<int>(shape.block.x * shape.block.y * shape.block.z); }
};

uint3 unravel(long i, dim3 size) {
  return {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
          static_cast<unsigned>(i / size.x / size.y)};
}

void prepare_fiber(Fiber& f, int number, dim3 block_size, char* stacks) {
  f = Fiber{};
  f.thread = unravel(number, block_size);
  f.lane = number % WARP;
  f.warp = number / WARP;
  f.state = State::READY;
  f.stack = stacks + STACK_BYTES * number;
  void** top = reinterpret_cast<void**>(f.stack + STACK_BYTES);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(begin_fiber);
  for (int i = 0; i < SAVED_REGISTERS; ++i) *--top = nullptr;
  f.stack_pointer = top;
}

Block prepare_block(const Grid& grid) {
  Block b{};
  const size_t warps = (grid.threads() + WARP - 1) / WARP;
  b.fibers.resize(grid.threads());
  b.ring.resize(warps * RING);
  b.ring_position.assign(warps, 0);
  b.shared.resize(grid.shape.shared_bytes);
  b.shape = grid.shape;
  b.schedule = grid.schedule;
  b.entry = grid.entry;
  b.argument = grid.argument;
  return b;
}

void run_block(Grid& grid, Block& b, long number, char* stacks) {
  b.index = unravel(number, grid.shape.grid);
  std::fill(b.shared.begin(), b.shared.end(), 0xFF);  // NaN as float or bf16, -1 as int
  for (int i = 0; i < grid.threads(); ++i) prepare_fiber(b.fibers[i], i, grid.shape.block, stacks);
  std::mt19937 luck(grid.schedule * 7919u + number);
  BlockRun(b, luck).run();
  if (b.error.empty() || grid.failed.exchange(true)) return;
  grid.error = "block (" + std::to_string(b.index.x) + "," + std::to_string(b.index.y) + "," +
               std::to_string(b.index.z) + "): " + b.error;
}

void run_blocks(Grid& grid) {
  const size_t stack_bytes = STACK_BYTES * grid.threads();
  void* stacks = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Block b = prepare_block(grid);
  block = &b;
  virtual_ns = grid.ns, virtual_cycles = grid.cycles;
  for (long i = grid.next++; i < grid.blocks() && !grid.failed; i = grid.next++)
    run_block(grid, b, i, static_cast<char*>(stacks));
  munmap(stacks, stack_bytes);
}

void run_on_threads(Grid& grid, int workers) {
  std::vector<std::thread> threads;
  for (int i = 1; i < workers; ++i) threads.emplace_back([&] { run_blocks(grid); });
  run_blocks(grid);
  for (auto& thread : threads) thread.join();
}

}  // namespace

void yield() { switch_to_scheduler(false); }

void fail(const char* problem) {
  block->error = problem;
  finish_fiber();
}

void meet_block() {
  fiber->state = State::AT_BARRIER;
  yield();
}

const WarpResult& meet_warp(uint32_t mask, const void* value, size_t bytes, WarpOp op) {
  Fiber* self = fiber;
  if (!(mask >> self->lane & 1)) fail("a lane is missing from the mask of its own warp operation");
  std::memcpy(self->slot, value, bytes);
  self->mask = mask;
  self->op = op;
  self->state = State::AT_WARP_OP;
  yield();
  return block->ring[self->warp * RING + self->result];
}

void copy_async(void* to, const void* from, int bytes, int zeros) {
  const AsyncCopy copy{to, from, bytes, zeros, fiber->committed};
  if (block->schedule % 2) return finish_copy(copy);
  fiber->copies.push_back(copy);
}

void commit_async() { ++fiber->committed; }

void wait_async(int groups_left) {
  auto& copies = fiber->copies;
  const int newest = fiber->committed - groups_left;
  const auto finished = [newest](const AsyncCopy& copy) { return copy.group < newest; };
  for (const AsyncCopy& copy : copies)
    if (finished(copy)) finish_copy(copy);
  copies.erase(std::remove_if(copies.begin(), copies.end(), finished), copies.end());
}

// Lets the block's other threads and the other grids go on.
void pause_spin() {
  yield();
  std::this_thread::yield();
}

uint64_t clock_ns() { return virtual_ns; }
uint64_t clock_cycles() { return virtual_cycles; }

int run_grid(const LaunchShape& shape, void (*entry)(void*), void* argument, int schedule,
             int workers) {
  Grid grid;
  grid.shape = shape, grid.entry = entry, grid.argument = argument, grid.schedule = schedule;
  grid.ns = virtual_ns, grid.cycles = virtual_cycles;
  if (grid.threads() < 1 || grid.threads() > MOST_THREADS || grid.blocks() < 1) {
    last_error = "impossible launch: " + std::to_string(grid.blocks()) + " blocks of " +
                 std::to_string(grid.threads()) + " threads";
    return 1;
  }
  run_on_threads(grid, static_cast<int>(std::min<long>(workers, grid.blocks())));
  last_error = grid.error;
  return grid.failed ? 2 : 0;
}

}  // namespace shim

extern "C" const char* shim_last_error() { return shim::last_error.c_str(); }

// What stamps read in the next launch of this thread; the emulated driver keeps the time.
extern "C" void shim_set_clock(uint64_t ns, uint64_t cycles) {
  shim::virtual_ns = ns;
  shim::virtual_cycles = cycles;
}
