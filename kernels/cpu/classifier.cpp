// The loss with the classifier's products, by chunks of rows and tiles of the vocabulary. While a
// tile of logits is still in cache its maximum, its exponentials and their sum are taken; only the
// exponentials of one chunk are kept, for the backward products. All cuts depend on shapes alone:
// training and evaluation give the same losses.
#include "kernels/cpu/carver.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/runtime/plan.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

struct Cuts : plan::Classifier {
  int64_t rows, c, v;

  Cuts(const View& x, const View& weight)
      : plan::Classifier(plan::classifier(x.shape[0], weight.shape[0])),
        rows(x.shape[0]),
        c(x.shape[1]),
        v(weight.shape[0]) {}
  int64_t rows_of(int64_t index) const {
    return rows - index * chunk < chunk ? rows - index * chunk : chunk;
  }
  int64_t width_of(int64_t tile) const {
    return v - tile * width < width ? v - tile * width : width;
  }
};

template <class T>
struct Buffers {
  using W = Statistic<T>;
  W *maximum, *sum;  // (tiles, chunk); the maximum becomes the factor that turns exponentials into
                     // gradients
  W* target_logit;   // (chunk)
  W* kept;           // (tiles, chunk, width): exponentials
  W* dx_parts;       // (groups, chunk, c)
  W* d_weight;       // (v, c): sums of several chunks where the gradient itself has 16 bits
  size_t shared;     // bytes of all these; then, per thread:
  W* tile;           // (chunk, width), forward alone
  T* gradient;       // (chunk, width), 16-bit
  void* product;     // gemm's scratch
  size_t per_thread;

  Buffers(void* data, const Cuts& cuts, bool backward, size_t product_bytes, int worker) {
    constexpr bool narrow = sizeof(T) == 2;
    Carver all(data);
    maximum = all.take<W>(cuts.tiles * cuts.chunk), sum = all.take<W>(cuts.tiles * cuts.chunk);
    target_logit = all.take<W>(cuts.chunk);
    kept = all.take<W>(backward ? cuts.tiles * cuts.chunk * cuts.width : 0);
    dx_parts = all.take<W>(backward ? cuts.groups * cuts.chunk * cuts.c : 0);
    d_weight = all.take<W>(backward && narrow && cuts.chunks > 1 ? cuts.v * cuts.c : 0);
    shared = all.bytes();
    const auto take_own = [&](Carver own) {
      tile = own.take<W>(backward ? 0 : cuts.chunk * cuts.width);
      gradient = own.take<T>(backward && narrow ? cuts.chunk * cuts.width : 0);
      product = own.take<char>(static_cast<int64_t>(product_bytes));
      return own.bytes();
    };
    per_thread = take_own(Carver(nullptr));
    if (data)
      take_own(
          Carver(static_cast<char*>(data) + shared + per_thread * static_cast<size_t>(worker)));
  }
};

template <class T>
class Classifier {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;

  Classifier(const View& x,
             const View& weight,
             const View& targets,
             const View& losses,
             const View& dx,
             const View& d_weight,
             float scale)
      : cuts_(x, weight),
        x_(x),
        weight_(weight),
        targets_(targets),
        losses_(losses),
        dx_(dx),
        d_weight_(d_weight),
        scale_(static_cast<W>(scale)) {}

  bool backward() const { return d_weight_.data != nullptr; }
  const Cuts& cuts() const { return cuts_; }

  void run(Workspace workspace, size_t product_bytes, StreamHandle stream) const {
    const auto buffers = [&](int worker) {
      return Buffers<T>(workspace.data, cuts_, backward(), product_bytes, worker);
    };
    for (int64_t chunk = 0; chunk < cuts_.chunks; ++chunk) {
      parallel_for(stream, cuts_.tiles, [&](int64_t tile, int worker) {
        logits(chunk, tile, buffers(worker));
      });
      parallel_chunks(
          stream, cuts_.rows_of(chunk), cuts_.tile_rows.each, [&](int64_t begin, int64_t end, int) {
            join_tiles(chunk, begin, end, buffers(0));
          });
      if (!backward())
        continue;
      parallel_for(stream, cuts_.groups, [&](int64_t group, int worker) {
        gradients(chunk, group, buffers(worker));
      });
      parallel_chunks(
          stream,
          cuts_.rows_of(chunk),
          cuts_.group_rows.each,
          [&](int64_t begin, int64_t end, int) { join_groups(chunk, begin, end, buffers(0)); });
    }
    if (cuts_.chunks == 0 && backward())
      zero_d_weight();
  }

  // The products of a tile: logits = x·wᵀ, then dx_part = d_logits·w and d_weight = d_logitsᵀ·x.
  Product logits_product(int64_t chunk, int64_t tile) const {
    return {cuts_.rows_of(chunk),
            cuts_.width_of(tile),
            cuts_.c,
            {row(x_, chunk * cuts_.chunk), cuts_.c, false},
            {row(weight_, tile * cuts_.width), cuts_.c, true},
            nullptr,
            cuts_.width_of(tile)};
  }
  Product dx_product(int64_t chunk, int64_t tile) const {
    return {cuts_.rows_of(chunk),
            cuts_.c,
            cuts_.width_of(tile),
            {nullptr, cuts_.width_of(tile), false},
            {row(weight_, tile * cuts_.width), cuts_.c, false},
            nullptr,
            cuts_.c,
            tile % cuts_.group > 0};
  }
  Product d_weight_product(int64_t chunk, int64_t tile) const {
    return {cuts_.width_of(tile),
            cuts_.c,
            cuts_.rows_of(chunk),
            {nullptr, cuts_.width_of(tile), true},
            {row(x_, chunk * cuts_.chunk), cuts_.c, false},
            nullptr,
            cuts_.c,
            chunk > 0};
  }

 private:
  static T* row(const View& x, int64_t i) { return x.data ? x.as<T>() + i * x.shape[1] : nullptr; }

  void logits(int64_t chunk, int64_t tile, const Buffers<T>& b) const {
    const int64_t n = cuts_.width_of(tile), first = tile * cuts_.width;
    W* const values = backward() ? b.kept + tile * cuts_.chunk * cuts_.width : b.tile;
    Product p = logits_product(chunk, tile);
    p.c = values;
    gemm<T, W>(p, b.product);
    for (int64_t r = 0; r < p.m; ++r) {
      W* const x = values + r * n;
      const int64_t target = target_of(targets_, chunk * cuts_.chunk + r) - first;
      if (target >= 0 && target < n)
        b.target_logit[r] = x[target];
      b.maximum[tile * cuts_.chunk + r] = maximum_of<V>(x, n);
      b.sum[tile * cuts_.chunk + r] = exponentials<V>(x, n, b.maximum[tile * cuts_.chunk + r], x);
    }
  }

  // Tiles become rows: losses, and each tile's factor scale · e^(maximum − lse). Vectors run along
  // the rows.
  void join_tiles(int64_t chunk, int64_t begin, int64_t end, const Buffers<T>& b) const {
    for_lanes<V>(end - begin, [&](int64_t i, auto part) {
      const int64_t r = begin + i;
      V most = load(b.maximum + r, part), sum(W(0));
      for (int64_t t = 1; t < cuts_.tiles; ++t)
        most = max(load(b.maximum + t * cuts_.chunk + r, part), most);
      for (int64_t t = 0; t < cuts_.tiles; ++t) {
        const int64_t at = t * cuts_.chunk + r;
        sum = fma(load(b.sum + at, part), exp(load(b.maximum + at, part) - most), sum);
      }
      const V lse = most + log(sum);
      store(losses_.as<W>() + chunk * cuts_.chunk + r, lse - load(b.target_logit + r, part), part);
      for (int64_t t = 0; backward() && t < cuts_.tiles; ++t) {
        W* const at = b.maximum + t * cuts_.chunk + r;
        store(at, V(scale_) * exp(load(at, part) - lse), part);
      }
    });
    for (int64_t r = begin; r < end; ++r) {
      if (target_of(targets_, chunk * cuts_.chunk + r) >= 0)
        continue;
      losses_.as<W>()[chunk * cuts_.chunk + r] = 0;
      for (int64_t t = 0; t < cuts_.tiles; ++t)
        b.maximum[t * cuts_.chunk + r] = 0;
    }
  }

  void gradients(int64_t chunk, int64_t group, const Buffers<T>& b) const {
    const int64_t end =
        (group + 1) * cuts_.group < cuts_.tiles ? (group + 1) * cuts_.group : cuts_.tiles;
    for (int64_t tile = group * cuts_.group; tile < end; ++tile) {
      const T* const d_logits = tile_gradient(chunk, tile, b);
      Product p = dx_product(chunk, tile);
      p.a.data = d_logits;
      p.c = b.dx_parts + group * cuts_.chunk * cuts_.c;
      gemm<T, W>(p, b.product);
      p = d_weight_product(chunk, tile);
      p.a.data = d_logits;
      add_to_d_weight(chunk, tile, p, b);
    }
  }

  // d_logits = factor · exponentials − scale · onehot, in place or, for 16 bits, rounded into the
  // thread's own tile.
  const T* tile_gradient(int64_t chunk, int64_t tile, const Buffers<T>& b) const {
    const int64_t n = cuts_.width_of(tile);
    W* const kept = b.kept + tile * cuts_.chunk * cuts_.width;
    T* out;
    if constexpr (std::is_same_v<T, W>)
      out = kept;
    else
      out = b.gradient;
    for (int64_t r = 0, rows = cuts_.rows_of(chunk); r < rows; ++r) {
      const V factor(b.maximum[tile * cuts_.chunk + r]);
      const int64_t target = target_of(targets_, chunk * cuts_.chunk + r) - tile * cuts_.width;
      const bool here = target >= 0 && target < n;
      const W hit = here ? kept[r * n + target] * b.maximum[tile * cuts_.chunk + r] - scale_ : W(0);
      for_lanes<V>(n, [&](int64_t i, auto part) {
        store(out + r * n + i, load(kept + r * n + i, part) * factor, part);
      });
      if (here)
        out[r * n + target] = T(hit);
    }
    return out;
  }

  // Sums of chunks are f32 and rounded once, after the last.
  void add_to_d_weight(int64_t chunk, int64_t tile, Product& p, const Buffers<T>& b) const {
    const int64_t first = tile * cuts_.width;
    if constexpr (std::is_same_v<T, W>) {
      p.c = row(d_weight_, first);
      gemm<T>(p, b.product);
    } else if (d_weight_.dtype == DType::f32) {
      p.c = d_weight_.as<float>() + first * cuts_.c;
      gemm<T, float>(p, b.product);
    } else if (cuts_.chunks == 1) {
      p.c = row(d_weight_, first);
      gemm<T>(p, b.product);
    } else {
      float* const sum = b.d_weight + first * cuts_.c;
      p.c = sum;
      gemm<T, float>(p, b.product);
      if (chunk + 1 < cuts_.chunks)
        return;
      T* const out = row(d_weight_, first);
      for_lanes<V>(p.m * cuts_.c,
                   [&](int64_t i, auto part) { store(out + i, load(sum + i, part), part); });
    }
  }

  void join_groups(int64_t chunk, int64_t begin, int64_t end, const Buffers<T>& b) const {
    T* const out = row(dx_, chunk * cuts_.chunk + begin);
    for_lanes<V>((end - begin) * cuts_.c, [&](int64_t i, auto part) {
      V sum(W(0));
      for (int64_t g = 0; g < cuts_.groups; ++g) {
        sum = sum + load(b.dx_parts + (g * cuts_.chunk + begin) * cuts_.c + i, part);
      }
      store(out + i, sum, part);
    });
  }

  void zero_d_weight() const {
    __builtin_memset(
        d_weight_.data, 0, static_cast<size_t>(cuts_.v * cuts_.c) * size_of(d_weight_.dtype));
  }

  Cuts cuts_;
  const View &x_, &weight_, &targets_, &losses_, &dx_, &d_weight_;
  W scale_;
};

// gemm's scratch for the largest of the products; every combination of options occurs among the
// first two and the last.
template <class T>
size_t product_scratch(const Classifier<T>& classifier) {
  size_t most = 0;
  const Cuts& cuts = classifier.cuts();
  const auto take = [&](size_t bytes) { most = bytes > most ? bytes : most; };
  for (const int64_t chunk : {int64_t{0}, int64_t{1}, cuts.chunks - 1}) {
    for (const int64_t tile : {int64_t{0}, int64_t{1}, cuts.tiles - 1}) {
      if (chunk < 0 || chunk >= cuts.chunks || tile >= cuts.tiles)
        continue;
      using W = Statistic<T>;
      take(gemm_scratch<T, W>(classifier.logits_product(chunk, tile)));
      if (!classifier.backward())
        continue;
      take(gemm_scratch<T, W>(classifier.dx_product(chunk, tile)));
      take(gemm_scratch<T, W>(classifier.d_weight_product(chunk, tile)));
      take(gemm_scratch<T>(classifier.d_weight_product(chunk, tile)));
    }
  }
  return most;
}

}  // namespace

template <class T>
void classifier(const View& x,
                const View& weight,
                const View& targets,
                const View& losses,
                const View& dx,
                const View& d_weight,
                float scale,
                Workspace workspace,
                StreamHandle stream) {
  const Classifier<T> c(x, weight, targets, losses, dx, d_weight, scale);
  c.run(workspace, product_scratch(c), stream);
}

size_t classifier_workspace(const View& x, const View& weight, bool backward, int threads) {
  const auto bytes = [&]<class T>(T) {
    const View none;
    T any{};
    View d_weight = weight;
    d_weight.data = backward ? &any : nullptr;  // only looked at for being there
    const Classifier<T> c(x, weight, none, none, none, d_weight, 1);
    const Buffers<T> b(nullptr, c.cuts(), backward, product_scratch(c), 0);
    return b.shared + b.per_thread * static_cast<size_t>(threads);
  };
  switch (x.dtype) {
    case DType::f64: return bytes(double{});
    case DType::f16: return bytes(f16{});
    case DType::bf16: return bytes(bf16{});
    default: return bytes(float{});
  }
}

SG_FOR_FLOATS(classifier)

}  // namespace sg::kernels::SG_ISA
