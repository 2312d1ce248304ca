// What a device must be able to do: memory, copies, streams and events, and what its kernels run
// with. A device has one Backend, made at its first use and kept until the process ends. core asks
// for nothing else, and asks which kind a device is only where it chooses the backend. `cpu` and
// `host` are filled, `meta` counts only, `cuda` is refused until it is filled.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "kernels/table.h"

namespace sg {

// A point in a stream's order. Any thread may ask.
class EventState {
 public:
  virtual ~EventState() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;                 // blocks the calling thread until the point is passed
  virtual std::exception_ptr error() = 0;  // once passed: the first error of its stream up to there
  // Test mode of lazy queues: runs one task that stands before the point; false where none may run
  // now.
  virtual bool advance() { return false; }
};

// An ordered queue of work.
class StreamState {
 public:
  virtual ~StreamState() = default;  // with the last handle the queue is drained
  // On cpu a worker thread runs the task in its turn. A device with queues of its own may run it at
  // once on the calling thread: what the task issues goes to this queue (Backend::handle says so
  // meanwhile). The task's captures may be gone as soon as it has run, before what it issued is
  // done: whoever frees memory that it uses gives the storage an event recorded behind it
  // (Storage::used_until).
  virtual void enqueue(const char* name, std::function<void()> task) = 0;
  virtual std::shared_ptr<EventState>
  record() = 0;  // passed when everything enqueued so far is done
  virtual void wait(std::shared_ptr<EventState>
                        event) = 0;    // what is enqueued later starts after it; of any backend
  virtual bool is_inline() const = 0;  // work is done when enqueue returns
};

class Backend {
 public:
  virtual ~Backend() = default;

  // ---- memory. Only the pool calls these; a pool may ask for many blocks or for one range that it
  // cuts itself, so `allocate` need not back a byte before its first use. At least 64-byte aligned,
  // contents undefined; null: there is no more. `bytes` of free are those that were asked for. Any
  // thread; nobody uses the block any longer.
  virtual void* allocate(uint64_t bytes) = 0;
  virtual void free(void* block, uint64_t bytes) noexcept = 0;
  virtual bool backed() const = 0;  // false: blocks are null and the books alone are kept
  virtual bool reaches(
      Device other) const = 0;  // this device's kernels read and write that one's memory
  // Dense bytes from or to this device's memory, in the stream's order; the caller keeps both alive
  // until it is done.
  virtual void copy(void* out, const void* in, uint64_t bytes, StreamHandle stream) = 0;

  // ---- streams
  virtual std::shared_ptr<StreamState> stream(const std::string& name) = 0;  // a queue of its own
  virtual std::shared_ptr<StreamState> compute_stream() = 0;  // where ops go outside of any task
  // What a kernel that the calling thread issues now runs with: its task's stream, else the compute
  // stream.
  virtual StreamHandle handle() const = 0;

  virtual const KernelTable& kernels() const = 0;
  // Another number of threads for kernels than the one it was made with. Only before the first
  // handle was given.
  virtual void set_threads(int threads) { (void)threads; }
};

// One for each kind of device. Usage error that names the device where it can't be had, and why.
// `threads`: of a cpu device, the calling one included.
std::unique_ptr<Backend> make_cpu_backend(Device device, int threads);  // cpu and host
std::unique_ptr<Backend> make_meta_backend(Device device);
std::unique_ptr<Backend> make_cuda_backend(Device device);

}  // namespace sg
