/* What the C++ runtime of the building machine asks of its own glibc and an older one does not
 * have, linked into every program of ours, so that a release built on Debian 12 runs on
 * Ubuntu 22.04.
 *
 * libstdc++ of Debian 12 takes std::random_device's numbers from arc4random (glibc 2.36). */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void);
uint32_t arc4random(void) {
  uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) abort();
  return value;
}
