#include "kernels/cuda/device.h"

#include <map>
#include <utility>

namespace tf_smddp::cuda {
namespace {

DeviceAddress AddressOf(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

}  // namespace

Status Device::Of(Stream compute, Device** device) {
  static auto& mu = *new std::mutex;
  static auto& devices = *new std::map<Context, Device*>;  // their threads outlive static destructors
  Status status;
  const Driver* const driver = Driver::Get(&status);
  if (driver == nullptr) return status;
  Context context = nullptr;
  status = driver->Check("cuStreamGetCtx", driver->StreamGetCtx(compute, &context));
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu);
  Device*& known = devices[context];
  if (known == nullptr) {
    std::unique_ptr<Device> opening(new Device(driver, context));
    status = opening->Open();
    if (!status.ok()) return status;
    known = opening.release();
  }
  *device = known;
  return {};
}

Status Device::Open() {
  const CurrentContext current(driver_, context_);
  Status status = driver_->Check("cuCtxGetDevice", driver_->CtxGetDevice(&number_));
  for (CopyStream* const copies : {&to_host_, &from_host_}) {
    if (!status.ok()) return status;
    status = driver_->Check("cuStreamCreate", driver_->StreamCreate(&copies->stream, kStreamNonBlocking));
  }
  if (!status.ok()) return status;
  to_host_.waiter = std::make_unique<EventWaiter>(driver_, context_, "smddp-from-gpu");
  from_host_.waiter = std::make_unique<EventWaiter>(driver_, context_, "smddp-to-gpu");
  return {};
}

Status Device::Mark(Order* order) { return events_->Record(order->compute, &order->reached); }

void Device::WhenWritten(EventWaiter::Reached reached) {
  Event event;
  std::unique_lock<std::mutex> lock(from_host_.mu);
  const Status status = events_->Record(from_host_.stream, &event);
  if (status.ok()) return from_host_.waiter->Add(std::move(event), std::move(reached));
  lock.unlock();
  reached(status);
}

template <typename Copy>
Status Device::Put(CopyStream* on, const Order& order, Copy copy, Ended ended) {
  const CurrentContext current(driver_, context_);
  std::lock_guard<std::mutex> lock(on->mu);
  Status status = driver_->Check("cuStreamWaitEvent",
                                 driver_->StreamWaitEvent(on->stream, order.reached.get(), /*flags=*/0));
  if (status.ok()) status = copy(on->stream);
  Event event;
  if (status.ok()) status = events_->Record(on->stream, &event);
  if (status.ok()) on->waiter->Add(std::move(event), std::move(ended));
  return status;
}

Status Device::CopyToHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) {
  const auto copy = [&](Stream on) {
    return driver_->Check("cuMemcpyDtoHAsync", driver_->MemcpyDtoHAsync(to, AddressOf(from), bytes, on));
  };
  return Put(&to_host_, *static_cast<const Order*>(stream), copy, std::move(ended));
}

Status Device::CopyFromHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) {
  const auto copy = [&](Stream on) {
    return driver_->Check("cuMemcpyHtoDAsync", driver_->MemcpyHtoDAsync(AddressOf(to), from, bytes, on));
  };
  return Put(&from_host_, *static_cast<const Order*>(stream), copy, std::move(ended));
}

Status Device::Pin(void* data, std::uint64_t bytes) {
  const CurrentContext current(driver_, context_);
  return driver_->Check("cuMemHostRegister", driver_->MemHostRegister(data, bytes, kHostRegisterPortable));
}

// The memory is about to be used for other things, which an error here does not change.
void Device::Unpin(void* data) {
  const CurrentContext current(driver_, context_);
  static_cast<void>(driver_->MemHostUnregister(data));
}

}  // namespace tf_smddp::cuda
