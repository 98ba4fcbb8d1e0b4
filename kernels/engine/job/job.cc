#include "kernels/engine/job/job.h"

#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/control/bootstrap.h"
#include "kernels/control/relay_message.h"
#include "kernels/engine/job/environment.h"

namespace tf_smddp {
namespace {

// That init() starts: progress, completion, stall watch, watcher; between hosts also that of the wire.
constexpr int kThreads = 4, kThreadsOnHosts = 5;

// Peers' memory does not belong in a core file of this rank, nor in a forked child, which would keep it
// alive.
void KeepFromCopies(const Mapping& mapping) {
  ::madvise(mapping.data(), mapping.bytes(), MADV_DONTDUMP);
  ::madvise(mapping.data(), mapping.bytes(), MADV_DONTFORK);
}

}  // namespace

Job::Job(const Config& config, Backends backends, Wire* wire)
    : config_(config),
      logger_(static_cast<LogLevel>(config.log_level), config.rank),
      backends_(std::move(backends)),
      wire_(wire) {
  if (wire != nullptr) {
    hosts_ = wire->hosts();
    while (!std::binary_search(local_ranks().begin(), local_ranks().end(), config.rank)) ++host_;
  } else {
    hosts_.emplace_back(static_cast<std::size_t>(config.local_size));
    std::iota(hosts_[0].begin(), hosts_[0].end(), 0);
  }
}

Status Job::Join(const Config& config, std::shared_ptr<MappingCache> mappings, Backends backends,
                 std::shared_ptr<Arena> arena, Wire* wire, std::unique_ptr<Job>* job) {
  std::unique_ptr<Job> joining(new Job(config, std::move(backends), wire));
  Environment environment;
  Status status = CheckEnvironment(config, JobSegment::MappedBytes(config, joining->backends_),
                                   wire == nullptr ? kThreads : kThreadsOnHosts, &environment);
  joining->arena_ = std::move(arena);
  if (status.ok() && joining->arena_ == nullptr) {
    status = Arena::Create(environment.arena_bytes, mappings.get(), &joining->arena_);
  }
  BootstrapResult* const result = &joining->bootstrap_;
  if (status.ok() && config.local_rank == 0) {
    status = JobSegment::Create(config, joining->backends_, &result->control);
  }
  if (!status.ok()) return RefuseBootstrap(config, status);
  // Local rank 0 writes one line for the host, since ranks usually lack the same things.
  const LogLevel level = config.local_rank == 0 ? LogLevel::kWarning : LogLevel::kInfo;
  for (const std::string& warning : environment.warnings) joining->logger_.Log(level, warning);
  joining->bounce_pool_ = std::make_shared<BouncePool>(joining->arena_);
  const std::byte* own = joining->arena_->data();
  status = Bootstrap(config, joining->arena_->fd(), joining->arena_->bytes(), result, [&]() -> Status {
    for (LocalPeer& peer : result->peers) {
      std::shared_ptr<Mapping> mapping;
      Status mapped = mappings->Map(peer.arena.get(), peer.arena_bytes, &mapping);
      if (!mapped.ok()) return mapped;
      if (mapping->data() != own) KeepFromCopies(*mapping);
      joining->views_.emplace_back(std::move(mapping));
      peer.arena.Reset();
    }
    return JobSegment::Open(std::move(result->control), config, joining->backends_, mappings,
                            &joining->segment_);
  });
  if (!status.ok()) return status;
  *job = std::move(joining);
  return {};
}

int Job::LocalRankOf(int rank) const {
  const std::vector<int>& ranks = local_ranks();
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() || *found != rank ? -1 : static_cast<int>(found - ranks.begin());
}

void Job::RingAll() {
  for (int communicator = 0; communicator < segment_->max_communicators(); ++communicator) {
    for (int each = 0; each < local_size(); ++each) segment_->bell(communicator, each).Ring();
  }
}

// The other hosts first: when the script of this rank has the error, its process may end at once.
void Job::Abort(const std::string& text, bool written) {
  if (wire_ != nullptr && !aborted()) {
    RelayMessage message;
    message.kind = RelayMessage::kAbort;
    message.text = text;
    TellOtherHosts(message);  // a host that has been aborted already ignores it
    wire_->Flush();
  }
  if (segment_->abort().Raise(text) && !written) logger_.Log(LogLevel::kError, text);
  RingAll();  // also when another rank has raised it, which may have died before it rang
}

void Job::TellOtherHosts(const RelayMessage& message) {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (host == host_) continue;
    wire_->Post(RankId(hosts_[host].front()), {0, Wire::Channel::kOrder}, Encode({message}));
  }
}

}  // namespace tf_smddp
