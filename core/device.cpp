#include "core/device.h"

#include <array>
#include <atomic>
#include <charconv>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "core/processors.h"

namespace sg {
namespace {

// The one place that asks which kind a device is, to choose what serves it.
std::unique_ptr<Backend> make_backend(Device device, int threads) {
  switch (device.type) {
    case DeviceType::cuda: return make_cuda_backend(device);
    case DeviceType::meta: return make_meta_backend(device);
    default: return make_cpu_backend(device, threads);
  }
}

// Everything a device owns; made at first use and kept until the process ends (tensors may outlive
// any scope).
struct DeviceState {
  DeviceState(Device device, const DeviceOptions& options)
      : thread_count(options.threads > 0 ? options.threads : available_processors()),
        backend(make_backend(device, thread_count)),
        table(backend->kernels()),
        pool(device, *backend, options.capacity) {}

  int thread_count;
  std::atomic<bool> settled{false};  // the number of threads has been used, or asked for
  const std::unique_ptr<Backend> backend;
  const KernelTable& table;
  Pool pool;
};

constexpr int last_simulated = simulated_host(max_devices - 1).index;

struct Registry {
  std::mutex mutex;
  // Of the four kinds; then `unplaced` and the simulated hosts.
  std::array<std::atomic<DeviceState*>, 5 * max_devices + 1> states{};
};
Registry& registry() {
  static auto* instance = new Registry;  // never destroyed, as its devices
  return *instance;
}

std::atomic<DeviceState*>& slot(Device device) {
  const int last = device.type == DeviceType::meta ? last_simulated : max_devices - 1;
  check(device.index >= 0 && device.index <= last,
        "device index {}: at most {}",
        device.index,
        max_devices - 1);
  return registry()
      .states[static_cast<size_t>(device.type) * max_devices + static_cast<size_t>(device.index)];
}

DeviceState& create(Device device, const DeviceOptions& options) {
  std::lock_guard lock(registry().mutex);
  auto& entry = slot(device);
  if (DeviceState* found = entry.load(std::memory_order_acquire))
    return *found;
  entry.store(new DeviceState(device, options), std::memory_order_release);
  return *entry.load(std::memory_order_relaxed);
}

DeviceState& state(Device device) {
  if (DeviceState* found = slot(device).load(std::memory_order_acquire)) [[likely]]
    return *found;
  return create(device, {});
}

// Whoever computes, or plans by the number of threads, settles that number.
DeviceState& settled(Device device) {
  DeviceState& s = state(device);
  if (!s.settled.load(std::memory_order_relaxed)) [[unlikely]]
    s.settled = true;
  return s;
}

thread_local Device device_of_thread{};

constexpr const char* type_names[] = {"cpu", "cuda", "host", "meta"};

}  // namespace

std::string to_string(Device device) {
  const char* type = type_names[static_cast<int>(device.type)];
  if (device.type == DeviceType::meta && device.index > unplaced.index)
    return fmt::format("host of {}", meta(device.index - simulated_host(0).index));
  return device.type == DeviceType::host ? type : fmt::format("{}:{}", type, device.index);
}

Device parse_device(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  for (int t = 0; t < 4; ++t) {
    if (type != type_names[t])
      continue;
    int index = 0;
    const char* end = text.data() + text.size();
    if (colon == std::string::npos)
      return {static_cast<DeviceType>(t), 0};
    const auto result = std::from_chars(text.data() + colon + 1, end, index);
    if (result.ec == std::errc{} && result.ptr == end && index >= 0 && index < max_devices) {
      return {static_cast<DeviceType>(t), index};
    }
  }
  fail(ErrorKind::usage,
       "device: \"{}\" is none of cpu:N, cuda:N, host, meta:N with N at most {}",
       text,
       max_devices - 1);
}

void configure(Device device, const DeviceOptions& options) {
  DeviceState& s = create(device, options);
  if (options.threads > 0 && (device.type == DeviceType::meta || !s.settled.exchange(true))) {
    s.backend->set_threads(options.threads);  // on the processors that the device has by now
    s.thread_count = options.threads;
  }
  check(options.threads == 0 || options.threads == s.thread_count,
        "{} already runs with {} threads, asked for {}",
        device,
        s.thread_count,
        options.threads);
  s.pool.set_capacity(options.capacity);
}

Backend& backend(Device device) {
  return *state(device).backend;
}
Pool& pool(Device device) {
  return state(device).pool;
}
const KernelTable& kernel_table(Device device) {
  return state(device).table;
}
StreamHandle stream_handle(Device device) {
  return settled(device).backend->handle();
}
int threads(Device device) {
  return settled(device).thread_count;
}

int available_processors() {
  return static_cast<int>(process_processors().size());
}

Device current_device() {
  return device_of_thread;
}
DeviceGuard::DeviceGuard(Device device) : previous_(device_of_thread) {
  device_of_thread = device;
}
DeviceGuard::~DeviceGuard() {
  device_of_thread = previous_;
}

}  // namespace sg
