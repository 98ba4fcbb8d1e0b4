#include "kernels/engine/watch/stall_watch.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "kernels/common/process.h"
#include "kernels/common/rank_mask.h"
#include "kernels/common/thread.h"

namespace tf_smddp {
namespace {

using std::chrono::milliseconds;

constexpr Clock::duration kNever{0};
constexpr Clock::duration kLongestInterval = std::chrono::seconds(5);
constexpr Clock::duration kShortestInterval = milliseconds(20);

// Looks within the time after which a wait counts as a stall; and so many before its end, a rank publishes
// for whom it waits, so that all that wait together have done so by then.
constexpr int kLooks = 4, kLooksAhead = 2;

// A process that uses so much of a core does something of its own.
constexpr double kProgressShare = 0.1;

// One tick of the system's clock says nothing: a process that sleeps mostly has one now and then.
constexpr double kLeastTicks = 2;

// The timeout's share that has to pass before a rank is looked at: enough looks are left to see whether it
// makes progress.
Clock::duration Patience(Clock::duration warning, Clock::duration timeout) {
  if (timeout == kNever) return warning;
  return warning == kNever ? timeout / 2 : std::min(warning, timeout / 2);
}

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::int64_t Nanoseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// Now, on the same clock as Clock, some milliseconds late: it costs a fifth.
std::int64_t CoarseNanoseconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

StallWatch::StallWatch(Job* job)
    : job_(job),
      own_(job->segment().rank(job->local_rank()).progress),
      warning_(milliseconds(job->config().stall_warning_ms)),
      timeout_(milliseconds(job->config().stall_timeout_ms)),
      sees_processes_(job->peer(job->local_rank()).pid == ::getpid()),
      tells_of_work_(job->wire() != nullptr && job->local_rank() == 0 && sees_processes_),
      tell_every_(timeout_ == kNever ? kLongestInterval : std::min(timeout_ / 4, kLongestInterval)),
      seen_(static_cast<std::size_t>(job->size())),
      done_(static_cast<std::size_t>(job->local_size())) {
  for (const std::vector<int>& host : job->hosts()) {
    if (&host != &job->local_ranks()) outside_ |= RankSet(host);
  }
}

StallWatch::~StallWatch() { Stop(); }

void StallWatch::SetPace(Clock::duration shortest) {
  patience_ = Patience(warning_, timeout_ == kNever ? shortest : std::min(timeout_, shortest));
  interval_ = std::clamp(patience_ / kLooks, kShortestInterval, kLongestInterval);
}

Status StallWatch::Start(CollectWaitingRequests collect) {
  if (warning_ == kNever && timeout_ == kNever) return {};
  collect_ = std::move(collect);
  try {
    thread_ = StartThread("smddp-stall", [this] { Run(); });
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  return {};
}

void StallWatch::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

// The count is published before asleep_ is read; the thread, which does the reverse, sees the request or is
// woken.
void StallWatch::Submitted(const Manifest& manifest, CommunicatorId communicator, Clock::duration timeout) {
  own_.Submitted({communicator, CoarseNanoseconds(), manifest});
  if (timeout != kNever && timeout < shortest_.load(std::memory_order_relaxed)) {
    std::lock_guard<std::mutex> lock(mu_);
    shortest_.store(std::min(timeout, shortest_.load()));
    wake_.notify_all();
  }
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  std::lock_guard<std::mutex> lock(mu_);
  asleep_.store(false, std::memory_order_seq_cst);
  wake_.notify_all();
}

// Streams go on in their order, so a list whose front stays grows by what comes behind that alone.
void StallWatch::EndedButForWriting(WaitingRequest waiting, std::function<bool()> writing) {
  std::lock_guard<std::mutex> lock(writing_mu_);
  for (; !writing_.empty() && !writing_.front().goes_on(); writing_.pop_front()) own_.Ended(1);
  writing_.push_back({std::move(waiting), std::move(writing)});
}

// Appends those that were submitted at `before` or earlier.
void StallWatch::CollectWriting(Clock::time_point before, std::vector<WaitingRequest>* waiting) {
  std::lock_guard<std::mutex> lock(writing_mu_);
  writing_.remove_if([&](const Writing& each) {
    const bool goes_on = each.goes_on();
    if (!goes_on) own_.Ended(1);
    if (goes_on && each.waiting.submitted <= before) waiting->push_back(each.waiting);
    return !goes_on;
  });
}

bool StallWatch::AllEnded() {
  std::vector<WaitingRequest> none;
  CollectWriting(Clock::time_point::min(), &none);
  return Idle();
}

bool StallWatch::Idle() const { return own_.submitted() == own_.ended(); }

void StallWatch::Run() {
  std::uint64_t submitted = 0;
  std::unique_lock<std::mutex> lock(mu_);
  while (!stopping_) {
    // One that submits all the time is not put to sleep, or each of its requests would pay for a wake-up.
    if (Idle() && std::exchange(submitted, own_.submitted()) == own_.submitted()) {
      asleep_.store(true, std::memory_order_seq_cst);
      const auto is_woken = [this] { return stopping_ || !asleep_.load(std::memory_order_seq_cst); };
      if (Idle() && tells_of_work_) wake_.wait_for(lock, tell_every_, is_woken);
      if (Idle() && !tells_of_work_) wake_.wait(lock, is_woken);
      asleep_.store(false, std::memory_order_seq_cst);
    }
    const Clock::duration shortest = shortest_.load();
    SetPace(shortest);
    if (wake_.wait_until(lock, Clock::now() + interval_,
                         [&] { return stopping_ || shortest_.load() != shortest; })) {
      continue;
    }
    lock.unlock();
    Look();
    lock.lock();
  }
  if (Idle() && !job_->aborted()) EndStall(Clock::now());
}

void StallWatch::Look() {
  if (job_->aborted()) return;  // the progress threads end everything
  const Clock::time_point now = Clock::now();
  if (tells_of_work_) TellOfWork(now);
  const Clock::time_point before = now - patience_ + kLooksAhead * interval_;
  std::vector<WaitingRequest> waiting = collect_(before);
  CollectWriting(before, &waiting);
  std::stable_sort(waiting.begin(), waiting.end(), [](const WaitingRequest& a, const WaitingRequest& b) {
    return a.submitted < b.submitted;
  });
  Publish(MissingOf(waiting));
  while (!waiting.empty() && waiting.back().submitted > now - patience_) waiting.pop_back();
  if (waiting.empty()) return EndStall(now);
  if (!stalled_) {
    stalled_ = true;
    looks_ = 0;
    warned_ = false;
    since_ = waiting.front().submitted;
    next_warning_ = warning_;
  }
  ++looks_;
  const RankSet awaited = Closure(MissingOf(waiting));
  for (const RankId rank : awaited.ranks()) LookAt(rank, now);
  const std::string text = DescribeStall(MakeReport(waiting, now));
  RankSet of_others;  // that requests without a timeout of their own wait for
  for (const WaitingRequest& each : waiting) {
    if (each.timeout == kNever) of_others |= each.missing;
  }
  if (!of_others.empty()) CheckTimeout(Closure(of_others), text, now);
  CheckOwnTimeouts(waiting, now);
  // Not at the first look: it takes two to see what a rank uses of a core.
  if (warning_ == kNever || now - since_ < next_warning_ || looks_ == 1 || job_->aborted()) return;
  while (next_warning_ <= now - since_) next_warning_ *= 2;
  RankSet members;
  for (const WaitingRequest& each : waiting) members |= each.members;
  // Nobody else knows of a device that holds up this rank alone.
  const bool report = MissingOf(waiting) == RankSet({job_->rank()}) || IsReporter(members);
  warned_ = warned_ || report;
  job_->logger().Log(report ? LogLevel::kWarning : LogLevel::kDebug, text);
}

// See Note [Progress].
void StallWatch::TellOfWork(Clock::time_point now) {
  if (now - counted_ < tell_every_) return;
  const double ticks =
      Seconds(now - std::exchange(counted_, now)) * static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double least = std::max(kProgressShare * ticks, kLeastTicks);
  for (int local = 0; local < job_->local_size(); ++local) {
    const ProgressRecord& record = job_->segment().rank(local).progress;
    Done& before = done_[static_cast<std::size_t>(local)];
    ProcessStat stat;
    if (job_->HasLeft(local) || !ReadProcessStat(job_->peer(local).pid, &stat)) continue;
    const Done done{record.submitted(), stat.cpu_ticks};
    const bool works = done.submitted == before.submitted && done.submitted == record.ended() &&
                       static_cast<double>(done.cpu_ticks - before.cpu_ticks) >= least;
    before = done;
    if (!works) continue;
    RelayMessage message;
    message.kind = RelayMessage::kWorks;
    message.rank = RankId(job_->RankOf(local));
    job_->NoteWork(message.rank);
    job_->TellOtherHosts(message);
  }
}

void StallWatch::EndStall(Clock::time_point now) {
  if (stalled_ && warned_) {
    job_->logger().Log(LogLevel::kWarning, "rank " + std::to_string(job_->rank()) +
                                               " continues after a wait of about " +
                                               DescribeSeconds(Seconds(now - since_)));
  }
  stalled_ = false;
  for (Seen& seen : seen_) seen.watched = false;
}

void StallWatch::Publish(const RankSet& missing) {
  MemberMask here;  // by local rank
  bool outside = false;
  for (const RankId rank : missing.ranks()) {
    const int local = job_->LocalRankOf(rank.value());
    here |= MemberMask::Of(MemberId(local));
    outside = outside || local < 0;
  }
  own_.waits_outside().store(outside ? 1 : 0, std::memory_order_seq_cst);
  own_.waits_for().store(here.bits(), std::memory_order_seq_cst);
}

// If it publishes a rank of another host, that stands for all of them.
RankSet StallWatch::WaitedForBy(int local) const {
  ProgressRecord& record = job_->segment().rank(local).progress;
  RankSet ranks;
  const MemberMask published(record.waits_for().load(std::memory_order_seq_cst));
  const MemberMask here = MemberMask::FirstN(job_->local_size()) & published;  // others cannot be
  for (const MemberId each : here) ranks.Add(RankId(job_->RankOf(each.value())));
  if (record.waits_outside().load(std::memory_order_seq_cst) != 0) ranks |= outside_;
  return ranks;
}

// `ranks`, and those for which they wait, and so on.
RankSet StallWatch::Closure(RankSet ranks) const {
  for (RankSet before; before != ranks;) {
    before = ranks;
    for (const RankId rank : before.ranks()) {
      const int local = job_->LocalRankOf(rank.value());
      if (local >= 0) ranks |= WaitedForBy(local);
    }
  }
  return ranks;
}

// Takes note of what `rank` does, and whether it has made progress since the last look.
void StallWatch::LookAt(RankId rank, Clock::time_point now) {
  const int local = job_->LocalRankOf(rank.value());
  if (local < 0) return LookAtOtherHost(rank, now);
  const ProgressRecord& record = job_->segment().rank(local).progress;
  Seen& seen = seen_[rank.index()];
  const std::uint64_t submitted = record.submitted(), ended = record.ended();
  ProcessStat stat;
  const bool has_stat = sees_processes_ && ReadProcessStat(job_->peer(local).pid, &stat);
  if (!seen.watched) {
    ProgressRecord::Submission last;
    seen = Seen();
    seen.watched = true;
    seen.progress = since_;
    if (record.Last(&last)) {
      const Clock::time_point when{std::chrono::nanoseconds(last.when_ns)};
      seen.progress = std::clamp(when, since_, now);
    }
  } else {
    if (submitted != seen.submitted || ended != seen.ended) seen.progress = now;
    seen.cpu_share = -1;
    if (has_stat && seen.has_cpu) {
      const double used =
          static_cast<double>(stat.cpu_ticks - seen.cpu_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
      seen.cpu_share = used / Seconds(now - seen.looked);
      if (seen.cpu_share >= kProgressShare && submitted == ended) seen.progress = now;
    }
  }
  seen.submitted = submitted;
  seen.ended = ended;
  seen.has_cpu = has_stat;
  if (has_stat) seen.cpu_ticks = stat.cpu_ticks;
  seen.state = has_stat ? stat.state : '\0';
  seen.looked = now;
  ++seen.looks;
}

// This rank knows of a rank of another host only when it computes.
void StallWatch::LookAtOtherHost(RankId rank, Clock::time_point now) {
  Seen& seen = seen_[rank.index()];
  if (!seen.watched) {
    seen = Seen();
    seen.watched = true;
    seen.progress = since_;
  }
  seen.progress = std::max(seen.progress, job_->last_work(rank));
  seen.looked = now;
  ++seen.looks;
}

// Note [Progress].
void StallWatch::CheckTimeout(const RankSet& awaited, const std::string& text, Clock::time_point now) {
  if (timeout_ == kNever) return;
  // The ranks of another host that is the cause know more, and end the job with that.
  const bool circle = WaitInACircle(awaited);
  const Clock::duration limit = circle                 ? timeout_ / 2
                                : IsElsewhere(awaited) ? timeout_ + 2 * interval_ + std::chrono::seconds(1)
                                                       : timeout_;
  for (const RankId rank : awaited.ranks()) {
    const Seen& seen = seen_[rank.index()];
    // Its use of the CPU takes two looks to see.
    if (seen.looks < 2 || now - seen.progress < limit) return;
  }
  job_->Abort("no progress for " + DescribeSeconds(Seconds(circle ? limit : timeout_)) +
              (circle ? " (half of SMDDP_STALL_TIMEOUT, since the ranks wait for each other): "
                      : " (SMDDP_STALL_TIMEOUT): ") +
              text);
}

void StallWatch::CheckOwnTimeouts(const std::vector<WaitingRequest>& waiting, Clock::time_point now) {
  for (const WaitingRequest& each : waiting) {
    if (each.timeout == kNever || now - each.submitted < each.timeout) continue;
    return job_->Abort("the request's timeout of " + DescribeSeconds(Seconds(each.timeout)) +
                       " is over: " + DescribeStall(MakeReport({each}, now)));
  }
}

// Whether this rank and all that are awaited are on this host, and each waits for another one of them.
bool StallWatch::WaitInACircle(const RankSet& awaited) const {
  if (!awaited.Contains(RankId(job_->rank()))) return false;
  for (const RankId rank : awaited.ranks()) {
    const int local = job_->LocalRankOf(rank.value());
    if (local < 0) return false;
    const RankSet missing = WaitedForBy(local);
    if (missing.empty() || missing.Contains(rank)) return false;  // it works, or waits for its device
  }
  return true;
}

// Whether the cause must be on another host: the awaited ranks of this one wait for others, too.
bool StallWatch::IsElsewhere(const RankSet& awaited) const {
  for (const RankId rank : awaited.ranks()) {
    const int local = job_->LocalRankOf(rank.value());
    if (local < 0) continue;
    const char state = seen_[rank.index()].state;
    const bool waits =
        job_->segment().rank(local).progress.waits_outside().load(std::memory_order_seq_cst) != 0;
    if (!waits || state == 'T' || state == 't') return false;
  }
  return true;
}

// Whether this rank is the one of `members` to write the warning.
bool StallWatch::IsReporter(const RankSet& members) const {
  for (const RankId rank : members.ranks()) {
    if (rank.value() >= job_->rank()) break;
    const int local = job_->LocalRankOf(rank.value());
    if (local < 0) continue;  // each host has a reporter of its own
    if (WaitedForBy(local).empty()) continue;
    ProcessStat stat;
    const bool stopped = sees_processes_ && ReadProcessStat(job_->peer(local).pid, &stat) &&
                         (stat.state == 'T' || stat.state == 't');
    if (!stopped) return false;
  }
  return true;
}

StallReport StallWatch::MakeReport(const std::vector<WaitingRequest>& waiting, Clock::time_point now) {
  StallReport report;
  report.rank = job_->rank();
  report.seconds = Seconds(now - waiting.front().submitted);
  if (waiting.front().timeout == kNever) report.timeout_seconds = Seconds(timeout_);
  for (const WaitingRequest& each : waiting) report.requests.push_back(each.request);
  for (const RankId rank : MissingOf(waiting).ranks()) {
    if (rank.value() == job_->rank()) continue;
    report.absent.push_back(Describe(rank, now));
  }
  return report;
}

// `rank` is not this one.
AbsentRank StallWatch::Describe(RankId rank, Clock::time_point now) {
  const Seen& seen = seen_[rank.index()];
  AbsentRank absent;
  absent.rank = rank.value();
  const int local = job_->LocalRankOf(rank.value());
  absent.on_this_host = local >= 0;
  if (local < 0) {
    absent.works = now - job_->last_work(rank) < 2 * (tell_every_ + interval_) + std::chrono::seconds(1);
    return absent;
  }
  ProgressRecord& record = job_->segment().rank(local).progress;
  absent.pid = sees_processes_ ? job_->peer(local).pid : 0;
  absent.state = seen.state;
  absent.cpu_share = seen.cpu_share;
  ProgressRecord::Submission last;
  absent.submitted = record.Last(&last);
  if (absent.submitted) {
    absent.last = last.manifest;
    absent.communicator = static_cast<CommunicatorId>(last.communicator);
    absent.last_seconds = static_cast<double>(Nanoseconds(now.time_since_epoch()) - last.when_ns) * 1e-9;
  }
  absent.pending = record.submitted() - record.ended();
  absent.waits_for = WaitedForBy(local);
  return absent;
}

}  // namespace tf_smddp
