#include "kernels/tf/session_step.h"

namespace tf_smddp {
namespace {

using ::tensorflow::CancellationManager;

// An explicit instantiation may name private members, and hands them to a friend.
template <CancellationManager* const CancellationManager::* parent, bool CancellationManager::* removed>
struct Members {
  friend bool HasParent(const CancellationManager& manager) {
    return manager.*parent != nullptr && !(manager.*removed);
  }
};
bool HasParent(const CancellationManager& manager);
template struct Members<&CancellationManager::parent_, &CancellationManager::is_removed_from_parent_>;

}  // namespace

// A run's manager is a child of its session's. Its destructor, and the session's end, take it out of there
// before anything calls back.
bool SessionStepRuns(const CancellationManager& manager) { return HasParent(manager); }

}  // namespace tf_smddp
