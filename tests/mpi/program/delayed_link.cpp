// A link with delay between two network namespaces, for kernels that have no netem: a TUN device in
// each, and this process, which carries every packet from one to the other after a while. Prints
// "ready" and runs until killed. usage: delayed_link NAMESPACE DEVICE NAMESPACE DEVICE MILLISECONDS
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void require(bool ok, const std::string& what) {
  if (ok)
    return;
  std::perror(("delayed_link: " + what).c_str());
  std::exit(1);
}

int device_in(const std::string& space, const char* name) {
  const int net = open(("/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
  require(net >= 0 && setns(net, CLONE_NEWNET) == 0, "namespace " + space);
  close(net);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  require(device >= 0, "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  require(ioctl(device, TUNSETIFF, &request) == 0, std::string("device ") + name);
  return device;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

// One way of the link.
struct Way {
  int from, to;
  std::deque<Packet> under_way;

  void take(Clock::duration delay) {
    char buffer[65536];
    for (ssize_t n; (n = read(from, buffer, sizeof buffer)) > 0;) {
      under_way.push_back({Clock::now() + delay, {buffer, buffer + n}});
    }
  }
  void deliver() {
    for (; !under_way.empty() && under_way.front().due <= Clock::now(); under_way.pop_front()) {
      const auto& bytes = under_way.front().bytes;
      if (write(to, bytes.data(), bytes.size()) < 0)
        return;  // full: a network may lose a packet, TCP sends it again
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: delayed_link NAMESPACE DEVICE NAMESPACE DEVICE MILLISECONDS\n");
    return 2;
  }
  const int a = device_in(argv[1], argv[2]), b = device_in(argv[3], argv[4]);
  const auto delay = std::chrono::milliseconds(std::atoi(argv[5]));
  std::puts("ready");
  std::fflush(stdout);
  Way ways[] = {{a, b, {}}, {b, a, {}}};
  for (;;) {
    pollfd devices[] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    const bool waiting = !ways[0].under_way.empty() || !ways[1].under_way.empty();
    const timespec tick{0, 100'000};  // packets are due to a tenth of a millisecond
    ppoll(devices, 2, waiting ? &tick : nullptr, nullptr);
    for (Way& way : ways) {
      way.take(delay);
      way.deliver();
    }
  }
}
