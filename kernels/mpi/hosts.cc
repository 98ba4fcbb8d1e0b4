#include "kernels/mpi/hosts.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tuple>
#include <utility>

#include "kernels/common/process.h"
#include "kernels/common/version.h"

namespace tf_smddp::mpi {
namespace {

template <std::size_t kSize>
void CopyText(const std::string& text, char (&to)[kSize]) {
  std::snprintf(to, kSize, "%s", text.c_str());
}

Introduction OwnIntroduction(const Config& config) {
  Introduction own;
  CopyText(HostName(), own.host);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  CopyText(boot, own.boot);
  CopyText(kVersion, own.version);
  own.rank = config.rank;
  own.local_rank = config.local_rank;
  own.local_size = config.local_size;
  own.bucket_cap_bytes = config.bucket_cap_bytes;
  own.small_bytes = config.small_bytes;
  own.chunk_bytes = config.chunk_bytes;
  own.table_slots = config.table_slots;
  own.deterministic = config.deterministic ? 1 : 0;
  std::random_device random;
  own.run = std::uint64_t{random()} << 32 | random();
  return own;
}

std::string Name(const Introduction& rank) {
  return "rank " + std::to_string(rank.rank) + " on " + rank.host;
}

// Compares what must be equal on all ranks.
Status CheckEqual(const Introduction& first, const Introduction& other) {
  const auto differ = [&](const std::string& what, const std::string& one, const std::string& two) {
    return InvalidArgument(what + " must be equal on all ranks: " + Name(first) + " has " + one + ", " +
                           Name(other) + " has " + two);
  };
  if (std::strcmp(first.version, other.version) != 0) {
    return differ("the version of tf_smddp", first.version, other.version);
  }
  for (const auto& [name, one, two] : {
           std::tuple{"SMDDP_BUCKET_CAP_BYTES", first.bucket_cap_bytes, other.bucket_cap_bytes},
           std::tuple{"SMDDP_SMALL_BYTES", first.small_bytes, other.small_bytes},
           std::tuple{"SMDDP_CHUNK_BYTES", first.chunk_bytes, other.chunk_bytes},
           std::tuple{"SMDDP_TABLE_SLOTS", first.table_slots, other.table_slots},
           std::tuple{"SMDDP_DETERMINISTIC", first.deterministic, other.deterministic},
       }) {
    if (one != two) return differ(name, std::to_string(one), std::to_string(two));
  }
  return {};
}

}  // namespace

Status GroupByHost(const std::vector<Introduction>& all, int rank, Hosts* hosts) {
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  hosts->run = all.front().run;
  for (const Introduction& each : all) {
    const Status status = CheckEqual(all.front(), each);
    if (!status.ok()) return status;
    hosts->all_keep = hosts->all_keep && each.keeps != 0;
    const auto [found, is_new] = known.try_emplace({each.host, each.boot}, known.size());
    if (is_new) {
      hosts->ranks.emplace_back();
      hosts->names.emplace_back(each.host);
    }
    hosts->ranks[found->second].push_back(static_cast<int>(each.rank));
  }
  for (std::size_t host = 0; host < hosts->ranks.size(); ++host) {
    const std::vector<int>& ranks = hosts->ranks[host];
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      const Introduction& each = all[static_cast<std::size_t>(ranks[local])];
      if (each.rank == rank) {
        hosts->run_id = "MPI run " + std::to_string(all.front().run) + " host " + std::to_string(host);
      }
      if (each.local_rank == static_cast<std::int64_t>(local) &&
          each.local_size == static_cast<std::int64_t>(ranks.size())) {
        continue;
      }
      return InvalidArgument("the launcher says that " + Name(each) + " has local rank " +
                             std::to_string(each.local_rank) + " of " + std::to_string(each.local_size) +
                             ", but by the names of the hosts it has " + std::to_string(local) + " of " +
                             std::to_string(ranks.size()) +
                             ": give each host a name of its own, and all ranks of a host the same one");
    }
  }
  return {};
}

Status MeetHosts(const Config& config, Runtime* runtime, Handle communicator, bool keeps,
                 Clock::time_point deadline, Hosts* hosts) {
  struct Messages {
    Introduction own;
    std::vector<Introduction> all;
  };
  auto messages = std::make_unique<Messages>();
  messages->own = OwnIntroduction(config);
  messages->own.keeps = keeps ? 1 : 0;
  messages->all.resize(static_cast<std::size_t>(config.size));
  Handle request;
  Status status;
  {
    const Runtime::Turn turn(runtime);
    status = turn.library().AllGather(communicator, &messages->own, sizeof messages->own,
                                      messages->all.data(), &request);
  }
  if (status.ok()) status = runtime->Await(&request, deadline, "the meeting of the ranks");
  if (status.ok()) return GroupByHost(messages->all, config.rank, hosts);
  static_cast<void>(messages.release());  // MPI may still use them
  return status;
}

}  // namespace tf_smddp::mpi
