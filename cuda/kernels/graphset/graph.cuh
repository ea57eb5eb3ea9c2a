// What the kernels of graphs share.
#pragma once

typedef unsigned long long u64;

// The pages of the agents of a graph. The state of an agent is a byte at the start of its page, and per is the agents
// of a page.
struct Pages {
  unsigned char *pages;
  const unsigned *frames;
  u64 page_bytes;
  unsigned per;

  // The place of the state of an agent.
  __device__ __forceinline__ unsigned char *at(unsigned id) const {
    return pages + frames[id / per] * page_bytes + id % per;
  }

  // Reads the states of n agents, up to 4, from id on, which is a multiple of 4. Others are 255.
  __device__ __forceinline__ void read(unsigned id, unsigned n, unsigned char *states) const {
    unsigned four = 0xffffffffu;
    if (n == 4 && per % 4 == 0) {
      four = *(const unsigned *)at(id);
    } else {
      for (unsigned k = 0; k < n; k++) four = (four & ~(255u << 8 * k)) | (unsigned)*at(id + k) << 8 * k;
    }
    for (unsigned k = 0; k < 4; k++) states[k] = (unsigned char)(four >> 8 * k);
  }

  // Writes what read has read.
  __device__ __forceinline__ void write(unsigned id, unsigned n, const unsigned char *states) const {
    if (n == 4 && per % 4 == 0) {
      *(unsigned *)at(id) = states[0] | states[1] << 8 | states[2] << 16 | (unsigned)states[3] << 24;
    } else {
      for (unsigned k = 0; k < n; k++) *at(id + k) = states[k];
    }
  }
};

// Four words of Philox4x32-10; see kernels.Philox.
struct Words {
  unsigned w[4];

  __device__ __forceinline__ Words(unsigned key0, unsigned key1, unsigned c0, unsigned c1, unsigned c2, unsigned c3) {
    for (int i = 0; i < 10; i++) {
      const u64 p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
      c0 = (unsigned)(p1 >> 32) ^ c1 ^ key0;
      c1 = (unsigned)p1;
      c2 = (unsigned)(p0 >> 32) ^ c3 ^ key1;
      c3 = (unsigned)p0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
  }

  // Word k, without an array in memory.
  __device__ __forceinline__ unsigned at(unsigned k) const {
    return k < 2 ? (k ? w[1] : w[0]) : (k == 3 ? w[3] : w[2]);
  }
};

// Reports whether a word is below a chance in units of 2^-32. 2^32 - 1 units are a chance of 1.
__device__ __forceinline__ bool below(unsigned word, unsigned chance) { return word < chance || chance == 0xffffffffu; }

// The links of the agents: rows of degree links each or, if degree is 0, the links between offsets.
struct Links {
  const u64 *offsets;
  unsigned degree;

  __device__ __forceinline__ u64 first(u64 id) const { return degree ? id * degree : offsets[id]; }
};

// Writes the bits of four agents that each lane has, from agent 128*warp on, if there are such agents. All lanes of a
// warp call it.
__device__ __forceinline__ void write_bits(unsigned *bits, u64 warp, unsigned four, unsigned agents) {
  const unsigned lane = threadIdx.x % 32;
  unsigned word = four << lane % 8 * 4;
  for (unsigned d = 1; d < 8; d *= 2) word |= __shfl_xor_sync(0xffffffffu, word, d);
  const u64 at = warp * 4 + lane / 8;
  if (lane % 8 == 0 && at * 32 < agents) bits[at] = word;
}

// Adds the sum of the counts of a warp to *sum. All lanes of the warp call it.
__device__ __forceinline__ void add_warp(unsigned count, u64 *sum) {
  for (unsigned d = 16; d > 0; d /= 2) count += __shfl_xor_sync(0xffffffffu, count, d);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(sum, (u64)count);
}

// Appends the agents of the lanes that have one to a list of *count agents. All lanes of the warp call it.
__device__ __forceinline__ void append(unsigned *list, unsigned *count, unsigned id, bool has) {
  const unsigned who = __ballot_sync(0xffffffffu, has), lane = threadIdx.x % 32;
  if (who == 0) return;
  unsigned first = 0;
  if (lane == 0) first = atomicAdd(count, (unsigned)__popc(who));
  first = __shfl_sync(0xffffffffu, first, 0);
  if (has) list[first + (unsigned)__popc(who & ((1u << lane) - 1))] = id;
}
