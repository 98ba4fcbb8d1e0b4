#include "kernels/tf/tensorflow_private.h"

#include <utility>

#include "tensorflow/core/framework/device_base.h"
#include "xla/service/custom_call_status_internal.h"
#include "xla/stream_executor/stream.h"

namespace tf_smddp {
namespace {

using ::tensorflow::AllocatorFactoryRegistry;
using ::tensorflow::CancellationManager;

// An explicit instantiation of a template may name private members. Each of these hands one of them to a
// friend function, which needs no access of its own.
template <auto kParent, auto kRemoved>
struct CancellationMembers {
  friend bool HasParent(const CancellationManager& manager) {
    return manager.*kParent != nullptr && !(manager.*kRemoved);
  }
};
bool HasParent(const CancellationManager& manager);
template struct CancellationMembers<&CancellationManager::parent_,
                                    &CancellationManager::is_removed_from_parent_>;

template <auto kFactories, auto kFirstAllocMade>
struct RegistryMembers {
  friend auto& FactoriesOf(AllocatorFactoryRegistry& registry) { return registry.*kFactories; }
  friend bool FirstAllocMade(AllocatorFactoryRegistry& registry) { return registry.*kFirstAllocMade; }
};
auto& FactoriesOf(AllocatorFactoryRegistry& registry);
bool FirstAllocMade(AllocatorFactoryRegistry& registry);
template struct RegistryMembers<&AllocatorFactoryRegistry::factories_,
                                &AllocatorFactoryRegistry::first_alloc_made_>;

}  // namespace

// The destructor of a manager, and the end of its session, remove it from its parent before they call back.
bool SessionRunGoesOn(const CancellationManager& manager) { return HasParent(manager); }

std::vector<AllocatorSource> AllocatorSources() {
  std::vector<AllocatorSource> sources;
  for (const auto& entry : FactoriesOf(*AllocatorFactoryRegistry::singleton())) {
    sources.push_back({entry.name, entry.priority, entry.factory.get()});
  }
  return sources;
}

bool HasAllocated() { return FirstAllocMade(*AllocatorFactoryRegistry::singleton()); }

void* ComputeStream(::tensorflow::OpKernelContext* context) {
  ::tensorflow::DeviceContext* const device = context->op_device_context();
  if (device == nullptr || device->stream() == nullptr) return nullptr;
  return device->stream()->platform_specific_handle().stream;
}

void SetCustomCallFailure(XlaCustomCallStatus_* status, std::string message) {
  status->message = std::move(message);
}

}  // namespace tf_smddp
