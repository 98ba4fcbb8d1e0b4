// compile_ptx NVRTC SOURCE SYMBOL OUTPUT: compiles CUDA C++ into PTX, and writes a C++ file that defines
// SYMBOL, which is that text. If the file NVRTC is empty, so is the text.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

namespace {

// TensorFlow's wheels since 2.15 support GPUs from Pascal on. Drivers compile its PTX for all later ones.
constexpr const char* kOptions[] = {"--gpu-architecture=compute_60", "--std=c++17", "--include-path=."};

using Program = struct ProgramTag*;

[[noreturn]] void Fail(const std::string& why) {
  std::cerr << "compile_ptx: " << why << "\n";
  std::exit(1);
}

std::string Read(const char* path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) Fail(std::string("cannot read ") + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The functions follow NVRTC's documentation; 0 is success.
template <typename Function>
Function* Find(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) Fail(std::string("NVRTC has no function ") + name);
  return reinterpret_cast<Function*>(found);
}

// Returns what a pair of functions gives: the size of a text, its last zero included, and the text.
std::string TextOf(void* library, const char* size_name, const char* text_name, Program program) {
  std::size_t size = 0;
  if (Find<int(Program, std::size_t*)>(library, size_name)(program, &size) != 0) Fail(size_name);
  std::string text(size, '\0');
  if (Find<int(Program, char*)>(library, text_name)(program, text.data()) != 0) Fail(text_name);
  return text.c_str();
}

std::string Compile(const char* nvrtc, const char* path) {
  const std::string source = Read(path);
  void* const library = dlopen(nvrtc, RTLD_NOW);
  if (library == nullptr) Fail(dlerror());
  Program program = nullptr;
  const auto create =
      Find<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
          library, "nvrtcCreateProgram");
  if (create(&program, source.c_str(), path, 0, nullptr, nullptr) != 0) Fail("nvrtcCreateProgram");
  const auto compile = Find<int(Program, int, const char* const*)>(library, "nvrtcCompileProgram");
  if (compile(program, std::size(kOptions), kOptions) != 0) {
    Fail(TextOf(library, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program));
  }
  return TextOf(library, "nvrtcGetPTXSize", "nvrtcGetPTX", program);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) Fail("usage: compile_ptx NVRTC SOURCE SYMBOL OUTPUT");
  const std::string ptx = Read(argv[1]).empty() ? "" : Compile(argv[1], argv[2]);
  std::ofstream out(argv[4]);
  out << "// Made by compile_ptx of " << argv[2] << ".\n"
      << "extern const char " << argv[3] << "[];\nconst char " << argv[3] << "[] = R\"ptx(" << ptx
      << ")ptx\";\n";
  out.close();
  if (!out) Fail(std::string("cannot write ") + argv[4]);
  return 0;
}
