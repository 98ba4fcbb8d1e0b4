#include "tests/cpp/testing/trial.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "tests/cpp/reduce/reference.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// The content of an output before.
constexpr std::byte kUnwritten{0x5a};

std::uint32_t Mix(std::uint32_t value) {
  value = (value ^ value >> 16) * 0x7feb352du;
  value = (value ^ value >> 15) * 0x846ca68bu;
  return value ^ value >> 16;
}

// Writes element `index` of a period. Floats are quarters between -4 and 4; integers are any.
void PutElement(DType dtype, std::uint32_t random, std::byte* at) {
  const double quarter = static_cast<double>(random % 33) / 4.0 - 4.0;
  const auto put = [at](auto value, std::size_t part) {
    std::memcpy(at + part * sizeof value, &value, sizeof value);
  };
  switch (dtype) {
    case DType::kFloat16:
      return put(EncodeHalf(kFloat16Format, quarter), 0);
    case DType::kBFloat16:
      return put(EncodeHalf(kBFloat16Format, quarter), 0);
    case DType::kComplex64:
      put(static_cast<float>(random / 33 % 9) - 4.0f, 1);
      [[fallthrough]];
    case DType::kFloat32:
      return put(static_cast<float>(quarter), 0);
    case DType::kComplex128:
      put(static_cast<double>(random / 33 % 9) - 4.0, 1);
      [[fallthrough]];
    case DType::kFloat64:
      return put(quarter, 0);
    case DType::kBool:
      return put(static_cast<std::uint8_t>(random % 2), 0);
    default: {
      const std::uint64_t wide = std::uint64_t{random} * 0x9e3779b97f4a7c15u;
      std::memcpy(at, &wide, DTypeBytes(dtype));
    }
  }
}

std::vector<unsigned char> PeriodOf(const Trial& trial, int member) {
  const std::size_t element_bytes = DTypeBytes(trial.dtype);
  std::vector<unsigned char> period(static_cast<std::size_t>(kPeriod) * element_bytes);
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    const std::uint32_t random =
        Mix(static_cast<std::uint32_t>(i) + 1000u * (static_cast<std::uint32_t>(member) + 64u * trial.salt));
    PutElement(trial.dtype, random,
               reinterpret_cast<std::byte*>(period.data()) + static_cast<std::size_t>(i) * element_bytes);
  }
  return period;
}

// Appends elements [begin, begin + count) of the endless repetition of `period`.
void AppendRepeated(const std::vector<unsigned char>& period, std::size_t element_bytes, std::int64_t begin,
                    std::int64_t count, std::vector<std::byte>* to) {
  const auto* bytes = reinterpret_cast<const std::byte*>(period.data());
  to->reserve(to->size() + static_cast<std::size_t>(count) * element_bytes);
  while (count > 0) {
    const std::int64_t at = begin % kPeriod;
    const std::int64_t piece = std::min(count, kPeriod - at);
    to->insert(to->end(), bytes + static_cast<std::size_t>(at) * element_bytes,
               bytes + static_cast<std::size_t>(at + piece) * element_bytes);
    begin += piece;
    count -= piece;
  }
}

int IndexOf(const std::vector<int>& values, int value) {
  return static_cast<int>(std::find(values.begin(), values.end(), value) - values.begin());
}

// The result of the participants' inputs. There is a partial result for each host of `host_of`,
// if that is not empty, but none for an average of integers.
std::vector<unsigned char> ReducedPeriod(const Trial& trial, const std::vector<int>& participants,
                                         const std::vector<int>& host_of) {
  constexpr auto kCount = static_cast<std::size_t>(kPeriod);
  std::map<int, std::vector<std::vector<unsigned char>>> by_host;
  const bool exact = trial.op == ReduceOp::kAverage && !IsInexact(trial.dtype);
  const bool hierarchical = !exact && !host_of.empty();
  for (const int each : participants) {
    const int host = hierarchical ? host_of[static_cast<std::size_t>(each)] : 0;
    by_host[host].push_back(PeriodOf(trial, each));
  }
  if (!hierarchical) {
    return ReferenceReduce({trial.dtype, trial.op, trial.prescale, trial.postscale}, by_host[0], kCount);
  }
  std::vector<std::vector<unsigned char>> partial;
  const ReduceOp op = trial.op == ReduceOp::kAverage ? ReduceOp::kSum : trial.op;
  for (const auto& [host, periods] : by_host) {
    partial.push_back(ReferenceReduce({trial.dtype, op, trial.prescale}, periods, kCount));
  }
  const bool overflows = trial.dtype == DType::kFloat16 && trial.op == ReduceOp::kAverage;
  const auto bytes = static_cast<std::uint64_t>(trial.rows * trial.row_count) * DTypeBytes(trial.dtype);
  const bool small = trial.kind == CollectiveKind::kAllreduce && !HostsGroup(bytes);
  if (!overflows && !small && HostsGroup(~std::uint64_t{0})) {
    partial = AddInGroups(partial, [&](const std::vector<std::vector<unsigned char>>& of_group) {
      return ReferenceReduce({trial.dtype, op}, of_group, kCount);
    });
  }
  Reduction last{trial.dtype, trial.op, 1.0, trial.postscale};
  last.divisor = static_cast<int>(participants.size());
  return ReferenceReduce(last, partial, kCount);
}

bool HasOwnOutput(CollectiveKind kind) {
  return kind == CollectiveKind::kAllgather || kind == CollectiveKind::kReducescatter ||
         kind == CollectiveKind::kAlltoall;
}

}  // namespace

std::int64_t Trial::RowsOf(int member) const {
  const auto index = static_cast<std::size_t>(member);
  if (kind == CollectiveKind::kAllgather) return rows_of[index];
  if (kind == CollectiveKind::kAlltoall) {
    return std::accumulate(splits[index].begin(), splits[index].end(), std::int64_t{0});
  }
  return rows;
}

std::string DescribeTrial(const Trial& trial) {
  std::string text = std::string(CollectiveKindName(trial.kind)) + " " + DTypeName(trial.dtype);
  if (IsReduction(trial.kind)) {
    text += std::string(" ") + ReduceOpName(trial.op) + " * " + std::to_string(trial.prescale) + " * " +
            std::to_string(trial.postscale);
  }
  if (trial.HasRoot()) text += " root " + std::to_string(trial.root);
  text += ", rows";
  if (trial.rows_of.empty() && trial.splits.empty()) text += " " + std::to_string(trial.rows);
  for (const std::int64_t rows : trial.rows_of) text += " " + std::to_string(rows);
  for (const auto& splits : trial.splits) {
    text += " (";
    for (const std::int64_t rows : splits) text += " " + std::to_string(rows);
    text += " )";
  }
  text += " of " + std::to_string(trial.row_count) + ", placements";
  for (const Placement& placement : trial.placements) {
    text += std::string(" ") +
            (placement.input_on_device  ? "d"
             : placement.input_in_arena ? "a"
                                        : "p") +
            (placement.output_on_device  ? "d"
             : placement.output_in_arena ? "a"
                                         : "p") +
            (placement.in_place ? "=" : "");
  }
  return text + ", salt " + std::to_string(trial.salt);
}

std::vector<std::byte> InputOf(const Trial& trial, int member) {
  std::vector<std::byte> input;
  AppendRepeated(PeriodOf(trial, member), DTypeBytes(trial.dtype), 0, trial.RowsOf(member) * trial.row_count,
                 &input);
  return input;
}

Outcome ExpectedOf(const Trial& trial, const std::vector<int>& participants, int member,
                   const std::vector<int>& host_of) {
  const std::size_t element_bytes = DTypeBytes(trial.dtype);
  Outcome outcome;
  if (IsReduction(trial.kind)) {
    const std::vector<unsigned char> reduced = ReducedPeriod(trial, participants, host_of);
    std::int64_t begin = 0, rows = trial.rows;
    if (trial.kind == CollectiveKind::kReducescatter) {
      // Dealt out one by one: the first ranks get one more.
      std::vector<std::int64_t> shards(participants.size(), 0);
      for (std::int64_t row = 0; row < trial.rows; ++row)
        ++shards[static_cast<std::size_t>(row) % shards.size()];
      if (trial.to_root) {
        shards.assign(shards.size(), 0);
        shards[static_cast<std::size_t>(IndexOf(participants, trial.root))] = trial.rows;
      }
      const auto index = static_cast<std::ptrdiff_t>(IndexOf(participants, member));
      begin = std::accumulate(shards.begin(), shards.begin() + index, std::int64_t{0});
      rows = shards[static_cast<std::size_t>(index)];
      outcome.rows = {rows};
    }
    AppendRepeated(reduced, element_bytes, begin * trial.row_count, rows * trial.row_count, &outcome.output);
    return outcome;
  }
  switch (trial.kind) {
    case CollectiveKind::kBroadcast:
      outcome.output = InputOf(trial, trial.root);
      break;
    case CollectiveKind::kAllgather:
      for (const int sender : participants) {
        outcome.rows.push_back(trial.RowsOf(sender));
        AppendRepeated(PeriodOf(trial, sender), element_bytes, 0, trial.RowsOf(sender) * trial.row_count,
                       &outcome.output);
      }
      break;
    case CollectiveKind::kAlltoall:
      for (const int sender : participants) {
        const std::vector<std::int64_t>& splits = trial.splits[static_cast<std::size_t>(sender)];
        const std::int64_t before = std::accumulate(splits.begin(), splits.begin() + member, std::int64_t{0});
        outcome.rows.push_back(splits[static_cast<std::size_t>(member)]);
        AppendRepeated(PeriodOf(trial, sender), element_bytes, before * trial.row_count,
                       outcome.rows.back() * trial.row_count, &outcome.output);
      }
      break;
    default:
      break;  // a barrier has nothing
  }
  return outcome;
}

Attempt::Attempt(Engine& engine, CommunicatorId communicator, const Trial& trial)
    : engine_(engine),
      communicator_(communicator),
      trial_(trial),
      ranks_(engine.RanksOf(communicator)),
      member_(IndexOf(ranks_, engine.config().rank)),
      stream_(TestDevice::Get().StreamOf(engine.config().rank)) {
  if (!trial_.placements.empty()) placement_ = trial_.placements[static_cast<std::size_t>(member_)];
  const std::vector<std::byte> content = InputOf(trial_, member_);
  input_ = Place(content, placement_.input_in_arena, placement_.input_on_device);
  if (HasOwnOutput(trial_.kind) || placement_.in_place) return;
  output_ = Place(std::vector<std::byte>(content.size(), kUnwritten), placement_.output_in_arena,
                  placement_.output_on_device);
}

Attempt::~Attempt() {
  Free(&input_);
  Free(&output_);
}

Attempt::Tensor Attempt::Place(std::vector<std::byte> content, bool in_arena, bool on_device) {
  Tensor tensor;
  const std::size_t bytes = tensor.bytes = content.size();
  if (on_device) {
    tensor.device = &TestDevice::Get();
    tensor.data = tensor.device->Allocate(bytes);
    stream_->Write(std::move(content), tensor.data);
    return tensor;
  }
  tensor.arena = in_arena ? engine_.arena() : nullptr;  // a job of one rank has none
  if (tensor.arena != nullptr) tensor.data = static_cast<std::byte*>(tensor.arena->Allocate(bytes));
  if (tensor.data == nullptr) {
    tensor.arena = nullptr;  // or it is full
    tensor.own.resize(bytes + 1);
    tensor.data = tensor.own.data();
  }
  std::copy(content.begin(), content.end(), tensor.data);
  return tensor;
}

// The content that whoever comes next sees.
std::vector<std::byte> Attempt::ContentOf(const Tensor& tensor) {
  if (tensor.device != nullptr) return stream_->Read(tensor.data, tensor.bytes);
  return {tensor.data, tensor.data + tensor.bytes};
}

void Attempt::Free(Tensor* tensor) {
  if (tensor->device != nullptr) {
    stream_->Synchronize();
    tensor->device->Free(tensor->data);
  }
  if (tensor->arena != nullptr) tensor->arena->Free(tensor->data);
}

Request Attempt::MakeRequest(bool alone) {
  Request request;
  request.communicator = communicator_;
  request.operation.kind = trial_.kind;
  request.operation.dtype = trial_.dtype;
  request.operation.op = trial_.op;
  request.operation.prescale = trial_.prescale;
  request.operation.postscale = trial_.postscale;
  if (trial_.HasRoot()) request.operation.root = RankId(ranks_[static_cast<std::size_t>(trial_.root)]);
  request.shape = {trial_.RowsOf(member_)};
  if (trial_.row_count != 1) request.shape.push_back(trial_.row_count);
  if (trial_.kind == CollectiveKind::kAlltoall)
    request.splits = trial_.splits[static_cast<std::size_t>(member_)];
  request.input = InputBuffer(input_.data, input_.device, stream_);
  request.label = "trial";
  request.seals_at_once = alone;
  if (!HasOwnOutput(trial_.kind)) {
    const Tensor& output = placement_.in_place ? input_ : output_;
    request.output = Buffer(output.data, output.device, stream_);
    return request;
  }
  if (placement_.output_on_device) request.output = Buffer(nullptr, &TestDevice::Get(), stream_);
  request.allocate = [this](const std::vector<std::int64_t>& rows, void** output) -> Status {
    ++allocations_;
    told_rows_ = rows;
    const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const std::size_t bytes = static_cast<std::size_t>(total * trial_.row_count) * DTypeBytes(trial_.dtype);
    output_ = Place(std::vector<std::byte>(bytes, kUnwritten), placement_.output_in_arena,
                    placement_.output_on_device);
    *output = output_.data;
    return {};
  };
  return request;
}

bool Attempt::Check(const Status& status, std::vector<int> participants) {
  if (!status.ok()) {
    ADD_FAILURE() << DescribeTrial(trial_) << ": " << status.message();
    return false;
  }
  if (participants.empty()) {
    participants.resize(ranks_.size());
    std::iota(participants.begin(), participants.end(), 0);
  }
  std::vector<int> host_of;
  const std::size_t hosts = RanksOnHosts(engine_.config().size).size();
  // When a member has left, inputs are added in the order of the ranks.
  if (hosts > 1 && participants.size() == ranks_.size()) {
    for (const int rank : ranks_) host_of.push_back(rank % static_cast<int>(hosts));
  }
  const Outcome expected = ExpectedOf(trial_, participants, member_, host_of);
  const bool own_output = HasOwnOutput(trial_.kind);
  const Tensor& output = placement_.in_place && !own_output ? input_ : output_;
  bool right = ContentOf(output) == expected.output;
  EXPECT_TRUE(right) << DescribeTrial(trial_) << ": wrong output on member " << member_ << " of "
                     << ranks_.size();
  if (own_output) {
    EXPECT_EQ(allocations_, 1);
    EXPECT_EQ(told_rows_, expected.rows) << DescribeTrial(trial_);
    right = right && allocations_ == 1 && told_rows_ == expected.rows;
  }
  if (own_output || !placement_.in_place) {
    const bool intact = ContentOf(input_) == InputOf(trial_, member_);
    EXPECT_TRUE(intact) << DescribeTrial(trial_) << ": the input was changed on member " << member_;
    right = right && intact;
  }
  return right;
}

void RunAsGroup(Engine& engine, CommunicatorId communicator, const std::vector<Trial>& trials,
                unsigned seed) {
  const std::uint64_t ticket = DrawTicket(engine, communicator);
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(),
               std::mt19937(seed * 64 + static_cast<unsigned>(engine.config().rank)));
  std::vector<std::unique_ptr<Attempt>> attempts;
  std::vector<Request> requests;
  for (const std::size_t index : order) {
    attempts.push_back(std::make_unique<Attempt>(engine, communicator, trials[index]));
    requests.push_back(InGroup(attempts.back()->MakeRequest(), ticket, static_cast<std::uint32_t>(index),
                               static_cast<std::uint32_t>(trials.size())));
  }
  const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
  for (std::size_t i = 0; i < attempts.size(); ++i) ASSERT_TRUE(attempts[i]->Check(statuses[i]));
}

void RunAlone(Engine& engine, CommunicatorId communicator, const std::vector<Trial>& trials) {
  for (const Trial& trial : trials) {
    Attempt attempt(engine, communicator, trial);
    ASSERT_TRUE(attempt.Check(Await(engine, attempt.MakeRequest(trial.salt % 2 == 1))));
  }
}

}  // namespace tf_smddp::testing
