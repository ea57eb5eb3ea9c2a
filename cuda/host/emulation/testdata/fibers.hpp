// Runs the threads of a block as fibers of one thread. A fiber runs until it waits at a barrier or ends. The order of
// the fibers is a permutation of the block, once forwards and once backwards, so that a kernel that lacks a barrier
// reads what another thread has not written yet. The programs of this folder follow this text.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

struct Index {
  unsigned x, y, z;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

static inline float __uint_as_float(unsigned v) {
  float f;
  memcpy(&f, &v, 4);
  return f;
}
static inline unsigned __float_as_uint(float f) {
  unsigned v;
  memcpy(&v, &f, 4);
  return v;
}

namespace fibers {
enum { most = 1024, stack = 256 << 10 };

// A place at which a number of threads wait for each other.
struct Barrier {
  unsigned arrived, generation;
};
static Barrier block, warps[most / 32];

#ifdef __x86_64__
// A context is the stack pointer, below which the registers lie that a call preserves (System V ABI, 3.2.1).
typedef void *Context;
extern "C" void fiber_swap(Context *save, Context load);
asm(".text\n.type fiber_swap,@function\nfiber_swap:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
static inline void swap(Context *save, Context *load) { fiber_swap(save, *load); }
static void make(Context *c, char *base, void (*start)()) {
  void **top = (void **)(base + stack);
  *--top = nullptr; // start does not return
  *--top = (void *)start;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  *c = top;
}
#else
typedef ucontext_t Context;
static inline void swap(Context *save, Context *load) { swapcontext(save, load); }
static void make(Context *c, char *base, void (*start)()) {
  getcontext(c);
  c->uc_stack.ss_sp = base;
  c->uc_stack.ss_size = stack;
  c->uc_link = nullptr;
  makecontext(c, start, 0);
}
#endif

struct Fiber {
  Context at;
  Barrier *waits; // null while it can run
  unsigned generation;
  bool done;
  void *fake; // stack of the address sanitizer
};
static Fiber all[most];
static Context scheduler;
static Fiber *running;
static char *stacks;
static void (*body)();
static const void *main_stack;
static size_t main_size;

// The address sanitizer must know on which stack the program runs.
static inline void leave(void **fake, const void *base, size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake, base, size);
#endif
}
static inline void arrive(void *fake, const void **base, size_t *size) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, base, size);
#endif
}

static void wait(Barrier &b, unsigned members) {
  if (++b.arrived == members) {
    b.arrived = 0;
    b.generation++;
    return;
  }
  Fiber *f = running;
  f->waits = &b;
  f->generation = b.generation;
  leave(&f->fake, main_stack, main_size);
  swap(&f->at, &scheduler);
  arrive(f->fake, nullptr, nullptr);
}

static void start() {
  arrive(nullptr, &main_stack, &main_size);
  body();
  running->done = true;
  leave(nullptr, main_stack, main_size);
  swap(&running->at, &scheduler);
}

// Runs body as each of n threads of a block.
static void run(unsigned n, void (*f)()) {
  if (!stacks)
    stacks = (char *)mmap(nullptr, (size_t)most * stack, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  static unsigned order[most];
  body = f;
  block = Barrier{};
  uint64_t random = blockIdx.x + 1;
  for (unsigned i = 0; i < n; i++) {
    if (i % 32 == 0) warps[i / 32] = Barrier{};
    make(&all[i].at, stacks + (size_t)i * stack, start);
    all[i].waits = nullptr;
    all[i].done = false;
    random = random * 6364136223846793005u + 1442695040888963407u; // Knuth, MMIX
    const unsigned j = (random >> 33) % (i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  unsigned left = n;
  for (bool backwards = false; left > 0; backwards = !backwards) {
    bool moved = false;
    for (unsigned k = 0; k < n; k++) {
      const unsigned i = order[backwards ? n - 1 - k : k];
      Fiber *fiber = &all[i];
      if (fiber->done || (fiber->waits && fiber->waits->generation == fiber->generation)) continue;
      moved = true;
      fiber->waits = nullptr;
      running = fiber;
      threadIdx.x = i;
      void *fake = nullptr;
      leave(&fake, stacks + (size_t)i * stack, stack);
      swap(&scheduler, &fiber->at);
      arrive(fake, nullptr, nullptr);
      left -= fiber->done;
    }
    if (!moved) {
      fprintf(stderr, "a barrier that not all threads reach\n");
      exit(3);
    }
  }
}

static inline void wait_block() { wait(block, blockDim.x); }
static inline void wait_warp() {
  const unsigned w = threadIdx.x / 32, left = blockDim.x - 32 * w;
  wait(warps[w], left < 32 ? left : 32);
}
} // namespace fibers
