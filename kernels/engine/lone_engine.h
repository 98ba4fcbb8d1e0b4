// LoneEngine: the engine of a job of one rank. It meets nobody: each request is done when Submit returns,
// which waits for the copies of a buffer that the CPU may not touch.
//
// Place in the stack: behind engine.h. It has no thread, no shared memory and no arena.
#ifndef TF_SMDDP_KERNELS_ENGINE_LONE_ENGINE_H_
#define TF_SMDDP_KERNELS_ENGINE_LONE_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/engine/engine.h"
#include "kernels/engine/watch/statistics.h"

namespace tf_smddp {

class LoneEngine : public Engine {
 public:
  explicit LoneEngine(const Config& config);
  ~LoneEngine() override;

  Status CreateCommunicator(const std::vector<int>& ranks, CommunicatorId* id) override;
  Status CreateCommunicatorAmong(const std::vector<int>& ranks, std::uint64_t key,
                                 CommunicatorId* id) override;
  Status RemoveCommunicator(CommunicatorId id) override;
  std::vector<int> RanksOf(CommunicatorId id) override;
  Status Leave(CommunicatorId id) override;
  Status Return(CommunicatorId id, RankId* last) override;
  Status DrawTicket(CommunicatorId id, StepId step, std::uint64_t* ticket) override;
  std::uint64_t NextTicket() override { return 0; }
  void EndGroup(CommunicatorId, std::uint64_t, bool, const std::string&) override {}
  std::uint64_t Submit(Request&& request) override;
  void Cancel(std::uint64_t, const std::string&) override {}
  void CancelAll(const std::string&) override {}
  void FailStep(CommunicatorId, StepId, const std::string&) override {}
  void FailGroup(CommunicatorId, std::uint64_t, const std::string&) override {}
  Status Stats(bool reset, EngineStats* stats) override;
  void SubmitAndProgress(CommunicatorId, Caller, const std::function<void()>& submit,
                         const std::atomic<bool>&) override {
    submit();
  }
  Status Shutdown() override;
  std::shared_ptr<Arena> arena() override { return nullptr; }
  void Abort(const std::string&) override {}
  void AbortAfterWriting(const std::string&) override {}
  std::string AbortText() override { return {}; }

 private:
  std::shared_ptr<CommunicatorCounters> Find(CommunicatorId id);
  Status CheckExists(CommunicatorId id);

  std::atomic<std::uint64_t> tickets_{0};
  std::mutex mu_;                                                          // guards everything below
  std::map<CommunicatorId, std::shared_ptr<CommunicatorCounters>> known_;  // each has rank 0 alone
  CommunicatorId next_id_ = kWorld + 1;
  std::set<std::uint64_t> keys_;  // that were used
  StatsByKind gone_;              // the counts of removed communicators
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_LONE_ENGINE_H_
