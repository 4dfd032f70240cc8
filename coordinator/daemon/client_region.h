// The memory of one client: a memfd that the daemon makes in full, seals in size and maps.
// Whatever the client does to its descriptor, the daemon's mapping stays valid. Loop thread.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <expected>
#include <string>

#include "coordinator/channel/layout.h"
#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {

class ClientRegion {
 public:
  // Errors name the system call and why.
  static std::expected<ClientRegion, std::string> create();

  channel::Region view() const { return {static_cast<char*>(mapping_.get_address())}; }
  // To be sent to the client; then `drop_fd`, the mapping does not need it.
  int fd() const { return fd_.get(); }
  void drop_fd() { fd_.reset(); }

 private:
  FileDescriptor fd_;
  boost::interprocess::mapped_region mapping_;
};

}  // namespace lull::daemon
