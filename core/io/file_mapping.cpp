#include "core/io/file_mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace sg {

// What the handler may look at: nodes are added and used again, never freed.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, end{0};  // end 0: free
  std::atomic<bool> cut{false};             // a page was missing
  MappedRange* next = nullptr;
};

namespace {

std::atomic<MappedRange*> ranges{nullptr};
std::mutex ranges_mutex;  // of those who add and free
uintptr_t page_size = 0;
struct sigaction previous_action;

MappedRange* range_at(uintptr_t address) {
  for (MappedRange* range = ranges.load(); range; range = range->next)
    if (range->begin <= address && address < range->end)
      return range;
  return nullptr;
}

// A page of zeros takes the place of the missing one, and the access goes on.
bool fill_in(uintptr_t address) {
  MappedRange* const range = range_at(address);
  if (!range)
    return false;
  void* const page = reinterpret_cast<void*>(address / page_size * page_size);
  constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (::mmap(page, page_size, PROT_READ, kind, -1, 0) == MAP_FAILED)
    return false;
  range->cut = true;
  return true;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (fill_in(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
    return;
  }
  ::sigaction(signal, &previous_action, nullptr);  // the access comes again and meets it
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

MappedRange* add_range(uintptr_t begin, uint64_t bytes) {
  const std::lock_guard lock(ranges_mutex);
  MappedRange* range = ranges.load();
  while (range && range->end != 0)
    range = range->next;
  if (!range) {
    range = new MappedRange;
    range->next = ranges.load();
    ranges = range;
  }
  range->cut = false;
  range->begin = begin;
  range->end = begin + bytes;
  return range;
}

}  // namespace

FileMapping::FileMapping(int fd, uint64_t size, std::string path)
    : path_(std::move(path)), size_(size) {
  if (size_ == 0)
    return;
  install_handler();
  void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  check(ErrorKind::io,
        mapped != MAP_FAILED,
        "{}: can't be mapped: {}",
        path_,
        std::generic_category().message(error));
  data_ = static_cast<char*>(mapped);
  range_ = add_range(reinterpret_cast<uintptr_t>(mapped), size_);
}

FileMapping::~FileMapping() {
  if (!data_)
    return;
  range_->end = 0;
  ::munmap(data_, size_);
}

void FileMapping::forget(uint64_t offset, uint64_t bytes) const {
  const uint64_t first = (offset + page_size - 1) / page_size * page_size;
  const uint64_t last = (offset + bytes) / page_size * page_size;
  const bool cut = range_ && range_->cut;  // those pages are kept, as nothing would fill them again
  if (data_ && first < last && !cut)
    ::madvise(data_ + first, last - first, MADV_DONTNEED);
}

void FileMapping::check_whole() const {
  check(ErrorKind::bad_input,
        !range_ || !range_->cut,
        "{}: has shrunk since it was opened, when it had {} bytes",
        path_,
        size_);
}

}  // namespace sg
