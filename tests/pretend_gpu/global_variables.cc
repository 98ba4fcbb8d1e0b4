#include "tests/pretend_gpu/global_variables.h"

#include <cstdlib>

#include "tests/pretend_gpu/ptx_text.h"

namespace pretend_gpu {

std::optional<std::vector<unsigned char>> FindGlobalVariable(const std::string& ptx,
                                                             const std::string& name) {
  const std::string declared = ".b8 " + name + "[";
  for (std::size_t at = 0; (at = ptx.find(".global ", at)) != std::string::npos; ++at) {
    const std::size_t end = ptx.find(';', at);
    if (end == std::string::npos) return std::nullopt;
    const std::string statement = ptx.substr(at, end - at);
    const std::size_t found = statement.find(declared);
    if (found == std::string::npos) continue;
    std::vector<unsigned char> bytes(std::strtoul(statement.c_str() + found + declared.size(), nullptr, 10));
    const std::size_t open = statement.find('{', found), close = statement.find('}', found);
    if (open == std::string::npos || close == std::string::npos) return bytes;
    std::size_t i = 0;
    for (const std::string& value : SplitOperands(statement.substr(open + 1, close - open - 1))) {
      if (i == bytes.size()) return std::nullopt;
      bytes[i++] = static_cast<unsigned char>(std::strtoul(value.c_str(), nullptr, 0));
    }
    return bytes;
  }
  return std::nullopt;
}

}  // namespace pretend_gpu
