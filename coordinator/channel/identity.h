// KernelId: one 64-bit number for "this function, from this image, launched in this shape", the
// same in every process, run and machine. Its upper half is the kind: the function, launched with
// about as many threads (policies/vocabulary.h). The shim computes it at the first launch of a shape;
// the daemon and tools compute it for what they read from files. Pure; no memory of its own.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace lull::channel {

// Mixes one word into a running hash (xor, multiply, rotate; the finish is in `hash_finish`).
constexpr uint64_t hash_mix(uint64_t hash, uint64_t word) {
  hash ^= word * 0x9e3779b97f4a7c15ULL;
  hash = (hash << 27) | (hash >> 37);
  return hash * 0xbf58476d1ce4e5b9ULL + 0x52dce729ULL;
}
constexpr uint64_t hash_finish(uint64_t hash) {
  hash ^= hash >> 31;
  hash *= 0x94d049bb133111ebULL;
  return hash ^ (hash >> 29);
}

// Of `size` bytes, eight at a time.
inline uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0) {
  const char* at = static_cast<const char*>(data);
  uint64_t hash = hash_mix(0x6c756c6cULL ^ seed, size);
  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    hash = hash_mix(hash, word);
  }
  uint64_t last = 0;
  memcpy(&last, at, size);
  return hash_finish(hash_mix(hash, last));
}

// Of a module image. A big one (libraries carry hundreds of MB) is sampled: its size, its first
// MiB, and 4 KiB from each of 64 equal parts of the rest.
inline uint64_t hash_image(const void* image, size_t size) {
  constexpr size_t kWhole = 1U << 20;
  constexpr size_t kSample = 4096;
  constexpr size_t kSamples = 64;
  if (size <= kWhole + kSample * kSamples) return hash_bytes(image, size);
  const char* bytes = static_cast<const char*>(image);
  uint64_t hash = hash_bytes(bytes, kWhole, size);
  const size_t part = (size - kWhole) / kSamples;
  for (size_t n = 0; n < kSamples; ++n) {
    hash = hash_mix(hash, hash_bytes(bytes + kWhole + n * part, kSample));
  }
  return hash_finish(hash);
}

// The nearest power of two to the number of threads, as its exponent: 31 and more are one.
inline uint32_t size_of_shape(const uint32_t grid[3], const uint32_t block[3]) {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  uint64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    for (const uint64_t extent : {grid[axis], block[axis]}) {
      if (extent > 1) threads = threads > kMost / extent ? kMost : threads * extent;
    }
  }
  return static_cast<uint32_t>(63 - __builtin_clzll(threads * threads) + 1) / 2;
}

// Neither half is 0, which means "no kernel" and "of no kind".
inline uint64_t kernel_id(const char* name, uint64_t image_hash, const uint32_t grid[3],
                          const uint32_t block[3], uint32_t shared_bytes) {
  const uint64_t function = hash_bytes(name, strlen(name), image_hash);
  const auto kind = static_cast<uint32_t>(hash_finish(hash_mix(function, size_of_shape(grid, block))));
  uint64_t hash = function;
  for (int axis = 0; axis < 3; ++axis) {
    hash = hash_mix(hash, (uint64_t{grid[axis]} << 32) | block[axis]);
  }
  const auto shape = static_cast<uint32_t>(hash_finish(hash_mix(hash, shared_bytes)));
  return (uint64_t{kind == 0 ? 1 : kind} << 32) | (shape == 0 ? 1 : shape);
}

// Of the same kernel launched from one call site, as text ("path+0xoffset;..."); of the same kind.
inline uint64_t kernel_id_at(uint64_t id, uint64_t call_site_hash) {
  const auto site = static_cast<uint32_t>(hash_finish(hash_mix(id, call_site_hash)));
  return (id & ~uint64_t{UINT32_MAX}) | (site == 0 ? 1 : site);
}

}  // namespace lull::channel
