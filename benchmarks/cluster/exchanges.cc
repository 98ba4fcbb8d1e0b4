#include "benchmarks/cluster/exchanges.h"

#include <algorithm>
#include <deque>

#include "kernels/collectives/backends/wire/piece_plan.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp::cluster {
namespace {

constexpr int kTag = 1;
constexpr int kResultTag = 2;

void Add(const std::vector<const float*>& inputs, float* output, std::uint64_t count) {
  std::vector<const void*> from(inputs.begin(), inputs.end());
  void* const to = output;
  Reduce({DType::kFloat32, ReduceOp::kSum}, from.data(), static_cast<int>(from.size()), &to, 1, count);
}

// Part `index` of `parts` of `count` elements.
struct Range {
  std::uint64_t begin, count;
  std::uint64_t bytes() const { return count * sizeof(float); }
};
Range PartOf(std::uint64_t count, std::size_t parts, std::size_t index) {
  const PiecePlan::Part part = PiecePlan::PartOf(count * sizeof(float), parts, index);
  return {part.begin / sizeof(float), part.bytes / sizeof(float)};
}

// Sends one range to a rank while another one comes from a rank. Empty ranges do not move.
void Swap(Port* port, int to, const float* send, std::uint64_t send_bytes, int from, float* receive,
          std::uint64_t receive_bytes) {
  std::vector<Port::Movement> movements;
  if (receive_bytes > 0) movements.push_back(port->Receive(from, kTag, receive, receive_bytes));
  if (send_bytes > 0) movements.push_back(port->Send(to, kTag, send, send_bytes));
  port->WaitFor(std::move(movements));
}

// Pieces of a range, of which some are under way at a time.
class Pieces {
 public:
  Pieces(std::uint64_t count, std::uint64_t piece_bytes)
      : count_(count), each_(piece_bytes / sizeof(float)) {}
  std::size_t number() const { return (count_ + each_ - 1) / each_; }
  Range operator[](std::size_t index) const {
    const std::uint64_t begin = index * each_;
    return {begin, std::min(each_, count_ - begin)};
  }

 private:
  const std::uint64_t count_, each_;
};

struct UnderWay {
  Range piece;
  bool second = false;  // the round
  std::vector<float> others;
  std::vector<Port::Movement> receives;
};

bool AllEnded(Port* port, std::vector<Port::Movement>* movements) {
  while (!movements->empty() && port->Ended(movements->back())) movements->pop_back();
  return movements->empty();
}

}  // namespace

void Ring(Port* port, const Group& group, float* data, std::uint64_t count) {
  const std::size_t n = group.ranks.size();
  const int next = group.ranks[(group.self + 1) % n], last = group.ranks[(group.self + n - 1) % n];
  std::vector<float> arrived(PartOf(count, n, n - 1).count + 16);
  for (std::size_t step = 0; step + 1 < n; ++step) {
    const Range send = PartOf(count, n, (group.self + 2 * n - step) % n);
    const Range take = PartOf(count, n, (group.self + 2 * n - step - 1) % n);
    Swap(port, next, data + send.begin, send.bytes(), last, arrived.data(), take.bytes());
    Add({arrived.data(), data + take.begin}, data + take.begin, take.count);
  }
  for (std::size_t step = 0; step + 1 < n; ++step) {
    const Range send = PartOf(count, n, (group.self + 2 * n + 1 - step) % n);
    const Range take = PartOf(count, n, (group.self + 2 * n - step) % n);
    Swap(port, next, data + send.begin, send.bytes(), last, data + take.begin, take.bytes());
  }
}

void HalvingDoubling(Port* port, const Group& group, float* data, std::uint64_t count) {
  const std::size_t n = group.ranks.size();
  std::vector<Range> owned = {{0, count}};  // before each step
  std::vector<float> arrived(count / 2 + 1);
  for (std::size_t distance = n / 2; distance > 0; distance /= 2) {
    const int peer = group.ranks[group.self ^ distance];
    const Range all = owned.back();
    const Range low = {all.begin, all.count / 2}, high = {all.begin + low.count, all.count - low.count};
    const bool keeps_low = (group.self & distance) == 0;
    const Range keep = keeps_low ? low : high, give = keeps_low ? high : low;
    Swap(port, peer, data + give.begin, give.bytes(), peer, arrived.data(), keep.bytes());
    Add({arrived.data(), data + keep.begin}, data + keep.begin, keep.count);
    owned.push_back(keep);
  }
  for (std::size_t distance = 1; distance < n; distance *= 2) {
    const int peer = group.ranks[group.self ^ distance];
    const Range have = owned.back();
    owned.pop_back();
    const Range all = owned.back();
    const Range take = {have.begin == all.begin ? have.begin + have.count : all.begin,
                        all.count - have.count};
    Swap(port, peer, data + have.begin, have.bytes(), peer, data + take.begin, take.bytes());
  }
}

void RecursiveDoubling(Port* port, const Group& group, float* data, std::uint64_t count) {
  std::vector<float> arrived(count);
  for (std::size_t distance = 1; distance < group.ranks.size(); distance *= 2) {
    const int peer = group.ranks[group.self ^ distance];
    Swap(port, peer, data, count * sizeof(float), peer, arrived.data(), count * sizeof(float));
    Add({arrived.data(), data}, data, count);
  }
}

void ParameterServer(Port* port, const Group& group, std::size_t servers, const float* input, float* output,
                     std::uint64_t count, std::uint64_t piece_bytes, std::size_t slots) {
  const std::size_t workers = group.ranks.size() - servers;
  const bool serves = group.self >= workers;
  const Pieces pieces(count, piece_bytes);
  std::deque<UnderWay> under_way;
  // Each worker begins with another server, so that not all send to one at a time.
  const auto piece_of = [&](std::size_t turn) {
    const std::size_t first = turn / servers * servers;
    const std::size_t several = std::min(servers, pieces.number() - first);
    return first + (turn - first + group.self) % several;
  };
  std::size_t next = serves ? group.self - workers : 0;
  while (next < pieces.number() || !under_way.empty()) {
    while (next < pieces.number() && under_way.size() < slots * (serves ? 1 : servers)) {
      UnderWay& slot = under_way.emplace_back();
      if (serves) {
        slot.piece = pieces[next];
        slot.others.resize(slot.piece.count * workers);
        for (std::size_t peer = 0; peer < workers; ++peer) {
          float* const to = slot.others.data() + slot.piece.count * peer;
          slot.receives.push_back(port->Receive(group.ranks[peer], kTag, to, slot.piece.bytes()));
        }
        next += servers;
      } else {
        const std::size_t index = piece_of(next);
        const int server = group.ranks[workers + index % servers];
        slot.piece = pieces[index];
        float* const to = output + slot.piece.begin;
        slot.receives.push_back(port->Receive(server, kResultTag, to, slot.piece.bytes()));
        port->Send(server, kTag, input + slot.piece.begin, slot.piece.bytes());
        ++next;
      }
    }
    UnderWay& first = under_way.front();
    if (!AllEnded(port, &first.receives)) {
      port->Wait();
      continue;
    }
    if (serves) {
      std::vector<const float*> inputs;
      for (std::size_t peer = 0; peer < workers; ++peer) {
        inputs.push_back(first.others.data() + first.piece.count * peer);
      }
      Add(inputs, output + first.piece.begin, first.piece.count);
      for (std::size_t peer = 0; peer < workers; ++peer) {
        port->Send(group.ranks[peer], kResultTag, output + first.piece.begin, first.piece.bytes());
      }
    }
    under_way.pop_front();
  }
  port->WaitForAll();
}

}  // namespace tf_smddp::cluster
