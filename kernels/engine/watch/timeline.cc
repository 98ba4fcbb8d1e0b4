#include "kernels/engine/watch/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "kernels/common/utf8.h"

namespace tf_smddp {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : ValidUtf8(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      quoted += c;
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    }
  }
  return quoted + '"';
}

// Microseconds, as the format has them.
std::string Microseconds(Clock::duration time) {
  char text[32];
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text;
}

std::string Time(Clock::time_point time) { return Microseconds(time.time_since_epoch()); }

}  // namespace

Status Timeline::Start(const std::string& path, int rank) {
  std::lock_guard<std::mutex> lock(mu_);
  if (file_.valid()) {
    return FailedPrecondition("a timeline is being written to '" + path_ + "' already; stop it first");
  }
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return Internal("cannot write a timeline to '" + path + "': " + std::strerror(errno));
  file_ = std::move(file);
  path_ = path;
  rank_ = rank;
  error_ = 0;
  next_id_ = 0;
  started_ = Clock::now();
  step_ended_.clear();
  const std::string name = "\"rank " + std::to_string(rank) + "\"";
  unwritten_ = R"([{"ph":"M","name":"process_name","pid":)" + std::to_string(rank) + R"(,"args":{"name":)" +
               name + "}}";
  running_.store(true, std::memory_order_relaxed);
  return {};
}

Status Timeline::Stop() {
  std::lock_guard<std::mutex> lock(mu_);
  if (!file_.valid()) return {};
  running_.store(false, std::memory_order_relaxed);
  unwritten_ += "]\n";
  Flush();
  file_.Reset();
  if (error_ == 0) return {};
  return Internal("the timeline '" + path_ + "' is not complete: " + std::strerror(error_));
}

void Timeline::Add(const Request& request, std::uint64_t bytes, Clock::time_point submitted, const Cost& cost,
                   Clock::time_point ended, bool failed) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!file_.valid()) return;  // stopped meanwhile
  const std::string kind = CollectiveKindName(request.operation.kind);
  const std::string common = R"(","cat":")" + kind + R"(","id":)" + std::to_string(next_id_++) +
                             R"(,"pid":)" + std::to_string(rank_) + R"(,"tid":)" +
                             std::to_string(request.communicator) + R"(,"name":)";
  const auto add = [&](char phase, Clock::time_point time, const std::string& name,
                       const std::string& arguments = "") {
    unwritten_ +=
        std::string(",\n{\"ph\":\"") + phase + common + name + R"(,"ts":)" + Time(time) + arguments + "}";
  };
  const std::string name = Quoted(request.label.empty() ? kind : request.label);
  std::string way = "direct";
  if (cost.staged) way = "staged";
  if (cost.small) way = "small";
  if (failed) way = "failed";
  add('b', submitted, name,
      R"(,"args":{"bytes":)" + std::to_string(bytes) + R"(,"dtype":")" + DTypeName(request.operation.dtype) +
          R"(","process_set":)" + std::to_string(request.communicator) + R"(,"way":")" + way + "\"}");
  const bool moved = !failed && cost.begun != Clock::time_point();
  const std::string waiting = "\"wait for ranks\"", moving = "\"move data\"";
  add('b', submitted, waiting);
  add('e', moved ? cost.begun : ended, waiting);
  if (moved) {
    add('b', cost.begun, moving);
    add('e', ended, moving);
  }
  add('e', ended, name);
  if (failed || unwritten_.size() >= kBufferBytes) Flush();
}

void Timeline::AddStep(CommunicatorId communicator, std::uint64_t number, Clock::time_point ended) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!file_.valid()) return;  // stopped meanwhile
  const std::string set = std::to_string(communicator);
  const std::string where = R"("pid":)" + std::to_string(rank_) + R"(,"tid":)" + set;
  const auto [last, is_first] = step_ended_.try_emplace(communicator, started_);
  if (is_first) {
    const std::string name = "steps" + (communicator == kWorld ? "" : " of process set " + set);
    unwritten_ +=
        ",\n{\"ph\":\"M\",\"name\":\"thread_name\"," + where + ",\"args\":{\"name\":\"" + name + "\"}}";
  }
  // Steps that overlap end in any order.
  const Clock::time_point begin = last->second;
  last->second = std::max(begin, ended);
  unwritten_ += ",\n{\"ph\":\"X\",\"cat\":\"step\"," + where + R"(,"name":"step )" + std::to_string(number) +
                R"(","ts":)" + Time(begin) + R"(,"dur":)" + Microseconds(last->second - begin) +
                R"(,"args":{"process_set":)" + set + "}}";
  if (unwritten_.size() >= kBufferBytes) Flush();
}

void Timeline::Flush() {
  std::size_t written = 0;
  while (written < unwritten_.size() && error_ == 0) {
    const ssize_t bytes = ::write(file_.get(), unwritten_.data() + written, unwritten_.size() - written);
    if (bytes >= 0) {
      written += static_cast<std::size_t>(bytes);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  unwritten_.clear();
}

}  // namespace tf_smddp
