#include "benchmarks/cpp/sweep.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>

namespace tf_smddp::benchmarks {
namespace {

constexpr std::size_t kPeriod = 251;  // a prime: no two chunks of a tensor have the same content
constexpr int kMaxRepetitions = 100'000;
constexpr double kLongBlockSeconds = 0.5;  // if a block takes longer, three blocks are enough

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The tensors of one measurement, in place or not.
class Tensors {
 public:
  Tensors(Contestant& contestant, const std::vector<std::size_t>& counts, bool in_place)
      : contestant_(contestant) {
    for (const std::size_t count : counts) {
      float* const output = contestant.Allocate(count);
      all_.push_back({in_place ? output : contestant.Allocate(count), output, count});
    }
  }
  ~Tensors() {
    for (const Tensor& tensor : all_) {
      if (tensor.input != tensor.output) contestant_.Free(const_cast<float*>(tensor.input), tensor.count);
      contestant_.Free(tensor.output, tensor.count);
    }
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  const std::vector<Tensor>& all() const { return all_; }

  // Sets each element of the inputs to `value(tensor number, element number)`, and clears other outputs.
  template <typename Value>
  void Fill(const Value& value) {
    for (std::size_t t = 0; t < all_.size(); ++t) {
      const Tensor& tensor = all_[t];
      if (tensor.output != tensor.input) std::fill_n(tensor.output, tensor.count, -1.0f);
      for (std::size_t e = 0; e < tensor.count; ++e) const_cast<float*>(tensor.input)[e] = value(t, e);
    }
  }

 private:
  Contestant& contestant_;
  std::vector<Tensor> all_;
};

void Verify(Contestant& contestant, Tensors* tensors) {
  const auto pattern = [](std::size_t t, std::size_t e) { return (t * 7 + e) % kPeriod; };
  const auto rank = static_cast<std::size_t>(contestant.rank());
  const auto size = static_cast<std::size_t>(contestant.size());
  tensors->Fill([&](std::size_t t, std::size_t e) { return static_cast<float>(pattern(t, e) + rank); });
  contestant.Barrier();
  contestant.Allreduce(tensors->all());
  for (std::size_t t = 0; t < tensors->all().size(); ++t) {
    const Tensor& tensor = tensors->all()[t];
    for (std::size_t e = 0; e < tensor.count; ++e) {
      const auto wanted = static_cast<float>(pattern(t, e) * size + size * (size - 1) / 2);
      if (tensor.output[e] == wanted) continue;
      std::fprintf(stderr, "%s, rank %zu: element %zu of tensor %zu (of %zu) is %g instead of %g\n",
                   contestant.name(), rank, e, t, tensor.count, tensor.output[e], wanted);
      std::exit(1);
    }
  }
  contestant.Barrier();
}

// Returns the time of one repetition on the slowest rank, when all ranks begin together.
template <typename Work>
double TimeBlock(Contestant& contestant, int repetitions, const Work& work) {
  contestant.Barrier();
  const double begin = Now();
  for (int i = 0; i < repetitions; ++i) work();
  return contestant.Max(Now() - begin) / repetitions;
}

template <typename Work>
int FindRepetitions(Contestant& contestant, double block_seconds, const Work& work) {
  int repetitions = 1;
  for (;;) {
    const double seconds = TimeBlock(contestant, repetitions, work) * repetitions;  // equal on all ranks
    if (seconds >= block_seconds || repetitions >= kMaxRepetitions) return repetitions;
    const double growth = seconds > 0 ? 1.2 * block_seconds / seconds : 10.0;
    repetitions =
        std::min<int>(kMaxRepetitions, static_cast<int>(repetitions * std::clamp(growth, 1.5, 10.0)) + 1);
  }
}

std::string List(const std::vector<double>& values) {
  std::string text;
  char number[32];
  for (const double value : values) {
    std::snprintf(number, sizeof(number), "%s%.9g", text.empty() ? "" : ", ", value);
    text += number;
  }
  return "[" + text + "]";
}

void Measure(Contestant& contestant, const Options& options, const std::vector<std::size_t>& counts,
             std::FILE* out) {
  const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  Tensors tensors(contestant, counts, options.in_place);
  if (contestant.sums()) Verify(contestant, &tensors);
  // Sums of zeros in place stay zero, and adding zeros takes as long as adding other numbers.
  tensors.Fill([](std::size_t, std::size_t) { return 0.0f; });

  const std::unique_ptr<float[]> source(new float[count]), target(new float[count]);
  std::fill_n(source.get(), count, 1.0f);
  std::fill_n(target.get(), count, 2.0f);
  const auto copy = [&] {
    std::size_t offset = 0;
    for (const std::size_t c : counts) {
      std::memcpy(target.get() + offset, source.get() + offset, c * sizeof(float));
      offset += c;
    }
    asm volatile("" : : "r"(target.get()) : "memory");  // keeps the compiler from removing the copies
  };
  const auto reduce = [&] { contestant.Allreduce(tensors.all()); };

  const int reductions = FindRepetitions(contestant, options.block_seconds, reduce);
  const int copies = FindRepetitions(contestant, options.block_seconds, copy);
  std::vector<double> reduce_seconds, copy_seconds;
  for (int block = 0; block < options.blocks; ++block) {
    reduce_seconds.push_back(TimeBlock(contestant, reductions, reduce));
    copy_seconds.push_back(TimeBlock(contestant, copies, copy));
    // The times are equal on all ranks, so all ranks stop together.
    if (block >= 2 && reduce_seconds.back() * reductions > kLongBlockSeconds) break;
  }
  if (out == nullptr) return;
  std::fprintf(out,
               "{\"work\": \"%s\", \"bytes\": %zu, \"tensors\": %zu, \"in_place\": %s, \"ranks\": %d, "
               "\"seconds\": %s, \"memcpy_seconds\": %s}\n",
               options.set_file.empty() ? "sweep" : "set", count * sizeof(float), counts.size(),
               options.in_place ? "true" : "false", contestant.size(), List(reduce_seconds).c_str(),
               List(copy_seconds).c_str());
  std::fflush(out);
}

std::vector<std::size_t> ReadCounts(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::size_t> counts;
  for (std::size_t count = 0; file >> count;) counts.push_back(count);
  if (counts.empty()) {
    std::fprintf(stderr, "%s contains no element counts\n", path.c_str());
    std::exit(2);
  }
  return counts;
}

}  // namespace

void RunSweep(Contestant& contestant, const Options& options) {
  std::FILE* out = nullptr;
  if (contestant.rank() == 0) {
    out = options.output.empty() ? stdout : std::fopen(options.output.c_str(), "w");
    if (out == nullptr) {
      std::fprintf(stderr, "cannot write %s\n", options.output.c_str());
      std::exit(2);
    }
  }
  if (!options.set_file.empty()) Measure(contestant, options, ReadCounts(options.set_file), out);
  for (const std::size_t bytes : options.sizes) Measure(contestant, options, {bytes / sizeof(float)}, out);
  if (out != nullptr && out != stdout) std::fclose(out);
}

}  // namespace tf_smddp::benchmarks
