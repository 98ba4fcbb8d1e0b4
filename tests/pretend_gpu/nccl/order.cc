#include "tests/pretend_gpu/nccl/order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/nccl/meeting.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/verdict.h"

namespace pretend_gpu::nccl {
namespace {

// How many of a lane's last meetings are looked at.
constexpr std::uint64_t kLooked = 32;

struct Launch {
  int process;
  int device;
  std::uint64_t issue;
  bool operator<(const Launch& other) const {
    return std::tie(process, device, issue) < std::tie(other.process, other.device, other.issue);
  }
};

// One call of a launch, for sentences.
struct Call {
  int rank;
  Operation operation;
  const Board* board;
  int lane;
  std::uint64_t number;
  std::string Text() const {
    return "rank " + std::to_string(rank) + " calls " + Describe(operation) + ", " +
           Describe(*board, lane, number);
  }
};

// The boards must live as long.
class Graph {
 public:
  // Adds what a board has.
  void Add(Board& board) {
    std::lock_guard<Board> lock(board);
    for (int lane = 0; lane < kLanes; lane++) {
      const auto& posted = board.data().lanes[lane].posted;
      const std::uint64_t last = *std::max_element(posted.begin(), posted.end());
      for (std::uint64_t number = last > kLooked ? last - kLooked + 1 : 1; number <= last; number++) {
        AddMeeting(board, lane, number);
      }
    }
  }

  // Returns "rank 0 calls A before B, and rank 1 calls B before A", or "" if there is no circle.
  std::string Circle() {
    AddPrecedences();
    std::vector<int> colors(launches_.size(), 0);
    std::vector<std::pair<int, int>> path;
    for (std::size_t i = 0; i < launches_.size(); i++) {
      const int node = Root(static_cast<int>(i));
      if (colors[node] == 0 && Visit(node, &colors, &path)) return Tell(path);
    }
    return "";
  }

 private:
  int Add(const Launch& launch) {
    const auto [at, fresh] = launches_.try_emplace(launch, static_cast<int>(roots_.size()));
    if (fresh) {
      roots_.push_back(at->second);
      calls_.emplace_back();
    }
    return at->second;
  }

  void AddMeeting(Board& board, int lane, std::uint64_t number) {
    const int parties = lane == kCollectives ? kMostRanks : 2;
    int first = -1;
    for (int party = 0; party < parties; party++) {
      const Entry* entry = board.Find(lane, party, number);
      // A split has no kernel.
      if (entry == nullptr || entry->operation.kind == Kind::kSplit) continue;
      const int rank = RankOf(lane, party);
      const Member& member = board.data().members[rank];
      const int launch = Add({member.process, member.device, entry->issue});
      streams_[{member.process, member.device, entry->stream}].push_back({entry->issue, launch});
      calls_[launch] = {rank, entry->operation, &board, lane, number};
      if (first >= 0) roots_[Root(launch)] = Root(first);
      first = launch;
    }
  }

  int Root(int launch) const {
    while (roots_[launch] != launch) launch = roots_[launch];
    return launch;
  }

  void Precede(int before, int after) {
    if (before != after) edges_[Root(before)].push_back({before, after});
  }

  void AddPrecedences() {
    if (GetSettings().concurrent) {
      for (auto& [stream, launches] : streams_) {
        std::sort(launches.begin(), launches.end());
        for (std::size_t i = 1; i < launches.size(); i++) Precede(launches[i - 1].second, launches[i].second);
      }
      return;
    }
    const std::pair<const Launch, int>* last = nullptr;
    for (const auto& launch : launches_) {
      if (last != nullptr && last->first.process == launch.first.process &&
          last->first.device == launch.first.device) {
        Precede(last->second, launch.second);
      }
      last = &launch;
    }
  }

  // Looks for a circle from the node on; leaves it in the path.
  bool Visit(int node, std::vector<int>* colors, std::vector<std::pair<int, int>>* path) {
    (*colors)[node] = 1;
    for (const auto& [before, after] : edges_[node]) {
      path->push_back({before, after});
      const int next = Root(after);
      if ((*colors)[next] == 1) {
        while (Root(path->front().first) != next) path->erase(path->begin());
        return true;
      }
      if ((*colors)[next] == 0 && Visit(next, colors, path)) return true;
      path->pop_back();
    }
    (*colors)[node] = 2;
    return false;
  }

  std::string Tell(const std::vector<std::pair<int, int>>& path) const {
    std::string text;
    for (const auto& [before, after] : path) {
      text += (text.empty() ? "" : "; and ") + calls_[before].Text() + ", before " + calls_[after].Text();
    }
    return text;
  }

  std::map<Launch, int> launches_;
  std::vector<int> roots_;
  std::vector<Call> calls_;
  std::map<std::tuple<int, int, std::uint64_t>, std::vector<std::pair<std::uint64_t, int>>> streams_;
  std::map<int, std::vector<std::pair<int, int>>> edges_;  // by the root of the launch before
};

}  // namespace

void CheckOrder(Communicator& communicator) {
  Graph graph;
  bool between_two = false;
  const auto all = AllCommunicators();
  {
    std::lock_guard<Board> lock(*communicator.board);
    const auto& lanes = communicator.board->data().lanes;
    between_two = std::any_of(lanes.begin() + 1, lanes.end(), [](const Lane& lane) {
      return std::any_of(lane.posted.begin(), lane.posted.end(), [](auto n) { return n > 0; });
    });
  }
  // The collectives of one communicator meet in order.
  const auto boards = std::count_if(all.begin(), all.end(), [&](const auto& other) {
    return other->device == communicator.device && other->board != nullptr;
  });
  if (!between_two && boards < 2) return;
  std::vector<Board*> added;
  for (const auto& other : all) {
    Board* board = other->board.get();
    if (board == nullptr || std::find(added.begin(), added.end(), board) != added.end()) continue;
    graph.Add(*board);
    added.push_back(board);
  }
  const std::string circle = graph.Circle();
  if (circle.empty()) return;
  std::unique_lock<Board> lock(*communicator.board);
  EndAll(&lock,
         circle + ": each waits for the other; make the calls in the same order on all ranks, or in groups");
}

}  // namespace pretend_gpu::nccl
