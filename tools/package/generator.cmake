# Read by cpack, once for each generator. Packages of a distribution are staged as they will lie, in
# /usr and /etc; a tarball is a folder that can lie anywhere.
if(CPACK_GENERATOR MATCHES "DEB|RPM")
  set(CPACK_SET_DESTDIR ON)
  set(CPACK_INSTALL_PREFIX /usr)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
endif()
