#include "coordinator/daemon/client_region.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include <boost/interprocess/exceptions.hpp>

#include "coordinator/channel/sealed_memory.h"

namespace lull::daemon {
namespace {

namespace bip = boost::interprocess;

// What mapped_region asks of something mappable.
struct Mappable {
  int fd;
  bip::mapping_handle_t get_mapping_handle() const {
    return bip::ipcdetail::mapping_handle_from_file_handle(fd);
  }
};

}  // namespace

std::expected<ClientRegion, std::string> ClientRegion::create() {
  ClientRegion region;
  const char* failed = nullptr;
  const int fd = channel::make_sealed_memory("lull-client", channel::kRegionBytes, failed);
  if (fd < 0) return std::unexpected(fmt::format("{}: {}", failed, strerror(errno)));
  region.fd_ = FileDescriptor(fd);
  try {
    region.mapping_ = bip::mapped_region(Mappable{fd}, bip::read_write, 0, channel::kRegionBytes);
  } catch (const bip::interprocess_exception& error) {
    return std::unexpected(fmt::format("mmap: {}", error.what()));
  }
  return region;
}

}  // namespace lull::daemon
