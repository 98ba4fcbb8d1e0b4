#include "kernels/engine/watch/stall_report.h"

#include <algorithm>
#include <cstddef>

#include "kernels/common/number_text.h"

namespace tf_smddp {
namespace {

// The report lists at most so many; it gives only the number of the others.
constexpr std::size_t kShownRequests = 3;
constexpr std::size_t kShownRanks = 8;

constexpr double kBusyShare = 0.1;
constexpr char kIsBusy[] =
    " is busy with something that the others do not do, or do faster (data, evaluation, a checkpoint, "
    "compilation)";

bool IsStopped(const AbsentRank& absent) { return absent.state == 'T' || absent.state == 't'; }

bool WaitsForDevice(const AbsentRank& absent) { return absent.waits_for.Contains(RankId(absent.rank)); }

std::string Name(const Manifest& manifest, CommunicatorId communicator) {
  std::string text = DescribeManifest(manifest);
  if (communicator != kWorld) text += " in process set " + std::to_string(communicator);
  return text;
}

std::string Requests(const std::vector<StalledRequest>& requests) {
  std::string text;
  const std::size_t shown = std::min(requests.size(), kShownRequests);
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i > 0 ? "; " : "") + Name(requests[i].manifest, requests[i].communicator);
  }
  if (requests.size() > shown) text += "; and " + std::to_string(requests.size() - shown) + " more";
  return text;
}

std::string Process(const AbsentRank& absent) {
  std::string text;
  switch (absent.state) {
    case 'T':
    case 't':
      text = "is stopped";
      break;
    case 'D':
      text = "waits for a device or a file system";
      break;
    case 'Z':
    case 'X':
      text = "has ended";
      break;
    case 'R':
    case 'S':
    case 'I':
      text = absent.state == 'R' || absent.cpu_share >= kBusyShare ? "runs" : "sleeps";
      break;
    default:
      text = "is alive";
  }
  if (absent.cpu_share >= 0 && !IsStopped(absent)) {
    text += " (" + DecimalText(absent.cpu_share * 100, 0) + " % of a core)";
  }
  return text;
}

// Returns what the rank did last, as far as it concerns the ranks that wait for it.
std::string Submissions(const AbsentRank& absent) {
  if (!absent.submitted) return "has submitted nothing yet";
  std::string text = "last submitted " + Name(absent.last, absent.communicator) + " " +
                     DescribeSeconds(absent.last_seconds) + " ago";
  if (absent.pending == 0) return text + ", which is done";
  text += ", and waits";
  if (WaitsForDevice(absent)) return text + " for its device";
  return absent.waits_for.empty() ? text : text + " for " + RankList(absent.waits_for);
}

std::string Cause(const StallReport& report, const AbsentRank& absent) {
  const std::string rank = "rank " + std::to_string(absent.rank);
  if (!absent.on_this_host) {
    return absent.works ? rank + kIsBusy : "ranks of another host are late; the log there may say why";
  }
  if (IsStopped(absent)) {
    return rank + " is stopped (SIGSTOP, Ctrl-Z or a debugger); `kill -CONT " + std::to_string(absent.pid) +
           "` continues it";
  }
  if (absent.state == 'D') return rank + " waits for a device or a file system that does not answer";
  if (report.requests.front().ready) return rank + " is slow, or its part of the work hangs";
  if (!absent.submitted) {
    return rank + " still prepares its first step (data, compilation), or its script calls no collective";
  }
  if (WaitsForDevice(absent)) return rank + " waits for its device; its own warning says more";
  if (absent.pending > 0 && absent.waits_for.Contains(RankId(report.rank))) {
    return "the ranks run different collectives, or the same ones in different orders: rank " +
           std::to_string(report.rank) + " is at " +
           Name(report.requests.front().manifest, report.requests.front().communicator) + ", " + rank +
           " at " + Name(absent.last, absent.communicator);
  }
  if (absent.pending > 0 && !absent.waits_for.empty()) {
    return rank + " is held up itself by " + RankList(absent.waits_for);
  }
  if (absent.pending > 0) return rank + " is at another collective";
  if (absent.cpu_share >= kBusyShare) {
    return rank + kIsBusy;
  }
  return rank +
         " waits for something else (data, a file, a lock, input), or has left the loop that the others are "
         "in";
}

// A sentence.
std::string State(const AbsentRank& absent) {
  std::string text = "Rank " + std::to_string(absent.rank);
  if (absent.pid > 0) text += " (pid " + std::to_string(absent.pid) + ")";
  return text + (absent.on_this_host ? " " + Process(absent) + "; it " + Submissions(absent) + "."
                                     : " is on another host.");
}

std::string DeviceCause(const std::string& device, bool with_others) {
  return device + (with_others ? ", or that of another rank," : "") +
         " still computes what was put on its streams before, or hangs; `nvidia-smi` shows what it does, and "
         "`dmesg` its errors (Xid)" +
         (with_others ? "; if NCCL hangs, NCCL_P2P_DISABLE=1 or NCCL_NVLS_ENABLE=0 may help" : "");
}

}  // namespace

std::string DescribeSeconds(double seconds) {
  return DecimalText(std::max(seconds, 0.0), seconds < 10 ? 1 : 0) + " s";
}

std::string DescribeStall(const StallReport& report) {
  RankSet ranks;
  for (const AbsentRank& absent : report.absent) ranks.Add(RankId(absent.rank));
  const std::string& device = report.requests.front().device;
  std::string text =
      "rank " + std::to_string(report.rank) + " has waited " + DescribeSeconds(report.seconds) + " for ";
  if (!device.empty()) text += device + (ranks.empty() ? "" : ", and perhaps for ");
  if (!ranks.empty()) text += RankList(ranks);
  text += (device.empty() || ranks.empty() ? " at " : ", at ") + Requests(report.requests);
  if (!device.empty()) text += ", whose calls of NCCL or copies are on a stream there";
  if (report.requests.front().ready) text += ", which all ranks have submitted";
  text += ".";
  const std::size_t shown = std::min(report.absent.size(), kShownRanks);
  for (std::size_t i = 0; i < shown; ++i) text += " " + State(report.absent[i]);
  if (report.absent.size() > shown) {
    text += " The other " + std::to_string(report.absent.size() - shown) + " are not shown.";
  }
  // A stopped rank explains why others wait. A rank that waits for another explains nothing, unless all do.
  const auto weight = [](const AbsentRank& absent) {
    if (!absent.on_this_host) return absent.works ? 2 : 3;
    return IsStopped(absent) ? 0 : absent.state == 'D' ? 1 : absent.pending == 0 ? 2 : 3;
  };
  const auto culprit =
      std::min_element(report.absent.begin(), report.absent.end(),
                       [&](const AbsentRank& a, const AbsentRank& b) { return weight(a) < weight(b); });
  if (!device.empty() && (culprit == report.absent.end() || weight(*culprit) > 1)) {
    text += " Likely cause: " + DeviceCause(device, !ranks.empty()) + ".";
  } else if (culprit != report.absent.end()) {
    text += " Likely cause: " + Cause(report, *culprit) + ".";
  }
  if (report.timeout_seconds > 0) {
    text += " The job ends when " + std::string(report.absent.size() <= 1 ? "it makes" : "they make") +
            " no progress for " + DescribeSeconds(report.timeout_seconds) + " (SMDDP_STALL_TIMEOUT).";
  }
  return text;
}

}  // namespace tf_smddp
