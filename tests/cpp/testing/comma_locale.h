// CommaLocale: a locale whose decimal point is a comma, as a German or French program sets it, for the life
// of the object.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_COMMA_LOCALE_H_
#define TF_SMDDP_TESTS_CPP_TESTING_COMMA_LOCALE_H_

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tf_smddp::testing {

class CommaLocale {
 public:
  // Made with localedef, which is part of the C library: a machine need not have any locale installed.
  CommaLocale() {
    const std::string folder = ::testing::TempDir();
    std::ofstream(folder + "/comma.definition") << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\n"
                                                   "grouping -1\nEND LC_NUMERIC\n";
    std::ofstream(folder + "/comma.charmap") << "<code_set_name> UTF-8\n<mb_cur_max> 6\nCHARMAP\n"
                                                "<U0000> /x00 NULL\n<U002C> /x2c COMMA\nEND CHARMAP\n";
    // It warns that all other categories are missing; --force has it write what there is.
    const std::string command = "localedef --quiet --force --inputfile='" + folder +
                                "/comma.definition' --charmap='" + folder + "/comma.charmap' '" + folder +
                                "/comma' 2>'" + folder + "/comma.log'";
    static_cast<void>(std::system(command.c_str()));  // that it has worked is seen below
    ::setenv("LOCPATH", folder.c_str(), 1);
    const char* chosen = std::setlocale(LC_NUMERIC, "comma");
    char text[8] = "";
    std::snprintf(text, sizeof text, "%.1f", 0.5);
    EXPECT_TRUE(chosen != nullptr && std::string(text) == "0,5")
        << "localedef made no locale; see " << folder << "/comma.log";
  }
  ~CommaLocale() { std::setlocale(LC_NUMERIC, "C"); }

  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_COMMA_LOCALE_H_
