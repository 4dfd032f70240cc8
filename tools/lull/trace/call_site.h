// Host call paths as a trace has them, "path+0xoffset;path+0xoffset", turned into function names by
// reading the symbol tables of the files named, where they are still there. Used when a call site
// is shown; one thread. Each file is read once; needs no debugger and no addr2line.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/lull/elf_symbols.h"

namespace lull::trace {

class CallSites {
 public:
  static constexpr size_t kMaxFileBytes = size_t{4} << 30;

  // Innermost first: "train_step(int) [model.so]", or "model.so+0x12f0" where no symbol is known.
  std::vector<std::string> frames(const std::string& call_site);
  // "train_step < main": the innermost `most` frames on one line.
  std::string line(const std::string& call_site, size_t most);

 private:
  const command::ElfSymbols& symbols_of(const std::string& path);
  std::map<std::string, std::unique_ptr<command::ElfSymbols>> files_;
};

}  // namespace lull::trace
