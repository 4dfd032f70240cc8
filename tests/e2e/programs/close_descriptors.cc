// close_descriptors [LAUNCHES]: half of the launches, then closes every descriptor above 2, as
// daemonising programs do, opens files of its own, and goes on.
#define DRIVER(name) name
#include "driver_work.h"

#include <fcntl.h>
#include <sys/stat.h>

int main(int argc, char** argv) {
  const auto count = argument(argc, argv, 1, 10);
  DriverWork work;
  work.start();
  Counts counts = work.run(count / 2, 10000);
  for (int fd = 3; fd < 4096; ++fd) close(fd);
  // The numbers are used again: whoever kept one must notice that it is another file.
  int files[64];
  char path[] = "/tmp/close_descriptors-XXXXXX";
  files[0] = mkstemp(path);
  REQUIRE_THAT(files[0] >= 0);
  unlink(path);
  for (int i = 1; i < 64; ++i) files[i] = dup(files[0]);
  counts.add(work.run(count - count / 2, 10000));
  struct stat state {};
  CHECK(fstat(files[0], &state));
  REQUIRE_THAT(state.st_size == 0);  // nobody wrote into it
  for (int fd : files) CHECK(close(fd));
  return finish(counts);
}
