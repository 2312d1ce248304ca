// Host memory and threads: the devices cpu:i, the memory beside them (`host`), and `meta`, which
// has neither.
#include <sys/mman.h>

#include <cstdlib>

#include "core/backend.h"
#include "core/device.h"
#include "core/processors.h"
#include "core/stream_cpu.h"
#include "kernels/cpu/runtime/parallel.h"

namespace sg {
namespace {

constexpr uint64_t huge_page = uint64_t{2} << 20;

const KernelTable& kernels_of_processor(Device device) {
  const KernelTable* table = cpu_kernels(std::getenv("SG_ISA"));
  check(table != nullptr,
        "{}: no kernels: this processor needs AVX2 (SG_ISA may be avx2 or avx512, and must be "
        "supported)",
        device);
  return *table;
}

View bytes_at(void* data, uint64_t bytes) {
  View v;
  v.data = data;
  v.dtype = DType::u8;
  v.rank = 1;
  v.shape[0] = static_cast<int64_t>(bytes);
  v.strides[0] = 1;
  return v;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Device device, int threads) : device_(device), table_(kernels_of_processor(device)) {
    set_threads(threads);
  }

  void set_threads(int threads) override {
    workers_.reset();
    if (device_.type != DeviceType::cpu || threads == 1)
      return;
    const Processors set = processors_of(device_);
    const auto places =
        place_threads(set.empty() ? process_processors() : set, numa_nodes(), threads);
    const auto take_place = [places](int worker) { run_on(places[static_cast<size_t>(worker)]); };
    workers_ = std::make_unique<kernels::ThreadPool>(threads, take_place);
  }

  void* allocate(uint64_t bytes) override {
    const uint64_t alignment = bytes >= huge_page ? huge_page : 64;
    void* block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (block && bytes >= huge_page)
      madvise(block, bytes, MADV_HUGEPAGE);  // fewer page faults at first touch
    return block;
  }
  void free(void* block, uint64_t) noexcept override { std::free(block); }
  bool backed() const override { return true; }
  bool reaches(Device other) const override {
    return other.type == DeviceType::cpu || other.type == DeviceType::host;
  }
  void copy(void* out, const void* in, uint64_t bytes, StreamHandle stream) override {
    table_.copy(bytes_at(const_cast<void*>(in), bytes), bytes_at(out, bytes), stream);
  }

  std::shared_ptr<StreamState> stream(const std::string& name) override {
    return detail::thread_stream(device_, name);
  }
  std::shared_ptr<StreamState> compute_stream() override { return detail::inline_stream(device_); }
  StreamHandle handle() const override { return {workers_.get()}; }
  const KernelTable& kernels() const override { return table_; }

 private:
  const Device device_;
  const KernelTable& table_;
  std::unique_ptr<kernels::ThreadPool> workers_;
};

// Its kernels are never called: they are there to say what workspaces they would take.
class MetaBackend final : public Backend {
 public:
  explicit MetaBackend(Device device) : device_(device), table_(kernels_of_processor(device)) {}

  void* allocate(uint64_t) override { return nullptr; }
  void free(void*, uint64_t) noexcept override {}
  bool backed() const override { return false; }
  bool reaches(Device) const override { return true; }
  void copy(void*, const void*, uint64_t, StreamHandle) override {}
  std::shared_ptr<StreamState> stream(const std::string&) override {
    return detail::inline_stream(device_);
  }
  std::shared_ptr<StreamState> compute_stream() override { return detail::inline_stream(device_); }
  StreamHandle handle() const override { return {}; }
  const KernelTable& kernels() const override { return table_; }

 private:
  const Device device_;
  const KernelTable& table_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Device device, int threads) {
  return std::make_unique<CpuBackend>(device, threads);
}
std::unique_ptr<Backend> make_meta_backend(Device device) {
  return std::make_unique<MetaBackend>(device);
}

}  // namespace sg
