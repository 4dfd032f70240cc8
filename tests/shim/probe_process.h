// The probe as a child process under the shim: commands in, answers out.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace lull::test {

using Environment = std::map<std::string, std::string>;

class ProbeProcess {
 public:
  // LD_PRELOAD is the shim unless `environment` says otherwise.
  explicit ProbeProcess(const Environment& environment);
  ~ProbeProcess();

  void tell(const std::string& command);
  std::string answer();
  std::string ask(const std::string& command) {
    tell(command);
    return answer();
  }
  // What it wrote to stderr so far; complete after finish().
  std::string complaints();
  int finish();  // exit code, 128 + signal
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int errors_ = -1;
  std::string buffered_;
};

std::string private_directory();

}  // namespace lull::test
