#include "kernels/collectives/backends/nccl/nccl_start.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/common/thread.h"

namespace tf_smddp::nccl {
namespace {

using Clock = std::chrono::steady_clock;

// How long the end of this waits for what was given up.
constexpr std::chrono::seconds kPatience{10};

// How long an error of NCCL waits for a better one: that of the rank that has failed first, or that a rank
// has died.
constexpr std::chrono::milliseconds kNamePatience{500};

std::string Seconds(std::int64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) text += "." + std::to_string(ms % 1000 / 100);
  return text + " s";
}

// "rank 1, rank 3"
std::string Names(const std::vector<RankId>& ranks) {
  std::string names;
  for (const RankId rank : ranks) {
    names += (names.empty() ? "rank " : ", rank ") + std::to_string(rank.value());
  }
  return names;
}

}  // namespace

std::string RemedyFor(const std::string& text) {
  struct Remedy {
    std::vector<const char*> parts;  // of the text, in lower case
    const char* remedy;
  };
  // The first that fits counts: an error of memory names the kind of memory, too.
  static const std::vector<Remedy>& remedies = *new std::vector<Remedy>{
      {{"/dev/shm", "shared memory segment"},
       "a container needs more shared memory: docker run --shm-size=1g, or --ipc=host"},
      {{"nvls", "multicast"}, "set NCCL_NVLS_ENABLE=0"},
      {{"cumemhost", "cumem host", "cumem_host"}, "set NCCL_CUMEM_HOST_ENABLE=0"},
      {{"out of memory"},
       "leave memory of the GPU to NCCL: tf.config.experimental.set_memory_growth, or "
       "TF_DEVICE_MIN_SYS_MEMORY_IN_MB=4096"},
      {{"driver version is insufficient"},
       "install the NCCL of the driver's CUDA, such as pip install nvidia-nccl-cu12, or a newer driver"},
      {{"duplicate gpu"}, "give each rank a GPU of its own, and no slice of one (MIG), or set SMDDP_NCCL=0"},
      {{"first calls did not end", "wrong results", "peer access", "p2p"},
       "set NCCL_P2P_DISABLE=1; if that does not help, NCCL_NVLS_ENABLE=0"},
      {{"communicator was not made"},
       "NCCL_DEBUG=INFO shows where it waits; between hosts, set NCCL_SOCKET_IFNAME; on one, "
       "NCCL_P2P_DISABLE=1 or NCCL_NVLS_ENABLE=0 may help"},
      {{"unhandled cuda error"},
       "NCCL_DEBUG=WARN makes NCCL say more; NCCL_CUMEM_HOST_ENABLE=0, NCCL_NVLS_ENABLE=0 or "
       "NCCL_P2P_DISABLE=1 may help"},
  };
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const auto& [parts, remedy] : remedies) {
    for (const char* const part : parts) {
      if (lower.find(part) != std::string::npos) return remedy;
    }
  }
  return "NCCL_DEBUG=WARN makes NCCL say more";
}

// What the calls of a start use, and the thread of the one that is under way.
class Start::Work : public std::enable_shared_from_this<Work> {
 public:
  Work(const Place& place, std::shared_ptr<cuda::OwnStream> stream)
      : place_(place), stream_(std::move(stream)) {}

  // Aborts the communicator. The memory of the proof's calls lives until the stream has come past them. After
  // the check it has, and waiting again would be for calls that came later.
  ~Work() {
    communicator_ = nullptr;
    Status unused;
    if (proof_ != nullptr && !proof_->checked(&unused)) {
      static_cast<void>(stream_->WhenReached([proof = proof_](const Status&) {}));
    }
    proof_ = nullptr;
    stream_ = nullptr;
    ended_.set_value();
  }

  // Runs `call` in a thread, when the one before has ended. Errors: Internal, without a thread.
  Status Begin(std::function<Status()> call) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      under_way_ = true;
    }
    try {
      StartThread("smddp-start", [self = shared_from_this(), call = std::move(call)]() mutable {
        Status outcome = call();
        std::lock_guard<std::mutex> lock(self->mu_);
        self->outcome_ = std::move(outcome);
        self->under_way_ = false;
      }).detach();
    } catch (const ThreadRefused& refused) {
      return Internal(refused.what());
    }
    return {};
  }
  // Whether none is under way; then sets *outcome to that of the last one.
  bool Ended(Status* outcome) {
    std::lock_guard<std::mutex> lock(mu_);
    if (!under_way_) *outcome = outcome_;
    return !under_way_;
  }

  // The calls. Each begins when the one before has ended well, and NCCL has nothing in progress.
  Status Name() { return place_.library->Check("ncclGetUniqueId", place_.library->GetUniqueId(&id_)); }
  Status Make(const UniqueId& id, int num_ranks, int rank) {
    std::unique_ptr<Communicator> made;
    const Status status = Communicator::Make(place_, id, num_ranks, rank, &made);
    if (!status.ok()) return status;
    {
      std::lock_guard<std::mutex> lock(mu_);
      communicator_ = std::move(made);
    }
    return Proof::Open(place_, num_ranks, rank, &proof_);  // which takes memory: Note [Made on all]
  }
  Status Call(bool exchanges) {
    const Status status = proof_->Begin(stream_->handle(), exchanges);
    return status.ok() ? communicator_->Enqueue(proof_->Calls(), stream_->handle()) : status;
  }
  Status Fetch() {
    const Status status = proof_->End(stream_->handle());
    if (!status.ok()) return status;
    return stream_->WhenReached([proof = proof_](const Status& reached) { proof->Check(reached); });
  }

  const UniqueId& id() const { return id_; }
  Proof& proof() const { return *proof_; }
  // nullptr before it is made.
  std::shared_ptr<Communicator> communicator() {
    std::lock_guard<std::mutex> lock(mu_);
    return communicator_;
  }
  std::shared_ptr<Communicator> Take() {
    std::lock_guard<std::mutex> lock(mu_);
    return std::move(communicator_);
  }
  std::future<void> end() { return ended_.get_future(); }

 private:
  const Place place_;
  std::promise<void> ended_;
  std::shared_ptr<cuda::OwnStream> stream_;
  UniqueId id_ = {};
  std::shared_ptr<Proof> proof_;

  std::mutex mu_;
  std::shared_ptr<Communicator> communicator_;  // set with mu_ held
  bool under_way_ = false;                      // guarded by mu_
  Status outcome_;                              // guarded by mu_
};

Start::Start(const CommunicatorView& communicator, Meeting* meeting, std::shared_ptr<HostsMeeting> hosts)
    : view_(communicator), meeting_(meeting), hosts_(std::move(hosts)) {}

Start::~Start() {
  GiveUp();
  const auto end = Clock::now() + kPatience;
  for (const std::future<void>& each : given_up_) each.wait_until(end);
}

void Start::Step(const Place& place, const std::shared_ptr<cuda::OwnStream>& stream, bool packs,
                 bool exchanges) {
  if (stage_ == Stage::kProven || stage_ == Stage::kFailed) return;
  // A rank whose turn has not come takes part in the start of another communicator, which has its own time.
  if (!timed_ && Say(Milestone::kHere)) {
    timed_ = true;
    begin_ = Clock::now();
  }
  Status status;
  if (work_ == nullptr) {
    work_ = std::make_shared<Work>(place, stream);
    if (rank() == 0) status = work_->Begin([work = work_.get()] { return work->Name(); });
  }
  if (status.ok() && work_->Ended(&status) && status.ok()) status = Advance(packs, exchanges);
  if (!status.ok()) Fail(status);
}

void Start::Fail(const Status& status) {
  if (stage_ == Stage::kFailed) return;
  stage_ = Stage::kFailed;
  error_ = status;
  failed_ = Clock::now();
}

// Does this rank's next piece, if it can be done. No call is under way.
Status Start::Advance(bool packs, bool exchanges) {
  Status status;
  bool ready = false;
  Work* const work = work_.get();
  switch (stage_) {
    case Stage::kNaming:
      stage_ = Stage::kMeeting;
      [[fallthrough]];
    case Stage::kMeeting: {
      UniqueId id = {};
      status = Meet(packs, &ready, &id);
      if (!status.ok() || !ready) return status;
      stage_ = Stage::kMaking;
      return work->Begin([=, ranks = num_ranks(), self = rank()] { return work->Make(id, ranks, self); });
    }
    case Stage::kMaking:
      status = work->communicator()->Poll(&ready);
      if (!status.ok() || !ready) return status;
      stage_ = Stage::kMade;
      [[fallthrough]];
    case Stage::kMade:
      status = work->communicator()->Poll(&ready);
      if (!status.ok() || !Say(Milestone::kMade)) return status;
      stage_ = Stage::kCalling;
      called_ = true;
      if (hosts_ == nullptr) all_pack_ = meeting_->AllPack(num_ranks());
      return work->Begin([=] { return work->Call(exchanges); });
    case Stage::kCalling:
      status = work->communicator()->Poll(&ready);
      if (!status.ok() || !ready) return status;
      stage_ = Stage::kRunning;
      return work->Begin([=] { return work->Fetch(); });
    case Stage::kRunning:
      if (!work->proof().checked(&status)) return work->communicator()->Poll(&ready);
      if (status.ok()) stage_ = Stage::kProven;
      return status;
    case Stage::kProven:
    case Stage::kFailed:
      return {};
  }
  return {};
}

// Sets *met to whether the communicator's id is there, and then *id.
Status Start::Meet(bool packs, bool* met, UniqueId* id) {
  if (hosts_ != nullptr) {
    HostsMeeting::Agreed agreed;
    const Status status = hosts_->Meet(packs, work_->id(), met, &agreed);
    *id = agreed.id;
    all_pack_ = agreed.all_pack;
    return status;
  }
  if (rank() == 0) meeting_->LeaveId(work_->id());
  *met = meeting_->TakeId(id);
  return {};
}

// Returns whether all ranks have said it.
bool Start::Say(Milestone milestone) {
  if (hosts_ != nullptr) return hosts_->AllHaveCome(milestone);
  meeting_->Say(view_.self, milestone);
  return Missing(milestone).empty();
}

// Between hosts, on the first rank alone.
std::vector<RankId> Start::Missing(Milestone milestone) const {
  if (hosts_ != nullptr) return hosts_->Missing(milestone);
  std::vector<RankId> missing;
  for (int member = 0; member < view_.num_members(); ++member) {
    if (!meeting_->HasSaid(MemberId(member), milestone)) {
      missing.emplace_back(view_.members[static_cast<std::size_t>(member)]);
    }
  }
  return missing;
}

Verdict Start::Judge() {
  if (stage_ == Stage::kProven && Say(Milestone::kProven)) {
    if (hosts_ != nullptr) return Verdict::kAccepted;
    meeting_->Decide(Verdict::kAccepted);
  }
  if (hosts_ == nullptr && meeting_->verdict() != Verdict::kOpen) return meeting_->verdict();
  const Clock::time_point now = Clock::now();
  const std::int64_t limit = view_.config->nccl_timeout_ms;
  if (stage_ == Stage::kFailed) {
    const int patience = Library::BlamesAnother(error_) ? 2 : 1;
    if (now - failed_ >= patience * kNamePatience) {
      Refuse("rank " + std::to_string(view_.rank().value()) + ": " + error_.message());
    }
  } else if (timed_ && limit > 0 && now - begin_ >= std::chrono::milliseconds(limit)) {
    const std::string late = Lateness();
    if (!late.empty()) Refuse(late);
  }
  if (hosts_ == nullptr) return meeting_->verdict();
  if (!hosts_->refused()) return Verdict::kOpen;
  std::string text;
  if (hosts_->TakeRefusal(&text)) Tell(text);
  return Verdict::kRefused;
}

// Returns which ranks are late. Between hosts, the first rank alone knows.
std::string Start::Lateness() const {
  if (hosts_ != nullptr && hosts_->rank() != 0) return "";
  const std::string within =
      " within " + Seconds(view_.config->nccl_timeout_ms) + " (SMDDP_NCCL_TIMEOUT) on ";
  const std::vector<RankId> unmade = Missing(Milestone::kMade);
  if (!unmade.empty()) return "NCCL's communicator was not made" + within + Names(unmade);
  const std::vector<RankId> unproven = Missing(Milestone::kProven);
  return unproven.empty() ? "" : "NCCL's first calls did not end" + within + Names(unproven);
}

void Start::Refuse(const std::string& text) {
  if (hosts_ != nullptr) return hosts_->Refuse(text);
  if (meeting_->Decide(Verdict::kRefused)) Tell(text);
}

// The one line of the job.
void Start::Tell(const std::string& text) const {
  const std::string remedy = ". Remedy: " + RemedyFor(text);
  if (view_.config->nccl_required) {
    return view_.fail_job("SMDDP_NCCL=required, and NCCL does not work here: " + text + remedy);
  }
  view_.logger->Log(LogLevel::kWarning,
                    "NCCL does not work here, so tensors of GPUs are copied to the host's memory and reduced "
                    "there, which is slower: " +
                        text + remedy);
}

bool Start::Interrupt() {
  timed_ = false;
  return called_ && stage_ != Stage::kProven;
}

std::shared_ptr<Communicator> Start::Take() { return work_->Take(); }

// A call that is under way may wait for the abort, or end by itself. Whoever ends last frees all.
void Start::GiveUp() {
  stage_ = Stage::kNaming;
  timed_ = called_ = false;
  if (work_ == nullptr) return;
  given_up_.push_back(work_->end());
  std::function<void()> abort = [work = std::move(work_)] {
    if (const auto communicator = work->communicator()) communicator->Abort();
  };
  try {
    StartThread("smddp-abort", std::move(abort)).detach();
  } catch (const ThreadRefused&) {  // the abort was that of Work's destructor
  }
}

}  // namespace tf_smddp::nccl
