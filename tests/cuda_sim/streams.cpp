#include "tests/cuda_sim/streams.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda_sim/executor.h"
#include "tests/cuda_sim/faults.h"
#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/random.h"

namespace simt {
namespace {

// How often an event has been recorded: by calls, and by the streams that have got there.
struct EventState {
  uint64_t recorded = 0, reached = 0;
};

struct Work {
  std::function<void()> run;
  std::shared_ptr<EventState> waits_for;  // null: ready
  uint64_t record = 0;
  bool ready() const { return !waits_for || waits_for->reached >= record; }
};

}  // namespace
}  // namespace simt

struct CUstream_st {
  int device = 0;
  std::deque<simt::Work> queue;
};
struct CUevent_st {
  std::shared_ptr<simt::EventState> state = std::make_shared<simt::EventState>();
};

namespace simt {
namespace {

struct Runtime {
  std::recursive_mutex lock;
  Options options;
  Random random{1};
  std::vector<std::unique_ptr<CUstream_st>>
      streams;  // the first ones, one per device, lie behind the null handle
  std::vector<std::unique_ptr<CUevent_st>> events;
};
Runtime& runtime() {
  static Runtime& instance = *new Runtime;
  return instance;
}

thread_local int selected_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

CUstream_st* stream_of(cudaStream_t s) {
  return s ? s : runtime().streams[static_cast<size_t>(selected_device)].get();
}

// Runs the first work of one ready stream, mostly of the preferred one; false if nothing is queued.
// Something always is ready then: work waits for records that were queued before it.
bool step(const CUstream_st* preferred) {
  std::vector<CUstream_st*> ready;
  bool empty = true;
  for (auto& s : runtime().streams) {
    empty &= s->queue.empty();
    if (s->queue.empty() || !s->queue.front().ready())
      continue;
    if (s.get() == preferred && runtime().random.below(4) != 0) {
      ready = {s.get()};
      break;
    }
    ready.push_back(s.get());
  }
  if (empty)
    return false;
  if (ready.empty())
    std::abort();
  CUstream_st* s = ready[runtime().random.below(ready.size())];
  const Work work = std::move(s->queue.front());
  s->queue.pop_front();
  const OpenDeviceMemory open;
  work.run();
  return true;
}

template <class Done>
void run_until(const CUstream_st* preferred, Done done) {
  while (!done())
    step(preferred);
}

cudaError_t push(cudaStream_t stream, Work work) {
  stream_of(stream)->queue.push_back(std::move(work));
  if (runtime().options.streams == Streams::eager)
    wait_for_all();
  return result(cudaSuccess);
}

constexpr size_t unasked_shared_bytes = size_t(48) << 10;
constexpr size_t most_shared_bytes = size_t(163) << 10;  // of compute capability 8.0
thread_local size_t allowed_shared_bytes = unasked_shared_bytes;

// What the hardware refuses.
bool fits(const cudaLaunchConfig_t& c) {
  const dim3 g = c.gridDim, b = c.blockDim;
  const uint64_t threads = uint64_t(b.x) * b.y * b.z;
  return threads > 0 && threads <= 1024 && b.z <= 64 && g.x > 0 && g.y > 0 && g.z > 0 &&
         g.x <= 0x7fffffffu && g.y <= 65535 && g.z <= 65535 &&
         c.dynamicSmemBytes <= allowed_shared_bytes;
}

}  // namespace

std::recursive_mutex& device_lock() {
  return runtime().lock;
}
int current_device() {
  return selected_device;
}

cudaError_t result(cudaError_t error) {
  if (faulted())
    error = cudaErrorIllegalAddress;
  if (error != cudaSuccess)
    last_error = error;
  return error;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  return push(stream, {std::move(work), nullptr});
}

void wait_for_all() {
  while (step(nullptr))
    continue;
}

cudaError_t allow_shared_memory(int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > most_shared_bytes)
    return result(cudaErrorInvalidValue);
  allowed_shared_bytes = static_cast<size_t>(bytes);
  return result(cudaSuccess);
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  const std::lock_guard lock(device_lock());
  const bool allowed = fits(config);
  allowed_shared_bytes = unasked_shared_bytes;
  if (!allowed)
    return result(cudaErrorInvalidConfiguration);
  const Grid grid{config.gridDim, config.blockDim, config.dynamicSmemBytes};
  return enqueue(config.stream, [grid, thread = std::move(thread)] { run_grid(grid, thread); });
}

void reset(const Options& options) {
  const std::lock_guard lock(device_lock());
  wait_for_all();
  Runtime& r = runtime();
  r.options = options;
  r.random = Random(options.seed);
  r.events.clear();
  r.streams.clear();
  for (int d = 0; d < options.devices; ++d)
    r.streams.push_back(std::make_unique<CUstream_st>(CUstream_st{d, {}}));
  take_faults();
  reset_memory(options.capacity, options.devices);
  set_executor_options(options);
  selected_device = 0;
  last_error = cudaSuccess;
}

namespace {
const bool initialized = (reset(Options{}), true);
}

}  // namespace simt

// ---- the runtime's functions for devices, streams and events

using namespace simt;
using Lock = std::lock_guard<std::recursive_mutex>;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = runtime().options.devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= runtime().options.devices)
    return result(cudaErrorInvalidDevice);
  selected_device = d;
  return result(cudaSuccess);
}
cudaError_t cudaGetDevice(int* d) {
  *d = selected_device;
  return result(cudaSuccess);
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return faulted() ? cudaErrorIllegalAddress : error;
}
cudaError_t cudaPeekAtLastError() {
  return faulted() ? cudaErrorIllegalAddress : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    default: return "an error that the software device never returns";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  const Lock lock(device_lock());
  runtime().streams.push_back(std::make_unique<CUstream_st>(CUstream_st{selected_device, {}}));
  *s = runtime().streams.back().get();
  return result(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) {
  return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const Lock lock(device_lock());
  const CUstream_st* s = stream_of(handle);
  run_until(s, [s] { return s->queue.empty(); });
  return result(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Lock lock(device_lock());
  const CUstream_st* s = stream_of(handle);
  if (runtime().random.below(2))
    step(nullptr);  // who polls must see progress some day
  return s->queue.empty() ? result(cudaSuccess) : cudaErrorNotReady;
}
// As in CUDA, what is queued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  const Lock lock(device_lock());
  run_until(s, [s] { return s->queue.empty(); });
  std::erase_if(runtime().streams, [s](const auto& owned) { return owned.get() == s; });
  return result(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(device_lock());
  const auto idle = [](const auto& s) { return s->device != selected_device || s->queue.empty(); };
  run_until(nullptr,
            [&] { return std::all_of(runtime().streams.begin(), runtime().streams.end(), idle); });
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  const Lock lock(device_lock());
  runtime().events.push_back(std::make_unique<CUevent_st>());
  *e = runtime().events.back().get();
  return result(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  return cudaEventCreateWithFlags(e, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const Lock lock(device_lock());
  std::erase_if(runtime().events, [e](const auto& owned) { return owned.get() == e; });
  return result(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const Lock lock(device_lock());
  const uint64_t record = ++e->state->recorded;
  return enqueue(s,
                 [state = e->state, record] { state->reached = std::max(state->reached, record); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const Lock lock(device_lock());
  return push(s, {[] {}, e->state, e->state->recorded});
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Lock lock(device_lock());
  const auto state = e->state;
  run_until(nullptr, [&, record = state->recorded] { return state->reached >= record; });
  return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Lock lock(device_lock());
  if (runtime().random.below(2))
    step(nullptr);
  return e->state->reached >= e->state->recorded ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void* data) {
  const Lock lock(device_lock());
  return enqueue(s, [=] { function(data); });
}
}
