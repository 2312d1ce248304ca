// Queues of the software device.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <mutex>

namespace simt {

// Every entry of the runtime takes it; queued work runs under it.
std::recursive_mutex& device_lock();

// Adds work to a stream (null: the current device's own, which is ordered with no other).
cudaError_t enqueue(cudaStream_t, std::function<void()> work);
void wait_for_all();

int current_device();

// What each entry of the runtime returns: `error`, remembered for cudaGetLastError; after a fault
// the fault's.
cudaError_t result(cudaError_t error);

}  // namespace simt
