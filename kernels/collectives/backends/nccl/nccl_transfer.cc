#include "kernels/collectives/backends/nccl/nccl_transfer.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"

namespace tf_smddp::nccl {
namespace {

// How long the end of the transfer waits for the streams of all members to come past their calls. Elsewhere
// there is no limit: the stall watch warns, and ends the job.
constexpr std::chrono::seconds kPatience{10};

// NCCL takes 2,048 calls in a group. A group ends when it might have half as many, by a bound that is the
// same on all ranks. So all ranks have the same requests in it, whose sends and receives meet.
constexpr std::uint64_t kCallsOfGroup = 1024;

// Note [One request a group]: with SMDDP_DETERMINISTIC, each request has a group of its own, so nothing is
// packed with others. NCCL deals the calls of a group out to its channels by what else is in the group. From
// the channel, and from the place in the buffer, follows the order in which the ranks' elements are added. So
// that order would depend on batches, and they depend on timing.

// While so many batches are on the stream, the next one fills. One runs, and another one is there when it
// ends.
constexpr std::uint64_t kBatchesAhead = 2;

// How long an error of NCCL waits for a better one. Where a rank has died, NCCL may tell before the engine
// finds that, and NCCL does not know which rank it was.
constexpr std::chrono::milliseconds kNamePatience{500};

// How long a thread sleeps between two looks at other ranks.
constexpr std::chrono::microseconds kPoll{200};

cuda::Device* DeviceOf(const ResolvedRequest& request) {
  return static_cast<cuda::Device*>(request.device_output->kind);
}

}  // namespace

// A communicator of NCCL, for as long as batches use it.
class NcclTransfer::Session {
 public:
  explicit Session(std::shared_ptr<Communicator> communicator) : communicator(std::move(communicator)) {}

  // Ends at once what runs; it has `why` as its outcome.
  void Lose(const Status& why) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      lost_ = why;
    }
    communicator->Abort();
  }

  // The outcome of a batch of which the stream says `reached`.
  Status OutcomeOf(const Status& reached) {
    std::lock_guard<std::mutex> lock(mu_);
    return lost_.ok() ? reached : lost_;
  }

  bool lost() {
    std::lock_guard<std::mutex> lock(mu_);
    return !lost_.ok();
  }

  const std::shared_ptr<Communicator> communicator;

 private:
  std::mutex mu_;
  Status lost_;  // guarded by mu_
};

NcclTransfer::NcclTransfer(CommunicatorView communicator, Meeting* meeting, Turns* turns,
                           std::shared_ptr<Communicators> communicators)
    : communicator_(std::move(communicator)),
      meeting_(meeting),
      member_(communicator_.self),
      num_members_(communicator_.num_members()),
      hosts_(communicator_.wire == nullptr
                 ? nullptr
                 : std::make_shared<HostsMeeting>(communicator_.wire, communicator_.id, communicator_.ranks,
                                                  communicator_.rank())),
      communicators_(std::move(communicators)),
      start_(communicator_, meeting, hosts_),
      line_(turns, communicator_.turn_record, communicator_.ask_for_turn) {}

NcclTransfer::~NcclTransfer() {
  start_.GiveUp();
  if (session_ != nullptr) Retire();
  if (stream_ == nullptr) return;
  const auto all_ended = std::make_shared<std::promise<void>>();
  stream_->Then([all_ended] { all_ended->set_value(); });
  if (all_ended->get_future().wait_for(kPatience) == std::future_status::ready) return;
  const Status late = Internal("the GPUs did not come to the end of their work in time");
  // Other ranks may get garbage from here on.
  const bool ended = hosts_ != nullptr ? hosts_->AllHaveCome(Milestone::kEnded)
                                       : meeting_->AllEnded(num_members_, complete_);
  if (!ended && !refused()) communicator_.fail_job(late.message());
  LoseRetired(late);
}

const Library* NcclTransfer::SharedLibrary(const std::string& path, Status* status) {
  struct Opened {
    std::unique_ptr<const Library> library;
    Status status;
  };
  static const Opened* const opened = [&path] {
    auto* const opening = new Opened;
    opening->library = Library::Open(path, &opening->status);
    return opening;
  }();
  *status = opened->status;
  return opened->library.get();
}

std::uint64_t NcclTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  requests_ = std::move(requests);
  enqueued_ = 0;
  starting_ = false;
  done_ = requests_.empty();
  return done_ ? 0 : static_cast<std::uint64_t>(num_members_);
}

// Ends the job with an error of NCCL, some time after the first call. Returns whether it did.
bool NcclTransfer::Report(const Status& error) {
  const auto now = std::chrono::steady_clock::now();
  if (error_.ok()) {
    error_ = error;
    error_since_ = now;
  }
  if (now - error_since_ < kNamePatience) return false;
  const bool device_lost = error_.code() == StatusCode::kDeviceLost;  // of which the text says enough
  communicator_.fail_job(error_.message() + (device_lost ? "" : ". Remedy: " + RemedyFor(error_.message())));
  return true;
}

Transfer::Readiness NcclTransfer::Prepare(const ResolvedRequest& request) {
  if (session_ != nullptr) return Readiness::kReady;
  if (!std::exchange(starting_, true)) {
    exchanges_ = request.call.operation.kind == CollectiveKind::kAlltoall;
  }
  cuda::Device* const device = DeviceOf(request);
  Status status;
  const Library* const library = SharedLibrary(communicator_.config->nccl_library, &status);
  bool come = false;
  if (status.ok() && stream_ == nullptr) status = Open(device);
  if (status.ok()) status = line_.Come(stream_.get(), &come);
  if (!status.ok()) start_.Fail(status);
  if (come) {
    start_.Step({library, device->driver(), device->context(), communicators_}, stream_, packer_ != nullptr,
                exchanges_);
  }
  const Verdict verdict = start_.Judge();
  if (verdict == Verdict::kOpen) return Readiness::kNotYet;
  if (verdict == Verdict::kRefused) {
    line_.Leave();
    start_.GiveUp();
    refused_.store(true, std::memory_order_release);
    return Readiness::kRefused;
  }
  session_ = std::make_shared<Session>(start_.Take());
  return Readiness::kReady;
}

Transfer::Progress NcclTransfer::Step() {
  Progress progress;
  if (!error_.ok()) {
    done_ = Report(error_);
    return progress;
  }
  bool come = false, ready = false, launches = false;
  Status status = line_.Come(stream_.get(), &come);
  if (status.ok() && come) status = session_->communicator->Poll(&ready);
  if (status.ok() && ready && packer_ != nullptr) status = packer_->Unpack(stream_->handle());
  if (status.ok() && ready && packer_ != nullptr && !packer_->done()) {
    status = packer_->Enqueue(session_->communicator.get(), stream_->handle());
    progress.moved = launches = true;
  } else if (status.ok() && ready && enqueued_ < requests_.size()) {
    status = Enqueue();
    progress.moved = launches = true;
  } else if (status.ok() && ready) {
    line_.Made();
    progress.moved = progress.unit_done = done_ = true;
  }
  if (status.ok() && launches) status = session_->communicator->AwaitLaunch();
  if (!status.ok()) done_ = Report(status);
  return progress;
}

// Makes what lasts as long as the transfer.
Status NcclTransfer::Open(cuda::Device* device) {
  const auto cap = static_cast<std::uint64_t>(communicator_.config->bucket_cap_bytes);
  const Status packs =
      Packer::Open({nullptr, device->driver(), device->context()}, PackingBufferBytes(cap), &packer_);
  if (packs.ok()) {
    meeting_->SayThatItPacks(member_);
  } else {
    communicator_.logger->Log(LogLevel::kWarning, "small tensors of " + device->name() +
                                                      " go to NCCL one by one: " + packs.message());
  }
  std::unique_ptr<cuda::OwnStream> stream;
  const Status status = device->NewStream("smddp-nccl", &stream);
  stream_ = std::move(stream);
  return status;
}

// Puts the next group on the stream.
Status NcclTransfer::Enqueue() {
  const bool packs = packer_ != nullptr && start_.all_pack();
  std::vector<NcclCall> calls;
  // Note [One request a group].
  const std::uint64_t limit = communicator_.config->deterministic ? 1 : kCallsOfGroup;
  for (std::uint64_t most = 0; enqueued_ < requests_.size() && most < limit; ++enqueued_) {
    const ResolvedRequest* const request = requests_[enqueued_];
    most += MostCalls(request->call);
    const Status status = uses_.Begin(*request, stream_.get());
    if (!status.ok()) return status;
    AppendCalls(request->call, request->self, request->inputs[request->self.index()],
                request->outputs[request->self.index()], &calls, packs);
  }
  Communicator* const communicator = session_->communicator.get();
  if (!packs) return communicator->Enqueue(calls, stream_->handle());
  packer_->Begin(calls);
  return packer_->Enqueue(communicator, stream_->handle());
}

void NcclTransfer::Complete() {
  enqueued_ = 0;
  if (uses_.empty()) return;
  const auto ended = [session = session_, uses = std::exchange(uses_, {}), meeting = meeting_,
                      member = member_, fail_job = communicator_.fail_job,
                      job_error = communicator_.job_error, wake = communicator_.wake](const Status& reached) {
    Status outcome = session->OutcomeOf(reached);
    if (!outcome.ok()) fail_job(outcome.message());
    // Where another rank has aborted, its part may be garbage, and the calls still end well here.
    if (outcome.ok()) outcome = job_error();
    meeting->CountEnded(member);
    wake();
    uses.End(outcome);
  };
  ++complete_;
  line_.Complete();
  const Status status = stream_->WhenReached(ended);
  if (!status.ok()) ended(status);
}

bool NcclTransfer::busy() const { return complete_ - meeting_->ended(member_) >= kBatchesAhead; }

void NcclTransfer::Watch() {
  if (session_ == nullptr || !done_ || meeting_->ended(member_) == complete_) return;
  bool ready = false;
  const Status status = error_.ok() ? session_->communicator->Poll(&ready) : error_;
  if (!status.ok()) Report(status);
}

void NcclTransfer::Abandon(const Status* job_end) {
  requests_.clear();
  error_ = {};
  done_ = true;
  line_.Skip();
  starting_ = false;
  const bool interrupted = start_.Interrupt() && hosts_ == nullptr;
  if (enqueued_ > 0 || interrupted) meeting_->MarkUnusable();
  if (packer_ != nullptr) packer_->Forget();
  if (job_end == nullptr) return;
  start_.GiveUp();
  if (session_ != nullptr) Retire();
  communicators_->AbortAll();
}

void NcclTransfer::Reset() {
  if (!refused()) line_.Restart();
  if (meeting_->number() == number_) return;
  start_.GiveUp();
  if (session_ != nullptr) Retire();
  number_ = meeting_->number();
}

// Ends the communicator, in the stream's thread, when all members have come past all complete batches.
void NcclTransfer::Retire() {
  enqueued_ = 0;
  stream_->Then([session = session_, uses = std::exchange(uses_, {}), stream = stream_.get(),
                 meeting = meeting_, num_members = num_members_, hosts = hosts_, complete = complete_,
                 job_error = communicator_.job_error, communicators = communicators_] {
    const auto all_ended = [&] {
      return hosts != nullptr ? hosts->AllHaveCome(Milestone::kEnded)
                              : meeting->AllEnded(num_members, complete);
    };
    while (!all_ended() && !session->lost()) {
      if (!job_error().ok()) {
        std::this_thread::sleep_for(communicators->delay());
        break;
      }
      std::this_thread::sleep_for(kPoll);
    }
    session->communicator->Abort();
    // Nothing is written when the stream has come past what was aborted.
    const auto ended = [uses](const Status&) { uses.End(Internal("NCCL's calls were ended")); };
    const Status status = stream->WhenReached(ended);
    if (!status.ok()) ended(status);
  });
  const auto ended = [](const std::weak_ptr<Session>& each) { return each.expired(); };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), ended), retired_.end());
  retired_.push_back(std::exchange(session_, nullptr));
}

void NcclTransfer::LoseRetired(const Status& why) {
  for (const std::weak_ptr<Session>& each : retired_) {
    if (const std::shared_ptr<Session> session = each.lock()) session->Lose(why);
  }
}

}  // namespace tf_smddp::nccl
