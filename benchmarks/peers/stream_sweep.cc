// Plain TCP streams between two hosts: each rank exchanges its share of the bytes with the rank of the same
// number on the other host, in both directions at once. An allreduce between two hosts moves as many bytes at
// least, so this is what the link gives, without the sums. MPI starts the ranks and does the barriers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/peers/mpi_contestant.h"

namespace tf_smddp::benchmarks {
namespace {

void Check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

// The address of rank `rank`, from the variable WORKERS ("10.0.0.1:7000,10.0.0.2:7001").
sockaddr_in AddressOf(int rank) {
  const char* const workers = std::getenv("WORKERS");
  Check(workers != nullptr, "the variable WORKERS");
  std::istringstream list(workers);
  std::string worker;
  for (int i = 0; i <= rank; ++i) Check(static_cast<bool>(std::getline(list, worker, ',')), "WORKERS");
  const std::size_t colon = worker.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(worker.substr(colon + 1))));
  Check(::inet_pton(AF_INET, worker.substr(0, colon).c_str(), &address.sin_addr) == 1, "an address");
  return address;
}

int Listen(const sockaddr_in& address) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  Check(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "bind");
  Check(::listen(listener, 1) == 0, "listen");
  return listener;
}

int Connect(const sockaddr_in& address) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  Check(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "connect");
  return connection;
}

class Stream final : public MpiContestant {
 public:
  Stream() {
    const int half = size() / 2, listener = rank() < half ? Listen(AddressOf(rank())) : -1;
    Barrier();
    connection_ = listener >= 0 ? ::accept(listener, nullptr, nullptr) : Connect(AddressOf(rank() - half));
    Check(connection_ >= 0, "accept");
    if (listener >= 0) ::close(listener);
    const int on = 1;
    Check(::setsockopt(connection_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
    Check(::fcntl(connection_, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
  }
  ~Stream() override { ::close(connection_); }

  const char* name() const override { return "a plain stream"; }
  bool sums() const override { return false; }

  void Allreduce(const std::vector<Tensor>& tensors) override {
    std::size_t bytes = 0;
    for (const Tensor& tensor : tensors) bytes += tensor.count * sizeof(float);
    Exchange(bytes / static_cast<std::size_t>(size() / 2));
  }

 private:
  // The data comes from one buffer and goes to another, which stay in the caches, so that memory is not the
  // limit.
  void Exchange(std::size_t bytes) {
    for (std::size_t to_send = bytes, to_receive = bytes; to_send + to_receive > 0;) {
      pollfd look{connection_, 0, 0};
      if (to_send > 0) look.events |= POLLOUT;
      if (to_receive > 0) look.events |= POLLIN;
      Check(::poll(&look, 1, -1) == 1, "poll");
      if (look.revents & POLLIN) {
        const ssize_t got = ::recv(connection_, target_.data(), std::min(to_receive, target_.size()), 0);
        Check(got > 0, "recv");
        to_receive -= static_cast<std::size_t>(got);
      }
      if (look.revents & POLLOUT) {
        const ssize_t sent = ::send(connection_, source_.data(), std::min(to_send, source_.size()), 0);
        Check(sent > 0, "send");
        to_send -= static_cast<std::size_t>(sent);
      }
    }
  }

  int connection_ = -1;
  std::vector<char> source_ = std::vector<char>(256 << 10), target_ = std::vector<char>(256 << 10);
};

}  // namespace
}  // namespace tf_smddp::benchmarks

int main(int argc, char** argv) {
  return tf_smddp::benchmarks::RunMpiSweep<tf_smddp::benchmarks::Stream>(argc, argv);
}
