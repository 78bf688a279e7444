// The line of the program that makes a call.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace unisono_torch {

// A line of a program; `file` is null if it is not known, and else valid for ever.
struct Site {
  const char* file = nullptr;
  uint32_t line = 0;
};

// The innermost frame of Python on this thread whose file is in none of the skipped folders.
Site site();

// The folders of packages whose frames are not the program's: torch and this one.
void skip_folders(std::vector<std::string> folders);

}  // namespace unisono_torch
