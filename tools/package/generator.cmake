# Read by cpack, once for each generator. Packages of a distribution are staged as they will lie, in
# /usr and /etc; a tarball is a folder that can lie anywhere.
if(CPACK_GENERATOR MATCHES "DEB|RPM")
  set(CPACK_SET_DESTDIR ON)
  set(CPACK_INSTALL_PREFIX /usr)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
else()
  # One tarball of both: unpacked anywhere, `bin/lull` finds its parts beside itself.
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
