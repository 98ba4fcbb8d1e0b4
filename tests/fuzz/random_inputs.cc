// Runs a fuzz target without a fuzzer, for each test run: first the inputs of a file, one a line in
// hexadecimal digits, which fuzzing has found to reach what others do not; then changed copies of them, and
// random inputs, always the same ones.
//     TARGET [SEEDS_FILE]
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

// It ends earlier where a run takes long, as under sanitizers.
constexpr int kRandomInputs = 50'000;
constexpr std::chrono::milliseconds kMostTime{300};
constexpr std::size_t kMostBytes = 600;

bool ReadSeeds(const char* path, std::vector<Bytes>* seeds) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Bytes seed;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      seed.push_back(static_cast<std::uint8_t>(std::stoul(line.substr(i, 2), nullptr, 16)));
    }
    seeds->push_back(std::move(seed));
  }
  return file.eof() && !seeds->empty();
}

class Inputs {
 public:
  explicit Inputs(std::vector<Bytes> seeds) : seeds_(std::move(seeds)) {}

  Bytes Next() {
    Bytes bytes;
    if (!seeds_.empty() && Below(4) != 0) bytes = seeds_[Below(seeds_.size())];
    if (bytes.empty() || Below(8) == 0) {
      bytes.resize(Below(kMostBytes));
      // Small values are those that many fields take.
      const std::size_t limit = Below(2) == 0 ? 256 : 8;
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(Below(limit));
    }
    for (std::size_t changes = Below(8); changes > 0 && !bytes.empty(); --changes) {
      const std::size_t at = Below(bytes.size());
      switch (Below(4)) {
        case 0:
          bytes[at] = static_cast<std::uint8_t>(Below(256));
          break;
        case 1:
          bytes[at] ^= static_cast<std::uint8_t>(1u << Below(8));
          break;
        case 2:
          bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        default:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes[Below(bytes.size())]);
      }
    }
    return bytes;
  }

 private:
  std::size_t Below(std::size_t limit) { return random_() % limit; }

  const std::vector<Bytes> seeds_;
  std::mt19937_64 random_{1};
};

// In memory of its own size, so that a sanitizer sees each byte that is read behind the end.
void Try(const Bytes& bytes) {
  const auto copy = std::make_unique<std::uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Bytes> seeds;
  if (argc > 1 && !ReadSeeds(argv[1], &seeds)) {
    std::fprintf(stderr, "no inputs in %s\n", argv[1]);
    return 1;
  }
  for (const Bytes& seed : seeds) Try(seed);
  Inputs inputs(seeds);
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  int tried = 0;
  while (tried < kRandomInputs && std::chrono::steady_clock::now() < end) {
    Try(inputs.Next());
    ++tried;
  }
  std::printf("%zu inputs of the file and %d random ones\n", seeds.size(), tried);
  return 0;
}
