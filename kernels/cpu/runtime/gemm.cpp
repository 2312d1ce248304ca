#include "kernels/cpu/runtime/gemm.h"

#include <stdexcept>

#ifndef SG_ONEDNN

namespace sg::kernels::onednn {
namespace {
[[noreturn]] void missing() {
  throw std::logic_error("gemm: this build has no oneDNN");
}
}  // namespace

bool multiplies_bf16() {
  return false;
}
void gemm_f32(const Product&) {
  missing();
}
void gemm_bf16(const Product&, bool, void*) {
  missing();
}
size_t bf16_scratch(const Product&, bool) {
  missing();
}

}  // namespace sg::kernels::onednn

#else

#include <array>
#include <dnnl.hpp>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "kernels/cpu/runtime/parallel.h"

namespace sg::kernels::onednn {
namespace {

// Never destroyed: pool threads may outlive static objects.
const dnnl::engine& engine() {
  static const dnnl::engine& e = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return e;
}

// All that a primitive depends on.
struct Key {
  int64_t m, n, k, lda, ldb, ldc;
  bool a_transposed, b_transposed, f32_result, accumulate, bias;
  bool operator==(const Key&) const = default;
};

size_t hash(const Key& key) {
  uint64_t h = 0;
  const auto mix = [&h](int64_t x) {
    h = (h ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  };
  for (const int64_t x : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc})
    mix(x);
  mix(key.a_transposed | key.b_transposed << 1 | key.f32_result << 2 | key.accumulate << 3 |
      key.bias << 4);
  return h;
}

Key key_of(const Product& p, bool f32_result) {
  return {p.m,
          p.n,
          p.k,
          p.a.ld,
          p.b.ld,
          p.ldc,
          p.a.transposed,
          p.b.transposed,
          f32_result,
          p.accumulate,
          p.bias != nullptr};
}

dnnl::matmul::primitive_desc describe(const Key& key) {
  using dnnl::memory;
  const auto matrix =
      [](memory::data_type type, int64_t rows, int64_t columns, int64_t ld, bool transposed) {
        return memory::desc(
            {rows, columns}, type, transposed ? memory::dims{1, ld} : memory::dims{ld, 1});
      };
  const auto in = memory::data_type::bf16, out = key.f32_result ? memory::data_type::f32 : in;
  const memory::desc a = matrix(in, key.m, key.k, key.lda, key.a_transposed);
  const memory::desc b = matrix(in, key.k, key.n, key.ldb, key.b_transposed);
  const memory::desc c = matrix(out, key.m, key.n, key.ldc, false);
  const memory::desc bias = key.bias ? matrix(out, 1, key.n, key.n, false) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  using Description = dnnl::matmul::primitive_desc;
  return key.bias ? Description(engine(), a, b, bias, c, attributes)
                  : Description(engine(), a, b, c, attributes);
#else
  const auto d = key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {d, attributes, engine()};
#endif
}

struct Compiled {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
};

// The latest primitives of the process, least recently used dropped.
class Cache {
 public:
  std::shared_ptr<const Compiled> find(const Key& key) {
    std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    const auto description = describe(key);
    entries_.emplace_front(
        key, std::make_shared<const Compiled>(Compiled{description, dnnl::matmul(description)}));
    index_.emplace(key, entries_.begin());
    if (entries_.size() > capacity) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

 private:
  static constexpr size_t capacity = 1024;
  struct Hash {
    size_t operator()(const Key& key) const { return hash(key); }
  };
  using Entries = std::list<std::pair<Key, std::shared_ptr<const Compiled> > >;
  std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, Hash> index_;
};

Cache& cache() {
  static Cache& c = *new Cache;
  return c;
}

// A thread's own handle on a primitive, with memory objects whose addresses are set before each
// execution.
struct Ready {
  Key key{};
  std::shared_ptr<const Compiled> compiled;
  std::unordered_map<int, dnnl::memory> arguments;
};

// Direct-mapped in front of the shared cache, so that a repeated product takes no lock.
Ready& ready(const Key& key) {
  thread_local std::array<Ready, 128> slots;
  Ready& r = slots[hash(key) % slots.size()];
  if (r.compiled && r.key == key)
    return r;
  use_one_openmp_thread();  // oneDNN plans a product for the threads of the thread that asks
  r.compiled = cache().find(key);
  r.key = key;
  const auto& d = r.compiled->description;
  r.arguments = {{DNNL_ARG_SRC, {d.src_desc(), engine(), nullptr}},
                 {DNNL_ARG_WEIGHTS, {d.weights_desc(), engine(), nullptr}},
                 {DNNL_ARG_DST, {d.dst_desc(), engine(), nullptr}},
                 {DNNL_ARG_SCRATCHPAD, {d.scratchpad_desc(), engine(), nullptr}}};
  if (key.bias)
    r.arguments.emplace(DNNL_ARG_BIAS, dnnl::memory(d.bias_desc(), engine(), nullptr));
  return r;
}

}  // namespace

bool multiplies_bf16() {
  static const bool supported = __builtin_cpu_supports("avx512bf16");
  return supported;
}

void gemm_f32(const Product& p) {
  use_one_openmp_thread();
  const dnnl_status_t status = dnnl_sgemm(p.a.transposed ? 'T' : 'N',
                                          p.b.transposed ? 'T' : 'N',
                                          p.m,
                                          p.n,
                                          p.k,
                                          1.0f,
                                          static_cast<const float*>(p.a.data),
                                          p.a.ld,
                                          static_cast<const float*>(p.b.data),
                                          p.b.ld,
                                          p.accumulate ? 1.0f : 0.0f,
                                          static_cast<float*>(p.c),
                                          p.ldc);
  if (status != dnnl_success) {
    throw std::runtime_error("matmul: oneDNN refuses an f32 product, status " +
                             std::to_string(status) + ": m " + std::to_string(p.m) + ", n " +
                             std::to_string(p.n) + ", k " + std::to_string(p.k));
  }
}

void gemm_bf16(const Product& p, bool f32_result, void* scratch) {
  thread_local dnnl::stream stream(engine());
  Ready& r = ready(key_of(p, f32_result));
  r.arguments[DNNL_ARG_SRC].set_data_handle(const_cast<void*>(p.a.data));
  r.arguments[DNNL_ARG_WEIGHTS].set_data_handle(const_cast<void*>(p.b.data));
  r.arguments[DNNL_ARG_DST].set_data_handle(p.c);
  r.arguments[DNNL_ARG_SCRATCHPAD].set_data_handle(scratch);
  if (p.bias)
    r.arguments[DNNL_ARG_BIAS].set_data_handle(const_cast<void*>(p.bias));
  r.compiled->primitive.execute(stream, r.arguments);
  stream.wait();
}

size_t bf16_scratch(const Product& p, bool f32_result) {
  return ready(key_of(p, f32_result)).compiled->description.scratchpad_desc().get_size();
}

}  // namespace sg::kernels::onednn

#endif
