#include "kernels/control/control_segment.h"

#include <string>
#include <utility>

namespace tf_smddp {
namespace {

constexpr std::uint64_t kMagic = 0x31305044444d53u;  // "SMDDP01"

// Note [The ring cannot overflow] in launch_log.h.
std::size_t SmallLogEntries(const Config& config) { return 2 * static_cast<std::size_t>(config.table_slots); }
std::size_t LaunchLogEntries(const Config& config) {
  return 4 * static_cast<std::size_t>(config.table_slots);
}

}  // namespace

std::size_t ControlSegment::Bytes(const Config& config) {
  return sizeof(Fixed) + LaunchLog::Bytes(SmallLogEntries(config)) +
         LaunchLog::Bytes(LaunchLogEntries(config)) +
         ReadinessTable::Bytes(static_cast<std::size_t>(config.table_slots), config.local_size);
}

Status ControlSegment::Create(const Config& config, UniqueFd* fd) {
  Status status = CreateSharedMemory("smddp-control", Bytes(config), fd);
  if (!status.ok()) return status;
  MappingCache mappings;
  std::shared_ptr<Mapping> mapping;
  status = mappings.Map(fd->get(), Bytes(config), &mapping);
  if (!status.ok()) return status;
  // Zero bytes are the start of everything else.
  auto* fixed = reinterpret_cast<Fixed*>(mapping->data());
  fixed->magic = kMagic;
  fixed->bytes = Bytes(config);
  return {};
}

Status ControlSegment::Open(int fd, const Config& config, MappingCache* mappings,
                            std::unique_ptr<ControlSegment>* segment) {
  std::shared_ptr<Mapping> mapping;
  Status status = mappings->Map(fd, Bytes(config), &mapping);
  if (!status.ok()) return status;
  const auto* fixed = reinterpret_cast<const Fixed*>(mapping->data());
  if (fixed->magic != kMagic || fixed->bytes != Bytes(config)) {
    return Internal(
        "the control segment was made by another version of tf_smddp; install one version for all ranks");
  }
  segment->reset(new ControlSegment(std::move(mapping), config));
  return {};
}

ControlSegment::ControlSegment(std::shared_ptr<Mapping> mapping, const Config& config)
    : mapping_(std::move(mapping)),
      fixed_(reinterpret_cast<Fixed*>(mapping_->data())),
      small_log_(mapping_->data() + sizeof(Fixed), SmallLogEntries(config)),
      launch_log_(mapping_->data() + sizeof(Fixed) + LaunchLog::Bytes(SmallLogEntries(config)),
                  LaunchLogEntries(config)),
      table_(mapping_->data() + sizeof(Fixed) + LaunchLog::Bytes(SmallLogEntries(config)) +
                 LaunchLog::Bytes(LaunchLogEntries(config)),
             static_cast<std::size_t>(config.table_slots), config.local_size, &fixed_->abort) {}

}  // namespace tf_smddp
