#include "coordinator/daemon/client_region.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>

#include <boost/interprocess/exceptions.hpp>

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

std::unexpected<std::string> failed(const char* call) {
  return std::unexpected(fmt::format("{}: {}", call, strerror(errno)));
}

}  // namespace

std::expected<ClientRegion, std::string> ClientRegion::create() {
  ClientRegion region;
  region.fd_ = FileDescriptor(::memfd_create("lull-client", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = region.fd_.get();
  if (fd < 0) return failed("memfd_create");
  if (::ftruncate(fd, channel::kRegionBytes) != 0) return failed("ftruncate");
  if (::fallocate(fd, 0, 0, channel::kRegionBytes) != 0) return failed("fallocate");
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed("fcntl(F_ADD_SEALS)");
  }
  try {
    region.mapping_ = bip::mapped_region(Mappable{fd}, bip::read_write, 0, channel::kRegionBytes);
  } catch (const bip::interprocess_exception& error) {
    return std::unexpected(fmt::format("mmap: {}", error.what()));
  }
  return region;
}

}  // namespace lull::daemon
