// What the frames of custom cells share whose agents hear others: see grid.cuh and links.cuh. lattice.go puts a frame
// and the step that a user has written together, and RFC 0064 says what for. A Cell has
//   Agent, Params, Around, Heard, Part                   Heard is what neighbours hear of an agent
//   static Params params(const unsigned *words)
//   static Heard hear(const Row &, const unsigned *offsets, unsigned x)
//   static void load(Agent &, const Heard &, const Row &, const unsigned *offsets, unsigned x)
//   static void store(const Agent &, const Row &, const unsigned *offsets, unsigned x)
//   static void around(Around &, const Part &, unsigned neighbours)
//   static void step(Agent &, const Params &, const Around &)
//   static unsigned candidate(const Agent &)
// and a Part is a reduction of some neighbours: Part::none(), Part::of(const Heard &) and join(const Part &). On a
// graph it has Part::of(const Heard &, float weight).
#pragma once

#include "philox.cuh"

// What every Agent begins with: its number, and random numbers in [0, 1), multiples of 2^-24, which depend on the
// swarm's seed, the number and, for uniform, the tick, and on nothing else.
struct Numbers {
  unsigned index;

  __device__ __forceinline__ float fixed(unsigned k) const { return unit_of(philox(key0, key1, k, index, 0, 0)); }
  __device__ __forceinline__ float uniform() {
    const unsigned long long r = tick + 1; // fixed has tick 0
    return unit_of(philox(key0, key1, drawn++, index, (unsigned)r, (unsigned)(r >> 32)));
  }
  __device__ __forceinline__ void open(unsigned seed0, unsigned seed1, unsigned id, unsigned long long ticks) {
    index = id;
    key0 = seed0;
    key1 = seed1;
    tick = ticks;
    drawn = 0;
  }

private:
  unsigned key0, key1, drawn;
  unsigned long long tick;
};

// The pages of a generation, with the frame of each page.
struct Generation {
  unsigned char *pages;
  const unsigned *frames;
};

// A grid whose pages have whole rows, each of them `each`: n / each is the upper word of 2 n * magic, shifted by shift,
// for any row n.
struct Grid {
  unsigned page_bytes, width, height, depth, each, magic, shift;
};

// A row: its page, and the place of its first agent there.
struct Row {
  unsigned char *page;
  unsigned at;
};

__device__ __forceinline__ Row row_of(const Generation &g, const Grid &grid, unsigned row) {
  const unsigned page = (unsigned)((unsigned long long)(2 * row) * grid.magic >> 32) >> grid.shift;
  const unsigned long long frame = __ldg(g.frames + page);
  return {g.pages + frame * grid.page_bytes, (row - page * grid.each) * grid.width};
}

// Reads a variable, or writes it. The two generations share no page, so that loads may go ahead of stores.
template <class T> __device__ __forceinline__ T get(const Row &row, unsigned offset, unsigned x) {
  return __ldg((const T *)(row.page + offset) + (row.at + x));
}
template <class T> __device__ __forceinline__ void put(const Row &row, unsigned offset, unsigned x, T v) {
  ((T *)(row.page + offset))[row.at + x] = v;
}

// bf16 is the upper half of a float, rounded to the nearest, ties to even.
__device__ __forceinline__ float of_bf16(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
__device__ __forceinline__ unsigned short to_bf16(float v) {
  const unsigned u = __float_as_uint(v);
  if (v != v) return (unsigned short)(u >> 16 | 0x40u);
  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// sum / n, for n neighbours, 0 without one. Where n is a power of two, a product with its reciprocal has the same bits
// and takes an instruction.
__device__ __forceinline__ float mean_of(float sum, unsigned n) {
  if (n == 0) return 0.0f;
  if ((n & (n - 1)) == 0) return mul(sum, __uint_as_float(0x7f000000u - __float_as_uint((float)n)));
  return quo(sum, (float)n);
}

// Counts of up to 16 candidates, each below 256.
struct Counts {
  unsigned long long low, high;

  __device__ __forceinline__ void add(unsigned c) {
    if (c < 8)
      low += 1ull << 8 * c;
    else
      high += 1ull << 8 * (c - 8);
  }
  __device__ __forceinline__ void flush(unsigned *sums) {
    for (unsigned c = 0; c < LATTICE_CANDIDATES; c++) {
      const unsigned n = (unsigned)((c < 8 ? low : high) >> 8 * (c % 8)) & 255;
      if (n) atomicAdd(&sums[c], n);
    }
    low = high = 0;
  }
};
