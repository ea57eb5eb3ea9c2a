// Where the state of a group stands in its page; see Layout in layout.go.
#pragma once

#include "words.cuh"

struct State {
  unsigned char *page;
  const unsigned *offsets;
  unsigned agents, slots, slot;

  __device__ __forceinline__ unsigned *word(unsigned v, unsigned element) const {
    return (unsigned *)(page + offsets[v]) + element;
  }
  // Component c of a group variable.
  __device__ __forceinline__ float *group(unsigned v, unsigned c) const { return (float *)word(v, c * slots + slot); }
  __device__ __forceinline__ unsigned *group32(unsigned v, unsigned c) const { return word(v, c * slots + slot); }
  __device__ __forceinline__ unsigned long long *group64(unsigned v, unsigned c = 0) const {
    return (unsigned long long *)(page + offsets[v]) + c * slots + slot;
  }
  // Component 0 of a group variable of width elements that stand together.
  __device__ __forceinline__ float *row(unsigned v, unsigned width) const { return (float *)word(v, slot * width); }
  // Component c of an agent variable of agent a.
  __device__ __forceinline__ float *agent(unsigned v, unsigned c, unsigned a) const {
    return (float *)word(v, (c * slots + slot) * agents + a);
  }
};

// A run as the host writes it; see Run in observe.go.
struct Run {
  unsigned frame, slot, first, count, group;
};

__device__ __forceinline__ State open_state(unsigned char *pages, unsigned char *host, unsigned long long page_bytes,
                                            const unsigned *layout, const Run &run) {
  State s;
  const bool there = run.frame >> RUN_HOST_BIT;
  s.page = (there ? host : pages) + (unsigned long long)(run.frame & ~(1u << RUN_HOST_BIT)) * page_bytes;
  s.offsets = layout + 2;
  s.agents = layout[0];
  s.slots = layout[1];
  s.slot = run.slot;
  return s;
}

__device__ __forceinline__ float param(const unsigned *params, unsigned i) { return __uint_as_float(params[i]); }
