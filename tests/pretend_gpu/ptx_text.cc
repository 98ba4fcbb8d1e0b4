#include "tests/pretend_gpu/ptx_text.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace pretend_gpu {
namespace {

std::string Trim(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n\r") - begin + 1);
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> pieces;
  std::istringstream in(text);
  for (std::string piece; std::getline(in, piece, at);) pieces.push_back(piece);
  return pieces;
}

std::string WithoutComments(const std::string& text) {
  std::string result;
  for (const std::string& line : Split(text, '\n')) result += line.substr(0, line.find("//")) + "\n";
  return result;
}

// ".param .u64 .ptr .align 1 name", or ".param .align 8 .b8 name[24]": a struct
PtxParameter ReadParameter(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  words >> word >> word;
  const std::size_t bits = std::strtoul(word.c_str() + 2, nullptr, 10);  // of ".u64"
  while (words >> word) continue;
  const std::size_t bracket = word.find('[');
  if (bracket == std::string::npos) return {word, bits / 8};
  return {word.substr(0, bracket), std::strtoul(word.c_str() + bracket + 1, nullptr, 10)};
}

// "@!%p1 ld.global.f32 %f1, [%rd1]"
PtxInstruction ReadInstruction(std::string text) {
  PtxInstruction instruction;
  if (text[0] == '@') {
    const std::size_t end = text.find_first_of(" \t");
    instruction.negated = text[1] == '!';
    instruction.guard = text.substr(instruction.negated ? 2 : 1, end - (instruction.negated ? 2 : 1));
    text = Trim(text.substr(end));
  }
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  instruction.name = Split(text.substr(0, end), '.');
  instruction.operands = SplitOperands(text.substr(end));
  return instruction;
}

// Reads what stands between the braces of a kernel.
void ReadBody(const std::string& body, PtxKernel* kernel) {
  for (std::string statement : Split(body, ';')) {
    statement = Trim(statement);
    for (std::size_t colon; (colon = statement.find(':')) != std::string::npos;) {
      kernel->labels[Trim(statement.substr(0, colon))] = kernel->instructions.size();
      statement = Trim(statement.substr(colon + 1));
    }
    // Registers come into being where they are used, and a pragma changes no result.
    if (statement.empty() || statement.rfind(".reg", 0) == 0 || statement.rfind(".pragma", 0) == 0) continue;
    kernel->instructions.push_back(ReadInstruction(statement));
  }
}

}  // namespace

std::string PtxInstruction::Describe() const {
  std::string text;
  for (const std::string& part : name) text += (text.empty() ? "" : ".") + part;
  for (const std::string& operand : operands) text += (&operand == &operands[0] ? " " : ", ") + operand;
  return text;
}

bool IsPtx(const void* image) {
  const char* at = static_cast<const char*>(image);
  for (;;) {
    while (std::isspace(static_cast<unsigned char>(*at))) at++;
    if (std::strncmp(at, "//", 2) != 0) break;
    while (*at != '\n' && *at != '\0') at++;
  }
  return std::strncmp(at, ".version", 8) == 0;
}

std::vector<std::string> SplitOperands(const std::string& text) {
  std::vector<std::string> operands;
  int depth = 0;
  std::string operand;
  for (const char c : text + ",") {
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c != ',' || depth > 0) {
      operand += c;
      continue;
    }
    if (!Trim(operand).empty()) operands.push_back(Trim(operand));
    operand.clear();
  }
  return operands;
}

std::optional<PtxKernel> FindPtxKernel(const std::string& text, const std::string& name) {
  const std::string ptx = WithoutComments(text);
  const std::size_t entry = ptx.find(".entry " + name + "(");
  if (entry == std::string::npos) return std::nullopt;
  const std::size_t parameters = ptx.find('(', entry) + 1;
  const std::size_t parameters_end = ptx.find(')', parameters);
  const std::size_t body = ptx.find("\n{", parameters_end) + 2;
  PtxKernel kernel;
  for (const std::string& parameter : SplitOperands(ptx.substr(parameters, parameters_end - parameters))) {
    kernel.parameters.push_back(ReadParameter(parameter));
  }
  ReadBody(ptx.substr(body, ptx.find("\n}", body) - body), &kernel);
  return kernel;
}

}  // namespace pretend_gpu
