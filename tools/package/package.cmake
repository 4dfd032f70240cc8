# cpack: .deb, .rpm and tarball of the install components `lull` and `sim` (package lull-sim). Each of
# them can be made from any build tree:
#   cpack --config BUILD/CPackConfig.cmake -G DEB -B FOLDER      (or RPM, TGZ)
# What an RPM needs is computed by rpm's own finder. Of a .deb it is said here, and tests/package holds it
# against the files: dpkg-shlibdeps takes dlopen of GLIBC_2.2.5 for one of 2.34, where it moved to libc.so.6.
set(package ${CMAKE_CURRENT_LIST_DIR})

set(CPACK_PACKAGE_NAME lull)
set(CPACK_PACKAGE_VENDOR lull)
set(CPACK_PACKAGE_CONTACT "the maintainers of lull <lull@lull.invalid>")
set(CPACK_PACKAGE_FILE_NAME lull-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_COMPONENTS_ALL lull sim)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PROJECT_CONFIG_FILE ${package}/generator.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(summary "shares a GPU between CUDA programs")
set(description "A GPU is idle in the pauses between one program's kernels. lull preloads a
small library into a program, recognises each kernel, learns how long it
runs and how long the pause after it is, and lets a less important program's
kernels run in those pauses. Programs are neither changed nor recompiled.")
set(sim_summary "simulated GPU for lull")
set(sim_description "A libcuda.so.1 whose GPU is an object in shared memory, for programs, tests
and first tries of lull on machines without a GPU. Its figures are simulated
and say nothing about hardware.")

# ---- Debian
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_LULL_PACKAGE_NAME lull)
set(CPACK_DEBIAN_SIM_PACKAGE_NAME lull-sim)
set(CPACK_DEBIAN_LULL_DESCRIPTION "${summary}\n${description}")
set(CPACK_DEBIAN_SIM_DESCRIPTION "${sim_summary}\n${sim_description}")
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(glibc "libc6 (>= 2.28), ")  # what tests/gpu/portability_test.py allows the programs
set(CPACK_DEBIAN_LULL_PACKAGE_DEPENDS "${glibc}passwd")
set(CPACK_DEBIAN_LULL_PACKAGE_SUGGESTS "lull-sim")
set(CPACK_DEBIAN_SIM_PACKAGE_DEPENDS "${glibc}lull (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LULL_PACKAGE_CONTROL_EXTRA
  "${package}/debian/postinst;${package}/debian/prerm;${package}/debian/postrm;${package}/debian/conffiles")
set(CPACK_DEBIAN_LULL_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)

# ---- RPM
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_MAIN_COMPONENT lull)
set(CPACK_RPM_LULL_PACKAGE_NAME lull)
set(CPACK_RPM_SIM_PACKAGE_NAME lull-sim)
set(CPACK_RPM_LULL_PACKAGE_SUMMARY ${summary})
set(CPACK_RPM_SIM_PACKAGE_SUMMARY ${sim_summary})
set(CPACK_RPM_LULL_PACKAGE_DESCRIPTION ${description})
set(CPACK_RPM_SIM_PACKAGE_DESCRIPTION ${sim_description})
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_RELOCATABLE OFF)
# What they need, but not what they have: nobody is to find this libcuda.so.1 in place of the driver's.
set(CPACK_RPM_PACKAGE_AUTOREQ ON)
set(CPACK_RPM_PACKAGE_AUTOPROV OFF)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib/systemd /usr/lib/systemd/system /usr/lib/sysusers.d
  /usr/share/man /usr/share/man/man1 /usr/share/man/man5 /usr/share/man/man8 /usr/share/doc
  /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/zsh
  /usr/share/zsh/vendor-completions /usr/share/fish /usr/share/fish/vendor_completions.d
  /usr/share/lintian /usr/share/lintian/overrides)
set(CPACK_RPM_LULL_PACKAGE_REQUIRES shadow-utils)
set(CPACK_RPM_SIM_PACKAGE_REQUIRES "lull = ${PROJECT_VERSION}")
set(CPACK_RPM_LULL_USER_FILELIST "%config(noreplace) /etc/lull/lulld.json")
set(CPACK_RPM_LULL_POST_INSTALL_SCRIPT_FILE ${package}/rpm/post)
set(CPACK_RPM_LULL_PRE_UNINSTALL_SCRIPT_FILE ${package}/rpm/preun)
set(CPACK_RPM_LULL_POST_UNINSTALL_SCRIPT_FILE ${package}/rpm/postun)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none\n%define debug_package %{nil}")

# What Debian's policy asks for; the others have it too.
set(made ${CMAKE_BINARY_DIR}/package)
file(MAKE_DIRECTORY ${made})
configure_file(${package}/debian/changelog.in ${made}/changelog @ONLY)
execute_process(COMMAND gzip -9nc ${made}/changelog OUTPUT_FILE ${made}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md OUTPUT_FILE ${made}/NEWS.gz COMMAND_ERROR_IS_FATAL ANY)
install(FILES ${made}/NEWS.gz DESTINATION share/doc/lull COMPONENT lull)
foreach(pair lull=lull sim=lull-sim)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 name)
  install(FILES ${made}/changelog.gz ${package}/debian/copyright DESTINATION share/doc/${name} COMPONENT ${component})
  install(FILES ${package}/debian/${name}.overrides DESTINATION share/lintian/overrides RENAME ${name}
    COMPONENT ${component})
endforeach()
include(CPack)
