#include "tests/pretend_gpu/peer_access.h"

#include <mutex>
#include <set>
#include <utility>

namespace pretend_gpu {
namespace {

std::mutex mu;

// Pairs of a device and a peer whose memory it may touch. Guarded by mu.
std::set<std::pair<int, int>>& Allowed() {
  static auto* allowed = new std::set<std::pair<int, int>>;
  return *allowed;
}

}  // namespace

bool CanAccess(int device, int peer) {
  std::lock_guard<std::mutex> lock(mu);
  return device == peer || Allowed().count({device, peer}) != 0;
}

bool SetAccess(int device, int peer, bool allowed) {
  std::lock_guard<std::mutex> lock(mu);
  return allowed ? Allowed().insert({device, peer}).second : Allowed().erase({device, peer}) != 0;
}

}  // namespace pretend_gpu
