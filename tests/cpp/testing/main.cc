// The main function of our test programs. `--tests_of=FILE` runs the tests that are written in one file.
#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace {

constexpr char kTestsOf[] = "--tests_of=";

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The suites whose tests are in a file of this name, as a filter of GoogleTest; empty if there are none.
std::string SuitesOf(const std::string& file) {
  std::string filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    if (suite.total_test_count() == 0 || !EndsWith(suite.GetTestInfo(0)->file(), "/" + file)) continue;
    filter += (filter.empty() ? "" : ":") + std::string(suite.name()) + ".*";
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  const std::string argument = argv[1];
  if (argc > 2 || argument.rfind(kTestsOf, 0) != 0) {
    std::fprintf(stderr, "'%s' is not an option of this program; its own one is %sFILE.\n",
                 argv[argc > 2 ? 2 : 1], kTestsOf);
    return 2;
  }
  const std::string suites = SuitesOf(argument.substr(sizeof kTestsOf - 1));
  if (suites.empty()) {
    std::fprintf(stderr, "%s: no file of this program that has tests is called so.\n", argv[1]);
    return 2;
  }
  // A filter of the command line that names tests stands; one that leaves some out does so of this file's.
  std::string& filter = ::testing::GTEST_FLAG(filter);
  if (filter == "*") filter = suites;
  if (filter[0] == '-') filter = suites + filter;
  return RUN_ALL_TESTS();
}
