#include "benchmarks/cpp/options.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace tf_smddp::benchmarks {
namespace {

[[noreturn]] void Refuse(const std::string& argument) {
  std::fprintf(stderr,
               "%s is no option, or has an invalid value; benchmarks/cpp/options.h lists the options\n",
               argument.c_str());
  std::exit(2);
}

double ParseNumber(const std::string& argument, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || value < 0) Refuse(argument);
  return value;
}

std::vector<std::size_t> ParseSizes(const std::string& argument, const std::string& text) {
  std::vector<std::size_t> sizes;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    sizes.push_back(static_cast<std::size_t>(ParseNumber(argument, item)));
    if (sizes.back() == 0 || sizes.back() % sizeof(float) != 0) Refuse(argument);
  }
  return sizes;
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos) Refuse(argument);
    const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
    if (name == "--sizes") {
      options.sizes = ParseSizes(argument, value);
    } else if (name == "--set") {
      options.set_file = value;
    } else if (name == "--blocks") {
      options.blocks = static_cast<int>(ParseNumber(argument, value));
    } else if (name == "--block-seconds") {
      options.block_seconds = ParseNumber(argument, value);
    } else if (name == "--in-place") {
      options.in_place = ParseNumber(argument, value) != 0;
    } else if (name == "--output") {
      options.output = value;
    } else if (name == "--ranks") {
      options.ranks = static_cast<int>(ParseNumber(argument, value));
    } else if (name == "--time-limit") {
      options.time_limit_seconds = static_cast<int>(ParseNumber(argument, value));
    } else {
      Refuse(argument);
    }
  }
  return options;
}

}  // namespace tf_smddp::benchmarks
